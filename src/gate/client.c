#include "gate/client.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "gate/link.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define QUEUE_MAX    8192 /* messages that hutch-egress has not read */
#define RETRY_FIRST  (20 * NS_PER_MS)
#define RETRY_LAST   NS_PER_S
#define HELLO_NS     (5 * NS_PER_S)
#define STATS_MAX    4096

union done { gate_done *plain; gate_stats_done *stats; gate_secret_stats_done *secrets; gate_list_done *list; };
enum shape { SHAPE_PLAIN, SHAPE_STATS, SHAPE_SECRETS, SHAPE_LIST };
struct call { struct list node; uint32_t serial; enum gate_op op; enum shape shape; union done done; void *arg; struct err e; };

struct gate_client {
    struct loop *loop;
    char path[108];
    struct gate_client_ops ops;
    void *arg;
    struct gate_link link;
    struct timer retry;
    int64_t wait;
    bool up, freed;
    uint32_t serial;
    struct list waiting, failed; /* failed: answers due at the end of the turn */
    bool failing;
};

static const char *const kind_names[GATE_K_MAX] = {"", "dns", "open", "close", "deny", "http", "fail", "cut", "policy"};
const char *gate_kind_name(enum gate_kind k) { return k > 0 && k < GATE_K_MAX ? kind_names[k] : "?"; }

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void answer_err(struct call *k, const struct err *e)
{
    switch (k->shape) {
    case SHAPE_PLAIN:
        if (k->done.plain)
            k->done.plain(k->arg, e, 0);
        break;
    case SHAPE_STATS: k->done.stats(k->arg, e, NULL, 0); break;
    case SHAPE_SECRETS: k->done.secrets(k->arg, e, NULL, 0); break;
    case SHAPE_LIST: k->done.list(k->arg, e, NULL, 0); break;
    }
}
static void call_fail(struct call *k, const struct err *e)
{
    list_del(&k->node);
    answer_err(k, e);
    free(k);
}
static void run_failed(void *arg)
{
    struct gate_client *c = arg;
    c->failing = false;
    struct list due;
    list_init(&due);
    while (!list_empty(&c->failed)) {
        struct list *n = c->failed.next;
        list_del(n);
        list_add_tail(&due, n);
    }
    while (!list_empty(&due)) {
        struct call *k = container_of(due.next, struct call, node);
        struct err e = k->e;
        call_fail(k, &e);
    }
}
static void fail_later(struct gate_client *c, struct call *k, enum err_code code, const char *msg)
{
    (void)err_set(&k->e, code, "%s", msg);
    list_del(&k->node);
    list_add_tail(&c->failed, &k->node);
    if (!c->failing)
        loop_defer(c->loop, run_failed, c);
    c->failing = true;
}

/* Text of another process: whatever is not UTF-8 is shown as nothing. Copies live in the caller's store. */
struct texts { char *p[16]; int n; };
static const char *text(struct texts *t, struct rec r, uint8_t tag)
{
    struct str s;
    if (!rec_get(r, tag, &s) || !s.n || !str_utf8(s) || t->n == 16)
        return "";
    return t->p[t->n++] = xstrndup(s.p, s.n);
}
static void texts_free(struct texts *t)
{
    while (t->n)
        free(t->p[--t->n]);
}

static void answer_stats(struct call *k, struct rec r)
{
    struct gate_stat *s = NULL;
    struct gate_secret_stat *ss = NULL;
    struct texts *t = NULL;
    size_t n = 0;
    struct field f;
    for (struct rec i = r; rec_next(&i, &f) && n < STATS_MAX;) {
        if (f.tag != G_STAT || !rec_ok(field_rec(f)))
            continue;
        struct rec x = field_rec(f);
        t = xrealloc(t, (n + 1) * sizeof *t);
        t[n] = (struct texts){.n = 0};
        if (k->shape == SHAPE_SECRETS) {
            ss = xrealloc(ss, (n + 1) * sizeof *ss);
            ss[n] = (struct gate_secret_stat){text(&t[n], x, G_NAME), rec_u64_or(x, G_CALLS, 0), rec_u64_or(x, G_BYTES, 0)};
        } else {
            s = xrealloc(s, (n + 1) * sizeof *s);
            s[n] = (struct gate_stat){.box = text(&t[n], x, G_BOX), .conns = rec_u64_or(x, G_CONNS, 0), .total = rec_u64_or(x, G_TOTAL, 0),
                                      .denied = rec_u64_or(x, G_DENIED, 0), .in = rec_u64_or(x, G_IN, 0), .out = rec_u64_or(x, G_OUT, 0),
                                      .dns = rec_u64_or(x, G_DNS, 0), .dns_denied = rec_u64_or(x, G_DNS_DENIED, 0),
                                      .seq = rec_u64_or(x, G_SEQ, 0), .hash = text(&t[n], x, G_HASH)};
        }
        n++;
    }
    if (k->shape == SHAPE_SECRETS)
        k->done.secrets(k->arg, NULL, ss, n);
    else
        k->done.stats(k->arg, NULL, s, n);
    for (size_t i = 0; i < n; i++)
        texts_free(&t[i]);
    free(s), free(ss), free(t);
}
static void answer_list(struct call *k, struct rec r)
{
    char **ids = NULL;
    size_t n = 0;
    struct field f;
    while (rec_next(&r, &f))
        if (f.tag == G_BOX && id_ok(f.v)) {
            ids = xrealloc(ids, (n + 1) * sizeof *ids);
            ids[n++] = xstrndup(f.v.p, f.v.n);
        }
    k->done.list(k->arg, NULL, (const char *const *)ids, n);
    for (size_t i = 0; i < n; i++)
        free(ids[i]);
    free(ids);
}
static void answer(struct gate_client *c, struct call *k, const struct gate_head *h, struct rec r)
{
    (void)c;
    if (h->code != E_OK) {
        struct texts t = {.n = 0};
        struct err e;
        const char *msg = text(&t, r, G_MESSAGE);
        (void)err_set(&e, h->code > 0 && h->code < E_CODE_MAX ? (enum err_code)h->code : E_INTERNAL, "%s", *msg ? msg : "the network gate refused");
        texts_free(&t);
        call_fail(k, &e);
        return;
    }
    list_del(&k->node);
    switch (k->shape) {
    case SHAPE_PLAIN:
        if (k->done.plain)
            k->done.plain(k->arg, NULL, rec_u64_or(r, G_COUNT, 0));
        break;
    case SHAPE_STATS:
    case SHAPE_SECRETS: answer_stats(k, r); break;
    case SHAPE_LIST: answer_list(k, r); break;
    }
    free(k);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

static void record(struct gate_client *c, struct rec r)
{
    struct texts t = {.n = 0};
    struct gate_record g = {
        .box = text(&t, r, G_BOX), .sandbox = text(&t, r, G_SANDBOX), .kind = (enum gate_kind)rec_u64_or(r, G_KIND, 0),
        .seq = rec_u64_or(r, G_SEQ, 0), .time_ns = (int64_t)rec_u64_or(r, G_TIME_NS, 0), .conn = rec_u64_or(r, G_CONN, 0),
        .name = text(&t, r, G_NAME), .type = text(&t, r, G_TYPE), .addr = text(&t, r, G_ADDR), .method = text(&t, r, G_METHOD),
        .path = text(&t, r, G_PATH), .rule = text(&t, r, G_RULE), .reason = text(&t, r, G_REASON), .secret = text(&t, r, G_SECRET),
        .port = (unsigned)rec_u64_or(r, G_PORT, 0) & 0xffff, .status = (unsigned)rec_u64_or(r, G_STATUS, 0) % 1000,
        .in = rec_u64_or(r, G_IN, 0), .out = rec_u64_or(r, G_OUT, 0), .ms = rec_u64_or(r, G_MS, 0),
        .allowed = rec_u64_or(r, G_VERDICT, 0) != 0, .lost = rec_u64_or(r, G_LOST, 0),
    };
    if (g.kind > 0 && g.kind < GATE_K_MAX && c->ops.on_record)
        c->ops.on_record(c->arg, &g);
    texts_free(&t);
}

/* ---- the connection ----------------------------------------------------------------------------------------------- */

static void drop_waiting(struct gate_client *c, enum err_code code, const char *why)
{
    struct call *k;
    list_each(k, &c->waiting, node)
        fail_later(c, k, code, why);
}
static void later(struct gate_client *c)
{
    timer_arm(&c->retry, c->wait);
    c->wait = c->wait * 2 > RETRY_LAST ? RETRY_LAST : c->wait * 2;
}
static void down(struct gate_client *c, const char *why)
{
    bool was = c->up;
    c->up = false;
    drop_waiting(c, E_UNAVAILABLE, "the network gate (hutch-egress) went away; it is connected to again by itself");
    later(c);
    if (was && c->ops.on_down)
        c->ops.on_down(c->arg, why);
}
static void on_end(void *arg, const char *why)
{
    struct gate_client *c = arg;
    timer_stop(&c->retry);
    down(c, why);
}
static void on_msg(void *arg, const struct gate_head *h, struct rec r, const int *fds, int nfds)
{
    struct gate_client *c = arg;
    for (int i = 0; i < nfds; i++) /* it has none to give */
        (void)close(fds[i]);
    if (!h->serial) {
        if (h->op == GATE_RECORD)
            record(c, r);
        return;
    }
    if (h->op == GATE_HELLO && !c->up) {
        timer_stop(&c->retry);
        c->up = true;
        c->wait = RETRY_FIRST;
        if (c->ops.on_up)
            c->ops.on_up(c->arg);
        return;
    }
    struct call *k;
    list_each(k, &c->waiting, node)
        if (k->serial == h->serial && k->op == h->op) {
            answer(c, k, h, r);
            return;
        }
}

static int dial(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || strlen(path) >= sizeof un.sun_path)
        return -1;
    memcpy(un.sun_path, path, strlen(path) + 1);
    return connect(fd, (void *)&un, sizeof un) ? -1 : take_fd(&fd);
}
/* Also the deadline of the hello. */
static void try_connect(void *arg)
{
    struct gate_client *c = arg;
    gate_link_close(&c->link);
    int fd = dial(c->path);
    if (fd < 0) {
        later(c);
        return;
    }
    gate_link_open(&c->link, c->loop, fd);
    struct buf b = {0};
    gate_msg(&b, GATE_HELLO, ++c->serial, 0);
    (void)gate_link_send(&c->link, &b, NULL, 0); /* if it fails the deadline below tries again */
    timer_arm(&c->retry, HELLO_NS);
}

struct gate_client *gate_client_new(struct loop *l, const char *path, const struct gate_client_ops *ops, void *arg)
{
    struct gate_client *c = xcalloc(1, sizeof *c);
    c->loop = l;
    c->ops = *ops;
    c->arg = arg;
    c->wait = RETRY_FIRST;
    (void)stpncpy(c->path, path, sizeof c->path - 1);
    c->link = (struct gate_link){.fd = -1, .on_msg = on_msg, .on_end = on_end, .arg = c};
    list_init(&c->waiting);
    list_init(&c->failed);
    timer_init(&c->retry, l, try_connect, c);
    timer_arm(&c->retry, 0);
    return c;
}
static void bury(void *arg) { free(arg); }
void gate_client_free(struct gate_client *c)
{
    if (!c || c->freed)
        return;
    c->freed = true;
    c->ops = (struct gate_client_ops){0};
    timer_stop(&c->retry);
    gate_link_close(&c->link);
    c->up = false;
    drop_waiting(c, E_CANCELED, "the daemon is stopping");
    loop_defer(c->loop, bury, c); /* after run_failed, which was deferred before */
}
bool gate_client_up(const struct gate_client *c) { return c->up; }

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static void request(struct gate_client *c, enum gate_op op, struct buf *b, const int *fds, int nfds, enum shape shape, union done done, void *arg)
{
    struct call *k = xcalloc(1, sizeof *k);
    if (!++c->serial)
        c->serial = 1;
    *k = (struct call){.serial = c->serial, .op = op, .shape = shape, .done = done, .arg = arg};
    list_add_tail(&c->waiting, &k->node);
    struct gate_head h = {GATE_VERSION, (uint16_t)op, k->serial, 0, 0};
    memcpy(b->p, &h, sizeof h);
    bool large = b->n > GATE_MSG_MAX;
    if (c->up && !large && c->link.queued < QUEUE_MAX && gate_link_send(&c->link, b, fds, nfds))
        return;
    buf_free(b);
    if (large)
        fail_later(c, k, E_TOO_LARGE, "the network policy with its certificates is too large");
    else
        fail_later(c, k, E_UNAVAILABLE, "the network gate (hutch-egress) does not answer; it is being connected to");
}
static void start(struct buf *b, enum gate_op op) { gate_msg(b, op, 0, 0); }
static void put(struct buf *b, enum gate_tag tag, struct str s)
{
    if (s.n)
        rec_put(b, (uint8_t)tag, s.p, s.n);
}

static void put_policy(struct buf *m, const struct gate_box *b)
{
    rec_put_str(m, G_BOX, b->box);
    rec_put(m, G_POLICY, b->policy.p ? b->policy.p : "", b->policy.n);
    for (int i = 0; i < b->nceilings; i++) {
        size_t mark = rec_open(m, G_CEILING);
        rec_put_str(m, G_NAME, b->ceiling[i].name);
        rec_put(m, G_POLICY, b->ceiling[i].policy.p ? b->ceiling[i].policy.p : "", b->ceiling[i].policy.n);
        rec_close(m, mark);
    }
    put(m, G_CA_CERT, b->ca_cert);
    put(m, G_CA_KEY, b->ca_key);
}
void gate_add(struct gate_client *c, const struct gate_box *b, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_ADD);
    put_policy(&m, b);
    rec_put_str(&m, G_SANDBOX, b->sandbox);
    for (int i = 0; i < 2; i++)
        if (b->group[i])
            rec_put_str(&m, G_GROUP, b->group[i]);
    for (int i = 0; i < b->nsocks; i++)
        rec_put_u64(&m, G_SOCK, b->sock[i]);
    request(c, GATE_ADD, &m, b->fds, b->nsocks, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_policy(struct gate_client *c, const struct gate_box *b, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_POLICY);
    put_policy(&m, b);
    request(c, GATE_POLICY, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_remove(struct gate_client *c, const char *box, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_REMOVE);
    rec_put_str(&m, G_BOX, box);
    request(c, GATE_REMOVE, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_group(struct gate_client *c, const char *group, const struct gate_limits *l, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_GROUP);
    rec_put_str(&m, G_GROUP, group);
    rec_put_u64(&m, G_CONNS, l->connections);
    rec_put_u64(&m, G_RATE, l->bytes_per_second);
    rec_put_u64(&m, G_BYTES, l->bytes_per_day);
    request(c, GATE_GROUP, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_secret(struct gate_client *c, const char *id, struct str value, const struct gate_budget *b, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_SECRET);
    rec_put_str(&m, G_NAME, id);
    put(&m, G_VALUE, value);
    if (b) {
        rec_put_u64(&m, G_CALLS_MAX, b->calls_max);
        rec_put_u64(&m, G_BYTES_MAX, b->bytes_max);
        rec_put_u64(&m, G_CALLS, b->calls);
        rec_put_u64(&m, G_BYTES, b->bytes);
    }
    request(c, GATE_SECRET, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_secret_drop(struct gate_client *c, const char *id, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_SECRET_DROP);
    rec_put_str(&m, G_NAME, id);
    request(c, GATE_SECRET_DROP, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
void gate_stats(struct gate_client *c, const char *box, gate_stats_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_STATS);
    rec_put_str(&m, G_BOX, box);
    request(c, GATE_STATS, &m, NULL, 0, SHAPE_STATS, (union done){.stats = done}, arg);
}
void gate_secret_stats(struct gate_client *c, const char *id, gate_secret_stats_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_SECRET_STATS);
    rec_put_str(&m, G_NAME, id);
    request(c, GATE_SECRET_STATS, &m, NULL, 0, SHAPE_SECRETS, (union done){.secrets = done}, arg);
}
void gate_list(struct gate_client *c, gate_list_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_LIST);
    request(c, GATE_LIST, &m, NULL, 0, SHAPE_LIST, (union done){.list = done}, arg);
}
void gate_config(struct gate_client *c, const struct gate_config *cfg, gate_done *done, void *arg)
{
    struct buf m = {0};
    start(&m, GATE_CONFIG);
    for (int i = 0; i < cfg->nresolvers; i++)
        rec_put_str(&m, G_RESOLVER, cfg->resolvers[i]);
    for (size_t i = 0; i < cfg->ndirect; i++)
        rec_put_str(&m, G_DIRECT, cfg->direct[i]);
    for (size_t i = 0; i < cfg->nvia; i++) {
        const struct gate_via *v = &cfg->via[i];
        size_t mark = rec_open(&m, G_VIA);
        rec_put_str(&m, G_NAME, v->hosts);
        rec_put_str(&m, G_ADDR, v->addr);
        if (v->auth)
            rec_put_str(&m, G_VALUE, v->auth);
        rec_put_u64(&m, G_COUNT, v->by_name);
        rec_close(&m, mark);
    }
    if (cfg->log_bytes)
        rec_put_u64(&m, G_LOG_BYTES, cfg->log_bytes);
    if (cfg->log_files)
        rec_put_u64(&m, G_LOG_FILES, cfg->log_files);
    rec_put_u64(&m, G_LOG_DAYS, cfg->log_days);
    rec_put_u64(&m, G_LOG_SANDBOXES, cfg->log_sandboxes);
    if (cfg->udp_idle_s)
        rec_put_u64(&m, G_UDP_IDLE, cfg->udp_idle_s);
    request(c, GATE_CONFIG, &m, NULL, 0, SHAPE_PLAIN, (union done){.plain = done}, arg);
}
