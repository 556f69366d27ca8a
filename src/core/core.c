#include "core/internal.h"
#include "backend/vm/vm.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/auth.h"
#include "core/box.h"
#include "core/isolate.h"
#include "core/kernels.h"
#include "core/egress.h"
#include "core/preset.h"
#include "core/secret.h"
#include "core/pause.h"
#include "core/policy.h"
#include "core/pool.h"
#include "core/snapshot.h"
#include "core/template.h"
#include "core/variant.h"
#include "core/volume.h"
#include "spawn/client.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_NS       (60 * NS_PER_S)
#define SPAWN_AGAIN_NS (100 * NS_PER_MS)

struct loop *core_loop(struct core *c) { return c->loop; }
const struct config *core_config(struct core *c) { return &c->cfg; }

static void on_box_exit(void *ctx, const struct sp_exit *ex)
{
    struct core *c = ctx;
    struct box *b = map_get(&c->boxes, ex->id);
    if (b)
        box_on_exit(b, ex);
    else if (!volumes_exit(c, ex) && !egress_exited(c, ex) && !preset_tool_exit(c, ex) && !isolate_on_exit(c, ex))
        template_tool_exit(c, ex);
}

static void stopped(struct core *c);

static void on_lost(void *ctx, const struct err *why)
{
    struct core *c = ctx;
    c->spawn_lost = true;
    if (c->stopping) {
        if (c->shutting)
            stopped(c); /* as we asked it to */
        return;
    }
    log_error("hutch-spawn is gone: %s", why->msg);
    event_emit(c, "host.spawn-lost", NULL, NULL);
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->boxes, &i));)
        box_spawner_lost(en->value);
    isolate_spawner_lost(c);
    builds_cancel(c, E_UNAVAILABLE, "hutch-spawn ended and took the build with it: build again");
    egress_spawner_lost(c);
    timer_arm(&c->spawn_again, SPAWN_AGAIN_NS);
}

/* Its watcher starts another (bin/hutch-spawn.c), which kills what the old one left before it listens. */
static void on_spawn_again(void *arg)
{
    struct core *c = arg;
    struct err e;
    if (c->stopping)
        return;
    if (spawn_client_again(c->spawn, &e)) {
        timer_arm(&c->spawn_again, SPAWN_AGAIN_NS);
        return;
    }
    c->spawn_lost = false;
    log_info("hutch-spawn is back");
    recover_sweep(c);
    egress_spawner_back(c);
    pool_refill(c);
    event_emit(c, "host.spawn-back", NULL, NULL);
}

static int load_row(void *arg, const struct sandbox_row *r)
{
    if (!sandbox_adopt_row(arg, r))
        log_warn("sandbox row '%.40s' is damaged and ignored", r->id ? r->id : "");
    return 0;
}

static int make_dirs(struct core *c, struct err *e)
{
    static const char *const names[] = {"templates", "boxes", "fs", "log", "cache", "snapshots", "tmp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdirat(c->home_fd, names[i], 0755) && errno != EEXIST)
            return err_sys(e, errno, "making %s in the home folder", names[i]);
    return 0;
}

/* The first start makes a key that only root can read, so that TCP clients have one to begin with. */
static int admin_key(struct core *c, struct err *e)
{
    char plain[45];
    struct key *k;
    if (c->nkeys || !faccessat(c->home_fd, "admin.key", F_OK, 0))
        return 0;
    if (auth_create(c, "admin", plain, &k, e))
        return -1;
    auto_fd fd = openat(c->home_fd, "admin.key", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || !fd_write_all(fd, plain, strlen(plain)) || !fd_write_all(fd, "\n", 1))
        return err_sys(e, errno, "writing admin.key");
    return 0;
}

int core_load_kernel(struct core *c, struct err *e)
{
    auto_fd kernel = openat(c->home_fd, "kernel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kernel < 0)
        return err_set(e, E_NOT_FOUND, "the guest kernel is not installed yet; `hutch template build base` fetches it");
    char path[256];
    (void)snprintf(path, sizeof path, "%s/hutch-agent", c->cfg.bin);
    auto_fd agent = open(path, O_RDONLY | O_CLOEXEC);
    if (agent < 0)
        return err_sys(e, errno, "hutch-agent");
    return vm_host_load(c->vmh, kernel, agent, e);
}

static int vm_setup(struct core *c, struct err *e)
{
    struct vm_host_conf conf = {.loop = c->loop, .jobs = c->jobs, .spawn = c->spawn, .home_fd = c->home_fd,
                                .accel = c->cfg.use_kvm ? SP_ACCEL_KVM : SP_ACCEL_TCG, .tsc_khz = c->cfg.tsc_khz,
                                .boot_timeout_ns = 180 * NS_PER_S /* READY may take two minutes of it */};
    (void)snprintf(c->accel, sizeof c->accel, "%s", c->cfg.use_kvm ? "kvm" : "tcg");
    if (vm_qemu_version("/usr/bin/qemu-system-x86_64", conf.qemu_version, e)) {
        log_warn("no microVMs: %s", e->msg);
        return 0;
    }
    c->vmh = vm_host_new(&conf);
    if (core_load_kernel(c, e))
        log_info("microVMs are not ready: %s", e->msg);
    return 0;
}

static void on_sweep(void *arg)
{
    struct core *c = arg;
    sandbox_sweep(c);
    timer_arm(&c->sweep, SWEEP_NS);
}

struct core *core_new(struct loop *l, struct jobs *jobs, const struct config *cfg, struct err *e)
{
    struct core *c = xcalloc(1, sizeof *c);
    char path[320];
    auto_free char *boot = NULL;
    c->loop = l, c->jobs = jobs, c->cfg = *cfg, c->home_fd = c->templates_fd = -1;
    list_init(&c->keys), list_init(&c->followers), list_init(&c->builds), list_init(&c->isolates), list_init(&c->refs);
    timer_init(&c->sweep, l, on_sweep, c);
    timer_init(&c->spawn_again, l, on_spawn_again, c);
    c->home_fd = open(cfg->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->home_fd < 0) {
        err_sys(e, errno, "opening %s", cfg->home);
        goto fail;
    }
    boot = fd_slurp_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, NULL);
    (void)snprintf(c->host_boot_id, sizeof c->host_boot_id, "%.36s", boot ? boot : "");
    (void)snprintf(path, sizeof path, "%s/state.db", cfg->home);
    if (tenants_parse(cfg->tenants, &c->tenants, e) || make_dirs(c, e) || !(c->store = store_open(l, path, e)) || auth_load(c, e) || admin_key(c, e) || secrets_load(c, e) || templates_load(c, e) ||
        store_load_sandboxes(c->store, load_row, c, e) || volumes_load(c, e) || snapshots_load(c, e))
        goto fail;
    (void)snprintf(path, sizeof path, "%s/spawn.sock", cfg->run);
    if (!(c->spawn = spawn_client_new(l, path, on_box_exit, on_lost, c, e)))
        goto fail;
    if (vm_setup(c, e))
        goto fail;
    if (kernels_load(c, e))
        log_warn("no code contexts: %s", e->msg);
    egress_start(c);
    pool_start(c);
    policy_start(c);
    timer_arm(&c->sweep, SWEEP_NS);
    return c;
fail:
    core_free(c);
    return NULL;
}

struct ready_wait { struct core *core; void (*done)(void *arg, const struct err *e); void *arg; };

static void recovered(void *arg, const struct err *e)
{
    struct ready_wait w = *(struct ready_wait *)arg;
    struct core *c = w.core;
    free(arg);
    if (!e) {
        struct template *t = template_find(c, "base", NULL);
        if (t)
            template_warm(c, t);
        volumes_recover(c);
        egress_recovered(c);
        snapshots_recover(c);
        if (c->vmh)
            vm_variants_sweep(c->vmh);
        event_emit(c, "host.started", NULL, NULL);
    }
    w.done(w.arg, e);
}

void core_recover(struct core *c, void (*done)(void *arg, const struct err *e), void *arg)
{
    struct ready_wait *w = xcalloc(1, sizeof *w);
    *w = (struct ready_wait){c, done, arg};
    recover_start(c, recovered, w);
}

/* ---- stop ---- */
static void stopped(struct core *c)
{
    void (*fn)(void *) = c->stop_fn;
    timer_stop(&c->stop_limit);
    c->stop_fn = NULL;
    if (fn)
        fn(c->stop_arg);
}
static void on_stop_limit(void *arg) { stopped(arg); }
static void shutdown_taken(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

/* Over when the spawner has ended, so that a successor finds either a living one or none. */
static void stop_finish(struct core *c)
{
    struct err e;
    struct sp_req q = {.op = SP_SHUTDOWN};
    event_emit(c, "host.stopped", NULL, NULL);
    if (c->spawn_lost && !spawn_client_again(c->spawn, &e))
        c->spawn_lost = false; /* a new one came up just now */
    if (c->keep || c->spawn_lost || spawn_call(c->spawn, &q, NULL, 0, shutdown_taken, NULL, &e)) {
        stopped(c);
        return;
    }
    c->shutting = true;
    timer_init(&c->stop_limit, c->loop, on_stop_limit, c);
    timer_arm(&c->stop_limit, 10 * NS_PER_S);
}

static void one_more(void *arg) { ((struct core *)arg)->stop_waiting++; }
static void one_less(void *arg)
{
    struct core *c = arg;
    if (!--c->stop_waiting)
        stop_finish(c);
}
static void stop_one(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)sb, (void)e;
    one_less(arg);
}

static void stop_kill(struct core *c, struct sandbox *sb)
{
    c->stop_waiting++;
    if (sandbox_kill(sb, END_SHUTDOWN, "the daemon was shut down", stop_one, c, NULL))
        c->stop_waiting--;
}

static void stop_paused(void *arg, struct sandbox *sb, const struct err *e)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    sb = map_get(&r.core->sandboxes, r.id);
    if (e && sb) {
        log_warn("sandbox %s: not paused: %s", r.id, e->msg);
        stop_kill(r.core, sb);
    }
    one_less(r.core);
}

/* What would be paused at its timeout is paused now; what is in standby has to leave memory. */
static void stop_sandbox(struct core *c, struct sandbox *sb)
{
    struct pause_spec how = {.files_only = sb->life.files_only && sb->state == SB_RUNNING, .why = WHY_SHUTDOWN};
    bool keeps = (sb->state == SB_RUNNING && sb->on_timeout == ON_TIMEOUT_PAUSE) || (sb->state == SB_PAUSED && sb->tier == TIER_VM);
    struct sandbox_ref *r = keeps ? sandbox_ref_new(sb) : NULL;
    c->stop_waiting++;
    if (keeps && !sandbox_pause(sb, &how, stop_paused, r, NULL))
        return;
    free(r);
    c->stop_waiting--;
    stop_kill(c, sb);
}

void core_stop(struct core *c, bool keep, void (*done)(void *arg), void *arg)
{
    if (c->stopping)
        return;
    c->stopping = true, c->keep = keep, c->stop_fn = done, c->stop_arg = arg;
    builds_cancel(c, E_CANCELED, "the daemon is stopping");
    pool_stop(c);
    c->stop_waiting = 1;
    struct map_entry *en;
    size_t i = 0;
    while (!keep && (en = map_next(&c->sandboxes, &i))) {
        struct sandbox *sb = en->value;
        if (sb->state == SB_GONE || sb->state == SB_FAILED || (sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK && !sandbox_busy(sb)))
            continue; /* what is on disk stays there */
        stop_sandbox(c, sb);
    }
    /* what no sandbox owns (the pool, ends under way) does not outlive us either way */
    for (i = 0; !c->spawn_lost && (en = map_next(&c->boxes, &i));) {
        struct box *b = en->value;
        if (!b->owner) {
            c->stop_waiting++;
            box_remove(b, one_less, c);
        }
    }
    if (!keep)
        volumes_stop(c, one_more, one_less, c);
    if (!c->spawn_lost) {
        c->stop_waiting++;
        isolate_drop_template(c, "", one_less, c);
    }
    one_less(c);
}

/* End of the turn: whoever was deferred before us may still look for something in here. */
static void core_bury(void *arg)
{
    struct core *c = arg;
    refs_free(c);
    map_free(&c->sandboxes), map_free(&c->names), map_free(&c->boxes), map_free(&c->contexts);
    free(c);
}

void core_free(struct core *c)
{
    if (!c)
        return;
    timer_stop(&c->sweep);
    timer_stop(&c->spawn_again);
    policy_stop(c);
    pool_stop(c);
    isolate_free(c);
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->boxes, &i));)
        box_leave(en->value);
    for (size_t i = 0; (en = map_next(&c->sandboxes, &i));)
        sandbox_forget(en->value);
    volumes_free(c);
    snapshots_free(c);
    egress_stop(c);
    presets_free(c);
    variants_free(c);
    templates_free(c);
    if (c->vmh)
        vm_host_free(c->vmh);
    spawn_client_free(c->spawn);
    store_close(c->store);
    secrets_free(c);
    auth_free(c);
    tenants_free(&c->tenants);
    kernels_free(c);
    for (size_t i = 0; i < EVENTS_KEPT; i++)
        free(c->events[i].data_json);
    if (c->home_fd >= 0)
        (void)close(c->home_fd);
    loop_defer(c->loop, core_bury, c);
}

void core_counts(struct core *c, struct core_counts *ret)
{
    *ret = (struct core_counts){0};
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->sandboxes, &i));)
        ret->sandboxes[((struct sandbox *)en->value)->state]++;
    pool_counts(c, &ret->pool_vm_ready, &ret->pool_vm_started, &ret->pool_slots, &ret->pool_making);
    ret->templates = c->templates.n;
    ret->creates = c->creates, ret->create_failures = c->create_failures;
}
