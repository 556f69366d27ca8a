/* hutch key create|ls|revoke. A new key is printed once, alone, on stdout. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

/* ---- --scope WHAT=VALUE, as often as wanted ---- */
static const char *scope_value(const char *text, const char *what)
{
    size_t n = strlen(what);
    return !strncmp(text, what, n) && text[n] == '=' && text[n + 1] ? text + n + 1 : NULL;
}

static void put_list(struct jw *w, const struct args *a, const char *key, const char *what)
{
    const char *text, *v;
    bool any = false;
    for (int i = 0; (text = args_list(a, "scope", &i));) {
        if (!(v = scope_value(text, what)))
            continue;
        if (!any)
            jw_kv_arr(w, key);
        any = true;
        jw_strz(w, v);
    }
    if (any)
        jw_end(w);
}

/* One word of a scope that is neither a list nor unknown. -1: a usage error is said. */
static int put_one(struct cli *x, struct jw *w, const char *text)
{
    static const struct {
        const char *what, *member;
    } sizes[] = {{"memory", "memory_mib"}, {"disk", "disk_mib"}, {"cpu", "cpu_millis"}};
    const char *v;
    if (!strcmp(text, "keys")) {
        jw_kv_bool(w, "keys", true);
        return 0;
    }
    if (scope_value(text, "template") || scope_value(text, "isolation"))
        return 0; /* put_list */
    if ((v = scope_value(text, "network"))) {
        auto_json j = json_parse_obj(v, strlen(v), &x->err);
        if (!j)
            return cli_usage(x, "--scope network: %s", x->err.msg);
        jw_key(w, "network");
        jw_json(w, j);
        return 0;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n;
        if (!(v = scope_value(text, sizes[i].what)))
            continue;
        if (!str_u64(str_of(v), &n) || !n)
            return cli_usage(x, "--scope %s: must be a whole number%s", sizes[i].what,
                             i == 2 ? " of thousandths of a core" : " of MiB");
        jw_kv_u64(w, sizes[i].member, n);
        return 0;
    }
    return cli_usage(
        x,
        "--scope %s: use template=NAME, isolation=TIER, network=JSON, cpu=MILLIS, memory=MIB, disk=MIB or keys",
        text);
}

static int put_scope(struct cli *x, struct jw *w, const struct args *a)
{
    const char *text;
    int first = 0, rc = 0;
    if (!args_list(a, "scope", &first))
        return 0;
    jw_kv_obj(w, "scope");
    put_list(w, a, "templates", "template");
    put_list(w, a, "isolation", "isolation");
    for (int i = 0; !rc && (text = args_list(a, "scope", &i));)
        rc = put_one(x, w, text);
    jw_end(w);
    return rc;
}

static int exec_create(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    int64_t expires;
    const char *name = args_str(a, "name", a->n ? a->v[0] : "cli");
    if (args_seconds(a, "expires", 1, INT32_MAX, 0, &expires, &x->err))
        return cli_fail(x);
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "name", name);
    if (args_str(a, "tenant", NULL))
        jw_kv_str(&w, "tenant", args_str(a, "tenant", NULL));
    if (args_str(a, "role", NULL))
        jw_kv_str(&w, "role", args_str(a, "role", NULL));
    if (expires)
        jw_kv_i64(&w, "expires_s", expires);
    int rc = put_scope(x, &w, a);
    if (rc)
        return rc;
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
    static const char *const heads[] = {"ID",      "NAME",    "TENANT",    "ROLE", "PREFIX",
                                        "CREATED", "EXPIRES", "LAST USED", NULL};
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
        static const char *const cols[] = {"id",     "name",       "tenant",     "role",
                                           "prefix", "created_at", "expires_at", "last_used_at"};
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++)
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
static const struct opt create_opts[] = {
    {"name", 0, 's', "NAME", "its name (default: cli)", NULL},
    {"tenant", 0, 's', "TENANT", "whose things it sees and makes (default: the name)", NULL},
    {"role", 0, 's', "ROLE", "admin, operator, member, viewer or metrics (default: member)",
     "admin operator member viewer metrics"},
    {"expires", 0, 's', "DURATION", "it stops working after this, such as 12h or 30d", NULL},
    {"scope", 0, 's', "WHAT",
     "take from what the role may: template=NAME, isolation=TIER, network=JSON, cpu=MILLIS, memory=MIB, disk=MIB; or add: keys",
     "template= isolation= network= cpu= memory= disk= keys"},
    OPT_JSON,
    OPT_END};
static const struct cmd key_create = {.name = "create",
                                      .usage = "[NAME]",
                                      .help = "create a key and print it once",
                                      .opts = create_opts,
                                      .max = 1,
                                      .exec = exec_create};
static const struct cmd key_ls = {.name = "ls", .usage = "", .help = "list keys", .opts = json_opts, .exec = exec_ls};
static const struct cmd key_revoke = {.name = "revoke", .usage = "NAME|ID…", .help = "revoke keys", .min = 1, .max = -1, .words = "@key", .exec = exec_revoke};
static const struct cmd *const subs[] = {&key_create, &key_ls, &key_revoke, NULL};
const struct cmd cmd_key = {.name = "key", .usage = "create|ls|revoke", .help = "API keys", .sub = subs};
