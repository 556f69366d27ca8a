/* How a sandbox comes to be, and what is left if it does not. Failures at every step: test_steps.c. */
#include "world.h"

static const struct tier *const both[] = {&fake_vm, &fake_box};
#define EACH_TIER(t) \
    for (size_t t##_i = 0; t##_i < 2; t##_i++) \
        for (const struct tier *t = both[t##_i]; t; t = NULL)

TEST(create, runs_and_ends)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *sb = made(&(struct sandbox_spec){.name = "one"});
        CHECK_INT(sb->state, SB_RUNNING);
        CHECK_STR(sb->start_path, t->cold);
        CHECK_STR(sb->kernel, "0.0-fake");
        CHECK(sandbox_find(W.core, "one", NULL) == sb);
        world_check();
        CHECK(kill_it(sb).ok);
        CHECK_INT(sb->state, SB_GONE);
        CHECK_INT(sb->end_reason, END_KILLED);
        world_check();
        world_end();
    }
}

/* Refused at once, with a code of its own; nothing is begun. */
TEST(create, refuses_what_cannot_be)
{
    world_begin(&fake_vm);
    W.core->cfg.min_tier = &fake_vm;
    struct sandbox *there = made(&(struct sandbox_spec){.name = "taken"});
    struct got s = snapshot_it(there, (struct snapshot_spec){0});
    const struct {
        struct sandbox_spec spec;
        enum err_code code;
        const char *says;
    } rows[] = {
        {{.name = "taken"}, E_CONFLICT, "already exists"},
        {{.name = there->id}, E_CONFLICT, "already exists"},
        {{.name = "Not A Name"}, E_INVALID, "name"},
        {{.template = "nothing"}, E_NOT_FOUND, "template"},
        {{.tier = &fake_box}, E_DENIED, "weaker than"},
        {{.tier = &tier_isolate}, E_UNSUPPORTED, "isolate"},
        {{.memory_mib = UINT32_MAX}, E_QUOTA, "more than this host has"},
        {{.disk_mib = 1}, E_INVALID, "at least 16"},
        {{.timeout_s = 86401}, E_INVALID, "timeout_s"},
        {{.from = snapshot_at(W.core, s.id), .memory_mib = 128}, E_INVALID, "fixed size"},
        {{.from = snapshot_at(W.core, s.id), .tier = &fake_box}, E_INVALID, "isolation"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        CHECK(sandbox_create(W.core, &rows[i].spec, on_sandbox, NULL, &e));
        CHECK_INT(e.code, rows[i].code);
        CHECK(strstr(e.msg, rows[i].says));
    }
    W.core->spawn_lost = true;
    CHECK_INT(make(&(struct sandbox_spec){0}).err.code, E_UNAVAILABLE);
    W.core->spawn_lost = false;
    world_check();
    world_end();
}

TEST(create, takes_its_sizes_from_the_defaults_and_its_template)
{
    world_begin(&fake_box);
    W.core->cfg.def_disk_mib = 8; /* less than the template needs */
    struct sandbox *sb = made_plain();
    CHECK_INT(sb->disk_mib, 16);
    CHECK_INT(sb->memory_mib, 64);
    CHECK_INT(sb->cpu_millis, 1000);
    CHECK_INT(sb->timeout_s, 300);
    world_end();
}

/* A container's START and READY run before it is given away; a microvm's ran in the machine it is a copy of. */
TEST(create, runs_the_templates_commands)
{
    EACH_TIER(t)
    {
        world_begin_with(t, "serve", "is-up");
        fake_fail("agent.start", 1, FAKE_FAILS);
        struct got g = make(&(struct sandbox_spec){0});
        CHECK_INT(g.ok, t == &fake_vm);
        world_clear();
        g = make(&(struct sandbox_spec){0});
        CHECK(g.ok);
        world_clear();
        CHECK(make(&(struct sandbox_spec){.asleep = true}).ok);
        world_end();
    }
}

TEST(create, can_be_killed_while_commands_run)
{
    world_begin_with(&fake_box, "serve", "is-up");
    struct got g = {0};
    struct err e;
    struct map_entry *en;
    fake_fail("agent.start", 2, FAKE_SILENT); /* READY */
    CHECK(!sandbox_create(W.core, &(struct sandbox_spec){0}, on_sandbox, &g, &e));
    for (int i = 0; i < 200; i++)
        loop_turn(W.loop, false);
    CHECK_INT(g.calls, 0);
    size_t i = 0;
    CHECK((en = map_next(sandboxes(W.core), &i)));
    CHECK_INT(((struct sandbox *)en->value)->state, SB_CREATING);
    CHECK(!sandbox_kill(en->value, END_KILLED, "", NULL, NULL, &e));
    world_settle("killed");
    CHECK_INT(g.calls, 1);
    CHECK_INT(g.err.code, E_CANCELED);
    world_check();
    world_end();
}

TEST(create, gives_up_on_an_agent_that_says_nothing)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct got g = {0};
        struct err e;
        fake_fail("agent.configure", 1, FAKE_SILENT);
        CHECK(!sandbox_create(W.core, &(struct sandbox_spec){0}, on_sandbox, &g, &e));
        world_turns(50);
        CHECK_INT(g.calls, 0);
        world_skip(31);
        world_settle("silence");
        CHECK_INT(g.calls, 1);
        CHECK_INT(g.err.code, E_TIMEOUT);
        world_check();
        world_end();
    }
}

TEST(create, says_unavailable_when_its_process_ends_before_it_is_ready)
{
    world_begin(&fake_vm);
    fake_fail("start", 1, FAKE_DIES);
    struct got g = make(&(struct sandbox_spec){0});
    CHECK_INT(g.err.code, E_UNAVAILABLE); /* not E_GONE: to who asked nothing is gone */
    uint64_t well, failed;
    sandbox_creates(W.core, &well, &failed);
    CHECK_INT(well, 0);
    CHECK_INT(failed, 1);
    world_end();
}

/* ---- boxes made ahead ---- */
static bool pool_full(void)
{
    size_t ready, started, slots, making;
    pool_counts(W.core, &ready, &started, &slots, &making);
    return !making && (ready == 1 || slots == 1);
}
TEST(create, takes_a_box_from_the_pool)
{
    EACH_TIER(t)
    {
        world_begin(t);
        made_plain(); /* notes the demand */
        W.core->cfg.pool_vm = W.core->cfg.pool_container = 1;
        pool_refill(W.core);
        world_skip(1);
        world_until(pool_full, "the pool");
        W.core->cfg.pool_vm = W.core->cfg.pool_container = 0;
        struct sandbox *sb = made_plain();
        CHECK_STR(sb->start_path, t == &fake_vm ? "pool" : "slot");
        world_check();
        world_end();
    }
}
TEST(create, does_without_a_pool_member_that_died)
{
    EACH_TIER(t)
    {
        world_begin(t);
        struct sandbox *first = made_plain();
        char ids[4][22];
        W.core->cfg.pool_vm = W.core->cfg.pool_container = 1;
        pool_refill(W.core);
        world_skip(1);
        world_until(pool_full, "the pool");
        W.core->cfg.pool_vm = W.core->cfg.pool_container = 0;
        CHECK_INT(fake_machines(ids, 4), 2);
        fake_die(strcmp(ids[0], first->box_id) ? ids[0] : ids[1]);
        world_settle("its end");
        world_check();
        CHECK_STR(made_plain()->start_path, t->cold);
        world_end();
    }
}
TEST(create, pool_failures_leave_nothing)
{
    static const char *const steps[] = {"start", "wake", "agent.configure", "agent.start", "hold"};
    world_begin(&fake_vm);
    made_plain();
    W.core->cfg.pool_vm = 1;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fake_fail(steps[i], 1, FAKE_DIES);
        pool_refill(W.core);
        world_skip(1);
        for (int n = 0; n < 200; n++)
            loop_turn(W.loop, false);
        world_settle(steps[i]);
        CHECK_INT(fake_fail_none(), 0);
        world_check();
        W.core->cfg.pool_vm = 0;
        world_skip(11); /* the pause after a failed refill */
        world_settle(steps[i]);
        W.core->cfg.pool_vm = 1;
    }
    W.core->cfg.pool_vm = 0;
    world_end();
}

/* ---- how many there may be ---- */
TEST(quota, of_all_sandboxes)
{
    world_begin(&fake_box);
    W.core->cfg.max_sandboxes = 2;
    struct sandbox *a = made_plain();
    made_plain();
    struct got g = make(&(struct sandbox_spec){0});
    CHECK_INT(g.err.code, E_QUOTA);
    CHECK(strstr(g.err.msg, "HUTCH_MAX_SANDBOXES"));
    CHECK(pause_it(a, (struct pause_spec){0}).ok); /* one that is on disk does not count */
    CHECK(make(&(struct sandbox_spec){0}).ok);
    world_end();
}

static void tenants_are(const char *text)
{
    struct err e;
    tenants_free(&W.core->tenants);
    CHECK(!tenants_parse(text, &W.core->tenants, &e));
}
TEST(quota, of_a_tenant)
{
    world_begin(&fake_vm);
    tenants_are("{\"acme\":{\"running\":2,\"memory_mib\":200}}");
    struct sandbox_spec acme = {.tenant = "acme"}, big = {.tenant = "acme", .memory_mib = 150},
                        other = {.tenant = "else"};
    struct sandbox *a = made(&acme);
    CHECK_INT(make(&big).err.code, E_QUOTA); /* 64 + 150 MiB */
    struct sandbox *b = made(&acme);
    struct got g = make(&acme);
    CHECK_INT(g.err.code, E_QUOTA);
    CHECK(strstr(g.err.msg, "running"));
    CHECK(make(&other).ok);
    CHECK(make(&(struct sandbox_spec){0}).ok); /* the operator's */
    CHECK(pause_it(b, (struct pause_spec){.standby = true}).ok);
    CHECK(make(&acme).ok); /* standby does not run … */
    CHECK_INT(resume_it(b, (struct resume_spec){0}).err.code, E_QUOTA);
    CHECK_INT(b->state, SB_PAUSED);
    CHECK(pause_it(a, (struct pause_spec){0}).ok);
    CHECK_INT(make(&big).err.code, E_QUOTA); /* … but holds its memory */
    CHECK(resume_it(b, (struct resume_spec){0}).ok);
    world_check();
    world_end();
}
TEST(quota, pauses_the_one_that_rests)
{
    world_begin(&fake_vm);
    tenants_are("{\"acme\":{\"running\":1}}");
    struct sandbox *a = made(&(struct sandbox_spec){
        .tenant = "acme", .idle_s = 60, .on_idle = ON_TIMEOUT_PAUSE, .timeout_s = 80000});
    CHECK_INT(make(&(struct sandbox_spec){.tenant = "acme"}).err.code,
              E_QUOTA);           /* it may be at work: nobody looked yet */
    for (int i = 0; i < 3; i++) { /* looks */
        world_skip(15);
        world_settle("a look");
    }
    CHECK_INT(a->state, SB_RUNNING);
    CHECK(make(&(struct sandbox_spec){.tenant = "acme"}).ok);
    CHECK_INT(a->state, SB_PAUSED);
    CHECK_INT(a->life.why, WHY_QUOTA);
    world_check();
    world_end();
}
TEST_MAIN
