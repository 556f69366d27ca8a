/* Whatever happens at whichever step: nobody waits for ever, nothing is left over, and a sandbox is what pause.h,
 * snapshot.h and rollback.c promise. */
#include "steps.h"

/* ---- what was before ---- */
static const struct sandbox_spec long_lived = {.timeout_s = 80000};
static void nothing(void) {}
static void runs(void) { memcpy(R.sandbox, made(&long_lived)->id, sizeof R.sandbox); }
static struct sandbox *it(void) { return sandbox_at(W.core, R.sandbox); }
static void is_paused(struct pause_spec how)
{
    runs();
    CHECK(pause_it(it(), how).ok);
}
static void on_disk(void) { is_paused((struct pause_spec){0}); }
static void files_on_disk(void) { is_paused((struct pause_spec){.files_only = true}); }
static void stands_by(void) { is_paused((struct pause_spec){.standby = true}); }
static void has_snapshot(void)
{
    runs();
    struct got g = snapshot_it(it(), (struct snapshot_spec){0});
    CHECK(g.ok);
    memcpy(R.snapshot, g.id, sizeof R.snapshot);
}
static void snapshot_alone(void)
{
    has_snapshot();
    CHECK(kill_it(it()).ok);
    *R.sandbox = 0;
}
static void failed(void)
{
    runs();
    fake_die(it()->box_id);
    world_settle("failed");
    CHECK_INT(it()->state, SB_FAILED);
    CHECK(it()->life.kept);
}

/* ---- what is done ---- */
static void create_of(struct sandbox_spec s)
{
    struct err e;
    s.timeout_s = 80000;
    got_refused(&R.got, sandbox_create(W.core, &s, on_sandbox, &R.got, &e), &e);
    struct map_entry *en;
    for (size_t i = 0; !*R.sandbox && (en = map_next(sandboxes(W.core), &i));)
        if (((struct sandbox *)en->value)->state == SB_CREATING)
            memcpy(R.sandbox, en->key, sizeof R.sandbox);
}
static void create(void) { create_of((struct sandbox_spec){.name = "a"}); }
static void create_from(void)
{
    create_of((struct sandbox_spec){.from = snapshot_at(W.core, R.snapshot)});
}
static void create_booted(void)
{
    create_of((struct sandbox_spec){.from = snapshot_at(W.core, R.snapshot), .boot = true});
}
static void pause_to(struct pause_spec how)
{
    struct err e;
    got_refused(&R.got, sandbox_pause(it(), &how, on_sandbox, &R.got, &e), &e);
}
static void pause_disk(void) { pause_to((struct pause_spec){0}); }
static void pause_files(void) { pause_to((struct pause_spec){.files_only = true}); }
static void pause_standby(void) { pause_to((struct pause_spec){.standby = true}); }
static void resume_as(struct resume_spec how)
{
    struct err e;
    got_refused(&R.got, sandbox_resume(it(), &how, on_sandbox, &R.got, &e), &e);
}
static void resume(void) { resume_as((struct resume_spec){.timeout_s = 80000}); }
static void resume_cold(void) { resume_as((struct resume_spec){.timeout_s = 80000, .cold = true}); }
static void take_as(struct snapshot_spec how)
{
    struct err e;
    got_refused(&R.got, snapshot_take(it(), &how, on_snapshot, &R.got, &e), &e);
}
static void take(void) { take_as((struct snapshot_spec){.name = "s"}); }
static void take_files(void) { take_as((struct snapshot_spec){.name = "s", .files_only = true}); }
static void fork_three(void)
{
    struct fork_spec how = {.count = 3};
    struct err e;
    got_refused(&R.got, sandbox_fork(it(), &how, on_fork, &R.got, &e), &e);
}
static void roll_as(bool boot)
{
    struct err e;
    memcpy(R.old_box, it()->box_id, sizeof R.old_box);
    got_refused(
        &R.got,
        sandbox_rollback(it(), snapshot_at(W.core, R.snapshot), boot, on_sandbox, &R.got, &e), &e);
}
static void roll_back(void) { roll_as(false); }
static void roll_back_boot(void) { roll_as(true); }
static void recover(void)
{
    struct err e;
    got_refused(&R.got, sandbox_recover(it(), 80000, on_recover, &R.got, &e), &e);
}
static void end(void)
{
    struct err e;
    got_refused(&R.got, sandbox_kill(it(), END_KILLED, "", on_sandbox, &R.got, &e), &e);
}

/* ---- what else must be true ---- */
static void name_is_free(void)
{
    if (state_now(R.sandbox) == NONE)
        CHECK(!sandbox_named(W.core, "", "a"));
}
static void snapshot_or_not(void)
{
    if (R.mode != RESTART) /* what was under way when it ended may be there or not, but whole */
        WANT((snapshot_find_for(W.core, &caller_daemon, "s", NULL) != NULL) == R.got.ok);
}
static void children_or_not(void)
{
    struct map_entry *en;
    unsigned living = 0;
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
        living += strcmp(en->key, R.sandbox) && state_now(en->key) == SB_RUNNING;
    if (R.mode == PLAIN)
        CHECK_INT(living, 3);
    if (R.mode == PLAIN || R.mode == FAILS)
        CHECK_INT(living, R.got.children - R.got.failed);
    if (R.mode == FAILS)
        CHECK(R.got.failed <= 1);
}
static void paused_as_before(void)
{
    if (state_now(R.sandbox) == SB_PAUSED && R.mode == FAILS && R.scene->before == on_disk)
        WANT(it()->life.memory || listed_in("start,wake,agent.configure,store.sandbox", R.step));
}

static void keeps_its_machine(void)
{
    if (state_now(R.sandbox) == SB_RUNNING && R.mode != RESTART)
        WANT(R.got.ok != !strcmp(it()->box_id, R.old_box));
}

#define UP (BIT(SB_RUNNING) | BIT(SB_PAUSED))
static const struct scene scenes[] = {
    {"create vm", &fake_vm, nothing, create, SB_RUNNING, NONE, NULL, BIT(SB_RUNNING) | BIT_NONE,
     name_is_free},
    {"create box", &fake_box, nothing, create, SB_RUNNING, NONE, NULL, BIT(SB_RUNNING) | BIT_NONE,
     name_is_free},
    {"create vm from snapshot", &fake_vm, snapshot_alone, create_from, SB_RUNNING, NONE, NULL,
     BIT(SB_RUNNING) | BIT_NONE, NULL},
    {"create vm from its files", &fake_vm, snapshot_alone, create_booted, SB_RUNNING, NONE, NULL,
     BIT(SB_RUNNING) | BIT_NONE, NULL},
    {"create box from snapshot", &fake_box, snapshot_alone, create_from, SB_RUNNING, NONE, NULL,
     BIT(SB_RUNNING) | BIT_NONE, NULL},

    {"pause vm", &fake_vm, runs, pause_disk, SB_PAUSED, SB_RUNNING, NULL, UP, NULL},
    {"pause vm, files only", &fake_vm, runs, pause_files, SB_PAUSED, SB_RUNNING, NULL, UP, NULL},
    {"pause vm, standby", &fake_vm, runs, pause_standby, SB_PAUSED, SB_RUNNING, NULL, UP, NULL},
    {"pause box", &fake_box, runs, pause_disk, SB_PAUSED, SB_RUNNING, NULL, UP, NULL},
    {"pause box, standby", &fake_box, runs, pause_standby, SB_PAUSED, SB_RUNNING, NULL, UP, NULL},
    {"vm, standby to disk", &fake_vm, stands_by, pause_disk, SB_PAUSED, SB_PAUSED, NULL, UP, NULL},

    {"resume vm", &fake_vm, on_disk, resume, SB_RUNNING, SB_PAUSED, "agent.thaw", UP,
     paused_as_before},
    {"resume vm, cold", &fake_vm, on_disk, resume_cold, SB_RUNNING, SB_PAUSED, NULL, UP,
     paused_as_before},
    {"resume vm, files only", &fake_vm, files_on_disk, resume, SB_RUNNING, SB_PAUSED, NULL, UP,
     NULL},
    {"resume vm, standby", &fake_vm, stands_by, resume, SB_RUNNING, SB_PAUSED, "go,agent.thaw", UP,
     NULL},
    {"resume box", &fake_box, on_disk, resume, SB_RUNNING, SB_PAUSED, NULL, UP, NULL},
    {"resume box, standby", &fake_box, stands_by, resume, SB_RUNNING, SB_PAUSED, "go", UP, NULL},

    {"snapshot of vm", &fake_vm, runs, take, SB_RUNNING, SB_RUNNING, "go,agent.thaw",
     BIT(SB_RUNNING), snapshot_or_not},
    {"snapshot of vm's files", &fake_vm, runs, take_files, SB_RUNNING, SB_RUNNING, "go,agent.thaw",
     BIT(SB_RUNNING), snapshot_or_not},
    {"snapshot of vm on disk", &fake_vm, on_disk, take, SB_PAUSED, SB_PAUSED, NULL, BIT(SB_PAUSED),
     snapshot_or_not},
    {"snapshot of vm in standby", &fake_vm, stands_by, take, SB_PAUSED, SB_PAUSED, "go",
     BIT(SB_PAUSED), snapshot_or_not},
    {"snapshot of box", &fake_box, runs, take, SB_RUNNING, SB_RUNNING, NULL, BIT(SB_RUNNING),
     snapshot_or_not},
    {"snapshot of box on disk", &fake_box, on_disk, take, SB_PAUSED, SB_PAUSED, NULL,
     BIT(SB_PAUSED), snapshot_or_not},
    {"snapshot of box in standby", &fake_box, stands_by, take, SB_PAUSED, SB_PAUSED, NULL,
     BIT(SB_PAUSED), snapshot_or_not},

    {"fork vm", &fake_vm, runs, fork_three, SB_RUNNING, SB_RUNNING, "go,agent.thaw",
     BIT(SB_RUNNING), children_or_not},
    {"fork box", &fake_box, runs, fork_three, SB_RUNNING, SB_RUNNING, NULL, BIT(SB_RUNNING),
     children_or_not},

    {"roll vm back", &fake_vm, has_snapshot, roll_back, SB_RUNNING, SB_RUNNING, "store.sandbox",
     BIT(SB_RUNNING), keeps_its_machine},
    {"roll vm back, files only", &fake_vm, has_snapshot, roll_back_boot, SB_RUNNING, SB_RUNNING,
     "store.sandbox", BIT(SB_RUNNING), keeps_its_machine},
    {"roll box back", &fake_box, has_snapshot, roll_back, SB_RUNNING, SB_RUNNING, "store.sandbox",
     BIT(SB_RUNNING), keeps_its_machine},

    {"recover vm", &fake_vm, failed, recover, SB_RUNNING, SB_PAUSED, NULL, UP | BIT(SB_FAILED),
     NULL},
    {"recover box", &fake_box, failed, recover, SB_RUNNING, SB_PAUSED, NULL, UP | BIT(SB_FAILED),
     NULL},
    {"recover paused vm", &fake_vm, on_disk, recover, SB_RUNNING, SB_PAUSED, "agent.thaw", UP,
     NULL},

    {"kill vm", &fake_vm, runs, end, NONE, NONE, NULL, BIT(SB_RUNNING) | BIT_NONE, NULL},
    {"kill paused vm", &fake_vm, on_disk, end, NONE, NONE, NULL, BIT(SB_PAUSED) | BIT_NONE, NULL},
    {"kill vm in standby", &fake_vm, stands_by, end, NONE, NONE, NULL, BIT(SB_PAUSED) | BIT_NONE,
     NULL},
    {"kill failed box", &fake_box, failed, end, NONE, NONE, NULL, BIT(SB_FAILED) | BIT_NONE, NULL},
};

/* STEPS_SCENE=name: only that one. */
static void run_all(const struct tier *t, unsigned modes)
{
    const char *only = getenv("STEPS_SCENE");
    world_begin(t);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (scenes[i].tier == t && (!only || !strcmp(only, scenes[i].name)))
            run_scene(&scenes[i], modes);
    world_end();
}

TEST(steps, vm_well) { run_all(&fake_vm, 0); }
TEST(steps, box_well) { run_all(&fake_box, 0); }
TEST(steps, vm_fails) { run_all(&fake_vm, BIT(FAILS)); }
TEST(steps, box_fails) { run_all(&fake_box, BIT(FAILS)); }
TEST(steps, vm_silent) { run_all(&fake_vm, BIT(SILENT)); }
TEST(steps, box_silent) { run_all(&fake_box, BIT(SILENT)); }
TEST(steps, vm_killed) { run_all(&fake_vm, BIT(KILLED)); }
TEST(steps, box_killed) { run_all(&fake_box, BIT(KILLED)); }
TEST(steps, vm_dies) { run_all(&fake_vm, BIT(DIES)); }
TEST(steps, box_dies) { run_all(&fake_box, BIT(DIES)); }
TEST(steps, vm_restart) { run_all(&fake_vm, BIT(RESTART)); }
TEST(steps, box_restart) { run_all(&fake_box, BIT(RESTART)); }
TEST_MAIN
