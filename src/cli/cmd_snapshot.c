/* hutch snapshot, snapshots, fork, rollback: keep the state of a sandbox, copy it, go back to it. As a file: cmd_pack.c. */
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
static int take(struct cli *x, struct args *a, const char *id)
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
    if (on_sandbox(x, id, "snapshots", &b, &s))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(s);
    else
        print_id(jget_str(s, "id", ""));
    return 0;
}

static int put(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "snapshot", a->v[1]);
    if (args_str(a, "path", NULL))
        jw_kv_str(&w, "path", args_str(a, "path", NULL));
    jw_end(&w);
    return on_sandbox(x, a->v[2], "restore", &b, NULL) ? cli_fail(x) : 0;
}

static int exec_snapshot(struct cli *x, struct args *a)
{
    static const struct { const char *name; int min, max; int (*fn)(struct cli *x, struct args *a); } verb[] = {
        {"create", 1, 1, NULL}, {"put", 2, 2, put}, {"export", 1, 1, snapshot_export}, {"import", 1, 1, snapshot_import}, {"trust", 0, 2, snapshot_trust}, {"distrust", 1, 1, snapshot_distrust}};
    for (size_t i = 0; i < sizeof verb / sizeof *verb; i++) {
        if (strcmp(a->v[0], verb[i].name))
            continue;
        if (a->n - 1 < verb[i].min || a->n - 1 > verb[i].max)
            return cli_usage(x, "snapshot %s: see `hutch snapshot --help`", verb[i].name);
        return verb[i].fn ? verb[i].fn(x, a) : take(x, a, a->v[1]);
    }
    return a->n == 1 ? take(x, a, a->v[0]) : cli_usage(x, "snapshot: '%.40s' is not create, put, export, import, trust or distrust", a->v[0]);
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

static int remove_all(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 1; i < a->n; i++) {
        auto_free char *t = url("/v1/snapshots/{}", a->v[i]);
        x->hint[0] = 0;
        if (api_call(x, "DELETE", t, NULL, NULL))
            rc = cli_fail(x);
    }
    return rc;
}

static int exec_snapshots(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"ID", "NAME", "OF", "ISOLATION", ">MEMORY", ">DISK", ">USERS", "AGE", "EXPIRES", NULL};
    if (a->n && strcmp(a->v[0], "rm"))
        return cli_usage(x, "snapshots: '%.40s' is not rm", a->v[0]);
    if (a->n)
        return a->n > 1 ? remove_all(x, a) : cli_usage(x, "snapshots rm: which?");
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

/* ---- what is held ---- */
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
        (void)err_set(&x->err, E_INTERNAL, "%.200s", jget_str(bad, "message", "a copy failed"));
        x->hint[0] = 0;
        rc = cli_fail(x);
    }
    return rc;
}

static const struct opt fork_opts[] = {{"count", 'n', 's', "N", "how many (1)", NULL},
                                       {"timeout", 0, 's', "S", "let them live S seconds (or 5m, 1h30m); as it was created with otherwise", NULL},
                                       OPT_JSON,
                                       OPT_END};
static const struct opt snap_opts[] = {{"name", 'n', 's', "NAME", "a name for it", NULL},
                                       {"files-only", 0, 'f', NULL, "keep its files only; what is made of it boots", NULL},
                                       {"expires", 0, 's', "S", "delete it after S seconds (or 5m, 2d)", NULL},
                                       {"keep", 0, 's', "N", "afterwards keep only the newest N nameless ones of this sandbox", NULL},
                                       {"path", 0, 's', "DIR", "of one directory alone; put: where it goes (where it lay)", NULL},
                                       {"output", 'o', 's', "FILE", "export: where the pack goes (standard output)", "@file"},
                                       OPT_JSON,
                                       OPT_END};
static const struct opt list_opts[] = {{"of", 0, 's', "ID", "only of this sandbox", "@id"}, OPT_JSON, OPT_END};
static const struct opt back_opts[] = {{"files-only", 0, 'f', NULL, "leave the snapshot's memory out: it boots on the files", NULL}, OPT_JSON, OPT_END};
#define ONE_ID .min = 1, .max = 1, .words = "@id"
const struct cmd cmd_fork = {.name = "fork", .usage = "ID [-n N]", .help = "copy a running sandbox and print the copies' ids", .opts = fork_opts, ONE_ID, .exec = exec_fork};
const struct cmd cmd_snapshot = {.name = "snapshot", .usage = "[create] ID [--name N] [--path DIR] | put NAME ID [--path DIR] | export NAME [-o FILE] | import FILE [--name N] | trust [NAME KEY] | distrust NAME",
                                 .help = "keep the state of a sandbox; carry it to another hutch as a signed file", .opts = snap_opts, .min = 1, .max = 3, .words = "@id", .exec = exec_snapshot};
const struct cmd cmd_snapshots = {.name = "snapshots", .usage = "[rm NAME…]", .help = "list snapshots as a tree; rm deletes some", .opts = list_opts, .max = -1, .exec = exec_snapshots};
static const struct opt usage_opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_usage = {.name = "usage", .usage = "", .help = "what snapshots and paused sandboxes take on disk, by tenant", .opts = usage_opts, .exec = exec_usage};
const struct cmd cmd_rollback = {.name = "rollback", .usage = "ID SNAPSHOT", .help = "make a running sandbox what it was in one of its snapshots", .opts = back_opts, .min = 2, .max = 2, .words = "@id", .exec = exec_rollback};
