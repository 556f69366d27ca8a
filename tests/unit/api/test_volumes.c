/* Volumes and their content over a fake core. */
#include "fake.h"

#define VOL "/v1/volumes/data"

TEST(volumes, are_made)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/volumes", "{\"name\":\"data\",\"size_mib\":64,\"inodes\":1000}");
    CHECK_STR(V.name, "data");
    CHECK_INT(V.size_mib, 64);
    CHECK_INT(V.inodes, 1000);
    V.cb(V.arg, &fake_volume, NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_until(x, "\"attached\":[]");
    HAS(x, "\"id\":\"v00000000000000000001\"");
    HAS(x, "\"size_mib\":64");
    HAS(x, "\"disk_bytes\":null");
    CHECK(!strstr(x->in.p, fake_volume.token));
    fx_free(x);
}
TEST(volumes, what_is_wrong_is_said)
{
    struct fx *x = fx_new();
    static const char *const bad[] = {"{}", "{\"name\":7}", "{\"name\":\"\"}", "{\"name\":\"a\",\"size_mib\":-1}", "{\"name\":\"a\",\"inodes\":\"x\"}",
                                      "{\"name\":\"a\",\"path\":\"/etc\"}", "[]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", "/v1/volumes", bad[i]);
        HAS(x, "HTTP/1.1 400");
        HAS(x, "\"invalid\"");
    }
    err_set(&F.refuse, E_CONFLICT, "a volume named 'a' exists already");
    fx_ask(x, "POST", "/v1/volumes", "{\"name\":\"a\"}");
    HAS(x, "HTTP/1.1 409");
    fx_begin(x, "POST", "/v1/volumes", "{\"name\":\"a\"}");
    struct err e;
    err_set(&e, E_QUOTA, "no space");
    V.cb(V.arg, NULL, &e);
    fx_until(x, "\"quota\"");
    fx_free(x);
}
TEST(volumes, are_listed_and_looked_at)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/volumes", NULL);
    HAS(x, "{\"volumes\":[{\"id\":\"v00000000000000000001\"");
    fx_begin(x, "GET", VOL, NULL);
    V.usage(V.usage_arg, NULL, 123456);
    fx_until(x, "\"disk_bytes\":123456");
    fx_ask(x, "GET", "/v1/volumes/none", NULL);
    HAS(x, "HTTP/1.1 404");
    HAS(x, "GET /v1/volumes lists");
    fx_ask(x, "GET", "/v1/volumes/a%2Fb", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "GET", "/v1/volumes/data%00x", NULL);
    CHECK(!strstr(x->in.p, "HTTP/1.1 200"));
    fx_free(x);
}
TEST(volumes, are_deleted)
{
    struct fx *x = fx_new();
    fx_begin(x, "DELETE", VOL, NULL);
    V.cb(V.arg, NULL, NULL);
    fx_until(x, "HTTP/1.1 204");
    err_why(&F.refuse, REASON_VOLUME_USED, E_CONFLICT, "volume 'data' is attached to 1 sandbox");
    fx_ask(x, "DELETE", VOL, NULL);
    HAS(x, "HTTP/1.1 409");
    HAS(x, "delete the sandboxes that use it first");
    fx_free(x);
}
TEST(content, waits_for_the_keeper)
{
    struct fx *x = fx_new();
    F.path.n = 0;
    fx_begin(x, "GET", VOL "/files/stat?path=/f", NULL);
    CHECK_INT(F.path.n, 0);
    V.open(V.open_arg, &fake_volume, (struct agent *)(void *)&fake_volume, NULL);
    fx_turn(x, 3);
    CHECK_STR(F.path.p, "/f");
    F.entry_cb(F.cb_arg, NULL, &fake_entry);
    fx_until(x, "\"name\":\"f\"");
    fx_begin(x, "GET", VOL "/files/stat?path=/f", NULL);
    struct err e;
    err_set(&e, E_UNAVAILABLE, "cannot be mounted");
    V.open(V.open_arg, &fake_volume, NULL, &e);
    fx_until(x, "HTTP/1.1 503");
    fx_begin(x, "GET", VOL "/files/stat?path=/f", NULL); /* the keeper died between two turns */
    V.closed = true;
    V.open(V.open_arg, &fake_volume, NULL, NULL);
    fx_until(x, "HTTP/1.1 503");
    V.closed = false;
    fx_begin(x, "GET", VOL "/files/stat?path=/f", NULL); /* the client leaves first */
    fx_close(x);
    V.open(V.open_arg, &fake_volume, NULL, NULL);
    fx_turn(x, 5);
    if (F.entry_cb)
        F.entry_cb(F.cb_arg, NULL, &fake_entry);
    fx_free(x);
}
TEST(content, is_written_after_the_keeper_came)
{
    struct fx *x = fx_new();
    fx_open(x);
    fx_sendz(x, "PUT " VOL "/files?path=/f&mode=600 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n01234");
    CHECK(!F.wr);
    V.open(V.open_arg, &fake_volume, NULL, NULL);
    fx_turn(x, 3);
    fx_sendz(x, "56789");
    CHECK(F.wr && F.wr_eof);
    CHECK_INT(F.mode, 0600);
    CHECK(F.input.n == 10 && !memcmp(F.input.p, "0123456789", 10));
    fake_write_done(NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_free(x);
}
TEST(create, takes_volumes)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes", "{\"volumes\":[{\"name\":\"data\",\"path\":\"/data\"},{\"name\":\"more\",\"path\":\"/m\",\"read_only\":true}]}");
    CHECK_INT(F.create.spec.nvolumes, 2);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "\"volumes\":[]");
    static const char *const bad[] = {"{\"volumes\":{}}", "{\"volumes\":[1]}", "{\"volumes\":[{\"name\":\"a\"}]}", "{\"volumes\":[{\"path\":\"/a\"}]}",
                                      "{\"volumes\":[{\"name\":\"a\",\"path\":\"/a\",\"host\":\"/\"}]}",
                                      "{\"volumes\":[{\"name\":\"a\",\"path\":\"/a\",\"read_only\":1}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", "/v1/sandboxes", bad[i]);
        HAS(x, "HTTP/1.1 400");
    }
    fx_free(x);
}

TEST_MAIN
