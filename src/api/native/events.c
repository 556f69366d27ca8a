/* The event log: a list, a stream, and a sandbox's part of it as log lines.
 *
 * A follower that does not keep up is not sent more; when its stream drains it
 * gets what it missed from the log's memory, so only a client that is thousands
 * of events behind loses any (its `id:` shows the gap). */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/event.h"
#include <stdio.h>
#include <stdlib.h>

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
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "events");
    event_each(api_core(a), since, sandbox, list_one, &w);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &b);
}

/* ---- following ---- */
struct following { struct req r; struct follower f; char sandbox[22]; uint64_t last; bool behind; };

static void following_fini(void *arg)
{
    struct following *st = arg;
    event_unfollow(&st->f);
}

static void send_one(void *arg, const struct event *ev)
{
    struct following *st = arg;
    if (*st->sandbox && strcmp(st->sandbox, ev->sandbox))
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
    event_each(api_core(st->r.api), st->last, *st->sandbox ? st->sandbox : NULL, send_one, st);
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
        event_each(api_core(a), 0, NULL, latest, &st->last);
    catch_up(st);
}

/* ---- requests ---- */
static int read_sandbox(struct api *a, struct http_stream *s, char out[22], struct err *e)
{
    auto_buf b = {0};
    const char *who = param_str(s, "sandbox", &b);
    out[0] = 0;
    if (!who || !*who)
        return 0;
    struct sandbox *sb = name_ok(str_of(who)) ? sandbox_find(api_core(a), who, e) : NULL;
    if (!sb && !id_ok(str_of(who))) /* the events of a forgotten sandbox can still be asked for by id */
        return err_set(e, E_NOT_FOUND, "sandbox '%.63s' does not exist", who);
    (void)snprintf(out, 22, "%s", sb ? sb->id : who);
    return 0;
}

void events_get(struct http_stream *s, void *a)
{
    struct err e;
    char sandbox[22];
    bool go_on;
    uint64_t since;
    struct str last = http_req_header(s, "Last-Event-ID"); /* a browser that reconnects */
    if (param_bool(s, "follow", true, &go_on, &e) || param_u64(s, "since", 0, UINT64_MAX - 1, UINT64_MAX, &since, &e) ||
        read_sandbox(a, s, sandbox, &e)) {
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    if (since == UINT64_MAX && last.p)
        (void)str_u64(last, &since); /* what is no number is ignored */
    bool given = since != UINT64_MAX;
    if (go_on)
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

void logs_get(struct http_stream *s, void *a)
{
    struct err e;
    uint64_t limit, n = 0;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (param_u64(s, "limit", 1, 4096, 200, &limit, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "entries");
    event_each(api_core(a), 0, sb->id, count_one, &n);
    struct logs l = {&w, n > limit ? n - limit : 0};
    event_each(api_core(a), 0, sb->id, log_one, &l);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &b);
}
