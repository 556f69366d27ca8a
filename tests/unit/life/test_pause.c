/* Pauses, resumes, snapshots, forks and rollbacks when all is well, and when two of them meet. */
#include "world.h"

static const struct tier *const both[] = {&fake_vm, &fake_box};
#define EACH_TIER(t) \
    for (size_t t##_i = 0; t##_i < 2; t##_i++) \
        for (const struct tier *t = both[t##_i]; t; t = NULL)

/* What a pause keeps, and what a resume calls itself. */
TEST(pause, keeps_what_it_says)
{
    static const struct {
        const struct tier *tier;
        struct pause_spec how;
        enum pause_kind kind;
        bool memory;
        const char *path;
    } rows[] = {
        {&fake_vm, {0}, PAUSE_DISK, true, "resume"},
        {&fake_vm, {.memory_wanted = true}, PAUSE_DISK, true, "resume"},
        {&fake_vm, {.files_only = true}, PAUSE_DISK, false, "boot"},
        {&fake_vm, {.standby = true}, PAUSE_STANDBY, true, "standby"},
        {&fake_box, {0}, PAUSE_DISK, false, "boot"},
        {&fake_box, {.files_only = true}, PAUSE_DISK, false, "boot"},
        {&fake_box, {.standby = true}, PAUSE_STANDBY, true, "standby"},
        {&fake_box, {.standby = true, .memory_wanted = true}, PAUSE_STANDBY, true, "standby"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        world_begin(rows[i].tier);
        struct sandbox *sb = made_plain();
        uint64_t generation = sb->generation;
        CHECK(pause_it(sb, rows[i].how).ok);
        CHECK_INT(sb->life.paused, rows[i].kind);
        CHECK_INT(sb->life.memory, rows[i].memory);
        CHECK_INT(sb->life.bytes > 0, rows[i].kind == PAUSE_DISK && rows[i].memory);
        world_check();
        CHECK(resume_it(sb, (struct resume_spec){0}).ok);
        CHECK_STR(sb->start_path, rows[i].path);
        CHECK_INT(sb->generation, generation + (rows[i].kind == PAUSE_DISK && rows[i].memory));
        CHECK(!fake_has_saved(sb->box_id));
        world_check();
        world_end();
    }
}

TEST(pause, refuses_what_its_tier_cannot)
{
    world_begin(&fake_box);
    struct sandbox *sb = made_plain();
    CHECK_INT(pause_it(sb, (struct pause_spec){.memory_wanted = true}).err.code, E_UNSUPPORTED);
    CHECK_INT(pause_it(sb, (struct pause_spec){.standby = true, .files_only = true}).err.code,
              E_INVALID);
    CHECK_INT(snapshot_it(sb, (struct snapshot_spec){.memory_wanted = true}).err.code,
              E_UNSUPPORTED);
    CHECK_INT(sb->state, SB_RUNNING);
    world_check();
    world_end();
}

TEST(pause, respects_what_a_tenant_may_hold)
{
    world_begin(&fake_vm);
    struct err e;
    tenants_free(&W.core->tenants);
    CHECK(!tenants_parse("{\"acme\":{\"held_bytes\":1000}}", &W.core->tenants, &e));
    struct sandbox *a = made(&(struct sandbox_spec){.tenant = "acme"}),
                   *b = made(&(struct sandbox_spec){.tenant = "acme"});
    CHECK(pause_it(a, (struct pause_spec){0}).ok);
    CHECK_INT(pause_it(b, (struct pause_spec){0}).err.code, E_QUOTA);
    CHECK_INT(snapshot_it(b, (struct snapshot_spec){0}).err.code, E_QUOTA);
    CHECK(pause_it(b, (struct pause_spec){.why = WHY_TIMEOUT}).ok); /* better than its kill */
    world_check();
    world_end();
}

/* Who asks for the same meanwhile waits for it; who asks for the opposite comes after it. */
TEST(pause, joins_and_queues)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made_plain();
        struct got g[6] = {0};
        struct pause_spec to = {0};
        struct resume_spec back = {0};
        struct err e;
        CHECK(!sandbox_pause(sb, &to, on_sandbox, &g[0], &e));
        CHECK(!sandbox_pause(sb, &to, on_sandbox, &g[1], &e));
        CHECK(!sandbox_resume(sb, &back, on_sandbox, &g[2], &e));
        CHECK(!snapshot_take(sb, &(struct snapshot_spec){.name = "s"}, on_snapshot, &g[3], &e));
        sandbox_wake(sb, on_sandbox, &g[4]);
        world_settle("all of them");
        for (int i = 0; i < 3; i++)
            CHECK(g[i].calls == 1 && g[i].ok);
        CHECK_INT(g[3].calls, 1);
        CHECK_INT(g[4].calls, 1);
        CHECK_INT(sb->state, SB_RUNNING);
        world_check();
        CHECK(pause_it(sb, to).ok);
        CHECK(!sandbox_resume(sb, &back, on_sandbox, &g[5], &e));
        CHECK(pause_it(sb, to).ok); /* after it */
        CHECK(g[5].calls == 1 && g[5].ok);
        CHECK_INT(sb->state, SB_PAUSED);
        world_check();
        world_end();
    }
}

TEST(pause, a_kill_tells_all_who_wait)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made_plain();
        struct got g[5] = {0};
        struct err e;
        CHECK(!sandbox_pause(sb, &(struct pause_spec){0}, on_sandbox, &g[0], &e));
        CHECK(!sandbox_pause(sb, &(struct pause_spec){0}, on_sandbox, &g[1], &e));
        CHECK(!sandbox_resume(sb, &(struct resume_spec){0}, on_sandbox, &g[2], &e));
        CHECK(!snapshot_take(sb, &(struct snapshot_spec){0}, on_snapshot, &g[3], &e));
        sandbox_wake(sb, on_sandbox, &g[4]);
        CHECK(kill_it(sb).ok);
        for (int i = 0; i < 5; i++)
            CHECK(g[i].calls == 1 && !g[i].ok);
        world_check();
        world_end();
    }
}

TEST(wake, brings_back_what_asked_for_it)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *a = made(&(struct sandbox_spec){.auto_resume = true}), *b = made_plain();
        struct got g = {0}, h = {0}, k = {0};
        CHECK(pause_it(a, (struct pause_spec){0}).ok);
        CHECK(pause_it(b, (struct pause_spec){0}).ok);
        sandbox_wake(a, on_sandbox, &g);
        sandbox_wake(b, on_sandbox, &h);
        world_settle("wake");
        CHECK(g.calls == 1 && g.ok);
        CHECK_INT(a->state, SB_RUNNING);
        CHECK_INT(h.err.code, E_CONFLICT);
        CHECK_INT(b->state, SB_PAUSED);
        CHECK(pause_it(a, (struct pause_spec){0}).ok);
        fake_fail("start", 1, FAKE_FAILS);
        sandbox_wake(a, on_sandbox, &k);
        world_settle("wake");
        CHECK(k.calls == 1 && !k.ok);
        CHECK_INT(a->state, SB_PAUSED);
        world_check();
        world_end();
    }
}

TEST(resume, cold_gives_its_memory_up)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made_plain();
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    CHECK(resume_it(sb, (struct resume_spec){.cold = true}).ok);
    CHECK_STR(sb->start_path, "boot");
    CHECK(!fake_has_saved(sb->box_id));
    world_check();
    /* … for good, also if the boot fails */
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    fake_fail("start", 1, FAKE_FAILS);
    CHECK(!resume_it(sb, (struct resume_spec){.cold = true}).ok);
    CHECK_INT(sb->state, SB_PAUSED);
    CHECK(!sb->life.memory);
    world_check();
    CHECK(resume_it(sb, (struct resume_spec){0}).ok);
    world_end();
}

TEST(resume, runs_the_templates_commands_after_a_boot)
{
    EACH_TIER(t)
    {
        world_begin_with(t, "serve", "is-up");
        struct sandbox *sb = made_plain();
        CHECK(pause_it(sb, (struct pause_spec){.files_only = true}).ok);
        fake_fail("agent.start", 1, FAKE_FAILS);
        CHECK(!resume_it(sb, (struct resume_spec){0}).ok);
        CHECK_INT(sb->state, SB_PAUSED);
        world_check();
        CHECK(resume_it(sb, (struct resume_spec){0}).ok);
        world_check();
        world_end();
    }
}

/* ---- recover ---- */
TEST(recover, says_what_was_lost)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made_plain();
    struct got g = recover_it(sb); /* nothing to do */
    CHECK(g.ok && !g.lost);
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    g = recover_it(sb);
    CHECK(g.ok && !g.lost);
    CHECK(pause_it(sb, (struct pause_spec){.files_only = true}).ok);
    g = recover_it(sb);
    CHECK(g.ok);
    CHECK_INT(g.lost, LOST_MEMORY);
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    fake_fail("wake", 1, FAKE_FAILS); /* its memory is no good: booted instead */
    g = recover_it(sb);
    CHECK(g.ok);
    CHECK_INT(g.lost, LOST_MEMORY);
    fake_die(sb->box_id);
    world_settle("its end");
    g = recover_it(sb);
    CHECK(g.ok);
    CHECK_INT(g.lost, LOST_MEMORY | LOST_WRITES);
    CHECK_INT(sb->end_reason, END_NONE);
    world_check();
    world_end();
}
TEST(recover, is_one_for_all_who_ask)
{
    world_begin(&fake_box);
    struct sandbox *sb = made_plain();
    struct got g[2] = {0};
    struct err e;
    fake_die(sb->box_id);
    world_settle("its end");
    for (int i = 0; i < 2; i++)
        CHECK(!sandbox_recover(sb, 0, on_recover, &g[i], &e));
    world_settle("recover");
    for (int i = 0; i < 2; i++)
        CHECK(g[i].calls == 1 && g[i].ok);
    world_check();
    world_end();
}
TEST(recover, needs_a_disk)
{
    world_begin(&fake_box);
    W.core->cfg.failed_keep_s = 0;
    struct sandbox *sb = made_plain();
    fake_die(sb->box_id);
    world_settle("its end");
    CHECK_INT(sb->state, SB_FAILED);
    CHECK(!sb->life.kept);
    world_check();
    CHECK_INT(recover_it(sb).err.code, E_GONE);
    world_end();
}

/* ---- snapshots ---- */
TEST(snapshot, outlives_its_sandbox)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made_plain();
        struct got s = snapshot_it(sb, (struct snapshot_spec){.name = "s"});
        CHECK(s.ok);
        CHECK_INT(snapshot_it(sb, (struct snapshot_spec){.name = "s"}).err.code, E_CONFLICT);
        CHECK(kill_it(sb).ok);
        struct sandbox *copy = made(
            &(struct sandbox_spec){.from = snapshot_find_for(W.core, &caller_daemon, "s", NULL)});
        CHECK_STR(copy->start_path, t == &fake_vm ? "snapshot" : "boot");
        world_check();
        /* deleted at once; its files go when nothing needs them */
        struct err e;
        CHECK(
            !snapshot_delete(snapshot_find_for(W.core, &caller_daemon, "s", NULL), NULL, NULL, &e));
        world_settle("delete");
        CHECK(!snapshot_find_for(W.core, &caller_daemon, "s", NULL));
        CHECK_INT(world_files("snapshots"), t == &fake_vm);
        CHECK(kill_it(copy).ok);
        CHECK_INT(world_files("snapshots"), 0);
        world_end();
    }
}
TEST(snapshot, keeps_the_last_ones_and_expires)
{
    world_begin(&fake_box);
    struct sandbox *sb = made(&(struct sandbox_spec){.timeout_s = 80000});
    for (int i = 0; i < 4; i++)
        CHECK(snapshot_it(sb, (struct snapshot_spec){.keep_last = 2}).ok);
    CHECK_INT(snapshots(W.core)->n, 2);
    CHECK(snapshot_it(sb, (struct snapshot_spec){.name = "brief", .expires_s = 50}).ok);
    world_skip(40);
    world_settle("time");
    CHECK(snapshot_find_for(W.core, &caller_daemon, "brief", NULL));
    world_skip(20);
    world_settle("time");
    CHECK(!snapshot_find_for(W.core, &caller_daemon, "brief", NULL));
    world_check();
    world_end();
}
TEST(snapshot, of_what_was_paused_without_memory_has_none)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made_plain();
    CHECK(pause_it(sb, (struct pause_spec){.files_only = true}).ok);
    CHECK_INT(snapshot_it(sb, (struct snapshot_spec){.memory_wanted = true}).err.code, E_CONFLICT);
    struct got s = snapshot_it(sb, (struct snapshot_spec){0});
    CHECK(s.ok);
    CHECK(!snapshot_at(W.core, s.id)->memory);
    CHECK_STR(made(&(struct sandbox_spec){.from = snapshot_at(W.core, s.id)})->start_path, "boot");
    world_check();
    world_end();
}

TEST(fork, makes_children_of_one_moment)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made(&(struct sandbox_spec){.on_timeout = ON_TIMEOUT_PAUSE});
        kept_set(&sb->kept.preview_token, "secret");
        kv_set(&sb->kept.dialect, S("said_once"), S("x"));
        kv_set(&sb->kept.dialect, S("said"), S("y"));
        struct got g[2] = {0};
        struct err e;
        for (int i = 0; i < 2; i++)
            CHECK(!sandbox_fork(sb, &(struct fork_spec){.count = 2}, on_fork, &g[i], &e));
        world_settle("fork");
        CHECK_INT(g[0].children, 2);
        CHECK_INT(g[1].children, 2);
        CHECK_STR(g[0].id, g[1].id); /* one snapshot for both */
        world_check();
        struct map_entry *en;
        for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));) {
            const struct sandbox *child = en->value;
            if (child == sb)
                continue;
            CHECK_INT(child->on_timeout, ON_TIMEOUT_PAUSE);
            CHECK(strcmp(child->token, sb->token));
            CHECK(strcmp(child->kept.preview_token, "secret"));
            CHECK(!kv_get(&child->kept.dialect, "said_once"));
            CHECK_STR(kv_get(&child->kept.dialect, "said"), "y");
        }
        CHECK(sandbox_fork(sb, &(struct fork_spec){.count = 0}, on_fork, NULL, &e));
        CHECK_INT(e.code, E_INVALID);
        CHECK(sandbox_fork(sb, &(struct fork_spec){.count = FORK_MAX + 1}, on_fork, NULL, &e));
        CHECK_INT(e.code, E_INVALID);
        world_end();
    }
}
TEST(fork, bears_as_many_as_there_is_room_for)
{
    world_begin(&fake_vm);
    W.core->cfg.max_sandboxes = 3;
    struct sandbox *sb = made_plain();
    struct got g = {0};
    struct err e;
    CHECK(!sandbox_fork(sb, &(struct fork_spec){.count = 4}, on_fork, &g, &e));
    world_settle("fork");
    CHECK(g.ok);
    CHECK_INT(g.children, 4);
    CHECK_INT(g.failed, 2);
    world_check();
    world_end();
}

TEST(rollback, keeps_the_sandbox_and_changes_its_machine)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made(&(struct sandbox_spec){.name = "one"});
        struct got s = snapshot_it(sb, (struct snapshot_spec){0}), g = {0}, h = {0};
        char id[22], box[22], token[41];
        struct err e;
        memcpy(id, sb->id, 22), memcpy(box, sb->box_id, 22), memcpy(token, sb->token, 41);
        uint64_t generation = sb->generation;
        CHECK(!sandbox_rollback(sb, snapshot_at(W.core, s.id), false, on_sandbox, &g, &e));
        CHECK(sandbox_rollback(sb, snapshot_at(W.core, s.id), false, on_sandbox, &h, &e));
        CHECK_INT(e.code, E_CONFLICT);
        world_settle("rollback");
        CHECK(g.calls == 1 && g.ok);
        CHECK_STR(sb->id, id);
        CHECK_STR(sb->token, token);
        CHECK(strcmp(sb->box_id, box));
        CHECK_INT(sb->generation, generation + 1);
        CHECK_STR(sandbox_base(sb), s.id);
        world_check();
        struct sandbox *other = made_plain();
        CHECK(sandbox_rollback(other, snapshot_at(W.core, s.id), false, on_sandbox, &h, &e));
        CHECK_INT(e.code, E_INVALID); /* of another sandbox */
        CHECK(pause_it(sb, (struct pause_spec){0}).ok);
        CHECK(sandbox_rollback(sb, snapshot_at(W.core, s.id), false, on_sandbox, &h, &e));
        CHECK_INT(e.code, E_CONFLICT);
        world_end();
    }
}
/* Both machines go: nothing is left to keep. */
TEST(rollback, fails_it_if_neither_machine_is_left)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made_plain();
    struct got s = snapshot_it(sb, (struct snapshot_spec){0}), g = {0};
    struct err e;
    char box[22];
    memcpy(box, sb->box_id, 22);
    fake_fail("agent.configure", 1, FAKE_SILENT);
    CHECK(!sandbox_rollback(sb, snapshot_at(W.core, s.id), false, on_sandbox, &g, &e));
    world_turns(50);
    CHECK(strcmp(sb->box_id, box)); /* it has the new one, not told yet */
    fake_die(box);
    world_turns(5);
    fake_die(sb->box_id);
    world_settle("the end of both");
    CHECK(g.calls == 1 && !g.ok);
    CHECK_INT(sb->state, SB_FAILED);
    world_check();
    world_end();
}
TEST_MAIN
