/* A home that version 0.1.0 left: its database as that version wrote it. */
#include "world.h"
#include "base/fd.h"
#include "core/volume/volume.h"
#include <sqlite3.h>

/* Returns text with every `what` as `with`. */
static char *replaced(char *text /* taken */, const char *what, const char *with)
{
    struct buf b = {0};
    const char *at = text;
    for (const char *hit; (hit = strstr(at, what)); at = hit + strlen(what)) {
        buf_put(&b, at, (size_t)(hit - at));
        buf_puts(&b, with);
    }
    buf_puts(&b, at);
    free(text);
    return buf_take(&b);
}

/* The stored database, with the tiers and the template of this world in it. */
static void put_database(void)
{
    size_t n;
    sqlite3 *db;
    char path[96], *sql = fd_slurp_at(AT_FDCWD, "tests/vectors/homes/schema-5.sql", 1 << 20, &n);
    CHECK(sql);
    sql = replaced(sql, "tfagn9d02lozsyxw0y7r3", W.template);
    sql = replaced(sql, "'vm'", "'fakevm'");
    sql = replaced(sql, "'container'", "'fakebox'");
    sql = replaced(sql, "\"tier\":\"vm\"", "\"tier\":\"fakevm\"");
    sql = replaced(sql, "\"tier\":\"container\"", "\"tier\":\"fakebox\"");
    static const char *const old[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        (void)snprintf(path, sizeof path, "%s/state.db%s", W.home, old[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/state.db", W.home);
    CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why))
        printf("# %s\n", why);
    CHECK(!why);
    free(sql);

    /* and the files that its rows name */
    sqlite3_stmt *st;
    CHECK_INT(sqlite3_prepare_v2(db,
                                 "SELECT 'boxes/'||box_id FROM sandboxes UNION "
                                 "SELECT 'snapshots/'||id FROM snapshots",
                                 -1, &st, NULL),
              SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW)
        CHECK(!mkdirat(W.home_fd, (const char *)sqlite3_column_text(st, 0), 0700));
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static struct sandbox *named(const char *name)
{
    struct err e;
    struct sandbox *sb = sandbox_find(W.core, name, &e);
    CHECK(sb);
    return sb;
}

static struct sandbox *of_e2b(void)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(sandboxes(W.core), &i));)
        if (kv_get(&((struct sandbox *)en->value)->kept.dialect, "e2b"))
            return en->value;
    CHECK(!"a sandbox made through E2B's API");
    return NULL;
}

static void check_kept(void)
{
    struct kept *k = &named("c1")->kept;
    CHECK_STR(k->preview_token, "b793023a1beea8d4a713088bd58305e647da9406");
    CHECK_STR(k->last, "s1jc6tzniz5nihcn4ohfr");
    CHECK_STR(k->policy, "{\"mode\":\"allow\",\"allow\":[\"example.org\"],\"presets\":[]}");
    CHECK(!k->tenant && !k->base && !k->ca_cert && !k->preview_mask_host);
    CHECK_INT(k->dialect.n, 0);
    CHECK_STR(kv_get(&named("c1")->env, "A"), "1");
    CHECK(!list_empty(&named("c1")->attachments));

    k = &of_e2b()->kept;
    CHECK_STR(k->preview_mask_host, "in.example:${PORT}");
    CHECK_INT(strlen(k->preview_token), 40);
    CHECK_STR(kv_get(&k->inside_env, "E2B_SANDBOX_ID"), "{sandbox}");
    CHECK_STR(kv_get(&k->inside_files, "/run/e2b/.E2B_SANDBOX"), "true");
    CHECK(kv_get(&k->inside_files, "/.e2b"));
    CHECK_STR(kv_get(&k->dialect, "e2b.template"), W.template);
    CHECK_INT(k->dialect.n, 4); /* e2b and its template, alias and network */
}

static void check_states(void)
{
    CHECK_INT(named("c2")->state, SB_PAUSED);
    CHECK_INT(named("v2")->state, SB_PAUSED);
    CHECK(named("v2")->life.memory);
    static const char *const ran[] = {"c1", "c3", "v1"}; /* and are gone with that host */
    for (size_t i = 0; i < sizeof ran / sizeof *ran; i++) {
        CHECK_INT(named(ran[i])->state, SB_FAILED);
        CHECK(named(ran[i])->life.kept);
    }
    struct err e;
    struct snapshot *s = snapshot_find_for(W.core, &caller_daemon, "snapc", &e);
    CHECK(s && !s->memory && !s->tenant && s->tier == &fake_box);
    CHECK_STR(kv_get(&s->env, "A"), "1");
    s = snapshot_find_for(W.core, &caller_daemon, "snapv", &e);
    CHECK(s && s->memory && s->tier == &fake_vm);
}

TEST(home, of_version_0_1_is_taken_over)
{
    world_begin(&fake_vm);
    world_leave();
    put_database();
    world_start();
    world_settle("the old home");
    check_states();
    check_kept();
    CHECK(recover_it(named("c3")).ok);
    CHECK(resume_it(named("c2"), (struct resume_spec){0}).ok);
    check_kept();
    sandbox_store(named("c1"), NULL, NULL);
    sandbox_store(of_e2b(), NULL, NULL);
    world_restart(); /* now it is in today's form */
    CHECK_INT(named("c3")->state, SB_RUNNING);
    CHECK_INT(named("c2")->state, SB_RUNNING);
    check_kept();
    world_end();
}

TEST(kept, is_read_as_it_was_written)
{
    struct kept a = {0}, b = {0}, c = {0};
    struct err e;
    kept_set(&a.tenant, "t");
    kept_set(&a.policy, "{\"mode\":\"none\"}");
    kept_set(&a.ca_key, "sealed");
    kept_set(&a.preview_token, "secret");
    kept_set(&a.base, "");
    a.network_due = true;
    kv_set(&a.inside_files, S("/a b"), S("line\n"));
    kv_set(&a.dialect, S("x.once"), S("1"));
    kv_set(&a.dialect, S("x_once"), S("2"));
    auto_free char *text = kept_to_json(&a);
    CHECK(!kept_from_json(&b, text, &e));
    auto_free char *again = kept_to_json(&b);
    CHECK_STR(again, text);
    CHECK(!b.base && b.network_due);
    CHECK_STR(kv_get(&b.inside_files, "/a b"), "line\n");

    kept_fork(&c, &a); /* what a client chose, and no more */
    CHECK(!c.tenant && !c.policy && !c.ca_key && !c.network_due);
    CHECK_INT(strlen(c.preview_token), 40);
    CHECK_STR(kv_get(&c.dialect, "x.once"), "1");
    CHECK(!kv_get(&c.dialect, "x_once"));
    kept_free(&a), kept_free(&b), kept_free(&c);

    CHECK(kept_from_json(&b, "{\"tenant\":7}", &e));
    CHECK(kept_from_json(&b, "{\"dialect\":[]}", &e));
    CHECK(kept_from_options(&b, "{\"network\":{}}", &e));
    kept_free(&b);
}

TEST_MAIN
