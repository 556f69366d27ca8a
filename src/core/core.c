/* Puts the rooms together: starts and stops the daemon's core, and tells higher rooms what happens in lower ones. */
#include "core/core.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/host/auth.h"
#include "core/box/box.h"
#include "core/host/ref.h"
#include "core/isolate/isolate.h"
#include "core/code/kernels.h"
#include "core/network/egress.h"
#include "core/network/network.h"
#include "core/network/preset.h"
#include "core/network/secret.h"
#include "core/life/pause.h"
#include "core/build/build.h"
#include "core/build/step_cache.h"
#include "core/code/context.h"
#include "core/life/life_int.h"
#include "core/ahead/pool.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/ahead/variant.h"
#include "core/volume/volume.h"
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

/* How it stops, and what it waits for while hutch-spawn is away. */
struct daemon_life {
    struct timer spawn_again, stop_limit, sweep;
    size_t stop_waiting;
    bool shutting; /* the spawner was told to end */
    void (*stop_fn)(void *arg);
    void *stop_arg;
};

struct loop *core_loop(struct core *c) { return c->loop; }
const struct config *core_config(struct core *c) { return &c->cfg; }

/* ---- what rooms tell those above them ---- */
static void box_ended_by_itself(struct box *b, enum end_reason why, const char *message,
                                bool host_fault)
{
    if (b->owner)
        sandbox_box_ended(b->owner, why, message, host_fault);
    else
        pool_lost(b);
}

static void variant_wanted(void *c, const struct variant_spec *spec, variant_cb *cb, void *arg)
{
    variant_get(c, spec, NULL, NULL, cb, arg);
}

static void sandbox_forgotten(struct sandbox *sb, const struct err *why)
{
    contexts_drop(sb, why);
    volumes_forget(sb);
}

/* Boxes first, then jails of isolates. */
struct template_going {
    struct core *core;
    char id[22];
    void (*done)(void *arg);
    void *arg;
};
static void template_boxes_gone(void *arg)
{
    struct template_going g = *(struct template_going *)arg;
    free(arg);
    isolate_drop_template(g.core, g.id, g.done, g.arg);
}
static void template_gone(struct core *c, const char *id, void (*done)(void *arg), void *arg)
{
    struct template_going *g = xcalloc(1, sizeof *g);
    *g = (struct template_going){.core = c, .done = done, .arg = arg};
    (void)snprintf(g->id, sizeof g->id, "%s", id);
    steps_drop(c, id);
    variant_drop(c, id);
    pool_drop_template(c, g->id, template_boxes_gone, g);
}

static const struct hooks wiring = {
    .box_ended = box_ended_by_itself,
    .box_removed = egress_drop,
    .sandbox_loaded = network_load,
    .sandbox_forgotten = sandbox_forgotten,
    .sandbox_buried = network_free,
    .sandbox_expired = sandbox_on_expiry,
    .sandbox_environment = sandbox_environment,
    .template_gone = template_gone,
};

static void on_box_exit(void *ctx, const struct sp_exit *ex)
{
    struct core *c = ctx;
    struct box *b = box_at(c, ex->id);
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
        if (c->life->shutting)
            stopped(c); /* as we asked it to */
        return;
    }
    log_error("hutch-spawn is gone: %s", why->msg);
    event_emit(c, "host.spawn-lost", NULL, NULL, NULL);
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(boxes(c), &i));)
        box_spawner_lost(en->value);
    isolate_spawner_lost(c);
    builds_cancel(c, E_UNAVAILABLE,
                  "hutch-spawn exited and took the build down with it: build again");
    egress_spawner_lost(c);
    timer_arm(&c->life->spawn_again, SPAWN_AGAIN_NS);
}

/* Its watcher starts another (bin/hutch-spawn.c), which kills what the old one left before it listens. */
static void on_spawn_again(void *arg)
{
    struct core *c = arg;
    struct err e;
    if (c->stopping)
        return;
    if (spawn_client_again(c->spawn, &e)) {
        timer_arm(&c->life->spawn_again, SPAWN_AGAIN_NS);
        return;
    }
    c->spawn_lost = false;
    log_info("hutch-spawn is back");
    recover_sweep(c);
    egress_spawner_back(c);
    pool_refill(c);
    event_emit(c, "host.spawn-back", NULL, NULL, NULL);
}

static int load_row(void *arg, const struct sandbox_row *r)
{
    if (!sandbox_adopt_row(arg, r))
        log_warn("the stored row of sandbox '%.40s' is damaged; ignoring it", r->id ? r->id : "");
    return 0;
}

static int make_dirs(struct core *c, struct err *e)
{
    static const char *const names[] = {"templates", "boxes", "fs", "log", "cache", "snapshots", "tmp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdirat(c->home_fd, names[i], 0755) && errno != EEXIST)
            return err_sys(e, errno, "creating %s in the home directory", names[i]);
    return 0;
}

/* The first start makes a key that only root can read, so that TCP clients have one to begin with. */
static int admin_key(struct core *c, struct err *e)
{
    char plain[AUTH_PLAIN];
    struct key *k;
    if (auth_count(c) || !faccessat(c->home_fd, "admin.key", F_OK, 0))
        return 0;
    struct key_spec spec = {.name = "admin", .role = ROLE_ADMIN};
    if (auth_create(c, &spec, plain, &k, e))
        return -1;
    auto_fd fd = openat(c->home_fd, "admin.key", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || !fd_write_all(fd, plain, strlen(plain)) || !fd_write_all(fd, "\n", 1))
        return err_sys(e, errno, "writing admin.key");
    return 0;
}

static void on_sweep(void *arg)
{
    struct core *c = arg;
    sandbox_sweep(c);
    timer_arm(&c->life->sweep, SWEEP_NS);
}

struct core *core_new(struct loop *l, struct jobs *jobs, const struct config *cfg, struct err *e)
{
    struct core *c = xcalloc(1, sizeof *c);
    char path[320];
    auto_free char *boot = NULL;
    c->loop = l, c->jobs = jobs, c->cfg = *cfg, c->home_fd = -1, c->on = &wiring;
    c->life = xcalloc(1, sizeof *c->life);
    list_init(&c->refs);
    auth_init(c), events_init(c), boxes_init(c), sandboxes_init(c), volumes_init(c), catalog_init(c), code_init(c), isolates_init(c), builds_init(c);
    timer_init(&c->life->sweep, l, on_sweep, c);
    timer_init(&c->life->spawn_again, l, on_spawn_again, c);
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
    c->tiers = (struct tier_host){.loop = l,
                                  .jobs = jobs,
                                  .spawn = c->spawn,
                                  .home_fd = c->home_fd,
                                  .bin = c->cfg.bin,
                                  .kvm = cfg->use_kvm,
                                  .tsc_khz = cfg->tsc_khz,
                                  .variant = variant_wanted,
                                  .variant_arg = c};
    tier_host_init(&c->tiers);
    if (variants_load_kernel(c, e))
        log_info("microVMs are not ready: %s", e->msg);
    if (kernels_load(c, e))
        log_warn("code contexts are not available: %s", e->msg);
    egress_start(c);
    pool_start(c);
    timers_start(c);
    timer_arm(&c->life->sweep, SWEEP_NS);
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
            pool_want_template(c, t);
        volumes_recover(c);
        egress_recovered(c);
        steps_recover(c);
        snapshots_recover(c);
        variants_sweep(&c->tiers);
        event_emit(c, "host.started", NULL, NULL, NULL);
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
    void (*fn)(void *) = c->life->stop_fn;
    timer_stop(&c->life->stop_limit);
    c->life->stop_fn = NULL;
    if (fn)
        fn(c->life->stop_arg);
}
static void on_stop_limit(void *arg) { stopped(arg); }
static void shutdown_taken(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

/* Over when the spawner has ended, so that a successor finds either a living one or none. */
static void stop_finish(struct core *c)
{
    struct err e;
    struct sp_req q = {.op = SP_SHUTDOWN};
    event_emit(c, "host.stopped", NULL, NULL, NULL);
    if (c->spawn_lost && !spawn_client_again(c->spawn, &e))
        c->spawn_lost = false; /* a new one came up just now */
    if (c->keep || c->spawn_lost || spawn_call(c->spawn, &q, NULL, 0, shutdown_taken, NULL, &e)) {
        stopped(c);
        return;
    }
    c->life->shutting = true;
    timer_init(&c->life->stop_limit, c->loop, on_stop_limit, c);
    timer_arm(&c->life->stop_limit, 10 * NS_PER_S);
}

static void one_more(void *arg) { ((struct core *)arg)->life->stop_waiting++; }
static void one_less(void *arg)
{
    struct core *c = arg;
    if (!--c->life->stop_waiting)
        stop_finish(c);
}
static void stop_one(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)sb, (void)e;
    one_less(arg);
}

static void stop_kill(struct core *c, struct sandbox *sb)
{
    c->life->stop_waiting++;
    if (sandbox_kill(sb, END_SHUTDOWN, "the daemon was shut down", stop_one, c, NULL))
        c->life->stop_waiting--;
}

static void stop_paused(void *arg, struct sandbox *sb, const struct err *e)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    sb = sandbox_at(r.core, r.id);
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
    bool keeps = (sb->state == SB_RUNNING && sb->on_timeout == ON_TIMEOUT_PAUSE) || (sb->state == SB_PAUSED && tier_can(sb->tier, TIER_MEMORY));
    struct sandbox_ref *r = keeps ? sandbox_ref_new(sb) : NULL;
    c->life->stop_waiting++;
    if (keeps && !sandbox_pause(sb, &how, stop_paused, r, NULL))
        return;
    free(r);
    c->life->stop_waiting--;
    stop_kill(c, sb);
}

void core_stop(struct core *c, bool keep, void (*done)(void *arg), void *arg)
{
    if (c->stopping)
        return;
    c->stopping = true, c->keep = keep, c->life->stop_fn = done, c->life->stop_arg = arg;
    builds_cancel(c, E_CANCELED, "the daemon is stopping");
    pool_stop(c);
    c->life->stop_waiting = 1;
    struct map_entry *en;
    size_t i = 0;
    while (!keep && (en = map_next(sandboxes(c), &i))) {
        struct sandbox *sb = en->value;
        if (sb->state == SB_GONE || sb->state == SB_FAILED || (sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK && !sb->busy))
            continue; /* what is on disk stays there */
        stop_sandbox(c, sb);
    }
    /* what no sandbox owns (the pool, ends under way) does not outlive us either way */
    for (i = 0; !c->spawn_lost && (en = map_next(boxes(c), &i));) {
        struct box *b = en->value;
        if (!b->owner) {
            c->life->stop_waiting++;
            box_remove(b, one_less, c);
        }
    }
    if (!keep)
        volumes_stop(c, one_more, one_less, c);
    if (!c->spawn_lost) {
        c->life->stop_waiting++;
        isolate_drop_template(c, "", one_less, c);
    }
    one_less(c);
}

/* End of the turn: whoever was deferred before us may still look for something in here. */
static void core_bury(void *arg)
{
    struct core *c = arg;
    refs_free(c);
    sandboxes_free(c), boxes_free(c), code_free(c), catalog_free(c), builds_free(c);
    free(c->life);
    free(c);
}

/* What is under way ends without a word: the next daemon finds each sandbox as its row says. A call that only ends because
 * its channel is closed must not be taken for a failure of the sandbox. */
static void leave_transits(struct core *c)
{
    struct map_entry *en;
    struct err why;
    err_set(&why, E_UNAVAILABLE, "the daemon is stopping");
    c->stopping = c->keep = true;
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));)
        transit_abort(en->value, &why);
}

/* What workers and the store still have of ours comes back while there is somebody it can come back to. */
static void finish_work(struct core *c)
{
    while (c->store && (jobs_pending(c->jobs) || store_depth(c->store))) {
        jobs_finish(c->jobs);
        store_flush(c->store);
    }
}

void core_free(struct core *c)
{
    if (!c)
        return;
    leave_transits(c);
    finish_work(c);
    timer_stop(&c->life->sweep);
    timer_stop(&c->life->spawn_again);
    timers_stop(c);
    pool_stop(c);
    isolate_free(c);
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(boxes(c), &i));)
        box_leave(en->value);
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));)
        sandbox_forget(en->value);
    volumes_free(c);
    snapshots_free(c);
    egress_stop(c);
    presets_free(c);
    variants_free(c);
    templates_free(c);
    if (c->tiers.loop) {
        tier_host_close(&c->tiers);
        tier_host_fini(&c->tiers);
    }
    spawn_client_free(c->spawn);
    store_close(c->store);
    secrets_free(c);
    auth_free(c);
    tenants_free(&c->tenants);
    kernels_free(c);
    events_free(c);
    if (c->home_fd >= 0)
        (void)close(c->home_fd);
    loop_defer(c->loop, core_bury, c);
}

void core_counts(struct core *c, struct core_counts *ret)
{
    *ret = (struct core_counts){0};
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));)
        ret->sandboxes[((struct sandbox *)en->value)->state]++;
    pool_counts(c, &ret->pool_vm_ready, &ret->pool_vm_started, &ret->pool_slots, &ret->pool_making);
    ret->templates = templates(c)->n;
    sandbox_creates(c, &ret->creates, &ret->create_failures);
}

void core_reload_tenants(struct core *c)
{
    struct tenants next;
    struct err e = {0};
    auto_free char *text = NULL;
    if (config_tenants(&text, &e) || tenants_parse(text, &next, &e)) {
        log_error("keeping the previous tenants: %s", e.msg);
        return;
    }
    tenants_free(&c->tenants);
    c->tenants = next;
    log_info("tenants: %zu entries loaded", next.n);
    egress_tenants_changed(c);
}
