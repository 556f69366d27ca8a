/* …/contexts: the code contexts of a sandbox. */
#include "api/native/native.h"
#include "api/params.h"
#include "core/context.h"

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
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_context(&w, c);
    req_json(&st->r, st->status, &b);
}

static struct state *begin(struct api *a, struct http_stream *s, int status)
{
    struct state *st = req_new(a, s, sizeof *st, NULL);
    st->status = status;
    req_hold(&st->r);
    return st;
}

static void refused(struct state *st, const struct err *e)
{
    if (req_back(&st->r)) /* it will not come */
        req_fail(&st->r, e, ABOUT_SANDBOX);
}

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    struct context_spec spec = {.language = LANG_PYTHON};
    struct kv env = {0};
    struct str language = {0};
    struct sandbox *sb = api_sandbox(arg, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "ContextCreate", &e);
    if (!j || json_str(j, "language", &language, false, &e) || body_text(j, "cwd", PARAM_PATH_MAX, &spec.cwd, false, &e) || body_env(j, "env", &env, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
    } else if (language.p && language_parse(language, &spec.language)) {
        err_set(&e, E_INVALID, "language: python, javascript, typescript, bash, r and java are there");
        problem_about(s, &e, ABOUT_REQUEST);
    } else {
        struct state *st = begin(arg, s, 201);
        spec.env = &env;
        if (context_create(sb, &spec, on_one, st, &e))
            refused(st, &e);
    }
    kv_free(&env);
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
    if (fn(sb, http_param(s, "cid").p, on_one, st, &e))
        refused(st, &e);
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
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "contexts");
    for (size_t i = 0; i < n; i++)
        put_context(&w, &c[i]);
    jw_end(&w);
    jw_end(&w);
    req_json(&st->r, 200, &b);
}

void contexts_list(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct state *st = begin(a, s, 200);
    if (context_list(sb, on_list, st, &e))
        refused(st, &e);
}
