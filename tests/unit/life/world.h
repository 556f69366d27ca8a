/* A whole core without a spawner, a kernel or a machine: the real core_new() on a home in memory, machines of
 * tier/fake, and in place of spawn/client.h the few answers below. Time is the test's too: world_skip() moves the
 * clock, and timers that are due then fire.
 *
 * The linker puts __wrap_x in the place of x (UNIT_LD_life in the Makefile). */
#pragma once
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/tree.h"
#include "core/agent/agent.h"
#include "core/ahead/pool.h"
#include "core/box/box.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/core.h"
#include "core/host/event.h"
#include "core/life/fork.h"
#include "core/life/pause.h"
#include "core/life/timers.h"
#include "core/sandbox/object.h"
#include "image/manifest.h"
#include "loop/job.h"
#include "spawn/client.h"
#include "store/store.h"
#include "test.h"
#include "tier/fake/fake.h"
#include "tier/vm/vm.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define PATIENCE_S 10 /* real seconds until a wait is given up */

static struct world {
    struct loop *loop;
    struct jobs *jobs;
    struct core *core;
    struct config cfg;
    char home[40], template[22];
    int home_fd;
    struct spawn_client *spawn;
    bool ready; /* the core has recovered */
    bool edge[SB_STATE_MAX][SBE_MAX];
    int64_t skipped; /* how far the clock is ahead */
    struct timer *timer[4096];
    size_t ntimers;
} W;

/* What a daemon had under way when it ended went with its process: no leak. NULL without the sanitizer. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

/* ---- time ---- */
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = __real_clock_gettime(id, t);
    t->tv_sec += W.skipped / NS_PER_S;
    return rc;
}

void __real_timer_arm(struct timer *t, int64_t ns);
void __wrap_timer_arm(struct timer *t, int64_t ns);
void __real_timer_stop(struct timer *t);
void __wrap_timer_stop(struct timer *t);
static void timer_forget(const struct timer *t)
{
    for (size_t i = 0; i < W.ntimers; i++)
        if (W.timer[i] == t)
            W.timer[i--] = W.timer[--W.ntimers];
}
void __wrap_timer_arm(struct timer *t, int64_t ns)
{
    timer_forget(t);
    CHECK(W.ntimers < sizeof W.timer / sizeof *W.timer);
    W.timer[W.ntimers++] = t;
    __real_timer_arm(t, ns);
}
void __wrap_timer_stop(struct timer *t)
{
    timer_forget(t);
    __real_timer_stop(t);
}

static inline void world_turns(unsigned n)
{
    while (n--)
        loop_turn(W.loop, false);
}

/* Timers that fired are not armed any more, and may be gone: nothing but the list remembers them. */
static struct timer *pending[4096];
static int by_time(const void *a, const void *b)
{
    int64_t x = (*(struct timer *const *)a)->at, y = (*(struct timer *const *)b)->at;
    return (x > y) - (x < y);
}
static inline void world_skip(int64_t seconds)
{
    size_t n = 0;
    int64_t now = clock_mono();
    for (size_t i = 0; i < W.ntimers; i++)
        pending[n++] = W.timer[i];
    W.skipped += seconds * NS_PER_S;
    now = clock_mono();
    qsort(pending, n, sizeof *pending, by_time);
    for (size_t i = 0; i < n; i++)
        if (pending[i]->armed && pending[i]->at <= now)
            __real_timer_arm(pending[i], 0);
    world_turns(3);
}

/* ---- transitions, rows ---- */
int __real_sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e);
int __wrap_sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e);
int __wrap_sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e)
{
    enum sb_state from = sb->state;
    int rc = __real_sandbox_advance(sb, ev, e);
    if (!rc)
        W.edge[from][ev] = true;
    return rc;
}

struct unstored {
    store_done *done;
    void *arg;
};
static void not_stored(void *arg)
{
    struct unstored u = *(struct unstored *)arg;
    struct err e;
    free(arg);
    err_set(&e, E_INTERNAL, "told to fail");
    u.done(u.arg, &e);
}
static bool store_fails(const char *step, store_done *done, void *arg)
{
    if (fake_step(step, NULL) != FAKE_FAILS)
        return false;
    if (done) {
        struct unstored *u = xcalloc(1, sizeof *u);
        *u = (struct unstored){done, arg};
        loop_defer(W.loop, not_stored, u);
    }
    return true;
}
void __real_store_put_sandbox(struct store *s, const struct sandbox_row *r, store_done *done,
                              void *arg);
void __wrap_store_put_sandbox(struct store *s, const struct sandbox_row *r, store_done *done,
                              void *arg);
void __wrap_store_put_sandbox(struct store *s, const struct sandbox_row *r, store_done *done,
                              void *arg)
{
    if (!store_fails("store.sandbox", done, arg))
        __real_store_put_sandbox(s, r, done, arg);
}
void __real_store_put_snapshot(struct store *s, const struct snapshot_row *r, store_done *done,
                               void *arg);
void __wrap_store_put_snapshot(struct store *s, const struct snapshot_row *r, store_done *done,
                               void *arg);
void __wrap_store_put_snapshot(struct store *s, const struct snapshot_row *r, store_done *done,
                               void *arg)
{
    if (!store_fails("store.snapshot", done, arg))
        __real_store_put_snapshot(s, r, done, arg);
}

/* A host where microVMs can run: tiers with TIER_VARIANTS are allowed. */
int __wrap_vm_qemu_version(const char *qemu, char *ret, struct err *e);
int __wrap_vm_qemu_version(const char *qemu, char *ret, struct err *e)
{
    (void)qemu, (void)e;
    memcpy(ret, "0.0", 4);
    return 0;
}

/* ---- the spawner ---- */
struct spawn_client {
    spawn_on_exit *on_exit;
    spawn_on_lost *on_lost;
    void *ctx;
    struct list calls;
    bool lost;
};
struct spawn_wait {
    struct list link;
    struct spawn_client *c;
    struct sp_req q;
    spawn_done *done;
    void *arg;
    enum fake_how how;
};

struct spawn_client *spawn_client_new(struct loop *l, const char *path, spawn_on_exit *on_exit,
                                      spawn_on_lost *on_lost, void *ctx, struct err *e)
{
    (void)l, (void)path, (void)e;
    W.spawn = xcalloc(1, sizeof *W.spawn);
    *W.spawn = (struct spawn_client){.on_exit = on_exit, .on_lost = on_lost, .ctx = ctx};
    list_init(&W.spawn->calls);
    return W.spawn;
}
int spawn_client_again(struct spawn_client *c, struct err *e)
{
    if (c->lost)
        return err_set(e, E_UNAVAILABLE, "nobody listens");
    return 0;
}
void spawn_client_free(struct spawn_client *c)
{
    struct spawn_wait *w;
    if (!c)
        return;
    list_each(w, &c->calls, link) {
        list_del(&w->link);
        w->c = NULL;
    }
    free(c);
    W.spawn = NULL;
}

static void remove_box(const char *id)
{
    auto_fd dir = openat(W.home_fd, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e;
    fake_stop(id);
    fake_forget(id);
    CHECK(dir >= 0 && !tree_remove(dir, id, &e));
}

static int do_spawn(const struct sp_req *q, struct sp_rep *rep)
{
    char path[80], ids[SP_LIST_MAX][22];
    size_t n;
    switch (q->op) {
    case SP_REMOVE: remove_box(q->u.id.id); return 0;
    case SP_RELEASE: fake_stop(q->u.id.id); return 0;
    case SP_ATTACH: rep->u.info.alive = fake_lives(q->u.id.id); return 0;
    case SP_LIST:
        n = fake_machines(ids, SP_LIST_MAX);
        CHECK(n <= SP_LIST_MAX);
        rep->u.listing.n = (uint32_t)n;
        for (size_t i = 0; i < n; i++) {
            rep->u.listing.item[i] = (struct sp_info){.kind = SP_KIND_BOX, .alive = 1};
            memcpy(rep->u.listing.item[i].id, ids[i], 22);
        }
        return 0;
    case SP_LAYER_SAVE:
        (void)snprintf(path, sizeof path, "snapshots/.%s.tmp/layer", q->u.layer.snapshot);
        rep->u.saved.bytes = 4096;
        return mkdirat(W.home_fd, path, 0700)
                   ? err_set(&rep->err, E_INTERNAL, "no directory for a layer")
                   : 0;
    case SP_STAT: rep->u.stat.disk_used = 4096; return 0;
    case SP_LIMITS: return 0;
    default: return err_set(&rep->err, E_UNAVAILABLE, "there is no spawner");
    }
}

static void spawn_due(void *arg)
{
    struct spawn_wait w = *(struct spawn_wait *)arg;
    struct sp_rep rep = {0};
    list_del(&((struct spawn_wait *)arg)->link);
    free(arg);
    if (!w.c)
        return;
    rep.rc =
        w.how == FAKE_FAILS ? err_set(&rep.err, E_INTERNAL, "told to fail") : do_spawn(&w.q, &rep);
    w.done(w.arg, &rep, NULL, 0);
}

static const char *spawn_step(uint32_t op)
{
    return op == SP_LAYER_SAVE ? "spawn.layer"
           : op == SP_ATTACH   ? "spawn.attach"
           : op == SP_LIST     ? "spawn.list"
                               : NULL;
}

int spawn_call(struct spawn_client *c, const struct sp_req *q, const int *fds, int nfds,
               spawn_done *done, void *arg, struct err *e)
{
    (void)fds, (void)nfds;
    const char *step = spawn_step(q->op);
    if (c->lost)
        return err_set(e, E_UNAVAILABLE, "hutch-spawn is gone");
    enum fake_how how = step ? fake_step(step, q->op == SP_LIST ? NULL : q->u.id.id) : FAKE_WELL;
    struct spawn_wait *w = xcalloc(1, sizeof *w);
    *w = (struct spawn_wait){.c = c, .q = *q, .done = done, .arg = arg, .how = how};
    list_add_tail(&c->calls, &w->link);
    loop_defer(W.loop, spawn_due, w);
    return 0;
}

/* A process ended by itself: the spawner's event. */
struct ended {
    char id[22];
};
static void exit_due(void *arg)
{
    struct sp_exit ex = {.kind = SP_KIND_BOX, .code = SIGKILL, .signaled = 1};
    (void)snprintf(ex.id, sizeof ex.id, "%s", ((struct ended *)arg)->id);
    free(arg);
    if (W.spawn)
        W.spawn->on_exit(W.spawn->ctx, &ex);
}
static void on_fake_exit(void *arg, const char *id)
{
    struct ended *x = xcalloc(1, sizeof *x);
    (void)arg;
    (void)snprintf(x->id, sizeof x->id, "%s", id);
    loop_defer(W.loop, exit_due, x);
}

/* ---- waiting ---- */
static bool sandbox_rests(const struct sandbox *sb)
{
    return !sb->transit && !sb->rescue && sb->state != SB_CREATING && sb->state != SB_STOPPING &&
           sb->state != SB_PAUSING;
}
static inline bool world_quiet(void)
{
    struct map_entry *en;
    if (!W.ready || jobs_pending(W.jobs) || fake_pending() || !list_empty(&W.spawn->calls) ||
        store_depth(W.core->store))
        return false;
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
        if (!sandbox_rests(en->value))
            return false;
    for (size_t i = 0; (en = map_next(boxes(W.core), &i));)
        if (((struct box *)en->value)->cb || ((struct box *)en->value)->removing)
            return false;
    return true;
}

static void ring(void *arg) { (void)arg; }
/* Until then() is true, or this test fails. */
static inline void world_until(bool (*then)(void), const char *what)
{
    struct timer bell;
    struct timespec begun, now;
    timer_init(&bell, W.loop, ring, NULL);
    __real_clock_gettime(CLOCK_MONOTONIC, &begun);
    while (!then()) {
        __real_timer_arm(&bell, NS_PER_MS);
        loop_turn(W.loop, true);
        __real_clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec > PATIENCE_S) {
            struct map_entry *en;
            printf("# waited in vain: %s\n", what);
            for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
                printf("# sandbox %s is %s\n", en->key,
                       state_name(((struct sandbox *)en->value)->state));
            CHECK(!"patience");
        }
    }
    __real_timer_stop(&bell);
}
static inline void world_settle(const char *what)
{
    world_until(world_quiet, what);
    world_turns(3);
    world_until(world_quiet, what);
}

/* ---- its beginning and end ---- */
static void on_recovered(void *arg, const struct err *e)
{
    (void)arg;
    CHECK(!e);
    W.ready = true;
}
static bool world_ready(void) { return W.ready; }

/* On disk, as a build leaves it. */
static inline void world_template(const char *start, const char *ready)
{
    struct manifest m = {.name = "base",
                         .created = "2026-01-02T03:04:05.678Z",
                         .source = MANIFEST_BOOTSTRAP,
                         .size_bytes = 4096,
                         .disk_min_mib = 16};
    struct err e;
    char path[64];
    auto_fd dir = openat(W.home_fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    id_make('t', W.template);
    memcpy(m.id, W.template, sizeof m.id);
    manifest_set(&m.user, NULL), manifest_set(&m.workdir, NULL), manifest_set(&m.kernels, NULL);
    manifest_set(&m.content_key, NULL), manifest_set(&m.packages, NULL);
    manifest_set(&m.start, start), manifest_set(&m.ready, ready);
    (void)snprintf(path, sizeof path, "%s.tmp", m.id);
    CHECK(!mkdirat(dir, path, 0755));
    CHECK(!manifest_write(dir, &m, &e));
    (void)snprintf(path, sizeof path, "%s.tmp/rootfs.ext4", m.id);
    auto_fd root = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(!ftruncate(root, 4096));
    int rc = manifest_publish(dir, m.id, &e);
    if (rc)
        printf("# %s\n", e.msg);
    CHECK(!rc);
    manifest_fini(&m);
}

static inline void world_start(void)
{
    struct err e;
    W.ready = false;
    W.jobs = jobs_new(W.loop, 1);
    W.core = core_new(W.loop, W.jobs, &W.cfg, &e);
    if (!W.core)
        printf("# %s\n", e.msg);
    CHECK(W.core);
    CHECK(template_at(W.core, W.template));
    core_recover(W.core, on_recovered, NULL);
    world_until(world_ready, "recovery");
}

/* The daemon goes and leaves what runs to the next. */
static inline void world_leave(void)
{
    fake_call_off();
    core_free(W.core);
    jobs_free(W.jobs); /* in this order: as bin/hutchd.c */
    world_turns(4);
}
static inline void world_restart(void)
{
    world_leave();
    world_start();
    world_settle("restart");
}

static inline void world_begin_with(const struct tier *t, const char *start, const char *ready)
{
    const char *at = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    memset(&W, 0, sizeof W);
    (void)signal(SIGPIPE, SIG_IGN);
    log_init("test", LOG_ERROR);
    if (!getenv("HUTCH_LOG"))
        log_to(open("/dev/null", O_WRONLY | O_CLOEXEC));
    (void)snprintf(W.home, sizeof W.home, "%s/hutch-life-XXXXXX", at);
    CHECK(mkdtemp(W.home));
    W.home_fd = open(W.home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(!mkdirat(W.home_fd, "templates", 0755));
    world_template(start, ready);
    tiers = fake_tiers;
    W.cfg = (struct config){.default_tier = t,
                            .min_tier = &fake_box,
                            .max_sandboxes = 100,
                            .failed_keep_s = 3600,
                            .agent_silent_s = 40,
                            .def_memory_mib = 64,
                            .def_disk_mib = 64,
                            .def_timeout_s = 300,
                            .max_timeout_s = 86400,
                            .share = "/nonexistent",
                            .bin = "/nonexistent"};
    (void)snprintf(W.cfg.home, sizeof W.cfg.home, "%s", W.home);
    (void)snprintf(W.cfg.run, sizeof W.cfg.run, "%s", W.home);
    W.loop = loop_new();
    fake_begin(W.loop, W.home_fd, on_fake_exit, NULL);
    world_start();
}

static inline void world_begin(const struct tier *t) { world_begin_with(t, NULL, NULL); }

static inline size_t world_files(const char *dir)
{
    auto_fd fd = openat(W.home_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(dup(fd)) : NULL;
    size_t n = 0;
    CHECK(d);
    rewinddir(d);
    for (struct dirent *de; (de = readdir(d));)
        n += strcmp(de->d_name, ".") && strcmp(de->d_name, "..");
    (void)closedir(d);
    return n;
}
static inline bool world_has(const char *dir, const char *name)
{
    char path[80];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return !faccessat(W.home_fd, path, F_OK, 0);
}

/* Is everything that is there somebody's, and as that one's state says? */
static inline void check_sandbox(const struct sandbox *sb, size_t *machines, size_t *files)
{
    bool has_box =
        sb->state == SB_RUNNING || (sb->state == SB_PAUSED && sb->life.paused == PAUSE_STANDBY);
    bool has_files = has_box || sb->state == SB_PAUSED || (sb->state == SB_FAILED && sb->life.kept);
    CHECK(sandbox_rests(sb));
    CHECK(!sb->busy);
    CHECK_INT(sb->box != NULL, has_box);
    CHECK_INT(world_has("boxes", sb->box_id), has_files);
    CHECK_INT(fake_lives(sb->box_id), has_box);
    CHECK_INT(fake_works(sb->box_id), sb->state == SB_RUNNING);
    CHECK_INT(sb->uses_template, has_files);
    if (has_box) {
        CHECK(sb->box->owner == sb);
        CHECK_STR(sb->box->id, sb->box_id);
    }
    if (sb->state == SB_RUNNING) {
        CHECK_INT(sb->box->phase, BOX_LIVE);
        CHECK_INT(sb->life.paused, PAUSE_NONE);
        CHECK_INT(fake_generation(sb->box_id), sb->generation);
        CHECK(sb->expiry.armed);
    } else {
        CHECK(!sb->expiry.armed);
    }
    if (sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK && sb->life.memory)
        CHECK(fake_has_saved(sb->box_id));
    *machines += has_box, *files += has_files;
}
static inline void world_check(void)
{
    struct map_entry *en;
    size_t machines = 0, files = 0, kept = 0;
    unsigned users = 0;
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));) {
        check_sandbox(en->value, &machines, &files);
        users += ((struct sandbox *)en->value)->uses_template;
    }
    for (size_t i = 0; (en = map_next(snapshots(W.core), &i)); kept++) {
        CHECK(!((struct snapshot *)en->value)->making);
        CHECK(world_has("snapshots", en->key));
        users++;
    }
    CHECK_INT(boxes(W.core)->n, machines);
    CHECK_INT(fake_machines(NULL, 0), machines);
    CHECK_INT(world_files("boxes"), files);
    CHECK_INT(world_files("snapshots"), kept);
    CHECK_INT(template_at(W.core, W.template)->users, users);
    CHECK(list_empty(&W.core->tiers.flights));
    CHECK(list_empty(&W.core->refs));
}

/* All of it goes; nothing stays. */
static inline void world_clear(void)
{
    struct map_entry *en;
    struct err e;
    (void)fake_fail_none();
    fake_watch = NULL;
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
        if (((struct sandbox *)en->value)->state != SB_GONE)
            CHECK(!sandbox_kill(en->value, END_KILLED, "", NULL, NULL, &e));
    world_settle("the end of all");
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; !more && (en = map_next(snapshots(W.core), &i));)
            if (!((struct snapshot *)en->value)->deleted) {
                CHECK(!snapshot_delete(en->value, NULL, NULL, &e));
                more = true;
            }
    }
    world_settle("the end of snapshots");
    world_check();
    CHECK_INT(world_files("boxes"), 0);
    CHECK_INT(world_files("snapshots"), 0);
}

static inline void world_end(void)
{
    struct err e;
    world_clear();
    world_leave();
    fake_end();
    loop_free(W.loop);
    CHECK(!tree_remove(AT_FDCWD, W.home, &e));
    (void)close(W.home_fd);
}

/* ---- what tests do ---- */
struct got {
    unsigned calls;
    bool ok;
    struct err err;
    char id[22];
    unsigned lost, children, failed;
};
static inline void got_it(struct got *g, bool ok, const char *id, const struct err *e)
{
    g->calls++;
    g->ok = ok;
    CHECK_INT(ok, !e);
    if (e)
        g->err = *e;
    (void)snprintf(g->id, sizeof g->id, "%s", id ? id : "");
}
static inline void on_sandbox(void *arg, struct sandbox *sb, const struct err *e)
{
    got_it(arg, sb, sb ? sb->id : NULL, e);
}
static inline void on_snapshot(void *arg, struct snapshot *s, const struct err *e)
{
    got_it(arg, s, s ? s->id : NULL, e);
}
static inline void on_recover(void *arg, struct sandbox *sb, unsigned lost, const struct err *e)
{
    got_it(arg, sb, sb ? sb->id : NULL, e);
    ((struct got *)arg)->lost = lost;
}
static inline void on_fork(void *arg, const struct snapshot *of, const struct fork_child *child,
                           unsigned n, const struct err *e)
{
    struct got *g = arg;
    got_it(g, of, of ? of->id : NULL, e);
    g->children = n;
    for (unsigned i = 0; i < n; i++)
        g->failed += !*child[i].id;
    snapshots_collect(W.core); /* as who asked does */
}
/* What was refused at once counts as an answer. */
static inline void got_refused(struct got *g, int rc, const struct err *e)
{
    if (rc)
        got_it(g, false, NULL, e);
}

static inline struct got make(const struct sandbox_spec *s)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, sandbox_create(W.core, s, on_sandbox, &g, &e), &e);
    world_settle("create");
    CHECK_INT(g.calls, 1);
    return g;
}
static inline struct sandbox *made(const struct sandbox_spec *s)
{
    struct got g = make(s);
    if (!g.ok)
        printf("# %s\n", g.err.msg);
    CHECK(g.ok);
    return sandbox_at(W.core, g.id);
}
static inline struct sandbox *made_plain(void) { return made(&(struct sandbox_spec){0}); }
static inline struct got pause_it(struct sandbox *sb, struct pause_spec how)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, sandbox_pause(sb, &how, on_sandbox, &g, &e), &e);
    world_settle("pause");
    CHECK_INT(g.calls, 1);
    return g;
}
static inline struct got resume_it(struct sandbox *sb, struct resume_spec how)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, sandbox_resume(sb, &how, on_sandbox, &g, &e), &e);
    world_settle("resume");
    CHECK_INT(g.calls, 1);
    return g;
}
static inline struct got snapshot_it(struct sandbox *sb, struct snapshot_spec how)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, snapshot_take(sb, &how, on_snapshot, &g, &e), &e);
    world_settle("snapshot");
    CHECK_INT(g.calls, 1);
    return g;
}
static inline struct got recover_it(struct sandbox *sb)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, sandbox_recover(sb, 0, on_recover, &g, &e), &e);
    world_settle("recover");
    CHECK_INT(g.calls, 1);
    return g;
}
static inline struct got kill_it(struct sandbox *sb)
{
    struct got g = {0};
    struct err e;
    got_refused(&g, sandbox_kill(sb, END_KILLED, "", on_sandbox, &g, &e), &e);
    world_settle("kill");
    CHECK_INT(g.calls, 1);
    return g;
}
