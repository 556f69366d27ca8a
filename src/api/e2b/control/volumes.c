/* Volumes as E2B has them: made, listed, looked at and deleted with a key; and
 * named by the sandboxes that get them. Their content is in volume_content.c. */
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/volume/volume.h"
#include <stdlib.h>

/* ---- rendering ---- */
static void put_volume(struct jw *w, const struct volume *v, bool token)
{
    jw_obj(w);
    jw_kv_str(w, "volumeID", v->id);
    jw_kv_str(w, "name", v->name);
    if (token)
        jw_kv_str(w, "token", v->token);
    jw_end(w);
}

/* Its token opens it: for who may change it. */
static void reply_volume(struct api *a, struct http_stream *s, int status, const struct volume *v)
{
    struct caller who = api_caller(a, s);
    struct jw *w = reply_begin(s);
    put_volume(w, v, caller_changes(&who, v->tenant));
    reply_send(s, status);
}

void e2b_put_mounts(struct jw *w, const struct sandbox *sb)
{
    struct attachment *a;
    if (list_empty(&sb->attachments))
        return;
    jw_kv_arr(w, "volumeMounts");
    list_each(a, (struct list *)(uintptr_t)&sb->attachments, of_sandbox) {
        jw_obj(w);
        jw_kv_str(w, "name", a->volume->name);
        jw_kv_str(w, "path", a->path);
        jw_end(w);
    }
    jw_end(w);
}

/* ---- in a create ---- */
int e2b_mounts_read(struct api *a, struct json *j, struct volume_mount *at, struct sandbox_spec *sp,
                    struct err *e)
{
    struct json *list = NULL;
    if (json_arr(j, "volumeMounts", &list, false, e))
        return -1;
    if (json_len(list) > VOLUMES_PER_SANDBOX)
        return err_set(e, E_INVALID, "invalid mounts: at most %d volumes", VOLUMES_PER_SANDBOX);
    for (size_t i = 0; i < json_len(list); i++) {
        struct str name = {0}, path = {0};
        if (json_str(json_at(list, i), "name", &name, true, e) ||
            json_str(json_at(list, i), "path", &path, true, e))
            return err_wrap(e, "invalid mounts");
        at[i] = (struct volume_mount){.volume = name.p, .path = path.p};
    }
    sp->volumes = at;
    sp->nvolumes = json_len(list);
    return volumes_check(api_core(a), sp->by, at, sp->nvolumes, e) ? err_wrap(e, "invalid mounts")
                                                                   : 0;
}

/* ---- make, list, look, delete ---- */
struct volume *e2b_find_volume(struct api *a, const struct caller *who, struct str id,
                               struct err *e)
{
    struct volume *v =
        id.p && strlen(id.p) == id.n ? volume_find_for(api_core(a), who, id.p, NULL) : NULL;
    if (!v)
        err_set(e, E_NOT_FOUND, "Volume '%.*s' not found", (int)(id.n > 64 ? 64 : id.n),
                id.p ? id.p : "");
    return v;
}

static void on_made(void *arg, struct volume *v, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return; /* it stays: its name is known to the client */
    if (e) {
        req_fail(r, e, ABOUT_REQUEST);
        return;
    }
    reply_volume(r->api, r->s, 201, v);
    req_end(r);
}

static void on_volume_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct str name = {0};
    auto_json j = json_parse_obj(p, n, &e);
    if (!j || json_str(j, "name", &name, true, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct caller who = api_caller(a, s);
    struct volume_spec spec = {.name = name.p, .tenant = who.tenant};
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (!volume_create(api_core(a), &spec, on_made, r, &e))
        return;
    (void)req_back(r); /* the callback will not fire */
    if (e.code == E_CONFLICT)
        e.code = E_INVALID; /* a taken name is 400 there */
    req_fail(r, &e, ABOUT_REQUEST);
}
void e2b_volume_new(struct http_stream *s, void *a) { api_body(a, s, on_volume_body); }

void e2b_volumes(struct http_stream *s, void *a)
{
    size_t max = volume_count(api_core(a));
    auto_free struct volume **v = xcalloc(max + 1, sizeof(struct volume *));
    struct caller who = api_caller(a, s);
    size_t n = volume_list(api_core(a), &who, v, max);
    struct jw *w = reply_begin(s);
    jw_arr(w);
    for (size_t i = 0; i < n; i++)
        put_volume(w, v[i], false);
    jw_end(w);
    reply_send(s, 200);
}

void e2b_volume_get(struct http_stream *s, void *a)
{
    struct volume *v = api_volume(a, s);
    if (v)
        reply_volume(a, s, 200, v);
}

static void on_deleted(void *arg, struct volume *v, const struct err *e)
{
    struct req *r = arg;
    (void)v;
    req_none(r, e, ABOUT_REQUEST);
}

void e2b_volume_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct volume *v = api_volume(a, s);
    if (!v)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, volume_delete(v, on_deleted, r, &e), &e, ABOUT_REQUEST);
}
