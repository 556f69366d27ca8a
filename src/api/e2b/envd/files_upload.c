/* POST /files: one file as it is, or several as multipart/form-data, either
 * packed with gzip, straight into the sandbox.
 *
 *   body -> [gunzip] -> [multipart] -> queue of pieces -> one file at a time
 *
 * The queue holds what one step of the stages before it made (some 64 KiB);
 * while it is not empty nothing more is unpacked, and the client is held back.
 * The answer goes out when the last file is complete, or at the first error. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/filesystem.h"
#include "api/e2b/envd/files_gunzip.h"
#include "api/params.h"
#include "base/list.h"
#include "json/kv.h"
#include "http/multipart.h"
#include <stdio.h>
#include <stdlib.h>

#define UNPACK_BYTES 65536

struct piece {
    struct list node;
    enum { PIECE_FILE, PIECE_DATA, PIECE_END } kind;
    size_t n, at;
    char p[];
};
struct done_file {
    struct list node;
    char *name;
    struct buf path;
};

struct up {
    struct req r;
    char id[22], user[65];
    char *target; /* path= of the query; NULL: the parts name themselves */
    char **metadata;
    struct gunzip *gz;
    struct multipart *mp;
    struct buf raw; /* packed bytes, not yet unpacked */
    struct list queue;
    struct file_write *f;
    bool file_eof;              /* told; its answer is awaited */
    bool in_file;               /* the multipart part is one of ours */
    const char *why;            /* a part was not acceptable */
    bool more;                  /* the unpacker may hold more than it gave */
    bool paused, ended, sealed; /* sealed: nothing more will be queued */
    uint64_t unpacked, unpacked_max;
    struct list files; /* names so far */
    struct buf json;
    struct jw w;
};

static void up_fini(void *arg)
{
    struct up *st = arg;
    struct piece *p;
    struct done_file *d;
    if (st->f)
        file_write_cancel(st->f);
    list_each(p, &st->queue, node) {
        list_del(&p->node);
        free(p);
    }
    list_each(d, &st->files, node) {
        list_del(&d->node);
        free(d->name);
        buf_free(&d->path);
        free(d);
    }
    free(st->target);
    env_free(st->metadata);
    gunzip_free(st->gz);
    multipart_free(st->mp);
    buf_free(&st->raw);
    buf_free(&st->json);
    st->mp = NULL, st->gz = NULL;
}

static void fail(struct up *st, const struct err *e)
{
    if (st->r.over)
        return;
    e2b_files_fail(st->r.api, st->r.s, st->id, e, st->user);
    req_end(&st->r);
}

static void refuse(struct up *st, int status, const char *why)
{
    e2b_problem(st->r.s, status, "%s", why);
    req_end(&st->r);
}

/* ---- out of the queue: files ---- */
static void pump(struct up *st);

static void put(struct up *st, int kind, const char *p, size_t n)
{
    struct piece *x = xmalloc(sizeof *x + n + 1);
    *x = (struct piece){.kind = kind, .n = n};
    if (n)
        memcpy(x->p, p, n);
    x->p[n] = 0;
    list_add_tail(&st->queue, &x->node);
}

static void on_room(void *arg)
{
    struct up *st = arg;
    if (!st->r.over)
        pump(st);
}

static void same_twice(struct up *st, const char *path)
{
    char msg[300];
    (void)snprintf(
        msg, sizeof msg,
        "you cannot upload multiple files to the same path '%.120s' in one upload request, only the first specified file was uploaded",
        path);
    refuse(st, 400, msg);
}

static void on_written(void *arg, const struct err *e, const struct file_entry *en)
{
    struct up *st = arg;
    struct done_file *d;
    st->f = NULL;
    st->file_eof = false;
    if (st->r.over)
        return;
    if (e) { /* may come long before the body ends (disk full): the http layer sees to the rest */
        fail(st, e);
        return;
    }
    struct done_file *last = container_of(st->files.prev, struct done_file, node);
    list_each(d, &st->files, node)
        if (d != last && d->path.p && !strcmp(d->path.p, en->path)) {
            same_twice(st, en->path);
            return;
        }
    buf_puts(&last->path, en->path);
    jw_obj(&st->w);
    jw_kv_str(&st->w, "path", en->path);
    jw_kv_str(&st->w, "name", en->name);
    jw_kv_str(&st->w, "type", "file");
    put_fs_metadata(&st->w, (const char *const *)st->metadata);
    jw_end(&st->w);
    pump(st);
}

static int open_file(struct up *st, const char *name)
{
    static const struct file_write_ops ops = {.room = on_room, .done = on_written};
    struct err e = {0};
    struct done_file *d;
    struct sandbox *sb = sandbox_find(api_core(st->r.api), st->id, &e);
    const char *path = sb ? envd_path(sb, name, &e) : NULL;
    list_each(d, &st->files, node)
        if (!strcmp(d->name, name)) {
            same_twice(st, name);
            return -1;
        }
    struct file_write_spec spec = {.path = path,
                                   .user = *st->user ? st->user : NULL,
                                   .own = true,
                                   .xattr_clear = E2B_XATTR,
                                   .xattr = (const char *const *)st->metadata};
    st->f = path ? file_write_start(sb, &spec, &ops, st, &e) : NULL;
    if (!st->f) {
        fail(st, &e);
        return -1;
    }
    d = xcalloc(1, sizeof *d);
    d->name = xstrdup(name);
    list_add_tail(&st->files, &d->node);
    return 0;
}

/* Moves pieces into files until the queue is empty (true) or something must be waited for. */
static bool drain(struct up *st)
{
    while (!st->r.over && !list_empty(&st->queue)) {
        struct piece *x = container_of(st->queue.next, struct piece, node);
        if (st->file_eof)
            return false;
        if (x->kind == PIECE_FILE) {
            if (open_file(st, x->p))
                return false;
        } else if (x->kind == PIECE_END) {
            st->file_eof = true;
            file_write_eof(st->f);
        } else {
            size_t took = file_write_send(st->f, x->p + x->at, x->n - x->at);
            x->at += took;
            if (x->at < x->n) {
                if (!took)
                    return false;
                continue;
            }
        }
        list_del(&x->node);
        free(x);
    }
    return !st->r.over;
}

/* ---- into the queue ---- */
static int on_part(void *arg, struct str name, struct str filename, struct str type)
{
    struct up *st = arg;
    (void)type;
    st->in_file = str_eqz(name, "file");
    if (!st->in_file)
        return 0;
    if (st->target) {
        put(st, PIECE_FILE, st->target, strlen(st->target));
        return 0;
    }
    auto_buf path = {0};
    e2b_part_path(filename, &path);
    if (!path.n) {
        st->why = "a part has no filename, and there is no path in the query";
        return -1; /* the parser is on the stack: take_plain refuses */
    }
    put(st, PIECE_FILE, path.p, path.n);
    return 0;
}

static int on_part_data(void *arg, const char *p, size_t n)
{
    struct up *st = arg;
    if (st->in_file && n)
        put(st, PIECE_DATA, p, n);
    return 0;
}

static int on_part_end(void *arg)
{
    struct up *st = arg;
    if (st->in_file)
        put(st, PIECE_END, NULL, 0);
    st->in_file = false;
    return 0;
}

void e2b_part_path(struct str filename, struct buf *out)
{
    for (size_t i = 0; i < filename.n; i++) {
        bool quote = i + 2 < filename.n && !memcmp(filename.p + i, "%22", 3);
        bool cr = i + 2 < filename.n && !strncasecmp(filename.p + i, "%0d", 3),
             lf = i + 2 < filename.n && !strncasecmp(filename.p + i, "%0a", 3);
        buf_putc(out, quote ? '"' : cr ? '\r' : lf ? '\n' : filename.p[i]);
        i += quote || cr || lf ? 2 : 0;
    }
}

static void take_plain(struct up *st, const char *p, size_t n)
{
    struct err e = {0};
    if (!st->mp) {
        put(st, PIECE_DATA, p, n);
    } else if (multipart_push(st->mp, p, n, &e)) {
        refuse(st, 400, st->why ? st->why : e.msg);
    }
}

static void unpack(struct up *st)
{
    struct err e = {0};
    char block[UNPACK_BYTES];
    const char *p = st->raw.p;
    size_t left = st->raw.n;
    long n = gunzip_step(st->gz, &p, &left, block, sizeof block, &e);
    buf_drop(&st->raw, st->raw.n - left);
    if (n < 0) {
        refuse(st, 400, e.msg);
        return;
    }
    st->more = (size_t)n == sizeof block;
    st->unpacked += (uint64_t)n;
    if (st->unpacked > st->unpacked_max) {
        refuse(st, 507,
               "no space left on device: the body unpacks to more than the sandbox's disk");
        return;
    }
    take_plain(st, block, (size_t)n);
}

/* The body is over and unpacked: close what it left open. */
static void finish_input(struct up *st)
{
    struct err e = {0};
    st->ended = false;
    st->sealed = true;
    if (st->gz && !gunzip_whole(st->gz))
        refuse(st, 400, "the body ends in the middle of its gzip stream");
    else if (st->mp && multipart_end(st->mp, &e))
        refuse(st, 400, e.msg);
    else if (!st->mp)
        put(st, PIECE_END, NULL, 0);
}

/* One turn of the machine: everything that can be done without waiting. */
static void pump(struct up *st)
{
    bool empty;
    while ((empty = drain(st)) && !st->r.over) {
        if (st->raw.n || st->more)
            unpack(st);
        else if (st->ended)
            finish_input(st);
        else
            break;
        if (st->r.over)
            return;
    }
    if (st->r.over)
        return;
    if (empty && st->sealed && !st->f) {
        jw_end(&st->w);
        req_json(&st->r, 200, &st->json);
        return;
    }
    if (!empty != st->paused) {
        st->paused = !empty;
        (empty ? http_body_resume : http_body_pause)(st->r.s);
    }
}

static void on_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct up *st = arg;
    (void)s;
    if (st->r.over)
        return;
    if (st->gz)
        buf_put(&st->raw, p, n);
    else
        take_plain(st, p, n);
    if (!st->r.over)
        pump(st);
}

static void on_end(struct http_stream *s, void *arg)
{
    struct up *st = arg;
    (void)s;
    if (st->r.over)
        return;
    st->ended = true;
    pump(st);
}

/* ---- the request ---- */
static bool type_is(struct str t, const char *want)
{
    const char *semi = t.n ? memchr(t.p, ';', t.n) : NULL;
    return str_ieqz(str_trim((struct str){t.p, semi ? (size_t)(semi - t.p) : t.n}), want);
}

void e2b_files_post(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    static const struct multipart_cb parts = {
        .on_part = on_part, .on_data = on_part_data, .on_part_end = on_part_end};
    struct err e = {0};
    auto_buf path_buf = {0}, user_buf = {0};
    const char *path = param_str(s, "path", &path_buf), *user;
    struct str type = http_req_header(s, "Content-Type"),
               coding = http_req_header(s, "Content-Encoding");
    bool form = type_is(type, "multipart/form-data"),
         plain = type_is(type, "application/octet-stream");
    bool packed = coding.n && !str_ieqz(coding, "identity");
    if (param_text(s, "username", 64, &user_buf, &user, &e)) {
        e2b_problem(s, 400, "%s", e.msg);
        return;
    }
    if (!form && !plain) {
        e2b_problem(s, 400, "the body must be multipart/form-data or application/octet-stream");
        return;
    }
    if (plain && (!path || !*path)) {
        e2b_problem(s, 400, "the path of the file must be in the query");
        return;
    }
    if (packed && !str_ieqz(coding, "gzip")) {
        e2b_problem(s, 400, "the content encoding must be gzip or identity");
        return;
    }
    char **metadata = e2b_files_metadata(http_head(s), &e);
    if (!metadata) {
        e2b_problem(s, 400, "%s", e.msg);
        return;
    }
    struct up *st = req_new(a, s, sizeof *st, up_fini);
    list_init(&st->queue), list_init(&st->files);
    st->metadata = metadata;
    memcpy(st->id, sb->id, sizeof st->id);
    (void)snprintf(st->user, sizeof st->user, "%s", user ? user : "");
    st->target = path && *path ? xstrdup(path) : NULL;
    st->unpacked_max = (uint64_t)sb->disk_mib << 20;
    jw_init(&st->w, &st->json);
    jw_arr(&st->w);
    if (packed)
        st->gz = gunzip_new();
    if (form && !(st->mp = multipart_new(type, &parts, st, &e))) {
        refuse(st, 400, e.msg);
        return;
    }
    if (plain)
        put(st, PIECE_FILE, path, strlen(path));
    req_watch(&st->r);
    http_body_stream(s, on_data, on_end, st);
}
