/* POST /files/compose: several files of a sandbox become one, in order, and go.
 *
 *   look at every source -> copy them into a new file -> that takes the
 *   destination's name -> remove the sources
 *
 * Until the new file has its name nothing was changed; a failure before leaves
 * all as it was. The bytes pass through here at the pace of the writer. */
#include "api/e2b/envd/envd.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include <stdio.h>
#include <stdlib.h>

#define SOURCES_MAX 1000

struct compose {
    struct req r;
    char id[22], user[65];
    char **from; /* as asked, then as the guest says */
    size_t n, at;
    char *to, *making;
    struct file_read *rd;
    struct file_write *wr;
    struct buf rest; /* read, not yet taken */
    size_t owed;
    bool begun, named; /* the new file may exist; it has its name */
    struct buf json;
};

static void ignore(void *arg, const struct err *e, const struct file_entry *en)
{
    (void)arg, (void)e, (void)en;
}
static struct sandbox *box(struct compose *c, struct err *e)
{
    return sandbox_find(api_core(c->r.api), c->id, e);
}
static const char *user(const struct compose *c) { return *c->user ? c->user : NULL; }

static void fini(void *arg)
{
    struct compose *c = arg;
    struct sandbox *sb;
    if (c->rd)
        file_read_cancel(c->rd);
    if (c->wr)
        file_write_cancel(c->wr);
    if (c->begun && !c->named && (sb = box(c, NULL)))
        (void)files_remove(sb, c->making, user(c), false, ignore, NULL,
                           NULL); /* what is left of it, if it can be */
    for (size_t i = 0; i < c->n; i++)
        free(c->from[i]);
    free(c->from), free(c->to), free(c->making);
    buf_free(&c->rest), buf_free(&c->json);
}

static void fail(struct compose *c, const struct err *e)
{
    if (c->r.over)
        return;
    e2b_files_fail(c->r.api, c->r.s, c->id, e, c->user);
    req_end(&c->r);
}

/* ---- last: the sources go ---- */
static void remove_next(struct compose *c);

static void on_removed(void *arg, const struct err *e, const struct file_entry *en)
{
    struct compose *c = arg;
    (void)en;
    if (!req_back(&c->r))
        return;
    if (e && e->code != E_NOT_FOUND) { /* named twice */
        fail(c, e);
        return;
    }
    c->at++;
    remove_next(c);
}

static void remove_next(struct compose *c)
{
    struct err e = {0};
    while (c->at < c->n && !strcmp(c->from[c->at], c->to))
        c->at++; /* it was one of them, and is the whole now */
    if (c->at == c->n) {
        req_json(&c->r, 200, &c->json);
        return;
    }
    struct sandbox *sb = box(c, &e);
    req_hold(&c->r);
    if (!sb || files_remove(sb, c->from[c->at], user(c), false, on_removed, c, &e)) {
        (void)req_back(&c->r); /* the callback will not fire */
        fail(c, &e);
    }
}

static void on_named(void *arg, const struct err *e, const struct file_entry *en)
{
    struct compose *c = arg;
    struct jw w;
    if (!req_back(&c->r))
        return;
    if (e) {
        fail(c, e);
        return;
    }
    c->named = true;
    free(c->to);
    c->to = xstrdup(en->path);
    jw_init(&w, &c->json);
    jw_obj(&w);
    jw_kv_str(&w, "path", en->path);
    jw_kv_str(&w, "name", en->name);
    jw_kv_str(&w, "type", "file");
    jw_end(&w);
    c->at = 0;
    remove_next(c);
}

/* ---- the bytes ---- */
static void read_next(struct compose *c);

static void push(struct compose *c)
{
    size_t took = c->wr && c->rest.n ? file_write_send(c->wr, c->rest.p, c->rest.n) : 0;
    buf_drop(&c->rest, took);
    if (c->rest.n)
        return;
    size_t owed = c->owed;
    c->owed = 0;
    if (c->rd && owed)
        file_read_consumed(c->rd, owed);
    else if (!c->rd)
        read_next(c);
}

static void on_room(void *arg)
{
    struct compose *c = arg;
    if (!c->r.over && c->rest.n)
        push(c);
}

static void on_written(void *arg, const struct err *e, const struct file_entry *en)
{
    struct compose *c = arg;
    struct err none = {0};
    (void)en;
    c->wr = NULL;
    struct sandbox *sb = c->r.over ? NULL : box(c, &none);
    if (c->r.over)
        return;
    if (e || !sb) {
        fail(c, e ? e : &none);
        return;
    }
    req_hold(&c->r);
    if (files_move(sb, c->making, c->to, user(c), on_named, c, &none)) {
        (void)req_back(&c->r); /* the callback will not fire */
        fail(c, &none);
    }
}

static void on_opened(void *arg, const struct file_entry *en) { (void)arg, (void)en; }

static void on_data(void *arg, const unsigned char *p, size_t n)
{
    struct compose *c = arg;
    if (c->r.over)
        return;
    buf_put(&c->rest, p, n);
    c->owed += n;
    push(c);
}

static void on_read(void *arg, const struct err *e, uint64_t sent)
{
    struct compose *c = arg;
    (void)sent;
    c->rd = NULL;
    if (c->r.over)
        return;
    c->at++;
    if (e)
        fail(c, e);
    else if (!c->rest.n)
        read_next(c);
}

static void read_next(struct compose *c)
{
    static const struct file_read_ops ops = {.opened = on_opened, .data = on_data, .done = on_read};
    struct err e = {0};
    if (c->at == c->n) {
        if (c->wr)
            file_write_eof(c->wr);
        return;
    }
    struct sandbox *sb = box(c, &e);
    c->rd = sb ? file_read_start(sb, c->from[c->at], user(c), 0, UINT64_MAX, &ops, c, &e) : NULL;
    if (!c->rd)
        fail(c, &e);
}

static void write_begin(struct compose *c)
{
    static const struct file_write_ops ops = {.room = on_room, .done = on_written};
    struct err e = {0};
    struct sandbox *sb = box(c, &e);
    struct file_write_spec spec = {.path = c->making, .user = user(c), .own = true};
    c->at = 0;
    c->wr = sb ? file_write_start(sb, &spec, &ops, c, &e) : NULL;
    c->begun = c->wr != NULL;
    if (c->wr)
        read_next(c);
    else
        fail(c, &e);
}

/* ---- first: are they all there? ---- */
static void look_next(struct compose *c);

static void on_look(void *arg, const struct err *e, const struct file_entry *en)
{
    struct compose *c = arg;
    struct err bad;
    if (!req_back(&c->r))
        return;
    if (!e && (en->type == 'l' ? en->target_type : en->type) != 'f')
        e = (err_set(&bad, E_INVALID, "path '%.190s' is not a regular file", en->path), &bad);
    if (e) {
        fail(c, e);
        return;
    }
    free(c->from[c->at]);
    c->from[c->at++] = xstrdup(en->path);
    look_next(c);
}

static void look_next(struct compose *c)
{
    struct err e = {0};
    if (c->at == c->n) {
        write_begin(c);
        return;
    }
    struct sandbox *sb = box(c, &e);
    const char *path = sb ? envd_path(sb, c->from[c->at], &e) : NULL;
    req_hold(&c->r);
    if (!path || files_stat(sb, path, user(c), on_look, c, &e)) {
        (void)req_back(&c->r); /* the callback will not fire */
        fail(c, &e);
    }
}

/* ---- the request ---- */
static int read_body(struct compose *c, struct sandbox *sb, struct json *j, struct err *e)
{
    struct json *list = NULL;
    struct str to = {0}, who = {0}, s;
    unsigned char mark[6];
    char hex[13];
    if (json_arr(j, "source_paths", &list, true, e) || json_str(j, "destination", &to, true, e) ||
        json_str(j, "username", &who, false, e))
        return -1;
    if (!json_len(list) || json_len(list) > SOURCES_MAX)
        return err_set(e, E_INVALID, "source_paths: must name 1 to %d files", SOURCES_MAX);
    if (!to.n || who.n >= sizeof c->user)
        return err_set(e, E_INVALID,
                       to.n ? "username: longer than 64 bytes" : "destination: empty");
    const char *path = envd_path(sb, to.p, e);
    if (!path)
        return -1;
    c->from = xcalloc(json_len(list), sizeof *c->from);
    for (; c->n < json_len(list); c->n++) {
        if (json_to_str(json_at(list, c->n), &s, e))
            return -1;
        c->from[c->n] = xstrdup(s.p);
    }
    (void)snprintf(c->user, sizeof c->user, "%s", who.p ? who.p : "");
    random_bytes(mark, sizeof mark);
    hex_encode(mark, sizeof mark, hex);
    struct buf b = {0};
    buf_printf(&b, "%s.%s", path, hex);
    c->making = buf_take(&b);
    c->to = xstrdup(path);
    return 0;
}

static void on_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct compose *c = arg;
    struct err e = {0};
    struct sandbox *sb = box(c, &e);
    (void)s;
    auto_json j = sb ? json_parse_obj(p, n, &e) : NULL;
    if (!j || read_body(c, sb, j, &e))
        fail(c, &e);
    else
        look_next(c);
}

void e2b_files_compose(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    struct compose *c = req_new(a, s, sizeof *c, fini);
    memcpy(c->id, sb->id, sizeof c->id);
    req_watch(&c->r);
    http_body_collect(s, PARAM_BODY_MAX, on_body, c);
}
