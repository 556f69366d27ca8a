#include "core/code/warm.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/agent/agent.h"
#include "core/code/context.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/code/kernels.h"
#include "json/read.h"
#include <string.h>

#define LIMIT_NS (180 * NS_PER_S) /* of one kernel; a JVM under emulation is slow */
#define CREDIT   (64u << 10)
#define REHEARSE "{\"op\":\"adopt\",\"sandbox\":\"nobody\",\"env\":{}}\n{\"op\":\"rehearse\"}\n"

struct warm {
    struct core *core;
    struct agent *agent;
    unsigned left;          /* languages not begun */
    enum language language; /* the one at work */
    enum warm_how how;
    struct call *call;
    struct buf in;
    bool ready, rehearsed, dead;
    bool asking; /* kernels_ensure has us */
    struct timer limit;
    struct err why; /* it could not even begin */
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void warm_free(void *arg)
{
    struct warm *w = arg;
    buf_free(&w->in);
    free(w);
}

static void finish(struct warm *w, const struct err *e)
{
    struct err copy;
    timer_stop(&w->limit);
    if (w->call)
        call_cancel(w->call);
    w->call = NULL;
    if (e) {
        copy = *e;
        err_wrap(&copy, "the template's %s kernel", language_name(w->language));
    }
    w->done(w->arg, e ? &copy : NULL);
    loop_defer(w->core->loop, warm_free, w);
}

static void next(struct warm *w);
static void next_later(void *arg) { next(arg); }

static void on_limit(void *arg)
{
    struct err e;
    struct warm *w = arg;
    err_set(&e, E_TIMEOUT, "it was not ready within %d s", (int)(LIMIT_NS / NS_PER_S));
    finish(w, &e);
}

/* It runs on by itself: a canceled stream only detaches. */
static void let_go(struct warm *w)
{
    call_cancel(w->call);
    w->call = NULL;
    timer_stop(&w->limit);
    timer_init(&w->limit, w->core->loop, next_later, w);
    timer_arm(&w->limit, 0);
}

static void on_line(struct warm *w, const char *p, size_t n)
{
    auto_json j = json_parse_obj(p, n, NULL);
    struct str ev = {0};
    if (!j || json_str(j, "ev", &ev, true, NULL))
        return;
    if (str_eqz(ev, "ready") && !w->ready) {
        w->ready = true;
        (void)call_send(w->call, CH_STDIN, REHEARSE,
                        strlen(REHEARSE)); /* fits: nothing was sent before */
    } else if (str_eqz(ev, "rehearsed")) {
        w->rehearsed = true;
    }
}

static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct warm *w = arg;
    char *nl;
    if (chan == CH_STDOUT && w->in.n + n <= CREDIT)
        buf_put(&w->in, p, n);
    call_credit(w->call, n);
    while (w->in.n && (nl = memchr(w->in.p, '\n', w->in.n))) {
        size_t len = (size_t)(nl - w->in.p);
        on_line(w, w->in.p, len);
        buf_drop(&w->in, len + 1);
    }
    if (w->rehearsed)
        let_go(w);
}

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct warm *w = arg;
    (void)r;
    if (ev == EV_STARTED && w->how == WARM_REHEARSE)
        (void)call_send(w->call, CH_STDIN, REHEARSE, strlen(REHEARSE));
}

static void on_done(void *arg, const struct err *e, struct rec r)
{
    struct warm *w = arg;
    struct err ended;
    (void)r;
    w->call = NULL;
    err_set(&ended, E_GUEST, "it ended before it was ready");
    finish(w, e ? e : &ended);
}

static void next(struct warm *w)
{
    static const struct call_ops ops = {.event = on_event, .data = on_data, .done = on_done};
    struct kernel_cmd cmd;
    struct err e;
    char tag[CONTEXT_TAG];
    timer_stop(&w->limit);
    if (!w->left) {
        finish(w, NULL);
        return;
    }
    w->language = (enum language)__builtin_ctz(w->left);
    w->left &= w->left - 1;
    w->ready = w->how == WARM_REHEARSE, w->rehearsed = false;
    w->in.n = 0;
    auto_buf b = {0};
    context_tag(w->language, NULL, tag);
    rec_put_str(&b, T_TAG, tag);
    rec_put_u64(&b, T_CREDIT, CREDIT);
    if (w->how == WARM_START) {
        kernels_command(w->core, w->language, true, &cmd);
        for (const char *const *a = cmd.argv; *a; a++)
            rec_put_str(&b, T_ARG, *a);
        rec_put_u64(&b, T_STDIN, 1);
    } else {
        rec_put_u64(&b, T_OFFSET, UINT64_MAX);
    }
    w->call = agent_call(w->agent, w->how == WARM_START ? OP_START : OP_ATTACH, &b, &ops, w, &e);
    if (!w->call) {
        finish(w, &e);
        return;
    }
    timer_init(&w->limit, w->core->loop, on_limit, w);
    timer_arm(&w->limit, LIMIT_NS);
}

static void files_there(void *arg, const struct err *e)
{
    struct warm *w = arg;
    w->asking = false;
    if (w->dead)
        warm_free(w);
    else if (e)
        finish(w, e);
    else
        next(w);
}

static void fail_later(void *arg)
{
    struct warm *w = arg;
    finish(w, &w->why);
}

struct warm *warm_run(struct core *c, struct agent *a, unsigned kernels, enum warm_how how,
                      void (*done)(void *arg, const struct err *e), void *arg)
{
    struct warm *w = xcalloc(1, sizeof *w);
    *w =
        (struct warm){.core = c, .agent = a, .left = kernels, .how = how, .done = done, .arg = arg};
    bool need_files = kernels && how == WARM_START;
    w->asking = need_files && !kernels_ensure(c, a, files_there, w, &w->why);
    timer_init(&w->limit, c->loop, need_files ? fail_later : next_later, w);
    if (!w->asking)
        timer_arm(&w->limit, 0);
    return w;
}

void warm_cancel(struct warm *w)
{
    if (!w)
        return;
    w->dead = true;
    timer_stop(&w->limit);
    if (w->call)
        call_cancel(w->call);
    w->call = NULL;
    if (!w->asking) /* else the end of the agent brings us back to files_there */
        loop_defer(w->core->loop, warm_free, w);
}
