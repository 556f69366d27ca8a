/* Snapshots and forks over HTTP: what is asked of core, and how its answers look. */
#include "base/cleanup.h"
#include "fake.h"

TEST(api, a_snapshot_is_taken_and_shown)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes/box/snapshots", "{\"name\":\"first\",\"memory\":false,\"expires_s\":9,\"keep_last\":2}");
    fx_turn(x, 5);
    CHECK_STR(SN.name.p, "first");
    CHECK(SN.spec.files_only && !SN.spec.memory_wanted && SN.spec.expires_s == 9 && SN.spec.keep_last == 2);
    SN.cb(SN.arg, &fake_snapshot, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "\"cpu\":1.5,");
    HAS(x, "\"downtime_ms\":12.3,\"users\":3");
    HAS(x, "\"parent\":null");
    fx_begin(x, "POST", "/v1/sandboxes/box/snapshots", "{\"memory\":true}");
    fx_turn(x, 5);
    CHECK(!SN.spec.files_only && SN.spec.memory_wanted);
    struct err e;
    err_why(&e, REASON_NO_MEMORY, E_UNSUPPORTED, "not of a container");
    SN.cb(SN.arg, NULL, &e);
    fx_until(x, "HTTP/1.1 501");
    HAS(x, "keeps the files");
    static const char *const bad[] = {"{\"name\":\"A\"}", "{\"name\":\"../x\"}", "{\"expires_s\":0}", "{\"keep_last\":0}", "{\"memory\":1}", "{\"n\":1}", "[]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", "/v1/sandboxes/box/snapshots", bad[i]);
        HAS(x, "HTTP/1.1 400");
    }
    fx_free(x);
}

TEST(api, snapshots_are_listed_looked_at_and_deleted)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/snapshots?sandbox=box&name=first&limit=1", NULL);
    HAS(x, "\"next\":\"1000000000\",\"bytes\":12}");
    CHECK_STR(SN.filter.sandbox, ID);
    fx_ask(x, "GET", "/v1/snapshots?limit=0", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/snapshots/first", NULL);
    HAS(x, "\"id\":\"s00000000000000000001\"");
    fx_ask(x, "GET", "/v1/snapshots/other", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "GET", "/v1/snapshots/..%2fx", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_begin(x, "DELETE", "/v1/snapshots/first", NULL);
    fx_turn(x, 5);
    SN.deleted(SN.arg, NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_free(x);
}

TEST(api, a_sandbox_is_made_of_a_snapshot)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes", "{\"snapshot\":\"first\",\"memory\":false}");
    fx_turn(x, 5);
    CHECK(F.create.spec.from == &fake_snapshot && F.create.spec.boot);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_ask(x, "POST", "/v1/sandboxes", "{\"snapshot\":\"other\"}");
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "POST", "/v1/sandboxes", "{\"snapshot\":\"first\",\"template\":\"base\"}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "POST", "/v1/sandboxes", "{\"memory\":false}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(api, forks_are_told_one_by_one)
{
    struct fx *x = fx_new();
    struct fork_child child[2] = {{.id = ID}};
    err_set(&child[1].err, E_QUOTA, "too many");
    fx_begin(x, "POST", "/v1/sandboxes/box/fork", "{\"count\":2,\"timeout_s\":7}");
    fx_turn(x, 5);
    CHECK(SN.fork.count == 2 && SN.fork.timeout_s == 7 && !SN.fork.files_only && !SN.fork.memory_wanted);
    SN.forked(SN.arg, &fake_snapshot, child, 2, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "{\"forks\":[{\"sandbox\":{\"id\":\"" ID "\"");
    HAS(x, "{\"error\":{\"code\":\"quota\",\"message\":\"too many\"");
    HAS(x, "\"memory\":true,\"downtime_ms\":12.3}");
    fx_begin(x, "POST", "/v1/sandboxes/box/fork", NULL);
    fx_turn(x, 5);
    CHECK_INT(SN.fork.count, 1);
    struct err e;
    err_set(&e, E_CONFLICT, "it is paused");
    SN.forked(SN.arg, NULL, NULL, 0, &e);
    fx_until(x, "HTTP/1.1 409");
    fx_ask(x, "POST", "/v1/sandboxes/box/fork", "{\"count\":101}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(api, a_sandbox_is_rolled_back)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes/box/rollback", "{\"snapshot\":\"first\",\"memory\":false}");
    fx_turn(x, 5);
    CHECK(SN.back && SN.boot);
    SN.back(SN.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 200");
    HAS(x, "{\"id\":\"" ID "\"");
    fx_ask(x, "POST", "/v1/sandboxes/box/rollback", "{}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "POST", "/v1/sandboxes/box/rollback", "{\"snapshot\":\"other\"}");
    HAS(x, "HTTP/1.1 404");
    fake_snapshot.memory = false;
    fx_ask(x, "POST", "/v1/sandboxes/box/rollback", "{\"snapshot\":\"first\",\"memory\":true}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(api, a_pack_goes_out_as_the_client_takes_it)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "GET", "/v1/snapshots/first/pack", NULL);
    PK.out.ops.opened(PK.out.arg, 7);
    CHECK_INT(PK.asked, 1);
    PK.out.ops.data(PK.out.arg, "HUTCHPK", 7);
    CHECK_INT(PK.asked, 2);
    PK.out.ops.done(PK.out.arg, NULL);
    fx_until(x, "HUTCHPK");
    HAS(x, "Content-Length: 7\r\n");
    HAS(x, "application/vnd.hutch.pack");
    fx_begin(x, "GET", "/v1/snapshots/first/pack", NULL);
    err_set(&e, E_CONFLICT, "it lacks something");
    PK.out.ops.done(PK.out.arg, &e);
    fx_until(x, "HTTP/1.1 409");
    fx_ask(x, "GET", "/v1/snapshots/other/pack", NULL);
    HAS(x, "HTTP/1.1 404");
    /* whoever does not read is not sent more */
    fx_begin(x, "GET", "/v1/snapshots/first/pack", NULL);
    PK.asked = 0;
    PK.out.ops.opened(PK.out.arg, 64 << 20);
    auto_free char *piece = xcalloc(1, 1 << 20);
    unsigned sent = 0;
    for (; sent < 32 && PK.asked > sent; sent++)
        PK.out.ops.data(PK.out.arg, piece, 1 << 20);
    CHECK(sent < 32);
    fx_close(x);
    CHECK_INT(PK.cancels, 1);
    fx_free(x);
}

TEST(api, a_pack_comes_in)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", "/v1/snapshots/import?name=mine", "HUTCHPK and more");
    fx_turn(x, 5);
    CHECK_STR(PK.name.p, "mine");
    CHECK_INT(PK.got.n, 16);
    CHECK(PK.ended);
    PK.in.ops.done(PK.in.arg, &fake_snapshot, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "\"signer\":null");
    fx_begin(x, "POST", "/v1/snapshots/import", "x");
    fx_turn(x, 5);
    CHECK_STR(PK.name.p, "-");
    err_set(&e, E_DENIED, "signed by a stranger");
    PK.in.ops.done(PK.in.arg, NULL, &e);
    fx_until(x, "HTTP/1.1 403");
    HAS(x, "stranger");
    fx_begin(x, "POST", "/v1/snapshots/import", "x");
    fx_turn(x, 5);
    PK.cancels = 0;
    fx_close(x);
    CHECK_INT(PK.cancels, 1);
    fx_free(x);
}

TEST(api, a_directory_is_kept_and_put_back)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes/box/snapshots", "{\"path\":\"/work\"}");
    fx_turn(x, 5);
    CHECK_STR(F.path.p, "/work");
    SN.cb(SN.arg, &fake_snapshot, NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_begin(x, "POST", "/v1/sandboxes/box/restore", "{\"snapshot\":\"first\",\"path\":\"/there\"}");
    fx_turn(x, 5);
    CHECK_STR(F.path.p, "/there");
    SN.deleted(SN.arg, NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_ask(x, "POST", "/v1/sandboxes/box/restore", "{\"snapshot\":\"other\"}");
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "POST", "/v1/sandboxes/box/restore", "{}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(api, what_is_held_is_shown_by_tenant)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/usage", NULL);
    HAS(x, "{\"tenant\":null,\"snapshots\":1,\"snapshot_bytes\":10,\"paused\":0,\"paused_bytes\":0,\"bytes\":10,\"limit_bytes\":null}");
    HAS(x, "{\"tenant\":\"acme\",\"snapshots\":2,\"snapshot_bytes\":20,\"paused\":1,\"paused_bytes\":5,\"bytes\":25,\"limit_bytes\":100}");
    fx_free(x);
}

TEST(api, what_the_operator_allows_is_shown_to_the_operator)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/tenants", NULL);
    HAS(x, "{\"name\":\"acme\",\"connections\":7,\"bytes_per_second\":null,\"bytes_per_day\":null,\"held_bytes\":null,\"running\":null,\"memory_mib\":null,\"ceiling\":{\"mode\":\"open\"}}");
    fx_begin(x, "POST", "/v1/sandboxes", "{\"tenant\":\"acme\"}");
    fx_turn(x, 5);
    CHECK_STR(F.create.tenant.p, "acme");
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_free(x);
}

TEST(api, signers_are_shown)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/signers", NULL);
    HAS(x, "{\"own\":\"00ff\",\"signers\":[{\"name\":\"friend\",\"key\":\"11ee\"}]}");
    fx_free(x);
}

TEST_MAIN
