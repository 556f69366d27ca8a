/* Volumes: make, list, look, delete; and the file calls of files.c and
 * transfer.c on their content, which first need the volume's keeper. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/volume/volume.h"
#include <stdlib.h>

/* ---- rendering ---- */
void put_attachments(struct jw *w, const struct sandbox *sb)
{
    struct attachment *a;
    jw_kv_arr(w, "volumes");
    if (list_empty(&sb->attachments)) {
        jw_end(w);
        return;
    }
    list_each(a, (struct list *)(uintptr_t)&sb->attachments, of_sandbox) {
        jw_obj(w);
        jw_kv_str(w, "name", a->volume->name);
        jw_kv_str(w, "volume_id", a->volume->id);
        jw_kv_str(w, "path", a->path);
        jw_kv_bool(w, "read_only", a->read_only);
        jw_end(w);
    }
    jw_end(w);
}

static void put_users(struct jw *w, const struct volume *v)
{
    struct attachment *a;
    if (list_empty(&v->attachments))
        return;
    list_each(a, (struct list *)(uintptr_t)&v->attachments, of_volume) {
        if (a->sandbox->state == SB_FAILED)
            continue; /* does not hold it */
        jw_obj(w);
        jw_kv_str(w, "sandbox", a->sandbox->id);
        jw_kv_str(w, "path", a->path);
        jw_kv_bool(w, "read_only", a->read_only);
        jw_end(w);
    }
}

static void put_volume(struct jw *w, const struct volume *v, const uint64_t *disk_bytes)
{
    jw_obj(w);
    jw_kv_str(w, "id", v->id);
    jw_kv_str(w, "name", v->name);
    jw_kv_str(w, "tenant", *v->tenant ? v->tenant : NULL);
    jw_kv_u64(w, "size_mib", v->size_mib);
    if (v->inodes)
        jw_kv_u64(w, "inodes", v->inodes);
    else
        jw_kv_null(w, "inodes");
    put_time(w, "created_at", v->created_ns);
    jw_kv_arr(w, "attached");
    put_users(w, v);
    jw_end(w);
    if (disk_bytes)
        jw_kv_u64(w, "disk_bytes", *disk_bytes);
    else
        jw_kv_null(w, "disk_bytes");
    jw_end(w);
}

/* ---- make, list, look, delete ---- */
static void on_created(void *arg, struct volume *v, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return; /* it stays: its name is known to the client */
    if (e) {
        req_fail(r, e, ABOUT_VOLUME);
        return;
    }
    struct jw *w = reply_begin(r->s);
    put_volume(w, v, NULL);
    req_send(r, 201);
}

static const struct field volume_rows[] = {
    FIELD("name", F_STR, struct volume_spec, name, .flags = F_REQUIRED, .max = 63,
          .help = "Letters, digits, _ and -."),
    FIELD(
        "size_mib", F_INT, struct volume_spec, size_mib, .min = VOLUME_SIZE_MIN, .max = UINT32_MAX,
        .max_of = offsetof(struct config, max_volume_mib),
        .help =
            "How much fits, in MiB; at most HUTCH_MAX_VOLUME. Default: HUTCH_DEFAULT_VOLUME, 10240."),
    FIELD("inodes", F_INT, struct volume_spec, inodes, .min = VOLUME_INODES_MIN, .max = UINT32_MAX,
          .help = "How many files fit. Default: as many as the size gives."),
};
const struct shape volume_body = SHAPE_OF("VolumeCreate", struct volume_spec, volume_rows);

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct volume_spec spec = {0};
    auto_json j = native_body(a, p, n, &volume_body, &spec, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct caller who = api_caller(a, s);
    spec.tenant = who.tenant;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, volume_create(api_core(a), &spec, on_created, r, &e), &e, ABOUT_VOLUME);
}
void volumes_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

void volumes_list(struct http_stream *s, void *a)
{
    size_t max = volume_count(api_core(a));
    auto_free struct volume **v = xcalloc(max + 1, sizeof(struct volume *));
    struct caller who = api_caller(a, s);
    size_t n = volume_list(api_core(a), &who, v, max);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "volumes");
    for (size_t i = 0; i < n; i++)
        put_volume(w, v[i], NULL);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

struct look { struct req r; char id[22]; };

static void on_usage(void *arg, const struct err *e, uint64_t bytes)
{
    struct look *st = arg;
    if (!req_back(&st->r))
        return;
    struct err gone;
    struct volume *v = volume_find(api_core(st->r.api), st->id, &gone);
    if (e || !v) {
        req_fail(&st->r, v ? e : &gone, ABOUT_VOLUME);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    put_volume(w, v, &bytes);
    req_send(&st->r, 200);
}

void volumes_get(struct http_stream *s, void *a)
{
    struct err e;
    struct volume *v = api_volume(a, s);
    if (!v)
        return;
    struct look *st = req_new(a, s, sizeof *st, NULL);
    memcpy(st->id, v->id, sizeof st->id);
    req_hold(&st->r);
    req_settle(&st->r, volume_usage(v, on_usage, st, &e), &e, ABOUT_VOLUME);
}

static void on_deleted(void *arg, struct volume *v, const struct err *e)
{
    struct req *r = arg;
    (void)v;
    req_none(r, e, ABOUT_VOLUME);
}

void volumes_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct volume *v = api_volume(a, s);
    if (!v)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, volume_delete(v, on_deleted, r, &e), &e, ABOUT_VOLUME);
}

/* ---- content ---- */
struct opening { struct req r; http_handler *then; };

static void on_open(void *arg, struct volume *v, struct agent *ag, const struct err *e)
{
    struct opening *st = arg;
    (void)v, (void)ag; /* the handler finds both again, in this turn or the next */
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_VOLUME);
        return;
    }
    req_end(&st->r); /* first: it lets go of the stream's callbacks, the handler sets its own; the memory lasts for this turn */
    st->then(st->r.s, st->r.api);
}

static void content(struct http_stream *s, struct api *a, http_handler *then)
{
    struct volume *v = api_volume(a, s);
    if (!v)
        return;
    struct opening *st = req_new(a, s, sizeof *st, NULL);
    st->then = then;
    req_hold(&st->r);
    volume_open(v, on_open, st);
}

void vfiles_get(struct http_stream *s, void *a) { content(s, a, files_get); }
void vfiles_put(struct http_stream *s, void *a) { content(s, a, files_put); }
void vfiles_delete(struct http_stream *s, void *a) { content(s, a, files_delete); }
void vfiles_stat(struct http_stream *s, void *a) { content(s, a, files_stat_get); }
void vfiles_move(struct http_stream *s, void *a) { content(s, a, files_move_post); }
void vfiles_attr(struct http_stream *s, void *a) { content(s, a, files_attr_post); }
void vfiles_symlink(struct http_stream *s, void *a) { content(s, a, files_symlink_post); }
void vdirs_list(struct http_stream *s, void *a) { content(s, a, dirs_list); }
void vdirs_make(struct http_stream *s, void *a) { content(s, a, dirs_make); }
