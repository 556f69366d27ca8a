/* A box gets its identity: woken, its channel taken, its agent told who it is. And
 * how it stands still between two lives: at rest in the pool, or frozen. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "tier/machine.h"
#include "core/agent/agent.h"
#include "core/box/box_int.h"
#include "spawn/client.h"
#include <stdio.h>
#include <string.h>

#define CONFIGURE_NS (30 * NS_PER_S)
#define BOOT_NS      (120 * NS_PER_S)
#define LATE_NS      (40 * NS_PER_MS) /* a clock further behind is set again */

void box_overdue(void *arg)
{
    struct box *b = arg;
    struct err e;
    err_why(&e, b->booting ? REASON_GUEST_BOOT : REASON_TIMEOUT, E_TIMEOUT,
            "the sandbox was not ready within %d s",
            (int)((b->booting ? BOOT_NS : CONFIGURE_NS) / NS_PER_S));
    box_finish(b, &e);
}

/* ---- configure ---- */
static void clock_set(void *arg, const struct err *e, struct rec r)
{
    (void)arg, (void)r;
    if (e)
        log_warn("clock: %s", e->msg); /* it ends, or is about to be found broken */
}

/* What it was told is as old as the telling took, which on a busy host is long. Nothing is waited for: calls that follow come
 * after it on the channel. */
static void set_clock_again(struct box *b)
{
    static const struct call_ops ops = {.done = clock_set};
    struct err e;
    auto_buf rec = {0};
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)clock_wall());
    if (!agent_call(b->agent, OP_THAW, &rec, &ops, NULL, &e))
        log_warn("box %s: clock: %s", b->id, e.msg);
}

static void configured(void *arg, const struct err *e, struct rec r)
{
    struct box *b = arg;
    if (b->removing)
        return;
    if (!e) {
        struct str k;
        if (rec_get(r, T_KERNEL, &k) && str_utf8(k))
            (void)snprintf(b->kernel, sizeof b->kernel, "%.*s", (int)(k.n > 79 ? 79 : k.n), k.p);
        if (!b->waits_on)
            b->phase = BOX_LIVE;
        b->booting = false;
        if (b->on_time &&
            rec_u64_or(r, T_WALL_NS, UINT64_MAX) <
                (uint64_t)(clock_wall() -
                           LATE_NS)) /* the guest's word: compared, not reckoned with */
            set_clock_again(b);
    }
    box_finish(b, e);
}

static void send_identity(struct box *b)
{
    static const struct call_ops ops = {.done = configured};
    struct err e;
    rec_put_u64(&b->identity, T_WALL_NS, (uint64_t)clock_wall());
    struct call *c = agent_call(b->agent, OP_CONFIGURE, &b->identity, &ops, b, &e);
    buf_free(&b->identity);
    if (!c)
        box_finish(b, &e);
}

static void synced(void *arg, const struct err *e)
{
    struct box *b = arg;
    if (e)
        return; /* the configure call that rides behind fails with the same reason */
    b->synced = true;
}

static void woken(void *arg, struct machine *m, const struct err *e)
{
    (void)m;
    struct box *b = arg;
    if (b->removing)
        return;
    if (!e && b->identity.n)
        send_identity(b);
    if (!e)
        return;
    if (b->cb)
        box_finish(b, e);
    else
        b->wake_err = *e;
}

void box_wake(struct box *b)
{
    if (b->awake)
        return;
    b->awake = true;
    if (!b->restored || b->phase == BOX_READY)
        (void)machine_wake(b->machine, woken, b); /* false: it runs already */
    b->restored = true;
}

static void raised(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("priority: %s", rep->err.msg);
}

static void put_identity(struct buf *rec, const struct box *b, const struct box_identity *id)
{
    unsigned char entropy[64];
    random_bytes(entropy, sizeof entropy);
    rec_put(rec, T_ENTROPY, entropy, sizeof entropy);
    rec_put_str(rec, T_HOSTNAME, id->hostname);
    rec_put_str(rec, T_MACHINE_ID,
                id->machine_id ? id->machine_id : "00000000000000000000000000000000");
    rec_put_u64(rec, T_GENERATION, id->generation);
    rec_put_str(rec, T_SANDBOX, id->sandbox);
    rec_put_str(rec, T_USER, id->user);
    rec_put_str(rec, T_CWD, id->workdir);
    rec_put_u64(rec, T_FLAGS,
                (tier_can(b->spec.tier, TIER_KERNEL) ? 0u : CFG_NO_CLOCK) |
                    (id->prime ? CFG_PRIME : 0u) | (id->takeover ? CFG_TAKEOVER : 0u) |
                    (id->rehearsal ? CFG_REHEARSAL : 0u) | (id->resume ? CFG_RESUME : 0u));
    char **env = id->env ? kv_to_env(id->env) : NULL;
    for (char **p = env; p && *p; p++)
        rec_put_str(rec, T_ENV, *p);
    env_free(env);
    for (size_t i = 0; id->files && i < id->files->n; i++) {
        size_t mark = rec_open(rec, T_FILE);
        rec_put_str(rec, T_PATH, id->files->at[i].k);
        rec_put_u64(rec, T_MODE, 0644);
        rec_put(rec, T_BYTES, id->files->at[i].v, strlen(id->files->at[i].v));
        rec_close(rec, mark);
    }
}

void box_configure(struct box *b, const struct box_identity *id, box_cb *cb, void *arg)
{
    struct err e = {0};
    b->cb = cb, b->cb_arg = arg;
    timer_arm(&b->deadline, b->booting ? BOOT_NS : CONFIGURE_NS);
    b->waits_on = id->resume || id->rehearsal;
    b->on_time = tier_can(b->spec.tier, TIER_KERNEL) && !b->waits_on && !id->prime && !id->takeover;
    if (b->wake_err.code) {
        e = b->wake_err;
        box_finish(b, &e);
        return;
    }
    box_wake(b);
    if (!b->synced)
        agent_sync(b->agent, b->torn || b->phase == BOX_LIVE /* adopted */, synced, b);
    if (b->low_priority && !id->prime && !id->rehearsal) {
        b->low_priority = false;
        struct sp_req q = {.op = SP_LIMITS};
        memcpy(q.u.limits.id, b->id, sizeof b->id);
        q.u.limits.limit = box_limit(&b->spec);
        q.u.limits.raise_priority = 1;
        if (spawn_call(b->core->spawn, &q, NULL, 0, raised, NULL, &e))
            log_warn("box %s: priority: %s", b->id, e.msg);
    }
    buf_free(&b->identity);
    put_identity(&b->identity, b, id);
    if (!machine_waking(
            b->machine)) /* else the time in it would be from before its memory was read */
        send_identity(b);
}

/* ---- stand still ---- */
static void rested(void *arg, struct machine *m, const struct err *e)
{
    (void)m;
    struct box *b = arg;
    if (b->removing)
        return;
    if (!e)
        b->phase = BOX_READY, b->awake = false;
    box_finish(b, e);
}

static void rests_anyway(void *arg)
{
    struct box *b = arg;
    if (!b->removing)
        box_finish(b, NULL);
}

void box_rest(struct box *b, box_cb *cb, void *arg)
{
    b->cb = cb, b->cb_arg = arg;
    if (tier_can(b->spec.tier, TIER_VARIANTS))
        machine_hold(b->machine, true, rested, b);
    else
        loop_defer(b->core->loop, rests_anyway, b);
}

static void held(void *arg, struct machine *m, const struct err *e)
{
    (void)m;
    box_finish(arg, e);
}

void box_hold(struct box *b, bool on, box_cb *cb, void *arg)
{
    b->cb = cb, b->cb_arg = arg;
    machine_hold(b->machine, on, held, b);
}
