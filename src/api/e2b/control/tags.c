/* Tags of templates: setting, removing, listing. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/render.h"
#include <stdio.h>
#include <stdlib.h>

static int each_tag(struct json *j, const char *name, void (*fn)(void *arg, const char *tag),
                    void *arg, struct err *e)
{
    struct json *list = NULL;
    if (json_arr(j, "tags", &list, true, e))
        return -1;
    for (int pass = 0; pass < 2; pass++) /* all are checked before one is set */
        for (size_t i = 0; i < json_len(list); i++) {
            struct str t;
            struct e2b_ref r = {0};
            if (json_to_str(json_at(list, i), &t, e))
                return -1;
            const char *colon = strchr(t.p, ':');
            if (colon ? e2b_ref_parse(t.p, &r, e) || strcmp(r.name, name)
                      : !e2b_tag_read(t.p, r.tag))
                return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
            if (pass)
                fn(arg, r.tag);
        }
    return 0;
}

struct tagging {
    struct e2b_template *t;
    const char *build;
    struct jw *w;
};
static void set_tag(void *arg, const char *tag)
{
    struct tagging *g = arg;
    catalogue_tag(g->t, tag, g->build);
    if (g->w)
        jw_strz(g->w, tag);
}

/* A template of the core that gets a tag becomes a template of this catalogue. */
static struct e2b_template *adopt(struct e2b *x, const char *tenant, const char *name,
                                  const char *core_id)
{
    struct e2b_template *t = catalogue_add(x, tenant, name);
    struct e2b_build *b = catalogue_add_build(t);
    build_uuid(core_id, b->id);
    b->state = BUILD_READY;
    (void)snprintf(b->core_id, sizeof b->core_id, "%s", core_id);
    (void)snprintf(t->id, sizeof t->id, "%s", core_id); /* sandboxes carry it already */
    catalogue_tag(t, "default", b->id);
    return t;
}

static void on_tags_set(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct str target = {0};
    struct e2b_ref ref;
    struct e2b_found f;
    struct buf b = {0};
    struct jw w;
    struct json *list = NULL;
    struct caller who = api_caller(a, s);
    auto_json j = json_parse_obj(p, n, &e);
    if (!j || json_str(j, "target", &target, true, &e) || json_arr(j, "tags", &list, true, &e) ||
        e2b_ref_parse(target.p, &ref, &e) ||
        (!json_len(list) && err_set(&e, E_INVALID, "tags: empty")) ||
        catalogue_resolve(e2b_of(a), &who, target.p, &f, &e) ||
        (f.t && api_may_change(a, s, "template", f.t->tenant, &e))) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct e2b *x = e2b_of(a);
    struct tagging g = {
        .t = f.t ? f.t : adopt(x, who.tenant, f.alias, f.core_id), .build = f.build_id, .w = &w};
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "buildID", f.build_id);
    jw_kv_arr(&w, "tags");
    if (each_tag(j, g.t->name, set_tag, &g, &e)) {
        buf_free(&b);
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    jw_end(&w);
    jw_end(&w);
    catalogue_save(x);
    reply_json(s, 201, &b);
}
void e2b_tags_set(struct http_stream *s, void *a) { api_body(a, s, on_tags_set); }

static void kv_del(struct kv *m, const char *k)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->at[i].k, k)) {
            free(m->at[i].k), free(m->at[i].v);
            m->at[i] = m->at[--m->n];
            return;
        }
}
static void del_tag(void *arg, const char *tag)
{
    struct e2b_template *t = arg;
    kv_del(&t->tags, tag);
    kv_del(&t->tagged, tag);
}

static void on_tags_del(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct str name = {0};
    struct e2b_ref ref;
    const struct template *core;
    auto_json j = json_parse_obj(p, n, &e);
    if (!j || json_str(j, "name", &name, true, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct e2b_template *t = e2b_find_ref(s, a, name.p, &ref, &core);
    if (!t && !core)
        return;
    if (t && each_tag(j, t->name, del_tag, t, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    catalogue_save(e2b_of(a));
    reply_none(s);
}
void e2b_tags_del(struct http_stream *s, void *a) { api_body(a, s, on_tags_del); }

void e2b_template_tags(struct http_stream *s, void *a)
{
    struct e2b_ref ref;
    const struct template *core;
    char build[37];
    const struct e2b_template *t = e2b_find_ref(s, a, http_param(s, "tid").p, &ref, &core);
    if (!t && !core)
        return;
    struct jw *w = reply_begin(s);
    jw_arr(w);
    if (core) {
        build_uuid(core->id, build);
        jw_obj(w);
        jw_kv_str(w, "tag", "default");
        jw_kv_str(w, "buildID", build);
        put_time(w, "createdAt", core->created_ns);
        jw_end(w);
    }
    for (size_t i = 0; t && i < t->tags.n; i++) {
        jw_obj(w);
        jw_kv_str(w, "tag", t->tags.at[i].k);
        jw_kv_str(w, "buildID", t->tags.at[i].v);
        jw_kv_str(w, "createdAt", kv_get(&t->tagged, t->tags.at[i].k));
        jw_end(w);
    }
    jw_end(w);
    reply_send(s, 200);
}
