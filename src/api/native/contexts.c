/* …/contexts: the code contexts of a sandbox. */
#include "api/native/native.h"
#include "api/params.h"
#include "core/code/context.h"

struct state { struct req r; int status; };

static void put_context(struct jw *w, const struct context_info *c)
{
    jw_obj(w);
    jw_kv_str(w, "id", c->id);
    jw_kv_str(w, "language", language_name(c->language));
    jw_kv_str(w, "cwd", c->cwd);
    jw_kv_str(w, "state", c->state);
    jw_kv_bool(w, "default", c->is_default);
    jw_kv_u64(w, "cells", c->cells);
    jw_end(w);
}

static void on_one(void *arg, const struct err *e, const struct context_info *c)
{
    struct state *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_CONTEXT);
        return;
    }
    if (!c) {
        reply_none(st->r.s);
        req_end(&st->r);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    put_context(w, c);
    req_send(&st->r, st->status);
}

static struct state *begin(struct api *a, struct http_stream *s, int status)
{
    struct state *st = req_new(a, s, sizeof *st, NULL);
    st->status = status;
    req_hold(&st->r);
    return st;
}

struct args {
    struct context_spec spec;
    struct kv env;
    struct str language;
};
static const struct field context_rows[] = {
    FIELD(
        "language", F_TEXT, struct args, language, .max = 32,
        .help =
            "python, javascript, typescript, bash, r or java; the template must have it. Default: python."),
    FIELD("cwd", F_PATH, struct args, spec.cwd, .max = PARAM_PATH_MAX,
          .help = "Where its cells run. Default: /home/user."),
    FIELD("env", F_ENV, struct args, env, .help = "Variables for all its cells."),
};
const struct shape context_body = SHAPE_OF("ContextCreate", struct args, context_rows);

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    struct args g = {.spec.language = LANG_PYTHON};
    struct sandbox *sb = api_sandbox(arg, s);
    if (!sb)
        return;
    auto_json j = native_body(arg, p, n, &context_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
    } else if (g.language.p && language_parse(g.language, &g.spec.language)) {
        err_set(&e, E_INVALID, "language: must be python, javascript, typescript, bash, r or java");
        problem_about(s, &e, ABOUT_REQUEST);
    } else {
        struct state *st = begin(arg, s, 201);
        g.spec.env = &g.env;
        req_settle(&st->r, context_create(sb, &g.spec, on_one, st, &e), &e, ABOUT_SANDBOX);
    }
    fields_free(&context_body, &g);
}
void contexts_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

typedef int one_fn(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e);

static void one(struct http_stream *s, void *a, one_fn *fn)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct state *st = begin(a, s, 200);
    req_settle(&st->r, fn(sb, http_param(s, "cid").p, on_one, st, &e), &e, ABOUT_SANDBOX);
}

void contexts_get(struct http_stream *s, void *a) { one(s, a, context_get); }
void contexts_delete(struct http_stream *s, void *a) { one(s, a, context_remove); }
void contexts_restart(struct http_stream *s, void *a) { one(s, a, context_restart); }
void contexts_interrupt(struct http_stream *s, void *a) { one(s, a, context_interrupt); }

static void on_list(void *arg, const struct err *e, const struct context_info *c, size_t n)
{
    struct state *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_SANDBOX);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_arr(w, "contexts");
    for (size_t i = 0; i < n; i++)
        put_context(w, &c[i]);
    jw_end(w);
    jw_end(w);
    req_send(&st->r, 200);
}

void contexts_list(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct state *st = begin(a, s, 200);
    req_settle(&st->r, context_list(sb, on_list, st, &e), &e, ABOUT_SANDBOX);
}
