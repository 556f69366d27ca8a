/* hutch-egress' end of the control protocol. */
#include "base/clock.h"
#include "base/log.h"
#include "gate/gate_int.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM 512 /* bytes left in a reply for its head and end */

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static void put_stat(struct buf *out, const struct box *b, bool hash)
{
    size_t m = rec_open(out, G_STAT);
    rec_put_str(out, G_BOX, b->id);
    rec_put_u64(out, G_CONNS, b->meter.conns);
    rec_put_u64(out, G_TOTAL, b->total);
    rec_put_u64(out, G_DENIED, b->denied);
    rec_put_u64(out, G_IN, b->meter.in);
    rec_put_u64(out, G_OUT, b->meter.out);
    rec_put_u64(out, G_DNS, b->dns);
    rec_put_u64(out, G_DNS_DENIED, b->dns_denied);
    rec_put_u64(out, G_SEQ, egress_log_seq(b->log));
    if (hash)
        rec_put_str(out, G_HASH, egress_log_hash(b->log));
    rec_close(out, m);
}
static int do_stats(struct gate *g, struct rec r, struct buf *out, struct err *e)
{
    struct str id;
    struct map_entry *m;
    if (rec_get(r, G_BOX, &id)) {
        struct box *b = box_get(g, id);
        if (!b)
            return err_set(e, E_NOT_FOUND, "the network gate does not know this box");
        put_stat(out, b, true);
        return 0;
    }
    for (size_t i = 0; out->n < GATE_MSG_MAX - ROOM && (m = map_next(&g->boxes, &i));)
        put_stat(out, m->value, false);
    return 0;
}
static int do_list(struct gate *g, struct buf *out)
{
    struct map_entry *m;
    for (size_t i = 0; out->n < GATE_MSG_MAX - ROOM && (m = map_next(&g->boxes, &i));)
        rec_put_str(out, G_BOX, m->key);
    return 0;
}

static int do_group(struct gate *g, struct rec r, struct err *e)
{
    struct str name = {0};
    if (!rec_get(r, G_GROUP, &name) || !name.n)
        return err_set(e, E_INVALID, "a group needs a name");
    struct group *gr = group_get(g, name);
    uint64_t rate = rec_u64_or(r, G_RATE, 0), burst = rate / 4;
    gr->kept = true; /* what it moved today counts, whether or not a box of it is left */
    gr->meter.max_conns = rec_u64_or(r, G_CONNS, 0);
    gr->meter.max_bytes = rec_u64_or(r, G_BYTES, 0);
    bucket_set(&gr->meter.rate, rate, burst < 65536 ? 65536 : burst, clock_mono());
    return 0;
}

static void secret_drop(struct secret *s)
{
    if (!s)
        return;
    explicit_bzero(s->value, s->n);
    free(s->id), free(s->value), free(s);
}
/* It will stand in a header: nothing that could end one. */
static bool secret_ok(struct str v)
{
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] < ' ' || v.p[i] == 127)
            return false;
    return v.n >= 1 && v.n <= GATE_SECRET_MAX;
}
static int do_secret(struct gate *g, struct rec r, struct err *e)
{
    struct str v = {0};
    char *id = rec_dup(r, G_NAME);
    (void)rec_get(r, G_VALUE, &v);
    if (!id || !*id || !secret_ok(v)) {
        free(id);
        return err_set(e, E_INVALID, "a secret needs a name and 1 to %u printable bytes", GATE_SECRET_MAX);
    }
    struct secret *s = xcalloc(1, sizeof *s);
    *s = (struct secret){.id = id, .value = xstrndup(v.p, v.n), .n = v.n, .calls_max = rec_u64_or(r, G_CALLS_MAX, 0),
                         .bytes_max = rec_u64_or(r, G_BYTES_MAX, 0), .calls = rec_u64_or(r, G_CALLS, 0), .bytes = rec_u64_or(r, G_BYTES, 0)};
    struct secret *old = map_get(&g->secrets, id);
    if (old && old->calls_max == s->calls_max && old->bytes_max == s->bytes_max) { /* our count may be ahead of the daemon's */
        s->calls = old->calls > s->calls ? old->calls : s->calls;
        s->bytes = old->bytes > s->bytes ? old->bytes : s->bytes;
    }
    secret_drop(map_set(&g->secrets, id, s));
    return 0;
}
static int do_secret_stats(struct gate *g, struct rec r, struct buf *out)
{
    struct str id = {0};
    struct map_entry *m;
    bool one = rec_get(r, G_NAME, &id);
    for (size_t i = 0; out->n < GATE_MSG_MAX - ROOM && (m = map_next(&g->secrets, &i));) {
        struct secret *s = m->value;
        if (one && !str_eqz(id, s->id))
            continue;
        size_t mark = rec_open(out, G_STAT);
        rec_put_str(out, G_NAME, s->id);
        rec_put_u64(out, G_CALLS, s->calls);
        rec_put_u64(out, G_BYTES, s->bytes);
        rec_close(out, mark);
    }
    return 0;
}

static int take_vias(struct gate *g, struct rec r, struct err *e)
{
    struct vias v = {0};
    struct field f;
    bool ok = true;
    while (ok && rec_next(&r, &f)) {
        struct str hosts = {0}, addr = {0}, auth = {0};
        if (f.tag == G_DIRECT)
            ok = vias_direct(&v, f.v);
        if (f.tag != G_VIA)
            continue;
        struct rec one = field_rec(f);
        ok = rec_ok(one) && rec_get(one, G_NAME, &hosts) && rec_get(one, G_ADDR, &addr);
        if (ok)
            (void)rec_get(one, G_VALUE, &auth);
        ok = ok && vias_add(&v, hosts, addr, auth, rec_u64_or(one, G_COUNT, 0));
    }
    if (!ok) {
        vias_free(&v);
        return err_set(e, E_INVALID, "a proxy of the host that cannot be used");
    }
    vias_free(&g->vias);
    g->vias = v;
    return 0;
}
static int do_config(struct gate *g, struct rec r, struct err *e)
{
    struct resolver_addr a[RESOLVERS_MAX];
    size_t n = 0;
    struct field f;
    for (struct rec i = r; rec_next(&i, &f);)
        if (f.tag == G_RESOLVER && n < RESOLVERS_MAX) {
            if (!resolver_addr_parse(f.v, &a[n]))
                return err_set(e, E_INVALID, "resolver %.*s: not an address", (int)(f.v.n > 60 ? 60 : f.v.n), f.v.p);
            n++;
        }
    if (take_vias(g, r, e))
        return -1;
    if (n)
        resolver_servers(g->resolver, a, n);
    g->log_bytes = rec_u64_or(r, G_LOG_BYTES, g->log_bytes);
    g->log_files = (unsigned)rec_u64_or(r, G_LOG_FILES, g->log_files);
    g->log_days = (unsigned)rec_u64_or(r, G_LOG_DAYS, g->log_days);
    g->log_sandboxes = (unsigned)rec_u64_or(r, G_LOG_SANDBOXES, g->log_sandboxes);
    g->udp_idle = (int64_t)(rec_u64_or(r, G_UDP_IDLE, 0) % 86400) * NS_PER_S;
    timer_arm(&g->sweep, 0);
    return 0;
}

static int handle(struct gate *g, enum gate_op op, struct rec r, const int *fds, int nfds, struct buf *out, struct err *e)
{
    struct str id = {0};
    uint64_t cut = 0;
    if (op != GATE_ADD && op != GATE_POLICY)
        for (int i = 0; i < nfds; i++)
            (void)close(fds[i]);
    switch (op) {
    case GATE_HELLO:
        g->hello = true;
        rec_put_u64(out, G_PID, (uint64_t)getpid());
        rec_put_u64(out, G_COUNT, g->boxes.n);
        return 0;
    case GATE_ADD:
    case GATE_POLICY:
        if (box_put(g, r, op == GATE_ADD, fds, nfds, &cut, e))
            return -1;
        rec_put_u64(out, G_COUNT, cut);
        return 0;
    case GATE_REMOVE: {
        struct box *b = rec_get(r, G_BOX, &id) ? box_get(g, id) : NULL;
        if (b) {
            rec_put_u64(out, G_COUNT, b->meter.conns);
            box_free(b);
        }
        return 0;
    }
    case GATE_LIST: return do_list(g, out);
    case GATE_STATS: return do_stats(g, r, out, e);
    case GATE_GROUP: return do_group(g, r, e);
    case GATE_SECRET: return do_secret(g, r, e);
    case GATE_SECRET_DROP:
        if (rec_get(r, G_NAME, &id)) {
            struct secret *s = gate_secret_get(g, id);
            if (s) {
                (void)map_del(&g->secrets, s->id);
                secret_drop(s);
            }
        }
        return 0;
    case GATE_SECRET_STATS: return do_secret_stats(g, r, out);
    case GATE_CONFIG: return do_config(g, r, e);
    case GATE_RECORD:
    case GATE_OP_MAX: break;
    }
    return err_set(e, E_UNSUPPORTED, "the network gate does not know this request");
}

/* ---- the connection -------------------------------------------------------------------------------------------------- */

static void on_msg(void *arg, const struct gate_head *h, struct rec r, const int *fds, int nfds)
{
    struct gate *g = arg;
    struct buf out = {0};
    struct err e = {0};
    gate_msg(&out, (enum gate_op)h->op, h->serial, 0);
    if (handle(g, (enum gate_op)h->op, r, fds, nfds, &out, &e)) {
        gate_msg(&out, (enum gate_op)h->op, h->serial, e.code);
        rec_put_str(&out, G_MESSAGE, e.msg);
    }
    explicit_bzero((void *)(uintptr_t)r.p, r.n); /* keys and secrets do not stay in the buffer */
    (void)gate_link_send(&g->link, &out, NULL, 0); /* broken: the reading side notices */
}
static void on_end(void *arg, const char *why)
{
    struct gate *g = arg;
    g->hello = false;
    log_info("the daemon's connection ended (%s); still serving the sandboxes", why);
}

static void on_connect(void *arg, int events)
{
    struct gate *g = arg;
    struct ucred cr;
    socklen_t n = sizeof cr;
    (void)events;
    int fd = accept4(g->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cr, &n) || (cr.uid && cr.uid != g->allow_uid)) {
        log_warn("a stranger (uid %d) at the control socket was turned away", (int)cr.uid);
        (void)close(fd);
        return;
    }
    gate_link_close(&g->link); /* the newest wins: an old daemon that hangs must not keep a new one out */
    g->hello = false;
    gate_link_open(&g->link, g->loop, fd);
}

void server_start(struct gate *g)
{
    g->link = (struct gate_link){.fd = -1, .on_msg = on_msg, .on_end = on_end, .arg = g};
    io_init(&g->control_io, g->loop, g->control_fd, on_connect, g);
    io_want(&g->control_io, IO_READ);
}
void server_stop(struct gate *g)
{
    gate_link_close(&g->link);
    io_stop(&g->control_io);
    (void)close(g->control_fd);
}
