/* Patterns are split once. A request is compared with the patterns of its own
 * number of segments (and the remainders); the most specific match wins:
 * segment by segment, literal before capture before remainder. */
#include "http/router.h"
#include "http/conn.h"
#include "http/uri.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum seg_kind { SEG_LITERAL, SEG_CAPTURE, SEG_REST };
struct pattern {
    const struct route *route;
    int nseg; /* the remainder not counted */
    bool rest;
    struct str lit[HTTP_SEGMENTS_MAX / 4];
    unsigned char kind[HTTP_SEGMENTS_MAX / 4];
};
struct router { struct pattern *p; size_t n; };
#define PATTERN_SEGS ((int)(HTTP_SEGMENTS_MAX / 4))

static void split_pattern(struct pattern *p, const struct route *r)
{
    *p = (struct pattern){.route = r};
    const char *at = r->pattern;
    if (*at != '/')
        abort(); /* the table is const: a mistake in it is a bug */
    int captures = 0;
    while (*at == '/') {
        at++;
        size_t n = strcspn(at, "/");
        bool braces = n >= 3 && at[0] == '{' && at[n - 1] == '}';
        captures += braces;
        if (p->nseg == PATTERN_SEGS || captures > HTTP_CAPTURES_MAX || p->rest)
            abort();
        int i = p->nseg;
        p->kind[i] = !braces ? SEG_LITERAL : at[n - 2] == '*' ? SEG_REST : SEG_CAPTURE;
        p->lit[i] = braces ? (struct str){at + 1, n - 2} : (struct str){at, n};
        if (p->kind[i] == SEG_REST)
            p->rest = true;
        else
            p->nseg++;
        at += n;
    }
}

void router_add(struct router *r, const struct route *table, size_t n)
{
    r->p = xrealloc(r->p, (r->n + n) * sizeof *r->p);
    for (size_t i = 0; i < n; i++)
        split_pattern(&r->p[r->n + i], &table[i]);
    r->n += n;
}
struct router *router_new(const struct route *table, size_t n)
{
    struct router *r = xcalloc(1, sizeof *r);
    router_add(r, table, n);
    return r;
}
void router_free(struct router *r)
{
    if (!r)
        return;
    free(r->p);
    free(r);
}

static bool fits(const struct pattern *p, const struct http_stream *s, int nseg)
{
    if (p->rest ? nseg < p->nseg : nseg != p->nseg)
        return false;
    for (int i = 0; i < p->nseg; i++) {
        if (p->kind[i] == SEG_LITERAL ? !str_eq(p->lit[i], s->seg[i]) : !s->seg[i].n) /* a capture is never empty */
            return false;
    }
    return true;
}
/* a more specific than b? Both fit the same path. */
static bool beats(const struct pattern *a, const struct pattern *b)
{
    for (int i = 0; i < a->nseg && i < b->nseg; i++)
        if (a->kind[i] != b->kind[i])
            return a->kind[i] < b->kind[i];
    return a->nseg > b->nseg || (a->nseg == b->nseg && !a->rest && b->rest);
}
static bool same_path(const struct pattern *a, const struct pattern *b) { return !beats(a, b) && !beats(b, a); }

/* 2: the method itself, 1: falls to it, 0: no */
static int serves(const struct route *r, struct str method)
{
    if (str_eqz(method, r->method))
        return 2;
    if (!strcmp(r->method, "*") || (str_eqz(method, "HEAD") && !strcmp(r->method, "GET")))
        return 1;
    return 0;
}

static void add_allow(char *allow, size_t cap, const char *method)
{
    for (const char *at = allow; (at = strstr(at, method)); at += strlen(method))
        if ((at == allow || at[-1] == ' ') && (!at[strlen(method)] || at[strlen(method)] == ','))
            return;
    size_t n = strlen(allow);
    snprintf(allow + n, cap - n, "%s%s", n ? ", " : "", method);
}

/* Captures into the stream; false if the remainder is one we do not hand out. */
static bool capture(const struct pattern *p, struct http_stream *s, int nseg)
{
    s->ncap = 0;
    for (int i = 0; i < p->nseg; i++)
        if (p->kind[i] == SEG_CAPTURE)
            s->cap[s->ncap++] = (struct http_capture){p->lit[i].p, s->seg[i]};
    if (!p->rest)
        return true;
    s->cap_store.n = 0;
    for (int i = p->nseg; i < nseg; i++) {
        if (str_eqz(s->seg[i], ".") || str_eqz(s->seg[i], "..") || memchr(s->seg[i].p, '/', s->seg[i].n))
            return false;
        if (i > p->nseg)
            buf_putc(&s->cap_store, '/');
        buf_put(&s->cap_store, s->seg[i].p, s->seg[i].n);
    }
    buf_reserve(&s->cap_store, 0);
    s->cap_store.p[s->cap_store.n] = 0;
    s->cap[s->ncap++] = (struct http_capture){p->lit[p->nseg].p, {s->cap_store.p, s->cap_store.n}};
    return true;
}

void router_match(const struct router *r, struct http_stream *s, struct route_match *m)
{
    *m = (struct route_match){.status = 404};
    int nseg = http_nsegments(s);
    if (nseg < 0) {
        m->status = 400;
        return;
    }
    const struct pattern *best = NULL, *path = NULL; /* path: fits, whatever the method */
    int grade = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct pattern *p = &r->p[i];
        if (!fits(p, s, nseg))
            continue;
        if (!path || beats(p, path))
            path = p;
        int g = serves(p->route, http_method(s));
        if (g && (!best || beats(p, best) || (g > grade && same_path(p, best))))
            best = p, grade = g;
    }
    /* A remainder serves what is spelled out nowhere; it does not hide a wrong method on a path that is. */
    if (best && (!best->rest || path->rest)) {
        if (!capture(best, s, nseg)) {
            m->status = 400;
            return;
        }
        m->route = best->route;
        m->status = 200;
        return;
    }
    if (!path)
        return;
    m->status = 405;
    for (size_t i = 0; i < r->n; i++) {
        const struct pattern *p = &r->p[i];
        if (!fits(p, s, nseg) || !same_path(p, path))
            continue;
        add_allow(m->allow, sizeof m->allow, p->route->method);
        if (!strcmp(p->route->method, "GET"))
            add_allow(m->allow, sizeof m->allow, "HEAD");
    }
}

void router_dispatch(const struct router *r, struct http_stream *s, void *arg)
{
    struct route_match m;
    router_match(r, s, &m);
    if (m.route) {
        m.route->fn(s, arg);
        return;
    }
    if (m.status == 405)
        (void)http_header(s, "Allow", m.allow); /* methods of our own table */
    stream_problem(s, m.status,
                   m.status == 404   ? "no such path"
                   : m.status == 405 ? "the path exists, the method does not"
                                     : "malformed path");
}
