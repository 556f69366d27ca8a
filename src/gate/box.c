#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "gate/gate_int.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct box *box_get(struct gate *g, struct str id) { return map_get_n(&g->boxes, id.p, id.n); }

/* ---- sockets ------------------------------------------------------------------------------------------------------ */

static void on_sock(void *arg, int events)
{
    struct gsock *s = arg;
    (void)events;
    switch (s->role) {
    case GATE_SOCK_TCP:
    case GATE_SOCK_PROXY: conn_accept(s); break;
    case GATE_SOCK_DNS_UDP: dns_udp_ready(s); break;
    case GATE_SOCK_DNS_TCP: dns_accept(s); break;
    case GATE_SOCK_UDP: udp_ready(s); break;
    default: break;
    }
}

static void socks_close(struct box *b)
{
    for (int i = 0; i < b->nsocks; i++) {
        io_stop(&b->sock[i].io);
        (void)close(b->sock[i].fd);
    }
    b->nsocks = 0;
}

static int get_opt(int fd, int opt)
{
    int v = -1;
    socklen_t n = sizeof v;
    return getsockopt(fd, SOL_SOCKET, opt, &v, &n) ? -1 : v;
}
/* The daemon is ours, but a wrong descriptor here would be a hole: each is what its role says. */
static bool sock_fits(int fd, enum gate_sock role)
{
    int domain = get_opt(fd, SO_DOMAIN), type = get_opt(fd, SO_TYPE), listening = get_opt(fd, SO_ACCEPTCONN);
    if (domain != AF_INET && domain != AF_INET6)
        return false;
    switch (role) {
    case GATE_SOCK_TCP:
    case GATE_SOCK_PROXY:
    case GATE_SOCK_DNS_TCP: return type == SOCK_STREAM && listening == 1;
    case GATE_SOCK_DNS_UDP:
    case GATE_SOCK_UDP: return type == SOCK_DGRAM;
    case GATE_SOCK_UDP_BACK: return type == SOCK_RAW && get_opt(fd, SO_PROTOCOL) == IPPROTO_UDP;
    case GATE_SOCK_UDP_NO: return type == SOCK_RAW && get_opt(fd, SO_PROTOCOL) == (domain == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    default: return false;
    }
}
/* UDP: the address a question was sent to is the address the answer must come from. */
static void want_pktinfo(int fd)
{
    int on = 1;
    if (get_opt(fd, SO_DOMAIN) == AF_INET)
        (void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    else
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}

static int socks_check(struct rec r, int nfds, const int *fds, enum gate_sock *roles, struct err *e)
{
    int n = 0;
    struct field f;
    uint64_t role;
    while (rec_next(&r, &f)) {
        if (f.tag != G_SOCK)
            continue;
        if (n >= SOCKS_MAX || n >= nfds || !field_u64(f, &role) || !role || role >= GATE_SOCK_MAX)
            return err_set(e, E_INVALID, "sockets: not one descriptor for each role");
        if (!sock_fits(fds[n], (enum gate_sock)role))
            return err_set(e, E_INVALID, "socket %d is not what role %d needs", n, (int)role);
        roles[n++] = (enum gate_sock)role;
    }
    return n == nfds ? n : err_set(e, E_INVALID, "%d descriptors for %d roles", nfds, n);
}
static void socks_take(struct box *b, const enum gate_sock *roles, const int *fds, int n)
{
    if (!n)
        return;
    socks_close(b);
    for (int i = 0; i < n; i++) {
        struct gsock *s = &b->sock[b->nsocks++];
        *s = (struct gsock){.box = b, .role = roles[i], .fd = fds[i], .family = get_opt(fds[i], SO_DOMAIN)};
        (void)fd_nonblock(s->fd);
        if (s->role == GATE_SOCK_DNS_UDP)
            want_pktinfo(s->fd);
        if (s->role == GATE_SOCK_UDP)
            udp_want_destination(s->fd, s->family);
        io_init(&s->io, b->g->loop, s->fd, on_sock, s);
    }
    box_listen(b, true);
}
void box_listen(struct box *b, bool on)
{
    for (int i = 0; i < b->nsocks; i++)
        io_want(&b->sock[i].io, on && b->sock[i].role != GATE_SOCK_UDP_BACK && b->sock[i].role != GATE_SOCK_UDP_NO ? IO_READ : 0);
}

/* ---- groups --------------------------------------------------------------------------------------------------------- */

static void group_release(struct gate *g, struct group *gr)
{
    if (--gr->boxes || gr->kept)
        return;
    (void)map_del(&g->groups, gr->name);
    free(gr->name);
    free(gr);
}
struct group *group_get(struct gate *g, struct str name)
{
    struct group *gr = map_get_n(&g->groups, name.p, name.n);
    if (!gr) {
        gr = xcalloc(1, sizeof *gr);
        gr->name = xstrndup(name.p, name.n);
        meter_load_group(g, gr);
        (void)map_set(&g->groups, gr->name, gr);
    }
    return gr;
}
/* New ones first: one that stays is never without members. */
static void groups_join(struct box *b, const struct str *name, int n)
{
    struct group *old[GROUPS_MAX];
    int nold = b->ngroups;
    memcpy(old, b->group, sizeof old);
    for (int i = 0; i < n; i++) {
        b->group[i] = group_get(b->g, name[i]);
        b->group[i]->boxes++, b->group[i]->meter.conns += b->meter.conns;
    }
    b->ngroups = n;
    for (int i = 0; i < nold; i++) {
        old[i]->meter.conns -= b->meter.conns;
        group_release(b->g, old[i]);
    }
}

/* ---- policy ----------------------------------------------------------------------------------------------------------- */

/* Everything a message may change, parsed before anything is touched. */
struct change {
    struct policy *own, *ceiling[POLICY_CEILINGS];
    char *name[POLICY_CEILINGS];
    int n;
    struct tls_ca *ca;
    struct str cert;
};
static void change_drop(struct change *c)
{
    policy_unref(c->own);
    for (int i = 0; i < c->n; i++) {
        policy_unref(c->ceiling[i]);
        free(c->name[i]);
    }
    tls_ca_free(c->ca);
}
static int ceiling_parse(struct change *c, struct rec r, struct err *e)
{
    struct str text = {"", 0};
    if (c->n == POLICY_CEILINGS)
        return err_set(e, E_INVALID, "more than %d ceilings", POLICY_CEILINGS);
    (void)rec_get(r, G_POLICY, &text);
    struct policy *p = policy_parse(text.p, text.n, POLICY_CEILING, e);
    char *name = rec_dup(r, G_NAME);
    if (!p) {
        free(name);
        return err_wrap(e, "ceiling");
    }
    c->ceiling[c->n] = p;
    c->name[c->n++] = name ? name : xstrdup("?");
    return 0;
}
static int change_parse(struct box *old, struct rec r, struct change *c, struct err *e)
{
    struct str text = {"", 0}, cert = {0}, key = {0};
    struct field f;
    if (!rec_get(r, G_POLICY, &text))
        return err_set(e, E_INVALID, "no policy");
    if (!(c->own = policy_parse(text.p, text.n, 0, e)))
        return -1;
    for (struct rec i = r; rec_next(&i, &f);)
        if (f.tag == G_CEILING && (!rec_ok(field_rec(f)) || ceiling_parse(c, field_rec(f), e)))
            return rec_ok(field_rec(f)) ? -1 : err_set(e, E_INVALID, "malformed ceiling");
    bool has = rec_get(r, G_CA_CERT, &cert) && rec_get(r, G_CA_KEY, &key);
    bool same = old && old->ca && has && str_eq(cert, (struct str){old->ca_cert.p, old->ca_cert.n});
    if (has && !same && !(c->ca = tls_ca_new(cert, key, e)))
        return -1;
    c->cert = cert;
    return 0;
}

static void policy_drop(struct box *b)
{
    policy_unref(b->own);
    for (int i = 0; i < b->set.nceilings; i++) {
        policy_unref(b->ceiling[i]);
        free(b->ceiling_name[i]);
    }
    b->own = NULL;
    b->set = (struct policy_set){0};
}
static void change_apply(struct box *b, struct change *c)
{
    int64_t now = clock_mono();
    policy_drop(b);
    b->own = c->own;
    b->set = (struct policy_set){.own = c->own, .nceilings = c->n, .is_host = hostaddr_why, .arg = b->g->host};
    for (int i = 0; i < c->n; i++) {
        b->ceiling[i] = c->ceiling[i];
        b->ceiling_name[i] = c->name[i];
        b->set.ceiling[i] = c->ceiling[i];
        b->set.ceiling_name[i] = c->name[i];
    }
    struct policy_limits l = policy_limits(&b->set);
    b->meter.max_conns = l.connections;
    b->meter.max_bytes = l.bytes;
    uint64_t burst = l.bytes_per_second / 4; /* a quarter second's worth, at least one packet's */
    bucket_set(&b->meter.rate, l.bytes_per_second, burst < 65536 ? 65536 : burst, now);
    bucket_set(&b->dns_rate, l.dns_per_second, l.dns_per_second * 2, now);
    if (c->ca) {
        tls_ca_free(b->ca);
        b->ca = c->ca;
        b->ca_cert.n = 0;
        buf_put(&b->ca_cert, c->cert.p, c->cert.n);
    }
    *c = (struct change){0};
}

static void say_policy(struct box *b, uint64_t cut)
{
    char rule[64];
    (void)snprintf(rule, sizeof rule, "mode %s", policy_mode_name(policy_mode(b->own)));
    struct gate_record r = {.kind = GATE_K_POLICY, .rule = rule, .allowed = true, .out = cut};
    gate_record(b, &r);
}

/* ---- add, update, remove ------------------------------------------------------------------------------------------------ */

static struct box *box_new(struct gate *g, struct str id, struct str sandbox, struct err *e)
{
    char sb[22] = "";
    if (!id_ok(id) || !id_ok(sandbox)) {
        (void)err_set(e, E_INVALID, "not an id");
        return NULL;
    }
    memcpy(sb, sandbox.p, 21);
    struct egress_log *log = egress_log_open(g->log_dir, sb, g->log_bytes, g->log_files, e);
    if (!log)
        return NULL; /* no record, no network */
    struct box *b = xcalloc(1, sizeof *b);
    b->g = g;
    b->log = log;
    memcpy(b->id, id.p, 21);
    memcpy(b->sandbox, sb, sizeof sb);
    list_init(&b->conns);
    list_init(&b->questions);
    list_init(&b->dns_conns);
    udp_init(b);
    meter_load_box(b);
    (void)map_set(&g->boxes, b->id, b);
    return b;
}

static int put_whole(struct gate *g, struct rec r, const int *fds, int nfds, struct box **ret, struct err *e)
{
    struct str id = {0}, sandbox = {0}, group[GROUPS_MAX];
    int ngroups = 0;
    struct field f;
    enum gate_sock roles[SOCKS_MAX];
    struct change c = {0};
    (void)rec_get(r, G_BOX, &id), (void)rec_get(r, G_SANDBOX, &sandbox);
    for (struct rec i = r; rec_next(&i, &f);)
        if (f.tag == G_GROUP && f.v.n && ngroups < GROUPS_MAX)
            group[ngroups++] = f.v;
    struct box *b = box_get(g, id);
    if (b && !str_eqz(sandbox, b->sandbox))
        return err_set(e, E_CONFLICT, "box %s belongs to another sandbox", b->id);
    int n = socks_check(r, nfds, fds, roles, e);
    if (n < 0 || change_parse(b, r, &c, e) || (!b && !(b = box_new(g, id, sandbox, e)))) {
        change_drop(&c);
        return -1;
    }
    groups_join(b, group, ngroups);
    change_apply(b, &c);
    socks_take(b, roles, fds, n);
    *ret = b;
    return n;
}

int box_put(struct gate *g, struct rec r, bool whole, const int *fds, int nfds, uint64_t *ret_cut, struct err *e)
{
    struct box *b = NULL;
    struct change c = {0};
    struct str id = {0};
    int taken = 0;
    if (whole)
        taken = put_whole(g, r, fds, nfds, &b, e);
    else if (!rec_get(r, G_BOX, &id) || !(b = box_get(g, id)))
        taken = err_set(e, E_NOT_FOUND, "the network gate does not know this box");
    else if (change_parse(b, r, &c, e)) {
        change_drop(&c);
        taken = -1;
    } else
        change_apply(b, &c);
    for (int i = taken > 0 ? taken : 0; i < nfds; i++)
        (void)close(fds[i]);
    if (taken < 0)
        return -1;
    *ret_cut = conns_review(b) + udp_review(b);
    say_policy(b, *ret_cut);
    return 0;
}

static void bury(void *arg)
{
    struct box *b = arg;
    egress_log_close(b->log);
    gate_log_ended(b->g);
    policy_drop(b);
    tls_ca_free(b->ca);
    buf_free(&b->ca_cert);
    binds_free(&b->binds);
    free(b);
}
void box_free(struct box *b)
{
    if (b->dead)
        return;
    b->dead = true;
    socks_close(b);
    conns_cut(b, "the sandbox ended");
    udp_cut(b, "the sandbox ended");
    dns_drop(b);
    meter_save_box(b);
    groups_join(b, NULL, 0);
    (void)map_del(&b->g->boxes, b->id);
    loop_defer(b->g->loop, bury, b);
}
