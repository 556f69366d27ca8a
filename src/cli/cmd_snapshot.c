/* hutch snapshot create|ls|rm|put|…, fork, rollback: keep the state of a sandbox, copy it, go back to it. As a file: cmd_pack.c. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_sandbox(struct cli *x, const char *id, const char *what, const struct buf *body, struct json **ret)
{
    auto_free char *base = url("/v1/sandboxes/{}/", id), *t = xasprintf("%s%s", base, what);
    return api_call(x, "POST", t, body, ret);
}

static void print_id(const char *text)
{
    char id[128];
    esc_text(str_of(text), id, sizeof id);
    (void)printf("%s\n", id);
}

/* ---- take ---- */
static int exec_create(struct cli *x, struct args *a)
{
    int64_t expires = 0, keep = 0;
    if (args_seconds(a, "expires", 1, INT32_MAX, 0, &expires, &x->err) || args_int(a, "keep", 1, 1000, 0, &keep, &x->err))
        return cli_fail(x);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    if (args_str(a, "name", NULL))
        jw_kv_str(&w, "name", args_str(a, "name", NULL));
    if (args_flag(a, "files-only"))
        jw_kv_bool(&w, "memory", false);
    if (args_str(a, "path", NULL))
        jw_kv_str(&w, "path", args_str(a, "path", NULL));
    if (expires)
        jw_kv_i64(&w, "expires_s", expires);
    if (keep)
        jw_kv_i64(&w, "keep_last", keep);
    jw_end(&w);
    auto_json s = NULL;
    if (on_sandbox(x, a->v[0], "snapshots", &b, &s))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(s);
    else
        print_id(jget_str(s, "id", ""));
    return 0;
}

static int exec_put(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "snapshot", a->v[0]);
    if (args_str(a, "path", NULL))
        jw_kv_str(&w, "path", args_str(a, "path", NULL));
    jw_end(&w);
    return on_sandbox(x, a->v[1], "restore", &b, NULL) ? cli_fail(x) : 0;
}

/* ---- list, as the tree it is ---- */
static struct json *find(struct json *list, const char *id)
{
    for (size_t i = 0; id && i < json_len(list); i++)
        if (!strcmp(jget_str(json_at(list, i), "id", ""), id))
            return json_at(list, i);
    return NULL;
}

static void put_row(struct table *t, struct json *s, int depth, int64_t now)
{
    char memory[24], disk[24], age[24], left[24], name[80];
    int64_t created = jget_time(s, "created_at"), expires = jget_time(s, "expires_at");
    bool has_memory = false;
    (void)json_bool(s, "memory", false, &has_memory, NULL);
    bytes_format(has_memory ? jget_i64(s, "memory_bytes", 0) : -1, memory);
    bytes_format(jget_i64(s, "disk_bytes", 0), disk);
    dur_format(created ? now - created : -1, age);
    dur_format(expires ? (expires > now ? expires - now : 0) : -1, left);
    esc_text(str_of(jget_str(s, "name", "")), name, sizeof name);
    table_cell(t, ST_PLAIN, jget_str(s, "id", ""));
    table_cellf(t, ST_PLAIN, "%*s%s%s", depth > 20 ? 40 : depth * 2, "", depth ? "└ " : "", *name ? name : "-");
    table_cell(t, ST_DIM, jget_str(s, "sandbox", "-"));
    table_cell(t, ST_PLAIN, jget_str(s, "tier", ""));
    table_cell(t, ST_PLAIN, memory);
    table_cell(t, ST_PLAIN, disk);
    table_cellf(t, ST_PLAIN, "%lld", (long long)jget_i64(s, "users", 0));
    table_cell(t, ST_PLAIN, age);
    table_cell(t, ST_PLAIN, left);
}

/* Oldest first, each followed by what came of it. A list is newest first, and its parents are always older. */
static void put_tree(struct table *t, struct json *list, const char *parent, int depth, int64_t now)
{
    for (size_t i = json_len(list); i-- > 0;) {
        struct json *s = json_at(list, i);
        struct json *up = find(list, jget_str(s, "parent", NULL));
        const char *at = up ? jget_str(up, "id", "") : NULL;
        if (at ? !parent || strcmp(at, parent) : parent != NULL)
            continue;
        put_row(t, s, depth, now);
        put_tree(t, list, jget_str(s, "id", ""), depth + 1, now);
    }
}

static int rm_one(struct cli *x, struct args *a, const char *name, void *ctx)
{
    auto_free char *t = url("/v1/snapshots/{}", name);
    (void)a, (void)ctx;
    if (api_call(x, "DELETE", t, NULL, NULL))
        return -1;
    said(name, "removed");
    return 0;
}

static int exec_rm(struct cli *x, struct args *a) { return each_arg(x, a, rm_one, NULL); }

static int exec_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"ID", "NAME", "OF", "ISOLATION", ">MEMORY", ">DISK", ">USERS", "AGE", "EXPIRES", NULL};
    auto_free char *target = url("/v1/snapshots?limit=1000");
    url_arg(&target, "sandbox", args_str(a, "of", NULL));
    auto_json j = NULL;
    if (api_call(x, "GET", target, NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "snapshots");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    put_tree(t, list, NULL, 0, clock_wall());
    table_print(t);
    return 0;
}

/* The old spelling of snapshot ls and snapshot rm. */
static int exec_snapshots(struct cli *x, struct args *a)
{
    if (!a->n)
        return exec_ls(x, a);
    if (strcmp(a->v[0], "rm"))
        return cli_usage(x, "snapshots: unknown verb '%.40s'; see `hutch snapshot --help`",
                         a->v[0]);
    if (a->n == 1)
        return cli_usage(x, "snapshots rm: needs the name or id of a snapshot");
    struct args rest = *a;
    rest.n--, rest.v++;
    return exec_rm(x, &rest);
}

/* ---- disk use ---- */
static int exec_usage(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"TENANT", ">SNAPSHOTS", ">BYTES", ">PAUSED", ">BYTES", ">ALL", ">LIMIT", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/usage", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "tenants");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *u = json_at(list, i);
        char name[80], text[4][24];
        static const char *const bytes[] = {"snapshot_bytes", "paused_bytes", "bytes", "limit_bytes"};
        for (size_t k = 0; k < 4; k++)
            bytes_format(jget_i64(u, bytes[k], -1), text[k]);
        esc_text(str_of(jget_str(u, "tenant", "-")), name, sizeof name);
        table_cell(t, ST_PLAIN, name);
        table_cellf(t, ST_PLAIN, "%lld", (long long)jget_i64(u, "snapshots", 0));
        table_cell(t, ST_PLAIN, text[0]);
        table_cellf(t, ST_PLAIN, "%lld", (long long)jget_i64(u, "paused", 0));
        for (size_t k = 1; k < 4; k++)
            table_cell(t, ST_PLAIN, text[k]);
    }
    table_print(t);
    return 0;
}

/* ---- rollback ---- */
static int exec_rollback(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "snapshot", a->v[1]);
    if (args_flag(a, "files-only"))
        jw_kv_bool(&w, "memory", false);
    jw_end(&w);
    auto_json sb = NULL;
    if (on_sandbox(x, a->v[0], "rollback", &b, &sb))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(sb);
    return 0;
}

/* ---- fork ---- */
static int exec_fork(struct cli *x, struct args *a)
{
    int64_t n = 0, s = 0;
    if (args_int(a, "count", 1, 100, 1, &n, &x->err) || args_seconds(a, "timeout", 1, 86400, 0, &s, &x->err))
        return cli_fail(x);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_i64(&w, "count", n);
    if (s)
        jw_kv_i64(&w, "timeout_s", s);
    jw_end(&w);
    auto_json j = NULL;
    if (on_sandbox(x, a->v[0], "fork", &b, &j))
        return cli_fail(x);
    struct json *forks = json_get(j, "forks");
    int rc = 0;
    if (args_flag(a, "json"))
        json_print(j);
    for (size_t i = 0; i < json_len(forks); i++) {
        struct json *sb = json_get(json_at(forks, i), "sandbox"), *bad = json_get(json_at(forks, i), "error");
        if (sb && !args_flag(a, "json"))
            print_id(jget_str(sb, "id", ""));
        if (!bad)
            continue;
        (void)err_set(&x->err, E_INTERNAL, "%.200s", jget_str(bad, "message", "a fork failed"));
        x->hint[0] = 0;
        rc = cli_fail(x);
    }
    return rc;
}

static const struct opt fork_opts[] = {{"count", 'n', 's', "N", "how many copies (1)", NULL},
                                       {"timeout", 0, 's', "S", "lifetime of the copies: seconds, or 5m, 1h30m (default: that of the original)", NULL},
                                       OPT_JSON,
                                       OPT_END};
static const struct opt create_opts[] = {
    {"name", 'n', 's', "NAME", "a name to use instead of the id", NULL},
    {"files-only", 0, 'f', NULL, "keep the files only; sandboxes created from it boot", NULL},
    {"expires", 0, 's', "S", "delete it after S seconds (or 5m, 2d)", NULL},
    {"keep", 0, 's', "N", "afterwards keep only the newest N unnamed snapshots of this sandbox",
     NULL},
    {"path", 0, 's', "DIR", "keep only this directory", NULL},
    OPT_JSON,
    OPT_END};
static const struct opt put_opts[] = {
    {"path", 0, 's', "DIR", "where to put it (default: where it was)", NULL}, OPT_END};
static const struct opt export_opts[] = {
    {"output", 'o', 's', "FILE", "write to this file (default: standard output)", "@file"},
    OPT_END};
static const struct opt import_opts[] = {
    {"name", 'n', 's', "NAME", "another name than the file has", NULL}, OPT_JSON, OPT_END};
static const struct opt json_opts[] = {OPT_JSON, OPT_END};
static const struct opt list_opts[] = {{"of", 0, 's', "ID", "only of this sandbox", "@id"}, OPT_JSON, OPT_END};
static const struct opt back_opts[] = {{"files-only", 0, 'f', NULL, "do not restore the memory: boot from the files", NULL}, OPT_JSON, OPT_END};
#define ONE_ID .min = 1, .max = 1, .words = "@id"
const struct cmd cmd_fork = {.name = "fork", .usage = "ID [-n N]", .help = "copy a running sandbox and print the copies' ids", .opts = fork_opts, ONE_ID, .exec = exec_fork};
static const struct cmd s_create = {.name = "create", .usage = "ID [--name N] [--path DIR]", .help = "take a snapshot of a sandbox and print its id", .opts = create_opts, ONE_ID, .exec = exec_create};
static const struct cmd s_ls = {.name = "ls", .usage = "[--of ID]", .help = "list snapshots as a tree", .opts = list_opts, .exec = exec_ls};
static const struct cmd s_rm = {.name = "rm", .usage = "NAME…", .help = "delete snapshots", .min = 1, .max = -1, .words = "@snapshot", .exec = exec_rm};
static const struct cmd s_put = {.name = "put", .usage = "NAME ID [--path DIR]", .help = "put the snapshot of a directory into a sandbox", .opts = put_opts, .min = 2, .max = 2, .words = "@snapshot;@id", .exec = exec_put};
static const struct cmd s_export = {.name = "export", .usage = "NAME [-o FILE]", .help = "write a snapshot and all it needs as one signed file", .opts = export_opts, .min = 1, .max = 1, .words = "@snapshot", .exec = snapshot_export};
static const struct cmd s_import = {.name = "import", .usage = "FILE|- [--name N]", .help = "create a snapshot from such a file", .opts = import_opts, .min = 1, .max = 1, .words = "@file", .exec = snapshot_import};
static const struct cmd s_trust = {.name = "trust", .usage = "[NAME KEY]", .help = "list the keys whose files may be imported, or add one", .opts = json_opts, .max = 2, .exec = snapshot_trust};
static const struct cmd s_distrust = {.name = "distrust", .usage = "NAME", .help = "remove a trusted key", .min = 1, .max = 1, .exec = snapshot_distrust};
static const struct cmd *const subs[] = {&s_create, &s_ls, &s_rm, &s_put, &s_export, &s_import, &s_trust, &s_distrust, NULL};
const struct cmd cmd_snapshot = {.name = "snapshot", .usage = "create|ls|rm|put|export|import|trust|distrust …", .help = "take, list, delete and transfer snapshots of sandboxes", .sub = subs};
const struct cmd cmd_snapshots = {.name = "snapshots", .usage = "[rm NAME…]", .help = "the same as snapshot ls and snapshot rm", .opts = list_opts, .max = -1, .words = "rm;@snapshot", .exec = exec_snapshots};
static const struct opt usage_opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_usage = {.name = "usage", .usage = "", .help = "disk space used by snapshots and paused sandboxes, by tenant", .opts = usage_opts, .exec = exec_usage};
const struct cmd cmd_rollback = {.name = "rollback", .usage = "ID SNAPSHOT", .help = "return a running sandbox to one of its snapshots", .opts = back_opts, .min = 2, .max = 2, .words = "@id;@snapshot", .exec = exec_rollback};
