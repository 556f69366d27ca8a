/* hutch top, hutch metrics: what sandboxes use. top redraws on a terminal and
 * prints one table otherwise; CPU is the share between two looks. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "cli/cmds.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct look { int64_t cpu_ns, at; };

static void add_row(struct cli *x, struct table *t, struct json *sb, struct map *before)
{
    const char *id = jget_str(sb, "id", ""), *state = jget_str(sb, "state", "?");
    auto_free char *target = url("/v1/sandboxes/{}/metrics", id);
    auto_json m = NULL;
    char tier[48], mem[24], total[24], disk[24], left[24];
    bool have = api_call(x, "GET", target, NULL, &m) == 0; /* one that just ended is shown without numbers */
    int64_t now = clock_mono(), cpu = jget_i64(m, "cpu_ns", -1), expires = jget_time(sb, "expires_at");
    struct look *l = map_get(before, id);
    double share = have && l && cpu >= l->cpu_ns && now > l->at ? 100.0 * (double)(cpu - l->cpu_ns) / (double)(now - l->at) : -1;
    if (have) {
        if (!l)
            map_set(before, id, l = xcalloc(1, sizeof *l));
        *l = (struct look){cpu, now};
    }
    sandbox_tier(sb, tier);
    bytes_format(have ? jget_i64(m, "memory_used", -1) : -1, mem);
    bytes_format(have ? jget_i64(m, "memory_total", -1) : -1, total);
    bytes_format(have ? jget_i64(m, "disk_used", -1) : -1, disk);
    dur_format(expires ? (expires > clock_wall() ? expires - clock_wall() : 0) : -1, left);
    table_cell(t, ST_PLAIN, id);
    table_cell(t, ST_PLAIN, jget_str(sb, "name", ""));
    table_cell(t, ST_PLAIN, tier);
    table_cell(t, state_style(state), state);
    if (share >= 0)
        table_cellf(t, ST_PLAIN, "%.1f", share);
    else
        table_cell(t, ST_PLAIN, NULL);
    table_cellf(t, ST_PLAIN, "%s / %s", mem, total);
    table_cell(t, ST_PLAIN, disk);
    table_cellf(t, ST_PLAIN, "%lld", (long long)jget_i64(m, "processes", 0));
    table_cell(t, ST_PLAIN, left);
}

static int look_once(struct cli *x, struct map *before, bool live, int64_t every_s)
{
    static const char *const heads[] = {"ID", "NAME", "ISOLATION", "STATE", ">CPU%", ">MEMORY", ">DISK", ">PROCS", "EXPIRES", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/sandboxes?limit=100", NULL, &j))
        return -1;
    struct json *list = json_get(j, "sandboxes");
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++)
        add_row(x, t, json_at(list, i), before);
    auto_buf out = {0};
    if (live)
        buf_printf(&out, "\033[H\033[2J%zu sandboxes, every %lld s, ^C quits\n\n", json_len(list), (long long)every_s);
    table_render(t, out_colour(stdout), &out);
    table_free(t);
    (void)fwrite(out.p, 1, out.n, stdout);
    (void)fflush(stdout);
    return 0;
}

static int look_json(struct cli *x)
{
    auto_json j = NULL;
    auto_buf out = {0};
    struct jw w;
    if (api_call(x, "GET", "/v1/sandboxes?limit=100", NULL, &j))
        return -1;
    struct json *list = json_get(j, "sandboxes");
    jw_init(&w, &out);
    jw_arr(&w);
    for (size_t i = 0; i < json_len(list); i++) {
        auto_free char *t = url("/v1/sandboxes/{}/metrics", jget_str(json_at(list, i), "id", ""));
        auto_buf sb = {0}, text = {0};
        auto_json m = NULL;
        json_dump(json_at(list, i), &sb);
        if (api_call(x, "GET", t, NULL, &m) == 0 && m)
            json_dump(m, &text);
        jw_obj(&w);
        jw_kv_raw(&w, "sandbox", (struct str){sb.p, sb.n});
        jw_kv_raw(&w, "metrics", text.n ? (struct str){text.p, text.n} : S("null"));
        jw_end(&w);
    }
    jw_end(&w);
    (void)printf("%s\n", out.p);
    return 0;
}

static int exec_top(struct cli *x, struct args *a)
{
    if (args_flag(a, "json"))
        return look_json(x) ? cli_fail(x) : 0;
    int64_t every = 0;
    if (args_seconds(a, "interval", 1, 3600, 2, &every, &x->err))
        return cli_fail(x);
    bool live = isatty(STDOUT_FILENO) && !args_flag(a, "once");
    struct map before = {0};
    auto_fd sigfd = live ? signals_open() : -1;
    int rc;
    while ((rc = look_once(x, &before, live, every)) == 0 && live) {
        struct pollfd p = {.fd = sigfd, .events = POLLIN};
        if (poll(&p, 1, (int)every * 1000) != 0)
            break;
    }
    size_t i = 0;
    for (struct map_entry *e; (e = map_next(&before, &i));)
        free(e->value);
    map_free(&before);
    return rc ? cli_fail(x) : 0;
}

static int exec_metrics(struct cli *x, struct args *a)
{
    static const char *const keys[] = {"cpu_ns", "cpu_count", "memory_used", "memory_cache", "memory_total", "disk_used", "disk_total", "processes"};
    auto_free char *t = url("/v1/sandboxes/{}/metrics", a->v[0]);
    auto_json m = NULL;
    if (api_call(x, "GET", t, NULL, &m))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(m);
        return 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t v = jget_i64(m, keys[i], -1);
        char text[24];
        if (i >= 2 && i <= 6)
            bytes_format(v, text);
        else if (i == 0)
            (void)snprintf(text, sizeof text, "%.3f s", (double)v / (double)NS_PER_S);
        else
            (void)snprintf(text, sizeof text, "%lld", (long long)v);
        (void)printf("%-14s %s\n", i == 0 ? "cpu_time" : keys[i], text);
    }
    return 0;
}

static const struct opt top_opts[] = {{"interval", 'i', 's', "S", "seconds between updates (2)", NULL}, {"once", '1', 'f', NULL, "print one table and exit", NULL}, OPT_JSON, OPT_END};
static const struct opt json_opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_top = {.name = "top", .usage = "[options]", .help = "show what sandboxes use, live", .opts = top_opts, .exec = exec_top};
const struct cmd cmd_metrics = {.name = "metrics", .usage = "ID", .help = "show what one sandbox uses", .opts = json_opts, .min = 1, .max = 1, .words = "@id", .exec = exec_metrics};
