/* The event log: a list, a stream, and a sandbox's part of it as log lines.
 *
 * A follower that does not keep up is not sent more; when its stream drains it
 * gets what it missed from the log's memory, so only a client that is thousands
 * of events behind loses any (its `id:` shows the gap). */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/host/event.h"
#include <stdio.h>
#include <stdlib.h>

#define LOGS_MAX 4096

static void put_data(struct jw *w, const struct event *ev)
{
    jw_kv_raw(w, "data", ev->data_json && *ev->data_json ? str_of(ev->data_json) : S("{}"));
}

static void put_event(struct jw *w, const struct event *ev)
{
    jw_obj(w);
    jw_kv_u64(w, "seq", ev->seq);
    put_time(w, "at", ev->at_ns);
    jw_kv_str(w, "type", ev->type);
    jw_kv_str(w, "sandbox", *ev->sandbox ? ev->sandbox : NULL);
    put_data(w, ev);
    jw_end(w);
}

static void list_one(void *arg, const struct event *ev) { put_event(arg, ev); }

static void list(struct api *a, struct http_stream *s, uint64_t since, const char *sandbox)
{
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "events");
    struct caller who = api_caller(a, s);
    event_each(api_core(a), &who, since, sandbox, list_one, w);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

/* ---- following ---- */
struct following {
    struct req r;
    struct follower f;
    char sandbox[22];
    uint64_t last;
    bool behind;
};

static void following_fini(void *arg)
{
    struct following *st = arg;
    event_unfollow(&st->f);
}

static void send_one(void *arg, const struct event *ev)
{
    struct following *st = arg;
    struct caller who =
        api_caller(st->r.api, st->r.s); /* each time: a key that is revoked hears no more */
    if (!caller_sees(&who, ev->tenant) || (*st->sandbox && strcmp(st->sandbox, ev->sandbox)))
        return;
    if (st->behind || !http_writable(st->r.s)) {
        st->behind = true;
        return;
    }
    char id[24];
    auto_buf b = {0};
    struct jw w;
    (void)snprintf(id, sizeof id, "%llu", (unsigned long long)ev->seq);
    jw_init(&w, &b);
    put_event(&w, ev);
    (void)sse_event_id(st->r.s, id, ev->type, (struct str){b.p, b.n}); /* fails only when the client left */
    st->last = ev->seq;
}

static void catch_up(struct following *st)
{
    st->behind = false;
    struct caller who = api_caller(st->r.api, st->r.s);
    event_each(api_core(st->r.api), &who, st->last, *st->sandbox ? st->sandbox : NULL, send_one,
               st);
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct following *st = arg;
    (void)s;
    if (st->behind)
        catch_up(st);
}

static void latest(void *arg, const struct event *ev) { *(uint64_t *)arg = ev->seq; }

static void follow(struct api *a, struct http_stream *s, const uint64_t *since, const char *sandbox)
{
    struct following *st = req_new(a, s, sizeof *st, following_fini);
    if (sandbox)
        (void)snprintf(st->sandbox, sizeof st->sandbox, "%s", sandbox);
    st->f.fn = send_one;
    st->f.arg = st;
    event_follow(api_core(a), &st->f);
    req_watch(&st->r);
    http_on_drain(s, on_drain, st);
    (void)sse_start(s, 15); /* fails only when the client left */
    if (since)
        st->last = *since;
    else
        event_each(api_core(a), &caller_daemon, 0, NULL, latest, &st->last);
    catch_up(st);
}

/* ---- requests ---- */
struct wanted {
    bool follow;
    uint64_t since;
    const char *sandbox;
};
static const struct field events_rows[] = {
    FIELD("follow", F_BOOL, struct wanted, follow, .def = "true",
          .help = "Server-sent events as they happen. false: a list of those so far."),
    FIELD("since", F_INT, struct wanted, since, .max = INT64_MAX,
          .help = "Only those after this number. Default: from now; in a list all that are kept."),
    FIELD("sandbox", F_STR, struct wanted, sandbox, .max = 63,
          .help = "Only those of this sandbox, by id or name."),
};
const struct shape events_query = SHAPE_OF(NULL, struct wanted, events_rows);

static int find_sandbox(struct api *a, struct http_stream *s, const char *who, char out[22],
                        struct err *e)
{
    out[0] = 0;
    if (!who)
        return 0;
    struct caller by = api_caller(a, s);
    struct sandbox *sb = name_ok(str_of(who)) ? sandbox_find_for(api_core(a), &by, who, e) : NULL;
    if (!sb && !(id_ok(str_of(who)) && caller_all(&by))) /* the events of a forgotten sandbox can still be asked for by id */
        return err_set(e, E_NOT_FOUND, "sandbox '%.63s' does not exist", who);
    (void)snprintf(out, 22, "%s", sb ? sb->id : who);
    return 0;
}

void events_get(struct http_stream *s, void *a)
{
    struct err e;
    char sandbox[22];
    struct wanted q = {.since = UINT64_MAX};
    struct str last = http_req_header(s, "Last-Event-ID"); /* a browser that reconnects */
    int bad = native_query(a, s, &events_query, &q, &e) || find_sandbox(a, s, q.sandbox, sandbox, &e);
    query_free(&events_query, &q);
    if (bad) {
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    uint64_t since = q.since;
    if (since == UINT64_MAX && last.p)
        (void)str_u64(last, &since); /* what is no number is ignored */
    bool given = since != UINT64_MAX;
    if (q.follow)
        follow(a, s, given ? &since : NULL, *sandbox ? sandbox : NULL);
    else
        list(a, s, given ? since : 0, *sandbox ? sandbox : NULL);
}

/* ---- a sandbox's log ---- */
struct logs { struct jw *w; uint64_t skip; };

static void count_one(void *arg, const struct event *ev)
{
    (void)ev;
    ++*(uint64_t *)arg;
}

static void log_one(void *arg, const struct event *ev)
{
    struct logs *l = arg;
    if (l->skip) {
        l->skip--;
        return;
    }
    auto_buf text = {0};
    struct str msg = {0};
    auto_json j = ev->data_json ? json_parse(ev->data_json, strlen(ev->data_json), NULL) : NULL;
    bool bad = strstr(ev->type, "fail") || strstr(ev->type, "error");
    if (json_kind(j) == JSON_OBJ)
        (void)json_str(j, "message", &msg, false, NULL); /* another type is shown as data below */
    buf_puts(&text, ev->type);
    if (msg.n)
        buf_printf(&text, ": %.*s", (int)(msg.n > 1024 ? 1024 : msg.n), msg.p);
    else if (json_len(j))
        buf_printf(&text, " %s", ev->data_json);
    jw_obj(l->w);
    put_time(l->w, "at", ev->at_ns);
    jw_kv_str(l->w, "level", bad ? "error" : "info");
    jw_kv_strn(l->w, "message", (struct str){text.p, text.n});
    jw_end(l->w);
}

struct tail {
    unsigned limit;
};
static const struct field logs_rows[] = {
    FIELD("limit", F_INT, struct tail, limit, .min = 1, .max = LOGS_MAX, .def = "200",
          .help = "The last so many."),
};
const struct shape logs_query = SHAPE_OF(NULL, struct tail, logs_rows);

void logs_get(struct http_stream *s, void *a)
{
    struct err e;
    struct tail q;
    uint64_t n = 0;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (native_query(a, s, &logs_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "entries");
    event_each(api_core(a), &caller_daemon, 0, sb->id, count_one, &n);
    struct logs l = {w, n > q.limit ? n - q.limit : 0};
    event_each(api_core(a), &caller_daemon, 0, sb->id, log_one, &l);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}
