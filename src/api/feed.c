#include "api/feed.h"
#include "api/api.h"
#include "base/clock.h"
#include "core/sandbox/exec.h"
#include "core/sandbox/sandbox.h"
#include <stdio.h>
#include <stdlib.h>

#define PIECE    (60 * 1024)
#define AGAIN_NS (20 * NS_PER_MS) /* the process has its fill unread: offer the piece again after this */

struct feed {
    struct core *core;
    struct loop *loop; /* outlives core, whose end may be what calls back last */
    char sandbox[22];
    char *who;
    struct feed_ops ops;
    void *arg;
    struct buf queue;
    size_t piece;  /* bytes of the queue on their way */
    bool waiting, finish, close, closing, over;
    struct timer again;
};

static void bury(void *arg)
{
    struct feed *f = arg;
    timer_stop(&f->again);
    buf_free(&f->queue);
    free(f->who);
    free(f);
}

static void end(struct feed *f, const struct err *e)
{
    if (f->over)
        return;
    f->over = true;
    if (f->ops.done)
        f->ops.done(f->arg, e);
    if (!f->waiting)
        loop_defer(f->loop, bury, f);
}

static void step(struct feed *f);

static void on_taken(void *arg, const struct err *e)
{
    struct feed *f = arg;
    f->waiting = false;
    if (f->over) {
        loop_defer(f->loop, bury, f);
        return;
    }
    if (e && e->code == E_QUOTA && !f->closing) {
        f->waiting = true; /* nothing of it was taken; the writer waits as on a full pipe */
        timer_arm(&f->again, AGAIN_NS);
        return;
    }
    buf_drop(&f->queue, f->piece);
    f->piece = 0;
    if (e || f->closing)
        end(f, e);
    else
        step(f);
}

static void on_again(void *arg)
{
    struct feed *f = arg;
    f->waiting = false;
    if (f->over)
        loop_defer(f->loop, bury, f);
    else
        step(f);
}

static void step(struct feed *f)
{
    struct err e;
    if (f->waiting || f->over)
        return;
    if (!f->queue.n && !f->finish) {
        if (f->ops.idle)
            f->ops.idle(f->arg);
        return;
    }
    if (!f->queue.n && !f->close) {
        end(f, NULL);
        return;
    }
    struct sandbox *sb = sandbox_find(f->core, f->sandbox, &e);
    int failed = !sb;
    if (sb && f->queue.n) {
        f->piece = f->queue.n < PIECE ? f->queue.n : PIECE;
        failed = exec_write(sb, f->who, f->queue.p, f->piece, on_taken, f, &e);
    } else if (sb) {
        f->closing = true;
        failed = exec_close_stdin(sb, f->who, on_taken, f, &e);
    }
    f->waiting = !failed;
    if (failed)
        end(f, &e);
}

struct feed *feed_new(struct api *a, const char *sandbox, const char *who, const struct feed_ops *ops, void *arg)
{
    struct feed *f = xcalloc(1, sizeof *f);
    f->core = api_core(a);
    f->loop = core_loop(f->core);
    timer_init(&f->again, f->loop, on_again, f);
    (void)snprintf(f->sandbox, sizeof f->sandbox, "%s", sandbox);
    f->who = xstrdup(who);
    if (ops)
        f->ops = *ops;
    f->arg = arg;
    return f;
}

void feed_put(struct feed *f, const void *p, size_t n)
{
    if (f->over || !n)
        return;
    buf_put(&f->queue, p, n);
    step(f);
}

bool feed_busy(const struct feed *f) { return f->queue.n > 0; }

void feed_finish(struct feed *f, bool close)
{
    f->finish = true;
    f->close = close;
    step(f);
}

void feed_drop(struct feed *f)
{
    if (!f || f->over)
        return;
    f->over = true;
    if (!f->waiting)
        loop_defer(f->loop, bury, f);
}
