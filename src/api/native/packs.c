/* Snapshots as signed files, out and in, and whose are taken. */
#include "api/gate.h"
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/pack/pack.h"
#include "core/pack/signer.h"
#include <stdlib.h>

/* ---- out ---- */
struct sending_pack { struct req r; struct pack_export *x; bool owed; };

static void out_fini(void *arg)
{
    struct sending_pack *st = arg;
    if (st->x)
        pack_export_cancel(st->x);
}

static void out_opened(void *arg, uint64_t bytes)
{
    struct sending_pack *st = arg;
    (void)http_header(st->r.s, "Cache-Control", "no-store"); /* nothing is sent yet: it cannot be too late */
    (void)http_reply_start_len(st->r.s, 200, "application/vnd.hutch.pack", bytes); /* fails only when the client left */
    pack_export_more(st->x);
}

static void out_data(void *arg, const char *p, size_t n)
{
    struct sending_pack *st = arg;
    (void)http_write(st->r.s, p, n); /* as above */
    if (http_writable(st->r.s))
        pack_export_more(st->x);
    else
        st->owed = true;
}

static void out_drain(struct http_stream *s, void *arg)
{
    struct sending_pack *st = arg;
    (void)s;
    if (st->owed && st->x) {
        st->owed = false;
        pack_export_more(st->x);
    }
}

static void out_done(void *arg, const struct err *e)
{
    struct sending_pack *st = arg;
    st->x = NULL;
    if (e && !http_started(st->r.s)) {
        req_fail(&st->r, e, ABOUT_SNAPSHOT);
        return;
    }
    if (e)
        http_abort(st->r.s);
    else
        http_end(st->r.s);
    req_end(&st->r);
}

void packs_export(struct http_stream *s, void *a)
{
    static const struct pack_export_ops ops = {.opened = out_opened, .data = out_data, .done = out_done};
    struct err e;
    struct snapshot *sn = path_snapshot(a, s);
    if (!sn)
        return;
    struct sending_pack *st = req_new(a, s, sizeof *st, out_fini);
    http_on_drain(s, out_drain, st);
    st->x = pack_export_start(sn, &ops, st, &e);
    if (!st->x)
        req_fail(&st->r, &e, ABOUT_SNAPSHOT);
    else
        req_watch(&st->r);
}

/* ---- in ---- */
struct taking_pack { struct req r; struct pack_import *im; bool paused; };

static void in_fini(void *arg)
{
    struct taking_pack *st = arg;
    if (st->im)
        pack_import_cancel(st->im);
}

static void in_room(void *arg)
{
    struct taking_pack *st = arg;
    if (st->paused)
        http_body_resume(st->r.s);
    st->paused = false;
}

static void in_done(void *arg, struct snapshot *sn, const struct err *e)
{
    struct taking_pack *st = arg;
    st->im = NULL;
    if (!sn) {
        req_fail(&st->r, e, ABOUT_SNAPSHOT);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    put_snapshot(w, sn);
    req_send(&st->r, 201);
}

static void in_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct taking_pack *st = arg;
    if (st->r.over || !st->im || !pack_import_push(st->im, p, n) || st->paused)
        return;
    st->paused = true;
    http_body_pause(s);
}

static void in_end(struct http_stream *s, void *arg)
{
    struct taking_pack *st = arg;
    (void)s;
    if (!st->r.over && st->im)
        pack_import_end(st->im);
}

struct naming {
    const char *name;
};
static const struct field import_rows[] = {
    FIELD("name", F_STR, struct naming, name, .max = 63,
          .help = "A name in place of the one in the file."),
};
const struct shape import_query = SHAPE_OF(NULL, struct naming, import_rows);

void packs_import(struct http_stream *s, void *a)
{
    static const struct pack_import_ops ops = {.room = in_room, .done = in_done};
    struct err e;
    struct naming q = {0};
    if (native_query(a, s, &import_query, &q, &e)) {
        query_free(&import_query, &q);
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct caller who = api_caller(a, s);
    struct taking_pack *st = req_new(a, s, sizeof *st, in_fini);
    st->im = pack_import_start(api_core(a), q.name, who.tenant, &ops, st, &e);
    query_free(&import_query, &q);
    if (!st->im) {
        req_fail(&st->r, &e, ABOUT_SNAPSHOT);
        return;
    }
    req_watch(&st->r);
    http_body_stream(s, in_data, in_end, st);
}

/* ---- whose ---- */
static void put_signer(struct jw *w, const struct signer *k)
{
    jw_obj(w);
    jw_kv_str(w, "name", k->name);
    jw_kv_str(w, "key", k->key);
    jw_end(w);
}

void signers_list(struct http_stream *s, void *a)
{
    auto_free struct signer *k = xcalloc(SIGNERS_MAX, sizeof *k);
    struct signer own;
    struct err e;
    size_t n = 0;
    if (signer_own(api_core(a), &own, &e) || signer_list(api_core(a), k, SIGNERS_MAX, &n, &e)) {
        problem_about(s, &e, ABOUT_KEY);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "own", own.key);
    jw_kv_arr(w, "signers");
    for (size_t i = 0; i < n; i++)
        put_signer(w, &k[i]);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

struct trust {
    const char *key;
};
static const struct field signer_rows[] = {
    FIELD("key", F_STR, struct trust, key, .flags = F_REQUIRED, .max = 64,
          .help = "The public key, 64 hexadecimal digits."),
};
const struct shape signer_body = SHAPE_OF("SignerPut", struct trust, signer_rows);

static void on_put_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct trust g = {0};
    struct str name = http_param(s, "name");
    auto_json j = native_body(a, p, n, &signer_body, &g, &e);
    if (!j || signer_trust(api_core(a), name.p, g.key, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct signer k = {0};
    (void)snprintf(k.name, sizeof k.name, "%s", name.p);
    (void)snprintf(k.key, sizeof k.key, "%s", g.key);
    struct jw *w = reply_begin(s);
    put_signer(w, &k);
    reply_send(s, 200);
}
void signers_put(struct http_stream *s, void *a) { api_body(a, s, on_put_body); }

void signers_delete(struct http_stream *s, void *a)
{
    struct err e;
    if (signer_distrust(api_core(a), http_param(s, "name").p, &e))
        problem_about(s, &e, ABOUT_KEY);
    else
        reply_none(s);
}
