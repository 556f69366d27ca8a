/* Handlers, one per behaviour, behind one router; shared by the tests that need a live server. */
#pragma once
#include "harness.h"

static atomic_int cancelled, done_count, got_bytes, peak_pending;

static void h_hello(struct http_stream *s, void *arg)
{
    (void)arg;
    http_reply(s, 200, "application/json", "{\"ok\":true}", 11);
}
static void on_whole(struct http_stream *s, void *arg, const char *p, size_t n)
{
    (void)arg;
    http_reply(s, 200, "application/octet-stream", p, n);
}
static void h_echo(struct http_stream *s, void *arg) { http_body_collect(s, 1000, on_whole, arg); }
static void on_cancel(struct http_stream *s, void *arg)
{
    (void)s, (void)arg;
    cancelled++;
}
static void h_wait(struct http_stream *s, void *arg)
{
    (void)arg;
    http_on_cancel(s, on_cancel, NULL);
}
static void h_abort(struct http_stream *s, void *arg)
{
    (void)arg;
    CHECK(!http_reply_start(s, 200, "text/plain"));
    CHECK(!http_write(s, "part", 4));
    http_abort(s);
}
static void h_chunks(struct http_stream *s, void *arg)
{
    (void)arg;
    CHECK(!http_header(s, "X-One", "1"));
    CHECK(http_header(s, "X-Bad", "a\r\nb: c") < 0);
    CHECK(http_header(s, "Content-Length", "5") < 0);
    CHECK(!http_reply_start(s, 200, "text/plain"));
    CHECK(!http_write(s, "hello ", 6));
    CHECK(!http_write(s, "world", 5));
    http_end(s);
}
static void h_short(struct http_stream *s, void *arg)
{
    (void)arg;
    CHECK(!http_reply_start_len(s, 200, "text/plain", 10));
    CHECK(!http_write(s, "12345", 5));
    http_end(s);
}
/* an endless-ish source that obeys back-pressure */
struct pump { uint64_t left; };
static void pump_more(struct http_stream *s, void *arg)
{
    static char block[16384];
    struct pump *p = arg;
    while (p->left && http_writable(s)) {
        size_t n = p->left < sizeof block ? (size_t)p->left : sizeof block;
        CHECK(!http_write(s, block, n));
        p->left -= n;
        if ((int)http_pending(s) > peak_pending)
            peak_pending = (int)http_pending(s);
    }
    if (!p->left) {
        http_end(s);
        free(p);
    }
}
static void pump_gone(struct http_stream *s, void *arg)
{
    (void)s;
    cancelled++;
    free(arg);
}
static void h_pump(struct http_stream *s, void *arg)
{
    (void)arg;
    struct pump *p = xcalloc(1, sizeof *p);
    p->left = 100u << 20;
    http_on_drain(s, pump_more, p);
    http_on_cancel(s, pump_gone, p);
    CHECK(!http_reply_start_len(s, 200, "application/octet-stream", p->left));
    pump_more(s, p);
}
static uint64_t sink_total;
static int sink_pauses;
static void resume(void *arg)
{
    struct http_stream *s = arg;
    http_body_resume(s);
    http_unref(s);
}
static void sink_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    (void)arg, (void)p;
    if (sink_total / (1 << 20) != (sink_total + n) / (1 << 20)) { /* pause at every MiB */
        sink_pauses++;
        http_body_pause(s);
        loop_defer(http_loop(s), resume, http_ref(s));
    }
    sink_total += n;
    got_bytes = (int)sink_total;
}
static void sink_end(struct http_stream *s, void *arg)
{
    char t[64];
    (void)arg;
    int n = snprintf(t, sizeof t, "%llu %d", (unsigned long long)sink_total, sink_pauses > 0);
    http_reply(s, 200, "text/plain", t, (size_t)n);
}
static void h_sink(struct http_stream *s, void *arg) { http_body_stream(s, sink_data, sink_end, arg); }
static void h_stuck(struct http_stream *s, void *arg)
{
    http_body_stream(s, sink_data, sink_end, arg);
    http_body_pause(s);
}
static void late(void *arg)
{
    struct http_stream *s = arg;
    if (http_alive(s))
        http_reply(s, 200, "text/plain", "late", 4);
    http_unref(s);
}
static void h_late(struct http_stream *s, void *arg)
{
    (void)arg;
    loop_defer(http_loop(s), late, http_ref(s));
}
static void h_who(struct http_stream *s, void *arg)
{
    char t[256];
    (void)arg;
    struct str id = http_param(s, "id");
    auto_buf q = {0};
    bool has = http_query_get(s, "path", &q);
    int n = snprintf(t, sizeof t, "%.*s|%s|%s", (int)id.n, id.p, has ? q.p : "-", http_is_unix(s) ? "unix" : "tcp");
    http_reply(s, 200, "text/plain", t, (size_t)n);
}
static void h_rest(struct http_stream *s, void *arg)
{
    (void)arg;
    struct str r = http_param(s, "rest");
    http_reply(s, 200, "text/plain", r.p, r.n);
}
static void tun_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    (void)arg;
    CHECK(!http_write(s, p, n));
}
static void tun_eof(struct http_stream *s, void *arg)
{
    (void)arg;
    CHECK(!http_write(s, "bye", 3));
    http_end(s);
}
static void h_tunnel(struct http_stream *s, void *arg)
{
    CHECK(!http_header(s, "Upgrade", "echo"));
    CHECK(!http_tunnel(s, 101, tun_data, tun_eof, arg));
}
static void h_sse(struct http_stream *s, void *arg)
{
    (void)arg;
    CHECK(!sse_start(s, 1));
    CHECK(!sse_event(s, "tick", S("a\nb")));
    CHECK(sse_event(s, "bad\nname", S("x")) < 0);
    http_on_cancel(s, on_cancel, NULL);
}

static const struct route routes[] = {
    {"GET", "/hello", h_hello, 0},       {"POST", "/echo", h_echo, 0},      {"GET", "/wait", h_wait, 0},
    {"GET", "/abort", h_abort, 0},       {"GET", "/chunks", h_chunks, 0},   {"GET", "/short", h_short, 0},
    {"GET", "/pump", h_pump, 0},         {"PUT", "/sink", h_sink, 0},       {"PUT", "/stuck", h_stuck, 0},
    {"GET", "/late", h_late, 0},         {"GET", "/who/{id}/x", h_who, 0},  {"DELETE", "/who/{id}/x", h_hello, 0},
    {"GET", "/files/{rest*}", h_rest, 0}, {"GET", "/tunnel", h_tunnel, 0}, {"GET", "/sse", h_sse, 0},
    {"POST", "/wait", h_wait, 0},
};
static struct router *router;
static void handler(struct http_stream *s, void *arg) { router_dispatch(router, s, arg); }
static void on_done(struct http_stream *s, void *arg)
{
    (void)s, (void)arg;
    done_count++;
}

static void start(struct harness *h, struct http_config *extra)
{
    struct http_config cfg = extra ? *extra : (struct http_config){0};
    cfg.handler = handler;
    cfg.on_done = on_done;
    router = router_new(routes, sizeof routes / sizeof *routes);
    harness_start(h, &cfg);
}
static void stop(struct harness *h)
{
    harness_stop(h);
    router_free(router);
}
#define HAS(hay, needle) CHECK(strstr(hay, needle) != NULL)

static inline void check_get(const char *request, const char *want)
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, request);
    if (!strstr(r, want))
        printf("# got: %s\n", r);
    HAS(r, want);
    free(r);
    stop(&h);
}
