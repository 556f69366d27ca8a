/* OP_SERVE: the requests of one VM come in as a stream of bytes, are acted on
 * one after the other, and answered in that order. Bounded on both sides: the
 * next request waits while answers wait to be sent. */
#include "base/cleanup.h"
#include "guest/agent.h"
#include "guest/serve.h"
#include "wire/msg.h"
#include "wire/share.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define WINDOW    (512u << 10)
#define OUT_LIMIT (256u << 10)

struct served {
    struct stream s; /* first */
    struct serve serve;
    int root;
    struct buf in, out;
    size_t in_at, out_at;
};

static struct served *of(struct stream *s) { return container_of(s, struct served, s); }

/* 1: there was a whole request, 0: not yet, -1: nonsense */
static int one(struct agent *a, struct served *v)
{
    struct share_head head;
    size_t left = v->in.n - v->in_at;
    if (left < sizeof head)
        return 0;
    memcpy(&head, v->in.p + v->in_at, sizeof head);
    if (head.length < sizeof head || head.length > SHARE_MSG_MAX)
        return -1;
    if (left < head.length)
        return 0;
    if (serve_message(&v->serve, v->in.p + v->in_at, head.length, &v->out))
        return -1;
    v->in_at += head.length;
    if (v->in_at == v->in.n)
        v->in.n = v->in_at = 0;
    stream_consumed(a, &v->s, head.length);
    return 1;
}

static bool serve_run(struct agent *a, struct stream *s)
{
    struct served *v = of(s);
    int rc = 0;
    if (v->out.n - v->out_at < OUT_LIMIT)
        rc = one(a, v);
    if (rc < 0) {
        stream_end_err(a, s, &(struct err){.code = E_INVALID, .msg = "a request for the volume is malformed"});
        return false;
    }
    size_t n = v->out.n - v->out_at;
    if (n > RUN_CHUNK)
        n = RUN_CHUNK;
    if (n > s->tx)
        n = (size_t)s->tx;
    if (n)
        stream_data(a, s, CH_TUNNEL, v->out.p + v->out_at, (uint32_t)n);
    v->out_at += n;
    if (v->out_at == v->out.n)
        v->out.n = v->out_at = 0;
    return rc > 0 || (v->out.n && s->tx);
}

static void serve_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *p, uint32_t n)
{
    struct served *v = of(s);
    (void)chan;
    if (v->in_at) {
        buf_drop(&v->in, v->in_at);
        v->in_at = 0;
    }
    buf_put(&v->in, p, n); /* bounded by the credit we gave */
    stream_wake(a, s);
}

static void serve_drop(struct agent *a, struct stream *s)
{
    struct served *v = of(s);
    (void)a;
    serve_fini(&v->serve);
    cleanup_fd(&v->root);
    buf_free(&v->in), buf_free(&v->out);
}

static const struct stream_ops serve_ops = {.data = serve_data, .run = serve_run, .drop = serve_drop};

void op_serve(const struct req *q)
{
    struct err e = {0};
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        err_sys(&e, errno, "the volume");
        reply_err(q->a, q->id, &e);
        return;
    }
    struct served *v = stream_new(q, sizeof *v, &serve_ops);
    if (!v) {
        (void)close(root);
        return;
    }
    v->root = root;
    serve_init(&v->serve, root, rec_u64_or(q->rec, T_FLAGS, 0) & SHARE_RO);
    event_begin(q->a, EV_STARTED);
    event_send(q->a, q->id);
    stream_window(q->a, &v->s, WINDOW);
}
