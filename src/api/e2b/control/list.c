/* Lists: every filter, then the order, then the page. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "http/uri.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- text ---- */
static bool decode_piece(struct str in, struct buf *out)
{
    auto_buf once = {0};
    out->n = 0;
    if (!uri_decode(in, true, &once) || !uri_decode((struct str){once.p, once.n}, false, out))
        return false;
    buf_put(out, "", 0);
    return true;
}

/* The SDK encodes key and value, builds form data of them (which encodes again), and sends that as a parameter. */
int e2b_meta_parse(struct str decoded, struct kv *ret)
{
    struct str k, v;
    auto_buf key = {0}, value = {0};
    while (query_next(&decoded, &k, &v)) {
        if (!decode_piece(k, &key) || !decode_piece(v, &value) || ret->n >= PARAM_META_MAX)
            return -1;
        kv_set(ret, (struct str){key.p, key.n}, (struct str){value.p ? value.p : "", value.n});
    }
    return 0;
}

int64_t e2b_time_parse(const char *s)
{
    struct tm tm = {0};
    int used = 0;
    if (sscanf(s, "%4d-%2d-%2d%*1[Tt ]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &used) != 6 ||
        !used)
        return INT64_MIN;
    int64_t frac = 0, unit = NS_PER_S / 10;
    s += used;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
            frac += (*s - '0') * unit;
    int oh = 0, om = 0, sign = 0;
    if (*s == '+' || *s == '-' || *s == ' ') { /* a '+' that was not encoded arrives as a space */
        sign = *s == '-' ? -1 : 1;
        if (sscanf(s + 1, "%2d:%2d%n", &oh, &om, &used) != 2)
            return INT64_MIN;
        s += 1 + used;
    } else if (*s == 'Z' || *s == 'z') {
        s++;
    } else {
        return INT64_MIN;
    }
    if (*s || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31)
        return INT64_MIN;
    tm.tm_year -= 1900, tm.tm_mon -= 1;
    return ((int64_t)timegm(&tm) - sign * (oh * 3600 + om * 60)) * NS_PER_S + frac;
}

/* ---- order ---- */
static int64_t start_of(const struct sandbox *sb)
{
    return sb->started_ns ? sb->started_ns : sb->created_ns;
}

static int compare(int64_t at, const char *id, int64_t at2, const char *id2)
{
    return at < at2 ? -1 : at > at2 ? 1 : strcmp(id, id2);
}
static int oldest_first(const void *a, const void *b)
{
    const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
    return compare(start_of(x), x->id, start_of(y), y->id);
}

struct query {
    bool running, paused, asc;
    struct kv meta;
    const char *template;
    int64_t after;
    uint64_t limit;
    int64_t token_at;
    char token_id[22]; /* "": from the start */
};

static int read_token(struct http_stream *s, struct query *q, struct err *e)
{
    auto_buf b = {0};
    const char *t = param_str(s, "nextToken", &b);
    char *end;
    if (!t || !*t)
        return 0;
    q->token_at = strtoll(t, &end, 10);
    if (end == t || *end != '-' || !id_ok(str_of(end + 1)))
        return err_set(e, E_INVALID, "Invalid next token");
    memcpy(q->token_id, end + 1, sizeof q->token_id);
    return 0;
}

static int read_states(struct http_stream *s, struct query *q, struct err *e)
{
    struct str rest = http_query(s), k, v;
    bool any = false;
    while (query_next(&rest, &k, &v)) { /* a comma list, or the parameter again */
        auto_buf b = {0};
        if (!str_eqz(k, "state") || !uri_decode(v, true, &b))
            continue;
        for (const char *p = b.p ? b.p : ""; *p;) {
            size_t n = strcspn(p, ",");
            struct str one = {p, n};
            if (str_eqz(one, "running"))
                q->running = true;
            else if (str_eqz(one, "paused"))
                q->paused = true;
            else
                return err_set(e, E_INVALID, "state: must be running or paused");
            any = true;
            p += n + (p[n] == ',');
        }
    }
    if (!any)
        q->running = q->paused = true;
    return 0;
}

static int read_query(struct http_stream *s, struct query *q, struct buf *template, struct err *e)
{
    auto_buf meta = {0}, order = {0}, after = {0};
    const char *t;
    if (read_states(s, q, e) || param_u64(s, "limit", 1, 100, 100, &q->limit, e) ||
        read_token(s, q, e) || param_text(s, "template", E2B_NAME_MAX, template, &q->template, e))
        return -1;
    if ((t = param_str(s, "order", &order)) && *t) {
        q->asc = !strcmp(t, "asc");
        if (!q->asc && strcmp(t, "desc"))
            return err_set(e, E_INVALID, "order: must be asc or desc");
    }
    q->after = INT64_MIN;
    if ((t = param_str(s, "startedAfter", &after)) && *t &&
        (q->after = e2b_time_parse(t)) == INT64_MIN)
        return err_set(e, E_INVALID, "startedAfter: not an RFC 3339 time");
    if ((t = param_str(s, "metadata", &meta)) && e2b_meta_parse(str_of(t), &q->meta))
        return err_set(e, E_INVALID, "metadata: malformed");
    return 0;
}

static bool template_matches(const struct sandbox *sb, const char *want)
{
    const char *id = kv_get(&sb->kept.dialect, "e2b.template"),
               *alias = kv_get(&sb->kept.dialect, "e2b.alias");
    const char *slash = strchr(want, '/');
    if (slash && !strncmp(want, E2B_NAMESPACE "/", sizeof E2B_NAMESPACE))
        want = slash + 1;
    return !strcmp(sb->template_id, want) || !strcmp(sb->template_name, want) ||
           (id && !strcmp(id, want)) || (alias && !strcmp(alias, want));
}

static bool matches(const struct sandbox *sb, const struct query *q)
{
    bool running = sb->state == SB_RUNNING,
         paused = sb->state == SB_PAUSED || sb->state == SB_PAUSING;
    if (!(running && q->running) && !(paused && q->paused))
        return false;
    if (kv_get(&sb->metadata, "hutch.build"))
        return false; /* the workshop of a template build, nobody's sandbox */
    /* a client knows the time in milliseconds */
    if (q->after != INT64_MIN && start_of(sb) / NS_PER_MS < q->after / NS_PER_MS)
        return false;
    return !q->template || template_matches(sb, q->template);
}

static size_t collect(struct api *a, struct http_stream *s, struct query *q, struct sandbox ***ret)
{
    struct caller who = api_caller(a, s);
    struct core_counts c;
    struct err e;
    bool more;
    core_counts(api_core(a), &c);
    size_t max = 16, n = 0;
    for (size_t i = 0; i < sizeof c.sandboxes / sizeof *c.sandboxes; i++)
        max += c.sandboxes[i];
    struct sandbox **all = xcalloc(max, sizeof *all);
    struct sandbox_filter f = {.states = 1u << SB_RUNNING | 1u << SB_PAUSING | 1u << SB_PAUSED,
                               .who = &who,
                               .meta = q->meta,
                               .limit = max};
    size_t got = sandbox_list(api_core(a), &f, all, max, &more, &e);
    for (size_t i = 0; got <= max && i < got; i++)
        if (matches(all[i], q))
            all[n++] = all[i];
    qsort(all, n, sizeof(struct sandbox *), oldest_first);
    for (size_t i = 0; !q->asc && i < n / 2; i++) {
        struct sandbox *t = all[i];
        all[i] = all[n - 1 - i], all[n - 1 - i] = t;
    }
    *ret = all;
    return n;
}

static void reply_list(struct http_stream *s, struct sandbox **all, size_t from, size_t to)
{
    struct jw *w = reply_begin(s);
    jw_arr(w);
    for (size_t i = from; i < to; i++)
        put_listed(w, all[i], NULL, false);
    jw_end(w);
    reply_send(s, 200);
}

void e2b_list_v2(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct query q = {0};
    auto_buf template = {0};
    if (read_query(s, &q, &template, &e)) {
        kv_free(&q.meta);
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    auto_free struct sandbox **all = NULL;
    size_t n = collect(a, s, &q, &all), from = 0, running = 0;
    kv_free(&q.meta);
    for (size_t i = 0; i < n; i++)
        running += all[i]->state == SB_RUNNING;
    if (*q.token_id)
        while (from < n && (q.asc ? 1 : -1) * compare(start_of(all[from]), all[from]->id,
                                                      q.token_at, q.token_id) <=
                               0)
            from++;
    size_t to = n - from > q.limit ? from + q.limit : n;
    if (to < n && to)
        (void)http_headerf(s, "X-Next-Token", "%lld-%s", (long long)start_of(all[to - 1]),
                           all[to - 1]->id); /* nothing is sent yet */
    if (q.running)
        (void)http_headerf(s, "X-Total-Running", "%zu", running);
    reply_list(s, all, from, to);
}

void e2b_list(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct query q = {.after = INT64_MIN, .running = true};
    auto_buf meta = {0};
    const char *t = param_str(s, "metadata", &meta);
    if (t && e2b_meta_parse(str_of(t), &q.meta)) {
        kv_free(&q.meta);
        err_set(&e, E_INVALID, "metadata: malformed");
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    auto_free struct sandbox **all = NULL;
    size_t n = collect(a, s, &q, &all);
    kv_free(&q.meta);
    reply_list(s, all, 0, n);
}
