/* The gate as a whole: its process, and what it is told when it comes up. Boxes:
 * egress_boxes.c. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/network/egress_int.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/network/preset.h"
#include "core/network/secret.h"
#include "gate/client.h"
#include "gate/via.h"
#include "json/write.h"
#include "spawn/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESTART_FIRST (50 * NS_PER_MS)
#define RESTART_LAST  (5 * NS_PER_S)
#define USED_NS       NS_PER_S        /* what secrets were used for is asked so long after it was */
#define STABLE_NS     (60 * NS_PER_S) /* one that lived so long starts from RESTART_FIRST again */

/* ---- what it is told -------------------------------------------------------------------------------------------- */

void egress_configured(void *arg, const struct err *e, uint64_t cut)
{
    (void)arg, (void)cut;
    if (e)
        log_warn("network gate: configuration: %s", e->msg);
}

static void secret_given(void *arg, const struct err *e, uint64_t cut)
{
    (void)arg, (void)cut;
    if (e && e->code != E_UNAVAILABLE)
        log_warn("network gate: secret: %s", e->msg);
}

static void give_secret(void *arg, const char *name, struct str value,
                        const struct gate_budget *budget)
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

static void listed(void *arg, const struct err *e, const char *const *box, size_t n)
{
    struct egress *eg = ((struct core *)arg)->egress;
    if (eg && !e) /* else it went away again: the next on_up asks again */
        egress_boxes_known(eg, box, n);
}

/* Proxies of presets first: they are for less. */
static size_t list_vias(struct core *c, struct gate_via *via, size_t max)
{
    size_t n = presets_vias(c, via, max - 1);
    if (*c->cfg.proxy.addr)
        via[n++] = (struct gate_via){.hosts = "*",
                                     .addr = c->cfg.proxy.addr,
                                     .auth = c->cfg.proxy.auth,
                                     .by_name = c->cfg.proxy_by_name};
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
    struct gate_config gc = {.resolvers = resolver,
                             .log_bytes = (uint64_t)cfg->egress_log_mib << 20,
                             .log_files = cfg->egress_log_files,
                             .log_days = cfg->egress_log_days,
                             .log_sandboxes = cfg->egress_log_sandboxes,
                             .udp_idle_s = cfg->udp_idle_s,
                             .via = via,
                             .direct = direct};
    memcpy(text, cfg->resolvers, sizeof text);
    memcpy(skip, cfg->no_proxy, sizeof skip);
    gc.nresolvers = (int)words(text, resolver, 8);
    gc.ndirect = words(skip, direct, VIA_MAX);
    gc.nvia = list_vias(eg->core, via, VIA_MAX);
    gate_config(eg->client, &gc, egress_configured, NULL);
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
    struct gate_limits all = {.connections = cfg->net_connections,
                              .bytes_per_second = cfg->net_bytes_per_second};
    egress_boxes_void(eg);
    configure(eg);
    gate_group(eg->client, HOST_GROUP, &all, egress_configured, NULL);
    secret_each(eg->core, give_secret, eg);
    gate_list(eg->client, listed, eg->core);
    log_info("network gate: up");
    event_emit(eg->core, "host.gate-up", NULL, NULL, NULL);
}

static void on_down(void *arg, const char *why)
{
    struct egress *eg = arg;
    egress_boxes_void(eg);
    if (eg->stopped)
        return;
    log_warn("network gate: down (%s): sandboxes have no network until it is back", why);
    event_emit(eg->core, "host.gate-down", NULL, NULL, NULL);
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
    const struct sandbox *sb = id_ok(str_of(r->sandbox)) ? sandbox_at(eg->core, r->sandbox) : NULL;
    if (sb)
        event_emit(eg->core, r->kind == GATE_K_CUT ? "network.cut" : "network.denied",
                   sandbox_tenant(sb), sb->id, b.p);
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

static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)rep, (void)fds, (void)nfds;
}

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
    log_error("network gate: hutch-egress ended with %s %d; see log/egress.log",
              ex->signaled ? "signal" : "status", ex->code);
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
    static const struct gate_client_ops ops = {
        .on_up = on_up, .on_down = on_down, .on_record = on_record};
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
bool egress_up(const struct core *c)
{
    return c->egress && c->egress->client && gate_client_up(c->egress->client);
}

bool egress_running(const struct core *c)
{
    return c->egress && (c->egress->running || c->egress->starting);
}

/* That it ended is told by egress_exited. */
static void killed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("network gate: %s", rep->err.msg);
}

int egress_kill(struct core *c, struct err *e)
{
    struct sp_req q = {.op = SP_KILL};
    if (!c->egress->running)
        return err_set(e, E_UNAVAILABLE, "the network gate is being started");
    memcpy(q.u.id.id, c->egress->id, sizeof c->egress->id);
    log_error(
        "network gate: hutch-egress does not answer and is killed, so that a sandbox's network is closed");
    return spawn_call(c->spawn, &q, NULL, 0, killed, NULL, e);
}

void egress_stop(struct core *c)
{
    struct egress *eg = c->egress;
    if (!eg)
        return;
    eg->stopped = true;
    timer_stop(&eg->restart), timer_stop(&eg->used);
    gate_client_free(eg->client);
    eg->client = NULL;
    egress_boxes_free(eg);
    c->egress = NULL;
    free(eg);
}
