/* Templates: what is built. Building is builds.c. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/catalog/language.h"

#define LIST_MAX 4096

void put_template(struct jw *w, const struct template *t)
{
    jw_obj(w);
    jw_kv_str(w, "id", t->id);
    jw_kv_str(w, "name", t->name);
    jw_kv_str(w, "tenant", *t->tenant ? t->tenant : NULL);
    put_time(w, "created_at", t->created_ns);
    jw_kv_str(w, "source", t->source);
    jw_kv_str(w, "parent", t->parent);
    jw_kv_u64(w, "size_bytes", t->size_bytes);
    jw_kv_u64(w, "disk_min_mib", t->disk_min_mib);
    jw_kv_arr(w, "warm");
    if (t->warm_container)
        jw_strz(w, "container");
    if (t->warm_vm)
        jw_strz(w, "vm");
    jw_end(w);
    jw_kv_arr(w, "kernels");
    for (int l = 0; l < LANG_COUNT; l++)
        if (t->kernels & 1u << l)
            jw_strz(w, language_name((enum language)l));
    jw_end(w);
    jw_end(w);
}

void templates_list(struct http_stream *s, void *a)
{
    auto_free struct template **t = xcalloc(LIST_MAX, sizeof(struct template *));
    struct caller who = api_caller(a, s);
    size_t n = template_list(api_core(a), &who, t, LIST_MAX);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "templates");
    for (size_t i = 0; i < n && i < LIST_MAX; i++)
        put_template(w, t[i]);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

static struct template *find(struct api *a, struct http_stream *s)
{
    struct err e;
    struct str name = http_param(s, "name");
    struct template *t = NULL;
    if (name_ok(name))
        t = api_template(a, s, name.p, &e);
    else
        err_set(&e, E_NOT_FOUND, "no template has this name or id");
    if (!t)
        problem_about(s, &e, ABOUT_TEMPLATE);
    return t;
}

void templates_get(struct http_stream *s, void *a)
{
    struct template *t = find(a, s);
    if (!t)
        return;
    struct jw *w = reply_begin(s);
    put_template(w, t);
    reply_send(s, 200);
}

static void on_removed(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_TEMPLATE);
}

void templates_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct template *t = find(a, s);
    if (!t)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, template_remove(api_core(a), t, on_removed, r, &e), &e, ABOUT_TEMPLATE);
}
