/* Numbers over time: every 5 s one sample of each sandbox that was made through
 * this dialect, the last hour kept in memory. */
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "core/sandbox/sandbox.h"
#include "api/render.h"
#include "api/params.h"
#include "base/clock.h"
#include <stdlib.h>

#define SAMPLE_NS (5 * NS_PER_S)
#define KEPT      720
#define IN_FLIGHT 64 /* samples asked for at once: more sandboxes than that take turns */

struct sample {
    int64_t at_ns;
    double cpu_pct;
    struct sandbox_metrics m;
};
struct e2b_history {
    char id[22];
    struct sample *at;
    size_t n, cap, head;
    bool asking;
    uint64_t last_cpu_ns;
    int64_t last_mono;
};

static struct sample *sample_at(const struct e2b_history *h, size_t i)
{
    return &h->at[(h->head + i) % KEPT];
}

static void history_free(struct e2b_history *h)
{
    free(h->at);
    free(h);
}

static struct e2b_history *history(struct e2b *x, const char *id)
{
    struct e2b_history *h = map_get(&x->metrics, id);
    if (!h) {
        h = xcalloc(1, sizeof *h);
        memcpy(h->id, id, sizeof h->id);
        map_set(&x->metrics, id, h);
    }
    return h;
}

static void add(struct e2b_history *h, const struct sandbox *sb, const struct sandbox_metrics *m)
{
    int64_t now = clock_mono();
    int64_t since = h->last_mono ? h->last_mono : now - (clock_wall() - sb->started_ns);
    uint64_t cpu = m->cpu_ns > h->last_cpu_ns ? m->cpu_ns - h->last_cpu_ns : 0;
    struct sample one = {.at_ns = clock_wall(), .m = *m};
    /* the first covers the boot of a machine that was made ahead: no statement about this sandbox */
    one.cpu_pct = now > since && h->last_mono ? (double)cpu * 100 / (double)(now - since) : 0;
    one.cpu_pct = (double)(int64_t)(one.cpu_pct * 100 + 0.5) / 100;
    h->last_cpu_ns = m->cpu_ns, h->last_mono = now;
    if (h->n == h->cap && h->cap < KEPT) {
        h->cap = h->cap ? h->cap * 2 > KEPT ? KEPT : h->cap * 2 : 16;
        h->at = xrealloc(h->at, h->cap * sizeof *h->at);
    }
    if (h->n < KEPT)
        h->at[h->n++] = one;
    else
        h->at[h->head] = one, h->head = (h->head + 1) % KEPT;
}

struct asked {
    struct e2b *x;
    char id[22];
    struct req *r;
};
static void reply_metrics(struct http_stream *s, struct e2b *x, const char *id);

static void on_sample(void *arg, const struct err *e, const struct sandbox_metrics *m)
{
    struct asked k = *(struct asked *)arg;
    free(arg);
    struct e2b_history *h = map_get(&k.x->metrics, k.id);
    struct sandbox *sb = sandbox_find(api_core(k.x->api), k.id, NULL);
    if (h)
        h->asking = false;
    if (h && sb && !e)
        add(h, sb, m);
    if (k.r && req_back(k.r)) {
        reply_metrics(k.r->s, k.x, k.id);
        req_end(k.r);
    }
}

static bool ask(struct e2b *x, struct sandbox *sb, struct req *r)
{
    struct e2b_history *h = history(x, sb->id);
    struct err e;
    if (h->asking && !r)
        return false;
    struct asked *k = xcalloc(1, sizeof *k);
    *k = (struct asked){.x = x, .r = r};
    memcpy(k->id, sb->id, sizeof k->id);
    if (sandbox_metrics(sb, on_sample, k, &e)) {
        free(k);
        return false;
    }
    h->asking = true;
    return true;
}

static void tick(void *arg)
{
    struct e2b *x = arg;
    struct core *c = api_core(x->api);
    struct sandbox *some[IN_FLIGHT * 16];
    struct sandbox_filter f = {.states = 1u << SB_RUNNING, .limit = IN_FLIGHT * 16};
    struct err e;
    bool more;
    size_t n = sandbox_list(c, &f, some, IN_FLIGHT * 16, &more, &e), asked = 0;
    int64_t due = SAMPLE_NS * (int64_t)(1 + n / IN_FLIGHT) -
                  NS_PER_S; /* with many, whoever had a turn waits for the others */
    for (size_t i = 0; n <= IN_FLIGHT * 16 && i < n && asked < IN_FLIGHT; i++) {
        const struct e2b_history *h = map_get(&x->metrics, some[i]->id);
        if (kv_get(&some[i]->kept.dialect, "e2b") &&
            (!h || !h->last_mono || clock_mono() - h->last_mono > due))
            asked += ask(x, some[i], NULL);
    }
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&x->metrics, &i));) {
        struct e2b_history *h = en->value;
        const struct sandbox *sb = sandbox_find(c, h->id, NULL);
        if (!h->asking && (!sb || sb->state == SB_GONE || sb->state == SB_FAILED)) {
            (void)map_del(&x->metrics, h->id);
            history_free(h);
        }
    }
    timer_arm(&x->sample, SAMPLE_NS);
}

void metrics_start(struct e2b *x)
{
    timer_init(&x->sample, core_loop(api_core(x->api)), tick, x);
    timer_arm(&x->sample, SAMPLE_NS);
}

void metrics_stop(struct e2b *x)
{
    struct map_entry *en;
    timer_stop(&x->sample);
    for (size_t i = 0; (en = map_next(&x->metrics, &i));)
        history_free(en->value);
    map_free(&x->metrics);
}

/* ---- asked for ---- */
static void put_sample(struct jw *w, const struct sample *p)
{
    jw_obj(w);
    put_time(w, "timestamp", p->at_ns);
    jw_kv_i64(w, "timestampUnix", p->at_ns / NS_PER_S);
    jw_kv_u64(w, "cpuCount", p->m.cpu_count);
    jw_kv_f64(w, "cpuUsedPct", p->cpu_pct);
    jw_kv_u64(w, "memUsed", p->m.mem_used);
    jw_kv_u64(w, "memTotal", p->m.mem_total);
    jw_kv_u64(w, "memCache", p->m.mem_cache);
    jw_kv_u64(w, "diskUsed", p->m.disk_used);
    jw_kv_u64(w, "diskTotal", p->m.disk_total);
    jw_end(w);
}

static int read_range(struct http_stream *s, uint64_t *start, uint64_t *end, struct err *e)
{
    return param_u64(s, "start", 0, INT64_MAX, 0, start, e) ||
                   param_u64(s, "end", 0, INT64_MAX, INT64_MAX, end, e)
               ? -1
               : 0;
}

static void reply_metrics(struct http_stream *s, struct e2b *x, const char *id)
{
    uint64_t start = 0, end = INT64_MAX;
    const struct e2b_history *h = map_get(&x->metrics, id);
    (void)read_range(s, &start, &end, NULL); /* was checked before */
    struct jw *w = reply_begin(s);
    jw_arr(w);
    for (size_t i = 0; h && i < h->n; i++) {
        const struct sample *p = sample_at(h, i);
        uint64_t at = (uint64_t)(p->at_ns / NS_PER_S);
        if (at >= start && at <= end)
            put_sample(w, p);
    }
    jw_end(w);
    reply_send(s, 200);
}

void e2b_metrics(struct http_stream *s, void *a)
{
    struct err e = {0};
    uint64_t start, end;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (read_range(s, &start, &end, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct e2b *x = e2b_of(a);
    const struct e2b_history *h = map_get(&x->metrics, sb->id);
    if ((!h || !h->n) && end >= (uint64_t)(clock_wall() / NS_PER_S)) {
        struct req *r = req_new(a, s, sizeof *r, NULL);
        req_hold(r);
        if (ask(x, sb, r))
            return;
        (void)req_back(r); /* the callback will not fire */
        reply_metrics(s, x, sb->id);
        req_end(r);
        return;
    }
    reply_metrics(s, x, sb->id);
}

void e2b_metrics_batch(struct http_stream *s, void *a)
{
    auto_buf ids = {0};
    struct e2b *x = e2b_of(a);
    const char *p = param_str(s, "sandbox_ids", &ids);
    if (!p || !*p) {
        e2b_problem(s, 400, "sandbox_ids: missing");
        return;
    }
    struct caller who = api_caller(a, s);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_obj(w, "sandboxes");
    for (; *p;) {
        size_t n = strcspn(p, ",");
        auto_buf id = {0};
        buf_put(&id, p, n);
        const struct e2b_history *h = map_get(&x->metrics, id.p);
        if (h && h->n && sandbox_find_for(api_core(a), &who, id.p, NULL)) {
            jw_key(w, id.p);
            put_sample(w, sample_at(h, h->n - 1));
        }
        p += n + (p[n] == ',');
    }
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}
