/* A new policy for a sandbox that is there:
 *
 *   network_set → presets → change_begin (waits for a transition) → certificate → change_trusted → the gate
 *   → change_in_force → keep: the row, what belongs inside → change_over
 *
 * One that closes the network overtakes any other at every step. It is done when the gate
 * says so, or when there is no gate; one that does not answer is killed. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "core/box/box.h"
#include "core/life/life_int.h"
#include "core/network/object.h"
#include "core/network/secret.h"
#include "core/catalog/snapshot.h"
#include "core/life/transit.h"
#include "core/agent/trust.h"
#include <stdlib.h>
#include <string.h>

struct network_change {
    struct core *core;
    char id[22];
    struct network *next;
    struct kv values;
    network_cb *cb;
    void *arg;
    bool env, trusted; /* its environment changes with it; the certificate is inside */
    bool closes;       /* to mode none */
    bool insisted;     /* the gate did not answer and was killed */
};

/* A later one that closes the network does not wait for an earlier one: that may take minutes, and the sandbox decides how many. */
static bool overtaken(const struct network_change *g, const struct sandbox *sb, struct err *e)
{
    if (!sb || sb->net_change == g)
        return false;
    err_set(e, E_CANCELED, "the sandbox's network was closed before this change took effect");
    return true;
}

static void change_over(struct network_change *g, const struct err *e, uint64_t cut)
{
    struct sandbox *sb = sandbox_at(g->core, g->id);
    if (sb && sb->net_change == g) {
        sb->net_change = NULL;
        if (e && sb->box && !sb->box->removing && e->code != E_CANCELED)
            network_enforce(sb, sb->net, NULL, NULL); /* what was in force stays so */
        secrets_of_sandbox_drop(sb->core, sb->id, sb->net->text);
    }
    g->cb(g->arg, e, cut);
    network_delete(g->next);
    network_values_free(&g->values);
    free(g);
}

static bool is_live(const struct sandbox *sb)
{
    return sb->box && sb->box->phase == BOX_LIVE && sb->state == SB_RUNNING;
}

static void keep(struct network_change *g, struct sandbox *sb)
{
    network_delete(sb->net);
    sb->net = take_ptr(&g->next);
    kept_set(&sb->kept.policy, sb->net->text);
    network_keep_ca(sb);
    if (g->env && !(g->trusted && is_live(sb)))
        sb->kept.network_due = true;
    sandbox_store(sb, NULL, NULL);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    network_put(&w, sb);
    event_emit(sb->core, "network.policy", sandbox_tenant(sb), sb->id, b.p);
}

static void env_set(void *arg, struct box *b, const struct err *e)
{
    (void)arg, (void)b;
    if (e)
        log_warn("network: the sandbox's environment: %s", e->msg);
}

struct waking {
    struct core *core;
    char id[22];
    void (*cb)(void *arg);
    void *arg;
};

static void wake_trusted(void *arg, const struct err *e)
{
    struct waking w = *(struct waking *)arg;
    struct sandbox *sb = sandbox_at(w.core, w.id);
    free(arg);
    if (e)
        log_warn("sandbox %s: network: %s", w.id,
                 e->msg); /* the next time it wakes up it is tried again */
    else if (sb && is_live(sb)) {
        sb->kept.network_due = false;
        sandbox_store(sb, NULL, NULL);
        sandbox_tell_identity(sb, env_set, NULL);
    }
    if (w.cb)
        w.cb(w.arg);
}

bool network_wake(struct sandbox *sb, void (*cb)(void *arg), void *arg)
{
    struct err e;
    if (!sb->kept.network_due || !is_live(sb))
        return false;
    struct waking *w = xcalloc(1, sizeof *w);
    *w = (struct waking){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(w->id, sb->id, sizeof w->id);
    if (!sb->net->ca_cert)
        wake_trusted(w, NULL);
    else if (trust_install(sb->box->agent, sb->net->ca_cert, wake_trusted, w, &e))
        wake_trusted(w, &e);
    return true;
}

/* A gate that does not answer may still let through what the old policy allows. True: it is waited for once more, another one. */
static bool insist(struct network_change *g, struct sandbox *sb, egress_cb *again)
{
    struct err e;
    if (g->insisted || egress_kill(g->core, &e))
        return false;
    g->insisted = true;
    network_enforce(sb, g->next, again, g);
    return true;
}

static void change_in_force(void *arg, const struct err *e, uint64_t cut)
{
    struct network_change *g = arg;
    struct sandbox *sb = sandbox_at(g->core, g->id);
    struct err gone;
    if (!sb)
        err_set(&gone, E_GONE, "the sandbox ended in the meantime");
    if (!sb || overtaken(g, sb, &gone)) {
        change_over(g, &gone, 0);
        return;
    }
    if (e && !(g->closes && e->code == E_UNAVAILABLE)) {
        change_over(g, e, 0);
        return;
    }
    struct err late = {0};
    if (e && egress_running(
                 g->core)) { /* else closing needs nobody: without a gate nothing leaves anyway */
        if (insist(g, sb, change_in_force))
            return;
        err_why(
            &late, REASON_HOST_CANNOT, E_UNAVAILABLE,
            "the network gate (hutch-egress) has not confirmed that the network is closed; mode \"none\" is kept and comes into force as soon as it answers, but until then connections may continue; see log/egress.log");
    }
    keep(g, sb);
    if (late.code) {
        change_over(g, &late, 0);
        return;
    }
    if (!network_wake(sb, NULL, NULL) && g->env && is_live(sb))
        sandbox_tell_identity(sb, env_set, NULL);
    change_over(g, NULL, cut);
}

static void change_trusted(void *arg, const struct err *e)
{
    struct network_change *g = arg;
    struct sandbox *sb = sandbox_at(g->core, g->id);
    struct err gone;
    if (!e && (!sb || !sb->box || sb->box->removing)) {
        err_set(&gone, E_GONE, "the sandbox ended or was paused in the meantime");
        e = &gone;
    }
    if (overtaken(g, sb, &gone))
        e = &gone;
    if (e) {
        change_over(g, e, 0);
        return;
    }
    network_keep_values(sb, &g->values);
    network_enforce(sb, g->next, change_in_force, g);
}

static void trust_installed(void *arg, const struct err *e)
{
    struct network_change *g = arg;
    struct sandbox *sb = sandbox_at(g->core, g->id);
    if (sb)
        sb->net_trusting = false;
    g->trusted = !e;
    change_trusted(g, e);
}

static void change_begin(void *arg, const struct err *e);
static void change_settled(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)sb, (void)e;
    change_begin(arg, NULL);
}

static void change_begin(void *arg, const struct err *e)
{
    struct network_change *g = arg;
    struct sandbox *sb = sandbox_at(g->core, g->id);
    struct err why = {0};
    if (e)
        why = *e;
    else if (!sb || sb->state == SB_GONE || sb->state == SB_STOPPING || sb->state == SB_FAILED)
        err_set(&why, E_GONE, "the sandbox ended in the meantime");
    else if (overtaken(g, sb, &why))
        ;
    else if (sb->transit) { /* what is half asleep may have been given the old policy already */
        transit_wait(sb->transit, change_settled, g, true);
        return;
    }
    if (why.code || (!g->closes && network_need_ca(sb, g->next, &why))) {
        change_over(g, &why, 0);
        return;
    }
    bool new_ca = !g->closes && g->next->ca_cert && !sb->net->ca_cert;
    g->env = !g->closes && (g->next->npresets || new_ca);
    g->trusted = !new_ca;
    if (!sb->box) { /* paused, on disk: the gate is told when it wakes up */
        network_keep_values(sb, &g->values);
        keep(g, sb);
        change_over(g, NULL, 0);
    } else if (
        g->trusted ||
        !is_live(
            sb)) { /* in standby it is the gate's at once; what belongs inside is brought when it wakes up */
        change_trusted(g, NULL);
    } else if (trust_install(sb->box->agent, g->next->ca_cert, trust_installed, g, &why)) {
        change_over(g, &why, 0);
    } else {
        sb->net_trusting = true;
    }
}

int network_set(struct sandbox *sb, const struct network_spec *s, network_cb *cb, void *arg,
                struct err *e)
{
    if (sb->state == SB_FAILED)
        return sandbox_ended_err(sb, e);
    if (sb->state != SB_RUNNING && sb->state != SB_PAUSED)
        return err_set(e, sb->state == SB_GONE ? E_NOT_FOUND : E_CONFLICT, "sandbox %s is %s",
                       sb->id, state_name(sb->state));
    struct network *next = network_new(sb->core, s->text);
    bool closes = policy_mode(next->policy) == POLICY_NONE;
    if (!closes &&
        (sb->net_change || sb->net_trusting)) { /* two certificates at once would be none */
        network_delete(next);
        return err_set(e, E_CONFLICT, "another change of this sandbox's network is in progress");
    }
    struct network_change *g = xcalloc(1, sizeof *g);
    *g = (struct network_change){
        .core = sb->core, .cb = cb, .arg = arg, .next = next, .closes = closes};
    memcpy(g->id, sb->id, sizeof g->id);
    kv_copy(&g->values, &s->values);
    network_load_ca(sb, g->next);
    sb->net_change = g;
    timer_stop(&sb->net_later);
    /* what it would lead to if it were open does not matter now, and may take long to find out */
    presets_load(sb->core, (const char *const *)g->next->preset, closes ? 0 : g->next->npresets,
                 change_begin, g);
    return 0;
}
