/* Every edge of the table of states (core/sandbox/state.c) is gone by a real cause, and by no other. */
#include "world.h"

/* Each begins with a sandbox that runs. */
static void none(struct sandbox *sb) { (void)sb; }
static void creating_killed(struct sandbox *sb)
{
    struct got g = {0};
    struct err e;
    struct map_entry *en;
    (void)sb;
    CHECK(!sandbox_create(W.core, &(struct sandbox_spec){0}, on_sandbox, &g, &e));
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
        if (((struct sandbox *)en->value)->state == SB_CREATING)
            CHECK(!sandbox_kill(en->value, END_KILLED, "", NULL, NULL, &e));
    world_settle("killed");
    CHECK_INT(g.err.code, E_CANCELED);
}
static void creating_fails(struct sandbox *sb)
{
    (void)sb;
    fake_fail("start", 1, FAKE_FAILS);
    CHECK(!make(&(struct sandbox_spec){0}).ok);
}
static void killed(struct sandbox *sb) { CHECK(kill_it(sb).ok); }
static void dies(struct sandbox *sb)
{
    fake_die(sb->box_id);
    world_settle("its end");
}
static void dies_and_is_killed(struct sandbox *sb)
{
    dies(sb);
    killed(sb);
}
static void dies_and_is_recovered(struct sandbox *sb)
{
    dies(sb);
    struct got g = recover_it(sb);
    CHECK(g.ok);
    CHECK_INT(g.lost, LOST_MEMORY | LOST_WRITES);
}
static void paused(struct sandbox *sb) { CHECK(pause_it(sb, (struct pause_spec){0}).ok); }
static void not_paused(struct sandbox *sb)
{
    fake_fail("take", 1, FAKE_FAILS);
    CHECK(!pause_it(sb, (struct pause_spec){0}).ok);
}
static void pausing_killed(struct sandbox *sb)
{
    struct got g = {0};
    struct err e;
    CHECK(!sandbox_pause(sb, &(struct pause_spec){0}, on_sandbox, &g, &e));
    CHECK_INT(sb->state, SB_PAUSING);
    killed(sb);
    CHECK_INT(g.err.code, E_GONE);
}
static void pausing_dies(struct sandbox *sb)
{
    fake_fail("take", 1, FAKE_DIES);
    CHECK(!pause_it(sb, (struct pause_spec){0}).ok);
    CHECK_INT(sb->state, SB_FAILED);
}
static void paused_and_resumed(struct sandbox *sb)
{
    paused(sb);
    CHECK(resume_it(sb, (struct resume_spec){0}).ok);
}
static void paused_and_killed(struct sandbox *sb)
{
    paused(sb);
    killed(sb);
}
static void standby_dies(struct sandbox *sb)
{
    CHECK(pause_it(sb, (struct pause_spec){.standby = true}).ok);
    dies(sb);
    CHECK_INT(sb->state, SB_FAILED);
}

static const struct {
    enum sb_state from;
    enum sb_event ev;
    void (*cause)(struct sandbox *sb);
} edges[] = {
    {SB_CREATING, SBE_READY, none},
    {SB_CREATING, SBE_KILL, creating_killed},
    {SB_CREATING, SBE_FAIL, creating_fails},
    {SB_RUNNING, SBE_PAUSE, paused},
    {SB_RUNNING, SBE_KILL, killed},
    {SB_RUNNING, SBE_FAIL, dies},
    {SB_PAUSING, SBE_PAUSED, paused},
    {SB_PAUSING, SBE_RESUME, not_paused},
    {SB_PAUSING, SBE_KILL, pausing_killed},
    {SB_PAUSING, SBE_FAIL, pausing_dies},
    {SB_PAUSED, SBE_RESUME, paused_and_resumed},
    {SB_PAUSED, SBE_KILL, paused_and_killed},
    {SB_PAUSED, SBE_FAIL, standby_dies},
    {SB_STOPPING, SBE_ENDED, killed},
    {SB_FAILED, SBE_KILL, dies_and_is_killed},
    {SB_FAILED, SBE_RECOVER, dies_and_is_recovered},
};

TEST(edges, each_has_a_cause)
{
    bool seen[SB_STATE_MAX][SBE_MAX] = {0};
    world_begin(&fake_vm);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        memset(W.edge, 0, sizeof W.edge);
        edges[i].cause(made_plain());
        world_check();
        CHECK(W.edge[edges[i].from][edges[i].ev]);
        for (int s = 0; s < SB_STATE_MAX; s++)
            for (int e = 0; e < SBE_MAX; e++)
                seen[s][e] |= W.edge[s][e];
        world_clear();
    }
    for (int s = 0; s < SB_STATE_MAX; s++)
        for (int e = 0; e < SBE_MAX; e++) {
            bool allowed = state_next((enum sb_state)s, (enum sb_event)e) >= 0;
            if (seen[s][e] != allowed)
                printf("# %s, event %d: %s\n", state_name((enum sb_state)s), e,
                       allowed ? "never happened" : "is not in the table");
            CHECK_INT(seen[s][e], allowed);
        }
    world_end();
}

/* What is asked in a state that forbids it is refused, and changes nothing. */
TEST(edges, others_are_refused)
{
    static const struct {
        void (*cause)(struct sandbox *sb);
        enum err_code pause, resume, take, recover;
    } rows[] = {
        {none, E_OK, E_CONFLICT, E_OK, E_OK},
        {paused, E_CONFLICT, E_OK, E_OK, E_OK},
        {dies, E_GONE, E_GONE, E_GONE, E_OK},
        {killed, E_GONE, E_GONE, E_GONE, E_GONE},
    };
    world_begin(&fake_vm);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sandbox *sb;
        for (int what = 0; what < 4; what++) {
            sb = made_plain();
            rows[i].cause(sb);
            enum sb_state was = sb->state;
            struct got g = what == 0   ? pause_it(sb, (struct pause_spec){0})
                           : what == 1 ? resume_it(sb, (struct resume_spec){0})
                           : what == 2 ? snapshot_it(sb, (struct snapshot_spec){0})
                                       : recover_it(sb);
            enum err_code want = what == 0   ? rows[i].pause
                                 : what == 1 ? rows[i].resume
                                 : what == 2 ? rows[i].take
                                             : rows[i].recover;
            CHECK_INT(g.ok ? E_OK : g.err.code, want);
            if (want)
                CHECK_INT(sb->state, was);
            world_check();
        }
        world_clear();
    }
    world_end();
}
TEST_MAIN
