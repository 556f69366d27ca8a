/* Builds of templates: announce, start. A build runs on in the background; its
 * log is kept in memory, its result in the catalogue. Files: build_files.c. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/native/native.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/network.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>

#define LOG_MAX       20000
#define BUILD_NETWORK "{\"mode\":\"open\"}" /* E2B's default; behind the gate like any other */

struct e2b_template *e2b_find_template(struct http_stream *s, struct api *a)
{
    struct str id = http_param(s, "tid");
    struct e2b_template *t = catalogue_get(api_e2b(a), id.p);
    if (!t)
        e2b_problem(s, 404, "template '%.64s' not found", id.p);
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

/* ---- announce ---- */
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
    int bad = !j || (!name.p && err_set(&e, E_INVALID, "name: missing")) || e2b_ref_parse(name.p, &ref, &e) || read_tags(j, &tags, &e) ||
              json_i64(j, "cpuCount", 1, 64, 0, &cpu, &e) || json_i64(j, "memoryMB", 128, 65536, 0, &mem, &e);
    if (bad) {
        kv_free(&tags);
        e2b_fail(s, &e);
        return;
    }
    struct e2b *x = api_e2b(a);
    struct e2b_template *t = catalogue_get(x, ref.name);
    if (!t)
        t = catalogue_add(x, ref.name);
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
void e2b_template_new(struct http_stream *s, void *a) { e2b_body(s, a, on_new); }

/* ---- the build itself ---- */
static void say(struct e2b_build *b, const char *level, const char *text, const char *step)
{
    if (b->nlog >= LOG_MAX)
        return;
    if (b->nlog == b->caplog)
        b->log = xrealloc(b->log, (b->caplog = b->caplog ? b->caplog * 2 : 64) * sizeof *b->log);
    struct log_line *l = &b->log[b->nlog++];
    *l = (struct log_line){.at_ns = clock_wall(), .level = level, .text = xstrdup(text)};
    (void)snprintf(l->step, sizeof l->step, "%s", step ? step : "");
}

static void failed(struct e2b_build *b, const char *message, const char *step)
{
    b->state = BUILD_ERROR;
    free(b->error);
    b->error = xstrdup(message);
    (void)snprintf(b->error_step, sizeof b->error_step, "%s", step);
    say(b, "error", message, step);
    catalogue_save(api_e2b(b->api));
}

static bool core_wanted(struct e2b *x, const struct e2b_build *except)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (b != except && !strcmp(b->core_id, except->core_id))
                return true;
    return false;
}

static bool tagged(const struct e2b_build *b)
{
    for (size_t i = 0; i < b->t->tags.n; i++)
        if (!strcmp(b->t->tags.at[i].v, b->id))
            return true;
    return false;
}

/* Builds that no tag points at any more cannot be asked for: what they stand on goes, unless something still runs on it. */
static void prune(struct e2b *x, struct e2b_template *t, const struct e2b_build *newest)
{
    struct e2b_build *b;
    struct err e;
    list_each(b, &t->builds, link) {
        if (b == newest || b->state != BUILD_READY || tagged(b))
            continue;
        struct template *c = template_find(api_core(x->api), b->core_id, NULL);
        if (c && !core_wanted(x, b) && (c->users || template_remove(api_core(x->api), c, NULL, NULL, &e)))
            continue; /* next time */
        build_drop(b);
    }
}

static void succeeded(struct e2b_build *b, const char *core_id)
{
    (void)snprintf(b->core_id, sizeof b->core_id, "%s", core_id);
    b->state = BUILD_READY;
    for (size_t i = 0; i < b->tags.n; i++)
        catalogue_tag(b->t, b->tags.at[i].k, b->id);
    say(b, "info", "Build finished", "finalize");
    prune(api_e2b(b->api), b->t, b);
    catalogue_save(api_e2b(b->api));
}

static void on_progress(void *arg, int percent, const char *step)
{
    struct e2b_build *b = arg;
    (void)percent;
    bool kept = step && !strncmp(step, "CACHED ", 7);
    if (step && !strncmp(kept ? step + 7 : step, "USER", 4))
        return; /* ours, not the caller's */
    if (step && !strncmp(step, "unpacking:", 10))
        return; /* ten a second */
    if (step && strstr(step, "/.hutch-context"))
        step = kept ? "CACHED COPY" : "COPY";
    say(b, "info", step ? step : "", NULL);
}
static void on_log(void *arg, const char *line) { say(arg, "info", line, NULL); }
static void on_done(void *arg, const struct template *t, const struct err *e)
{
    struct e2b_build *b = arg;
    b->core = NULL;
    if (t) {
        succeeded(b, t->id);
        return;
    }
    auto_buf msg = {0};
    char step[12];
    e2b_build_message(&b->lines, e ? e->msg : "the build ended without a template", &msg, step);
    failed(b, msg.p, step);
}

static int find_base(struct api *a, struct json *j, struct e2b_found *f, struct err *e)
{
    struct str image = {0}, from = {0};
    char name[64];
    if (json_str(j, "fromImage", &image, false, e) || json_str(j, "fromTemplate", &from, false, e))
        return -1;
    if (from.n)
        return catalogue_resolve(api_e2b(a), from.p, f, e);
    if (!image.n)
        image = S("e2bdev/base");
    if (catalogue_resolve(api_e2b(a), e2b_image_template(image.p, name), f, NULL))
        return err_set(e, E_NOT_FOUND, "image '%.80s' is not on this host, and images are not pulled here. Import it first: docker save %.40s | hutch template import %s -",
                       image.p, image.p, name);
    return 0;
}

/* Same base, same steps, same files: same template, the newest if one was told to build anew. */
static const struct e2b_build *same_build(struct e2b *x, const char *key)
{
    struct e2b_template *t;
    struct e2b_build *b;
    const struct e2b_build *same = NULL;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (b->state == BUILD_READY && !strcmp(b->key, key) && (!same || b->created_ns > same->created_ns) && template_find(api_core(x->api), b->core_id, NULL))
                same = b;
    return same;
}

static void core_name(struct e2b_build *b)
{
    size_t n = 0;
    for (const char *p = b->t->name; *p && n < 40; p++)
        b->core_name[n++] = *p == '_' ? '-' : *p;
    if (b->core_name[0] == '-')
        b->core_name[0] = 'x';
    (void)snprintf(b->core_name + n, sizeof b->core_name - n, "-%.8s", b->id);
}

static void start_core(struct e2b_build *b, struct e2b_recipe *r)
{
    static const struct build_ops ops = {.progress = on_progress, .log = on_log, .done = on_done};
    struct err e;
    sha256_hex(r->text.p, r->text.n, b->key); /* names the base by id and the files by hash */
    const struct e2b_build *same = r->cached_line < r->line ? NULL : same_build(api_e2b(b->api), b->key);
    if (same) {
        say(b, "info", "CACHED: the same steps were built before", NULL);
        succeeded(b, same->core_id);
        return;
    }
    auto_fd ctx = r->files.n ? e2b_build_context(b->api, &r->files, &e) : -1;
    if (r->files.n && ctx < 0) {
        failed(b, e.msg, "base");
        return;
    }
    core_name(b);
    struct recipe_spec spec = {.name = b->core_name, .text = {r->text.p, r->text.n}, .context_fd = -1, .force = true, .cached_line = r->cached_line, .tenant = b->tenant};
    struct network_spec net = {0};
    auto_json open = json_parse_obj(BUILD_NETWORK, sizeof BUILD_NETWORK - 1, &e);
    if (network_parse(api_core(b->api), open, &net, &e)) {
        failed(b, e.msg, "base");
        return;
    }
    spec.network = &net;
    spec.context_fd = take_fd(&ctx);
    b->core = build_recipe(api_core(b->api), &spec, &ops, b, &e);
    network_spec_free(&net);
    if (!b->core && b->state == BUILD_BUILDING) {
        auto_buf msg = {0};
        char step[12];
        e2b_build_message(&b->lines, e.msg, &msg, step);
        failed(b, msg.p, step);
    }
}

static void on_start(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e = {0};
    struct e2b_found f;
    struct e2b_recipe r = {0};
    struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (b->state != BUILD_WAITING) {
        e2b_problem(s, 400, "build is not in waiting state");
        return;
    }
    auto_json j = json_parse_obj(p, n, &e);
    if (!j) {
        e2b_fail(s, &e);
        return;
    }
    b->state = BUILD_BUILDING;
    b->started_ns = clock_mono();
    b->api = a;
    b->tenant = xstrdup(gate_tenant(api_core(a), s));
    if (find_base(a, j, &f, &e)) {
        say(b, "info", "Building template", "base");
        failed(b, e.msg, "base");
    } else {
        const struct template *t = template_find(api_core(a), f.core_id, NULL);
        if (e2b_steps(j, f.core_id, t->user, t->workdir, &r, &e)) {
            b->state = BUILD_WAITING;
            free(take_ptr(&b->tenant));
            e2b_fail(s, &e);
            e2b_recipe_fini(&r);
            return;
        }
        kv_copy(&b->lines, &r.lines);
        say(b, "info", "Building template", "base");
        start_core(b, &r);
    }
    e2b_recipe_fini(&r);
    http_reply(s, 202, NULL, "", 0);
}
void e2b_build_start(struct http_stream *s, void *a) { e2b_body(s, a, on_start); }
