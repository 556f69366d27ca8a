/* Files, watches and builds over a fake core. */
#include "fake.h"

#define FILES "/v1/sandboxes/box/files"
static void opened(char type, uint64_t size)
{
    struct file_entry en = fake_entry;
    en.type = type, en.size = size;
    F.rd->ops.opened(F.rd->arg, &en);
}
static void data(const char *z) { F.rd->ops.data(F.rd->arg, (const unsigned char *)z, strlen(z)); }

/* ---- out ---- */
TEST(get, a_file_of_known_size)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", FILES "?path=%2Fhome%2Fuser%2Ff", NULL);
    CHECK_STR(F.path.p, "/home/user/f");
    opened('f', 11);
    data("hello ");
    data("world");
    CHECK_INT(F.rd_cancels, 1); /* all that was promised is out */
    fx_until(x, "hello world");
    HAS(x, "Content-Length: 11\r\n");
    HAS(x, "application/octet-stream");
    HAS(x, "nosniff");
    fx_free(x);
}
TEST(get, parts)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", FILES "?path=f&offset=4&length=100", NULL);
    opened('f', 10);
    fx_until(x, "Content-Length: 6\r\n");
    data("456789");
    fx_until(x, "456789");
    fx_begin(x, "GET", FILES "?path=f&offset=40", NULL);
    opened('f', 10);
    fx_until(x, "Content-Length: 0\r\n");
    HAS(x, "HTTP/1.1 200");
    fx_begin(x, "GET", FILES "?path=f&length=3", NULL);
    opened('f', 10);
    data("0123456789"); /* it grew, or the agent sends too much: the promise stands */
    fx_until(x, "\r\n\r\n012");
    CHECK(!strstr(x->in.p, "0123"));
    fx_free(x);
}
TEST(get, a_file_that_turns_out_shorter_is_cut_off)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", FILES "?path=f", NULL);
    opened('f', 11);
    data("hello");
    fake_read_done(NULL);
    fx_until(x, NULL); /* closed without the promised length */
    HAS(x, "Content-Length: 11\r\n");
    fx_free(x);
}
TEST(get, size_zero_may_have_content)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", FILES "?path=/proc/uptime", NULL);
    opened('f', 0);
    data("12.3 4.5\n");
    fake_read_done(NULL);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "Transfer-Encoding: chunked");
    HAS(x, "12.3 4.5");
    fx_begin(x, "GET", FILES "?path=/empty", NULL);
    opened('f', 0);
    fake_read_done(NULL);
    fx_until(x, "Content-Length: 0\r\n");
    HAS(x, "HTTP/1.1 200");
    fx_free(x);
}
TEST(get, head_and_errors)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "HEAD", FILES "?path=f", NULL);
    opened('f', 11);
    fx_until(x, "Content-Length: 11\r\n");
    CHECK_INT(F.rd_cancels, 1);
    fx_ask(x, "GET", FILES, NULL);
    HAS(x, "path: missing");
    fx_ask(x, "GET", FILES "?path=f&offset=-1", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_begin(x, "GET", FILES "?path=d", NULL);
    opened('d', 4096);
    fx_until(x, "is a directory");
    HAS(x, "HTTP/1.1 400");
    fx_begin(x, "GET", FILES "?path=f", NULL);
    err_set(&e, E_NOT_FOUND, "'f' does not exist");
    fake_read_done(&e);
    fx_until(x, "HTTP/1.1 404");
    fx_begin(x, "GET", FILES "?path=f", NULL);
    opened('f', 100);
    err_set(&e, E_GONE, "sandbox is gone");
    fake_read_done(&e);
    fx_until(x, NULL); /* too late for a status: cut */
    err_set(&F.refuse, E_GONE, "sandbox is gone");
    fx_ask(x, "GET", FILES "?path=f", NULL);
    HAS(x, "HTTP/1.1 410");
    fx_free(x);
}
TEST(get, is_paced_by_the_client_and_cancelled_with_it)
{
    struct fx *x = fx_new();
    static unsigned char chunk[32768];
    fx_begin(x, "GET", FILES "?path=big", NULL);
    opened('f', 1ull << 40);
    size_t sent = 0;
    while (F.rd_consumed == sent && sent < (16u << 20)) {
        F.rd->ops.data(F.rd->arg, chunk, sizeof chunk);
        sent += sizeof chunk;
        fx_turn(x, 1);
    }
    CHECK(sent < (8u << 20));
    for (int i = 0; i < 200 && F.rd_consumed < sent; i++) {
        fx_read(x);
        fx_turn(x, 2);
    }
    CHECK_INT(F.rd_consumed, sent);
    fx_close(x);
    CHECK_INT(F.rd_cancels, 1);
    fx_free(x);
}

/* ---- in ---- */
TEST(put, streams_as_there_is_room)
{
    struct fx *x = fx_new();
    enum { N = 300000 };
    char *body = xmalloc(N);
    for (int i = 0; i < N; i++)
        body[i] = (char)('a' + i % 23);
    auto_buf head = {0};
    buf_printf(&head, "PUT " FILES "?path=f&mode=0600&user=root HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", N);
    F.room = 0;
    fx_open(x);
    fx_send(x, head.p, head.n);
    CHECK_INT(F.mode, 0600);
    size_t sent = 0;
    for (int i = 0; i < 100000 && !F.wr_eof; i++) {
        if (sent < N) {
            ssize_t w = send(x->fd, body + sent, N - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += w > 0 ? (size_t)w : 0;
        }
        fx_turn(x, 2);
        F.room = 7000;
        F.wr->ops.room(F.wr->arg);
    }
    CHECK(F.wr_eof);
    CHECK_INT(F.input.n, N);
    CHECK(!memcmp(F.input.p, body, N));
    fake_write_done(NULL);
    fx_until(x, "\"name\":\"f\",\"path\":\"/home/user/f\",\"type\":\"file\",\"size\":5,\"mode\":\"0644\",\"uid\":1000,\"gid\":1000,\"owner\":\"user\",\"group\":\"user\",\"modified_at\":\"1970-01-01T00:00:01.000Z\",\"target\":null}");
    HAS(x, "HTTP/1.1 201");
    free(body);
    fx_free(x);
}
TEST(put, an_empty_file)
{
    struct fx *x = fx_new();
    fx_begin(x, "PUT", FILES "?path=f", NULL);
    CHECK(F.wr_eof);
    fake_write_done(NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_free(x);
}
TEST(put, early_failure_answers_at_once)
{
    struct fx *x = fx_new();
    struct err e;
    fx_open(x);
    fx_sendz(x, "PUT " FILES "?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\nabc");
    err_set(&e, E_QUOTA, "the disk is full");
    fake_write_done(&e);
    fx_until(x, "the disk is full");
    HAS(x, "HTTP/1.1 429");
    HAS(x, "disk_mib");
    F.room = 1;
    fx_open(x);
    fx_sendz(x, "PUT " FILES "?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\nabc"); /* paused: no room */
    err_set(&e, E_DENIED, "not yours");
    fake_write_done(&e);
    fx_until(x, "HTTP/1.1 403");
    fx_ask(x, "PUT", FILES "?path=f&mode=999", "x");
    HAS(x, "mode: must be octal");
    fx_free(x);
}
TEST(put, a_client_that_left_cancels)
{
    struct fx *x = fx_new();
    fx_open(x);
    fx_sendz(x, "PUT " FILES "?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
    fx_close(x);
    CHECK_INT(F.wr_cancels, 1);
    CHECK(!F.wr_eof);
    fx_free(x);
}

/* ---- names ---- */
TEST(files, calls_that_answer_with_an_entry)
{
    struct fx *x = fx_new();
    struct err e;
    static const struct { const char *method, *target, *body, *path, *status; } call[] = {
        {"GET", FILES "/stat?path=f", NULL, "f", "HTTP/1.1 200"},
        {"POST", FILES "/move", "{\"from\":\"a\",\"to\":\"b\"}", "a", "HTTP/1.1 200"},
        {"POST", FILES "/attr", "{\"path\":\"f\",\"mode\":\"0700\"}", "f", "HTTP/1.1 200"},
        {"POST", FILES "/symlink", "{\"target\":\"t\",\"path\":\"l\"}", "l", "HTTP/1.1 201"},
        {"POST", "/v1/sandboxes/box/dirs?path=d&mode=0711", NULL, "d", "HTTP/1.1 201"},
    };
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        F.entry_cb = NULL;
        fx_begin(x, call[i].method, call[i].target, call[i].body);
        CHECK(F.entry_cb != NULL);
        CHECK_STR(F.path.p, call[i].path);
        F.entry_cb(F.cb_arg, NULL, &fake_entry);
        fx_until(x, call[i].status);
        HAS(x, "\"type\":\"file\"");
    }
    CHECK_INT(F.mode, 0711);
    fx_begin(x, "DELETE", FILES "?path=f&recursive=1", NULL);
    F.entry_cb(F.cb_arg, NULL, NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_begin(x, "GET", FILES "/stat?path=f", NULL);
    err_set(&e, E_NOT_FOUND, "'f' does not exist");
    F.entry_cb(F.cb_arg, &e, NULL);
    fx_until(x, "HTTP/1.1 404");
    fx_ask(x, "POST", FILES "/attr", "{\"path\":\"f\"}");
    HAS(x, "one of mode, owner and group");
    fx_ask(x, "POST", FILES "/attr", "{\"path\":\"f\",\"mode\":\"rwx\"}");
    HAS(x, "octal");
    fx_begin(x, "GET", FILES "/stat?path=f", NULL);
    fx_close(x);
    F.entry_cb(F.cb_arg, NULL, &fake_entry); /* nobody listens */
    fx_free(x);
}
TEST(files, a_directory)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/sandboxes/box/dirs?path=/home&depth=2", NULL);
    struct file_entry en[2] = {fake_entry, fake_entry};
    en[1].type = 'l', en[1].target = "/t";
    F.list_ops->entries(F.cb_arg, en, 1);
    F.list_ops->entries(F.cb_arg, en + 1, 1);
    F.list_ops->done(F.cb_arg, NULL);
    fx_until(x, "\"target\":\"/t\"}]}");
    HAS(x, "{\"entries\":[{\"name\":\"f\"");
    fx_begin(x, "GET", "/v1/sandboxes/box/dirs?path=/home", NULL);
    F.list_ops->done(F.cb_arg, NULL);
    fx_until(x, "{\"entries\":[]}");
    fx_ask(x, "GET", "/v1/sandboxes/box/dirs?path=/home&depth=0", NULL);
    HAS(x, "depth: must be between 1 and 64");
    fx_begin(x, "GET", "/v1/sandboxes/box/dirs?path=/home", NULL);
    fx_close(x);
    F.list_ops->entries(F.cb_arg, en, 2);
    F.list_ops->done(F.cb_arg, NULL);
    fx_free(x);
}

/* ---- watch ---- */
static void watch_done(const struct err *e)
{
    struct watch *w = F.watch;
    F.watch = NULL;
    w->ops.done(w->arg, e);
    free(w);
}
TEST(watch, changes_until_the_end)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "GET", "/v1/sandboxes/box/watch?path=/home&recursive=1", NULL);
    F.watch->ops.ready(F.watch->arg);
    F.watch->ops.change(F.watch->arg, 'c', "sub/f", 1, NULL);
    F.watch->ops.change(F.watch->arg, 'o', "", 2, NULL);
    fx_until(x, "event: overflow");
    HAS(x, "event: ready\n");
    HAS(x, "event: change\ndata: {\"type\":\"create\",\"name\":\"sub/f\",\"seq\":1}\n");
    err_set(&e, E_GONE, "sandbox is gone");
    watch_done(&e);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "event: end\ndata: {\"reason\":\"gone\"");
    fx_begin(x, "GET", "/v1/sandboxes/box/watch?path=/nope", NULL);
    err_set(&e, E_NOT_FOUND, "'/nope' does not exist");
    watch_done(&e);
    fx_until(x, "HTTP/1.1 404");
    fx_begin(x, "GET", "/v1/sandboxes/box/watch?path=/home", NULL);
    F.watch->ops.ready(F.watch->arg);
    fx_until(x, "ready");
    fx_close(x);
    CHECK_INT(F.watch_cancels, 1);
    fx_free(x);
}
TEST(watch, a_slow_client_is_told_to_look_again)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/sandboxes/box/watch?path=/home", NULL);
    F.watch->ops.ready(F.watch->arg);
    for (unsigned i = 0; i < 50000; i++)
        F.watch->ops.change(F.watch->arg, 'w', "some/quite/long/name/of/a/file", i, NULL);
    fx_until(x, "event: overflow");
    CHECK(!strstr(x->in.p, "\"seq\":49999}"));
    F.watch->ops.change(F.watch->arg, 'w', "f", 50000, NULL);
    fx_until(x, "\"seq\":50000}");
    fx_free(x);
}

/* ---- builds ---- */
TEST(build, progress_then_done)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", "/v1/templates", "{\"name\":\"base\",\"builtin\":\"base\"}");
    F.build->ops.progress(F.build->arg, 40, "unpacking");
    F.build->ops.log(F.build->arg, "a line");
    fake_build_done(&fake_template, NULL);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "{\"event\":\"progress\",\"percent\":40,\"step\":\"unpacking\"}\n");
    HAS(x, "{\"event\":\"log\",\"line\":\"a line\"}\n");
    HAS(x, "{\"event\":\"done\",\"template\":{\"id\":\"t00000000000000000001\",\"name\":\"base\",\"tenant\":null,\"created_at\":\"1970-01-01T00:00:01.000Z\",\"source\":\"bootstrap\",\"parent\":null,\"size_bytes\":9,\"disk_min_mib\":512,\"warm\":[\"vm\"],\"kernels\":[]}}\n");
    fx_begin(x, "POST", "/v1/templates", "{\"builtin\":\"base\"}");
    err_set(&e, E_UNAVAILABLE, "no network");
    fake_build_done(NULL, &e);
    fx_until(x, "{\"event\":\"error\",\"error\":{\"code\":\"unavailable\"");
    err_set(&F.refuse, E_CONFLICT, "being built");
    fx_ask(x, "POST", "/v1/templates", "{\"builtin\":\"base\"}");
    HAS(x, "HTTP/1.1 409");
    fx_ask(x, "POST", "/v1/templates", "{\"name\":\"x\"}");
    HAS(x, "builtin: missing");
    fx_begin(x, "POST", "/v1/templates", "{\"builtin\":\"base\"}");
    fx_until(x, "\r\n\r\n");
    fx_close(x);
    CHECK_INT(F.build_cancels, 1);
    fx_free(x);
}
TEST(build, logs_for_a_client_that_does_not_read_are_left_out)
{
    struct fx *x = fx_new();
    static char line[1000];
    memset(line, 'l', sizeof line - 1);
    fx_begin(x, "POST", "/v1/templates", "{\"builtin\":\"base\"}");
    for (int i = 0; i < 5000; i++)
        F.build->ops.log(F.build->arg, line);
    for (int i = 0; i < 300; i++)
        fx_turn(x, 1), fx_read(x);
    F.build->ops.log(F.build->arg, "the last");
    fake_build_done(&fake_template, NULL);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "lines skipped");
    HAS(x, "the last");
    HAS(x, "\"event\":\"done\"");
    CHECK(x->in.n < (4u << 20));
    fx_free(x);
}
TEST(build, import_spools_the_body)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/templates/mine/import", "a tar, surely");
    CHECK(F.build != NULL);
    CHECK_INT(F.upload.n, 13);
    CHECK(!memcmp(F.upload.p, "a tar, surely", 13));
    fake_build_done(&fake_template, NULL);
    fx_until(x, "\"event\":\"done\"");
    fx_ask(x, "POST", "/v1/templates/mine/import", "");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "POST", "/v1/templates/Mine/import", "x");
    HAS(x, "HTTP/1.1 400");
    fx_open(x);
    fx_sendz(x, "POST /v1/templates/mine/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
    fx_close(x);
    CHECK(!F.build);
    fx_free(x);
}
static void form(struct fx *x, const char *target, const char *body)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: %zu\r\n\r\n%s", target, strlen(body), body);
    fx_send(x, b.p, b.n);
}
#define PART(name, text) "--XX\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" text "\r\n"
TEST(build, recipe_and_context)
{
    struct fx *x = fx_new();
    form(x, "/v1/templates/mine/build?force=1", PART("recipe", "FROM base\nRUN true") PART("context", "tar bytes") "--XX--\r\n");
    CHECK(F.build != NULL);
    CHECK_INT(F.recipe.n, 18);
    CHECK(!memcmp(F.recipe.p, "FROM base\nRUN true", 18));
    CHECK_INT(F.upload.n, 9);
    fake_build_done(&fake_template, NULL);
    fx_until(x, "\"event\":\"done\"");
    form(x, "/v1/templates/mine/build", PART("recipe", "FROM base") "--XX--\r\n");
    CHECK_INT(F.upload.n, 0);
    fake_build_done(&fake_template, NULL);
    fx_until(x, "\"event\":\"done\"");
    form(x, "/v1/templates/mine/build", PART("context", "x") "--XX--\r\n");
    fx_until(x, "recipe: missing");
    form(x, "/v1/templates/mine/build", PART("surprise", "x") PART("recipe", "FROM base") "--XX--\r\n");
    fx_until(x, "surprise");
    HAS(x, "HTTP/1.1 400");
    form(x, "/v1/templates/mine/build", PART("recipe", "FROM base"));
    fx_until(x, "HTTP/1.1 400"); /* no final boundary */
    fx_ask(x, "POST", "/v1/templates/mine/build", "x");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}
TEST(templates, list_get_delete)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/templates", NULL);
    HAS(x, "{\"templates\":[{\"id\":\"t00000000000000000001\"");
    fx_ask(x, "GET", "/v1/templates/base", NULL);
    HAS(x, "HTTP/1.1 200");
    fx_ask(x, "GET", "/v1/templates/nope", NULL);
    HAS(x, "GET /v1/templates lists");
    fx_ask(x, "DELETE", "/v1/templates/base", NULL);
    HAS(x, "HTTP/1.1 409");
    fx_free(x);
}
TEST_MAIN
