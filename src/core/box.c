#include "core/box.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "backend/vm/vm.h"
#include "core/agent.h"
#include "core/egress.h"
#include "core/internal.h"
#include "core/pool.h"
#include "core/variant.h"
#include "spawn/client.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONFIGURE_NS (30 * NS_PER_S)
#define BOOT_NS      (120 * NS_PER_S)

struct remover { struct list link; void (*fn)(void *arg); void *arg; };

bool box_spec_eq(const struct box_spec *a, const struct box_spec *b)
{
    return a->tier == b->tier && a->cpu_millis == b->cpu_millis && a->memory_mib == b->memory_mib && a->disk_mib == b->disk_mib &&
           !strcmp(a->template_id, b->template_id);
}

struct sp_limit box_limit(const struct box_spec *s)
{
    return (struct sp_limit){.memory_mib = s->memory_mib, .cpu_millis = s->cpu_millis, .pids_max = s->tier == TIER_VM ? 64 : 1024};
}

static uint32_t vcpus(const struct box_spec *s) { return (s->cpu_millis + 999) / 1000; }

/* The operation in flight ends: exactly one callback. */
static void finish(struct box *b, const struct err *e)
{
    box_cb *cb = b->cb;
    void *arg = b->cb_arg;
    timer_stop(&b->deadline);
    b->cb = NULL;
    if (cb)
        cb(arg, b, e);
}

static void on_deadline(void *arg)
{
    struct box *b = arg;
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox did not get ready within %d s", (int)((b->booting ? BOOT_NS : CONFIGURE_NS) / NS_PER_S));
    finish(b, &e);
}

static struct box *box_new(struct core *c, const struct box_spec *spec)
{
    struct box *b = xcalloc(1, sizeof *b);
    b->core = c, b->spec = *spec, b->pidfd = -1;
    list_init(&b->removers);
    timer_init(&b->deadline, c->loop, on_deadline, b);
    b->started_mono = clock_mono();
    return b;
}

static void bury(void *arg) { free(arg); }

void box_silence(struct box *b)
{
    struct err gone;
    err_set(&gone, E_CANCELED, "it was removed meanwhile");
    if (b->cb)
        finish(b, &gone);
    agent_free(b->agent);
    b->agent = NULL;
    agent_free(b->volumes);
    b->volumes = NULL;
    vm_free(b->vm);
    b->vm = NULL;
}

static void box_free(struct box *b)
{
    timer_stop(&b->deadline);
    box_silence(b);
    if (b->pidfd >= 0)
        (void)close(b->pidfd);
    list_del(&b->pool);
    if (*b->id)
        map_del(&b->core->boxes, b->id);
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
    egress_drop(b->core, b->id);
    struct sp_req q = {.op = b->keep_files ? SP_RELEASE : SP_REMOVE};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    struct err e;
    if (spawn_call(b->core->spawn, &q, NULL, 0, removed, b, &e)) {
        struct sp_rep rep = {.rc = 0}; /* the spawner is gone and took the box with it */
        removed(b, &rep, NULL, 0);
    }
}

struct files_wait { void (*done)(void *arg); void *arg; };
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

static void ended(struct box *b, enum end_reason why, const char *message, bool host_fault)
{
    if (b->removing)
        return;
    struct err e;
    b->phase = BOX_DEAD;
    struct sandbox *sb = b->owner;
    if (b->cb) {
        err_set(&e, host_fault ? E_INTERNAL : E_GUEST, "%s", message);
        finish(b, &e); /* who waits for it removes it */
        return;
    }
    if (sb)
        sandbox_box_ended(sb, why, message, host_fault);
    else
        pool_lost(b);
}

void box_on_exit(struct box *b, const struct sp_exit *ex)
{
    char m[160];
    if (ex->oom_kills && ex->signaled)
        ended(b, END_OOM, "the sandbox as a whole ran out of memory", false);
    else if (ex->signaled) {
        (void)snprintf(m, sizeof m, "its process on the host was killed by signal %d", ex->code);
        ended(b, END_HOST_FAULT, m, true);
    } else if (ex->code) {
        (void)snprintf(m, sizeof m, "its process on the host exited with status %d", ex->code);
        ended(b, END_HOST_FAULT, m, true);
    } else
        ended(b, END_GUEST_EXIT, "the guest shut itself down", false);
}

void box_spawner_lost(struct box *b)
{
    if (b->phase != BOX_STARTING) /* a start hears of it by its own call */
        ended(b, END_HOST_FAULT, "hutch-spawn ended and took the sandbox with it", true);
}

static void on_broken(void *arg, const struct err *why)
{
    struct box *b = arg;
    if (why->code == E_GONE)
        return; /* the process ended; its exit event says how */
    ended(b, END_HOST_FAULT, why->msg, false);
}

static void open_channel(struct box *b, int fd)
{
    b->agent = agent_new(b->core->loop, fd, on_broken, b);
    agent_silence(b->agent, b->core->cfg.agent_silent_s * NS_PER_S);
}

static void vm_lost(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct box *b = arg;
    if (e && e->code == E_GONE)
        return; /* likewise */
    log_warn("box %s: %s", b->id, e ? e->msg : "lost");
}

/* ---- start ---- */
static void start_failed(struct box *b, const struct err *e)
{
    struct err copy = *e;
    finish(b, &copy);
    if (*b->id)
        box_remove(b, NULL, NULL);
    else
        box_free(b);
}

/* Waits that no object of ours can cancel: the box may be gone when they end. */
static struct ref *box_ref(const struct box *b)
{
    struct ref *r = ref_new(b->core, b->id);
    r->keep_files = b->keep_files;
    return r;
}

static struct box *box_of(const struct ref *r)
{
    struct box *b = map_get(&r->core->boxes, r->id);
    return b && !b->removing ? b : NULL;
}
static struct box *box_take(void *ref)
{
    struct ref r = ref_take(ref);
    return box_of(&r);
}

static void container_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    struct err e;
    if (rep->rc) {
        start_failed(b, &rep->err);
        return;
    }
    if (nfds < 2) {
        err_set(&e, E_INTERNAL, "the spawner returned no channel");
        start_failed(b, &e);
        return;
    }
    b->pidfd = take_fd(&fds[0]);
    open_channel(b, take_fd(&fds[1]));
    b->phase = BOX_WAITING;
    finish(b, NULL);
}

static void container_start(struct box *b)
{
    struct sp_req q = {.op = SP_BOX_START};
    struct err e;
    memcpy(q.u.box.id, b->id, sizeof b->id);
    memcpy(q.u.box.template_id, b->spec.template_id, sizeof b->spec.template_id);
    q.u.box.limit = box_limit(&b->spec);
    q.u.box.disk_mib = b->spec.disk_mib;
    (void)snprintf(q.u.box.hostname, sizeof q.u.box.hostname, "hutch");
    struct ref *r = box_ref(b);
    if (spawn_call(b->core->spawn, &q, NULL, 0, container_started, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}

static void ignore_end(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

/* The box was removed while its process was still being made: that removal came too early for it. */
static void end_late(struct core *c, struct vm *vm, bool keep_files)
{
    struct sp_req q = {.op = keep_files ? SP_RELEASE : SP_REMOVE};
    struct err e;
    if (!vm)
        return;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", vm_id(vm));
    vm_free(vm);
    if (spawn_call(c->spawn, &q, NULL, 0, ignore_end, NULL, &e))
        log_warn("box %s: %s", q.u.id.id, e.msg);
}

static void vm_started(void *arg, struct vm *vm, const struct err *e)
{
    struct ref r = ref_take(arg);
    struct box *b = box_of(&r);
    if (!b) {
        end_late(r.core, vm, r.keep_files);
        return;
    }
    if (e) {
        start_failed(b, e);
        return;
    }
    b->vm = vm;
    vm_on_lost(vm, vm_lost, b);
    open_channel(b, dup(vm_chan(vm)));
    b->phase = BOX_WAITING;
    finish(b, NULL);
}

static void variant_ready(void *arg, struct vm_variant *v, const struct err *e)
{
    struct box *b = box_take(arg);
    if (e || !b) {
        if (b)
            start_failed(b, e);
        vm_variant_unref(v);
        return;
    }
    struct vm_limits lim = {.limit = box_limit(&b->spec), .low_priority = b->low_priority};
    vm_start(b->core->vmh, v, b->id, &lim, vm_started, box_ref(b));
    vm_variant_unref(v);
}

static void resume_later(void *arg)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    if (b->spec.tier == TIER_CONTAINER) {
        container_start(b);
        return;
    }
    struct vm_limits lim = {.limit = box_limit(&b->spec)};
    if (b->booting)
        vm_boot(b->core->vmh, b->id, &lim, vm_started, box_ref(b));
    else
        vm_resume(b->core->vmh, b->id, &lim, vm_started, box_ref(b));
}

struct box *box_resume(struct core *c, const char *id, const struct box_spec *spec, bool boot, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true;
    b->torn = !boot;
    b->booting = boot;
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    loop_defer(c->loop, resume_later, box_ref(b));
    return b;
}

static void layer_seeded(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct box *b = box_take(arg);
    if (b && rep->rc)
        start_failed(b, &rep->err);
    else if (b)
        container_start(b);
}

static void start_from(struct box *b)
{
    struct vm_limits lim = {.limit = box_limit(&b->spec)};
    struct sp_req q = {.op = SP_LAYER_SEED};
    struct err e;
    if (b->spec.tier == TIER_VM) {
        vm_start_from(b->core->vmh, b->from, b->booting, b->copies, b->id, &lim, vm_started, box_ref(b));
        return;
    }
    memcpy(q.u.layer.id, b->id, sizeof b->id);
    memcpy(q.u.layer.snapshot, b->from, sizeof b->from);
    struct ref *r = box_ref(b);
    if (spawn_call(b->core->spawn, &q, NULL, 0, layer_seeded, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}

static void start_later(void *arg)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    if (*b->from) {
        start_from(b);
        return;
    }
    if (b->spec.tier == TIER_CONTAINER) {
        container_start(b);
        return;
    }
    struct vm_spec vs = {.ram_mib = b->spec.memory_mib, .vcpus = vcpus(&b->spec), .disk_mib = b->spec.disk_mib};
    memcpy(vs.template_id, b->spec.template_id, sizeof b->spec.template_id);
    variant_get(b->core, &vs, NULL, NULL, variant_ready, box_ref(b));
}

struct box *box_start(struct core *c, const struct box_spec *spec, bool low_priority, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    id_make('b', b->id);
    b->low_priority = low_priority;
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    loop_defer(c->loop, start_later, box_ref(b));
    return b;
}

struct box *box_start_from(struct core *c, const struct box_spec *spec, const char *snapshot, bool boot, unsigned copies, box_cb *cb, void *arg)
{
    struct box *b = box_start(c, spec, false, cb, arg);
    (void)snprintf(b->from, sizeof b->from, "%s", snapshot);
    b->booting = boot;
    b->copies = copies;
    b->torn = !boot && spec->tier == TIER_VM;
    return b;
}

/* ---- configure ---- */
static void configured(void *arg, const struct err *e, struct rec r)
{
    struct box *b = arg;
    if (b->removing)
        return;
    if (!e) {
        struct str k;
        if (rec_get(r, T_KERNEL, &k) && str_utf8(k))
            (void)snprintf(b->kernel, sizeof b->kernel, "%.*s", (int)(k.n > 79 ? 79 : k.n), k.p);
        if (!b->waits_on)
            b->phase = BOX_LIVE;
        b->booting = false;
    }
    finish(b, e);
}

static void synced(void *arg, const struct err *e)
{
    struct box *b = arg;
    if (e)
        return; /* the configure call that rides behind fails with the same reason */
    b->synced = true;
}

static void woken(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct box *b = arg;
    if (b->removing || !e)
        return;
    if (b->cb)
        finish(b, e);
    else
        b->wake_err = *e;
}

void box_wake(struct box *b)
{
    if (!b->vm || b->awake)
        return;
    b->awake = true;
    if (!b->restored) {
        b->restored = true;
        if (vm_run_state(b->vm) == VM_SLOT)
            vm_restore(b->vm, woken, b);
        else if (vm_run_state(b->vm) == VM_STOPPED)
            vm_cont(b->vm, woken, b);
    } else if (b->phase == BOX_READY) {
        vm_cont(b->vm, woken, b);
    }
}

static void raised(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("priority: %s", rep->err.msg);
}

static void put_identity(struct buf *rec, const struct box *b, const struct box_identity *id)
{
    unsigned char entropy[64];
    random_bytes(entropy, sizeof entropy);
    rec_put(rec, T_ENTROPY, entropy, sizeof entropy);
    rec_put_u64(rec, T_WALL_NS, (uint64_t)clock_wall());
    rec_put_str(rec, T_HOSTNAME, id->hostname);
    rec_put_str(rec, T_MACHINE_ID, id->machine_id ? id->machine_id : "00000000000000000000000000000000");
    rec_put_u64(rec, T_GENERATION, id->generation);
    rec_put_str(rec, T_SANDBOX, id->sandbox);
    rec_put_str(rec, T_USER, id->user);
    rec_put_str(rec, T_CWD, id->workdir);
    rec_put_u64(rec, T_FLAGS, (b->spec.tier == TIER_CONTAINER ? CFG_NO_CLOCK : 0u) | (id->prime ? CFG_PRIME : 0u) | (id->takeover ? CFG_TAKEOVER : 0u) | (id->rehearsal ? CFG_REHEARSAL : 0u) | (id->resume ? CFG_RESUME : 0u));
    char **env = id->env ? kv_to_env(id->env) : NULL;
    for (char **p = env; p && *p; p++)
        rec_put_str(rec, T_ENV, *p);
    env_free(env);
    for (size_t i = 0; id->files && i < id->files->n; i++) {
        size_t mark = rec_open(rec, T_FILE);
        rec_put_str(rec, T_PATH, id->files->at[i].k);
        rec_put_u64(rec, T_MODE, 0644);
        rec_put(rec, T_BYTES, id->files->at[i].v, strlen(id->files->at[i].v));
        rec_close(rec, mark);
    }
}

void box_configure(struct box *b, const struct box_identity *id, box_cb *cb, void *arg)
{
    static const struct call_ops ops = {.done = configured};
    struct err e = {0};
    b->cb = cb, b->cb_arg = arg;
    timer_arm(&b->deadline, b->booting ? BOOT_NS : CONFIGURE_NS);
    b->waits_on = id->resume || id->rehearsal;
    if (b->wake_err.code) {
        e = b->wake_err;
        finish(b, &e);
        return;
    }
    box_wake(b);
    if (!b->synced)
        agent_sync(b->agent, b->torn || b->phase == BOX_LIVE /* adopted */, synced, b);
    if (b->low_priority && !id->prime && !id->rehearsal) {
        b->low_priority = false;
        struct sp_req q = {.op = SP_LIMITS};
        memcpy(q.u.limits.id, b->id, sizeof b->id);
        q.u.limits.limit = box_limit(&b->spec);
        q.u.limits.raise_priority = 1;
        if (spawn_call(b->core->spawn, &q, NULL, 0, raised, NULL, &e))
            log_warn("box %s: priority: %s", b->id, e.msg);
    }
    auto_buf rec = {0};
    put_identity(&rec, b, id);
    if (!agent_call(b->agent, OP_CONFIGURE, &rec, &ops, b, &e))
        finish(b, &e);
}

static void rested(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct box *b = arg;
    if (b->removing)
        return;
    if (!e)
        b->phase = BOX_READY, b->awake = false;
    finish(b, e);
}

static void rest_container(void *arg)
{
    struct box *b = arg;
    if (!b->removing)
        finish(b, NULL);
}

void box_rest(struct box *b, box_cb *cb, void *arg)
{
    b->cb = cb, b->cb_arg = arg;
    if (b->vm)
        vm_stop(b->vm, rested, b);
    else
        loop_defer(b->core->loop, rest_container, b);
}

static void box_froze(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct box *b = box_take(arg);
    if (b)
        finish(b, rep->rc ? &rep->err : NULL);
}

void box_freeze(struct box *b, bool on, box_cb *cb, void *arg)
{
    struct sp_req q = {.op = on ? SP_FREEZE : SP_THAW};
    struct err e;
    struct ref *r = box_ref(b);
    memcpy(q.u.id.id, b->id, sizeof b->id);
    b->cb = cb, b->cb_arg = arg;
    if (spawn_call(b->core->spawn, &q, NULL, 0, box_froze, r, &e)) {
        (void)ref_take(r);
        finish(b, &e);
    }
}

/* ---- adopt ---- */
static void vm_adopted(void *arg, struct vm *vm, const struct err *e)
{
    struct box *b = box_take(arg);
    if (!b) {
        vm_free(vm);
        return;
    }
    if (e) {
        start_failed(b, e);
        return;
    }
    b->vm = vm;
    b->restored = vm_run_state(vm) == VM_RUNNING;
    vm_on_lost(vm, vm_lost, b);
    open_channel(b, dup(vm_chan(vm)));
    b->phase = BOX_LIVE;
    finish(b, NULL);
}

static void attached(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    struct err e;
    if (rep->rc) {
        start_failed(b, &rep->err);
        return;
    }
    if (!rep->u.info.alive || nfds < (b->spec.tier == TIER_VM ? 3 : 2)) {
        err_set(&e, E_GONE, "its process has ended");
        start_failed(b, &e);
        return;
    }
    if (b->spec.tier == TIER_VM) {
        vm_adopt(b->core->vmh, NULL, b->id, take_fd(&fds[0]), take_fd(&fds[1]), take_fd(&fds[2]), vm_adopted, box_ref(b));
        return;
    }
    b->pidfd = take_fd(&fds[0]);
    open_channel(b, take_fd(&fds[1]));
    b->phase = BOX_LIVE;
    finish(b, NULL);
}

void box_adopt(struct core *c, const char *id, const struct box_spec *spec, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    struct err e;
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true; /* who ends it decides */
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    struct sp_req q = {.op = SP_ATTACH};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    struct ref *r = box_ref(b);
    if (spawn_call(c->spawn, &q, NULL, 0, attached, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}

/* ---- accounting ---- */
struct stat_wait { void (*cb)(void *arg, const struct err *e, const struct sp_stat *st); void *arg; };

static void stat_done(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct stat_wait w = *(struct stat_wait *)arg;
    free(arg);
    w.cb(w.arg, rep->rc ? &rep->err : NULL, &rep->u.stat);
}

void box_stat(struct box *b, void (*cb)(void *arg, const struct err *e, const struct sp_stat *st), void *arg)
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

struct oom_wait { struct core *core; char box[22]; uint64_t seen; void (*cb)(void *arg, const struct err *e, bool oom); void *arg; };

static void oom_stat(void *arg, const struct err *e, const struct sp_stat *st)
{
    struct oom_wait w = *(struct oom_wait *)arg;
    free(arg);
    struct box *b = map_get(&w.core->boxes, w.box);
    bool oom = !e && st->oom_kills > w.seen;
    if (oom && b && b->owner)
        b->owner->oom_seen = st->oom_kills;
    w.cb(w.arg, e, oom);
}

int box_ask_oom(struct box *b, uint64_t *seen, void (*cb)(void *arg, const struct err *e, bool oom), void *arg)
{
    if (b->spec.tier != TIER_CONTAINER)
        return -1;
    struct oom_wait *w = xcalloc(1, sizeof *w);
    *w = (struct oom_wait){.core = b->core, .seen = *seen, .cb = cb, .arg = arg};
    memcpy(w->box, b->id, sizeof w->box);
    box_stat(b, oom_stat, w);
    return 0;
}
