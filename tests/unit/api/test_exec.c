/* Commands over a fake core: waiting, streaming, background, processes, terminal. */
#include "fake.h"
#include "base/enc.h"

#define EXEC "/v1/sandboxes/box/exec"
static void started(uint32_t pid) { F.x->ops.started(F.x->arg, pid, 0); }
static void output(uint8_t chan, const char *p, size_t n) { F.x->ops.output(F.x->arg, chan, (const unsigned char *)p, n); }
static void outputz(uint8_t chan, const char *z) { output(chan, z, strlen(z)); }
static void exited(enum exit_kind kind, int code)
{
    struct exec_exit x = {kind, code, 250};
    F.x->ops.exited(F.x->arg, &x, 42);
}

/* ---- waiting ---- */
TEST(wait, collects_both_streams)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":[\"ls\",\"-l\"],\"cwd\":\"/tmp\",\"user\":\"root\",\"env\":{\"A\":\"1\"},\"timeout_ms\":5000,\"tag\":\"t\"}");
    CHECK_STR(F.argv.p, "ls|-l|");
    CHECK_STR(F.env.p, "A=1|");
    CHECK_STR(F.cwd.p, "/tmp");
    CHECK_STR(F.user.p, "root");
    CHECK_STR(F.tag.p, "t");
    CHECK_INT(F.timeout_ms, 5000);
    CHECK(!F.stdin_pipe && !F.detached && !F.cols);
    started(77);
    outputz(CH_STDOUT, "h\xc3\xa9");
    outputz(CH_STDERR, "oops");
    outputz(CH_STDOUT, "llo\n");
    CHECK_INT(F.consumed, 11);
    exited(EXIT_CODE, 3);
    fake_done(NULL);
    fx_until(x, "duration_ms");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "{\"pid\":77,\"exit\":{\"kind\":\"exit\",\"code\":3},\"stdout\":\"h\xc3\xa9llo\\n\",\"stderr\":\"oops\",\"stdout_bytes\":7,\"stderr_bytes\":4,\"truncated\":false,");
    fx_free(x);
}
TEST(wait, exit_kinds)
{
    static const struct { enum exit_kind kind; int code; const char *text; } k[] = {
        {EXIT_SIGNAL, 9, "{\"kind\":\"signal\",\"signal\":9,\"name\":\"SIGKILL\"}"},
        {EXIT_OOM, 9, "{\"kind\":\"oom\",\"signal\":9}"},
        {EXIT_TIMEOUT, 9, "{\"kind\":\"timeout\",\"signal\":9,\"timeout_ms\":250}"},
        {EXIT_CODE, 0, "{\"kind\":\"exit\",\"code\":0}"}};
    struct fx *x = fx_new();
    for (int i = 0; i < 4; i++) {
        fx_begin(x, "POST", EXEC, "{\"cmd\":\"true\"}");
        CHECK_STR(F.argv.p, "/bin/bash|-c|true|");
        started(1);
        exited(k[i].kind, k[i].code);
        fake_done(NULL);
        fx_until(x, k[i].text);
    }
    fx_free(x);
}
TEST(wait, keeps_max_output_and_counts_the_rest)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"max_output\":4}");
    started(1);
    outputz(CH_STDOUT, "abc\xc3\xa9 and more"); /* the limit cuts a character: what is left is still text */
    outputz(CH_STDOUT, "yet more");
    CHECK_INT(F.consumed, 22);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "\"stdout\":\"abc\",\"stderr\":\"\",\"stdout_bytes\":22,\"stderr_bytes\":0,\"truncated\":true");
    fx_free(x);
}
TEST(wait, bytes_that_are_no_text_come_as_base64)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\"}");
    started(1);
    output(CH_STDOUT, "\xff\xfe", 2);
    output(CH_STDERR, "a\0b", 3);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "\"stdout_base64\":\"//4=\",\"stderr_base64\":\"YQBi\"");
    fx_free(x);
}
TEST(wait, feeds_stdin_as_there_is_room_then_eof)
{
    struct fx *x = fx_new();
    F.room = 0;
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"cat\",\"stdin\":\"hello\"}");
    CHECK(F.stdin_pipe);
    started(1);
    CHECK_INT(F.input.n, 0);
    F.room = 2;
    F.x->ops.room(F.x->arg);
    CHECK_INT(F.input.n, 2);
    CHECK(!F.eof);
    F.room = 10;
    F.x->ops.room(F.x->arg);
    CHECK_STR(F.input.p, "hello");
    CHECK(F.eof);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 200");
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"cat\",\"stdin_base64\":\"/wA=\"}");
    F.room = 10;
    started(1);
    CHECK_INT(F.input.n, 2);
    CHECK(!memcmp(F.input.p, "\xff\0", 2));
    CHECK(F.eof);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 200");
    fx_free(x);
}
TEST(wait, an_exit_status_is_never_invented)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\"}");
    started(1);
    err_set(&e, E_GONE, "sandbox is gone");
    fake_done(&e);
    fx_until(x, "sandbox is gone");
    HAS(x, "HTTP/1.1 410");
    err_set(&F.refuse, E_CONFLICT, "sandbox is paused");
    fx_ask(x, "POST", EXEC, "{\"cmd\":\"x\"}");
    HAS(x, "HTTP/1.1 409");
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\"}");
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 502");
    fx_free(x);
}
TEST(wait, a_client_that_left_kills_the_command)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"sleep 9\"}");
    started(1);
    fx_close(x);
    CHECK_INT(F.kills, 1);
    CHECK_INT(F.detaches, 0);
    fx_free(x);
}
TEST(exec, refuses_nonsense)
{
    static const char *const bad[][2] = {
        {"{}", "cmd: missing"}, {"{\"cmd\":\"x\",\"stream\":true,\"background\":true}", "cannot be combined"},
        {"{\"cmd\":\"x\",\"keep_stdin\":true}", "keep_stdin needs"}, {"{\"cmd\":\"x\",\"stdin\":\"a\",\"stdin_base64\":\"YQ==\"}", "cannot be combined"},
        {"{\"cmd\":\"x\",\"stdin_base64\":\"***\"}", "not base64"}, {"{\"cmd\":\"x\",\"max_output\":16777217}", "max_output"},
        {"{\"cmd\":\"x\",\"pty\":{\"cols\":0}}", "cols"}, {"{\"cmd\":\"x\",\"pty\":{\"width\":1}}", "pty.width"},
        {"{\"cmd\":\"x\",\"timeout_ms\":-1}", "timeout_ms"}, {"{\"cmd\":\"x\",\"tag\":\"\"}", "tag"}, {"{\"cmd\":\"x\",\"extra\":1}", "extra"}};
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", EXEC, bad[i][0]);
        HAS(x, "HTTP/1.1 400");
        HAS(x, bad[i][1]);
        CHECK(!F.x);
    }
    fx_free(x);
}

/* ---- streaming ---- */
TEST(stream, lines_in_order)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true,\"pty\":{\"cols\":100,\"rows\":30}}");
    CHECK_INT(F.cols, 100);
    CHECK_INT(F.rows, 30);
    started(77);
    outputz(CH_PTY, "one\n");
    outputz(CH_STDERR, "two");
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "application/x-ndjson");
    HAS(x, "{\"event\":\"started\",\"pid\":77}\n");
    HAS(x, "{\"event\":\"stdout\",\"data\":\"one\\n\"}\n");
    HAS(x, "{\"event\":\"stderr\",\"data\":\"two\"}\n");
    HAS(x, "{\"event\":\"exit\",\"exit\":{\"kind\":\"exit\",\"code\":0},\"duration_ms\":");
    HAS(x, ",\"offset\":42}\n");
    fx_free(x);
}
TEST(stream, split_characters_stay_text)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true}");
    started(1);
    outputz(CH_STDOUT, "a\xe2");
    outputz(CH_STDERR, "e"); /* the other stream has its own memory */
    outputz(CH_STDOUT, "\x82");
    outputz(CH_STDOUT, "\xac");
    CHECK_INT(F.consumed, 5);
    output(CH_STDOUT, "\xff!", 2);
    outputz(CH_STDOUT, "end\xc3");
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "{\"event\":\"stdout\",\"data\":\"a\"}\n");
    HAS(x, "{\"event\":\"stdout\",\"data\":\"\xe2\x82\xac\"}\n");
    HAS(x, "{\"event\":\"stdout\",\"data_base64\":\"/yE=\"}\n");
    HAS(x, "{\"event\":\"stdout\",\"data\":\"end\"}\n");
    HAS(x, "{\"event\":\"stdout\",\"data_base64\":\"ww==\"}\n"); /* what never became a character is not lost */
    fx_free(x);
}
TEST(stream, a_failed_start_is_an_ordinary_error)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true}");
    err_set(&e, E_NOT_FOUND, "user 'x' does not exist");
    fake_done(&e);
    fx_until(x, "user 'x' does not exist");
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}
TEST(stream, an_interruption_says_so)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true}");
    started(1);
    F.x->ops.lost(F.x->arg, 9);
    err_set(&e, E_GONE, "its timeout has passed");
    fake_done(&e);
    fx_until(x, "0\r\n\r\n");
    HAS(x, "{\"event\":\"lost\",\"bytes\":9}\n");
    HAS(x, "{\"event\":\"interrupted\",\"error\":{\"code\":\"gone\",\"message\":\"its timeout has passed\"");
    CHECK(!strstr(x->in.p, "\"exit\""));
    fx_free(x);
}
TEST(stream, output_is_acknowledged_only_as_the_client_reads)
{
    struct fx *x = fx_new();
    static char chunk[32768];
    memset(chunk, 'x', sizeof chunk);
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"yes\",\"stream\":true}");
    started(1);
    size_t sent = 0;
    while (F.consumed == sent && sent < (16u << 20)) { /* the client does not read: the credit has to dry up */
        output(CH_STDOUT, chunk, sizeof chunk);
        sent += sizeof chunk;
        fx_turn(x, 1);
    }
    CHECK(sent < (8u << 20));
    for (int i = 0; i < 4; i++, sent += sizeof chunk) /* what was under way still comes */
        output(CH_STDOUT, chunk, sizeof chunk);
    CHECK(F.consumed < sent);
    for (int i = 0; i < 200 && F.consumed < sent; i++) {
        fx_read(x);
        fx_turn(x, 2);
    }
    CHECK_INT(F.consumed, sent);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "0\r\n\r\n");
    size_t n = 0;
    for (const char *p = x->in.p; p < x->in.p + x->in.n; p++)
        n += *p == 'x';
    CHECK(n >= sent);
    fx_free(x);
}
TEST(stream, a_client_that_left_kills_what_it_started_and_leaves_what_it_attached_to)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true}");
    started(1);
    fx_until(x, "started");
    fx_close(x);
    CHECK_INT(F.kills, 1);
    fx_begin(x, "GET", "/v1/sandboxes/box/processes/tag:web/stream?offset=5", NULL);
    CHECK_STR(F.unary.who, "tag:web");
    CHECK_INT(F.offset, 5);
    F.x->ops.started(F.x->arg, 8, 7);
    fx_until(x, "{\"event\":\"started\",\"pid\":8,\"offset\":7}\n");
    fx_close(x);
    CHECK_INT(F.kills, 0);
    CHECK_INT(F.detaches, 1);
    fx_begin(x, "GET", "/v1/sandboxes/box/processes/8/stream?offset=-1", NULL);
    CHECK(F.offset == UINT64_MAX);
    struct err e;
    err_set(&e, E_NOT_FOUND, "process 8 does not exist");
    fake_done(&e);
    fx_until(x, "HTTP/1.1 404");
    fx_free(x);
}

/* ---- background ---- */
TEST(background, answers_at_once_and_lets_go)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"background\":true,\"tag\":\"web\"}");
    CHECK(F.detached);
    started(77);
    fx_until(x, "{\"pid\":77,\"tag\":\"web\"}");
    HAS(x, "HTTP/1.1 201");
    CHECK_INT(F.detaches, 1);
    CHECK_INT(F.kills, 0);
    fx_free(x);
}
TEST(background, stdin_is_fed_after_the_answer)
{
    struct fx *x = fx_new();
    F.pieces.n = 0;
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"cat\",\"background\":true,\"stdin\":\"hello\"}");
    started(77);
    fx_until(x, "{\"pid\":77,\"tag\":null}");
    CHECK_STR(F.unary.who, "77");
    fake_answer(NULL);
    CHECK_STR(F.pieces.p, "5,close,");
    fake_answer(NULL);
    fx_turn(x, 3);
    fx_free(x);
}

/* ---- processes ---- */
TEST(processes, list_and_one)
{
    struct fx *x = fx_new();
    char *argv[] = {(char *)(uintptr_t)"sleep", (char *)(uintptr_t)"9", NULL};
    struct proc_info p[2] = {{.pid = 7, .tag = "web", .cwd = "/", .user = "user", .argv = argv, .started_wall_ns = 1000000000, .output_bytes = 3, .exit = {EXIT_CODE, 1, 0}},
                             {.pid = 8, .tag = "web", .cwd = "/", .user = "user", .argv = argv, .started_wall_ns = 1000000000, .running = true}};
    fx_begin(x, "GET", "/v1/sandboxes/box/processes", NULL);
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "]}");
    HAS(x, "{\"pid\":7,\"tag\":\"web\",\"cmd\":[\"sleep\",\"9\"],\"cwd\":\"/\",\"user\":\"user\",\"started_at\":\"1970-01-01T00:00:01.000Z\",\"output_bytes\":3,\"running\":false,\"pty\":false,\"exit\":{\"kind\":\"exit\",\"code\":1}}");
    HAS(x, "\"running\":true,\"pty\":false,\"exit\":null}");
    fx_begin(x, "GET", "/v1/sandboxes/box/processes/tag:web", NULL);
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "{\"pid\":8");
    fx_begin(x, "GET", "/v1/sandboxes/box/processes/9", NULL);
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "HTTP/1.1 404");
    fx_ask(x, "GET", "/v1/sandboxes/box/processes/xyz", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}
TEST(processes, signal_and_resize)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", "/v1/sandboxes/box/processes/7/signal", "{\"signal\":\"SIGTERM\"}");
    CHECK_INT(F.unary.signo, 15);
    CHECK(F.unary.group);
    fake_answer(NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_begin(x, "POST", "/v1/sandboxes/box/processes/7/signal", "{\"signal\":9,\"group\":false}");
    CHECK_INT(F.unary.signo, 9);
    CHECK(!F.unary.group);
    err_set(&e, E_NOT_FOUND, "process 7 does not exist");
    fake_answer(&e);
    fx_until(x, "HTTP/1.1 404");
    fx_ask(x, "POST", "/v1/sandboxes/box/processes/7/signal", "{\"signal\":\"SIGNOPE\"}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "POST", "/v1/sandboxes/box/processes/7/signal", "{}");
    HAS(x, "signal: missing");
    fx_begin(x, "POST", "/v1/sandboxes/box/processes/7/resize", "{\"cols\":10,\"rows\":5}");
    CHECK_INT(F.unary.cols, 10);
    fake_answer(NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_ask(x, "POST", "/v1/sandboxes/box/processes/7/resize", "{\"cols\":10}");
    HAS(x, "rows");
    fx_begin(x, "POST", "/v1/sandboxes/box/processes/7/signal", "{\"signal\":9}");
    fx_close(x); /* the answer comes to nobody */
    fake_answer(NULL);
    fx_free(x);
}
TEST(processes, stdin_goes_in_order_in_pieces)
{
    struct fx *x = fx_new();
    enum { N = 150000 };
    char *body = xmalloc(N);
    for (int i = 0; i < N; i++)
        body[i] = (char)('a' + i % 26);
    F.pieces.n = F.input.n = 0;
    fx_open(x);
    auto_buf head = {0};
    buf_printf(&head, "POST /v1/sandboxes/box/processes/7/stdin?eof=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", N);
    fx_send(x, head.p, head.n);
    size_t sent = 0;
    for (int i = 0; i < 100000 && !strstr(F.pieces.p ? F.pieces.p : "", "close"); i++) {
        if (sent < N) {
            ssize_t w = send(x->fd, body + sent, N - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += w > 0 ? (size_t)w : 0;
        }
        fx_turn(x, 2);
        if (F.unary.cb && !strstr(F.pieces.p, "close"))
            fake_answer(NULL);
    }
    CHECK_INT(F.input.n, N);
    CHECK(!memcmp(F.input.p, body, N));
    for (const char *p = F.pieces.p; strncmp(p, "close", 5); p = strchr(p, ',') + 1)
        CHECK(atoi(p) <= 60 * 1024);
    fx_turn(x, 2);
    CHECK(!memmem(x->in.p ? x->in.p : "", x->in.n, "204", 3));
    fake_answer(NULL); /* the close */
    fx_until(x, "HTTP/1.1 204");
    free(body);
    fx_free(x);
}
TEST(processes, stdin_failures_are_told_at_once)
{
    struct fx *x = fx_new();
    struct err e;
    fx_open(x);
    fx_sendz(x, "POST /v1/sandboxes/box/processes/7/stdin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\nabc");
    err_set(&e, E_NOT_FOUND, "process 7 does not exist");
    fake_answer(&e);
    fx_until(x, "HTTP/1.1 404");
    fx_open(x);
    fx_sendz(x, "POST /v1/sandboxes/box/processes/7/stdin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\nabc");
    fx_close(x); /* left with a piece under way */
    fake_answer(NULL);
    fx_turn(x, 3);
    fx_begin(x, "POST", "/v1/sandboxes/box/processes/7/stdin", "");
    fx_until(x, "HTTP/1.1 204"); /* nothing to do is done */
    fx_free(x);
}

/* ---- terminal ---- */
static void upgrade(struct fx *x, const char *query)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b, "GET /v1/sandboxes/box/pty%s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", query);
    fx_send(x, b.p, b.n);
}
static void ws_put(struct fx *x, enum ws_op op, const void *p, size_t n)
{
    auto_buf b = {0};
    ws_frame(&b, op, p, n, true);
    fx_send(x, b.p, b.n);
}
static void ws_putz(struct fx *x, const char *z) { ws_put(x, WS_TEXT, z, strlen(z)); }
TEST(pty, a_terminal_from_start_to_exit)
{
    struct fx *x = fx_new();
    upgrade(x, "?cols=100&rows=30&cmd=vi&cmd=a+b&user=root&env.K=V");
    CHECK_STR(F.argv.p, "vi|a b|");
    CHECK_STR(F.env.p, "K=V|TERM=xterm-256color|");
    CHECK_INT(F.cols, 100);
    CHECK_INT(F.rows, 30);
    CHECK(!fx_read(x) || !x->in.n); /* nothing is accepted before it started */
    started(77);
    fx_until(x, "{\"started\":{\"pid\":77}}");
    HAS(x, "HTTP/1.1 101");
    outputz(CH_PTY, "\x1b[2Jhello");
    fx_until(x, "\x1b[2Jhello");
    ws_put(x, WS_BINARY, "ls\r", 3);
    CHECK_INT(F.input.n, 3);
    ws_putz(x, "{\"resize\":{\"cols\":40,\"rows\":20}}");
    CHECK_INT(F.unary.cols, 40);
    ws_putz(x, "{\"resize\":{\"cols\":41,\"rows\":20}}");
    ws_putz(x, "{\"resize\":{\"cols\":42,\"rows\":20}}");
    CHECK_INT(F.unary.cols, 40);
    fake_answer(NULL);
    CHECK_INT(F.unary.cols, 42); /* the last size wins */
    fake_answer(NULL);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "{\"exit\":{\"kind\":\"exit\",\"code\":0}}");
    fx_until(x, "\x88\x02\x03\xe8");
    ws_put(x, WS_CLOSE, "\x03\xe8", 2);
    fx_until(x, NULL);
    fx_free(x);
}
TEST(pty, input_waits_for_room)
{
    struct fx *x = fx_new();
    upgrade(x, "");
    CHECK_STR(F.argv.p, "/bin/bash|-l|");
    started(1);
    fx_until(x, "started");
    F.room = 2;
    ws_put(x, WS_BINARY, "hello", 5);
    CHECK_INT(F.input.n, 2);
    ws_put(x, WS_BINARY, "world", 5);
    CHECK_INT(F.input.n, 2);
    F.room = 100;
    F.x->ops.room(F.x->arg);
    fx_turn(x, 5);
    CHECK_INT(F.input.n, 10);
    CHECK(!memcmp(F.input.p, "helloworld", 10));
    fx_close(x);
    CHECK_INT(F.kills, 1);
    fx_free(x);
}
TEST(pty, output_is_acknowledged_as_it_leaves)
{
    struct fx *x = fx_new();
    static char chunk[32768];
    upgrade(x, "");
    started(1);
    fx_until(x, "started");
    size_t sent = 0;
    while (F.consumed == sent && sent < (16u << 20)) {
        output(CH_PTY, chunk, sizeof chunk);
        sent += sizeof chunk;
        fx_turn(x, 1);
    }
    CHECK(sent < (8u << 20));
    for (int i = 0; i < 200 && F.consumed < sent; i++) {
        fx_read(x);
        fx_turn(x, 2);
    }
    CHECK_INT(F.consumed, sent);
    fx_close(x);
    CHECK_INT(F.kills, 1);
    fx_free(x);
}
TEST(pty, attaching_feeds_by_pid_and_leaves_it_alive)
{
    struct fx *x = fx_new();
    upgrade(x, "?pid=tag:sh");
    CHECK_STR(F.unary.who, "tag:sh");
    CHECK(F.offset == UINT64_MAX);
    F.x->ops.started(F.x->arg, 9, 0);
    fx_until(x, "{\"started\":{\"pid\":9}}");
    F.input.n = 0;
    ws_put(x, WS_BINARY, "ab", 2);
    CHECK_STR(F.unary.who, "9");
    ws_put(x, WS_BINARY, "cd", 2); /* waits for the first */
    CHECK_INT(F.input.n, 2);
    fake_answer(NULL);
    fx_turn(x, 3);
    CHECK_INT(F.input.n, 4);
    fx_close(x);
    fake_answer(NULL); /* reading goes on, and meets the end */
    fx_turn(x, 5);
    CHECK_INT(F.detaches, 1);
    CHECK_INT(F.kills, 0);
    fx_free(x);
}
TEST(exec, an_agent_that_lies_about_the_order_does_no_harm)
{
    struct fx *x = fx_new();
    upgrade(x, "");
    outputz(CH_PTY, "early");
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 502");
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"stream\":true}");
    outputz(CH_STDOUT, "early");
    F.x->ops.lost(F.x->arg, 1);
    exited(EXIT_CODE, 0);
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 502");
    fx_begin(x, "POST", EXEC, "{\"cmd\":\"x\",\"background\":true}");
    fake_done(NULL);
    fx_until(x, "HTTP/1.1 502");
    fx_free(x);
}
TEST(pty, errors_before_and_after_the_upgrade)
{
    struct fx *x = fx_new();
    struct err e;
    fx_ask(x, "GET", "/v1/sandboxes/box/pty", NULL);
    HAS(x, "HTTP/1.1 400");
    upgrade(x, "?cols=0");
    fx_until(x, "HTTP/1.1 400");
    upgrade(x, "?pid=zz");
    fx_until(x, "HTTP/1.1 400");
    upgrade(x, "");
    err_set(&e, E_NOT_FOUND, "user 'x' does not exist");
    fake_done(&e);
    fx_until(x, "HTTP/1.1 404");
    upgrade(x, "");
    fx_close(x); /* left before it started */
    CHECK_INT(F.kills, 1);
    upgrade(x, "");
    started(1);
    fx_until(x, "started");
    err_set(&e, E_GONE, "sandbox is gone");
    fake_done(&e);
    fx_until(x, "{\"error\":{\"code\":\"gone\"");
    upgrade(x, "");
    started(1);
    fx_until(x, "started");
    ws_putz(x, "{\"resize\":1}");
    fx_until(x, "resize");
    fx_close(x);
    CHECK_INT(F.kills, 1);
    fx_free(x);
}
TEST_MAIN
