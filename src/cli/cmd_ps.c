/* hutch ps, hutch logs: what happens in a sandbox. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include "cli/stream.h"
#include <stdio.h>
#include <string.h>

static void command_line(struct json *cmd, struct buf *out)
{
    for (size_t i = 0; i < json_len(cmd); i++) {
        struct str s = {"", 0};
        (void)json_to_str(json_at(cmd, i), &s, NULL);
        if (i)
            buf_putc(out, ' ');
        buf_put(out, s.p, s.n);
    }
}

static int exec_ps(struct cli *x, struct args *a)
{
    static const char *const heads[] = {">PID", "USER", "AGE", ">OUTPUT", "STATUS", "TAG", "COMMAND", NULL};
    auto_free char *t = url("/v1/sandboxes/{}/processes", a->v[0]);
    auto_json j = NULL;
    if (api_call(x, "GET", t, NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "processes");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *tab = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *p = json_at(list, i);
        int64_t started = jget_time(p, "started_at");
        char age[24], bytes[24];
        auto_buf cmd = {0};
        dur_format(started ? clock_wall() - started : -1, age);
        bytes_format(jget_i64(p, "output_bytes", -1), bytes);
        command_line(json_get(p, "cmd"), &cmd);
        table_cellf(tab, ST_PLAIN, "%lld", (long long)jget_i64(p, "pid", 0));
        table_cell(tab, ST_PLAIN, jget_str(p, "user", ""));
        table_cell(tab, ST_PLAIN, age);
        table_cell(tab, ST_PLAIN, bytes);
        if (jget_bool(p, "running", false))
            table_cell(tab, ST_GOOD, "running");
        else
            table_cellf(tab, ST_DIM, "exit %d", exit_status(json_get(p, "exit"), true));
        table_cell(tab, ST_PLAIN, jget_str(p, "tag", ""));
        table_cell(tab, ST_PLAIN, cmd.p);
    }
    table_print(tab);
    return 0;
}

/* Escaped by the daemon, and here again: the sandbox chose it. */
static int show_console(struct cli *x, struct args *a)
{
    auto_free char *t = url("/v1/sandboxes/{}/console", a->v[0]);
    auto_json j = NULL;
    if (api_call(x, "GET", t, NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "lines");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    auto_buf out = {0};
    for (size_t i = 0; i < json_len(list); i++) {
        struct str line = {0};
        (void)json_to_str(json_at(list, i), &line, NULL);
        esc_put(&out, line);
        buf_putc(&out, '\n');
    }
    (void)fwrite(out.p ? out.p : "", 1, out.n, stdout);
    return 0;
}

static int exec_logs(struct cli *x, struct args *a)
{
    if (args_flag(a, "console"))
        return show_console(x, a);
    int64_t limit = 0;
    if (args_int(a, "limit", 1, 100000, 200, &limit, &x->err))
        return cli_fail(x);
    char num[24];
    (void)snprintf(num, sizeof num, "%lld", (long long)limit);
    auto_free char *t = url("/v1/sandboxes/{}/logs?limit={}", a->v[0], num);
    auto_json j = NULL;
    if (api_call(x, "GET", t, NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "entries");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    auto_buf out = {0};
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *l = json_at(list, i);
        esc_put(&out, str_of(jget_str(l, "at", "-")));
        buf_putc(&out, ' ');
        esc_put(&out, str_of(jget_str(l, "level", "-")));
        buf_putc(&out, ' ');
        esc_put(&out, str_of(jget_str(l, "message", "")));
        buf_putc(&out, '\n');
    }
    (void)fwrite(out.p ? out.p : "", 1, out.n, stdout);
    return 0;
}

static const struct opt ps_opts[] = {OPT_JSON, OPT_END};
static const struct opt logs_opts[] = {{"limit", 'n', 's', "N", "the last N entries (200)", NULL}, {"console", 0, 'f', NULL, "show the last console output of a microVM", NULL}, OPT_JSON, OPT_END};
const struct cmd cmd_ps = {.name = "ps", .usage = "ID", .help = "list the processes started in a sandbox", .opts = ps_opts, .min = 1, .max = 1, .words = "@id", .exec = exec_ps};
const struct cmd cmd_logs = {.name = "logs", .usage = "ID", .help = "show the lifecycle events of a sandbox", .opts = logs_opts, .min = 1, .max = 1, .words = "@id", .exec = exec_logs};
