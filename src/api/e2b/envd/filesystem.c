/* filesystem.Filesystem but for watching. The agent acts as root; what it
 * makes belongs to the acting user. */
#include "api/e2b/envd/filesystem.h"
#include "api/e2b/envd/rpc.h"
#include "api/params.h"
#include <stdlib.h>

#define LIST_BYTES_MAX (64u << 20) /* of JSON; the agent decides how much there is */
#define DEPTH_MAX      64

/* The path in a member, resolved as far as this side can; NULL: refused, the answer is out. */
static const char *path_of(const struct rpc_in *in, const char *key)
{
    struct err e = {0};
    const char *path;
    if (rpc_text(in->msg, key, &path, &e) || !(path = envd_path(in->sb, path, &e))) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return NULL;
    }
    return path;
}

static void reply_entry(struct rpc_call *c, const struct file_entry *en)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "entry");
    put_fs_entry(&w, en);
    jw_end(&w);
    rpc_reply(c, &b);
}

static void on_entry(void *arg, const struct err *e, const struct file_entry *en)
{
    struct rpc_call *c = arg;
    if (!req_back(&c->r))
        return;
    if (e)
        rpc_fail_err(c, e);
    else if (!en)
        rpc_fail(c, RPC_INTERNAL, "the sandbox answered without an entry");
    else
        reply_entry(c, en);
}

void rpc_fs_stat(const struct rpc_in *in)
{
    struct err e = {0};
    const char *path = path_of(in, "path");
    if (!path)
        return;
    struct rpc_call *c = rpc_call_new(in, sizeof *c, NULL);
    req_hold(&c->r);
    rpc_settle(c, files_stat(in->sb, path, in->user, on_entry, c, &e), &e);
}

void rpc_fs_move(const struct rpc_in *in)
{
    struct err e = {0};
    const char *from = path_of(in, "source"), *to = from ? path_of(in, "destination") : NULL;
    if (!to)
        return;
    struct rpc_call *c = rpc_call_new(in, sizeof *c, NULL);
    req_hold(&c->r);
    rpc_settle(c, files_move(in->sb, from, to, in->user, on_entry, c, &e), &e);
}

static void on_removed(void *arg, const struct err *e, const struct file_entry *en)
{
    struct rpc_call *c = arg;
    (void)en;
    if (!req_back(&c->r))
        return;
    if (e && (e->code != E_NOT_FOUND || envd_no_user(e)))
        rpc_fail_err(c, e);
    else
        rpc_reply_empty(c); /* what is not there is removed */
}

void rpc_fs_remove(const struct rpc_in *in)
{
    struct err e = {0};
    const char *path = path_of(in, "path");
    if (!path)
        return;
    struct rpc_call *c = rpc_call_new(in, sizeof *c, NULL);
    req_hold(&c->r);
    rpc_settle(c, files_remove(in->sb, path, in->user, true, on_removed, c, &e), &e);
}

/* ---- make: what is there decides the answer, so look first ---- */
struct making {
    struct rpc_call c;
    char *path;
};

static void making_fini(void *arg)
{
    struct making *st = arg;
    free(st->path);
    st->path = NULL;
}

static void on_looked(void *arg, const struct err *e, const struct file_entry *en)
{
    struct making *st = arg;
    struct err no = {0};
    if (!req_back(&st->c.r))
        return;
    if (en) {
        if (en->type == 'd' || en->target_type == 'd')
            rpc_fail(&st->c, RPC_ALREADY_EXISTS, "directory already exists: %.200s", en->path);
        else
            rpc_fail(&st->c, RPC_INVALID_ARGUMENT,
                     "path already exists but it is not a directory: %.200s", en->path);
        return;
    }
    if (!e || e->code != E_NOT_FOUND || envd_no_user(e)) {
        if (!e)
            err_set(&no, E_GUEST, "the sandbox answered without an entry"), e = &no;
        rpc_fail_err(&st->c, e);
        return;
    }
    struct sandbox *sb = sandbox_find(api_core(st->c.r.api), st->c.id, &no);
    req_hold(&st->c.r);
    rpc_settle(&st->c,
               sb ? files_mkdir(sb, st->path, *st->c.user ? st->c.user : NULL, 0755, true, on_entry,
                                st, &no)
                  : -1,
               &no);
}

void rpc_fs_make_dir(const struct rpc_in *in)
{
    struct err e = {0};
    const char *path = path_of(in, "path");
    if (!path)
        return;
    struct making *st = rpc_call_new(in, sizeof *st, making_fini);
    st->path = xstrdup(path);
    req_hold(&st->c.r);
    rpc_settle(&st->c, files_stat(in->sb, path, in->user, on_looked, st, &e), &e);
}

/* ---- list ---- */
struct listing {
    struct rpc_call c;
    struct buf b;
    struct jw w;
    bool over;
};

static void listing_fini(void *arg)
{
    struct listing *st = arg;
    buf_free(&st->b);
}

static void on_entries(void *arg, const struct file_entry *en, size_t n)
{
    struct listing *st = arg;
    if (st->c.r.over || st->over)
        return;
    for (size_t i = 0; i < n; i++)
        put_fs_entry(&st->w, &en[i]);
    st->over = st->b.n > LIST_BYTES_MAX;
}

static void on_listed(void *arg, const struct err *e)
{
    struct listing *st = arg;
    if (!req_back(&st->c.r))
        return;
    if (e) {
        rpc_fail_err(&st->c, e);
    } else if (st->over) {
        rpc_fail(&st->c, RPC_RESOURCE_EXHAUSTED,
                 "the listing has more than %u MiB; list with a smaller depth",
                 LIST_BYTES_MAX >> 20);
    } else {
        jw_end(&st->w);
        jw_end(&st->w);
        rpc_reply(&st->c, &st->b);
    }
}

void rpc_fs_list_dir(const struct rpc_in *in)
{
    static const struct files_list_ops ops = {.entries = on_entries, .done = on_listed};
    struct err e = {0};
    int64_t depth = 0;
    const char *path = path_of(in, "path");
    if (!path)
        return;
    if (json_i64(in->msg, "depth", 0, UINT32_MAX, 0, &depth, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct listing *st = rpc_call_new(in, sizeof *st, listing_fini);
    jw_init(&st->w, &st->b);
    jw_obj(&st->w);
    jw_kv_arr(&st->w, "entries");
    req_hold(&st->c.r);
    unsigned deep = depth < 1 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : (unsigned)depth;
    rpc_settle(&st->c, files_list(in->sb, path, in->user, deep, &ops, st, &e), &e);
}
