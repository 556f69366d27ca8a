/* The test plays QEMU at the other end of a socket pair. */
#include "tier/vm/qmp.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "loop/loop.h"
#include "test.h"
#include <fcntl.h>
#include <sys/socket.h>

#define GREETING \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"Debian 1:7.2\"}, \"capabilities\": [\"oob\"]}}\r\n"

static int parse(const char *s, struct qmp_msg *m)
{
    struct err e;
    int rc = qmp_parse(s, strlen(s), m, &e);
    if (rc)
        CHECK_INT(e.code, E_GUEST);
    return rc;
}

TEST(qmp_parse, knows_every_kind)
{
    struct qmp_msg m;
    CHECK_INT(
        parse(
            "{\"QMP\":{\"version\":{\"qemu\":{\"micro\":22,\"minor\":2,\"major\":7},\"package\":\"\"},\"capabilities\":[]}}\r",
            &m),
        0);
    CHECK_INT(m.kind, QMP_GREETING);
    CHECK_STR(m.name, "7.2.22");
    CHECK_INT(parse("{\"return\": {}, \"id\": 12}", &m), 0);
    CHECK(m.kind == QMP_RETURN && m.has_id && m.id == 12 && !m.status[0]);
    CHECK_INT(
        parse(
            "{\"return\": {\"status\": \"inmigrate\", \"singlestep\": false, \"running\": false}, \"id\": 1}",
            &m),
        0);
    CHECK_STR(m.status, "inmigrate");
    CHECK_INT(parse("{\"return\": [1, 2], \"id\": 1}", &m), 0);
    CHECK_INT(
        parse(
            "{\"id\": 3, \"error\": {\"class\": \"GenericError\", \"desc\": \"no \\u001b[31m way\"}}",
            &m),
        0);
    CHECK(m.kind == QMP_ERROR && m.id == 3);
    CHECK_STR(m.name, "GenericError");
    CHECK_STR(m.desc, "no ?[31m way");
    CHECK_INT(
        parse(
            "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}",
            &m),
        0);
    CHECK(m.kind == QMP_EVENT && !m.has_id);
    CHECK_STR(m.name, "MIGRATION");
    CHECK_STR(m.status, "completed");
    CHECK_INT(
        parse("{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}",
              &m),
        0);
    CHECK(m.guest);
}

TEST(qmp_parse, refuses_what_is_not_qmp)
{
    struct qmp_msg m;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "1",
        "{\"return\":{},\"event\":\"X\"}",
        "{\"return\":{},\"id\":\"x\"}",
        "{\"return\":{},\"id\":-1}",
        "{\"return\":{},\"id\":1.5}",
        "{\"event\":\"\"}",
        "{\"event\":\"A B\"}",
        "{\"event\":7}",
        "{\"error\":{}}",
        "{\"error\":\"x\"}",
        "{\"error\":{\"class\":\"X\"}}",
        "{\"QMP\":{}}",
        "{\"QMP\":{\"version\":{\"qemu\":{\"micro\":-1,\"minor\":2,\"major\":7}}}}",
        "{\"return\":{},\"return\":{}}",
        "{\"return\":{}} x",
        "{\"event\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(parse(bad[i], &m), -1);
    char *big = calloc(1, QMP_LINE_MAX + 3);
    memset(big, ' ', QMP_LINE_MAX + 1);
    big[0] = '{';
    big[QMP_LINE_MAX + 1] = '}';
    CHECK_INT(parse(big, &m), -1);
    free(big);
}

/* ---- connection ---- */

static struct loop *loop;
static int peer;
static struct qmp *q;
static int ready_n, done_n, lost_n, event_n;
static struct err last;
static char last_event[QMP_NAME], last_status[QMP_NAME];

static void on_event(void *arg, const struct qmp_msg *m)
{
    (void)arg;
    event_n++;
    memcpy(last_event, m->name, sizeof last_event);
}
static void on_lost(void *arg, const struct err *e)
{
    (void)arg;
    lost_n++;
    last = *e;
}
static const struct qmp_ops ops = {on_event, on_lost};
static void on_ready(void *arg, const struct qmp_msg *m, const struct err *e)
{
    (void)arg;
    ready_n++;
    if (m)
        memcpy(last_status, m->status, sizeof last_status);
    if (e)
        last = *e;
}
static void on_done(void *arg, const struct qmp_msg *m, const struct err *e)
{
    (void)arg, (void)m;
    done_n++;
    last = e ? *e : (struct err){0};
}
static void on_done_free(void *arg, const struct qmp_msg *m, const struct err *e)
{
    on_done(arg, m, e);
    qmp_free(q);
    q = NULL;
}

static void open_pair(bool fresh)
{
    int sv[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
    peer = sv[1];
    CHECK(!fd_nonblock(peer));
    loop = loop_new();
    q = qmp_new(loop, sv[0], fresh, &ops, NULL, 0, on_ready, NULL);
}
static void close_pair(void)
{
    qmp_free(q);
    loop_turn(loop, false);
    loop_free(loop);
    (void)close(peer);
}
static void turns(void)
{
    for (int i = 0; i < 20; i++)
        loop_turn(loop, false);
}
/* What QEMU would read now, byte by byte as it does; the id of the nth command in it. A descriptor is noted with the
 * position of the byte it came with. */
static char heard[8192];
static int heard_fd, heard_fd_at;
static uint64_t hear(int nth)
{
    turns();
    size_t got = 0;
    for (;;) {
        int fd[4], nfds = 4;
        if (fd_recv(peer, heard + got, 1, fd, &nfds, 0) != 1)
            break;
        if (nfds)
            heard_fd = fd[0], heard_fd_at = (int)got;
        CHECK(++got < sizeof heard);
    }
    heard[got] = '\0';
    char *p = heard;
    for (int i = 0; i <= nth; i++) {
        p = strstr(p, "\"id\":");
        CHECK(p);
        p += 5;
    }
    return strtoull(p, NULL, 10);
}
static void say(const char *fmt, uint64_t id)
{
    char b[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(b, sizeof b, fmt, id);
#pragma GCC diagnostic pop
    CHECK(fd_write_all(peer, b, strlen(b)));
    turns();
}
static void ready(void)
{
    uint64_t id = hear(0);
    CHECK(strstr(heard, "{\"execute\":\"qmp_capabilities\",\"id\":"));
    say(GREETING, 0);
    say("{\"return\": {}, \"id\": %" PRIu64 "}\r\n", id);
    CHECK_INT(ready_n, 1);
}

TEST(qmp, handshake_command_event)
{
    open_pair(true);
    ready();
    qmp_command(q, "stop", NULL, -1, 0, on_done, NULL);
    CHECK_INT(done_n, 0);
    uint64_t id = hear(0);
    say("{\"event\": \"STOP\"}\r\n{\"return\": {}, \"id\": %" PRIu64 "}\r\n", id);
    CHECK_INT(event_n, 1);
    CHECK_STR(last_event, "STOP");
    CHECK_INT(done_n, 1);
    CHECK_INT(last.code, E_OK);
    close_pair();
}

TEST(qmp, commands_of_one_turn_leave_in_one_write_in_order)
{
    open_pair(true);
    ready();
    qmp_command(q, "a", "{\"x\":1}", -1, 0, on_done, NULL);
    qmp_command(q, "b", NULL, -1, 0, on_done, NULL);
    qmp_command(q, "c", NULL, -1, 0, on_done, NULL);
    uint64_t id = hear(0);
    CHECK(strstr(heard, "{\"execute\":\"a\",\"arguments\":{\"x\":1},\"id\":"));
    CHECK(strstr(heard, "\"b\"") && strstr(heard, "\"c\""));
    say("{\"return\": {}, \"id\": %" PRIu64 "}\n", id);
    say("{\"id\": %" PRIu64 ", \"error\": {\"class\": \"GenericError\", \"desc\": \"nope\"}}\n",
        id + 1);
    CHECK_INT(done_n, 2);
    CHECK_INT(last.code, E_GUEST);
    CHECK(strstr(last.msg, "nope"));
    say("{\"return\": {}, \"id\": %" PRIu64 "}\n", id + 2);
    CHECK_INT(done_n, 3);
    close_pair();
}

TEST(qmp, a_descriptor_travels_with_its_command)
{
    open_pair(true);
    ready();
    auto_fd null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    qmp_command(q, "a", NULL, -1, 0, on_done, NULL);
    qmp_command(q, "getfd", "{\"fdname\":\"x\"}", null, 0, on_done, NULL);
    qmp_command(q, "b", NULL, -1, 0, on_done, NULL);
    (void)hear(2);
    CHECK(heard_fd > 0);
    CHECK(!strncmp(heard + heard_fd_at, "{\"execute\":\"getfd\"", 18));
    (void)close(heard_fd);
    CHECK(fcntl(null, F_GETFD) >= 0); /* still ours */
    close_pair();
}

static void expect_lost(enum err_code code)
{
    turns();
    CHECK_INT(lost_n, 1);
    CHECK_INT(last.code, code);
    CHECK(qmp_is_lost(q));
    int before = done_n;
    qmp_command(q, "late", NULL, -1, 0, on_done, NULL);
    CHECK_INT(done_n, before); /* never from inside the call */
    turns();
    CHECK_INT(done_n, before + 1);
    CHECK_INT(lost_n, 1);
    close_pair();
}
TEST(qmp, violations_lose_the_connection)
{
    static const char *const bad[] = {"nonsense\n", "{\"return\": {}, \"id\": 5}\n",
                                      "{\"return\": {}}\n",
                                      "{\"error\":{\"class\":\"X\",\"desc\":\"d\"}}\n", GREETING};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ready_n = done_n = lost_n = 0;
        open_pair(true);
        ready();
        qmp_command(q, "stop", NULL, -1, 0, on_done, NULL);
        (void)hear(0);
        CHECK(fd_write_all(peer, bad[i], strlen(bad[i])));
        turns();
        CHECK_INT(done_n, 1);
        expect_lost(E_GUEST);
    }
}

TEST(qmp, an_answer_before_the_question_is_a_violation)
{
    open_pair(true);
    ready();
    say("{\"return\": {}, \"id\": 1}\n", 0);
    expect_lost(E_GUEST);
}

TEST(qmp, endless_line_is_a_violation)
{
    open_pair(true);
    ready();
    char junk[4096];
    memset(junk, 'x', sizeof junk);
    for (int i = 0; i < 40 && !lost_n; i++) {
        (void)!write(peer, junk, sizeof junk);
        turns();
    }
    expect_lost(E_GUEST);
}

TEST(qmp, a_flood_of_events_is_a_violation)
{
    open_pair(true);
    ready();
    char ev[4096];
    (void)snprintf(ev, sizeof ev, "{\"event\": \"X\", \"data\": {\"pad\": \"%03000d\"}}\n", 7);
    for (int i = 0; i < 2000 && !lost_n; i++) {
        (void)!write(peer, ev, strlen(ev));
        turns();
    }
    CHECK(event_n > 100);
    expect_lost(E_GUEST);
}

TEST(qmp, peer_gone)
{
    open_pair(true);
    ready();
    qmp_command(q, "quit", NULL, -1, 0, on_done, NULL);
    (void)hear(0);
    CHECK(!shutdown(peer, SHUT_RDWR));
    expect_lost(E_GONE);
}

TEST(qmp, silence_times_out)
{
    open_pair(true);
    ready();
    qmp_command(q, "stop", NULL, -1, 20 * NS_PER_MS, on_done, NULL);
    int64_t end = clock_mono() + 2 * NS_PER_S;
    while (!lost_n && clock_mono() < end)
        loop_turn(loop, true);
    CHECK_INT(done_n, 1);
    expect_lost(E_TIMEOUT);
}

TEST(qmp, may_be_freed_in_its_callback)
{
    open_pair(true);
    ready();
    qmp_command(q, "a", NULL, -1, 0, on_done_free, NULL);
    qmp_command(q, "b", NULL, -1, 0, on_done, NULL);
    uint64_t id = hear(0);
    say("{\"return\": {}, \"id\": %" PRIu64 "}\n{\"event\": \"STOP\"}\n", id);
    CHECK_INT(done_n, 1);
    CHECK_INT(event_n, 0);
    CHECK_INT(lost_n, 0);
    close_pair();
}

TEST(qmp, joins_a_session_in_the_middle)
{
    open_pair(false);
    uint64_t id = hear(0);
    static const char start[] = "\xff\n{\"execute\":\"query-status\"";
    CHECK(!strncmp(heard, start, sizeof start - 1));
    say("letely\": 5}, \"id\": 3}\r\n{\"return\": {}, \"id\": 4}\r\n",
        0); /* the tail of an old answer, and another */
    say("{\"error\": {\"class\": \"GenericError\", \"desc\": \"JSON parse error\"}}\r\n{\"event\": \"STOP\"}\r\n",
        0);
    CHECK_INT(ready_n, 0);
    say("{\"return\": {\"status\": \"paused\", \"running\": false}, \"id\": %" PRIu64 "}\r\n", id);
    CHECK_INT(ready_n, 1);
    CHECK_STR(last_status, "paused");
    CHECK_INT(event_n, 0);
    say("{\"event\": \"RESUME\"}\r\n", 0); /* from now on strict again */
    CHECK_INT(event_n, 1);
    say("nonsense\n", 0);
    expect_lost(E_GUEST);
}
TEST_MAIN
