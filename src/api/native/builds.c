/* Builds: an optional upload into a temporary file, then progress as JSON
 * lines until the template is there. If the client leaves, the build is
 * cancelled and nothing of it stays. Build output has no flow control: lines
 * for a client that does not keep up are counted and left out. */
#include "api/native/native.h"
#include "api/gate.h"
#include "api/ndjson.h"
#include "api/params.h"
#include "api/schema.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/network/network.h"
#include "http/multipart.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define RECIPE_MAX  (1u << 20)
#define CONTEXT_MAX (2ull << 30)
#define IMAGE_MAX   (16ull << 30)
#define WRITE_MAX   (1u << 20)

struct building {
    struct req r;
    char *name;
    bool force;
    /* upload */
    struct multipart *mp;
    struct buf recipe, network;
    bool has_recipe, has_network;
    enum { PART_NONE, PART_RECIPE, PART_CONTEXT, PART_NETWORK } part;
    int fd;
    uint64_t got, max;
    struct err err; /* set by a multipart callback that stopped */
    /* build */
    struct build *b;
    struct ndjson nd;
    bool begun; /* the reply's head is out */
    uint64_t left_out;
};

static void building_fini(void *arg)
{
    struct building *st = arg;
    if (st->b)
        build_cancel(st->b);
    nd_fini(&st->nd);
    multipart_free(st->mp);
    buf_free(&st->recipe), buf_free(&st->network);
    if (st->fd >= 0)
        close(st->fd);
    free(st->name);
}

static struct building *building_new(struct api *a, struct http_stream *s, const char *name)
{
    struct building *st = req_new(a, s, sizeof *st, building_fini);
    st->fd = -1;
    st->name = xstrdup(name);
    req_watch(&st->r);
    return st;
}

/* ---- progress ---- */
static void open_reply(struct building *st)
{
    if (!st->begun)
        nd_start(&st->nd, st->r.s);
    st->begun = true;
}

static bool may_say(struct building *st)
{
    open_reply(st);
    if (!http_writable(st->r.s)) {
        st->left_out++;
        return false;
    }
    if (st->left_out) {
        auto_buf b = {0};
        buf_printf(&b, "[%llu lines skipped: the client did not keep up]", (unsigned long long)st->left_out);
        st->left_out = 0;
        jw_kv_strn(nd_event(&st->nd, "log"), "line", (struct str){b.p, b.n});
        nd_send(&st->nd);
    }
    return true;
}

static void on_progress(void *arg, int percent, const char *step)
{
    struct building *st = arg;
    if (!may_say(st))
        return;
    struct jw *w = nd_event(&st->nd, "progress");
    jw_kv_i64(w, "percent", percent);
    jw_kv_str(w, "step", step);
    nd_send(&st->nd);
}

static void on_log(void *arg, const char *line)
{
    struct building *st = arg;
    if (!may_say(st))
        return;
    jw_kv_str(nd_event(&st->nd, "log"), "line", line);
    nd_send(&st->nd);
}

static void on_done(void *arg, const struct template *t, const struct err *e)
{
    struct building *st = arg;
    struct err none;
    st->b = NULL;
    if (!t && !e)
        err_set(&none, E_INTERNAL, "the build ended without a template"), e = &none;
    open_reply(st);
    struct jw *w = nd_event(&st->nd, e ? "error" : "done");
    jw_key(w, e ? "error" : "template");
    if (e)
        problem_put_stream(w, st->r.s, e, ABOUT_REQUEST);
    else
        put_template(w, t);
    nd_send(&st->nd);
    nd_end(&st->nd);
    req_end(&st->r);
}

static const struct build_ops ops = {.progress = on_progress, .log = on_log, .done = on_done};

/* First steps, and even the end, may have been reported before the build was returned. */
static void begin(struct building *st, struct build *b, const struct err *e)
{
    if (st->r.over)
        return;
    st->b = b;
    if (b)
        open_reply(st);
    else if (st->begun)
        on_done(st, NULL, e);
    else
        req_fail(&st->r, e, ABOUT_TEMPLATE);
}

/* ---- built-in recipes ---- */
struct builtin {
    const char *name, *builtin;
    bool force;
};
static const struct field builtin_rows[] = {
    FIELD("builtin", F_NAME, struct builtin, builtin, .flags = F_REQUIRED,
          .help = "A built-in recipe, such as `base`, `code-interpreter` or `isolate`."),
    FIELD("name", F_NAME, struct builtin, name,
          .help = "The template's name. Default: the recipe's."),
    FIELD("force", F_BOOL, struct builtin, force, .def = "false",
          .help = "Build it again if it is there."),
};
const struct shape builtin_body = SHAPE_OF("TemplateCreate", struct builtin, builtin_rows);

static void on_builtin_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct builtin g = {0};
    auto_json j = native_body(a, p, n, &builtin_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct building *st = building_new(a, s, g.name ? g.name : g.builtin);
    begin(st, build_builtin(api_core(a), st->name, g.builtin, g.force, &ops, st, &e), &e);
}
void templates_builtin(struct http_stream *s, void *a) { api_body(a, s, on_builtin_body); }

/* ---- uploads ---- */
static int store(struct building *st, const char *p, size_t n, struct err *e)
{
    if (n > st->max - st->got)
        return err_set(e, E_TOO_LARGE, "the upload is over the limit of %llu MiB", (unsigned long long)(st->max >> 20));
    st->got += n;
    while (n) {
        size_t k = n < WRITE_MAX ? n : WRITE_MAX;
        if (!fd_write_all(st->fd, p, k))
            return err_set(e, errno == ENOSPC || errno == EDQUOT ? E_QUOTA : E_INTERNAL, "the upload could not be stored; is the disk full?");
        p += k, n -= k;
    }
    return 0;
}

static bool open_upload(struct building *st, struct err *e)
{
    st->fd = build_tempfile(api_core(st->r.api), e);
    return st->fd >= 0;
}

static struct building *upload_new(struct api *a, struct http_stream *s, uint64_t max)
{
    struct err e;
    struct str name = http_param(s, "name");
    if (!name_ok(name)) {
        err_set(&e, E_INVALID, "a template's name must match ^[a-z0-9][a-z0-9-]{0,62}$");
        problem_about(s, &e, ABOUT_REQUEST);
        return NULL;
    }
    struct building *st = building_new(a, s, name.p);
    st->max = max;
    return st;
}

static void on_image_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct building *st = arg;
    struct err e;
    (void)s;
    if (!st->r.over && store(st, p, n, &e))
        req_fail(&st->r, &e, ABOUT_REQUEST);
}

/* What a scope says of templates it says by name, and an image may be given any name. */
static int may_import(const struct caller *who, struct err *e)
{
    if (!who->scope || !who->scope->ntemplates)
        return 0;
    return err_why(e, REASON_ROLE, E_FORBIDDEN,
                   "this key's scope names the templates it may use: it cannot import others");
}

static void on_image_end(struct http_stream *s, void *arg)
{
    struct building *st = arg;
    struct err e;
    (void)s;
    if (st->r.over)
        return;
    if (!st->got) {
        err_set(&e, E_INVALID, "the body is empty; send an OCI layout or docker-archive tar");
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    (void)lseek(st->fd, 0, SEEK_SET); /* a regular file */
    struct caller who = api_caller(st->r.api, st->r.s);
    if (api_still(st->r.api, st->r.s, &e) || may_import(&who, &e)) {
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    begin(st,
          build_import(api_core(st->r.api), who.tenant, st->name, take_fd(&st->fd), &ops, st, &e),
          &e);
}

void templates_import(struct http_stream *s, void *a)
{
    struct err e;
    struct building *st = upload_new(a, s, IMAGE_MAX);
    if (!st)
        return;
    if (!open_upload(st, &e)) {
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    http_body_stream(s, on_image_data, on_image_end, st);
}

/* ---- recipe and context ---- */
static int on_part(void *arg, struct str name, struct str filename, struct str type)
{
    struct building *st = arg;
    (void)filename, (void)type;
    if (str_eqz(name, "recipe") && !st->has_recipe) {
        st->part = PART_RECIPE;
        st->has_recipe = true;
        return 0;
    }
    if (str_eqz(name, "context") && st->fd < 0) {
        st->part = PART_CONTEXT;
        return open_upload(st, &st->err) ? 0 : -1;
    }
    if (str_eqz(name, "network") && !st->has_network) {
        st->part = PART_NETWORK;
        st->has_network = true;
        return 0;
    }
    return err_set(&st->err, E_INVALID, "the form has a part '%.*s'; one recipe, one context and one network are expected", (int)(name.n > 64 ? 64 : name.n),
                   name.p ? name.p : "");
}

static int on_part_data(void *arg, const char *p, size_t n)
{
    struct building *st = arg;
    if (st->part == PART_CONTEXT)
        return store(st, p, n, &st->err);
    bool net = st->part == PART_NETWORK;
    struct buf *to = net ? &st->network : &st->recipe;
    if (n > RECIPE_MAX - to->n)
        return err_set(&st->err, E_TOO_LARGE, "%s: at most %u bytes", net ? "network" : "recipe", RECIPE_MAX);
    buf_put(to, p, n);
    return 0;
}

static int on_part_end(void *arg)
{
    struct building *st = arg;
    st->part = PART_NONE;
    return 0;
}

/* A callback of ours that stops leaves its reason in st->err; else the parser's own. */
static void form_failed(struct building *st, const struct err *e) { req_fail(&st->r, st->err.code ? &st->err : e, ABOUT_REQUEST); }

static void on_form_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct building *st = arg;
    struct err e = {.code = E_INTERNAL};
    (void)s;
    if (!st->r.over && multipart_push(st->mp, p, n, &e))
        form_failed(st, &e);
}

static int read_network(struct building *st, const struct caller *who, struct network_spec *ret,
                        struct err *e)
{
    if (!st->has_network)
        return 0;
    auto_json j = json_parse(st->network.p, st->network.n, e);
    if (!j)
        return err_wrap(e, "network");
    return native_network(st->r.api, who, who->tenant, j, ret, e);
}

static void on_form_end(struct http_stream *s, void *arg)
{
    struct building *st = arg;
    struct network_spec net = {0};
    struct err e = {.code = E_INTERNAL};
    (void)s;
    if (st->r.over)
        return;
    struct caller who = api_caller(st->r.api, st->r.s);
    int bad = multipart_end(st->mp, &e) || api_still(st->r.api, st->r.s, &e);
    if (!bad && (!st->has_recipe || !st->recipe.n))
        bad = err_set(&e, E_INVALID, "recipe: missing; the form needs a part of that name");
    if (!bad && !str_utf8((struct str){st->recipe.p, st->recipe.n}))
        bad = err_set(&e, E_INVALID, "recipe: must be UTF-8 text");
    if (!bad)
        bad = read_network(st, &who, &net, &e);
    if (bad) {
        form_failed(st, &e);
        return;
    }
    if (st->fd >= 0)
        (void)lseek(st->fd, 0, SEEK_SET); /* a regular file */
    struct recipe_spec spec = {.name = st->name, .text = {st->recipe.p, st->recipe.n}, .context_fd = take_fd(&st->fd), .force = st->force, .cached_line = st->force ? 0 : INT_MAX, .tenant = who.tenant, .by = &who};
    if (st->has_network)
        spec.network = &net;
    begin(st, build_recipe(api_core(st->r.api), &spec, &ops, st, &e), &e);
    network_spec_free(&net);
}

struct build_opts {
    bool force;
};
static const struct field build_rows[] = {
    FIELD("force", F_BOOL, struct build_opts, force, .def = "false",
          .help = "Run every step again, and replace a template of this name."),
};
const struct shape build_query = SHAPE_OF(NULL, struct build_opts, build_rows);
static const struct field form_rows[] = {
    /* on_part reads them */
    {.name = "recipe",
     .type = F_TEXT,
     .flags = F_REQUIRED,
     .max = RECIPE_MAX,
     .help = "The recipe, in the language of a Dockerfile. See templates.md."},
    {.name = "context",
     .type = F_BYTES,
     .help = "A tar with the files for COPY, after the recipe."},
    {.name = "network",
     .type = F_JSON,
     .of = &network_shape,
     .help = "What its steps may reach. Default: nothing."},
};
const struct shape build_form = SHAPE("BuildForm", form_rows, .media = "multipart/form-data");

void templates_build(struct http_stream *s, void *a)
{
    static const struct multipart_cb cb = {.on_part = on_part, .on_data = on_part_data, .on_part_end = on_part_end};
    struct err e;
    struct build_opts q;
    if (native_query(a, s, &build_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct building *st = upload_new(a, s, CONTEXT_MAX);
    if (!st)
        return;
    st->force = q.force;
    st->mp = multipart_new(http_req_header(s, "Content-Type"), &cb, st, &e);
    if (!st->mp) {
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    http_body_stream(s, on_form_data, on_form_end, st);
}
