/* Heads: whom a request addresses, what goes out instead of it, what comes back. */
#include "gate/http_int.h"
#include <stdio.h>
#include <string.h>

/* ---- target ------------------------------------------------------------------------------------------------------------ */

static bool target_host(struct str authority, struct http_target *t)
{
    struct str host;
    if (!name_split_port(authority, &host, &t->port))
        return false;
    if (ip_parse(host, &t->ip)) {
        t->ip = ip_plain(&t->ip);
        t->has_ip = true;
        return true;
    }
    return name_canon(host, t->name);
}
bool http_target_of(const struct http_proxy *h, struct http_target *ret, const char **why)
{
    const struct http_head *q = &h->req.head;
    const struct conn *c = h->c;
    struct http_target t = {.port = c->proxy ? 80 : c->port};
    if (c->proxy && q->form != HTTP_FORM_AUTHORITY && (q->form != HTTP_FORM_ABSOLUTE || q->target.n < 7 || !str_ieqz((struct str){q->target.p, 7}, "http://"))) {
        *why = "this is a proxy: send CONNECT host:port, or a request with an absolute http:// URL";
        return false;
    }
    if (!target_host(q->form == HTTP_FORM_AUTHORITY ? q->authority : q->host, &t)) {
        *why = "the request has no usable Host";
        return false;
    }
    if (c->proxy) {
        *ret = t;
        return true;
    }
    if (t.port != c->port) {
        *why = "the port in Host is not the port that was connected to";
        return false;
    }
    if (t.has_ip && !ip_eq(&t.ip, &c->dst)) {
        *why = "the address in Host is not the address that was connected to";
        return false;
    }
    const char *must = c->intercept ? c->name : c->want;
    if (must[0] && strcmp(must, t.name)) {
        *why = c->intercept ? "Host is not the TLS server name" : "Host is not the host that CONNECT asked for";
        return false;
    }
    t.ip = c->dst;
    t.has_ip = true;
    *ret = t;
    return true;
}

/* ---- secrets ------------------------------------------------------------------------------------------------------------- */

struct put { struct policy_inject in; const struct secret *s; };
struct puts { struct put v[HTTP_INJECT_MAX]; size_t n; };

static bool secret_left(const struct secret *s) { return (!s->calls_max || s->calls < s->calls_max) && (!s->bytes_max || s->bytes < s->bytes_max); }

static int puts_find(struct http_proxy *h, const struct policy_ask *q, struct puts *p, const char **why)
{
    struct policy_inject in[HTTP_INJECT_MAX];
    p->n = policy_injects(h->c->box->own, q, in, HTTP_INJECT_MAX);
    for (size_t i = 0; i < p->n; i++) {
        struct secret *s = gate_secret_get(h->c->g, in[i].secret);
        (void)snprintf(h->secret, sizeof h->secret, "%.*s", (int)in[i].secret.n, in[i].secret.p);
        if (!s) {
            *why = "the secret for this host is not set, so the request was not sent";
            return -1;
        }
        if (!secret_left(s)) {
            *why = "the budget of the secret for this host is used up";
            return -1;
        }
        if (h->websocket && !in[i].websocket) {
            *why = "a WebSocket with a secret needs \"websocket\": true in the inject rule";
            return -1;
        }
        p->v[i] = (struct put){in[i], s};
    }
    if (p->n && str_eqz(q->method, "TRACE")) { /* its answer is the request itself */
        *why = "TRACE is not sent to a host that gets a secret";
        return -1;
    }
    return 0;
}
void http_spend(struct http_proxy *h, uint64_t bytes)
{
    struct secret *s = h->secret[0] ? gate_secret_get(h->c->g, str_of(h->secret)) : NULL;
    if (s)
        s->bytes += bytes;
}
bool http_budget_ok(struct http_proxy *h)
{
    struct secret *s = h->secret[0] ? gate_secret_get(h->c->g, str_of(h->secret)) : NULL;
    return !s || !s->bytes_max || s->bytes < s->bytes_max;
}

/* Header names as a sloppy server might read them: case and the kind of dash do not matter. */
static bool same_header(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        char x = a.p[i], y = b.p[i];
        x = x >= 'A' && x <= 'Z' ? (char)(x + 32) : x == '_' ? '-' : x;
        y = y >= 'A' && y <= 'Z' ? (char)(y + 32) : y == '_' ? '-' : y;
        if (x != y)
            return false;
    }
    return true;
}
static bool overwritten(const struct puts *p, struct str name)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].in.header.n && same_header(p->v[i].in.header, name))
            return true;
    return false;
}

static bool limited_by_request(const struct puts *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].in.by_request)
            return true;
    return false;
}

static void put_query(struct buf *out, const struct secret *s)
{
    for (size_t i = 0; i < s->n; i++) {
        unsigned char ch = (unsigned char)s->value[i];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '-' || ch == '.' || ch == '_' || ch == '~';
        if (plain)
            buf_putc(out, (char)ch);
        else
            buf_printf(out, "%%%02X", ch);
    }
}
/* Text with placeholders exchanged for secrets. *ret_used: a secret went in. */
static void put_replaced(struct buf *out, struct str text, const struct puts *p, bool query, bool *used)
{
    while (text.n) {
        const struct put *first = NULL;
        const char *at = NULL;
        for (size_t i = 0; i < p->n; i++) {
            struct str ph = p->v[i].in.placeholder;
            const char *f = ph.n ? memmem(text.p, text.n, ph.p, ph.n) : NULL;
            if (f && (!at || f < at))
                at = f, first = &p->v[i];
        }
        if (!first)
            break;
        buf_put(out, text.p, (size_t)(at - text.p));
        if (query)
            put_query(out, first->s);
        else
            buf_put(out, first->s->value, first->s->n);
        *used = true;
        size_t skip = (size_t)(at - text.p) + first->in.placeholder.n;
        text.p += skip, text.n -= skip;
    }
    buf_put(out, text.p, text.n);
}
static void put_header(struct buf *out, const struct put *v)
{
    const char *at = memmem(v->in.format.p, v->in.format.n, "{secret}", 8); /* the policy was parsed: it is there */
    buf_put(out, v->in.header.p, v->in.header.n);
    buf_puts(out, ": ");
    buf_put(out, v->in.format.p, (size_t)(at - v->in.format.p));
    buf_put(out, v->s->value, v->s->n);
    buf_put(out, at + 8, v->in.format.n - (size_t)(at - v->in.format.p) - 8);
    buf_puts(out, "\r\n");
}

/* What its host may have been sent, with this request or with one before, must not come back: plain, or as a query spells it. */
static void mask_host(struct http_proxy *h, const struct policy_ask *q)
{
    struct str id[POLICY_INJECT_MAX];
    size_t n = q->proto == PROTO_TLS
                   ? policy_secrets_of_host(h->c->box->own, q->name, q->port, id, POLICY_INJECT_MAX)
                   : 0;
    mask_clear(&h->mask);
    for (size_t i = 0; i < n; i++) {
        const struct secret *s = gate_secret_get(h->c->g, id[i]);
        if (!s)
            continue;
        auto_buf spelled = {0};
        put_query(&spelled, s);
        mask_add(&h->mask, s->value, s->n);
        mask_add(&h->mask, spelled.p, spelled.n);
        explicit_bzero(spelled.p, spelled.n);
    }
}

/* ---- requests --------------------------------------------------------------------------------------------------------------- */

static void put_host(struct http_proxy *h)
{
    const struct http_target *t = &h->to;
    char ip[IP_TEXT];
    bool usual = t->port == (h->c->intercept ? 443 : 80);
    ip_text(&t->ip, ip);
    buf_printf(&h->head, t->name[0] || !t->ip.v6 ? "Host: %s" : "Host: [%s]", t->name[0] ? t->name : ip);
    if (!usual)
        buf_printf(&h->head, ":%u", t->port);
    buf_puts(&h->head, "\r\n");
}
static void put_framing(struct buf *out, enum http_framing f, uint64_t length)
{
    if (f == HTTP_BODY_LENGTH)
        buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)length);
    else if (f == HTTP_BODY_CHUNKED)
        buf_puts(out, "Transfer-Encoding: chunked\r\n");
}
static bool framing_field(struct str name)
{
    return str_ieqz(name, "content-length") || str_ieqz(name, "transfer-encoding") || str_ieqz(name, "host") || str_ieqz(name, "connection") ||
           str_ieqz(name, "upgrade") || str_ieqz(name, "http2-settings") || str_ieqz(name, "te");
}
static bool is_one_of(struct str name, const struct str *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (same_header(name, list[i]))
            return true;
    return false;
}
#define STR(z)             {z, sizeof(z) - 1}
#define IS_ONE_OF(name, l) is_one_of(name, l, sizeof(l) / sizeof *(l))

/* They make a server answer with a part of what it has, or packed: a secret in it would pass unseen. */
static bool asks_for_less(struct str name)
{
    static const struct str list[] = {STR("range"), STR("if-range"), STR("request-range"), STR("x-ms-range"), STR("a-im"),
                                      STR("accept-encoding"), STR("sec-websocket-extensions")};
    return IS_ONE_OF(name, list);
}
/* Servers that take these for the method or the path would do something else than what a rule allowed. */
static bool asks_for_other(struct str name)
{
    static const struct str list[] = {STR("x-http-method-override"), STR("x-http-method"), STR("x-method-override"),
                                      STR("x-original-url"), STR("x-rewrite-url"), STR("x-override-url")};
    return IS_ONE_OF(name, list);
}

int http_rewrite(struct http_proxy *h, const struct policy_ask *q, const char **why)
{
    const struct http_head *r = &h->req.head;
    struct puts p = {0};
    h->secret[0] = 0;
    if (puts_find(h, q, &p, why))
        return -1;
    bool used[HTTP_INJECT_MAX] = {0}, any = false;
    mask_host(h, q);
    bool masked = h->mask.n > 0, fixed = h->by_request || limited_by_request(&p);
    h->head.n = 0;
    buf_put(&h->head, r->method.p, r->method.n);
    buf_putc(&h->head, ' ');
    if (r->form == HTTP_FORM_ASTERISK)
        buf_putc(&h->head, '*');
    else if (r->path.n)
        buf_put(&h->head, r->path.p, r->path.n);
    else
        buf_putc(&h->head, '/');
    if (r->query.p) {
        buf_putc(&h->head, '?');
        put_replaced(&h->head, r->query, &p, true, &any);
    }
    buf_puts(&h->head, " HTTP/1.1\r\n");
    put_host(h);
    for (uint32_t i = 0; i < r->nfields; i++) {
        struct str name = r->fields[i].name;
        if (framing_field(name) || http_hop_by_hop(r, name) || overwritten(&p, name) || (masked && asks_for_less(name)) || (fixed && asks_for_other(name)))
            continue;
        buf_put(&h->head, name.p, name.n);
        buf_puts(&h->head, ": ");
        put_replaced(&h->head, r->fields[i].value, &p, false, &any);
        buf_puts(&h->head, "\r\n");
    }
    for (size_t i = 0; i < p.n; i++)
        if (p.v[i].in.header.n) {
            put_header(&h->head, &p.v[i]);
            used[i] = true;
        }
    if (masked)
        buf_puts(&h->head, "Accept-Encoding: identity\r\n"); /* so that an echo of the secret can be seen */
    if (h->websocket)
        buf_puts(&h->head, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    put_framing(&h->head, r->framing, r->length);
    buf_puts(&h->head, "\r\n");
    h->secret[0] = 0;
    for (size_t i = 0; i < p.n; i++) {
        if (!used[i] && !(any && p.v[i].in.placeholder.n))
            continue;
        struct secret *s = (struct secret *)(uintptr_t)p.v[i].s;
        s->calls++;
        (void)snprintf(h->secret, sizeof h->secret, "%s", s->id);
    }
    return 0;
}

/* ---- responses --------------------------------------------------------------------------------------------------------------- */

const char *http_response_unseen(const struct http_proxy *h)
{
    const struct http_head *r = &h->res.head;
    if (!h->mask.n)
        return NULL;
    if (r->status == 206 || r->status == 226)
        return "the host, which gets a secret, answered with a part (206, 226) that nobody asked for";
    for (uint32_t i = 0; i < r->nfields; i++) {
        struct str name = r->fields[i].name, value = r->fields[i].value;
        if (str_ieqz(name, "content-encoding") && !str_ieqz(value, "identity"))
            return "the host, which gets a secret, answered compressed although it was asked not to";
        if (str_ieqz(name, "content-type") && value.n >= 20 &&
            str_ieqz((struct str){value.p, 20}, "multipart/byteranges"))
            return "the host, which gets a secret, answered with parts (multipart/byteranges) that nobody asked for";
    }
    return NULL;
}
void http_response_head(struct http_proxy *h, struct buf *out)
{
    const struct http_head *r = &h->res.head;
    size_t from = out->n;
    bool interim = r->status < 200;
    buf_printf(out, "HTTP/1.1 %d ", r->status);
    buf_put(out, r->reason.p, r->reason.n);
    buf_puts(out, "\r\n");
    for (uint32_t i = 0; i < r->nfields; i++) {
        struct str name = r->fields[i].name;
        bool length = str_ieqz(name, "content-length") && r->framing == HTTP_BODY_NONE; /* of a body that HEAD does not send */
        if (!length && (framing_field(name) || http_hop_by_hop(r, name)))
            continue;
        buf_put(out, name.p, name.n);
        buf_puts(out, ": ");
        buf_put(out, r->fields[i].value.p, r->fields[i].value.n);
        buf_puts(out, "\r\n");
    }
    if (r->status == 101) {
        struct str u = http_head_get(r, "upgrade");
        buf_puts(out, "Connection: Upgrade\r\nUpgrade: ");
        buf_put(out, u.p, u.n);
        buf_puts(out, "\r\n");
    } else if (!interim) {
        if (r->framing == HTTP_BODY_CHUNKED || r->framing == HTTP_BODY_CLOSE) {
            if (h->client10)
                h->keep = false;
            else
                buf_puts(out, "Transfer-Encoding: chunked\r\n");
        } else
            put_framing(out, r->framing, r->length);
        buf_puts(out, h->keep ? (h->client10 ? "Connection: keep-alive\r\n" : "") : "Connection: close\r\n");
    }
    buf_puts(out, "\r\n");
    mask_all(&h->mask, out->p + from, out->n - from);
}
