#include "core/egress.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/internal.h"
#include "core/preset.h"
#include "core/secret.h"
#include "core/tenant.h"
#include "gate/client.h"
#include "gate/via.h"
#include "json/write.h"
#include "spawn/client.h"
#include "wire/net.h"
#include <stdio.h>
#include <string.h>

#define HOST_GROUP    "host" /* all sandboxes: what the operator allows them together */
#define GROUP_TEXT    80
#define WAIT_NS       (10 * NS_PER_S)
#define RESTART_FIRST (50 * NS_PER_MS)
#define RESTART_LAST  (5 * NS_PER_S)
#define USED_NS       NS_PER_S        /* what secrets were used for is asked so long after it was */
#define STABLE_NS     (60 * NS_PER_S) /* one that lived so long starts from RESTART_FIRST again */

enum phase { WANTED /* to be given to the gate */, OPENING /* the spawner makes its sockets */, ADDING, SERVED };

struct waiter { struct list link; egress_cb *cb; void *arg; };

struct gated {
    struct egress *eg;
    char box[22], sandbox[22];
    char *policy, *ca_cert, *ca_key, *tenant;
    enum phase phase;
    bool changed;          /* while a request was under way */
    bool has_socks;        /* the gate holds its sockets already */
    uint64_t cut;
    struct list waiters;
    struct timer limit;
};

struct egress {
    struct core *core;
    struct gate_client *client;
    struct map boxes;      /* box id -> gated */
    char id[22];           /* of the process, at the spawner */
    bool starting, running, stopped;
    bool known;            /* the gate has said which boxes it serves already: their sockets exist and are not made again */
    bool settled;          /* the daemon has found all its boxes again */
    struct map held;       /* boxes the gate serves for an earlier daemon, until they are put here */
    int64_t started, backoff;
    struct timer restart, used;
    struct gate_ceiling ceiling;
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
    err_set(&e, E_UNAVAILABLE, "the network gate (hutch-egress) does not run, so no policy but \"none\" can be set; `hutch doctor` and log/egress.log say why");
    tell(g, &e);
}

static void gated_free(struct gated *g)
{
    struct err e;
    map_del(&g->eg->boxes, g->box);
    err_set(&e, E_CANCELED, "it was removed meanwhile");
    tell(g, &e);
    free(g->policy), free(g->ca_cert), free(g->tenant);
    if (g->ca_key)
        explicit_bzero(g->ca_key, strlen(g->ca_key));
    free(g->ca_key);
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
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "message", e->msg);
    jw_end(&w);
    event_emit(g->eg->core, "network.failed", g->sandbox, b.p);
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

static void configured(void *arg, const struct err *e, uint64_t cut)
{
    (void)arg, (void)cut;
    if (e)
        log_warn("network gate: configuration: %s", e->msg);
}

/* What it may have; the gate knows it before the first box of it. */
static void give_tenant(struct egress *eg, const char *name, char group[GROUP_TEXT])
{
    const struct tenant *t = tenant_find(&eg->core->tenants, name);
    static const struct gate_limits none;
    (void)snprintf(group, GROUP_TEXT, "tenant %.64s", name);
    gate_group(eg->client, group, t ? &t->limits : &none, configured, NULL);
}

static void add(struct gated *g, const int *fds, int n)
{
    static const enum gate_sock role[NET_SOCK_MAX] = {
        [NET_SOCK_TCP4] = GATE_SOCK_TCP, [NET_SOCK_DNS_UDP4] = GATE_SOCK_DNS_UDP, [NET_SOCK_DNS_TCP4] = GATE_SOCK_DNS_TCP,
        [NET_SOCK_PROXY4] = GATE_SOCK_PROXY, [NET_SOCK_TCP6] = GATE_SOCK_TCP, [NET_SOCK_DNS_UDP6] = GATE_SOCK_DNS_UDP,
        [NET_SOCK_DNS_TCP6] = GATE_SOCK_DNS_TCP, [NET_SOCK_UDP4] = GATE_SOCK_UDP, [NET_SOCK_UDP_BACK4] = GATE_SOCK_UDP_BACK,
        [NET_SOCK_UDP_NO4] = GATE_SOCK_UDP_NO, [NET_SOCK_UDP6] = GATE_SOCK_UDP, [NET_SOCK_UDP_BACK6] = GATE_SOCK_UDP_BACK,
        [NET_SOCK_UDP_NO6] = GATE_SOCK_UDP_NO,
    };
    struct egress *eg = g->eg;
    char group[GROUP_TEXT];
    const struct tenant *t = tenant_find(&eg->core->tenants, g->tenant);
    struct gate_ceiling ceiling[2];
    struct gate_box b = {.box = g->box, .sandbox = g->sandbox, .group = {HOST_GROUP}, .ceiling = ceiling, .policy = str_of(g->policy), .ca_cert = str_of(g->ca_cert), .ca_key = str_of(g->ca_key),
                         .sock = role, .fds = fds, .nsocks = n};
    if (eg->ceiling.policy.n)
        ceiling[b.nceilings++] = eg->ceiling;
    if (t) {
        give_tenant(eg, g->tenant, group);
        b.group[1] = group;
    }
    if (t && t->ceiling)
        ceiling[b.nceilings++] = (struct gate_ceiling){.name = group, .policy = str_of(t->ceiling)};
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
        err_set(&e, E_INTERNAL, "the spawner returned no sockets for the gate");
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
    free(g->policy), free(g->ca_cert), free(g->ca_key), free(g->tenant);
    g->tenant = xstrdup(b->tenant ? b->tenant : "");
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

/* ---- the gate comes up ------------------------------------------------------------------------------------------- */

void egress_tenants_changed(struct core *c)
{
    struct egress *eg = c->egress;
    struct map_entry *en;
    for (size_t i = 0; eg && (en = map_next(&eg->boxes, &i));) {
        struct gated *g = en->value;
        if (*g->tenant)
            serve(g); /* with its ceiling and limits of now; one that has none any more leaves its group */
    }
}

static void secret_given(void *arg, const struct err *e, uint64_t cut)
{
    (void)arg, (void)cut;
    if (e && e->code != E_UNAVAILABLE)
        log_warn("network gate: secret: %s", e->msg);
}

static void give_secret(void *arg, const char *name, struct str value, const struct gate_budget *budget)
{
    struct egress *eg = arg;
    gate_secret(eg->client, name, value, budget, secret_given, NULL);
}

void egress_secret(struct core *c, const char *name)
{
    struct egress *eg = c->egress;
    if (!eg || !eg->client || !gate_client_up(eg->client))
        return; /* it gets them all when it comes up */
    if (!secret_open(c, name, give_secret, eg))
        gate_secret_drop(eg->client, name, secret_given, NULL);
}

/* What the gate still serves of boxes that are gone. */
static void sweep(struct egress *eg)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&eg->held, &i));) {
        if (map_get(&eg->core->boxes, en->key))
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

static void listed(void *arg, const struct err *e, const char *const *box, size_t n)
{
    struct egress *eg = ((struct core *)arg)->egress;
    struct map_entry *en;
    if (!eg || e)
        return; /* it went away again: the next on_up asks again */
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

/* Proxies of presets first: they are for less. */
static size_t list_vias(struct core *c, struct gate_via *via, size_t max)
{
    size_t n = presets_vias(c, via, max - 1);
    if (*c->cfg.proxy.addr)
        via[n++] = (struct gate_via){.hosts = "*", .addr = c->cfg.proxy.addr, .auth = c->cfg.proxy.auth, .by_name = c->cfg.proxy_by_name};
    return n;
}
static size_t words(char *text, const char **out, size_t max)
{
    size_t n = 0;
    for (char *one; (one = strsep(&text, ", ")) && n < max;)
        if (*one)
            out[n++] = one;
    return n;
}
static void configure(struct egress *eg)
{
    const struct config *cfg = &eg->core->cfg;
    const char *resolver[8], *direct[VIA_MAX];
    char text[sizeof cfg->resolvers], skip[sizeof cfg->no_proxy];
    struct gate_via via[VIA_MAX];
    struct gate_config gc = {.resolvers = resolver, .log_bytes = (uint64_t)cfg->egress_log_mib << 20, .log_files = cfg->egress_log_files, .log_days = cfg->egress_log_days,
                             .udp_idle_s = cfg->udp_idle_s,
                             .via = via, .direct = direct};
    memcpy(text, cfg->resolvers, sizeof text);
    memcpy(skip, cfg->no_proxy, sizeof skip);
    gc.nresolvers = (int)words(text, resolver, 8);
    gc.ndirect = words(skip, direct, VIA_MAX);
    gc.nvia = list_vias(eg->core, via, VIA_MAX);
    gate_config(eg->client, &gc, configured, NULL);
}
void egress_proxies_changed(struct core *c)
{
    if (egress_up(c))
        configure(c->egress);
}

static void on_up(void *arg)
{
    struct egress *eg = arg;
    const struct config *cfg = &eg->core->cfg;
    struct gate_limits all = {.connections = cfg->net_connections, .bytes_per_second = cfg->net_bytes_per_second};
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));) {
        struct gated *g = en->value;
        g->phase = WANTED; /* what was asked of the one before is void */
        g->has_socks = false;
    }
    configure(eg);
    gate_group(eg->client, HOST_GROUP, &all, configured, NULL);
    secret_each(eg->core, give_secret, eg);
    gate_list(eg->client, listed, eg->core);
    log_info("network gate: up");
    event_emit(eg->core, "host.gate-up", NULL, NULL);
}

static void on_down(void *arg, const char *why)
{
    struct egress *eg = arg;
    struct map_entry *en;
    eg->known = false;
    map_free(&eg->held);
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));)
        ((struct gated *)en->value)->phase = WANTED;
    if (eg->stopped)
        return;
    log_warn("network gate: down (%s): no sandbox has network until it is back", why);
    event_emit(eg->core, "host.gate-down", NULL, NULL);
}

/* Budgets outlive the gate: what was used is stored soon after. */
static void on_used(void *arg) { secret_refresh(arg, NULL, NULL); }

/* A denial is worth an event, so that whoever watches the sandbox sees why its request failed; the whole story is in the log. */
static void on_record(void *arg, const struct gate_record *r)
{
    struct egress *eg = arg;
    if ((*r->secret || r->lost) && !eg->used.armed)
        timer_arm(&eg->used, USED_NS);
    if (r->kind != GATE_K_DENY && !(r->kind == GATE_K_DNS && !r->allowed) && r->kind != GATE_K_CUT)
        return;
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "kind", gate_kind_name(r->kind));
    if (*r->name)
        jw_kv_str(&w, "name", r->name);
    if (*r->addr)
        jw_kv_str(&w, "addr", r->addr);
    if (r->port)
        jw_kv_u64(&w, "port", r->port);
    if (*r->method)
        jw_kv_str(&w, "method", r->method);
    if (*r->path)
        jw_kv_str(&w, "path", r->path);
    jw_kv_str(&w, "rule", r->rule);
    jw_kv_str(&w, "reason", r->reason);
    jw_kv_u64(&w, "seq", r->seq);
    jw_end(&w);
    if (id_ok(str_of(r->sandbox)) && map_get(&eg->core->sandboxes, r->sandbox))
        event_emit(eg->core, r->kind == GATE_K_CUT ? "network.cut" : "network.denied", r->sandbox, b.p);
}

/* ---- the process -------------------------------------------------------------------------------------------------- */

static void again(struct egress *eg)
{
    if (eg->stopped || eg->core->spawn_lost || eg->core->stopping)
        return;
    if (eg->started && clock_mono() - eg->started > STABLE_NS)
        eg->backoff = 0;
    eg->backoff = eg->backoff ? eg->backoff * 2 : RESTART_FIRST;
    if (eg->backoff > RESTART_LAST)
        eg->backoff = RESTART_LAST;
    timer_arm(&eg->restart, eg->backoff);
}

static void process_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct egress *eg = ((struct core *)arg)->egress;
    (void)fds, (void)nfds;
    if (!eg)
        return;
    eg->starting = false;
    if (rep->rc) {
        log_error("network gate: %s", rep->err.msg);
        again(eg);
        return;
    }
    eg->running = true;
    eg->started = clock_mono();
    memcpy(eg->id, rep->u.info.id, sizeof eg->id);
    eg->id[sizeof eg->id - 1] = 0;
}

static void start_process(void *arg)
{
    struct egress *eg = arg;
    struct sp_req q = {.op = SP_EGRESS};
    struct err e;
    if (eg->starting || eg->running || eg->stopped)
        return;
    id_make('g', q.u.id.id);
    eg->starting = true;
    if (spawn_call(eg->core->spawn, &q, NULL, 0, process_started, eg->core, &e)) {
        eg->starting = false;
        log_error("network gate: %s", e.msg);
    }
}

static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

bool egress_exited(struct core *c, const struct sp_exit *ex)
{
    struct egress *eg = c->egress;
    if (ex->kind != SP_KIND_EGRESS)
        return false;
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    memcpy(q.u.id.id, ex->id, sizeof q.u.id.id);
    if (spawn_call(c->spawn, &q, NULL, 0, removed, NULL, &e))
        log_warn("network gate: %s", e.msg);
    if (!eg || strcmp(eg->id, ex->id))
        return true;
    log_error("network gate: hutch-egress ended with %s %d; see log/egress.log", ex->signaled ? "signal" : "status", ex->code);
    eg->running = false;
    again(eg);
    return true;
}

void egress_spawner_lost(struct core *c)
{
    c->egress->running = c->egress->starting = false;
    timer_stop(&c->egress->restart);
}
void egress_spawner_back(struct core *c) { start_process(c->egress); }

void egress_start(struct core *c)
{
    static const struct gate_client_ops ops = {.on_up = on_up, .on_down = on_down, .on_record = on_record};
    struct egress *eg = c->egress = xcalloc(1, sizeof *eg);
    char path[160];
    eg->core = c;
    timer_init(&eg->restart, c->loop, start_process, eg);
    timer_init(&eg->used, c->loop, on_used, c);
    if (c->cfg.ceiling)
        eg->ceiling = (struct gate_ceiling){.name = "host", .policy = str_of(c->cfg.ceiling)};
    (void)snprintf(path, sizeof path, "%s/egress.sock", c->cfg.run);
    eg->client = gate_client_new(c->loop, path, &ops, eg);
    start_process(eg);
}

struct gate_client *egress_client(struct core *c) { return c->egress->client; }
bool egress_up(const struct core *c) { return c->egress && c->egress->client && gate_client_up(c->egress->client); }

void egress_stop(struct core *c)
{
    struct egress *eg = c->egress;
    struct map_entry *en;
    if (!eg)
        return;
    eg->stopped = true;
    timer_stop(&eg->restart), timer_stop(&eg->used);
    gate_client_free(eg->client);
    eg->client = NULL;
    for (size_t i = 0; (en = map_next(&eg->boxes, &i));)
        gated_free(en->value);
    map_free(&eg->boxes), map_free(&eg->held);
    c->egress = NULL;
    free(eg);
}
