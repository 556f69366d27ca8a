/* The store against real files: round trips, reopening, crashes, migrations,
 * batches, pruning. Each test has a directory of its own. */
#include "store/store.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "store/migrate.h"
#include "test.h"
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

static char dir[64], path[96];
static struct loop *loop;

static void drop_dir(void)
{
    char cmd[128];
    (void)snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    (void)!system(cmd);
}

static void fresh(void)
{
    log_init("test", LOG_ERROR);
    log_to(open("/dev/null", O_WRONLY | O_CLOEXEC)); /* refusals are expected here */
    strcpy(dir, "/tmp/hutch-store-XXXXXX");
    CHECK(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/state.db", dir);
    atexit(drop_dir);
    loop = loop_new();
}

static struct store *must_open(void)
{
    struct err e = {0};
    struct store *s = store_open(loop, path, &e);
    if (!s)
        printf("# open: %s\n", e.msg);
    CHECK(s);
    return s;
}

static int calls, fails;
static struct err last;
static void count(void *arg, const struct err *e)
{
    (void)arg;
    calls++;
    if (e)
        fails++, last = *e;
}

static struct sandbox_row full_row(const char *id)
{
    return (struct sandbox_row){
        .id = id, .name = "web", .box_id = "b1", .template_id = "t1", .template_name = "base", .tier = "vm", .state = "running",
        .cpu_millis = 1500, .memory_mib = 512, .disk_mib = 4096, .timeout_s = 300, .on_timeout = "kill",
        .created_wall_ns = INT64_C(1700000000123456789), .started_wall_ns = 2, .expires_wall_ns = 3, .ended_wall_ns = 4,
        .end_reason = "oom", .end_message = "it's \"full\"; DROP TABLE sandboxes;--", .env_json = "{\"A\":\"b\"}",
        .metadata_json = "{\"k\":\"\xc3\xa4\"}", .kept_json = "{}", .generation = 7, .token = "tok", .start_path = "pool",
        .start_ns = 2100000, .kernel = "6.1", .boot_id = "boot", .life_json = "{\"paused\":\"disk\"}"};
}

struct seen { int n; char ids[64]; };
static int see_sandbox(void *arg, const struct sandbox_row *r)
{
    struct seen *s = arg;
    s->n++;
    strncat(s->ids, r->id, sizeof s->ids - strlen(s->ids) - 1);
    if (!strcmp(r->id, "a")) {
        struct sandbox_row w = full_row("a");
#define SAME_T(f) CHECK_STR(r->f, w.f)
#define SAME_I(f) CHECK_INT(r->f, w.f)
        SAME_T(name); SAME_T(box_id); SAME_T(template_id); SAME_T(template_name); SAME_T(tier); SAME_T(state);
        SAME_I(cpu_millis); SAME_I(memory_mib); SAME_I(disk_mib); SAME_I(timeout_s);
        SAME_T(on_timeout);
        SAME_I(created_wall_ns); SAME_I(started_wall_ns); SAME_I(expires_wall_ns); SAME_I(ended_wall_ns);
        SAME_T(end_reason); SAME_T(end_message); SAME_T(env_json); SAME_T(metadata_json); SAME_T(kept_json);
        SAME_I(generation); SAME_I(start_ns);
        SAME_T(token); SAME_T(start_path); SAME_T(kernel); SAME_T(boot_id); SAME_T(life_json);
    } else {
        CHECK(!r->name && !r->token && !r->end_reason);
    }
    return 0;
}

TEST(store, sandbox_round_trip_and_reopen)
{
    fresh();
    struct store *s = must_open();
    struct sandbox_row a = full_row("a"), b = {.id = "b", .state = "creating", .created_wall_ns = 1};
    store_put_sandbox(s, &a, count, NULL);
    store_put_sandbox(s, &b, count, NULL);
    a.state = "changed after the call"; /* it was copied */
    store_flush(s);
    CHECK_INT(calls, 2);
    CHECK_INT(fails, 0);
    for (int round = 0; round < 2; round++) {
        struct seen seen = {0};
        CHECK_INT(store_load_sandboxes(s, see_sandbox, &seen, NULL), 0);
        CHECK_INT(seen.n, 2);
        CHECK_STR(seen.ids, "ba"); /* oldest first */
        store_close(s);
        s = must_open();
    }
    store_del_sandbox(s, "a", count, NULL);
    store_del_sandbox(s, "absent", count, NULL);
    store_close(s); /* commits and calls back */
    CHECK_INT(calls, 4);
    s = must_open();
    struct seen seen = {0};
    CHECK_INT(store_load_sandboxes(s, see_sandbox, &seen, NULL), 0);
    CHECK_STR(seen.ids, "b");
    store_close(s);
    struct stat st;
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    loop_free(loop);
}

static int see_snapshot(void *arg, const struct snapshot_row *r)
{
    ++*(int *)arg;
    CHECK_STR(r->id, "s1");
    CHECK(!r->name);
    CHECK_INT(r->created_wall_ns, 5);
    CHECK_STR(r->json, "{}");
    return 0;
}

TEST(store, snapshots)
{
    fresh();
    struct store *s = must_open();
    int n = 0;
    store_put_snapshot(s, &(struct snapshot_row){.id = "s1", .created_wall_ns = 5, .json = "{}"}, count, NULL);
    store_put_snapshot(s, &(struct snapshot_row){.id = "s2", .name = "n", .created_wall_ns = 6, .json = "{}"}, count, NULL);
    store_del_snapshot(s, "s2", count, NULL);
    store_close(s);
    CHECK_INT(calls, 3);
    s = must_open();
    CHECK_INT(store_load_snapshots(s, see_snapshot, &n, NULL), 0);
    CHECK_INT(n, 1);
    store_close(s);
    loop_free(loop);
}

static int see_template(void *arg, const struct template_row *r)
{
    ++*(int *)arg;
    CHECK_STR(r->name, "base2");
    CHECK_STR(r->source, "recipe");
    CHECK(!r->parent);
    CHECK_STR(r->json, "{}");
    return 0;
}
static int see_key(void *arg, const struct key_row *r)
{
    ++*(int *)arg;
    CHECK_STR(r->prefix, "e2b_ab");
    CHECK_INT(r->last_used_wall_ns, 50);
    CHECK_INT(r->revoked_wall_ns, 9);
    return 0;
}

TEST(store, templates_keys_meta)
{
    fresh();
    struct store *s = must_open();
    store_put_template(s, &(struct template_row){.id = "t1", .name = "base", .created_wall_ns = 5}, NULL, NULL);
    store_put_template(s, &(struct template_row){.id = "t1", .name = "base2", .source = "recipe", .json = "{}"}, NULL, NULL);
    struct key_row k = {.id = "k1", .name = "ci", .prefix = "e2b_ab", .sha256 = "00ff", .created_wall_ns = 1};
    store_put_key(s, &k, count, NULL);
    k.revoked_wall_ns = 9;
    store_put_key(s, &k, count, NULL);
    store_touch_key(s, "k1", 50);
    store_touch_key(s, "k1", 40); /* never back */
    struct key_row twin = k;
    twin.id = "k2"; /* the same hash under another id is refused, alone */
    store_put_key(s, &twin, count, NULL);
    store_put_meta(s, "boot", "x", NULL, NULL);
    store_put_meta(s, "boot", "y", NULL, NULL);
    store_put_meta(s, "bye", "z", NULL, NULL);
    store_put_meta(s, "bye", NULL, NULL, NULL);
    store_flush(s);
    CHECK_INT(calls, 3);
    CHECK_INT(fails, 1);
    CHECK_INT(last.code, E_CONFLICT);
    int nt = 0, nk = 0;
    CHECK(!store_load_templates(s, see_template, &nt, NULL) && nt == 1);
    CHECK(!store_load_keys(s, see_key, &nk, NULL) && nk == 1);
    struct err e = {0};
    char *v = store_get_meta(s, "boot", &e);
    CHECK_STR(v, "y");
    free(v);
    CHECK(!store_get_meta(s, "bye", &e));
    CHECK_INT(e.code, E_NOT_FOUND);
    store_del_template(s, "t1", NULL, NULL);
    store_del_key(s, "k1", NULL, NULL);
    store_flush(s);
    nt = nk = 0;
    CHECK(!store_load_templates(s, see_template, &nt, NULL) && nt == 0);
    CHECK(!store_load_keys(s, see_key, &nk, NULL) && nk == 0);
    store_close(s);
    loop_free(loop);
}

static int64_t first_seq, last_seq;
static size_t nrows;
static void got_events(void *arg, const struct event_row *r, size_t n, const struct err *e)
{
    CHECK(!e);
    nrows = n;
    first_seq = n ? r[0].seq : 0;
    last_seq = n ? r[n - 1].seq : 0;
    if (arg)
        for (size_t i = 0; i < n; i++)
            CHECK_STR(r[i].sandbox, arg);
    for (size_t i = 0; i < n; i++)
        CHECK_STR(r[i].type, "sandbox.running");
}

TEST(store, events_number_page_and_prune)
{
    fresh();
    struct store *s = must_open();
    CHECK_INT(store_last_seq(s), 0);
    for (int i = 0; i < 100; i++)
        CHECK_INT(store_add_event(s, &(struct event_row){.at_wall_ns = i, .type = "sandbox.running", .sandbox = i % 2 ? "odd" : NULL}, NULL, NULL), i + 1);
    store_list_events(s, 0, NULL, 10, got_events, NULL);
    store_flush(s);
    CHECK_INT(nrows, 10);
    CHECK_INT(first_seq, 1);
    store_list_events(s, 10, "odd", 1000, got_events, (char[]){"odd"});
    store_flush(s);
    CHECK_INT(nrows, 45);
    CHECK_INT(first_seq, 12);
    store_list_events(s, 100, NULL, 10, got_events, NULL);
    store_flush(s);
    CHECK_INT(nrows, 0);
    store_event_cap(s, 20);
    for (int i = 0; i < 40; i++)
        store_add_event(s, &(struct event_row){.type = "sandbox.running", .data_json = "{}"}, NULL, NULL);
    store_flush(s);
    store_close(s);
    s = must_open();
    CHECK_INT(store_last_seq(s), 140);
    store_list_events(s, 0, NULL, 0, got_events, NULL);
    store_flush(s);
    CHECK(nrows >= 20 && nrows < 60);
    CHECK_INT(last_seq, 140);
    CHECK_INT(store_add_event(s, &(struct event_row){.type = "sandbox.running"}, NULL, NULL), 141);
    store_close(s);
    loop_free(loop);
}

static void stop_at(void *arg, const struct err *e)
{
    count(NULL, e);
    if (calls == *(int *)arg)
        loop_stop(loop);
}

TEST(store, ten_thousand_writes_batch)
{
    fresh();
    struct store *s = must_open();
    int want = 10000;
    int64_t t0 = clock_mono();
    for (int i = 0; i < want; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "i%d", i % 500);
        struct sandbox_row r = full_row(id);
        r.durable = i % 100 == 0;
        store_put_sandbox(s, &r, stop_at, &want);
    }
    CHECK(store_depth(s) > 0);
    loop_run(loop); /* callbacks come by the loop */
    CHECK_INT(calls, want);
    CHECK_INT(fails, 0);
    CHECK_INT(store_depth(s), 0);
    printf("# 10000 writes: %lld ms\n", (long long)((clock_mono() - t0) / NS_PER_MS));
    CHECK(clock_mono() - t0 < 20 * NS_PER_S);
    store_close(s);
    loop_free(loop);
}

static int count_rows(void *arg, const struct sandbox_row *r)
{
    CHECK_STR(r->end_message, "it's \"full\"; DROP TABLE sandboxes;--");
    ++*(int *)arg;
    return 0;
}

/* A child writes and says on a pipe how much was committed; it is killed in the middle; nothing committed may be missing. */
TEST(store, sigkill_loses_nothing_committed)
{
    fresh();
    for (int round = 0; round < 3; round++) {
        int p[2], told = 0;
        CHECK(!pipe(p));
        pid_t pid = fork();
        if (!pid) {
            loop = loop_new();
            struct store *s = must_open();
            for (int i = 0;; i++) {
                char id[24];
                (void)snprintf(id, sizeof id, "r%d-%d", round, i);
                struct sandbox_row r = full_row(id);
                store_put_sandbox(s, &r, NULL, NULL);
                if (i % 7 == 6) {
                    store_flush(s);
                    int n = i + 1;
                    (void)!write(p[1], &n, sizeof n);
                }
            }
        }
        close(p[1]);
        for (int i = 0; i < 30 + round * 20; i++)
            CHECK_INT(read(p[0], &told, sizeof told), sizeof told);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(p[0], &told, sizeof told) == sizeof told)
            ;
        close(p[0]);
        struct store *s = must_open();
        int have = 0;
        CHECK(!store_load_sandboxes(s, count_rows, &have, NULL));
        CHECK(have >= told);
        for (int i = 0; i < have; i++) { /* clean for the next round */
            char id[24];
            (void)snprintf(id, sizeof id, "r%d-%d", round, i);
            store_del_sandbox(s, id, NULL, NULL);
        }
        store_close(s);
    }
    loop_free(loop);
}

static void raw_exec(const char *q)
{
    sqlite3 *db;
    CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, q, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static int see_volume(void *arg, const struct volume_row *r)
{
    CHECK_STR(r->id, "v1");
    CHECK_STR(r->name, "data");
    CHECK_STR(r->state, "ready");
    CHECK(r->size_mib == 64 && r->inodes == 100 && r->created_wall_ns == 7);
    CHECK_STR(r->token, "tok");
    ++*(int *)arg;
    return 0;
}

static int see_attachment(void *arg, const struct attachment_row *r)
{
    CHECK_STR(r->sandbox, "i2");
    CHECK_STR(r->path, "/data");
    CHECK_STR(r->volume, "v1");
    CHECK_INT(r->read_only, 1);
    ++*(int *)arg;
    return 0;
}

TEST(store, volumes_and_attachments)
{
    fresh();
    struct store *s = must_open();
    struct volume_row v = {.id = "v1", .name = "data", .state = "making", .size_mib = 64, .inodes = 100, .created_wall_ns = 7, .token = "tok"};
    store_put_volume(s, &v, count, NULL);
    v.state = "ready";
    store_put_volume(s, &v, count, NULL);
    struct volume_row twin = v;
    twin.id = "v2"; /* the same name under another id is refused, alone */
    store_put_volume(s, &twin, count, NULL);
    store_put_attachment(s, &(struct attachment_row){"i1", "/data", "v1", 0}, NULL, NULL);
    store_put_attachment(s, &(struct attachment_row){"i1", "/more", "v1", 0}, NULL, NULL);
    store_put_attachment(s, &(struct attachment_row){"i2", "/data", "v1", 1}, NULL, NULL);
    store_del_attachments(s, "i1", NULL, NULL);
    store_flush(s);
    CHECK_INT(calls, 3);
    CHECK_INT(fails, 1);
    CHECK_INT(last.code, E_CONFLICT);
    store_close(s);
    s = must_open();
    int nv = 0, na = 0;
    CHECK(!store_load_volumes(s, see_volume, &nv, NULL) && nv == 1);
    CHECK(!store_load_attachments(s, see_attachment, &na, NULL) && na == 1);
    store_del_volume(s, "v1", NULL, NULL);
    store_flush(s);
    CHECK(!store_load_volumes(s, see_volume, &nv, NULL) && nv == 1);
    store_close(s);
}

TEST(store, newer_schema_is_refused)
{
    fresh();
    store_close(must_open());
    char q[64];
    (void)snprintf(q, sizeof q, "PRAGMA user_version=%d", migrate_known + 1);
    raw_exec(q);
    struct err e = {0};
    CHECK(!store_open(loop, path, &e));
    CHECK_INT(e.code, E_UNSUPPORTED);
    (void)snprintf(q, sizeof q, "PRAGMA user_version=%d", migrate_known);
    raw_exec(q);
    store_close(must_open());
    loop_free(loop);
}

static int see_old_key(void *arg, const struct key_row *r)
{
    CHECK_STR(r->name, "ci");
    CHECK_STR(r->sha256, "00ff");
    CHECK(!r->role && !r->tenant && !r->scope &&
          !r->expires_wall_ns); /* whoever loads it decides what it may */
    ++*(int *)arg;
    return 0;
}

/* A home of before keys had roles: the same file, as the version before wrote it. */
TEST(store, keys_without_roles_are_readable)
{
    fresh();
    store_close(must_open());
    raw_exec(
        "INSERT INTO keys(id,name,prefix,sha256,created_wall_ns,last_used_wall_ns,revoked_wall_ns) VALUES('k1','ci','e2b_ab','00ff',1,2,0);"
        "ALTER TABLE keys DROP COLUMN tenant; ALTER TABLE keys DROP COLUMN role; ALTER TABLE keys DROP COLUMN scope;"
        "ALTER TABLE keys DROP COLUMN expires_wall_ns; PRAGMA user_version=6");
    struct store *s = must_open();
    int n = 0;
    CHECK(!store_load_keys(s, see_old_key, &n, NULL) && n == 1);
    store_close(s);
    loop_free(loop);
}

TEST(store, failed_migration_leaves_the_file_alone)
{
    fresh();
    raw_exec("CREATE TABLE keys(x)"); /* version 0, but a table is in the way */
    struct err e = {0};
    CHECK(!store_open(loop, path, &e));
    CHECK_INT(e.code, E_INTERNAL);
    raw_exec("DROP TABLE keys");
    store_close(must_open()); /* nothing half-made is in the way */
    loop_free(loop);
}

TEST(store, damage_is_typed)
{
    fresh();
    struct err e = {0};
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++)
        fputs("not a database ", f);
    fclose(f);
    CHECK(!store_open(loop, path, &e));
    CHECK_INT(e.code, E_INTERNAL);
    CHECK(strstr(e.msg, "damaged"));
    unlink(path);
    struct store *s = must_open();
    for (int i = 0; i < 2000; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "i%d", i);
        struct sandbox_row r = full_row(id);
        store_put_sandbox(s, &r, NULL, NULL);
    }
    store_close(s);
    int fd = open(path, O_RDWR);
    char junk[4096 * 20];
    memset(junk, 0x5a, sizeof junk);
    CHECK_INT(pwrite(fd, junk, sizeof junk, 4096 * 10), (ssize_t)sizeof junk);
    close(fd);
    e = (struct err){0};
    CHECK(!store_open(loop, path, &e));
    CHECK_INT(e.code, E_INTERNAL);
    CHECK(strstr(e.msg, "damaged"));
    loop_free(loop);
}

TEST(store, second_daemon_is_refused)
{
    fresh();
    struct store *s = must_open();
    fflush(stdout);
    pid_t pid = fork(); /* the child opens its own connection and never touches s */
    if (!pid) {
        struct err e = {0};
        struct loop *l = loop_new();
        struct store *t = store_open(l, path, &e);
        _exit(!t && e.code == E_CONFLICT ? 0 : 1);
    }
    int st;
    waitpid(pid, &st, 0);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    store_close(s);
    loop_free(loop);
}

static void queue_more(void *arg, const struct err *e)
{
    struct store *s = arg;
    count(NULL, e);
    store_put_meta(s, "late", "1", count, NULL);
}

TEST(store, close_commits_what_callbacks_queue)
{
    fresh();
    struct store *s = must_open();
    store_put_meta(s, "early", "1", queue_more, s);
    store_close(s);
    CHECK_INT(calls, 2);
    s = must_open();
    char *v = store_get_meta(s, "late", NULL);
    CHECK_STR(v, "1");
    free(v);
    store_close(s);
    store_close(NULL);
    loop_free(loop);
}

TEST(store, no_directory_is_typed)
{
    fresh();
    struct err e = {0};
    CHECK(!store_open(loop, "/nonexistent-dir/state.db", &e));
    CHECK_INT(e.code, E_NOT_FOUND);
    loop_free(loop);
}
TEST_MAIN
