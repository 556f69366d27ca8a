/* The boxes that the gate serves: each is put, waited for, put again when either
 * side began anew, and dropped. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/network/egress_int.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/host/tenant.h"
#include "json/write.h"
#include "spawn/client.h"
#include "wire/net.h"
#include "core/host/ref.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_TEXT 80
#define WAIT_NS    (10 * NS_PER_S)

enum phase {
    WANTED /* to be given to the gate */,
    OPENING /* the spawner makes its sockets */,
    ADDING,
    SERVED
};

struct waiter {
    struct list link;
    egress_cb *cb;
    void *arg;
};

struct gated {
    struct egress *eg;
    char box[22], sandbox[22];
    char *policy, *ca_cert, *ca_key, *tenant, *ceiling;
    enum phase phase;
    bool changed;   /* while a request was under way */
    bool has_socks; /* the gate holds its sockets already */
    uint64_t cut;
    struct list waiters;
    struct timer limit;
};

static void serve(struct gated *g);

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void tell(struct gated *g, const struct err *e)
{
    struct list all;
    struct waiter *w;
    uint64_t cut = g->cut;
    timer_stop(&g->limit);
    g->cut = 0;
    list_init(&all);
    list_each(w, &g->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    list_each(w, &all, link) {
        list_del(&w->link);
        w->cb(w->arg, e, cut);
        free(w);
    }
}

static void on_limit(void *arg)
{
    struct gated *g = arg;
    struct err e;
    err_why(
        &e, REASON_HOST_CANNOT, E_UNAVAILABLE,
        "the network gate (hutch-egress) is not running, so only mode \"none\" can be used; see log/egress.log");
    tell(g, &e);
}

static void free_strings(struct gated *g)
{
    free(g->policy), free(g->ca_cert), free(g->tenant), free(g->ceiling);
    if (g->ca_key)
        explicit_bzero(g->ca_key, strlen(g->ca_key));
    free(g->ca_key);
}

static void gated_free(struct gated *g)
{
    struct err e;
    map_del(&g->eg->boxes, g->box);
    err_set(&e, E_CANCELED, "it was removed in the meantime");
    tell(g, &e);
    free_strings(g);
    free(g);
}

/* Waits that end elsewhere find their box by id. */
static struct gated *gated_take(void *ref)
{
    struct ref r = ref_take(ref);
    return r.core->egress ? map_get(&r.core->egress->boxes, r.id) : NULL;
}

/* ---- one box ---------------------------------------------------------------------------------------------------- */

static void failed(struct gated *g, const struct err *e)
{
    g->phase = WANTED;
    if (e->code == E_UNAVAILABLE || e->code == E_CANCELED)
        return; /* the gate went away: it is served when it comes back, who waits has a limit */
    log_warn("box %s has no network: %s", g->box, e->msg);
    if (g->changed) { /* that was about a policy which nobody wants any more */
        g->changed = false;
        serve(g);
        return;
    }
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "message", e->msg);
    jw_end(&w);
    event_emit(g->eg->core, "network.failed", g->tenant, g->sandbox, b.p);
    tell(g, e);
}

static void added(void *arg, const struct err *e, uint64_t cut)
{
    struct gated *g = gated_take(arg);
    if (!g || g->phase != ADDING)
        return; /* removed, or the gate went away meanwhile */
    if (e) {
        failed(g, e);
        return;
    }
    g->phase = SERVED;
    g->has_socks = true;
    g->cut += cut;
    if (g->changed)
        serve(g);
    else
        tell(g, NULL);
}

/* What it may have; the gate knows it before the first box of it. */
static void give_tenant(struct egress *eg, const char *name, char group[GROUP_TEXT])
{
    const struct tenant *t = tenant_find(&eg->core->tenants, name);
    static const struct gate_limits none;
    (void)snprintf(group, GROUP_TEXT, "tenant %.64s", name);
    gate_group(eg->client, group, t ? &t->limits : &none, egress_configured, NULL);
}

static void add(struct gated *g, const int *fds, int n)
{
    static const enum gate_sock role[NET_SOCK_MAX] = {
        [NET_SOCK_TCP4] = GATE_SOCK_TCP,           [NET_SOCK_DNS_UDP4] = GATE_SOCK_DNS_UDP,
        [NET_SOCK_DNS_TCP4] = GATE_SOCK_DNS_TCP,   [NET_SOCK_PROXY4] = GATE_SOCK_PROXY,
        [NET_SOCK_TCP6] = GATE_SOCK_TCP,           [NET_SOCK_DNS_UDP6] = GATE_SOCK_DNS_UDP,
        [NET_SOCK_DNS_TCP6] = GATE_SOCK_DNS_TCP,   [NET_SOCK_UDP4] = GATE_SOCK_UDP,
        [NET_SOCK_UDP_BACK4] = GATE_SOCK_UDP_BACK, [NET_SOCK_UDP_NO4] = GATE_SOCK_UDP_NO,
        [NET_SOCK_UDP6] = GATE_SOCK_UDP,           [NET_SOCK_UDP_BACK6] = GATE_SOCK_UDP_BACK,
        [NET_SOCK_UDP_NO6] = GATE_SOCK_UDP_NO,
    };
    struct egress *eg = g->eg;
    char group[GROUP_TEXT];
    const struct tenant *t = tenant_find(&eg->core->tenants, g->tenant);
    struct gate_ceiling ceiling[3]; /* the host's, the tenant's, the key's */
    struct gate_box b = {.box = g->box,
                         .sandbox = g->sandbox,
                         .group = {HOST_GROUP},
                         .ceiling = ceiling,
                         .policy = str_of(g->policy),
                         .ca_cert = str_of(g->ca_cert),
                         .ca_key = str_of(g->ca_key),
                         .sock = role,
                         .fds = fds,
                         .nsocks = n};
    if (eg->ceiling.policy.n)
        ceiling[b.nceilings++] = eg->ceiling;
    if (t) {
        give_tenant(eg, g->tenant, group);
        b.group[1] = group;
    }
    if (t && t->ceiling)
        ceiling[b.nceilings++] = (struct gate_ceiling){.name = group, .policy = str_of(t->ceiling)};
    if (g->ceiling)
        ceiling[b.nceilings++] = (struct gate_ceiling){.name = "key", .policy = str_of(g->ceiling)};
    g->phase = ADDING;
    g->changed = false;
    gate_add(eg->client, &b, added, ref_new(g->eg->core, g->box));
}

static void opened(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct gated *g = gated_take(arg);
    struct err e;
    if (!g || g->phase != OPENING)
        return;
    if (rep->rc) {
        failed(g, &rep->err);
    } else if (rep->u.net.n > NET_SOCK_MAX || nfds != (int)rep->u.net.n) {
        err_set(&e, E_INTERNAL, "hutch-spawn returned no sockets for the gate");
        failed(g, &e);
    } else {
        add(g, fds, nfds);
    }
}

static void serve(struct gated *g)
{
    struct egress *eg = g->eg;
    struct err e;
    if (g->phase == OPENING || g->phase == ADDING) {
        g->changed = true;
        return;
    }
    g->phase = WANTED;
    if (!eg->known)
        return;
    if (g->has_socks) {
        add(g, NULL, 0);
        return;
    }
    struct sp_req q = {.op = SP_NET};
    memcpy(q.u.id.id, g->box, sizeof g->box);
    g->phase = OPENING;
    struct ref *r = ref_new(eg->core, g->box);
    if (spawn_call(eg->core->spawn, &q, NULL, 0, opened, r, &e)) {
        (void)ref_take(r);
        failed(g, &e);
    }
}

void egress_put(struct core *c, const struct egress_box *b, egress_cb *cb, void *arg)
{
    struct egress *eg = c->egress;
    struct gated *g = map_get(&eg->boxes, b->box);
    if (!g) {
        g = xcalloc(1, sizeof *g);
        g->eg = eg;
        (void)snprintf(g->box, sizeof g->box, "%s", b->box);
        list_init(&g->waiters);
        timer_init(&g->limit, c->loop, on_limit, g);
        g->has_socks = map_del(&eg->held, g->box) != NULL;
        map_set(&eg->boxes, g->box, g);
    }
    (void)snprintf(g->sandbox, sizeof g->sandbox, "%s", b->sandbox);
    free_strings(g);
    g->tenant = xstrdup(b->tenant ? b->tenant : "");
    g->ceiling = b->ceiling ? xstrdup(b->ceiling) : NULL;
    g->policy = xstrndup(b->policy.p, b->policy.n);
    g->ca_cert = b->ca_cert.n ? xstrndup(b->ca_cert.p, b->ca_cert.n) : NULL;
    g->ca_key = b->ca_key.n ? xstrndup(b->ca_key.p, b->ca_key.n) : NULL;
    if (cb) {
        struct waiter *w = xcalloc(1, sizeof *w);
        *w = (struct waiter){.cb = cb, .arg = arg};
        list_add_tail(&g->waiters, &w->link);
        timer_arm(&g->limit, WAIT_NS);
    }
    serve(g);
}

void egress_drop(struct core *c, const char *box)
{
    struct egress *eg = c->egress;
    struct gated *g = eg ? map_get(&eg->boxes, box) : NULL;
    if (eg && map_del(&eg->held, box))
        gate_remove(eg->client, box, NULL, NULL);
    if (!g)
        return;
    if (eg->client && gate_client_up(eg->client) && g->phase != WANTED && g->phase != OPENING)
        gate_remove(eg->client, box, NULL, NULL);
    gated_free(g);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

void egress_tenants_changed(struct core *c)
{
    struct egress *eg = c->egress;
    struct map_entry *en;
    for (size_t i = 0; eg && (en = map_next(&eg->boxes, &i));) {
        struct gated *g = en->value;
        if (*g->tenant)
            serve(
                g); /* with its ceiling and limits of now; one that has none any more leaves its group */
    }
}

/* What the gate still serves of boxes that are gone. */
static void sweep(struct egress *eg)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&eg->held, &i));) {
        if (box_at(eg->core, en->key))
            continue;
        gate_remove(eg->client, en->key, NULL, NULL);
        map_del(&eg->held, en->key);
    }
}

void egress_recovered(struct core *c)
{
    c->egress->settled = true;
    sweep(c->egress);
}

void egress_boxes_known(struct egress *eg, const char *const *box, size_t n)
{
    struct map_entry *en;
    eg->known = true;
    for (size_t i = 0; i < n; i++) {
        struct gated *g = map_get(&eg->boxes, box[i]);
        if (g)
            g->has_socks = true;
        else
            map_set(&eg->held, box[i], eg);
    }
    if (eg->settled)
        sweep(eg);
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));) {
        struct gated *g = en->value;
        if (g->phase == WANTED)
            serve(g);
    }
}

void egress_boxes_void(struct egress *eg)
{
    struct map_entry *en;
    eg->known = false;
    map_free(&eg->held);
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));) {
        struct gated *g = en->value;
        g->phase = WANTED;
        g->has_socks = false;
    }
}

void egress_boxes_free(struct egress *eg)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));)
        gated_free(en->value);
    map_free(&eg->boxes), map_free(&eg->held);
}
