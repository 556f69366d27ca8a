/* Logs of a sandbox as E2B's command line asks for them: what happened to it,
 * of one level, in pages of time. */
#include "api/e2b/control/logs.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "core/sandbox/sandbox.h"
#include "api/render.h"
#include "api/params.h"
#include "base/clock.h"
#include "core/host/event.h"
#include <stdlib.h>

#define LINES_MAX 1000

/* ---- the question ---- */
enum e2b_level e2b_log_level(const char *name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    enum e2b_level l = E2B_DEBUG;
    while (l < E2B_NONE && strcmp(name, names[l]))
        l++;
    return l;
}

int e2b_log_query_read(struct http_stream *s, const char *from, uint64_t max,
                       struct e2b_log_query *ret, struct buf *search, struct err *e)
{
    auto_buf direction = {0}, level = {0}, cursor = {0};
    const char *way, *least, *given = param_str(s, from, &cursor);
    *ret = (struct e2b_log_query){.has_cursor = given && *given};
    if (param_u64(s, from, 0, INT64_MAX, 0, &ret->cursor, e) ||
        param_u64(s, "limit", 0, max, max, &ret->limit, e) ||
        param_text(s, "direction", 16, &direction, &way, e) ||
        param_text(s, "level", 16, &level, &least, e) ||
        param_text(s, "search", 256, search, &ret->search, e))
        return -1;
    ret->backward = way && !strcmp(way, "backward");
    if (way && !ret->backward && strcmp(way, "forward"))
        return err_set(e, E_INVALID, "direction: must be forward or backward");
    ret->level = least ? e2b_log_level(least) : E2B_DEBUG;
    return ret->level == E2B_NONE
               ? err_set(e, E_INVALID, "level: must be debug, info, warn or error")
               : 0;
}

/* ---- the answer ---- */
struct lines {
    struct e2b_log_query q;
    const struct event **at;
    size_t n;
};

static void take_line(void *arg, const struct event *ev)
{
    struct lines *l = arg;
    uint64_t ms = (uint64_t)(ev->at_ns / NS_PER_MS);
    if (l->q.level > E2B_INFO || (l->q.search && !strcasestr(ev->type, l->q.search)))
        return; /* events are information, all of them */
    if (l->q.has_cursor && (l->q.backward ? ms > l->q.cursor : ms < l->q.cursor))
        return;
    if (!(l->n & (l->n - 1)))
        l->at = xrealloc(l->at, (l->n ? l->n * 2 : 1) * sizeof *l->at);
    l->at[l->n++] = ev;
}

static void put_lines(struct jw *w, const char *key, const struct lines *l, bool plain)
{
    jw_kv_arr(w, key);
    for (size_t i = 0; i < l->n && i < l->q.limit; i++) {
        const struct event *ev = l->at[l->q.backward ? l->n - 1 - i : i];
        jw_obj(w);
        put_time(w, "timestamp", ev->at_ns);
        jw_kv_str(w, plain ? "line" : "message", ev->type);
        if (!plain) {
            jw_kv_str(w, "level", "info");
            jw_kv_obj(w, "fields");
            jw_end(w);
        }
        jw_end(w);
    }
    jw_end(w);
}

static void reply_logs(struct http_stream *s, void *a, bool v2)
{
    struct err e = {0};
    struct lines l = {0};
    auto_buf search = {0};
    const struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (e2b_log_query_read(s, v2 ? "cursor" : "start", LINES_MAX, &l.q, &search, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    event_each(api_core(a), &caller_daemon, 0, sb->id, take_line,
               &l); /* they stay while nothing else runs */
    struct jw *w = reply_begin(s);
    jw_obj(w);
    put_lines(w, "logs", &l, !v2);
    if (!v2)
        put_lines(w, "logEntries", &l, false);
    jw_end(w);
    free(l.at);
    reply_send(s, 200);
}
void e2b_logs(struct http_stream *s, void *a) { reply_logs(s, a, false); }
void e2b_logs_v2(struct http_stream *s, void *a) { reply_logs(s, a, true); }
