/* Templates: the list, names, tags, removal. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/native/native.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 4096

/* ---- rendering ---- */
struct shown { const char *id, *build, *name; uint32_t cpu, memory, disk; int64_t created_ns; const char *status; size_t builds; };

static void put_members(struct jw *w, const struct shown *t)
{
    char full[E2B_NAME_MAX + 16];
    (void)snprintf(full, sizeof full, E2B_NAMESPACE "/%s", t->name);
    jw_kv_str(w, "templateID", t->id);
    jw_kv_str(w, "buildID", t->build);
    jw_kv_bool(w, "public", false);
    jw_kv_arr(w, "aliases");
    jw_strz(w, t->name);
    jw_end(w);
    jw_kv_arr(w, "names");
    jw_strz(w, full);
    jw_end(w);
    jw_kv_u64(w, "cpuCount", t->cpu ? t->cpu : 1);
    jw_kv_u64(w, "memoryMB", t->memory);
    jw_kv_u64(w, "diskSizeMB", t->disk);
    put_time(w, "createdAt", t->created_ns);
    put_time(w, "updatedAt", t->created_ns);
    jw_kv_null(w, "createdBy");
    jw_kv_null(w, "lastSpawnedAt");
    jw_kv_u64(w, "spawnCount", 0);
    jw_kv_u64(w, "buildCount", t->builds);
    jw_kv_str(w, "envdVersion", E2B_ENVD_VERSION);
    jw_kv_str(w, "buildStatus", t->status);
}

static void put_shown(struct jw *w, const struct shown *t)
{
    jw_obj(w);
    put_members(w, t);
    jw_end(w);
}

static void put_build(struct jw *w, const struct shown *t, const char *id, const char *status, int64_t created_ns)
{
    jw_obj(w);
    jw_kv_str(w, "buildID", id);
    jw_kv_str(w, "status", status);
    put_time(w, "createdAt", created_ns);
    put_time(w, "updatedAt", created_ns);
    jw_kv_u64(w, "cpuCount", t->cpu ? t->cpu : 1);
    jw_kv_u64(w, "memoryMB", t->memory);
    jw_kv_u64(w, "diskSizeMB", t->disk);
    jw_kv_str(w, "envdVersion", E2B_ENVD_VERSION);
    jw_end(w);
}

static struct shown shown_of(struct api *a, struct e2b_template *t)
{
    const struct config *cfg = core_config(api_core(a));
    struct shown v = {.id = t->id, .build = "", .name = t->name, .cpu = t->cpu, .memory = t->memory_mib ? t->memory_mib : cfg->def_memory_mib,
                      .disk = cfg->def_disk_mib, .created_ns = t->created_ns, .status = "waiting"};
    struct e2b_build *b;
    list_each(b, &t->builds, link) {
        v.builds++;
        if (b->state == BUILD_READY || !*v.build)
            v.build = b->id, v.status = build_state_name(b->state);
    }
    return v;
}

static bool is_built_here(struct e2b *x, const char *core_id)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (!strcmp(b->core_id, core_id))
                return true;
    return false;
}

static struct shown shown_core(struct api *a, const struct template *t, char build[37])
{
    const struct config *cfg = core_config(api_core(a));
    build_uuid(t->id, build);
    return (struct shown){.id = t->id, .build = build, .name = t->name, .memory = cfg->def_memory_mib, .disk = cfg->def_disk_mib,
                          .created_ns = t->created_ns, .status = "ready", .builds = 1};
}

void e2b_templates(struct http_stream *s, void *a)
{
    struct e2b *x = api_e2b(a);
    struct e2b_template *t;
    struct buf b = {0};
    struct jw w;
    char build[37];
    struct template **all = xcalloc(LIST_MAX, sizeof *all);
    catalogue_load(x);
    size_t n = template_list(api_core(a), all, LIST_MAX);
    jw_init(&w, &b);
    jw_arr(&w);
    list_each(t, &x->templates, link) {
        struct shown v = shown_of(a, t);
        put_shown(&w, &v);
    }
    for (size_t i = 0; i < n; i++)
        if (!is_built_here(x, all[i]->id)) {
            struct shown v = shown_core(a, all[i], build);
            put_shown(&w, &v);
        }
    jw_end(&w);
    free(all);
    reply_json(s, 200, &b);
}

/* ---- one ---- */
static struct e2b_template *ours(struct http_stream *s, struct api *a, const char *text, struct e2b_ref *ref, const struct template **core)
{
    struct err e;
    *core = NULL;
    if (e2b_ref_parse(text, ref, &e)) {
        e2b_fail(s, &e);
        return NULL;
    }
    struct e2b_template *t = catalogue_get(api_e2b(a), ref->name);
    if (!t && !(*core = template_find(api_core(a), ref->name, NULL)))
        e2b_problem(s, 404, "template '%s' not found", ref->name);
    return t;
}

void e2b_template_get(struct http_stream *s, void *a)
{
    struct e2b_ref ref;
    const struct template *core;
    struct e2b_template *t = ours(s, a, http_param(s, "tid").p, &ref, &core);
    char build[37];
    if (!t && !core)
        return;
    struct shown v = t ? shown_of(a, t) : shown_core(a, core, build);
    const struct e2b_build *it;
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    put_members(&w, &v);
    jw_kv_arr(&w, "builds");
    if (t)
        list_each(it, &t->builds, link)
            put_build(&w, &v, it->id, build_state_name(it->state), it->created_ns);
    else
        put_build(&w, &v, v.build, v.status, v.created_ns);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &b);
}

static void on_patch(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct e2b_ref ref;
    const struct template *core;
    (void)p, (void)n; /* public or not: there is one team */
    const struct e2b_template *t = ours(s, a, http_param(s, "tid").p, &ref, &core);
    if (!t && !core)
        return;
    struct buf b = {0}, name = {0};
    struct jw w;
    buf_printf(&name, E2B_NAMESPACE "/%s", t ? t->name : core->name);
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "names");
    jw_str(&w, (struct str){name.p, name.n});
    jw_end(&w);
    jw_end(&w);
    buf_free(&name);
    reply_json(s, 200, &b);
}
void e2b_template_patch(struct http_stream *s, void *a) { e2b_body(s, a, on_patch); }

void e2b_template_alias(struct http_stream *s, void *a)
{
    struct e2b_found f;
    struct err e;
    struct e2b_ref ref;
    const char *alias = http_param(s, "alias").p;
    struct e2b_template *t = NULL;
    if (e2b_ref_parse(alias, &ref, &e)) {
        e2b_fail(s, &e);
        return;
    }
    /* announced counts, ready or not; a tag must point somewhere */
    if (!*ref.tag)
        t = catalogue_get(api_e2b(a), ref.name);
    if (!t && catalogue_resolve(api_e2b(a), alias, &f, &e)) {
        e2b_fail(s, &e);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "templateID", t ? t->id : f.template_id);
    jw_kv_bool(&w, "public", false);
    jw_end(&w);
    reply_json(s, 200, &b);
}

/* ---- removal: the record, and what its builds stand on ---- */
static void on_removed(void *arg, const struct err *e)
{
    struct req *r = arg;
    e2b_req_none(r, e);
}

static bool shared_core(struct e2b *x, const struct e2b_template *not, const char *core_id)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link)
        if (t != not)
            list_each(b, &t->builds, link)
                if (!strcmp(b->core_id, core_id))
                    return true;
    return false;
}

static void delete_ours(struct http_stream *s, struct api *a, struct e2b_template *t)
{
    struct e2b *x = api_e2b(a);
    struct e2b_build *b;
    struct err e;
    list_each(b, &t->builds, link) {
        const struct template *c = *b->core_id ? template_find(api_core(a), b->core_id, NULL) : NULL;
        if (c && c->users && !shared_core(x, t, b->core_id)) {
            e2b_problem(s, 409, "template '%s' is in use by %u sandbox(es); kill them first", t->name, c->users);
            return;
        }
    }
    list_each(b, &t->builds, link) {
        struct template *c = *b->core_id && !shared_core(x, t, b->core_id) ? template_find(api_core(a), b->core_id, NULL) : NULL;
        if (c)
            (void)template_remove(api_core(a), c, NULL, NULL, &e); /* users were counted above, nothing else refuses */
    }
    catalogue_del(t);
    catalogue_save(x);
    reply_none(s);
}

void e2b_template_delete(struct http_stream *s, void *a)
{
    struct e2b_ref ref;
    const struct template *core;
    struct err e;
    if (e2b_snapshot_delete(s, a, http_param(s, "tid").p))
        return;
    struct e2b_template *t = ours(s, a, http_param(s, "tid").p, &ref, &core);
    if (t) {
        delete_ours(s, a, t);
        return;
    }
    if (!core)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (template_remove(api_core(a), template_find(api_core(a), ref.name, NULL), on_removed, r, &e)) {
        (void)req_back(r); /* it will not come */
        e2b_req_fail(r, &e);
    }
}

/* ---- tags ---- */
static int each_tag(struct json *j, const char *name, void (*fn)(void *arg, const char *tag), void *arg, struct err *e)
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
            if (colon ? e2b_ref_parse(t.p, &r, e) || strcmp(r.name, name) : !e2b_tag_read(t.p, r.tag))
                return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
            if (pass)
                fn(arg, r.tag);
        }
    return 0;
}

struct tagging { struct e2b_template *t; const char *build; struct jw *w; };
static void set_tag(void *arg, const char *tag)
{
    struct tagging *g = arg;
    catalogue_tag(g->t, tag, g->build);
    if (g->w)
        jw_strz(g->w, tag);
}

/* A template of the core that gets a tag becomes a template of this catalogue. */
static struct e2b_template *adopt(struct e2b *x, const char *name, const char *core_id)
{
    struct e2b_template *t = catalogue_add(x, name);
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
    auto_json j = json_parse_obj(p, n, &e);
    if (!j || json_str(j, "target", &target, true, &e) || json_arr(j, "tags", &list, true, &e) || e2b_ref_parse(target.p, &ref, &e) ||
        (!json_len(list) && err_set(&e, E_INVALID, "tags: empty")) || catalogue_resolve(api_e2b(a), target.p, &f, &e)) {
        e2b_fail(s, &e);
        return;
    }
    struct e2b *x = api_e2b(a);
    struct tagging g = {.t = f.t ? f.t : adopt(x, f.alias, f.core_id), .build = f.build_id, .w = &w};
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "buildID", f.build_id);
    jw_kv_arr(&w, "tags");
    if (each_tag(j, g.t->name, set_tag, &g, &e)) {
        buf_free(&b);
        e2b_fail(s, &e);
        return;
    }
    jw_end(&w);
    jw_end(&w);
    catalogue_save(x);
    reply_json(s, 201, &b);
}
void e2b_tags_set(struct http_stream *s, void *a) { e2b_body(s, a, on_tags_set); }

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
        e2b_fail(s, &e);
        return;
    }
    struct e2b_template *t = ours(s, a, name.p, &ref, &core);
    if (!t && !core)
        return;
    if (t && each_tag(j, t->name, del_tag, t, &e)) {
        e2b_fail(s, &e);
        return;
    }
    catalogue_save(api_e2b(a));
    reply_none(s);
}
void e2b_tags_del(struct http_stream *s, void *a) { e2b_body(s, a, on_tags_del); }

void e2b_template_tags(struct http_stream *s, void *a)
{
    struct e2b_ref ref;
    const struct template *core;
    char build[37];
    const struct e2b_template *t = ours(s, a, http_param(s, "tid").p, &ref, &core);
    if (!t && !core)
        return;
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_arr(&w);
    if (core) {
        build_uuid(core->id, build);
        jw_obj(&w);
        jw_kv_str(&w, "tag", "default");
        jw_kv_str(&w, "buildID", build);
        put_time(&w, "createdAt", core->created_ns);
        jw_end(&w);
    }
    for (size_t i = 0; t && i < t->tags.n; i++) {
        jw_obj(&w);
        jw_kv_str(&w, "tag", t->tags.at[i].k);
        jw_kv_str(&w, "buildID", t->tags.at[i].v);
        jw_kv_str(&w, "createdAt", kv_get(&t->tagged, t->tags.at[i].k));
        jw_end(&w);
    }
    jw_end(&w);
    reply_json(s, 200, &b);
}
