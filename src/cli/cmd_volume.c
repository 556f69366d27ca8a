/* hutch volume create|ls|rm. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int exec_create(struct cli *x, struct args *a)
{
    int64_t size, inodes;
    if (args_int(a, "size", 1, UINT32_MAX, 0, &size, &x->err) || args_int(a, "inodes", 1, UINT32_MAX, 0, &inodes, &x->err))
        return cli_fail(x);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "name", a->v[0]);
    if (size)
        jw_kv_i64(&w, "size_mib", size);
    if (inodes)
        jw_kv_i64(&w, "inodes", inodes);
    jw_end(&w);
    auto_json j = NULL;
    if (api_call(x, "POST", "/v1/volumes", &b, &j))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(j);
        return 0;
    }
    char name[128];
    esc_text(str_of(jget_str(j, "name", "")), name, sizeof name);
    (void)printf("%s\n", name);
    return 0;
}

static void put_row(struct table *t, struct json *v)
{
    struct json *users = json_get(v, "attached");
    char size[24], first[48];
    bytes_format(jget_i64(v, "size_mib", 0) << 20, size);
    table_cell(t, ST_PLAIN, jget_str(v, "name", ""));
    table_cell(t, ST_DIM, jget_str(v, "id", ""));
    table_cell(t, ST_PLAIN, size);
    table_cell(t, ST_PLAIN, jget_str(v, "created_at", ""));
    esc_text(str_of(jget_str(json_at(users, 0), "sandbox", "")), first, sizeof first);
    if (json_len(users) > 1)
        table_cellf(t, ST_PLAIN, "%s and %zu more", first, json_len(users) - 1);
    else
        table_cell(t, ST_PLAIN, first);
}

static int exec_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"NAME", "ID", ">SIZE", "CREATED", "ATTACHED TO", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/volumes", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "volumes");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++)
        put_row(t, json_at(list, i));
    table_print(t);
    return 0;
}

static int exec_rm(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) {
        auto_free char *t = url("/v1/volumes/{}", a->v[i]);
        if (api_call(x, "DELETE", t, NULL, NULL))
            rc = cli_fail(x);
    }
    return rc;
}

static const struct opt create_opts[] = {
    {"size", 0, 's', "MIB", "capacity in MiB (10240)", NULL},
    {"inodes", 0, 's', "N", "maximum number of files (one per 16 KiB)", NULL},
    OPT_JSON,
    OPT_END,
};
static const struct opt json_opts[] = {OPT_JSON, OPT_END};
static const struct cmd v_create = {.name = "create", .usage = "NAME", .help = "create a volume", .opts = create_opts, .min = 1, .max = 1, .exec = exec_create};
static const struct cmd v_ls = {.name = "ls", .usage = "", .help = "list volumes", .opts = json_opts, .exec = exec_ls};
static const struct cmd v_rm = {.name = "rm", .usage = "NAME…", .help = "delete volumes that no sandbox uses", .min = 1, .max = -1, .words = "@volume", .exec = exec_rm};
static const struct cmd *const subs[] = {&v_create, &v_ls, &v_rm, NULL};
const struct cmd cmd_volume = {.name = "volume", .usage = "create|ls|rm", .help = "manage storage that outlives sandboxes", .sub = subs};
