#include "core/sandbox/tunnel.h"
#include "base/buf.h"
#include "core/agent/agent.h"
#include "core/host/host.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/object.h"

#define WINDOW (256 * 1024)

struct tunnel {
    struct core *core;
    struct call *call;
    struct tunnel_ops ops;
    void *arg;
    size_t owed;
    bool up;
};

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct tunnel *t = arg;
    (void)r;
    if (ev != EV_STARTED || t->up)
        return;
    t->up = true;
    t->ops.up(t->arg);
}
static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct tunnel *t = arg;
    if (chan == CH_TUNNEL && t->up)
        t->ops.data(t->arg, p, n);
    else
        tunnel_consumed(t, n);
}
static void on_eof(void *arg, uint8_t chan)
{
    struct tunnel *t = arg;
    if (chan == CH_TUNNEL && t->ops.eof)
        t->ops.eof(t->arg);
}
static void on_room(void *arg)
{
    struct tunnel *t = arg;
    if (t->up && t->ops.room)
        t->ops.room(t->arg);
}
static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct tunnel *t = arg;
    (void)r;
    t->call = NULL;
    t->ops.done(t->arg, e);
    loop_defer(t->core->loop, free, t);
}

struct tunnel *tunnel_open(struct sandbox *sb, unsigned port, const struct tunnel_ops *o, void *arg,
                           struct err *e)
{
    static const struct call_ops ops = {
        .event = on_event, .data = on_data, .eof = on_eof, .room = on_room, .done = on_done};
    struct agent *a = sandbox_agent(sb, e);
    if (!a)
        return NULL;
    auto_buf b = {0};
    rec_put_u64(&b, T_PORT, port);
    rec_put_u64(&b, T_CREDIT, WINDOW);
    struct tunnel *t = xcalloc(1, sizeof *t);
    *t = (struct tunnel){.core = sb->core, .ops = *o, .arg = arg};
    t->call = agent_call(a, OP_CONNECT, &b, &ops, t, e);
    if (!t->call) {
        free(t);
        return NULL;
    }
    return t;
}
size_t tunnel_room(const struct tunnel *t) { return t->call && t->up ? call_room(t->call) : 0; }
size_t tunnel_send(struct tunnel *t, const void *p, size_t n)
{
    return t->call ? call_send(t->call, CH_TUNNEL, p, n) : 0;
}
void tunnel_eof(struct tunnel *t)
{
    if (t->call)
        call_eof(t->call, CH_TUNNEL);
}
void tunnel_consumed(struct tunnel *t, size_t n)
{
    t->owed += n;
    if (t->call && t->owed >= WINDOW / 4) {
        call_credit(t->call, t->owed);
        t->owed = 0;
    }
}
void tunnel_close(struct tunnel *t)
{
    if (!t->call)
        return; /* inside its own done */
    call_cancel(t->call);
    t->call = NULL;
    loop_defer(t->core->loop, free, t);
}
