#include "gate/gate.h"
#include "base/clock.h"
#include "base/log.h"
#include "gate/conn.h"
#include "gate/gate_int.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DAY_NS      (24 * 3600 * NS_PER_S)
#define SWEEP_NS    (3600 * NS_PER_S)
#define SWEEP_ENDED 256  /* boxes that ended since the last one */
#define RECORDS_MAX 4096 /* that the daemon has not read; then they are only in the log */

/* ---- records ---------------------------------------------------------------------------------------------------- */

static void put(struct buf *b, enum gate_tag tag, const char *v)
{
    if (v && *v)
        rec_put(b, (uint8_t)tag, v, strnlen(v, 600));
}
static void put_u(struct buf *b, enum gate_tag tag, uint64_t v)
{
    if (v)
        rec_put_u64(b, (uint8_t)tag, v);
}
static void to_daemon(struct gate *g, const struct gate_record *r)
{
    if (g->link.fd < 0 || !g->hello)
        return;
    if (g->link.queued > RECORDS_MAX) {
        g->lost++;
        return;
    }
    struct buf b = {0};
    gate_msg(&b, GATE_RECORD, 0, 0);
    put(&b, G_BOX, r->box), put(&b, G_SANDBOX, r->sandbox);
    rec_put_u64(&b, G_KIND, r->kind);
    rec_put_u64(&b, G_SEQ, r->seq);
    rec_put_u64(&b, G_TIME_NS, (uint64_t)r->time_ns);
    put_u(&b, G_CONN, r->conn);
    put(&b, G_NAME, r->name), put(&b, G_TYPE, r->type), put(&b, G_ADDR, r->addr), put(&b, G_METHOD, r->method), put(&b, G_PATH, r->path);
    put(&b, G_RULE, r->rule), put(&b, G_REASON, r->reason), put(&b, G_SECRET, r->secret);
    put_u(&b, G_PORT, r->port), put_u(&b, G_STATUS, r->status), put_u(&b, G_IN, r->in), put_u(&b, G_OUT, r->out), put_u(&b, G_MS, r->ms);
    rec_put_u64(&b, G_VERDICT, r->allowed);
    put_u(&b, G_LOST, g->lost);
    g->lost = 0;
    (void)gate_link_send(&g->link, &b, NULL, 0);
}
void gate_record(struct box *b, struct gate_record *r)
{
    r->box = b->id;
    r->sandbox = b->sandbox;
    if (b->log)
        egress_log_put(b->log, r);
    to_daemon(b->g, r);
}

/* ---- bandwidth ---------------------------------------------------------------------------------------------------- */

static void on_refill(void *arg)
{
    struct gate *g = arg;
    struct list now;
    list_init(&now);
    while (!list_empty(&g->starved)) {
        struct list *n = g->starved.next;
        list_del(n);
        list_add_tail(&now, n);
    }
    while (!list_empty(&now)) {
        struct list *n = now.next;
        list_del(n);
        conn_fed(n);
    }
}

/* ---- old logs ----------------------------------------------------------------------------------------------------- */

static bool has_log(void *arg, struct str sandbox)
{
    struct gate *g = arg;
    struct map_entry *m;
    for (size_t i = 0; (m = map_next(&g->boxes, &i));)
        if (str_eqz(sandbox, ((struct box *)m->value)->sandbox))
            return true;
    return false;
}
static void on_sweep(void *arg)
{
    struct gate *g = arg;
    if (g->log_days)
        egress_logs_sweep(g->log_dir, clock_wall() - (int64_t)g->log_days * DAY_NS, has_log, g);
    if (g->log_sandboxes)
        egress_logs_trim(g->log_dir, g->log_sandboxes, has_log, g);
    timer_arm(&g->sweep, SWEEP_NS);
    g->ended = 0;
}
/* Many short lives make many logs: they are not left until the hour is over. */
void gate_log_ended(struct gate *g)
{
    if (++g->ended == SWEEP_ENDED)
        timer_arm(&g->sweep, 0);
}

struct secret *gate_secret_get(struct gate *g, struct str id) { return map_get_n(&g->secrets, id.p, id.n); }

/* ---- life ----------------------------------------------------------------------------------------------------------- */

struct gate *gate_new(const struct gate_setup *s, struct err *e)
{
    struct gate *g = xcalloc(1, sizeof *g);
    g->loop = s->loop;
    g->control_fd = s->control_fd;
    g->allow_uid = s->allow_uid;
    g->log_dir = s->log_dir;
    g->log_bytes = 16u << 20;
    g->log_files = 3;
    g->trust = s->trust;
    g->link.fd = -1;
    g->host = hostaddr_new(s->loop, e);
    if (!g->host) {
        free(g);
        return NULL;
    }
    g->resolver = resolver_new(s->loop);
    resolver_servers(g->resolver, s->resolvers, s->nresolvers);
    list_init(&g->pipes);
    list_init(&g->starved);
    timer_init(&g->refill, s->loop, on_refill, g);
    timer_init(&g->sweep, s->loop, on_sweep, g);
    timer_init(&g->save, s->loop, meters_save, g);
    g->scratch = xmalloc(SCRATCH);
    server_start(g);
    return g;
}

void gate_free(struct gate *g)
{
    struct map_entry *m;
    if (!g)
        return;
    server_stop(g);
    meters_save(g);
    for (size_t i = 0; (m = map_next(&g->boxes, &i));)
        box_free(m->value);
    for (size_t i = 0; (m = map_next(&g->groups, &i));) {
        struct group *gr = m->value;
        free(gr->name);
        free(gr);
    }
    for (size_t i = 0; (m = map_next(&g->secrets, &i));) {
        struct secret *s = m->value;
        explicit_bzero(s->value, s->n);
        free(s->id), free(s->value), free(s);
    }
    map_free(&g->boxes), map_free(&g->groups), map_free(&g->secrets);
    timer_stop(&g->refill);
    timer_stop(&g->sweep);
    timer_stop(&g->save);
    loop_turn(g->loop, false); /* what was buried this turn still looks at us */
    struct gpipe *p;
    list_each(p, &g->pipes, node) {
        (void)close(p->fd[0]), (void)close(p->fd[1]);
        free(p);
    }
    hostaddr_free(g->host);
    resolver_free(g->resolver);
    vias_free(&g->vias);
    tls_trust_free(g->trust);
    (void)close(g->log_dir);
    free(g->scratch);
    free(g);
}
