#include "core/volume/share.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/agent/agent.h"
#include "loop/loop.h"

#define WINDOW (512 * 1024)
#define UP_NS  (20 * NS_PER_S)

struct end {
    struct share *share;
    struct call *call;
    struct end *other;
    struct buf in;
    bool up;
}; /* in: from here, not yet taken by the other */
struct share {
    struct loop *loop;
    struct end vm, keeper;
    struct share_ops ops;
    void *arg;
    struct timer deadline;
    bool over;
};

static void bury(void *arg)
{
    struct share *s = arg;
    buf_free(&s->vm.in), buf_free(&s->keeper.in);
    free(s);
}

void share_close(struct share *s)
{
    if (!s || s->over)
        return;
    s->over = true;
    timer_stop(&s->deadline);
    if (s->vm.call)
        call_cancel(s->vm.call);
    if (s->keeper.call)
        call_cancel(s->keeper.call);
    loop_defer(s->loop, bury, s);
}

static void fail(struct share *s, const struct err *e)
{
    if (s->over)
        return;
    struct err copy = *e;
    share_close(s);
    s->ops.down(s->arg, &copy);
}

static void on_deadline(void *arg)
{
    struct share *s = arg;
    struct err e;
    err_set(&e, E_TIMEOUT, "%s did not answer within %d s",
            s->vm.up ? "the volume's keeper" : "the sandbox", (int)(UP_NS / NS_PER_S));
    fail(s, &e);
}

/* From `from` to the other side, as far as that one takes it. */
static void move(struct end *from)
{
    struct end *to = from->other;
    if (!to->call || !from->call || !from->in.n)
        return;
    size_t n = call_send(to->call, CH_TUNNEL, from->in.p, from->in.n);
    buf_drop(&from->in, n);
    call_credit(from->call, n);
}

static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct end *from = arg;
    (void)chan;
    if (from->share->over)
        return;
    size_t taken =
        from->in.n || !from->other->call ? 0 : call_send(from->other->call, CH_TUNNEL, p, n);
    if (taken)
        call_credit(from->call, taken);
    if (taken == n)
        return;
    if (from->in.n + (n - taken) > 2 * WINDOW) {
        struct err e;
        err_set(&e, E_GUEST, "more bytes than requested");
        fail(from->share, &e);
        return;
    }
    buf_put(&from->in, p + taken, n - taken);
}

static void on_room(void *arg)
{
    struct end *to = arg;
    if (!to->share->over)
        move(to->other);
}

static void on_event(void *arg, uint8_t event, struct rec r)
{
    struct end *end = arg;
    struct share *s = end->share;
    (void)r;
    if (event != EV_STARTED || end->up || s->over)
        return;
    end->up = true;
    if (!end->other->up)
        return;
    timer_stop(&s->deadline);
    s->ops.up(s->arg);
}

static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct end *end = arg;
    struct err none;
    (void)r;
    end->call = NULL;
    if (!e)
        err_set(&none, E_GUEST, "it ended unexpectedly"), e = &none;
    fail(end->share, e);
}

static int begin(struct end *end, struct agent *a, enum agent_op op, const struct buf *body,
                 struct err *e)
{
    static const struct call_ops ops = {
        .event = on_event, .data = on_data, .room = on_room, .done = on_done};
    end->call = agent_call(a, op, body, &ops, end, e);
    return end->call ? 0 : -1;
}

struct share *share_open(struct agent *vm, struct agent *keeper, const char *volume,
                         const char *path, unsigned flags, const struct share_ops *ops, void *arg,
                         struct err *e)
{
    struct share *s = xcalloc(1, sizeof *s);
    auto_buf serve = {0}, share = {0};
    s->loop = agent_loop(vm), s->ops = *ops, s->arg = arg;
    s->vm.share = s->keeper.share = s;
    s->vm.other = &s->keeper, s->keeper.other = &s->vm;
    timer_init(&s->deadline, s->loop, on_deadline, s);
    rec_put_u64(&serve, T_CREDIT, WINDOW);
    rec_put_u64(&serve, T_FLAGS, flags & SHARE_RO);
    rec_put_str(&share, T_PATH, path);
    rec_put_str(&share, T_NAME, volume);
    rec_put_u64(&share, T_CREDIT, WINDOW);
    rec_put_u64(&share, T_FLAGS, flags);
    if (begin(&s->keeper, keeper, OP_SERVE, &serve, e) || begin(&s->vm, vm, OP_SHARE, &share, e)) {
        share_close(s);
        return NULL;
    }
    timer_arm(&s->deadline, UP_NS);
    return s;
}
