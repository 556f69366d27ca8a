/* Jails of isolates: one per template, language and tenant. They come with the
 * first call that needs them and go when they are unused, when another needs
 * the place, with their template, or with the daemon. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/isolate/isolate_int.h"
#include "core/host/tenant.h"
#include "spawn/client.h"
#include "core/host/ref.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OWN_MIB \
    512u /* the interpreter and its warden, and a copy of it: a call with all the memory there is runs alone */
#define UNKNOWN_MIB 96u /* of a copy, until the warden has told */

const char *const isolate_language[ISOLATE_LANGUAGES] = {"python", "js", "php", "ruby"};
static const enum sp_language sp_language[ISOLATE_LANGUAGES] = {SP_LANG_PYTHON, SP_LANG_JS,
                                                                SP_LANG_PHP, SP_LANG_RUBY};

void isolates_init(struct core *c)
{
    c->isolates = xcalloc(1, sizeof *c->isolates);
    list_init(&c->isolates->jails);
}

/* ---- its end ---- */
struct remover {
    struct list link;
    void (*fn)(void *arg);
    void *arg;
};
static void bury(void *arg) { free(arg); }

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
    free(j->template_name), free(j->tenant);
    loop_defer(j->core->loop, bury, j);
}

void isolate_pump_tenant(const struct jail *j)
{
    struct jail *it;
    list_each(it, &j->core->isolates->jails, link)
        if (!it->removing && !strcmp(it->tenant, j->tenant))
            isolate_pump(it);
}

void jail_remove(struct jail *j, const struct err *e, void (*done)(void *arg), void *arg)
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
        isolate_call_fail(k, e);
    }
    list_each(k, &j->waiting, link)
        isolate_call_fail(k, e);
    isolate_pump_tenant(j);
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

void jail_broken(void *arg, const struct err *why)
{
    struct jail *j = arg;
    struct err e;
    err_set(&e, E_GUEST, "the isolate ended unexpectedly: %s", why->msg);
    log_warn("isolate %s (%s, %s): %s", j->id, isolate_language[j->lang], j->template_name,
             why->msg);
    jail_remove(j, &e, NULL, NULL);
}

/* ---- its beginning ---- */
static struct jail *jail_find(struct core *c, const char *id)
{
    struct jail *j;
    list_each(j, &c->isolates->jails, link)
        if (!strcmp(j->id, id))
            return j;
    return NULL;
}

static void synced(void *arg, const struct err *e)
{
    (void)arg, (void)e; /* the calls behind it fail with the same reason */
}

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
            err_set(&e, E_INTERNAL, "hutch-spawn returned no channel");
        jail_remove(j, &e, NULL, NULL);
        return;
    }
    j->pidfd = take_fd(&fds[0]);
    j->agent = agent_new(j->core->loop, take_fd(&fds[1]), jail_broken, j);
    agent_sync(j->agent, false, synced, j);
    isolate_pump(j);
}

static struct jail *jail_new(struct core *c, const struct template *t, unsigned lang,
                             const char *tenant, struct err *e)
{
    struct jail *j = xcalloc(1, sizeof *j);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    id_make('b', j->id);
    memcpy(j->template_id, t->id, sizeof j->template_id);
    j->core = c, j->lang = lang, j->pidfd = -1, j->own_mib = UNKNOWN_MIB;
    list_init(&j->waiting), list_init(&j->running), list_init(&j->removers);
    timer_init(&j->idle, c->loop, on_idle, j);
    struct sp_req q = {.op = SP_ISOLATE_START};
    memcpy(q.u.isolate.id, j->id, sizeof j->id);
    memcpy(q.u.isolate.template_id, t->id, sizeof t->id);
    q.u.isolate.language = sp_language[lang];
    q.u.isolate.limit = (struct sp_limit){
        .memory_mib = c->cfg.isolate_memory_mib + OWN_MIB,
        .cpu_millis = 1000u * (uint32_t)(cores < 1                  ? 1
                                         : cores > (long)SP_CPU_MAX ? (long)SP_CPU_MAX
                                                                    : cores),
        .pids_max = 32 + 2 * c->cfg.isolate_calls};
    struct ref *ref = ref_new(c, j->id);
    if (spawn_call(c->spawn, &q, NULL, 0, started, ref, e)) {
        (void)ref_take(ref);
        free(j);
        return NULL;
    }
    j->template_name = xstrdup(t->name), j->tenant = xstrdup(tenant);
    list_add_tail(&c->isolates->jails, &j->link);
    return j;
}

/* The one among them that has had nothing to do for longest; NULL: all are at work. */
static struct jail *resting(struct core *c, const char *tenant /* NULL: anybody's */)
{
    struct jail *j, *best = NULL;
    list_each(j, &c->isolates->jails, link)
        if (!j->removing && !j->nrunning && !j->nwaiting &&
            (!tenant || !strcmp(j->tenant, tenant)) && (!best || j->used_ns < best->used_ns))
            best = j;
    return best;
}

/* A place for one more: of a tenant's own if it has its half already, else of anybody's. */
static int make_room(struct core *c, const char *tenant, struct err *e)
{
    unsigned most = c->cfg.isolate_jails, all = 0, own = 0;
    struct jail *j;
    struct err gone;
    list_each(j, &c->isolates->jails, link)
        if (!j->removing)
            all++, own += !strcmp(j->tenant, tenant);
    bool half = *tenant && own >= (most + 1) / 2;
    if (!half && all < most)
        return 0;
    j = resting(c, half ? tenant : NULL);
    if (!j)
        return half
                   ? err_set(
                         e, E_RATE,
                         "%u isolates (language and template) of this tenant are running, half of HUTCH_ISOLATE_JAILS",
                         own)
                   : err_set(
                         e, E_RATE,
                         "%u isolates (language, template and tenant) are running (HUTCH_ISOLATE_JAILS)",
                         all);
    err_set(&gone, E_CANCELED, "replaced by another isolate");
    jail_remove(j, &gone, NULL, NULL);
    return 0;
}

struct jail *jail_for(struct core *c, const struct template *t, unsigned lang, const char *tenant,
                      struct err *e)
{
    struct jail *j;
    list_each(j, &c->isolates->jails, link)
        if (!j->removing && j->lang == lang && !strcmp(j->template_id, t->id) &&
            !strcmp(j->tenant, tenant))
            return j;
    return make_room(c, tenant, e) ? NULL : jail_new(c, t, lang, tenant, e);
}

uint32_t isolate_memory_of(struct core *c, const char *tenant, uint32_t *used)
{
    const struct tenant *t = tenant_find(core_tenants(c), tenant);
    struct jail *j;
    *used = 0;
    list_each(j, &c->isolates->jails, link)
        if (!strcmp(j->tenant, tenant))
            *used += j->memory_mib;
    return t && t->memory_mib && t->memory_mib < UINT32_MAX ? (uint32_t)t->memory_mib : UINT32_MAX;
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
        jail_broken(j, &e);
    return true;
}

struct drop {
    size_t left;
    void (*done)(void *arg);
    void *arg;
};
static void dropped(void *arg)
{
    struct drop *d = arg;
    if (--d->left)
        return;
    d->done(d->arg);
    free(d);
}

void isolate_drop_template(struct core *c, const char *template_id, void (*done)(void *arg),
                           void *arg)
{
    struct drop *d = xcalloc(1, sizeof *d);
    struct jail *j;
    struct err e;
    *d = (struct drop){1, done, arg};
    err_set(&e, E_GONE, "%s", *template_id ? "its template was removed" : "the daemon is stopping");
    list_each(j, &c->isolates->jails, link)
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
    err_set(&e, E_UNAVAILABLE, "hutch-spawn exited and took the isolate down with it");
    list_each(j, &c->isolates->jails, link)
        jail_remove(j, &e, NULL, NULL);
}

void isolate_free(struct core *c)
{
    struct jail *j;
    struct isolate_call *k;
    list_each(j, &c->isolates->jails, link) {
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
        free(j->template_name), free(j->tenant);
        free(j);
    }
    free(c->isolates);
    c->isolates = NULL;
}
