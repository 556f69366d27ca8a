/* hutch ls: follows the pages of the API; with --json one array of sandboxes. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

static void add_row(struct table *t, struct json *sb, int64_t now)
{
    char tier[48], age[24], left[24];
    int64_t created = jget_time(sb, "created_at"), expires = jget_time(sb, "expires_at");
    const char *state = jget_str(sb, "state", "?");
    bool over = !strcmp(state, "gone") || !strcmp(state, "failed");
    sandbox_tier(sb, tier);
    dur_format(created ? now - created : -1, age);
    dur_format(expires && !over ? (expires > now ? expires - now : 0) : -1, left);
    table_cell(t, ST_PLAIN, jget_str(sb, "id", ""));
    table_cell(t, ST_PLAIN, jget_str(sb, "name", ""));
    table_cell(t, ST_PLAIN, jget_str(sb, "template", ""));
    table_cell(t, ST_PLAIN, tier);
    table_cell(t, state_style(state), state);
    table_cell(t, ST_PLAIN, age);
    table_cell(t, ST_PLAIN, left);
}

static char *first_page(struct args *a)
{
    char *t = url("/v1/sandboxes?limit=100");
    url_arg(&t, "state", args_flag(a, "all") ? "creating,running,pausing,paused,stopping,gone,failed" : args_str(a, "state", NULL));
    url_arg(&t, "template", args_str(a, "template", NULL));
    int i = 0;
    const char *kv;
    while ((kv = args_list(a, "meta", &i))) {
        const char *eq = strchr(kv, '=');
        auto_free char *key = xasprintf("meta.%.*s", (int)(eq ? eq - kv : (ptrdiff_t)strlen(kv)), kv);
        url_arg(&t, key, eq ? eq + 1 : "");
    }
    return t;
}

static int exec_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"ID", "NAME", "TEMPLATE", "ISOLATION", "STATE", "AGE", "EXPIRES", NULL};
    bool quiet = args_flag(a, "quiet"), as_json = args_flag(a, "json"), first = true;
    auto_free char *base = first_page(a), *cursor = NULL;
    struct table *t = table_new(heads);
    int64_t now = clock_wall();
    auto_buf out = {0};
    do {
        auto_free char *target = xstrdup(base);
        url_arg(&target, "cursor", cursor);
        auto_json page = NULL;
        if (api_call(x, "GET", target, NULL, &page)) {
            table_free(t);
            return cli_fail(x);
        }
        struct json *list = json_get(page, "sandboxes");
        for (size_t i = 0; i < json_len(list); i++) {
            struct json *sb = json_at(list, i);
            if (as_json) {
                buf_putc(&out, first ? '[' : ',');
                json_dump(sb, &out);
            } else if (quiet) {
                esc_put(&out, str_of(jget_str(sb, "id", "")));
                buf_putc(&out, '\n');
            } else
                add_row(t, sb, now);
            first = false;
        }
        const char *next = jget_str(page, "next", NULL);
        free(cursor);
        cursor = next && json_len(list) ? xstrdup(next) : NULL;
    } while (cursor);
    if (as_json)
        buf_puts(&out, first ? "[]\n" : "]\n");
    if (as_json || quiet) {
        table_free(t);
        (void)fwrite(out.p ? out.p : "", 1, out.n, stdout);
    } else
        table_print(t);
    return 0;
}

static const struct opt opts[] = {
    {"all", 'a', 'f', NULL, "also sandboxes that have ended", NULL},
    {"state", 's', 's', "STATE,…", "only these states",
     "creating running paused stopping gone failed"},
    {"template", 't', 's', "NAME", "only sandboxes of this template", "@template"},
    {"meta", 0, 'l', "K=V", "only with this metadata; may be repeated", NULL},
    {"quiet", 'q', 'f', NULL, "ids only", NULL},
    OPT_JSON,
    OPT_END};
const struct cmd cmd_ls = {.name = "ls", .usage = "[options]", .help = "list sandboxes", .opts = opts, .exec = exec_ls};
