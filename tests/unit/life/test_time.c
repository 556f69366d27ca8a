/* What the clock does to sandboxes: timeouts, idleness, the longest life, standby that lasts too long, failed ones
 * that nobody recovers, agents that do not answer. */
#include "world.h"

static struct sandbox *with(struct sandbox_spec s) { return made(&s); }
static void pass(int64_t seconds)
{
    world_skip(seconds);
    world_settle("time");
}

TEST(timeout, kills)
{
    world_begin(&fake_box);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 10});
    pass(9);
    CHECK_INT(sb->state, SB_RUNNING);
    pass(2);
    CHECK_INT(sb->state, SB_GONE);
    CHECK_INT(sb->end_reason, END_TIMEOUT);
    world_end();
}
TEST(timeout, pauses)
{
    world_begin(&fake_vm);
    struct sandbox *sb =
        with((struct sandbox_spec){.timeout_s = 10, .on_timeout = ON_TIMEOUT_PAUSE});
    pass(11);
    CHECK_INT(sb->state, SB_PAUSED);
    CHECK_INT(sb->life.paused, PAUSE_DISK);
    CHECK_INT(sb->life.why, WHY_TIMEOUT);
    CHECK(sb->life.memory);
    CHECK(resume_it(sb, (struct resume_spec){.timeout_s = 20}).ok);
    CHECK_INT(sb->timeout_s, 20);
    pass(19);
    CHECK_INT(sb->state, SB_RUNNING);
    pass(2);
    CHECK_INT(sb->state, SB_PAUSED);
    world_check();
    world_end();
}
TEST(timeout, pauses_with_files_only_if_asked_for)
{
    world_begin(&fake_vm);
    struct sandbox *sb = with(
        (struct sandbox_spec){.timeout_s = 10, .on_timeout = ON_TIMEOUT_PAUSE, .files_only = true});
    pass(11);
    CHECK_INT(sb->state, SB_PAUSED);
    CHECK(!sb->life.memory);
    CHECK(resume_it(sb, (struct resume_spec){0}).ok);
    CHECK_STR(sb->start_path, "boot");
    world_end();
}
/* A pause that fails leaves it running, for a second at least. */
TEST(timeout, tries_again_when_the_pause_fails)
{
    world_begin(&fake_vm);
    struct sandbox *sb =
        with((struct sandbox_spec){.timeout_s = 10, .on_timeout = ON_TIMEOUT_PAUSE});
    fake_fail("publish", 1, FAKE_FAILS);
    pass(11);
    CHECK_INT(sb->state, SB_RUNNING);
    world_check();
    pass(2);
    CHECK_INT(sb->state, SB_PAUSED);
    world_end();
}
TEST(timeout, can_be_moved)
{
    world_begin(&fake_box);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 10});
    struct err e;
    CHECK(!sandbox_set_timeout(sb, 100, &e));
    CHECK(!sandbox_keep_alive(sb, 5, &e)); /* never shortens */
    pass(50);
    CHECK_INT(sb->state, SB_RUNNING);
    CHECK(sandbox_set_timeout(sb, 86401, &e));
    CHECK_INT(e.code, E_INVALID);
    CHECK(!sandbox_keep_alive(sb, 200, &e));
    pass(190);
    CHECK_INT(sb->state, SB_RUNNING);
    pass(11);
    CHECK_INT(sb->state, SB_GONE);
    CHECK(sandbox_set_timeout(sb, 10, &e));
    CHECK_INT(e.code, E_NOT_FOUND);
    world_end();
}

TEST(lifetime, ends_what_runs_and_what_is_paused)
{
    world_begin(&fake_vm);
    struct sandbox *a = with((struct sandbox_spec){
        .timeout_s = 1000, .lifetime_s = 100, .on_timeout = ON_TIMEOUT_PAUSE});
    struct sandbox *b = with((struct sandbox_spec){.timeout_s = 1000, .lifetime_s = 100});
    struct err e;
    CHECK(pause_it(b, (struct pause_spec){0}).ok);
    CHECK(!sandbox_set_timeout(a, 5000, &e)); /* no extension passes it */
    pass(99);
    CHECK_INT(a->state, SB_RUNNING);
    CHECK_INT(b->state, SB_PAUSED);
    pass(3);
    CHECK_INT(a->state, SB_GONE);
    CHECK_INT(a->end_reason, END_LIFETIME);
    CHECK_INT(b->state, SB_GONE);
    CHECK_INT(b->end_reason, END_LIFETIME);
    world_check();
    world_end();
}

TEST(idle, pauses_or_kills_what_does_nothing)
{
    world_begin(&fake_vm);
    struct sandbox *a =
        with((struct sandbox_spec){.timeout_s = 80000, .idle_s = 8, .on_idle = ON_TIMEOUT_PAUSE});
    struct sandbox *b =
        with((struct sandbox_spec){.timeout_s = 80000, .idle_s = 8, .on_idle = ON_TIMEOUT_KILL});
    struct sandbox *busy =
        with((struct sandbox_spec){.timeout_s = 80000, .idle_s = 8, .on_idle = ON_TIMEOUT_KILL});
    for (int i = 1; i <= 6; i++) {
        fake_set_cpu(busy->box_id, (uint64_t)i * 2 * NS_PER_S);
        pass(2);
    }
    CHECK_INT(a->state, SB_PAUSED);
    CHECK_INT(a->life.why, WHY_IDLE);
    CHECK_INT(b->state, SB_GONE);
    CHECK_INT(b->end_reason, END_IDLE);
    CHECK_INT(busy->state, SB_RUNNING);
    world_check();
    world_end();
}

TEST(standby, goes_to_disk_when_it_lasts)
{
    world_begin(&fake_vm);
    W.core->cfg.standby_s = 60;
    struct sandbox *sb = made_plain();
    CHECK(pause_it(sb, (struct pause_spec){.standby = true}).ok);
    pass(50);
    CHECK_INT(sb->life.paused, PAUSE_STANDBY);
    pass(12);
    CHECK_INT(sb->life.paused, PAUSE_DISK);
    CHECK(sb->life.memory);
    CHECK_INT(sb->life.why, WHY_CALL); /* what it was paused for stays */
    world_check();
    CHECK(resume_it(sb, (struct resume_spec){0}).ok);
    world_end();
}
TEST(standby, of_a_container_stays)
{
    world_begin(&fake_box);
    W.core->cfg.standby_s = 60;
    struct sandbox *sb = made_plain();
    CHECK(pause_it(sb, (struct pause_spec){.standby = true}).ok);
    pass(100);
    CHECK_INT(sb->life.paused, PAUSE_STANDBY);
    world_end();
}

TEST(failed, waits_to_be_recovered_and_then_goes)
{
    world_begin(&fake_vm);
    W.core->cfg.failed_keep_s = 100;
    struct sandbox *sb = made_plain();
    fake_die(sb->box_id);
    world_settle("its end");
    CHECK_INT(sb->state, SB_FAILED);
    CHECK_INT(sb->end_reason, END_HOST_FAULT);
    pass(98);
    CHECK_INT(sb->state, SB_FAILED);
    world_check();
    pass(4);
    CHECK_INT(sb->state, SB_GONE);
    CHECK_INT(sb->end_reason, END_HOST_FAULT);
    world_end();
}

/* ---- an agent that says nothing ---- */
TEST(silence, ends_a_pause_that_waits_for_the_agent)
{
    static const struct {
        const char *step;
        struct pause_spec how;
    } rows[] = {
        {"agent.freeze", {0}},
        {"agent.freeze", {.files_only = true}},
        {"agent.freeze", {.standby = true}},
    };
    world_begin(&fake_vm);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 80000});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct got g = {0};
        struct err e;
        fake_fail(rows[i].step, 1, FAKE_SILENT);
        CHECK(!sandbox_pause(sb, &rows[i].how, on_sandbox, &g, &e));
        world_turns(50);
        CHECK_INT(g.calls, 0);
        pass(61);
        CHECK_INT(g.calls, 1);
        CHECK_INT(g.err.code, E_TIMEOUT);
        CHECK_INT(sb->state, SB_RUNNING);
        world_check();
    }
    world_end();
}
TEST(silence, stops_a_container_all_the_same)
{
    world_begin(&fake_box);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 80000});
    struct got g = {0};
    struct err e;
    fake_fail("agent.sync", 1, FAKE_FAILS); /* the unmount writes its files */
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    CHECK(resume_it(sb, (struct resume_spec){.timeout_s = 80000}).ok);
    fake_fail("agent.sync", 1, FAKE_SILENT);
    CHECK(!sandbox_pause(sb, &(struct pause_spec){0}, on_sandbox, &g, &e));
    world_turns(50);
    pass(61);
    CHECK_INT(g.calls, 1);
    CHECK_INT(g.err.code, E_TIMEOUT);
    CHECK_INT(sb->state, SB_RUNNING);
    world_check();
    world_end();
}
/* The answer comes after the deadline, and before the row says that it runs again. */
static struct sandbox *late;
static void answer_late(void *arg)
{
    struct err e;
    (void)arg;
    err_set(&e, E_INTERNAL, "late");
    agent_cut(late->box->agent, &e);
}
static void on_undo(void *arg, const char *name, const char *id)
{
    (void)arg, (void)id;
    if (!strcmp(name, "store.sandbox"))
        loop_defer(W.loop, answer_late, NULL);
}
TEST(silence, does_not_pause_a_container_that_answers_too_late)
{
    world_begin(&fake_box);
    struct got g = {0};
    struct err e;
    late = with((struct sandbox_spec){.timeout_s = 80000});
    fake_fail("agent.sync", 1, FAKE_SILENT);
    CHECK(!sandbox_pause(late, &(struct pause_spec){0}, on_sandbox, &g, &e));
    world_turns(50);
    fake_watch = on_undo;
    pass(61);
    CHECK_INT(g.calls, 1);
    CHECK_INT(g.err.code, E_TIMEOUT);
    CHECK_INT(late->state, SB_RUNNING);
    world_check();
    world_end();
}
/* It could not be paused, and then it does not go on either. */
TEST(silence, fails_what_does_not_come_back_from_a_pause)
{
    world_begin(&fake_vm);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 80000});
    struct got g = {0};
    struct err e;
    fake_fail("take", 1, FAKE_FAILS);
    fake_fail("agent.thaw", 1, FAKE_SILENT);
    CHECK(!sandbox_pause(sb, &(struct pause_spec){0}, on_sandbox, &g, &e));
    world_turns(50);
    world_skip(119);
    world_turns(50);
    CHECK_INT(g.calls, 0);
    pass(2);
    CHECK_INT(g.calls, 1);
    CHECK_INT(sb->state, SB_FAILED);
    world_check();
    CHECK(recover_it(sb).ok);
    world_end();
}
TEST(silence, ends_a_snapshot)
{
    static const char *const steps[] = {"agent.sync", "agent.freeze"};
    world_begin(&fake_vm);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 80000});
    for (size_t i = 0; i < 2; i++) {
        struct got g = {0};
        struct err e;
        fake_fail(steps[i], 1, FAKE_SILENT);
        CHECK(!snapshot_take(sb, &(struct snapshot_spec){0}, on_snapshot, &g, &e));
        world_turns(50);
        pass(61);
        CHECK_INT(g.calls, 1);
        CHECK_INT(g.err.code, E_TIMEOUT);
        world_check();
    }
    world_end();
}
TEST(silence, ends_a_resume_and_a_rollback)
{
    world_begin(&fake_vm);
    struct sandbox *sb = with((struct sandbox_spec){.timeout_s = 80000});
    struct got s = snapshot_it(sb, (struct snapshot_spec){0}), g = {0}, h = {0};
    struct err e;
    CHECK(s.ok);
    fake_fail("agent.configure", 1, FAKE_SILENT);
    CHECK(!sandbox_rollback(sb, snapshot_at(W.core, s.id), false, on_sandbox, &g, &e));
    world_turns(50);
    pass(31);
    CHECK_INT(g.calls, 1);
    CHECK_INT(g.err.code, E_TIMEOUT);
    CHECK_INT(sb->state, SB_RUNNING);
    world_check();
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    fake_fail("agent.configure", 1, FAKE_SILENT);
    CHECK(!sandbox_resume(sb, &(struct resume_spec){0}, on_sandbox, &h, &e));
    world_turns(50);
    pass(31);
    CHECK_INT(h.calls, 1);
    CHECK_INT(h.err.code, E_TIMEOUT);
    CHECK_INT(sb->state, SB_PAUSED);
    world_check();
    world_end();
}
TEST_MAIN
