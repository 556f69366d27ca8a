/* What the next daemon finds. A restart in the middle of something: test_steps.c. */
#include "world.h"

static const struct tier *const both[] = {&fake_vm, &fake_box};
#define EACH_TIER(t) \
    for (size_t t##_i = 0; t##_i < 2; t##_i++) \
        for (const struct tier *t = both[t##_i]; t; t = NULL)

static struct sandbox *again(const char *id)
{
    struct sandbox *sb = sandbox_at(W.core, id);
    CHECK(sb);
    return sb;
}
#define KEEP_ID(sb) \
    char id[22], box[22]; \
    memcpy(id, (sb)->id, 22); \
    memcpy(box, (sb)->box_id, 22)

TEST(restart, takes_over_what_runs)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made(&(struct sandbox_spec){
            .name = "one", .timeout_s = 100, .on_timeout = ON_TIMEOUT_PAUSE});
        KEEP_ID(sb);
        uint64_t generation = sb->generation;
        kv_set(&sb->metadata, S("k"), S("v"));
        sandbox_store(sb, NULL, NULL);
        world_restart();
        sb = again(id);
        CHECK_INT(sb->state, SB_RUNNING);
        CHECK_STR(sb->box_id, box);
        CHECK_INT(sb->generation, generation);
        CHECK_STR(kv_get(&sb->metadata, "k"), "v");
        CHECK(sandbox_find(W.core, "one", NULL) == sb);
        world_check();
        world_skip(101); /* its timeout counts on */
        world_settle("timeout");
        CHECK_INT(sb->state, SB_PAUSED);
        world_end();
    }
}

TEST(restart, keeps_what_is_paused)
{
    static const struct pause_spec ways[] = {{0}, {.files_only = true}, {.standby = true}};
    EACH_TIER(t)
    for (size_t i = 0; i < 3; i++) {
        world_begin(t);
        struct sandbox *sb = made_plain();
        KEEP_ID(sb);
        CHECK(pause_it(sb, ways[i]).ok);
        struct life was = sb->life;
        world_restart();
        sb = again(id);
        CHECK_INT(sb->state, SB_PAUSED);
        CHECK_STR(sb->box_id, box);
        CHECK_INT(sb->life.paused, was.paused);
        CHECK_INT(sb->life.memory, was.memory);
        world_check();
        CHECK(resume_it(sb, (struct resume_spec){0}).ok);
        world_check();
        world_end();
    }
}

/* Taken over, not spoken to: a pause to disk begins with the channel; a copy wants a resume first. */
TEST(restart, standby_goes_on_from_there)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made_plain();
    KEEP_ID(sb);
    (void)box;
    CHECK(pause_it(sb, (struct pause_spec){.standby = true}).ok);
    world_restart();
    sb = again(id);
    CHECK_INT(snapshot_it(sb, (struct snapshot_spec){0}).err.code, E_CONFLICT);
    CHECK(pause_it(sb, (struct pause_spec){0}).ok);
    CHECK_INT(sb->life.paused, PAUSE_DISK);
    CHECK(sb->life.memory);
    world_check();
    CHECK(resume_it(sb, (struct resume_spec){0}).ok);
    world_check();
    world_end();
}

TEST(restart, fails_what_ended_meanwhile)
{
    EACH_TIER(t)
    for (int standby = 0; standby < 2; standby++) {
        world_begin(t);
        struct sandbox *sb = made_plain();
        KEEP_ID(sb);
        if (standby)
            CHECK(pause_it(sb, (struct pause_spec){.standby = true}).ok);
        world_leave();
        fake_stop(box);
        world_start();
        world_settle("restart");
        sb = again(id);
        CHECK_INT(sb->state, SB_FAILED);
        CHECK(sb->life.kept);
        world_check();
        struct got g = recover_it(sb);
        CHECK(g.ok);
        CHECK_INT(sb->state, SB_RUNNING);
        world_check();
        world_end();
    }
}

/* The takeover itself goes wrong. */
TEST(restart, fails_what_cannot_be_taken_over)
{
    static const char *const steps[] = {"spawn.attach", "adopt", "agent.configure"};
    EACH_TIER(t)
    for (size_t i = 0; i < 3; i++) {
        world_begin(t);
        struct sandbox *sb = made_plain();
        KEEP_ID(sb);
        (void)box;
        fake_fail(steps[i], 1, FAKE_FAILS);
        world_restart();
        CHECK_INT(fake_fail_none(), 0);
        sb = again(id);
        CHECK_INT(sb->state, SB_FAILED);
        CHECK_INT(sb->end_reason, END_HOST_FAULT);
        world_check();
        CHECK(recover_it(sb).ok);
        world_check();
        world_end();
    }
}

TEST(restart, keeps_failed_ones_for_recovery)
{
    world_begin(&fake_vm);
    struct sandbox *sb = made(&(struct sandbox_spec){.name = "one"});
    KEEP_ID(sb);
    fake_die(box);
    world_settle("its end");
    world_restart();
    sb = again(id);
    CHECK_INT(sb->state, SB_FAILED);
    CHECK(sb->life.kept);
    world_check();
    CHECK(made(&(struct sandbox_spec){.name = "one"})); /* it does not hold its name */
    CHECK_INT(recover_it(sb).err.code, E_CONFLICT);
    world_check();
    world_end();
}

/* A row of each state, and the machine or the saved one there or not: as a daemon that was killed at any moment leaves it. */
TEST(restart, settles_every_row)
{
    static const struct {
        const char *what;
        enum sb_state row;
        enum pause_kind kind;
        bool saved, alive, old_saved;
        int tier; /* of both[] */
        int want;
    } rows[] = {
        {"pausing, not saved yet", SB_PAUSING, PAUSE_DISK, false, true, false, 0, SB_RUNNING},
        {"pausing, saved, not released", SB_PAUSING, PAUSE_DISK, true, true, false, 0, SB_RUNNING},
        {"pausing, saved, released", SB_PAUSING, PAUSE_DISK, true, false, false, 0, SB_PAUSED},
        {"pausing, lost", SB_PAUSING, PAUSE_DISK, false, false, false, 0, SB_FAILED},
        {"pausing, saved long ago", SB_PAUSING, PAUSE_DISK, false, false, true, 0, SB_FAILED},
        {"running, saved (its row is behind)", SB_RUNNING, PAUSE_NONE, true, false, false, 0,
         SB_PAUSED},
        {"running, saved long ago", SB_RUNNING, PAUSE_NONE, false, false, true, 0, SB_FAILED},
        {"paused, being resumed", SB_PAUSED, PAUSE_DISK, true, true, false, 0, SB_PAUSED},
        {"stopping, still there", SB_STOPPING, PAUSE_NONE, false, true, false, 0, SB_GONE},
        {"stopping, gone", SB_STOPPING, PAUSE_NONE, false, false, false, 0, SB_GONE},
        {"container pausing", SB_PAUSING, PAUSE_DISK, false, true, false, 1, SB_RUNNING},
        {"container pausing, stopped", SB_PAUSING, PAUSE_DISK, false, false, false, 1, SB_PAUSED},
        {"container pausing into standby", SB_PAUSING, PAUSE_STANDBY, false, true, false, 1,
         SB_RUNNING},
        {"container stopping", SB_STOPPING, PAUSE_NONE, false, true, false, 1, SB_GONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        world_begin(both[rows[i].tier]);
        struct sandbox *sb = made_plain();
        KEEP_ID(sb);
        if (rows[i].saved || rows[i].old_saved) { /* by a pause of which only the files are left */
            CHECK(pause_it(sb, (struct pause_spec){0}).ok);
            CHECK(fake_has_saved(box));
            if (rows[i].old_saved)
                sb->generation++;
        }
        if (__lsan_disable)
            __lsan_disable();
        if (rows[i].alive && !fake_lives(box)) { /* its process is still, or again, there */
            static struct got g;                 /* hears of the daemon's end */
            struct err e;
            struct saved keep;
            CHECK(!saved_read(&W.core->tiers, sb->tier, box, &keep, &e));
            fake_fail("agent.configure", 1, FAKE_SILENT);
            CHECK(!sandbox_resume(sb, &(struct resume_spec){0}, on_sandbox, &g, &e));
            world_turns(30);
            CHECK(fake_lives(box));
            sb->generation = keep.generation;
        }
        if (!rows[i].alive)
            fake_stop(box);
        sb->state = rows[i].row;
        sb->life.paused = rows[i].kind;
        sandbox_store(sb, NULL, NULL);
        store_flush(W.core->store);
        world_leave();
        if (__lsan_enable)
            __lsan_enable();
        world_start();
        world_settle(rows[i].what);
        sb = again(id);
        if ((int)sb->state != rows[i].want)
            printf("# %s: %s\n", rows[i].what, state_name(sb->state));
        CHECK_INT(sb->state, rows[i].want);
        world_check();
        world_end();
    }
}

TEST(restart, sweeps_what_no_row_names)
{
    world_begin(&fake_vm);
    CHECK(!mkdirat(W.home_fd, "boxes/b0123456789abcdefghij", 0700));
    CHECK(!mkdirat(W.home_fd, "snapshots/s0123456789abcdefghij", 0700));
    CHECK(!mkdirat(W.home_fd, "snapshots/.s0123456789abcdefghij.tmp", 0700));
    struct sandbox *sb = made_plain();
    KEEP_ID(sb);
    (void)box;
    world_restart();
    CHECK(!world_has("boxes", "b0123456789abcdefghij"));
    CHECK_INT(world_files("snapshots"), 0);
    CHECK_INT(again(id)->state, SB_RUNNING);
    world_check();
    world_end();
}

TEST(restart, keeps_snapshots_and_what_is_made_of_them)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made_plain();
        struct got s = snapshot_it(sb, (struct snapshot_spec){.name = "s"});
        CHECK(s.ok);
        struct sandbox *copy = made(&(struct sandbox_spec){.from = snapshot_at(W.core, s.id)});
        KEEP_ID(copy);
        (void)box;
        world_restart();
        struct snapshot *snap = snapshot_find_for(W.core, &caller_daemon, "s", NULL);
        CHECK(snap);
        CHECK_INT(snapshot_users(snap), t == &fake_vm); /* a container has its own copy */
        CHECK(make(&(struct sandbox_spec){.from = snap}).ok);
        CHECK_INT(again(id)->state, SB_RUNNING);
        world_check();
        world_end();
    }
}

/* ---- the daemon stops for good ---- */
static bool stopped_;
static void on_stopped(void *arg)
{
    (void)arg;
    stopped_ = true;
}
static bool stopped(void) { return stopped_; }
TEST(stop, pauses_what_asked_for_it_and_ends_the_rest)
{
    world_begin(&fake_vm);
    struct sandbox *a = made(&(struct sandbox_spec){.on_timeout = ON_TIMEOUT_PAUSE}),
                   *b = made_plain(), *c = made_plain();
    char ids[3][22];
    memcpy(ids[0], a->id, 22), memcpy(ids[1], b->id, 22), memcpy(ids[2], c->id, 22);
    CHECK(pause_it(c, (struct pause_spec){.standby = true}).ok);
    W.spawn->lost = false;
    core_stop(W.core, false, on_stopped, NULL);
    world_turns(5);
    for (int i = 0; i < 500 && !world_quiet(); i++) {
        loop_turn(W.loop, false);
        usleep(500);
    }
    CHECK_INT(a->state, SB_PAUSED);
    CHECK_INT(a->life.why, WHY_SHUTDOWN);
    CHECK_INT(b->state, SB_GONE);
    CHECK_INT(b->end_reason, END_SHUTDOWN);
    CHECK_INT(c->life.paused, PAUSE_DISK);
    world_skip(11); /* the spawner never says that it ended */
    world_until(stopped, "stop");
    world_restart();
    CHECK_INT(again(ids[0])->state, SB_PAUSED);
    CHECK_INT(again(ids[1])->state, SB_GONE);
    CHECK_INT(again(ids[2])->state, SB_PAUSED);
    world_check();
    world_end();
}

/* ---- the spawner goes, and takes everything with it ---- */
TEST(spawner, that_is_lost_fails_what_ran)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *a = made_plain(), *b = made_plain();
        CHECK(pause_it(b, (struct pause_spec){0}).ok);
        struct err e;
        err_set(&e, E_UNAVAILABLE, "gone");
        fake_stop(a->box_id);
        W.spawn->lost = true;
        W.spawn->on_lost(W.spawn->ctx, &e);
        world_settle("lost");
        CHECK_INT(a->state, SB_FAILED);
        CHECK_INT(b->state, SB_PAUSED);
        CHECK_INT(make(&(struct sandbox_spec){0}).err.code, E_UNAVAILABLE);
        CHECK_INT(resume_it(b, (struct resume_spec){0}).err.code, E_UNAVAILABLE);
        world_skip(1);
        CHECK(W.core->spawn_lost);
        W.spawn->lost = false;
        world_skip(1);
        world_settle("back");
        CHECK(!W.core->spawn_lost);
        world_check();
        CHECK(recover_it(a).ok);
        CHECK(resume_it(b, (struct resume_spec){0}).ok);
        world_check();
        world_end();
    }
}
TEST_MAIN
