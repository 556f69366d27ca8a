/* Builds of templates: start, run, state and log. A build continues in the background;
 * its log is kept in memory, its result in the catalogue. Announced in templates.c, its files in build_files.c.
 *   on_start -> start_core -> on_progress, on_log … -> on_done -> succeeded or failed */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/logs.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/params.h"
#include "api/render.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/network/network.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>

#define LOG_MAX       20000
#define PAGE          100
#define FIRST_LOOK_NS (5 * NS_PER_S)
#define BUILD_NETWORK "{\"mode\":\"open\"}" /* E2B's default; behind the gate like any other */

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
    catalogue_save(e2b_of(b->api));
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
        if (c && !strcmp(c->tenant, t->tenant) && !core_wanted(x, b) &&
            (c->users || template_remove(api_core(x->api), c, NULL, NULL, &e)))
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
    prune(e2b_of(b->api), b->t, b);
    catalogue_save(e2b_of(b->api));
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

static int find_base(struct api *a, const struct caller *who, struct json *j, struct e2b_found *f,
                     struct err *e)
{
    struct str image = {0}, from = {0};
    char name[64];
    if (json_str(j, "fromImage", &image, false, e) || json_str(j, "fromTemplate", &from, false, e))
        return -1;
    if (from.n)
        return catalogue_resolve(e2b_of(a), who, from.p, f, e);
    if (!image.n)
        image = S("e2bdev/base");
    if (catalogue_resolve(e2b_of(a), who, e2b_image_template(image.p, name), f, NULL))
        return err_set(
            e, E_NOT_FOUND,
            "image '%.80s' is not on this host, and images are not pulled here. Import it first: docker save %.40s | hutch template import %s -",
            image.p, image.p, name);
    return 0;
}

/* The recipe names the base by id and the files by hash; what a hash stands for is another matter on every shelf. */
static void key_of(const struct e2b_recipe *r, const char *shelf, char out[65])
{
    auto_buf text = {0};
    buf_put(&text, r->text.p, r->text.n);
    if (r->files.n)
        buf_printf(&text, "\n%s", shelf);
    sha256_hex(text.p, text.n, out);
}

/* Same base, same steps, same files: same template, the newest if one was told to build anew. */
static const struct e2b_build *same_build(struct e2b *x, const char *tenant, const char *key)
{
    struct e2b_template *t;
    struct e2b_build *b;
    const struct e2b_build *same = NULL;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (b->state == BUILD_READY && !strcmp(t->tenant, tenant) && !strcmp(b->key, key) &&
                (!same || b->created_ns > same->created_ns) &&
                template_find(api_core(x->api), b->core_id, NULL))
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

static void start_core(struct e2b_build *b, const struct caller *who, struct e2b_recipe *r)
{
    static const struct build_ops ops = {.progress = on_progress, .log = on_log, .done = on_done};
    struct err e;
    char shelf[E2B_SHELF];
    e2b_build_shelf(b->tenant, b->t, shelf);
    key_of(r, shelf, b->key);
    const struct e2b_build *same =
        r->cached_line < r->line ? NULL : same_build(e2b_of(b->api), b->t->tenant, b->key);
    if (same) {
        say(b, "info", "CACHED: the same steps were built before", NULL);
        succeeded(b, same->core_id);
        return;
    }
    auto_fd ctx = r->files.n ? e2b_build_context(b->api, shelf, &r->files, &e) : -1;
    if (r->files.n && ctx < 0) {
        failed(b, e.msg, "base");
        return;
    }
    core_name(b);
    struct recipe_spec spec = {.name = b->core_name,
                               .text = {r->text.p, r->text.n},
                               .context_fd = -1,
                               .force = true,
                               .cached_line = r->cached_line,
                               .tenant = b->tenant,
                               .by = who};
    struct network_spec net = {0};
    auto_json open = json_parse_obj(BUILD_NETWORK, sizeof BUILD_NETWORK - 1, &e);
    if (network_parse(api_core(b->api), who, b->tenant, open, &net, &e)) {
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
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    b->state = BUILD_BUILDING;
    b->started_ns = clock_mono();
    b->api = a;
    struct caller who = api_caller(a, s);
    b->tenant = xstrdup(b->t->tenant);
    if (find_base(a, &who, j, &f, &e)) {
        say(b, "info", "Building template", "base");
        failed(b, e.msg, "base");
    } else {
        const struct template *t = template_find(api_core(a), f.core_id, NULL);
        if (e2b_steps(j, f.core_id, t->user, t->workdir, &r, &e)) {
            b->state = BUILD_WAITING;
            free(take_ptr(&b->tenant));
            api_fail(s, &e, ABOUT_REQUEST);
            e2b_recipe_fini(&r);
            return;
        }
        kv_copy(&b->lines, &r.lines);
        say(b, "info", "Building template", "base");
        start_core(b, &who, &r);
    }
    e2b_recipe_fini(&r);
    http_reply(s, 202, NULL, "", 0);
}
void e2b_build_start(struct http_stream *s, void *a) { api_body(a, s, on_start); }

/* ---- its state for the SDK that waits, its log for whoever reads it later ---- */
const char *build_state_name(enum build_state s)
{
    static const char *const names[] = {[BUILD_WAITING] = "waiting",
                                        [BUILD_BUILDING] = "building",
                                        [BUILD_READY] = "ready",
                                        [BUILD_ERROR] = "error"};
    return names[s];
}

static void put_log(struct jw *w, const struct log_line *l)
{
    jw_obj(w);
    put_time(w, "timestamp", l->at_ns);
    jw_kv_str(w, "level", l->level);
    jw_kv_str(w, "message", l->text);
    if (*l->step)
        jw_kv_str(w, "step", l->step);
    jw_end(w);
}

void e2b_build_status(struct http_stream *s, void *a)
{
    struct err e = {0};
    uint64_t from, limit;
    struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (param_u64(s, "logsOffset", 0, UINT32_MAX, 0, &from, &e) ||
        param_u64(s, "limit", 0, PAGE, PAGE, &limit, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    /* Who starts a build and looks at once finds it building, as with E2B, also where everything was kept from before. */
    enum build_state state = b->state > BUILD_BUILDING && b->started_ns && !b->seen &&
                                     clock_mono() - b->started_ns < FIRST_LOOK_NS
                                 ? BUILD_BUILDING
                                 : b->state;
    b->seen = b->started_ns;
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_str(&w, "templateID", b->t->id);
    jw_kv_str(&w, "buildID", b->id);
    jw_kv_str(&w, "status", build_state_name(state));
    jw_kv_arr(&w, "logs");
    for (size_t i = from; i < b->nlog && i < from + limit; i++)
        jw_strz(&w, b->log[i].text);
    jw_end(&w);
    jw_kv_arr(&w, "logEntries");
    for (size_t i = from; i < b->nlog && i < from + limit; i++)
        put_log(&w, &b->log[i]);
    jw_end(&w);
    if (state == BUILD_ERROR) {
        jw_kv_obj(&w, "reason");
        jw_kv_str(&w, "message", b->error);
        jw_kv_str(&w, "step", *b->error_step ? b->error_step : "base");
        jw_kv_arr(&w, "logEntries");
        jw_end(&w);
        jw_end(&w);
    }
    jw_end(&w);
    reply_json(s, 200, &out);
}

static bool wanted(const struct log_line *l, const struct e2b_log_query *q)
{
    uint64_t ms = (uint64_t)(l->at_ns / NS_PER_MS);
    return e2b_log_level(l->level) >= q->level &&
           !(q->has_cursor && (q->backward ? ms > q->cursor : ms < q->cursor));
}

void e2b_build_logs(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct e2b_log_query q;
    auto_buf search = {0};
    const struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (e2b_log_query_read(s, "cursor", PAGE, &q, &search, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_arr(&w, "logs");
    for (size_t i = 0; i < b->nlog && q.limit; i++) {
        const struct log_line *l = &b->log[q.backward ? b->nlog - 1 - i : i];
        if (wanted(l, &q)) {
            put_log(&w, l);
            q.limit--;
        }
    }
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &out);
}
