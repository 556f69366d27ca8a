#include "core/host/rights.h"
#include "core/isolate/isolate_int.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/agent/agent.h"
#include "json/read.h"
#include "json/valid.h"
#include "json/write.h"
#include "wire/isolate.h"
#include "tier/tier.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define START_NS (40 * NS_PER_S) /* an interpreter may need some to load, see guest/isolate.c */
#define GRACE_NS \
    (10 * \
     NS_PER_S) /* the warden ends a call in time; if it does not even say so, the jail is broken */
#define QUEUE_MAX   1024        /* calls that wait, per jail */
#define QUEUE_BYTES (64u << 20) /* programs and inputs of those */
#define COPY_MIB    12u         /* of a call: stack, page tables, pipes, payload */
#define RESULT_ROOM (ISOLATE_VALUE_MAX + 65536)


static int language_index(const char *name)
{
    for (int i = 0; i < ISOLATE_LANGUAGES; i++)
        if (!strcmp(isolate_language[i], name))
            return i;
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
        j->nwaiting--, j->waiting_bytes -= k->payload.n;
    buf_free(&k->payload), buf_free(&k->out), buf_free(&k->err), buf_free(&k->result);
    loop_defer(j->core->loop, bury, k);
}

void isolate_call_fail(struct isolate_call *k, const struct err *e)
{
    isolate_done *done = k->done;
    void *arg = k->arg;
    call_free(k);
    done(arg, NULL, e);
}

/* ---- a call on its way ---- */
static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct isolate_call *k = arg;
    struct buf *b = chan == CH_STDOUT ? &k->out : chan == CH_STDERR ? &k->err : &k->result;
    size_t cap = chan == CH_FILE ? RESULT_ROOM : k->max_output;
    buf_put(
        b, p,
        n < cap - b->n
            ? n
            : cap -
                  b->n); /* the credit is used up once, so this only guards against a lying warden */
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
    else if (r->type && !strcmp(r->type, "SystemError") &&
             r->memory_bytes >= ((uint64_t)r->memory_mib << 20) / 4 * 3)
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
        isolate_call_fail(k, &e);
        return;
    }
    struct isolate_result r = {.end = v.end,
                               .out = {k->out.p, k->out.n},
                               .err = {k->err.p, k->err.n},
                               .value = S("null"),
                               .message = v.message,
                               .language = isolate_language[j->lang],
                               .template = j->template_name,
                               .syscall = *v.syscall ? v.syscall : NULL,
                               .exit_code = WIFSIGNALED(f->status) ? -1 : WEXITSTATUS(f->status),
                               .signal = WIFSIGNALED(f->status) ? WTERMSIG(f->status) : 0,
                               .wall_ns = wall_ns,
                               .cpu_ns = f->cpu_ns,
                               .memory_bytes = f->rss,
                               .timeout_ms = k->timeout_ms,
                               .cpu_ms = k->cpu_ms,
                               .memory_mib = k->memory_mib};
    if (v.detail.n && !v.value)
        isolate_mend(k->result.p + (v.detail.p - k->result.p), v.detail.n);
    auto_json tree = v.detail.n && !v.value ? json_parse(v.detail.p, v.detail.n, NULL) : NULL;
    char why[256];
    if (v.value && json_valid(v.detail, &e)) { /* too deep, or not written by the driver at all */
        r.end = ISOLATE_NOT_JSON;
        (void)snprintf(why, sizeof why, "its value is not valid JSON: %s", e.msg);
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
        if (copy.code == E_UNSUPPORTED ||
            copy.code == E_GUEST) { /* no use in keeping it: the next call starts afresh */
            (void)err_wrap(&copy, "template '%s'", j->template_name);
            jail_remove(j, &copy, NULL, NULL);
            return;
        }
        isolate_call_fail(k, &copy);
        isolate_pump_tenant(j);
        return;
    }
    j->answered = true;
    if (rec_u64_or(r, TI_OWN_BYTES, 0))
        j->own_mib = COPY_MIB + (uint32_t)((rec_u64_or(r, TI_OWN_BYTES, 0) & 0xffffffffff) >> 20);
    struct isolate_facts f = {.status = (int)(uint32_t)rec_u64_or(r, TI_STATUS, 0xff00),
                              .cut = (unsigned)rec_u64_or(r, TI_CUT, 0),
                              .cpu_ns = (int64_t)rec_u64_or(r, TI_CPU_NS, 0),
                              .rss = rec_u64_or(r, TI_RSS_BYTES, 0),
                              .cpu_ms = k->cpu_ms,
                              .memory_mib = k->memory_mib,
                              .timeout_ms = k->timeout_ms,
                              .result = {k->result.p, k->result.n},
                              .err = {k->err.p, k->err.n}};
    report(k, &f, (int64_t)rec_u64_or(r, TI_WALL_NS, 0));
    isolate_pump_tenant(j);
}

static void on_deadline(void *arg)
{
    struct isolate_call *k = arg;
    struct err e;
    err_set(&e, E_GUEST, "the isolate did not answer");
    jail_broken(k->jail, &e);
}

static int too_much(uint32_t wanted, uint32_t host, uint32_t tenant, struct err *e)
{
    return wanted > host
               ? err_set(e, E_QUOTA, "memory: at most %u MiB (HUTCH_ISOLATE_MEMORY)", host)
           : wanted > tenant ? err_set(e, E_QUOTA, "memory: this tenant has at most %u MiB", tenant)
                             : 0;
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
    j->nwaiting--, j->waiting_bytes -= k->payload.n, j->nrunning++, j->memory_mib += k->memory_mib;
    j->used_ns = clock_mono();
    timer_arm(&k->deadline,
              (int64_t)k->timeout_ms * NS_PER_MS + (j->answered ? GRACE_NS : START_NS));
    return 0;
}

/* Beside its limit a call has what it writes to of the interpreter it was forked from. */
static bool fits(const struct jail *j, const struct isolate_call *k)
{
    const struct config *cfg = &j->core->cfg;
    uint64_t all =
        (uint64_t)j->memory_mib + k->memory_mib + (uint64_t)j->own_mib * (j->nrunning + 1);
    return !j->nrunning || (j->nrunning < cfg->isolate_calls && all <= cfg->isolate_memory_mib);
}

/* In order of arrival: a large call at the head waits for room and is not overtaken. */
void isolate_pump(struct jail *j)
{
    const struct config *cfg = &j->core->cfg;
    struct err e = {0};
    uint32_t used;
    while (j->agent && !j->removing && !list_empty(&j->waiting)) {
        struct isolate_call *k = container_of(j->waiting.next, struct isolate_call, link);
        uint32_t may = isolate_memory_of(j->core, j->tenant, &used);
        if (k->memory_mib > may) { /* the setting was changed meanwhile */
            too_much(k->memory_mib, cfg->isolate_memory_mib, may, &e);
            isolate_call_fail(k, &e);
            continue;
        }
        if (!fits(j, k) || used > may - k->memory_mib)
            break;
        if (send_call(k, &e))
            break; /* the agent is broken; jail_broken is on its way and answers all that wait. Not here: the caller does not expect it yet */
    }
    if (!j->nrunning && !j->nwaiting)
        timer_arm(&j->idle, cfg->isolate_idle_s * NS_PER_S);
    else
        timer_stop(&j->idle);
}

/* ---- the request ---- */
static const struct template *pick_template(struct core *c, const struct isolate_spec *s,
                                            struct err *e)
{
    struct caller who = s->by ? *s->by : caller_of_tenant(s->tenant);
    const struct template *t = s->template ? NULL : template_find(c, "isolate", NULL);
    if (!t)
        t = template_find_for(c, &who, s->template ? s->template : "base", e);
    uint32_t memory = s->memory_mib ? s->memory_mib : ISOLATE_MEMORY_MIB;
    return t && !caller_may_start(&who, t->name, t->id, tier_isolate.name, 0, memory, 0, e) ? t
                                                                                            : NULL;
}

static int check(struct core *c, const struct isolate_spec *s, struct err *e)
{
    if (c->stopping || c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping, or hutch-spawn is not running");
    if (c->cfg.min_tier->strength > tier_isolate.strength)
        return err_set(e, E_DENIED,
                       "isolation 'isolate' is weaker than '%s', the operator's minimum",
                       c->cfg.min_tier->name);
    if (language_index(s->language) < 0)
        return err_set(e, E_INVALID, "an isolate runs python, js, php or ruby");
    uint32_t used, may = isolate_memory_of(c, s->tenant ? s->tenant : "", &used);
    return too_much(s->memory_mib ? s->memory_mib : ISOLATE_MEMORY_MIB, c->cfg.isolate_memory_mib,
                    may, e);
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
    return k->payload.n > ISO_TOTAL_MAX
               ? err_set(e, E_TOO_LARGE, "program and input are larger than %u KiB",
                         ISO_TOTAL_MAX >> 10)
               : 0;
}

struct isolate_call *isolate_eval(struct core *c, const struct isolate_spec *s, isolate_done *done,
                                  void *arg, struct err *e)
{
    if (check(c, s, e))
        return NULL;
    const struct template *t = pick_template(c, s, e);
    if (!t)
        return NULL;
    struct isolate_call *k = xcalloc(1, sizeof *k);
    k->timeout_ms = s->timeout_ms ? s->timeout_ms : ISOLATE_TIMEOUT_MS;
    k->cpu_ms = s->cpu_ms ? s->cpu_ms : k->timeout_ms;
    k->memory_mib = s->memory_mib ? s->memory_mib : ISOLATE_MEMORY_MIB;
    k->max_output = s->max_output ? s->max_output : ISOLATE_OUTPUT;
    struct jail *j = make_payload(k, s, e) ? NULL
                                           : jail_for(c, t, (unsigned)language_index(s->language),
                                                      s->tenant ? s->tenant : "", e);
    if (j && (j->nwaiting >= QUEUE_MAX ||
              (j->nwaiting && k->payload.n > QUEUE_BYTES - j->waiting_bytes))) {
        err_set(e, E_RATE, "%zu calls with %zu MiB are already waiting for %s", j->nwaiting,
                j->waiting_bytes >> 20, s->language);
        j = NULL;
    }
    if (!j) {
        buf_free(&k->payload);
        free(k);
        return NULL;
    }
    k->jail = j, k->done = done, k->arg = arg;
    timer_init(&k->deadline, c->loop, on_deadline, k);
    list_add_tail(&j->waiting, &k->link);
    j->nwaiting++, j->waiting_bytes += k->payload.n;
    isolate_pump(j);
    return k;
}

void isolate_cancel(struct isolate_call *k)
{
    struct jail *j = k->jail;
    if (k->call)
        call_cancel(k->call);
    call_free(k);
    isolate_pump_tenant(j);
}
