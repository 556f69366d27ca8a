/* Files and output of sandboxes under hutch://: listed, read, watched.
 *
 *   hutch://SANDBOX/                          what it is, as JSON
 *   hutch://SANDBOX/files/PATH                absolute, without its first slash, percent-encoded
 *   hutch://SANDBOX/processes/ID/stdout       or stderr: the last 256 KiB */
#include "api/mcp/bytes.h"
#include "api/mcp/mcp.h"
#include "api/mcp/process.h"
#include "api/mcp/text.h"
#include "api/utf8.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "http/uri.h"
#include <stdio.h>
#include <stdlib.h>

#define SCHEME        "hutch://"
#define TEXT_MAX      (1u << 20)
#define BLOB_MAX      (5u << 20)
#define PAGE          100
#define ARTIFACTS_MAX 200
#define SANDBOXES_MAX 1000
#define WATCHED_MAX   200 /* of one session or stream */
#define APART_NS      (1 * NS_PER_S)

/* ---- names ---- */
enum what { A_SANDBOX, A_FILE, A_STREAM };
struct target {
    enum what what;
    struct sandbox *sb;
    struct buf path; /* of a file, absolute */
    char process[64];
    int stream;
};

void resource_uri(const char *sandbox, const char *path, struct buf *out)
{
    buf_printf(out, SCHEME "%s/files", sandbox);
    if (*path != '/')
        buf_putc(out, '/');
    uri_encode(str_of(path), true, out);
}

static bool climbs(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")); p += 2)
        if ((p == path || p[-1] == '/') && (!p[2] || p[2] == '/'))
            return true;
    return false;
}

/* False: no resource of this caller has such a name. The caller frees the path. */
static bool find_target(struct mcall *k, struct str uri, struct target *t)
{
    size_t skip = sizeof SCHEME - 1;
    const char *slash = uri.n > skip ? memchr(uri.p + skip, '/', uri.n - skip) : NULL;
    auto_free char *id = NULL;
    *t = (struct target){0};
    if (!str_starts(uri, SCHEME) || !slash)
        return false;
    id = xstrndup(uri.p + skip, (size_t)(slash - uri.p) - skip);
    t->sb = mcall_sandbox(k, str_of(id), NULL);
    struct str rest = {slash, uri.n - (size_t)(slash - uri.p)};
    if (!t->sb)
        return false;
    if (rest.n == 1)
        return true;
    if (str_starts(rest, "/files/")) {
        t->what = A_FILE;
        struct str path = {rest.p + 6, rest.n - 6};
        return uri_decode(path, false, &t->path) && !climbs(t->path.p);
    }
    char stream[8], tail;
    if (sscanf(rest.p, "/processes/%63[^/]/%7[a-z]%c", t->process, stream, &tail) != 2)
        return false;
    t->what = A_STREAM;
    t->stream = !strcmp(stream, "stderr");
    return t->stream || !strcmp(stream, "stdout");
}

static void no_resource(struct mcall *k, struct str uri)
{
    auto_buf data = {0};
    struct jw w;
    jw_init(&w, &data);
    jw_obj(&w);
    jw_kv_strn(&w, "uri", uri);
    jw_end(&w);
    mcall_error(
        k, &(struct rpc_error){.code = mcp_is_modern(k->version) ? RPC_PARAMS : RPC_NO_RESOURCE,
                               .say = "there is no such resource",
                               .data = data.p});
}

static bool asked_uri(struct mcall *k, struct str *ret)
{
    if (!json_str(k->params, "uri", ret, true, NULL))
        return true;
    mcall_errorf(k, RPC_PARAMS, "uri: missing, or not a string");
    return false;
}

/* ---- artifacts: files that tools made ---- */
struct artifact {
    struct list link;
    char sandbox[22], tenant[MCP_TENANT], mime[64];
    char *path;
    uint64_t size;
};

static void artifact_free(struct mcp *m, struct artifact *a)
{
    list_del(&a->link);
    m->nartifacts--;
    free(a->path);
    free(a);
}

void resource_artifact(struct mcp *m, const char *tenant, const char *sandbox, const char *path,
                       const char *mime, uint64_t size)
{
    struct artifact *a;
    list_each(a, &m->artifacts, link)
        if (!strcmp(a->sandbox, sandbox) && !strcmp(a->path, path))
            artifact_free(m, a);
    a = xcalloc(1, sizeof *a);
    (void)snprintf(a->sandbox, sizeof a->sandbox, "%s", sandbox);
    (void)snprintf(a->tenant, sizeof a->tenant, "%s", tenant);
    (void)snprintf(a->mime, sizeof a->mime, "%s", mime);
    a->path = xstrdup(path);
    a->size = size;
    list_add(&m->artifacts, &a->link);
    if (++m->nartifacts > ARTIFACTS_MAX)
        artifact_free(m, container_of(m->artifacts.prev, struct artifact, link));
    resources_changed(m, tenant);
}

/* ---- resources/list ---- */
/* A page is a place in the list, sealed: nobody takes it for a number to count with. */
static bool read_cursor(struct mcall *k, size_t *ret)
{
    struct str s = {0};
    auto_buf text = {0};
    unsigned long long n;
    *ret = 0;
    if (!json_has(k->params, "cursor"))
        return true;
    if (json_str(k->params, "cursor", &s, true, NULL) || !mcp_unseal(k->m, "cursor", s, &text) ||
        sscanf(text.p, "%llu", &n) != 1)
        return false;
    *ret = (size_t)n;
    return true;
}

static void put_sandbox_row(struct jw *w, const struct sandbox *sb)
{
    char uri[64];
    (void)snprintf(uri, sizeof uri, SCHEME "%s/", sb->id);
    jw_obj(w);
    jw_kv_str(w, "uri", uri);
    jw_kv_str(w, "name", sb->name ? sb->name : sb->id);
    jw_kv_str(w, "mimeType", "application/json");
    jw_end(w);
}

static void put_artifact_row(struct jw *w, const struct artifact *a)
{
    auto_buf uri = {0};
    const char *slash = strrchr(a->path, '/');
    resource_uri(a->sandbox, a->path, &uri);
    jw_obj(w);
    jw_kv_str(w, "uri", uri.p);
    jw_kv_str(w, "name", slash ? slash + 1 : a->path);
    jw_kv_str(w, "mimeType", a->mime);
    jw_kv_u64(w, "size", a->size);
    jw_end(w);
}

static bool artifact_there(struct mcall *k, const struct artifact *a)
{
    struct sandbox *sb = sandbox_find(k->m->core, a->sandbox, NULL);
    return sb && sb->state <= SB_PAUSED && mcall_sees(k, a->tenant);
}

void resources_list(struct mcall *k)
{
    auto_free struct sandbox **sb = xcalloc(SANDBOXES_MAX, sizeof(struct sandbox *));
    size_t from, at = 0;
    bool more;
    struct artifact *a;
    if (!read_cursor(k, &from)) {
        mcall_errorf(k, RPC_PARAMS, "cursor: not one that this list returned");
        return;
    }
    size_t n =
        sandbox_list(k->m->core, &(struct sandbox_filter){0}, sb, SANDBOXES_MAX, &more, NULL);
    struct jw *w = mcall_result(k);
    jw_kv_arr(w, "resources");
    for (size_t i = 0; n <= SANDBOXES_MAX && i < n; i++)
        if (mcall_sees(k, sandbox_tenant(sb[i])) && at++ >= from && at <= from + PAGE)
            put_sandbox_row(w, sb[i]);
    list_each(a, &k->m->artifacts, link)
        if (artifact_there(k, a) && at++ >= from && at <= from + PAGE)
            put_artifact_row(w, a);
    jw_end(w);
    if (at > from + PAGE) {
        char place[24];
        auto_buf next = {0};
        (void)snprintf(place, sizeof place, "%zu", from + PAGE);
        mcp_seal(k->m, "cursor", str_of(place), &next);
        jw_kv_str(w, "nextCursor", next.p);
    }
    mcall_cache(k, w, false);
    mcall_result_send(k);
}

void resources_templates(struct mcall *k)
{
    static const char *const all[][3] = {
        {SCHEME "{sandbox}/files/{+path}", "file",
         "A file or directory of a sandbox; the path is absolute, without its first slash."},
        {SCHEME "{sandbox}/processes/{process}/{stream}", "process-output",
         "The last output of a process; stream is stdout or stderr."},
    };
    struct jw *w = mcall_result(k);
    jw_kv_arr(w, "resourceTemplates");
    for (size_t i = 0; i < 2; i++) {
        jw_obj(w);
        jw_kv_str(w, "uriTemplate", all[i][0]);
        jw_kv_str(w, "name", all[i][1]);
        jw_kv_str(w, "description", all[i][2]);
        jw_end(w);
    }
    jw_end(w);
    mcall_cache(k, w, true);
    mcall_result_send(k);
}

/* ---- resources/read ---- */
static void put_content(struct jw *w, struct str uri, const char *mime, struct str bytes)
{
    jw_obj(w);
    jw_kv_strn(w, "uri", uri);
    jw_kv_str(w, "mimeType", mime);
    if (bytes.n <= TEXT_MAX && str_utf8(bytes)) {
        jw_kv_strn(w, "text", bytes);
    } else {
        jw_key(w, "blob");
        jw_base64(w, bytes.p, bytes.n);
    }
    jw_end(w);
}

static void answer_content(struct mcall *k, const char *mime, struct str bytes)
{
    struct str uri = {0};
    (void)json_str(k->params, "uri", &uri, true, NULL); /* it was there before */
    struct jw *w = mcall_result(k);
    jw_kv_arr(w, "contents");
    put_content(w, uri, mime, bytes);
    jw_end(w);
    mcall_cache(k, w, false);
    mcall_result_send(k);
}

struct looking {
    struct gather *g;
    struct buf list;
    char *path;
};

static void looking_fini(struct mcall *k)
{
    struct looking *l = k->state;
    gather_cancel(l->g);
    buf_free(&l->list);
    free(l->path);
    free(l);
    k->state = NULL;
}

static void looked_in_vain(struct mcall *k, const struct err *e)
{
    struct str uri = {0};
    (void)json_str(k->params, "uri", &uri, true, NULL);
    if (e->code == E_NOT_FOUND || e->code == E_GONE)
        no_resource(k, uri);
    else
        mcall_errorf(k, e->code == E_INTERNAL ? RPC_INTERNAL : RPC_PARAMS, "%s",
                     e->code == E_INTERNAL ? "internal error" : e->msg);
}

static void resource_gathered(void *arg, const struct err *e, const struct file_entry *en,
                              struct buf *data)
{
    struct mcall *k = arg;
    struct looking *l = k->state;
    l->g = NULL;
    if (e) {
        looked_in_vain(k, e);
        return;
    }
    if (data->n > BLOB_MAX) {
        struct str uri = {0};
        auto_buf more = {0};
        struct jw w;
        (void)json_str(k->params, "uri", &uri, true, NULL);
        jw_init(&w, &more);
        jw_obj(&w);
        jw_kv_strn(&w, "uri", uri);
        jw_kv_u64(&w, "size", en->size);
        jw_kv_u64(&w, "max", BLOB_MAX);
        jw_end(&w);
        mcall_error(k,
                    &(struct rpc_error){.code = RPC_PARAMS,
                                        .say = "the file is too large; use the tool download_file",
                                        .data = more.p});
        return;
    }
    struct str bytes = {data->p ? data->p : "", data->n};
    auto_buf path = {0};
    buf_puts(&path, en->path);
    const char *mime = text_mime(path.p, (struct str){bytes.p, bytes.n < 8192 ? bytes.n : 8192});
    answer_content(k, mime, bytes);
}

static void resource_entries(void *arg, const struct file_entry *en, size_t n)
{
    struct mcall *k = arg;
    struct looking *l = k->over ? NULL : k->state;
    for (size_t i = 0; l && i < n && l->list.n < TEXT_MAX / 2; i++)
        buf_printf(&l->list, "%s%s\n", en[i].name, en[i].type == 'd' ? "/" : "");
}

static void resource_listed(void *arg, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    struct looking *l = k->state;
    if (e)
        looked_in_vain(k, e);
    else
        answer_content(k, "inode/directory", (struct str){l->list.n ? l->list.p : "", l->list.n});
}

static void resource_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct files_list_ops ops = {.entries = resource_entries, .done = resource_listed};
    struct mcall *k = arg;
    struct err no;
    if (!mcall_back(k))
        return;
    struct looking *l = k->state;
    struct sandbox *sb = e ? NULL : mcall_own_sandbox(k, &no);
    if (!sb) {
        looked_in_vain(k, e ? e : &no);
        return;
    }
    if (en->type == 'd' || (en->type == 'l' && en->target_type == 'd')) {
        mcall_hold(k);
        if (files_list(sb, l->path, NULL, 1, &ops, k, &no) && mcall_back(k))
            looked_in_vain(k, &no);
        return;
    }
    l->g = gather_start(sb, l->path, BLOB_MAX + 1, resource_gathered, k, &no);
    if (!l->g)
        looked_in_vain(k, &no);
}

static void read_file(struct mcall *k, struct target *t)
{
    struct err e;
    struct looking *l = xcalloc(1, sizeof *l);
    l->path = xstrdup(t->path.p);
    k->state = l;
    k->fini = looking_fini;
    memcpy(k->sandbox, t->sb->id, sizeof k->sandbox);
    mcall_hold(k);
    if (files_stat(t->sb, l->path, NULL, resource_looked_at, k, &e) && mcall_back(k))
        looked_in_vain(k, &e);
}

void resources_read(struct mcall *k)
{
    struct str uri = {0};
    struct target t;
    if (!asked_uri(k, &uri))
        return;
    bool found = find_target(k, uri, &t);
    struct process *p = found && t.what == A_STREAM ? mcall_process(k, str_of(t.process)) : NULL;
    if (!found || (t.what == A_STREAM && (!p || strcmp(process_sandbox(p), t.sb->id) != 0))) {
        no_resource(k, uri);
    } else if (t.what == A_STREAM) {
        answer_content(k, "text/plain", process_log(p, t.stream));
    } else if (t.what == A_FILE) {
        read_file(k, &t);
    } else {
        auto_buf text = {0};
        struct jw w;
        jw_init(&w, &text);
        jw_obj(&w);
        tool_put_sandbox(&w, t.sb);
        jw_end(&w);
        answer_content(k, "application/json", (struct str){text.p, text.n});
    }
    buf_free(&t.path);
}

/* ---- telling ---- */
struct listener { /* a stream of the modern kind */
    struct list link;
    struct mcall *k;
    struct list subscriptions;
    bool list, stale;
};

static void make_note(struct buf *out, const char *method, const char *uri, const char *listener)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_str(&w, "jsonrpc", "2.0");
    jw_kv_str(&w, "method", method);
    if (uri || listener) {
        jw_kv_obj(&w, "params");
        if (listener) {
            jw_kv_obj(&w, "_meta");
            jw_kv_raw(&w, MCP_META("subscriptionId"), str_of(listener));
            jw_end(&w);
        }
        if (uri)
            jw_kv_str(&w, "uri", uri);
        jw_end(&w);
    }
    jw_end(&w);
}

static void tell(struct session *ss, struct listener *l, const char *method, const char *uri)
{
    auto_buf note = {0};
    make_note(&note, method, uri, l ? l->k->id : NULL);
    if (ss)
        session_tell(ss, (struct str){note.p, note.n});
    else if (l)
        post_tell(l->k->post, (struct str){note.p, note.n}, false);
}

/* ---- the list changed ---- */
static void list_told(void *arg)
{
    static const char method[] = "notifications/resources/list_changed";
    struct mcp *m = arg;
    struct map_entry *en;
    struct listener *l;
    size_t i = 0;
    while ((en = map_next(&m->sessions, &i))) {
        struct session *ss = en->value;
        if (ss->stale)
            tell(ss, NULL, method, NULL);
        ss->stale = false;
    }
    list_each(l, &m->listeners, link) {
        if (l->stale && l->list)
            tell(NULL, l, method, NULL);
        l->stale = false;
    }
}

/* Who has no tenant is an administrator, and sees all. */
static bool concerns(const char *listener, const char *tenant)
{
    return !*listener || !strcmp(listener, tenant);
}

void resources_changed(struct mcp *m, const char *tenant)
{
    struct map_entry *en;
    struct listener *l;
    size_t i = 0;
    while ((en = map_next(&m->sessions, &i))) {
        struct session *ss = en->value;
        ss->stale |= concerns(ss->tenant, tenant);
    }
    list_each(l, &m->listeners, link)
        l->stale |= concerns(l->k->post->tenant, tenant);
    if (!m->changed.armed)
        timer_arm(&m->changed, APART_NS);
}

static void sandbox_event(void *arg, const struct event *ev)
{
    struct mcp *m = arg;
    struct sandbox *sb = *ev->sandbox ? sandbox_find(m->core, ev->sandbox, NULL) : NULL;
    if (strncmp(ev->type, "sandbox.", 8) != 0)
        return;
    timer_arm(&m->look, 0);
    resources_changed(m, sb ? sandbox_tenant(sb) : "");
}

/* ---- one resource changed ---- */
struct subscription {
    struct list link;
    struct session *ss; /* one of the two */
    struct listener *l;
    char *uri, *name; /* name: of the file in its directory; NULL: of a process */
    struct watch *w;
    struct timer later;
    int64_t told;
};

static void subscription_told(void *arg)
{
    struct subscription *s = arg;
    s->told = clock_mono();
    tell(s->ss, s->l, "notifications/resources/updated", s->uri);
}

static void subscription_news(struct subscription *s)
{
    int64_t since = clock_mono() - s->told;
    if (!s->later.armed)
        timer_arm(&s->later, s->told && since < APART_NS ? APART_NS - since : 0);
}

static void watch_ready(void *arg) { (void)arg; }

static void watched(void *arg, char type, const char *name, uint64_t seq,
                    const struct file_entry *en)
{
    struct subscription *s = arg;
    (void)seq, (void)en;
    if (type == 'o' || !*s->name || !strcmp(name, s->name))
        subscription_news(s);
}

static void watch_over(void *arg, const struct err *e)
{
    struct subscription *s = arg;
    (void)e;
    s->w = NULL; /* the directory or the sandbox is gone: the last news of it */
    subscription_news(s);
}

static void subscription_free(struct subscription *s)
{
    list_del(&s->link);
    timer_stop(&s->later);
    if (s->w)
        watch_cancel(s->w);
    free(s->uri), free(s->name);
    free(s);
}

void subscriptions_drop(struct list *all)
{
    while (!list_empty(all))
        subscription_free(container_of(all->next, struct subscription, link));
}

static struct subscription *subscribed(struct list *all, struct str uri)
{
    struct subscription *s;
    list_each(s, all, link)
        if (str_eqz(uri, s->uri))
            return s;
    return NULL;
}

/* False: one too many, or a stream that would say it watches what is not there. In a session any
 * name will do: there may be such a resource one day. */
static bool subscribe(struct mcall *k, struct list *all, struct str uri, struct session *ss,
                      struct listener *l)
{
    static const struct watch_ops ops = {
        .ready = watch_ready, .change = watched, .done = watch_over};
    struct target t;
    struct subscription *s;
    size_t n = 0;
    list_each(s, all, link)
        n++;
    if (subscribed(all, uri))
        return true;
    if (n >= WATCHED_MAX)
        return false;
    bool found = find_target(k, uri, &t);
    if (!found && !ss) {
        buf_free(&t.path);
        return false;
    }
    s = xcalloc(1, sizeof *s);
    s->ss = ss, s->l = l;
    s->uri = xstrndup(uri.p, uri.n);
    timer_init(&s->later, k->m->loop, subscription_told, s);
    list_add_tail(all, &s->link);
    if (found && t.what == A_FILE) {
        char *slash = strrchr(t.path.p, '/');
        s->name = xstrdup(slash + 1);
        slash[slash == t.path.p] = 0;
        s->w = watch_start(t.sb, t.path.p, NULL, false, false, &ops, s, NULL);
    }
    buf_free(&t.path);
    return true;
}

void resources_subscribe(struct mcall *k, bool on)
{
    struct str uri = {0};
    if (!asked_uri(k, &uri))
        return;
    struct subscription *s = subscribed(&k->ss->subscriptions, uri);
    if (on && !subscribe(k, &k->ss->subscriptions, uri, k->ss, NULL)) {
        mcall_errorf(k, RPC_PARAMS, "this session watches %d resources, the limit", WATCHED_MAX);
        return;
    }
    if (!on && s)
        subscription_free(s);
    (void)mcall_result(k);
    mcall_result_send(k);
}

static void each_grown(struct list *all, const char *begin)
{
    struct subscription *s;
    list_each(s, all, link)
        if (!s->name && !strncmp(s->uri, begin, strlen(begin)))
            subscription_news(s);
}

void resource_process_grew(struct mcp *m, const char *sandbox, const char *process)
{
    char begin[128];
    struct map_entry *en;
    struct listener *l;
    size_t i = 0;
    (void)snprintf(begin, sizeof begin, SCHEME "%s/processes/%s/", sandbox, process);
    while ((en = map_next(&m->sessions, &i)))
        each_grown(&((struct session *)en->value)->subscriptions, begin);
    list_each(l, &m->listeners, link)
        each_grown(&l->subscriptions, begin);
}

/* ---- subscriptions/listen ---- */
static void listener_fini(struct mcall *k)
{
    struct listener *l = k->state;
    list_del(&l->link);
    subscriptions_drop(&l->subscriptions);
    free(l);
    k->state = NULL;
}

static void acknowledge(struct mcall *k, struct listener *l)
{
    auto_buf b = {0};
    struct jw w;
    struct subscription *s;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "jsonrpc", "2.0");
    jw_kv_str(&w, "method", "notifications/subscriptions/acknowledged");
    jw_kv_obj(&w, "params");
    jw_kv_obj(&w, "_meta");
    jw_kv_raw(&w, MCP_META("subscriptionId"), str_of(k->id));
    jw_end(&w);
    jw_kv_obj(&w, "notifications");
    if (l->list)
        jw_kv_bool(&w, "resourcesListChanged", true);
    if (!list_empty(&l->subscriptions)) {
        jw_kv_arr(&w, "resourceSubscriptions");
        list_each(s, &l->subscriptions, link)
            jw_strz(&w, s->uri);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    jw_end(&w);
    post_tell(k->post, (struct str){b.p, b.n}, false);
}

void resources_listen(struct mcall *k)
{
    struct json *wanted = json_get(k->params, "notifications");
    struct json *uris = json_get(wanted, "resourceSubscriptions");
    struct str uri;
    if (json_kind(wanted) != JSON_OBJ || (uris && json_kind(uris) != JSON_ARR)) {
        mcall_errorf(k, RPC_PARAMS, "notifications: missing, or not an object");
        return;
    }
    if (!k->post->sse_ok) {
        mcall_errorf(k, RPC_INVALID,
                     "subscriptions/listen is a text/event-stream; Accept must name it");
        return;
    }
    struct listener *l = xcalloc(1, sizeof *l);
    l->k = k;
    list_init(&l->subscriptions);
    (void)json_bool(wanted, "resourcesListChanged", false, &l->list, NULL);
    k->state = l;
    k->fini = listener_fini;
    timer_stop(&k->tick);
    list_add_tail(&k->m->listeners, &l->link);
    for (size_t i = 0; i < json_len(uris); i++)
        if (!json_to_str(json_at(uris, i), &uri, NULL))
            (void)subscribe(k, &l->subscriptions, uri, NULL, l); /* the answer says which */
    post_stream(k->post);
    acknowledge(k, l);
}

/* ---- life ---- */
void resources_start(struct mcp *m)
{
    m->follower.fn = sandbox_event;
    m->follower.arg = m;
    event_follow(m->core, &m->follower);
    timer_init(&m->changed, m->loop, list_told, m);
    timer_init(&m->look, m->loop, tools_look, m);
}

void resources_stop(struct mcp *m)
{
    event_unfollow(&m->follower);
    timer_stop(&m->changed), timer_stop(&m->look);
    while (!list_empty(&m->artifacts))
        artifact_free(m, container_of(m->artifacts.next, struct artifact, link));
}
