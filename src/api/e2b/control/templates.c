/* Templates: the list, announcing one that will be built, looking, names, removal. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/render.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 4096

/* ---- rendering ---- */
struct shown {
    const char *id, *build, *name;
    uint32_t cpu, memory, disk;
    int64_t created_ns;
    const char *status;
    size_t builds;
};

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

static void put_build(struct jw *w, const struct shown *t, const char *id, const char *status,
                      int64_t created_ns)
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
    struct shown v = {.id = t->id,
                      .build = "",
                      .name = t->name,
                      .cpu = t->cpu,
                      .memory = t->memory_mib ? t->memory_mib : cfg->def_memory_mib,
                      .disk = cfg->def_disk_mib,
                      .created_ns = t->created_ns,
                      .status = "waiting"};
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
    return (struct shown){.id = t->id,
                          .build = build,
                          .name = t->name,
                          .memory = cfg->def_memory_mib,
                          .disk = cfg->def_disk_mib,
                          .created_ns = t->created_ns,
                          .status = "ready",
                          .builds = 1};
}

void e2b_templates(struct http_stream *s, void *a)
{
    struct e2b *x = e2b_of(a);
    struct e2b_template *t;
    char build[37];
    struct template **all = xcalloc(LIST_MAX, sizeof *all);
    catalogue_load(x);
    struct caller who = api_caller(a, s);
    size_t n = template_list(api_core(a), &who, all, LIST_MAX);
    struct jw *w = reply_begin(s);
    jw_arr(w);
    list_each(t, &x->templates, link) {
        struct shown v = shown_of(a, t);
        if (!*t->tenant || caller_sees(&who, t->tenant))
            put_shown(w, &v);
    }
    for (size_t i = 0; i < n; i++)
        if (!is_built_here(x, all[i]->id)) {
            struct shown v = shown_core(a, all[i], build);
            put_shown(w, &v);
        }
    jw_end(w);
    free(all);
    reply_send(s, 200);
}

/* ---- announce one ---- */
static int read_tags(struct json *j, struct kv *tags, struct err *e)
{
    struct json *list = NULL;
    if (json_arr(j, "tags", &list, false, e))
        return -1;
    for (size_t i = 0; i < json_len(list); i++) {
        struct str t;
        if (json_to_str(json_at(list, i), &t, e))
            return -1;
        struct e2b_ref r;
        const char *colon = strchr(t.p, ':'); /* "name:tag" is taken for its tag */
        if (colon && e2b_ref_parse(t.p, &r, e))
            return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
        char tag[E2B_NAME_MAX];
        if (!e2b_tag_read(colon ? r.tag : t.p, tag))
            return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
        kv_set(tags, str_of(tag), S(""));
    }
    return 0;
}

static void on_new(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct str name = {0};
    struct e2b_ref ref;
    struct kv tags = {0};
    int64_t cpu, mem;
    auto_json j = json_parse_obj(p, n, &e);
    if (j && json_str(j, "name", &name, false, &e) == 0 && !name.p)
        (void)json_str(j, "alias", &name, false, NULL); /* v2's word for it */
    int bad = !j || (!name.p && err_set(&e, E_INVALID, "name: missing")) ||
              e2b_ref_parse(name.p, &ref, &e) || read_tags(j, &tags, &e) ||
              json_i64(j, "cpuCount", 1, 64, 0, &cpu, &e) ||
              json_i64(j, "memoryMB", 128, 65536, 0, &mem, &e);
    if (bad) {
        kv_free(&tags);
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct e2b *x = e2b_of(a);
    struct caller who = api_caller(a, s);
    struct e2b_template *t = catalogue_own(x, who.tenant, ref.name);
    if (!t)
        t = catalogue_add(x, who.tenant, ref.name);
    if (cpu)
        t->cpu = (uint32_t)cpu;
    if (mem)
        t->memory_mib = (uint32_t)mem;
    struct e2b_build *b = catalogue_add_build(t);
    b->api = a;
    b->tags = tags;
    if (*ref.tag)
        kv_set(&b->tags, str_of(ref.tag), S(""));
    if (!b->tags.n)
        kv_set(&b->tags, S("default"), S(""));
    catalogue_save(x);
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_str(&w, "templateID", t->id);
    jw_kv_str(&w, "buildID", b->id);
    jw_kv_bool(&w, "public", false);
    jw_kv_arr(&w, "names");
    char full[E2B_NAME_MAX + 16];
    (void)snprintf(full, sizeof full, E2B_NAMESPACE "/%s", t->name);
    jw_strz(&w, full);
    jw_end(&w);
    jw_kv_arr(&w, "aliases");
    jw_strz(&w, t->name);
    jw_end(&w);
    jw_kv_arr(&w, "tags");
    for (size_t i = 0; i < b->tags.n; i++)
        jw_strz(&w, b->tags.at[i].k);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 202, &out);
}
void e2b_template_new(struct http_stream *s, void *a) { api_body(a, s, on_new); }

/* ---- one ---- */
struct e2b_template *e2b_find_template(struct http_stream *s, struct api *a)
{
    struct str id = http_param(s, "tid");
    struct caller who = api_caller(a, s);
    struct err e;
    struct e2b_template *t = catalogue_get(e2b_of(a), &who, id.p);
    if (!t) {
        e2b_problem(s, 404, "template '%.64s' not found", id.p);
    } else if (api_may_change(a, s, "template", t->tenant, &e)) {
        api_fail(s, &e, ABOUT_TEMPLATE);
        return NULL;
    }
    return t;
}

struct e2b_build *e2b_find_build(struct http_stream *s, struct api *a)
{
    struct e2b_template *t = e2b_find_template(s, a);
    struct e2b_build *b = t ? catalogue_build(t, http_param(s, "bid").p) : NULL;
    if (t && !b)
        e2b_problem(s, 404, "build '%.64s' not found", http_param(s, "bid").p);
    return b;
}

struct e2b_template *e2b_find_ref(struct http_stream *s, struct api *a, const char *text,
                                  struct e2b_ref *ref, const struct template **core)
{
    struct err e;
    *core = NULL;
    if (e2b_ref_parse(text, ref, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return NULL;
    }
    struct caller who = api_caller(a, s);
    struct e2b_template *t = catalogue_get(e2b_of(a), &who, ref->name);
    if (!t && !(*core = template_find_for(api_core(a), &who, ref->name, NULL))) {
        e2b_problem(s, 404, "template '%s' not found", ref->name);
    } else if (api_may_change(a, s, "template", t ? t->tenant : (*core)->tenant, &e)) {
        api_fail(s, &e, ABOUT_TEMPLATE);
        *core = NULL;
        return NULL;
    }
    return t;
}

void e2b_template_get(struct http_stream *s, void *a)
{
    struct e2b_ref ref;
    const struct template *core;
    struct e2b_template *t = e2b_find_ref(s, a, http_param(s, "tid").p, &ref, &core);
    char build[37];
    if (!t && !core)
        return;
    struct shown v = t ? shown_of(a, t) : shown_core(a, core, build);
    const struct e2b_build *it;
    struct jw *w = reply_begin(s);
    jw_obj(w);
    put_members(w, &v);
    jw_kv_arr(w, "builds");
    if (t)
        list_each(it, &t->builds, link)
            put_build(w, &v, it->id, build_state_name(it->state), it->created_ns);
    else
        put_build(w, &v, v.build, v.status, v.created_ns);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

static void on_patch(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct e2b_ref ref;
    const struct template *core;
    (void)p, (void)n; /* public or not: there is one team */
    const struct e2b_template *t = e2b_find_ref(s, a, http_param(s, "tid").p, &ref, &core);
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
void e2b_template_patch(struct http_stream *s, void *a) { api_body(a, s, on_patch); }

void e2b_template_alias(struct http_stream *s, void *a)
{
    struct e2b_found f;
    struct err e;
    struct e2b_ref ref;
    struct caller who = api_caller(a, s);
    const char *alias = http_param(s, "alias").p;
    struct e2b_template *t = NULL;
    if (e2b_ref_parse(alias, &ref, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    /* announced counts, ready or not; a tag must point somewhere */
    if (!*ref.tag)
        t = catalogue_get(e2b_of(a), &who, ref.name);
    if (!t && catalogue_resolve(e2b_of(a), &who, alias, &f, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "templateID", t ? t->id : f.template_id);
    jw_kv_bool(w, "public", false);
    jw_end(w);
    reply_send(s, 200);
}

/* ---- removal: the record, and what its builds stand on ---- */
static void on_removed(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_REQUEST);
}

static bool shared_core(struct e2b *x, const struct e2b_template * not, const char *core_id)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link)
        if (t != not )
            list_each(b, &t->builds, link)
                if (!strcmp(b->core_id, core_id))
                    return true;
    return false;
}

static void delete_ours(struct http_stream *s, struct api *a, struct e2b_template *t)
{
    struct e2b *x = e2b_of(a);
    struct e2b_build *b;
    struct err e;
    list_each(b, &t->builds, link) {
        const struct template *c =
            *b->core_id ? template_find(api_core(a), b->core_id, NULL) : NULL;
        if (c && !strcmp(c->tenant, t->tenant) && c->users && !shared_core(x, t, b->core_id)) {
            e2b_problem(s, 409, "template '%s' is in use by %u sandbox(es); kill them first",
                        t->name, c->users);
            return;
        }
    }
    list_each(b, &t->builds, link) {
        struct template *c = *b->core_id && !shared_core(x, t, b->core_id)
                                 ? template_find(api_core(a), b->core_id, NULL)
                                 : NULL;
        if (c && !strcmp(c->tenant, t->tenant)) /* one that is for all only had a tag here */
            (void)template_remove(api_core(a), c, NULL, NULL,
                                  &e); /* users were counted above, nothing else refuses */
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
    struct e2b_template *t = e2b_find_ref(s, a, http_param(s, "tid").p, &ref, &core);
    if (t) {
        delete_ours(s, a, t);
        return;
    }
    if (!core)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(
        r,
        template_remove(api_core(a), template_find(api_core(a), core->id, NULL), on_removed, r, &e),
        &e, ABOUT_REQUEST);
}
