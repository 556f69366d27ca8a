/* Putting the gate's certificate into a sandbox, against a scripted agent on a socketpair. */
#include "test.h"
#include "base/enc.h"
#include "base/fd.h"
#include "core/agent/agent.h"
#include "core/agent/trust.h"
#include <fcntl.h>
#include <sys/socket.h>

struct world { struct loop *loop; struct agent *a; int peer; uint32_t epoch; bool done, ok; struct err err; char *pem; struct str der; };

static void on_broken(void *arg, const struct err *why) { (void)arg, (void)why; }
static void on_sync(void *arg, const struct err *e)
{
    (void)arg;
    CHECK(!e);
}
static void installed(void *arg, const struct err *e)
{
    struct world *w = arg;
    CHECK(!w->done);
    w->done = true, w->ok = !e;
    if (e)
        w->err = *e;
}
static void turns(struct world *w)
{
    for (int i = 0; i < 20; i++)
        loop_turn(w->loop, false);
}
static char *load(const char *name, size_t *n)
{
    char path[128];
    snprintf(path, sizeof path, "tests/vectors/jks/%s", name);
    char *p = fd_slurp_at(AT_FDCWD, path, 65536, n);
    CHECK(p != NULL);
    return p;
}

static void setup(struct world *w)
{
    int sv[2];
    struct err e;
    struct buf b = {0}, out = {0};
    unsigned char sync[SYNC_SIZE];
    memset(w, 0, sizeof *w);
    w->der.p = load("gate.der", &w->der.n);
    buf_puts(&b, "-----BEGIN CERTIFICATE-----\n");
    base64_encode(w->der.p, w->der.n, &b);
    buf_puts(&b, "\n-----END CERTIFICATE-----\n");
    w->pem = buf_take(&b);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
    w->loop = loop_new();
    w->peer = sv[1];
    w->a = agent_new(w->loop, sv[0], on_broken, w);
    agent_sync(w->a, false, on_sync, w);
    turns(w);
    CHECK_INT(fd_read_all(w->peer, sync, sizeof sync), SYNC_SIZE);
    w->epoch = get_le32(sync + 12);
    frame_put_sync(&out, w->epoch, true, false);
    CHECK(fd_write_all(w->peer, out.p, out.n));
    buf_free(&out);
    turns(w);
    CHECK_INT(trust_install(w->a, w->pem, installed, w, &e), 0);
    turns(w);
}
static void teardown(struct world *w)
{
    agent_free(w->a);
    turns(w);
    close(w->peer);
    loop_free(w->loop);
    free(w->pem);
    free((char *)(uintptr_t)w->der.p);
}

static void say(struct world *w, enum frame_type t, uint8_t chan, uint32_t stream, const void *p, size_t n)
{
    struct buf out = {0};
    frame_put(&out, w->epoch, t, chan, stream, p, n);
    CHECK(fd_write_all(w->peer, out.p, out.n));
    buf_free(&out);
    turns(w);
}
/* The command of a stream ends. */
static void ends(struct world *w, uint32_t stream, enum exit_kind kind, uint64_t code)
{
    struct buf b = {0};
    buf_putc(&b, EV_EXIT);
    rec_put_u64(&b, T_EXIT_KIND, kind);
    rec_put_u64(&b, T_EXIT_CODE, code);
    say(w, FR_EVENT, 0, stream, b.p, b.n);
    buf_free(&b);
    say(w, FR_RES, 0, stream, "\0", 1);
}
/* All that was sent to the peer so far. */
static struct buf heard(struct world *w)
{
    struct buf b = {0};
    char part[4096];
    for (;;) {
        turns(w);
        ssize_t n = recv(w->peer, part, sizeof part, MSG_DONTWAIT);
        if (n <= 0)
            return b;
        buf_put(&b, part, (size_t)n);
    }
}

TEST(trust, a_timeout_is_called_a_timeout)
{
    struct world w;
    setup(&w);
    ends(&w, 1, EXIT_TIMEOUT, 0);
    CHECK(w.done && !w.ok);
    CHECK_INT(w.err.code, E_TIMEOUT);
    CHECK(strstr(w.err.msg, "took longer than 180 s"));
    teardown(&w);
}
TEST(trust, a_failure_is_not)
{
    struct world w;
    setup(&w);
    ends(&w, 1, EXIT_CODE, 1);
    CHECK(w.done && !w.ok);
    CHECK_INT(w.err.code, E_GUEST);
    CHECK(strstr(w.err.msg, "cannot add the gate's certificate"));
    teardown(&w);
}
TEST(trust, no_key_store_no_second_command)
{
    struct world w;
    setup(&w);
    ends(&w, 1, EXIT_CODE, 0);
    CHECK(w.done && w.ok);
    teardown(&w);
}

TEST(trust, a_store_comes_back_with_the_certificate)
{
    struct world w;
    size_t n;
    setup(&w);
    char *store = load("store.jks", &n), head[64];
    struct buf b = {0};
    snprintf(head, sizeof head, "jks %zu /usr/lib/a store\njks 9 /broken\nnot a jks", n);
    buf_put(&b, head, strlen("jks ") + strcspn(head + 4, "\n") + 1);
    buf_put(&b, store, n);
    buf_puts(&b, strchr(head, '\n') + 1);
    struct buf first = heard(&w);
    buf_free(&first);
    say(&w, FR_DATA, CH_STDOUT, 1, b.p, 100);
    say(&w, FR_DATA, CH_STDERR, 1, "keytool: noise\n", 15);
    say(&w, FR_DATA, CH_STDOUT, 1, b.p + 100, b.n - 100);
    CHECK(!w.done);
    ends(&w, 1, EXIT_CODE, 0);
    CHECK(!w.done);
    struct buf sent = heard(&w);
    char size[16];
    snprintf(size, sizeof size, "%zu", n + 35 + w.der.n); /* tag, alias, date, type, length, certificate */
    CHECK(memmem(sent.p, sent.n, "/usr/lib/a store", 16));
    CHECK(memmem(sent.p, sent.n, "hutch-gate", 10) && memmem(sent.p, sent.n, w.der.p, w.der.n));
    CHECK(memmem(sent.p, sent.n, size, strlen(size)));
    ends(&w, 2, EXIT_CODE, 0);
    CHECK(w.done && w.ok); /* the broken one is left alone */
    buf_free(&sent), buf_free(&b);
    free(store);
    teardown(&w);
}
TEST(trust, what_the_inside_says_about_stores_is_bounded)
{
    static const char *const said[] = {"jks 5 /x\nab", "jks 99999999999999999999 /x\n", "jks -1 /x\nab", "jks 1 x\na", "jks \n", "jks 4 ", "hello\n"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct world w;
        setup(&w);
        say(&w, FR_DATA, CH_STDOUT, 1, said[i], strlen(said[i]));
        ends(&w, 1, EXIT_CODE, 0);
        CHECK(w.done && w.ok);
        teardown(&w);
    }
}
TEST(trust, the_channel_breaks)
{
    struct world w;
    setup(&w);
    agent_free(w.a);
    turns(&w);
    CHECK(w.done && !w.ok);
    w.a = agent_new(w.loop, fcntl(w.peer, F_DUPFD_CLOEXEC, 0), on_broken, &w);
    teardown(&w);
}
TEST_MAIN
