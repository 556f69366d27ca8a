#include "core/isolate.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "core/agent.h"
#include "core/internal.h"
#include "core/template.h"
#include "json/read.h"
#include "json/valid.h"
#include "json/write.h"
#include "spawn/client.h"
#include "wire/isolate.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS    (40 * NS_PER_S)  /* an interpreter may need some to load, see guest/isolate.c */
#define GRACE_NS    (10 * NS_PER_S)  /* the warden ends a call in time; if it does not even say so, the jail is broken */
#define QUEUE_MAX   1024
#define OWN_MIB     320u             /* the interpreter and its warden */
#define RESULT_ROOM (ISOLATE_VALUE_MAX + 65536)

const char isolate_boundary[] = "shared host kernel: a new process per call in a jail without files, network or other programs; a seccomp list of a few dozen calls";

static const struct { const char *name; enum sp_language lang; } languages[] = {
    {"python", SP_LANG_PYTHON}, {"js", SP_LANG_JS}, {"php", SP_LANG_PHP}, {"ruby", SP_LANG_RUBY},
};

struct jail {
    struct list link;
    struct core *core;
    char id[22], template_id[22];
    char *template_name;
    unsigned lang;            /* index of languages[] */
    struct agent *agent;      /* NULL: still starting */
    int pidfd;
    bool answered, removing;
    struct list waiting, running;
    size_t nwaiting, nrunning;
    uint32_t memory_mib;      /* promised to the calls that run */
    struct timer idle;
    struct list removers;
};

struct isolate_call {
    struct list link;
    struct jail *jail;
    struct call *call;        /* NULL: waits */
    struct buf payload;
    size_t sent;
    uint32_t timeout_ms, cpu_ms, memory_mib, max_output;
    struct buf out, err, result;
    struct timer deadline;
    isolate_done *done;
    void *arg;
};

struct remover { struct list link; void (*fn)(void *arg); void *arg; };

static int language_index(const char *name)
{
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (!strcmp(languages[i].name, name))
            return (int)i;
    return -1;
}
bool isolate_language_ok(const char *name) { return language_index(name) >= 0; }

/* ---- the end of a call ---- */
static void bury(void *arg) { free(arg); }

static void call_free(struct isolate_call *k)
{
    struct jail *j = k->jail;
    timer_stop(&k->deadline);
    list_del(&k->link);
    if (k->call)
        j->nrunning--, j->memory_mib -= k->memory_mib;
    else
        j->nwaiting--;
    buf_free(&k->payload), buf_free(&k->out), buf_free(&k->err), buf_free(&k->result);
    loop_defer(j->core->loop, bury, k);
}

static void call_fail(struct isolate_call *k, const struct err *e)
{
    isolate_done *done = k->done;
    void *arg = k->arg;
    call_free(k);
    done(arg, NULL, e);
}

/* ---- the end of a jail ---- */
static void jail_gone(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct jail *j = arg;
    struct remover *r;
    (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("isolate %s: remove: %s", j->id, rep->err.msg);
    list_del(&j->link);
    list_each(r, &j->removers, link) {
        list_del(&r->link);
        r->fn(r->arg);
        free(r);
    }
    free(j->template_name);
    loop_defer(j->core->loop, bury, j);
}

/* Calls that still want something of it fail with `e`. */
static void jail_remove(struct jail *j, const struct err *e, void (*done)(void *arg), void *arg)
{
    struct isolate_call *k;
    struct err lost;
    if (done) {
        struct remover *r = xcalloc(1, sizeof *r);
        r->fn = done, r->arg = arg;
        list_add_tail(&j->removers, &r->link);
    }
    if (j->removing)
        return;
    j->removing = true;
    timer_stop(&j->idle);
    list_each(k, &j->running, link) {
        call_cancel(k->call); /* its process goes with the jail */
        call_fail(k, e);
    }
    list_each(k, &j->waiting, link)
        call_fail(k, e);
    agent_free(j->agent);
    j->agent = NULL;
    if (j->pidfd >= 0)
        (void)close(j->pidfd);
    j->pidfd = -1;
    struct sp_req q = {.op = SP_REMOVE};
    memcpy(q.u.id.id, j->id, sizeof j->id);
    if (j->core->spawn_lost || spawn_call(j->core->spawn, &q, NULL, 0, jail_gone, j, &lost)) {
        struct sp_rep rep = {.rc = 0}; /* the spawner took it along */
        jail_gone(j, &rep, NULL, 0);
    }
}

static void on_idle(void *arg)
{
    struct err e;
    err_set(&e, E_CANCELED, "the isolate was idle");
    jail_remove(arg, &e, NULL, NULL);
}

static void on_broken(void *arg, const struct err *why)
{
    struct jail *j = arg;
    struct err e;
    err_set(&e, E_GUEST, "the isolate ended unexpectedly: %s", why->msg);
    log_warn("isolate %s (%s, %s): %s", j->id, languages[j->lang].name, j->template_name, why->msg);
    jail_remove(j, &e, NULL, NULL);
}

/* ---- a call on its way ---- */
static void pump(struct jail *j);

static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct isolate_call *k = arg;
    struct buf *b = chan == CH_STDOUT ? &k->out : chan == CH_STDERR ? &k->err : &k->result;
    size_t cap = chan == CH_FILE ? RESULT_ROOM : k->max_output;
    buf_put(b, p, n < cap - b->n ? n : cap - b->n); /* the credit is used up once, so this only guards against a lying warden */
}

static void on_room(void *arg)
{
    struct isolate_call *k = arg;
    if (k->sent < k->payload.n)
        k->sent += call_send(k->call, CH_STDIN, k->payload.p + k->sent, k->payload.n - k->sent);
}

static const char *text_of(struct json *obj, const char *key)
{
    struct str s = {0};
    return json_str(obj, key, &s, false, NULL) || !s.p ? NULL : s.p;
}

/* The driver's words about an error. They come from the process the caller's code ran in, so they may say anything; they
 * are shown to that caller only. */
static void explain(struct isolate_result *r, struct isolate_verdict *v, struct json *j)
{
    if (r->end != ISOLATE_EXCEPTION)
        return;
    const char *kind = text_of(j, "kind");
    r->type = text_of(j, "type");
    r->traceback = text_of(j, "traceback");
    const char *message = text_of(j, "message");
    r->message = message ? message : "";
    if (kind && !strcmp(kind, "memory"))
        r->end = ISOLATE_MEMORY;
    else if (r->type && !strcmp(r->type, "SystemError") && r->memory_bytes >= ((uint64_t)r->memory_mib << 20) / 4 * 3)
        r->end = ISOLATE_MEMORY; /* Python's way of saying that not even an exception fitted */
    else if (kind && !strcmp(kind, "not_json"))
        r->end = ISOLATE_NOT_JSON;
    if (!*r->message)
        r->message = r->type ? r->type : v->message;
}

static void report(struct isolate_call *k, const struct isolate_facts *f, int64_t wall_ns)
{
    struct isolate_verdict v;
    struct err e = {0};
    struct jail *j = k->jail;
    if (isolate_judge(f, &v, &e)) {
        call_fail(k, &e);
        return;
    }
    struct isolate_result r = {.end = v.end, .out = {k->out.p, k->out.n}, .err = {k->err.p, k->err.n}, .value = S("null"), .message = v.message,
                               .language = languages[j->lang].name, .template = j->template_name,
                               .syscall = *v.syscall ? v.syscall : NULL, .exit_code = WIFSIGNALED(f->status) ? -1 : WEXITSTATUS(f->status),
                               .signal = WIFSIGNALED(f->status) ? WTERMSIG(f->status) : 0, .wall_ns = wall_ns, .cpu_ns = f->cpu_ns,
                               .memory_bytes = f->rss, .timeout_ms = k->timeout_ms, .cpu_ms = k->cpu_ms, .memory_mib = k->memory_mib};
    if (v.detail.n && !v.value)
        isolate_mend(k->result.p + (v.detail.p - k->result.p), v.detail.n);
    auto_json tree = v.detail.n && !v.value ? json_parse(v.detail.p, v.detail.n, NULL) : NULL;
    char why[256];
    if (v.value && json_valid(v.detail, &e)) { /* too deep, or not written by the driver at all */
        r.end = ISOLATE_NOT_JSON;
        (void)snprintf(why, sizeof why, "its value is no JSON that can be passed on: %s", e.msg);
        r.message = why;
    } else if (v.value) {
        r.value = v.detail;
    } else {
        explain(&r, &v, tree);
    }
    isolate_done *done = k->done;
    void *arg = k->arg;
    struct isolate_call keep = *k; /* its buffers live until the callback is over */
    k->out = k->err = k->result = (struct buf){0};
    call_free(k);
    done(arg, &r, NULL);
    buf_free(&keep.out), buf_free(&keep.err), buf_free(&keep.result);
}

static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct isolate_call *k = arg;
    struct jail *j = k->jail;
    if (e) {
        struct err copy = *e;
        if (copy.code == E_GONE)
            err_set(&copy, E_GUEST, "the isolate ended unexpectedly");
        if (copy.code == E_UNSUPPORTED || copy.code == E_GUEST) { /* no use in keeping it: the next call starts afresh */
            (void)err_wrap(&copy, "template '%s'", j->template_name);
            jail_remove(j, &copy, NULL, NULL);
            return;
        }
        call_fail(k, &copy);
        pump(j);
        return;
    }
    j->answered = true;
    struct isolate_facts f = {.status = (int)(uint32_t)rec_u64_or(r, TI_STATUS, 0xff00), .cut = (unsigned)rec_u64_or(r, TI_CUT, 0),
                              .cpu_ns = (int64_t)rec_u64_or(r, TI_CPU_NS, 0), .rss = rec_u64_or(r, TI_RSS_BYTES, 0), .cpu_ms = k->cpu_ms,
                              .memory_mib = k->memory_mib, .timeout_ms = k->timeout_ms, .result = {k->result.p, k->result.n}, .err = {k->err.p, k->err.n}};
    report(k, &f, (int64_t)rec_u64_or(r, TI_WALL_NS, 0));
    if (!j->removing)
        pump(j);
}

static void on_deadline(void *arg)
{
    struct isolate_call *k = arg;
    struct err e;
    err_set(&e, E_GUEST, "the isolate did not answer");
    on_broken(k->jail, &e);
}

static int send_call(struct isolate_call *k, struct err *e)
{
    static const struct call_ops ops = {.data = on_data, .room = on_room, .done = on_done};
    struct jail *j = k->jail;
    auto_buf b = {0};
    size_t first = k->payload.n < ISO_FIRST_MAX ? k->payload.n : ISO_FIRST_MAX;
    rec_put_u64(&b, TI_TOTAL, k->payload.n);
    rec_put(&b, TI_BYTES, k->payload.p, first);
    rec_put_u64(&b, TI_WALL_MS, k->timeout_ms);
    rec_put_u64(&b, TI_CPU_MS, k->cpu_ms);
    rec_put_u64(&b, TI_MEM_BYTES, (uint64_t)k->memory_mib << 20);
    rec_put_u64(&b, TI_OUT_BYTES, k->max_output);
    rec_put_u64(&b, TI_RESULT_BYTES, RESULT_ROOM);
    rec_put_u64(&b, T_CREDIT, 2ull * k->max_output + RESULT_ROOM);
    struct call *c = agent_call(j->agent, (enum agent_op)OP_ISO_CALL, &b, &ops, k, e);
    if (!c)
        return -1;
    k->sent = first;
    list_del(&k->link);
    list_add_tail(&j->running, &k->link);
    k->call = c;
    j->nwaiting--, j->nrunning++, j->memory_mib += k->memory_mib;
    timer_arm(&k->deadline, (int64_t)k->timeout_ms * NS_PER_MS + (j->answered ? GRACE_NS : START_NS));
    return 0;
}

/* In order of arrival: a large call at the head waits for room and is not overtaken. */
static void pump(struct jail *j)
{
    const struct config *cfg = &j->core->cfg;
    struct err e = {0};
    while (j->agent && !j->removing && !list_empty(&j->waiting)) {
        struct isolate_call *k = container_of(j->waiting.next, struct isolate_call, link);
        if (j->nrunning >= cfg->isolate_calls || j->memory_mib + k->memory_mib > cfg->isolate_memory_mib)
            break;
        if (send_call(k, &e))
            call_fail(k, &e);
    }
    if (!j->nrunning && !j->nwaiting)
        timer_arm(&j->idle, cfg->isolate_idle_s * NS_PER_S);
    else
        timer_stop(&j->idle);
}

/* ---- the beginning of a jail ---- */
static struct jail *jail_find(struct core *c, const char *id)
{
    struct jail *j;
    list_each(j, &c->isolates, link)
        if (!strcmp(j->id, id))
            return j;
    return NULL;
}

static void synced(void *arg, const struct err *e) { (void)arg, (void)e; /* the calls behind it fail with the same reason */ }

static void started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct ref ref = ref_take(arg);
    struct jail *j = jail_find(ref.core, ref.id);
    struct err e;
    if (!j || j->removing)
        return;
    if (rep->rc || nfds < 2) {
        e = rep->err;
        if (!rep->rc)
            err_set(&e, E_INTERNAL, "the spawner returned no channel");
        jail_remove(j, &e, NULL, NULL);
        return;
    }
    j->pidfd = take_fd(&fds[0]);
    j->agent = agent_new(j->core->loop, take_fd(&fds[1]), on_broken, j);
    agent_sync(j->agent, false, synced, j);
    pump(j);
}

static struct jail *jail_new(struct core *c, const struct template *t, int lang, struct err *e)
{
    struct jail *j = xcalloc(1, sizeof *j);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    id_make('b', j->id);
    memcpy(j->template_id, t->id, sizeof j->template_id);
    j->core = c, j->lang = (unsigned)lang, j->pidfd = -1;
    list_init(&j->waiting), list_init(&j->running), list_init(&j->removers);
    timer_init(&j->idle, c->loop, on_idle, j);
    struct sp_req q = {.op = SP_ISOLATE_START};
    memcpy(q.u.isolate.id, j->id, sizeof j->id);
    memcpy(q.u.isolate.template_id, t->id, sizeof t->id);
    q.u.isolate.language = languages[lang].lang;
    q.u.isolate.limit = (struct sp_limit){.memory_mib = c->cfg.isolate_memory_mib + OWN_MIB,
                                          .cpu_millis = 1000u * (uint32_t)(cores < 1 ? 1 : cores > (long)SP_CPU_MAX ? (long)SP_CPU_MAX : cores),
                                          .pids_max = 32 + 2 * c->cfg.isolate_calls};
    struct ref *ref = ref_new(c, j->id);
    if (spawn_call(c->spawn, &q, NULL, 0, started, ref, e)) {
        (void)ref_take(ref);
        free(j);
        return NULL;
    }
    j->template_name = xstrdup(t->name);
    list_add_tail(&c->isolates, &j->link);
    return j;
}

/* ---- the request ---- */
static const struct template *pick_template(struct core *c, const struct isolate_spec *s, struct err *e)
{
    const struct template *t = s->template ? NULL : template_find(c, "isolate", NULL);
    if (!t)
        t = template_find(c, s->template ? s->template : "base", e);
    return t;
}

static int check(struct core *c, const struct isolate_spec *s, struct err *e)
{
    if (c->stopping || c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping or its spawner is gone");
    if (c->cfg.min_tier < TIER_ISOLATE)
        return err_set(e, E_DENIED, "isolation 'isolate' is below the floor '%s' that the operator set", tier_name((enum tier)c->cfg.min_tier));
    if (language_index(s->language) < 0)
        return err_set(e, E_INVALID, "an isolate runs python, js, php or ruby");
    if (s->memory_mib > c->cfg.isolate_memory_mib)
        return err_set(e, E_QUOTA, "memory: at most %u MiB (HUTCH_ISOLATE_MEMORY)", c->cfg.isolate_memory_mib);
    return 0;
}

static int make_payload(struct isolate_call *k, const struct isolate_spec *s, struct err *e)
{
    struct jw w;
    jw_init(&w, &k->payload);
    jw_obj(&w);
    jw_kv_strn(&w, "code", s->code);
    jw_kv_raw(&w, "input", s->input.n ? s->input : S("null"));
    jw_kv_str(&w, "function", s->function);
    jw_kv_u64(&w, "memory", (uint64_t)k->memory_mib << 20);
    jw_end(&w);
    return k->payload.n > ISO_TOTAL_MAX ? err_set(e, E_TOO_LARGE, "program and input are more than %u KiB", ISO_TOTAL_MAX >> 10) : 0;
}

struct isolate_call *isolate_eval(struct core *c, const struct isolate_spec *s, isolate_done *done, void *arg, struct err *e)
{
    if (check(c, s, e))
        return NULL;
    const struct template *t = pick_template(c, s, e);
    if (!t)
        return NULL;
    int lang = language_index(s->language);
    struct jail *j = NULL, *it;
    list_each(it, &c->isolates, link)
        if (!it->removing && it->lang == (unsigned)lang && !strcmp(it->template_id, t->id))
            j = it;
    if (j && j->nwaiting >= QUEUE_MAX) {
        err_set(e, E_RATE, "%d calls wait for %s already", QUEUE_MAX, s->language);
        return NULL;
    }
    struct isolate_call *k = xcalloc(1, sizeof *k);
    k->timeout_ms = s->timeout_ms ? s->timeout_ms : ISOLATE_TIMEOUT_MS;
    k->cpu_ms = s->cpu_ms ? s->cpu_ms : k->timeout_ms;
    k->memory_mib = s->memory_mib ? s->memory_mib : ISOLATE_MEMORY_MIB;
    k->max_output = s->max_output ? s->max_output : ISOLATE_OUTPUT;
    if (make_payload(k, s, e) || (!j && !(j = jail_new(c, t, lang, e)))) {
        buf_free(&k->payload);
        free(k);
        return NULL;
    }
    k->jail = j, k->done = done, k->arg = arg;
    timer_init(&k->deadline, c->loop, on_deadline, k);
    list_add_tail(&j->waiting, &k->link);
    j->nwaiting++;
    pump(j);
    return k;
}

void isolate_cancel(struct isolate_call *k)
{
    struct jail *j = k->jail;
    if (k->call)
        call_cancel(k->call);
    call_free(k);
    if (!j->removing)
        pump(j);
}

/* ---- for core ---- */
bool isolate_on_exit(struct core *c, const struct sp_exit *ex)
{
    struct jail *j = jail_find(c, ex->id);
    struct err e;
    if (!j)
        return false;
    err_set(&e, E_GUEST, "%s %d", ex->signaled ? "killed by signal" : "exit status", ex->code);
    if (!j->removing)
        on_broken(j, &e);
    return true;
}

struct drop { size_t left; void (*done)(void *arg); void *arg; };
static void dropped(void *arg)
{
    struct drop *d = arg;
    if (--d->left)
        return;
    d->done(d->arg);
    free(d);
}

void isolate_drop_template(struct core *c, const char *template_id, void (*done)(void *arg), void *arg)
{
    struct drop *d = xcalloc(1, sizeof *d);
    struct jail *j;
    struct err e;
    *d = (struct drop){1, done, arg};
    err_set(&e, E_GONE, "%s", *template_id ? "its template was removed" : "the daemon is stopping");
    list_each(j, &c->isolates, link)
        if (!*template_id || !strcmp(j->template_id, template_id)) {
            d->left++;
            jail_remove(j, &e, dropped, d);
        }
    loop_defer(c->loop, dropped, d);
}

void isolate_spawner_lost(struct core *c)
{
    struct jail *j;
    struct err e;
    err_set(&e, E_UNAVAILABLE, "hutch-spawn ended and took the isolate with it");
    list_each(j, &c->isolates, link)
        jail_remove(j, &e, NULL, NULL);
}

void isolate_free(struct core *c)
{
    struct jail *j;
    struct isolate_call *k;
    list_each(j, &c->isolates, link) {
        struct list *both[] = {&j->running, &j->waiting};
        for (int i = 0; i < 2; i++)
            list_each(k, both[i], link) {
                timer_stop(&k->deadline);
                buf_free(&k->payload), buf_free(&k->out), buf_free(&k->err), buf_free(&k->result);
                if (k->call)
                    call_cancel(k->call);
                free(k);
            }
        struct remover *r;
        list_each(r, &j->removers, link)
            free(r);
        timer_stop(&j->idle);
        agent_free(j->agent);
        if (j->pidfd >= 0)
            (void)close(j->pidfd);
        list_del(&j->link);
        free(j->template_name);
        free(j);
    }
}

size_t isolate_jails(struct core *c)
{
    size_t n = 0;
    struct jail *j;
    list_each(j, &c->isolates, link)
        n++;
    return n;
}
