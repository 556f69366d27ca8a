/* hutch key create|ls|revoke. A new key is printed once, alone, on stdout. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int exec_create(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "name", a->n ? a->v[0] : "cli");
    jw_end(&w);
    auto_json j = NULL;
    if (api_call(x, "POST", "/v1/keys", &b, &j))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(j);
        return 0;
    }
    char key[128];
    esc_text(str_of(jget_str(j, "key", "")), key, sizeof key);
    (void)printf("%s\n", key);
    (void)fprintf(stderr, "hutch: store it now: the key is not shown again\n");
    return 0;
}

static int exec_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"ID", "NAME", "PREFIX", "CREATED", "LAST USED", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/keys", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "keys");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++) {
        static const char *const cols[] = {"id", "name", "prefix", "created_at", "last_used_at"};
        for (size_t c = 0; c < 5; c++)
            table_cell(t, ST_PLAIN, jget_str(json_at(list, i), cols[c], ""));
    }
    table_print(t);
    return 0;
}

static int exec_revoke(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) {
        auto_free char *t = url("/v1/keys/{}", a->v[i]);
        if (api_call(x, "DELETE", t, NULL, NULL))
            rc = cli_fail(x);
    }
    return rc;
}

static const struct opt json_opts[] = {OPT_JSON, OPT_END};
static const struct cmd key_create = {.name = "create", .usage = "[NAME]", .help = "create a key and print it once", .opts = json_opts, .max = 1, .exec = exec_create};
static const struct cmd key_ls = {.name = "ls", .usage = "", .help = "list keys", .opts = json_opts, .exec = exec_ls};
static const struct cmd key_revoke = {.name = "revoke", .usage = "ID…", .help = "revoke keys", .min = 1, .max = -1, .words = "@key", .exec = exec_revoke};
static const struct cmd *const subs[] = {&key_create, &key_ls, &key_revoke, NULL};
const struct cmd cmd_key = {.name = "key", .usage = "create|ls|revoke", .help = "API keys", .sub = subs};
