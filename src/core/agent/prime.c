#include "core/agent/prime.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/agent/agent.h"
#include <stdlib.h>

#define READY_MS 120000
#define ARGV(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

const struct prime_cmd prime_template[] = {
    {.argv = ARGV("/bin/sh", "-c", "true"), .timeout_ms = 20000},
    {.argv = ARGV("/bin/bash", "-l", "-c", "true"), .timeout_ms = 20000},
    {.argv = ARGV("python3", "-c", "import json, os, re, subprocess, math, random, datetime"),
     .timeout_ms = 30000},
    {.argv = ARGV("node", "-e", "1"), .timeout_ms = 30000},
    {.argv = ARGV("sudo", "-n", "true"), .timeout_ms = 20000},
    {.argv = ARGV("/bin/bash", "-c",
                  "ls / >/dev/null; cat /etc/hostname >/dev/null; git --version >/dev/null"),
     .timeout_ms = 20000},
    /* what is in memory here no clone reads from its disk */
    {.argv = ARGV(
         "/bin/bash", "-c",
         "for c in echo true env head tail wc sleep id date uname mkdir rm cp mv touch grep sed awk find sort tr tee xargs; do "
         "p=$(type -P $c) && cat $p >/dev/null && test -x $p; done"),
     .timeout_ms = 20000},
};
const size_t prime_template_n = sizeof prime_template / sizeof *prime_template;

const struct prime_cmd prime_pool[] = {
    {.argv = ARGV("/bin/echo"),
     .user = "user",
     .timeout_ms = 10000}, /* changing users is code to translate, too */
    {.argv = ARGV("/bin/sh", "-c", "true"), .timeout_ms = 10000},
    {.argv = ARGV("/bin/bash", "-l", "-c", "true"), .timeout_ms = 10000},
    {.argv = ARGV("python3", "-c", "import json; json.dumps({})"), .timeout_ms = 10000},
    {.argv = ARGV("/bin/echo"),
     .timeout_ms =
         10000}, /* again: a second one still meets some 700 stretches that the first did not */
};
const size_t prime_pool_n = sizeof prime_pool / sizeof *prime_pool;

struct prime {
    struct loop *loop;
    struct agent *agent;
    const struct prime_cmd *cmds;
    size_t n, at;
    struct call *call;
    struct call *back; /* the background one, watched until the others are through */
    int back_status;   /* what it ended with; -1: by a signal */
    bool ok;
    int64_t until;
    struct timer again;
    void (*done)(void *arg, const struct err *e);
    void *arg;
    /* prime_start's own list */
    char *text[2];
    const char *argv[2][4];
    struct prime_cmd own[2];
    struct err why; /* of prime_fail */
};

static void next(struct prime *p);
static void next_later(void *arg) { next(arg); }

static void prime_free(void *arg)
{
    struct prime *p = arg;
    free(p->text[0]), free(p->text[1]);
    free(p);
}

static void let_go(struct prime *p)
{
    timer_stop(&p->again);
    if (p->call)
        call_cancel(p->call);
    if (p->back)
        call_cancel(p->back); /* detaches: it runs on */
    p->call = p->back = NULL;
}

static void finish(struct prime *p, const struct err *e)
{
    let_go(p);
    p->done(p->arg, e);
    prime_free(p);
}

/* ---- the one that runs on: if it ends badly before the rest is through, all of it has failed ---- */
static void back_event(void *arg, uint8_t ev, struct rec r)
{
    struct prime *p = arg;
    if (ev == EV_STARTED) {
        p->back = p->call;
        p->call = NULL;
        p->at++, p->until = 0;
        timer_arm(&p->again, 0);
    }
    if (ev == EV_EXIT)
        p->back_status =
            rec_u64_or(r, T_EXIT_KIND, 0) == EXIT_CODE ? (int)rec_u64_or(r, T_EXIT_CODE, 1) : -1;
}
static void back_data(void *arg, uint8_t chan, const unsigned char *b, size_t n)
{
    struct prime *p = arg;
    (void)chan, (void)b;
    if (p->back)
        call_credit(p->back, n);
}
static void back_done(void *arg, const struct err *e, struct rec r)
{
    struct prime *p = arg;
    struct err why;
    (void)r;
    bool started = p->back;
    p->back = NULL;
    if (!started)
        p->call = NULL;
    if (!e && !p->back_status)
        return; /* it did what it had to */
    if (e)
        why = *e;
    else if (p->back_status < 0)
        err_set(&why, E_GUEST, "the start command '%.120s' was ended by a signal", p->text[0]);
    else
        err_set(&why, E_GUEST, "the start command '%.120s' failed with status %d", p->text[0],
                p->back_status);
    finish(p, &why);
}

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct prime *p = arg;
    if (ev == EV_EXIT)
        p->ok = rec_u64_or(r, T_EXIT_KIND, 0) == EXIT_CODE && rec_u64_or(r, T_EXIT_CODE, 1) == 0;
}
static void on_data(void *arg, uint8_t chan, const unsigned char *b, size_t n)
{
    (void)chan, (void)b;
    struct prime *p = arg;
    if (p->call)
        call_credit(p->call, n);
}
static void on_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct prime *p = arg;
    const struct prime_cmd *c = &p->cmds[p->at];
    p->call = NULL;
    if (e && (e->code == E_GONE || e->code == E_UNAVAILABLE)) {
        finish(p, e);
        return;
    }
    bool ok = !e && p->ok;
    if (!ok && c->retry_ms && clock_mono() < p->until) {
        timer_arm(&p->again, 500 * NS_PER_MS);
        return;
    }
    if (!ok && c->must) {
        struct err why;
        err_set(&why, E_GUEST, "'%s' %s", c->argv[0],
                e             ? e->msg
                : c->retry_ms ? "did not succeed in time"
                              : "failed");
        if (c->argv[1] && c->argv[2])
            err_set(&why, E_GUEST, "'%.120s' %s", c->argv[2],
                    e             ? e->msg
                    : c->retry_ms ? "did not succeed in time"
                                  : "failed");
        finish(p, &why);
        return;
    }
    p->at++;
    p->until = 0;
    next(p);
}

static void next(struct prime *p)
{
    static const struct call_ops ops = {.event = on_event, .data = on_data, .done = on_done};
    static const struct call_ops back = {.event = back_event, .data = back_data, .done = back_done};
    if (p->at == p->n) {
        finish(p, NULL);
        return;
    }
    const struct prime_cmd *c = &p->cmds[p->at];
    if (!p->until)
        p->until = clock_mono() + c->retry_ms * NS_PER_MS;
    p->ok = false;
    auto_buf b = {0};
    for (const char *const *a = c->argv; *a; a++)
        rec_put_str(&b, T_ARG, *a);
    rec_put_str(&b, T_USER, c->user);
    if (c->timeout_ms)
        rec_put_u64(&b, T_TIMEOUT_MS, c->timeout_ms);
    rec_put_u64(&b, T_CREDIT, 65536);
    struct err e;
    p->call = agent_call(p->agent, OP_START, &b, c->background ? &back : &ops, p, &e);
    if (!p->call)
        finish(p, &e);
}

struct prime *prime_run(struct loop *l, struct agent *a, const struct prime_cmd *cmds, size_t n,
                        void (*done)(void *arg, const struct err *e), void *arg)
{
    struct prime *p = xcalloc(1, sizeof *p);
    *p = (struct prime){.loop = l, .agent = a, .cmds = cmds, .n = n, .done = done, .arg = arg};
    timer_init(&p->again, l, next_later, p);
    timer_arm(&p->again, 0);
    return p;
}

struct prime *prime_start(struct loop *l, struct agent *a, const char *start, const char *ready,
                          void (*done)(void *arg, const struct err *e), void *arg)
{
    struct prime *p = prime_run(l, a, NULL, 0, done, arg);
    const char *const given[2] = {start, ready};
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            continue;
        p->text[i] = xstrdup(given[i]);
        p->argv[i][0] = "/bin/sh", p->argv[i][1] = "-c", p->argv[i][2] = p->text[i];
        p->own[p->n] = (struct prime_cmd){.argv = p->argv[i],
                                          .must = true,
                                          .background = i == 0,
                                          .retry_ms = i ? READY_MS : 0,
                                          .timeout_ms = i ? READY_MS : 0};
        p->n++;
    }
    p->cmds = p->own;
    return p;
}

void prime_cancel(struct prime *p)
{
    if (!p)
        return;
    let_go(p);
    loop_defer(p->loop, prime_free, p);
}

static void fail_later(void *arg)
{
    struct prime *p = arg;
    finish(p, &p->why);
}

void prime_fail(struct prime *p, const struct err *e)
{
    if (!p)
        return;
    let_go(p);
    p->why = *e;
    loop_defer(p->loop, fail_later, p);
}
