/* One thing that is done to a sandbox, done again and again: each time something else happens at one of its steps
 * (tier/fake/fake.h), until every step had its turn. What must be true afterwards in any case is world_check(); what
 * only this scene promises is in its row. */
#pragma once
#include "world.h"

enum mode {
    PLAIN,
    FAILS,   /* that step fails */
    SILENT,  /* its agent does not answer to that step; then minutes pass */
    KILLED,  /* the sandbox is killed then */
    DIES,    /* its machine ends then */
    RESTART, /* the daemon ends then, and the next one starts */
    MODES
};
static const char *const mode_names[MODES] = {"plain",  "fails", "silent",
                                              "killed", "dies",  "restart"};

#define DEADLINES \
    "agent.configure,agent.freeze,agent.sync,agent.thaw" /* what SILENT is tried with */
#define NONE (-1)                                        /* it is not there, or gone */
struct scene {
    const char *name;
    const struct tier *tier;
    void (*before)(void); /* makes R.sandbox and R.snapshot */
    void (*act)(void);    /* answers to R.got, once */
    int well, failed;     /* its state when that went well; when it did not: NONE or an sb_state */
    const char *fatal; /* steps that take it along if they fail: FAILED instead. "go,agent.thaw" */
    unsigned after_crash; /* bit set over sb_state: as the next daemon may find it */
    void (*check)(void);  /* what else it promises; may be NULL */
};
#define BIT(s)   (1u << (s))
#define BIT_NONE BIT(SB_STATE_MAX)

static struct run {
    const struct scene *scene;
    enum mode mode;
    unsigned at, nth;
    char step[24]; /* the one that it happened at */
    char sandbox[22], snapshot[22], box[22], old_box[22];
    struct got got;
    bool acting, crash, died;
} R;
static char plain_step[256][24]; /* as they come when all is well */

static void kill_now(void *arg)
{
    struct sandbox *sb = sandbox_at(W.core, R.sandbox);
    struct map_entry *en;
    (void)arg;
    for (size_t i = 0;
         !sb && (en = map_next(sandboxes(W.core), &i));) /* one that is being created */
        if (((struct sandbox *)en->value)->state == SB_CREATING)
            sb = en->value;
    if (sb && sb->state != SB_GONE)
        CHECK(!sandbox_kill(sb, END_KILLED, "by the test", NULL, NULL, NULL));
}

static void die_now(void *arg)
{
    (void)arg;
    R.died = fake_lives(R.box);
    fake_die(R.box);
}

static void on_step(void *arg, const char *name, const char *id)
{
    struct sandbox *sb = sandbox_at(W.core, R.sandbox);
    (void)arg;
    if (!R.acting)
        return;
    if (R.mode == PLAIN && R.nth < 256)
        (void)snprintf(plain_step[R.nth], sizeof *plain_step, "%s", name);
    if (++R.nth != R.at)
        return;
    (void)snprintf(R.step, sizeof R.step, "%s", name);
    (void)snprintf(R.box, sizeof R.box, "%s", id ? id : sb ? sb->box_id : "");
    if (R.mode == KILLED)
        loop_defer(W.loop, kill_now, NULL);
    if (R.mode == DIES)
        loop_defer(W.loop, die_now, NULL);
    if (R.mode == RESTART)
        R.crash = true;
}

static bool over_or_crashed(void) { return R.crash || (R.got.calls && world_quiet()); }
static bool listed_in(const char *list, const char *step)
{
    const char *at = list ? strstr(list, step) : NULL;
    char after = at ? at[strlen(step)] : 'x';
    return at && (at == list || at[-1] == ',') && (!after || after == ',');
}
static int state_now(const char *id)
{
    const struct sandbox *sb = sandbox_at(W.core, id);
    return sb && sb->state != SB_GONE ? (int)sb->state : NONE;
}

#define WANT(cond) \
    do { \
        if (!(cond)) { \
            int now_ = state_now(R.sandbox); \
            printf("# %s: %s at step %u (%s): now %s, answer %s %s\n", R.scene->name, \
                   mode_names[R.mode], R.at, R.step, \
                   now_ < 0 ? "none" : state_name((enum sb_state)now_), \
                   R.got.ok ? "ok" : "failed", R.got.err.msg); \
            CHECK(cond); \
        } \
    } while (0)

static void judge(void)
{
    int now = state_now(R.sandbox);
    bool any = R.mode == RESTART || R.mode == KILLED;
    if (R.mode != RESTART)
        WANT(R.got.calls == 1);
    if (R.mode == PLAIN)
        WANT(R.got.ok);
    if (R.mode == KILLED)
        WANT(now == NONE || !*R.step);
    if (R.mode == RESTART)
        WANT(R.scene->after_crash & (now == NONE ? BIT_NONE : BIT(now)));
    if (R.mode == DIES) {
        any = R.died;
        WANT(!R.died || now == NONE || now == SB_FAILED || now == SB_PAUSED ||
             (now == SB_RUNNING && (R.got.ok || R.scene->failed == SB_RUNNING)));
    }
    if (!any && R.got.ok)
        WANT(now == R.scene->well);
    if (!any && !R.got.ok)
        WANT(now == ((R.mode == FAILS || R.mode == SILENT) && listed_in(R.scene->fatal, R.step)
                         ? SB_FAILED
                         : R.scene->failed));
    if (R.mode == FAILS && !strcmp(R.step, "store.snapshot"))
        world_restart(); /* its files have no row: the next start sweeps them */
    world_check();
    if (R.scene->check)
        R.scene->check();
}

static void say_where(void)
{
    if (R.scene)
        printf("# in \"%s\": %s at step %u (%s)\n", R.scene->name, mode_names[R.mode], R.at,
               R.step);
    fflush(stdout);
}

/* Returns how many steps there were. */
static unsigned run_once(const struct scene *s, enum mode mode, unsigned at)
{
    R = (struct run){.scene = s, .mode = mode, .at = at};
    fake_watch = on_step;
    s->before();
    world_settle("the beginning of a scene");
    if (mode == FAILS || mode == SILENT)
        fake_fail(NULL, at, mode == FAILS ? FAKE_FAILS : FAKE_SILENT);
    if (mode == RESTART && __lsan_disable)
        __lsan_disable(); /* what a daemon had under way when it ended went with its process */
    R.acting = true;
    s->act();
    if (mode == SILENT)
        for (int i = 0; i < 8 && !R.got.calls; i++) {
            do {
                loop_turn(W.loop, false);
            } while (jobs_pending(W.jobs) || store_depth(W.core->store) || fake_pending());
            world_turns(50);
            world_skip(40);
        }
    world_until(over_or_crashed, s->name);
    if (R.crash) {
        R.acting = false;
        world_leave();
        if (__lsan_enable)
            __lsan_enable();
        world_start();
    } else if (mode == RESTART && __lsan_enable) {
        __lsan_enable();
    }
    world_settle(s->name);
    R.acting = false;
    unsigned n = R.nth;
    judge();
    world_clear();
    R.scene = NULL;
    return n;
}


static inline void run_scene(const struct scene *s, unsigned modes)
{
    static bool heard;
    if (!heard)
        (void)atexit(say_where);
    heard = true;
    unsigned n = run_once(s, PLAIN, 0);
    CHECK(n > 0);
    for (int m = FAILS; m < MODES; m++)
        for (unsigned at = 1; (modes & BIT(m)) && at <= n; at++)
            if (m != SILENT || listed_in(DEADLINES, plain_step[at - 1]))
                (void)run_once(s, (enum mode)m, at);
}
