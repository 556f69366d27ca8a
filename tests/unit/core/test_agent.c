/* The host end of the channel against a scripted peer on a socketpair. */
#include "test.h"
#include "base/enc.h"
#include "base/fd.h"
#include "core/agent/agent.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

struct world { struct loop *loop; struct agent *a; int peer; bool broken; struct err why; int synced; bool done; struct err err; bool ok; struct buf data; int events; size_t room; struct call *call; };

static void on_broken(void *arg, const struct err *why)
{
    struct world *w = arg;
    w->broken = true, w->why = *why;
}
static void on_sync(void *arg, const struct err *e) { ((struct world *)arg)->synced = e ? -1 : 1; }
static void on_event(void *arg, uint8_t ev, struct rec r)
{
    (void)ev, (void)r;
    ((struct world *)arg)->events++;
}
static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    (void)chan;
    buf_put(&((struct world *)arg)->data, p, n);
}
static void on_room(void *arg)
{
    struct world *w = arg;
    w->room = call_room(w->call);
}
static void on_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct world *w = arg;
    w->done = true, w->ok = !e;
    if (e)
        w->err = *e;
}
static const struct call_ops ops = {.event = on_event, .data = on_data, .room = on_room, .done = on_done};

static void setup(struct world *w)
{
    int sv[2];
    memset(w, 0, sizeof *w);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
    w->loop = loop_new();
    w->peer = sv[1];
    w->a = agent_new(w->loop, sv[0], on_broken, w);
}
static void turns(struct world *w)
{
    for (int i = 0; i < 20; i++)
        loop_turn(w->loop, false);
}
/* read exactly one sync from the peer's side, ack it, return the epoch */
static uint32_t take_sync(struct world *w, bool flush)
{
    unsigned char b[SYNC_SIZE];
    size_t skip = flush ? FRAME_FLUSH : 0;
    for (size_t i = 0; i < skip;) {
        char junk[8192];
        ssize_t n = read(w->peer, junk, skip - i < sizeof junk ? skip - i : sizeof junk);
        CHECK(n > 0);
        for (ssize_t k = 0; k < n; k++)
            CHECK(junk[k] == 0);
        i += (size_t)n;
        turns(w);
    }
    CHECK_INT(fd_read_all(w->peer, b, sizeof b), SYNC_SIZE);
    CHECK(!memcmp(b, "\xff\xff\xff\xffHUTS", 8));
    uint32_t epoch = get_le32(b + 12);
    struct buf out = {0};
    frame_put_sync(&out, epoch, true, false);
    CHECK(fd_write_all(w->peer, out.p, out.n));
    buf_free(&out);
    return epoch;
}
static void say(struct world *w, uint32_t epoch, enum frame_type t, uint8_t chan, uint32_t stream, const void *p, size_t n)
{
    struct buf out = {0};
    frame_put(&out, epoch, t, chan, stream, p, n);
    CHECK(fd_write_all(w->peer, out.p, out.n));
    buf_free(&out);
}
static void teardown(struct world *w)
{
    agent_free(w->a);
    turns(w);
    close(w->peer);
    buf_free(&w->data);
    loop_free(w->loop);
}
static struct call *start_with(struct world *w, uint64_t credit)
{
    struct err e;
    struct buf b = {0};
    if (credit)
        rec_put_u64(&b, T_CREDIT, credit);
    w->call = agent_call(w->a, OP_PING, &b, &ops, w, &e);
    buf_free(&b);
    CHECK(w->call);
    return w->call;
}
static struct call *start(struct world *w) { return start_with(w, 0); }

TEST(agent, sync_and_answer)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    start(&w); /* may ride behind the sync */
    uint32_t ep = take_sync(&w, false);
    say(&w, ep, FR_RES, 0, 1, "\0", 1);
    turns(&w);
    CHECK_INT(w.synced, 1);
    CHECK(w.done && w.ok && !w.broken);
    teardown(&w);
}
TEST(agent, flush_goes_before_a_takeover_sync)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, true, on_sync, &w);
    turns(&w);
    take_sync(&w, true);
    turns(&w);
    CHECK_INT(w.synced, 1);
    teardown(&w);
}
TEST(agent, stale_bytes_before_the_ack_are_skipped)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    say(&w, 0x12345678, FR_DATA, CH_STDOUT, 9, "old output", 10);
    struct buf stale = {0};
    frame_put_sync(&stale, 0x1111, true, false); /* an ack of another epoch is not ours */
    CHECK(fd_write_all(w.peer, stale.p, stale.n));
    buf_free(&stale);
    turns(&w);
    CHECK_INT(w.synced, 0);
    take_sync(&w, false);
    turns(&w);
    CHECK_INT(w.synced, 1);
    CHECK(!w.broken);
    teardown(&w);
}
TEST(agent, a_malformed_frame_breaks_the_channel_and_fails_calls)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    start(&w);
    turns(&w);
    say(&w, ep ^ 1, FR_RES, 0, 1, "\0", 1); /* wrong epoch */
    turns(&w);
    CHECK(w.broken && w.done && !w.ok);
    CHECK_INT(w.why.code, E_GUEST);
    struct err e;
    CHECK(!agent_call(w.a, OP_PING, NULL, &ops, &w, &e));
    CHECK_INT(e.code, E_UNAVAILABLE);
    teardown(&w);
}
TEST(agent, frames_of_unknown_streams_are_ignored)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    say(&w, ep, FR_RES, 0, 777, "\0", 1);
    say(&w, ep, FR_DATA, CH_STDOUT, 778, "x", 1);
    turns(&w);
    CHECK(!w.broken);
    teardown(&w);
}
TEST(agent, refusals_carry_the_agents_words)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    start(&w);
    struct buf b = {0};
    buf_putc(&b, E_NOT_FOUND);
    rec_put_str(&b, T_MESSAGE, "path '/x' does not exist");
    say(&w, ep, FR_RES, 0, 1, b.p, b.n);
    buf_free(&b);
    turns(&w);
    CHECK(w.done && !w.ok);
    CHECK_INT(w.err.code, E_NOT_FOUND);
    CHECK_STR(w.err.msg, "path '/x' does not exist");
    teardown(&w);
}
TEST(agent, an_empty_or_impossible_answer_is_a_guest_error)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    start(&w);
    say(&w, ep, FR_RES, 0, 1, NULL, 0);
    turns(&w);
    CHECK(w.done && w.err.code == E_GUEST);
    w.done = false;
    start(&w);
    say(&w, ep, FR_RES, 0, 2, "\xee", 1);
    turns(&w);
    CHECK(w.done && w.err.code == E_GUEST);
    teardown(&w);
}
TEST(agent, sends_no_more_than_it_was_granted)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    struct call *c = start(&w);
    turns(&w);
    CHECK_INT(call_send(c, CH_STDIN, "hello", 5), 0);
    unsigned char grant[4];
    put_le32(grant, 3);
    say(&w, ep, FR_CREDIT, 0, 1, grant, 4);
    turns(&w);
    CHECK_INT(w.room, 3);
    CHECK_INT(call_send(c, CH_STDIN, "hello", 5), 3);
    CHECK_INT(call_room(c), 0);
    teardown(&w);
}
TEST(agent, takes_no_more_than_it_granted)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    struct call *c = start_with(&w, 5);
    say(&w, ep, FR_DATA, CH_STDOUT, 1, "hello", 5);
    turns(&w);
    CHECK(!w.broken && w.data.n == 5);
    call_credit(c, 3);
    say(&w, ep, FR_DATA, CH_STDERR, 1, "you", 3);
    turns(&w);
    CHECK(!w.broken && w.data.n == 8);
    say(&w, ep, FR_DATA, CH_STDOUT, 1, "!", 1);
    turns(&w);
    CHECK(w.broken && w.done && w.data.n == 8);
    CHECK_INT(w.why.code, E_GUEST);
    CHECK_STR(w.why.msg, "the sandbox's agent sent more than its flow-control credit");
    teardown(&w);
}
TEST(agent, a_command_takes_its_first_input_without_a_grant)
{
    static char first[CREDIT_INITIAL + 1];
    struct world w;
    struct err e;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    (void)take_sync(&w, false);
    w.call = agent_call(w.a, OP_START, NULL, &ops, &w, &e);
    CHECK(w.call != NULL);
    CHECK_INT(call_send(w.call, CH_STDIN, first, sizeof first), CREDIT_INITIAL);
    CHECK_INT(call_send(w.call, CH_STDIN, first, 1), 0);
    teardown(&w);
}
TEST(agent, nothing_is_called_after_cancel)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    uint32_t ep = take_sync(&w, false);
    call_cancel(start_with(&w, 4));
    say(&w, ep, FR_DATA, CH_STDOUT, 1, "late", 4);
    say(&w, ep, FR_EVENT, 0, 1, "\1", 1);
    say(&w, ep, FR_RES, 0, 1, "\0", 1);
    turns(&w);
    CHECK(!w.done && !w.data.n && !w.events && !w.broken);
    teardown(&w);
}
TEST(agent, the_end_of_the_stream_is_reported_as_gone)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    (void)take_sync(&w, false);
    start(&w);
    turns(&w);
    shutdown(w.peer, SHUT_RDWR);
    turns(&w);
    CHECK(w.broken && w.done);
    CHECK_INT(w.why.code, E_GONE);
    teardown(&w);
}
TEST(agent, free_fails_open_calls_once)
{
    struct world w;
    setup(&w);
    agent_sync(w.a, false, on_sync, &w);
    (void)take_sync(&w, false);
    start(&w);
    agent_free(w.a);
    CHECK(w.done && w.err.code == E_GONE && !w.broken);
    turns(&w);
    close(w.peer);
    loop_free(w.loop);
}
TEST_MAIN
