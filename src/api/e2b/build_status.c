/* A build as it goes: its state for the SDK that waits, its log for whoever reads it later. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/native/native.h"
#include "api/params.h"
#include "base/clock.h"

#define PAGE          100
#define FIRST_LOOK_NS (5 * NS_PER_S)

const char *build_state_name(enum build_state s)
{
    static const char *const names[] = {[BUILD_WAITING] = "waiting", [BUILD_BUILDING] = "building", [BUILD_READY] = "ready", [BUILD_ERROR] = "error"};
    return names[s];
}

static void put_log(struct jw *w, const struct log_line *l)
{
    jw_obj(w);
    put_time(w, "timestamp", l->at_ns);
    jw_kv_str(w, "level", l->level);
    jw_kv_str(w, "message", l->text);
    if (*l->step)
        jw_kv_str(w, "step", l->step);
    jw_end(w);
}

void e2b_build_status(struct http_stream *s, void *a)
{
    struct err e = {0};
    uint64_t from, limit;
    struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (param_u64(s, "logsOffset", 0, UINT32_MAX, 0, &from, &e) || param_u64(s, "limit", 0, PAGE, PAGE, &limit, &e)) {
        e2b_fail(s, &e);
        return;
    }
    /* Who starts a build and looks at once finds it building, as with E2B, also where everything was kept from before. */
    enum build_state state = b->state > BUILD_BUILDING && b->started_ns && !b->seen && clock_mono() - b->started_ns < FIRST_LOOK_NS ? BUILD_BUILDING : b->state;
    b->seen = b->started_ns;
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_str(&w, "templateID", b->t->id);
    jw_kv_str(&w, "buildID", b->id);
    jw_kv_str(&w, "status", build_state_name(state));
    jw_kv_arr(&w, "logs");
    for (size_t i = from; i < b->nlog && i < from + limit; i++)
        jw_strz(&w, b->log[i].text);
    jw_end(&w);
    jw_kv_arr(&w, "logEntries");
    for (size_t i = from; i < b->nlog && i < from + limit; i++)
        put_log(&w, &b->log[i]);
    jw_end(&w);
    if (state == BUILD_ERROR) {
        jw_kv_obj(&w, "reason");
        jw_kv_str(&w, "message", b->error);
        jw_kv_str(&w, "step", *b->error_step ? b->error_step : "base");
        jw_kv_arr(&w, "logEntries");
        jw_end(&w);
        jw_end(&w);
    }
    jw_end(&w);
    reply_json(s, 200, &out);
}

static bool wanted(const struct log_line *l, const struct e2b_log_query *q)
{
    uint64_t ms = (uint64_t)(l->at_ns / NS_PER_MS);
    return e2b_log_level(l->level) >= q->level && !(q->has_cursor && (q->backward ? ms > q->cursor : ms < q->cursor));
}

void e2b_build_logs(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct e2b_log_query q;
    auto_buf search = {0};
    const struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (e2b_log_query_read(s, "cursor", PAGE, &q, &search, &e)) {
        e2b_fail(s, &e);
        return;
    }
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_arr(&w, "logs");
    for (size_t i = 0; i < b->nlog && q.limit; i++) {
        const struct log_line *l = &b->log[q.backward ? b->nlog - 1 - i : i];
        if (wanted(l, &q)) {
            put_log(&w, l);
            q.limit--;
        }
    }
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &out);
}
