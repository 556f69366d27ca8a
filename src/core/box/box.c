/* What a box is to its daemon, from the outside: the operation in flight, how it
 * ends, what it used. How it comes to be is in box_start.c, how it gets an identity
 * and stands still in box_configure.c. */
#include "base/log.h"
#include "tier/machine.h"
#include "core/agent/agent.h"
#include "core/box/box_int.h"
#include "spawn/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct boxes {
    struct map by_id;
};

void boxes_init(struct core *c) { c->boxes = xcalloc(1, sizeof *c->boxes); }
void boxes_free(struct core *c)
{
    map_free(&c->boxes->by_id);
    free(c->boxes);
    c->boxes = NULL;
}
const struct map *boxes(const struct core *c) { return &c->boxes->by_id; }
struct box *box_at(const struct core *c, const char *id) { return map_get(&c->boxes->by_id, id); }
void box_enter(struct box *b) { map_set(&b->core->boxes->by_id, b->id, b); }

struct remover {
    struct list link;
    void (*fn)(void *arg);
    void *arg;
};

bool box_spec_eq(const struct box_spec *a, const struct box_spec *b)
{
    return a->tier == b->tier && a->cpu_millis == b->cpu_millis && a->memory_mib == b->memory_mib &&
           a->disk_mib == b->disk_mib && !strcmp(a->template_id, b->template_id);
}

struct sp_limit box_limit(const struct box_spec *s)
{
    return (struct sp_limit){
        .memory_mib = s->memory_mib, .cpu_millis = s->cpu_millis, .pids_max = s->tier->pids_max};
}

void box_finish(struct box *b, const struct err *e)
{
    box_cb *cb = b->cb;
    void *arg = b->cb_arg;
    timer_stop(&b->deadline);
    b->cb = NULL;
    if (cb)
        cb(arg, b, e);
}

struct ref *box_ref(const struct box *b)
{
    struct ref *r = ref_new(b->core, b->id);
    r->keep_files = b->keep_files;
    return r;
}

struct box *box_of(const struct ref *r)
{
    struct box *b = box_at(r->core, r->id);
    return b && !b->removing ? b : NULL;
}
struct box *box_take(void *ref)
{
    struct ref r = ref_take(ref);
    return box_of(&r);
}

static void bury(void *arg) { free(arg); }

void box_silence(struct box *b)
{
    struct err gone;
    err_set(&gone, E_CANCELED, "it was removed in the meantime");
    if (b->cb)
        box_finish(b, &gone);
    agent_free(b->agent);
    b->agent = NULL;
    agent_free(b->volumes);
    b->volumes = NULL;
    machine_drop(b->machine);
    b->machine = NULL;
}

static void box_free(struct box *b)
{
    timer_stop(&b->deadline);
    box_silence(b);
    buf_free(&b->identity);
    list_del(&b->pool);
    if (*b->id)
        map_del(&b->core->boxes->by_id, b->id);
    loop_defer(b->core->loop, bury, b);
}

/* ---- the end of a box ---- */
static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct box *b = arg;
    if (rep->rc)
        log_warn("box %s: remove: %s", b->id, rep->err.msg);
    struct remover *r;
    struct list all;
    list_init(&all);
    list_each(r, &b->removers, link) {
        list_del(&r->link);
        list_add_tail(&all, &r->link);
    }
    box_free(b);
    list_each(r, &all, link) {
        list_del(&r->link);
        if (r->fn)
            r->fn(r->arg);
        free(r);
    }
}

void box_remove(struct box *b, void (*done)(void *arg), void *arg)
{
    struct remover *r = xcalloc(1, sizeof *r);
    r->fn = done, r->arg = arg;
    list_add_tail(&b->removers, &r->link);
    if (b->removing)
        return;
    b->removing = true;
    b->phase = BOX_DEAD;
    b->owner = NULL;
    box_silence(b);
    list_del(&b->pool);
    b->core->on->box_removed(b->core, b->id);
    if (!b->start || start_cancel(b->start))
        box_remove_now(b);
    /* else what is being made goes once it is made: box_start.c */
}

void box_remove_now(struct box *b)
{
    b->start = NULL;
    struct sp_req q = {.op = b->keep_files ? SP_RELEASE : SP_REMOVE};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    struct err e;
    if (spawn_call(b->core->spawn, &q, NULL, 0, removed, b, &e)) {
        struct sp_rep rep = {.rc = 0}; /* the spawner is gone and took the box with it */
        removed(b, &rep, NULL, 0);
    }
}

struct files_wait {
    void (*done)(void *arg);
    void *arg;
};
static void files_removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct files_wait w = *(struct files_wait *)arg;
    free(arg);
    if (rep->rc)
        log_warn("files of a box: %s", rep->err.msg);
    if (w.done)
        w.done(w.arg);
}

void box_remove_files(struct core *c, const char *id, void (*done)(void *arg), void *arg)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    struct files_wait *w = xcalloc(1, sizeof *w);
    *w = (struct files_wait){done, arg};
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    if (!spawn_call(c->spawn, &q, NULL, 0, files_removed, w, &e))
        return;
    log_warn("files of box %s: %s", id, e.msg); /* the next start finds them without an owner */
    free(w);
    if (done)
        loop_defer(c->loop, done, arg);
}

void box_leave(struct box *b)
{
    b->cb = NULL;
    box_free(b);
}

void box_ended(struct box *b, enum end_reason why, const char *message, bool host_fault)
{
    if (b->removing)
        return;
    struct err e;
    b->phase = BOX_DEAD;
    if (b->cb) {
        err_set(&e, host_fault ? E_INTERNAL : E_GUEST, "%s", message);
        box_finish(b, &e); /* who waits for it removes it */
        return;
    }
    b->core->on->box_ended(b, why, message, host_fault);
}

void box_on_exit(struct box *b, const struct sp_exit *ex)
{
    char m[160];
    if (ex->oom_kills && ex->signaled)
        box_ended(b, END_OOM, "the sandbox as a whole ran out of memory", false);
    else if (ex->signaled) {
        (void)snprintf(m, sizeof m, "its process on the host was killed by signal %d", ex->code);
        box_ended(b, END_HOST_FAULT, m, true);
    } else if (ex->code) {
        (void)snprintf(m, sizeof m, "its process on the host exited with status %d", ex->code);
        box_ended(b, END_HOST_FAULT, m, true);
    } else
        box_ended(b, END_GUEST_EXIT, "the guest shut itself down", false);
}

void box_spawner_lost(struct box *b)
{
    if (b->phase != BOX_STARTING) /* a start hears of it by its own call */
        box_ended(b, END_HOST_FAULT, "hutch-spawn exited and took the sandbox down with it", true);
}

/* ---- accounting ---- */
struct stat_wait {
    void (*cb)(void *arg, const struct err *e, const struct sp_stat *st);
    void *arg;
};

static void stat_done(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct stat_wait w = *(struct stat_wait *)arg;
    free(arg);
    w.cb(w.arg, rep->rc ? &rep->err : NULL, &rep->u.stat);
}

void box_stat(struct box *b, void (*cb)(void *arg, const struct err *e, const struct sp_stat *st),
              void *arg)
{
    struct sp_req q = {.op = SP_STAT};
    struct err e;
    struct stat_wait *w = xcalloc(1, sizeof *w);
    *w = (struct stat_wait){cb, arg};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    if (spawn_call(b->core->spawn, &q, NULL, 0, stat_done, w, &e)) {
        free(w);
        cb(arg, &e, NULL);
    }
}

struct oom_wait {
    struct core *core;
    char box[22];
    void (*cb)(void *arg, const struct err *e, bool oom);
    void *arg;
};

static void oom_stat(void *arg, const struct err *e, const struct sp_stat *st)
{
    struct oom_wait w = *(struct oom_wait *)arg;
    free(arg);
    struct box *b = box_at(w.core, w.box);
    bool oom = !e && b && st->oom_kills > b->oom_seen;
    if (oom)
        b->oom_seen = st->oom_kills;
    w.cb(w.arg, e, oom);
}

int box_ask_oom(struct box *b, void (*cb)(void *arg, const struct err *e, bool oom), void *arg)
{
    if (!tier_can(b->spec.tier, TIER_COUNTED))
        return -1;
    struct oom_wait *w = xcalloc(1, sizeof *w);
    *w = (struct oom_wait){.core = b->core, .cb = cb, .arg = arg};
    memcpy(w->box, b->id, sizeof w->box);
    box_stat(b, oom_stat, w);
    return 0;
}
