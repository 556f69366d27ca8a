/* Watching, as a stream (WatchDir) and by asking (CreateWatcher and friends,
 * for clients that cannot hold a stream).
 *
 * The agent's events have no flow control: a stream whose client does not keep
 * up, and a watcher that nobody asks, lose the newest ones.
 *
 * Only directories are watched, so the path is looked at first. */
#include "api/e2b/envd/filesystem.h"
#include "api/e2b/envd/rpc.h"
#include "base/list.h"
#include "core/core.h"
#include <stdio.h>
#include <stdlib.h>

#define WATCHERS_MAX 64         /* per sandbox */
#define EVENTS_BYTES (4u << 20) /* unasked-for events of one watcher */

static const char *event_word(char type)
{
    switch (type) {
    case 'c': return "EVENT_TYPE_CREATE";
    case 'w': return "EVENT_TYPE_WRITE";
    case 'd': return "EVENT_TYPE_REMOVE";
    case 'r': return "EVENT_TYPE_RENAME";
    case 'a': return "EVENT_TYPE_CHMOD";
    default: return NULL; /* overflow: the dialect has no word for it */
    }
}

static void put_event(struct jw *w, const char *word, const char *name, const struct file_entry *en)
{
    jw_obj(w);
    jw_kv_str(w, "name", *name ? name : ".");
    jw_kv_str(w, "type", word);
    if (en) {
        jw_key(w, "entry");
        put_fs_entry(w, en);
    }
    jw_end(w);
}

struct what {
    char *path;
    bool recursive, entries, remote;
};

static int read_what(const struct rpc_in *in, struct what *ret, struct err *e)
{
    const char *path;
    if (rpc_text(in->msg, "path", &path, e) || !(path = envd_path(in->sb, path, e)) ||
        json_bool(in->msg, "recursive", false, &ret->recursive, e) ||
        json_bool(in->msg, "includeEntry", false, &ret->entries, e) ||
        json_bool(in->msg, "allowNetworkMounts", false, &ret->remote, e))
        return -1;
    ret->path = xstrdup(path);
    return 0;
}

/* Whether what was found can be watched; else why not. */
static const char *unwatchable(const struct what *what, const struct file_entry *en)
{
    if (!en || (en->type != 'd' && (en->type != 'l' || en->target_type != 'd')))
        return "is not a directory";
    return en->remote && !what->remote
               ? "is on a network file system, where changes made elsewhere are not seen"
               : NULL;
}

/* ---- stream ---- */
struct watching {
    struct rpc_stream st;
    struct what what;
    struct watch *w;
};

static void watching_fini(void *arg)
{
    struct watching *st = arg;
    if (st->w)
        watch_cancel(st->w);
    free(st->what.path);
    rpc_stream_fini(&st->st);
}

static void put_keepalive(struct jw *w)
{
    jw_kv_obj(w, "keepalive");
    jw_end(w);
}

static void on_ready(void *arg)
{
    struct watching *st = arg;
    if (st->st.begun)
        return;
    struct jw *w = rpc_msg(&st->st);
    jw_kv_obj(w, "start");
    jw_end(w);
    rpc_send(&st->st);
}

static void on_change(void *arg, char type, const char *name, uint64_t seq,
                      const struct file_entry *en)
{
    struct watching *st = arg;
    const char *word = event_word(type);
    (void)seq;
    if (!word || !st->st.begun || !http_writable(st->st.c.r.s))
        return;
    struct jw *w = rpc_msg(&st->st);
    jw_key(w, "filesystem");
    put_event(w, word, name, en);
    rpc_send(&st->st);
}

static void on_done(void *arg, const struct err *e)
{
    struct watching *st = arg;
    st->w = NULL;
    if (e || !envd_alive(st->st.c.r.api, st->st.c.id)) {
        struct err none = {0};
        rpc_finish_err(&st->st, e ? e : &none);
        return;
    }
    rpc_finish(&st->st);
}

static void on_expired(void *arg)
{
    struct watching *st = arg;
    rpc_finish_error(&st->st, RPC_DEADLINE_EXCEEDED,
                     "the watch was open for as long as it was asked for");
}

static void on_looked(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct watch_ops ops = {.ready = on_ready, .change = on_change, .done = on_done};
    struct watching *st = arg;
    struct err no = {0};
    if (!req_back(&st->st.c.r))
        return;
    if (e) {
        rpc_finish_err(&st->st, e);
        return;
    }
    const char *why = unwatchable(&st->what, en);
    if (why) {
        rpc_finish_error(&st->st, RPC_INVALID_ARGUMENT, "path '%.150s' %s",
                         en ? en->path : st->what.path, why);
        return;
    }
    struct sandbox *sb = sandbox_find(api_core(st->st.c.r.api), st->st.c.id, &no);
    if (sb)
        st->w = watch_start(sb, st->what.path, *st->st.c.user ? st->st.c.user : NULL,
                            st->what.recursive, st->what.entries, &ops, st, &no);
    if (!st->w)
        rpc_finish_err(&st->st, &no);
}

void rpc_fs_watch_dir(const struct rpc_in *in)
{
    struct err e = {0};
    struct what what = {0};
    if (read_what(in, &what, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct watching *st = rpc_stream_new(in, sizeof *st, watching_fini);
    st->st.keepalive = put_keepalive;
    st->what = what;
    rpc_deadline(&st->st, in->timeout_ms, on_expired);
    req_watch(&st->st.c.r);
    req_hold(&st->st.c.r);
    if (files_stat(in->sb, what.path, in->user, on_looked, st, &e)) {
        (void)req_back(&st->st.c.r); /* the callback will not fire */
        rpc_finish_err(&st->st, &e);
    }
}

/* ---- by asking ---- */
struct watcher {
    struct list node;
    struct core *core; /* several in one process: tests */
    char sandbox[22], id[22];
    struct watch *w;
    struct buf events;         /* JSON objects, a comma between them */
    struct rpc_call *creating; /* who waits for `ready` */
};
/* The one list of this kind that outlives requests. Main loop only; an entry goes with its sandbox (watch done) or by RemoveWatcher. */
static struct list watchers = LIST_INIT(watchers);

static struct watcher *watcher_find(const struct rpc_in *in, const char *id)
{
    struct watcher *x;
    list_each(x, &watchers, node)
        if (x->core == in->sb->core && !strcmp(x->sandbox, in->sb->id) && !strcmp(x->id, id))
            return x;
    return NULL;
}

static size_t watcher_count(const struct core *core, const char *sandbox)
{
    size_t n = 0;
    struct watcher *x;
    list_each(x, &watchers, node)
        n += x->core == core && !strcmp(x->sandbox, sandbox);
    return n;
}

static void watcher_free(struct watcher *x)
{
    list_del(&x->node);
    if (x->w)
        watch_cancel(x->w);
    buf_free(&x->events);
    free(x);
}

static void watcher_change(void *arg, char type, const char *name, uint64_t seq,
                           const struct file_entry *en)
{
    struct watcher *x = arg;
    const char *word = event_word(type);
    struct jw w;
    (void)seq;
    if (!word || x->events.n > EVENTS_BYTES)
        return;
    if (x->events.n)
        buf_putc(&x->events, ',');
    jw_init(&w, &x->events);
    put_event(&w, word, name, en);
}

static void watcher_ready(void *arg)
{
    struct watcher *x = arg;
    struct rpc_call *c = x->creating;
    x->creating = NULL;
    if (!c)
        return;
    if (!req_back(&c->r)) { /* nobody will ever know its id */
        watcher_free(x);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "watcherId", x->id);
    jw_end(&w);
    rpc_reply(c, &b);
}

static void watcher_done(void *arg, const struct err *e)
{
    struct watcher *x = arg;
    struct rpc_call *c = x->creating;
    struct err none = {0};
    x->w = NULL;
    watcher_free(x);
    if (c && req_back(&c->r))
        rpc_fail_err(c, e ? e : (err_set(&none, E_GUEST, "the watch ended at once"), &none));
}

struct creating {
    struct rpc_call c;
    struct what what;
};

static void creating_fini(void *arg)
{
    struct creating *st = arg;
    free(st->what.path);
    st->what.path = NULL;
}

static void create_looked(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct watch_ops ops = {
        .ready = watcher_ready, .change = watcher_change, .done = watcher_done};
    struct creating *st = arg;
    struct err no = {0};
    if (!req_back(&st->c.r))
        return;
    if (e) {
        rpc_fail_err(&st->c, e);
        return;
    }
    const char *why = unwatchable(&st->what, en);
    if (why) {
        rpc_fail(&st->c, RPC_INVALID_ARGUMENT, "path '%.150s' %s", en ? en->path : st->what.path,
                 why);
        return;
    }
    struct sandbox *sb = sandbox_find(api_core(st->c.r.api), st->c.id, &no);
    if (sb && watcher_count(sb->core, sb->id) >= WATCHERS_MAX) {
        rpc_fail(&st->c, RPC_RESOURCE_EXHAUSTED, "the sandbox has %d watchers already; remove some",
                 WATCHERS_MAX);
        return;
    }
    struct watcher *x = xcalloc(1, sizeof *x);
    if (sb)
        x->w = watch_start(sb, st->what.path, *st->c.user ? st->c.user : NULL, st->what.recursive,
                           st->what.entries, &ops, x, &no);
    if (!x->w) {
        free(x);
        rpc_fail_err(&st->c, &no);
        return;
    }
    x->core = sb->core;
    x->creating = &st->c;
    id_make('w', x->id);
    memcpy(x->sandbox, sb->id, sizeof x->sandbox);
    list_add_tail(&watchers, &x->node);
    req_hold(&st->c.r);
}

void rpc_fs_create_watcher(const struct rpc_in *in)
{
    struct err e = {0};
    struct what what = {0};
    if (read_what(in, &what, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct creating *st = rpc_call_new(in, sizeof *st, creating_fini);
    st->what = what;
    req_hold(&st->c.r);
    rpc_settle(&st->c, files_stat(in->sb, what.path, in->user, create_looked, st, &e), &e);
}

static struct watcher *watcher_of(const struct rpc_in *in)
{
    struct err e = {0};
    const char *id;
    if (rpc_text(in->msg, "watcherId", &id, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return NULL;
    }
    struct watcher *x = watcher_find(in, id);
    if (!x)
        rpc_refuse(in, RPC_NOT_FOUND, "watcher with id %.60s not found", id);
    return x;
}

void rpc_fs_get_watcher_events(const struct rpc_in *in)
{
    struct watcher *x = watcher_of(in);
    if (!x)
        return;
    struct buf b = {0};
    buf_puts(&b, "{\"events\":[");
    buf_put(&b, x->events.p, x->events.n);
    buf_puts(&b, "]}");
    buf_free(&x->events);
    reply_json(in->s, 200, &b);
}

void rpc_fs_remove_watcher(const struct rpc_in *in)
{
    struct watcher *x = watcher_of(in);
    if (!x)
        return;
    watcher_free(x);
    http_reply(in->s, 200, "application/json", "{}", 2);
}
