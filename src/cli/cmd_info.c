/* hutch info: one sandbox as a readable block. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

static void row(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%-12s ", name);
    esc_put(out, str_of(value && *value ? value : "-"));
    buf_putc(out, '\n');
}

static void row_time(struct buf *out, const char *name, struct json *o, const char *key, bool future)
{
    int64_t at = jget_time(o, key), now = clock_wall();
    if (!at)
        return;
    char d[24], text[96];
    dur_format(future ? (at > now ? at - now : 0) : now - at, d);
    (void)snprintf(text, sizeof text, future ? "%.40s (in %s)" : "%.40s (%s ago)", jget_str(o, key, ""), d);
    row(out, name, text);
}

static void block(struct json *sb, struct buf *out)
{
    char text[160];
    struct json *iso = json_get(sb, "isolation"), *start = json_get(sb, "start"), *end = json_get(sb, "end"), *meta = json_get(sb, "metadata");
    row(out, "id", jget_str(sb, "id", ""));
    row(out, "name", jget_str(sb, "name", ""));
    row(out, "state", jget_str(sb, "state", ""));
    (void)snprintf(text, sizeof text, "%.60s (%.60s)", jget_str(sb, "template", "-"), jget_str(sb, "template_id", "-"));
    row(out, "template", text);
    (void)snprintf(text, sizeof text, "%.20s: %.120s", jget_str(iso, "tier", "-"), jget_str(iso, "boundary", "-"));
    row(out, "isolation", text);
    if (jget_str(iso, "accel", NULL))
        row(out, "accel", jget_str(iso, "accel", ""));
    row(out, "kernel", jget_str(sb, "kernel", ""));
    (void)snprintf(text, sizeof text, "%.4g cpu, %lld MiB memory, %lld MiB disk", jget_f64(sb, "cpu", 0), (long long)jget_i64(sb, "memory_mib", 0),
                   (long long)jget_i64(sb, "disk_mib", 0));
    row(out, "limits", text);
    row(out, "network", jget_str(json_get(sb, "network"), "mode", "-"));
    row_time(out, "created", sb, "created_at", false);
    row_time(out, "started", sb, "started_at", false);
    if (start) {
        char took[24];
        ms_format(jget_f64(start, "ms", 0), took);
        (void)snprintf(text, sizeof text, "%.20s, %s", jget_str(start, "path", "-"), took);
        row(out, "start", text);
    }
    if (json_get(sb, "paused")) {
        struct json *p = json_get(sb, "paused");
        bool memory = false;
        (void)json_bool(p, "memory", false, &memory, NULL); /* an older daemon's answer lacks it */
        (void)snprintf(text, sizeof text, "%.20s, %s", jget_str(p, "kind", "-"), memory ? "with memory" : "files only");
        row(out, "paused", text);
    } else if (!end) {
        row_time(out, "expires", sb, "expires_at", true);
    }
    (void)snprintf(text, sizeof text, "%lld s, then %.20s", (long long)jget_i64(sb, "timeout_s", 0), jget_str(sb, "on_timeout", "kill"));
    row(out, "timeout", text);
    if (jget_i64(sb, "idle_timeout_s", 0)) {
        (void)snprintf(text, sizeof text, "%lld s, then %.20s", (long long)jget_i64(sb, "idle_timeout_s", 0), jget_str(sb, "on_idle", "kill"));
        row(out, "idle", text);
    }
    if (jget_i64(sb, "max_lifetime_s", 0)) {
        (void)snprintf(text, sizeof text, "%lld s at most", (long long)jget_i64(sb, "max_lifetime_s", 0));
        row(out, "lifetime", text);
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)jget_i64(sb, "generation", 0));
    row(out, "generation", text);
    for (void *it = json_first(meta); it; it = json_next(meta, it)) {
        struct str v = {"", 0}, k = json_iter_key(it);
        (void)json_to_str(json_iter_value(meta, it), &v, NULL); /* not a string: shown empty */
        buf_puts(out, "meta         ");
        esc_put(out, k);
        buf_putc(out, '=');
        esc_put(out, v);
        buf_putc(out, '\n');
    }
    if (end) {
        (void)snprintf(text, sizeof text, "%.30s: %.120s", jget_str(end, "reason", "?"), jget_str(end, "message", ""));
        row(out, "ended", text);
        row_time(out, "ended at", end, "at", false);
    }
}

static int exec_info(struct cli *x, struct args *a)
{
    for (int i = 0; i < a->n; i++) {
        auto_free char *t = url("/v1/sandboxes/{}", a->v[i]);
        auto_json sb = NULL;
        if (api_call(x, "GET", t, NULL, &sb))
            return cli_fail(x);
        auto_buf out = {0};
        if (args_flag(a, "json"))
            json_print(sb);
        else {
            if (i)
                buf_putc(&out, '\n');
            block(sb, &out);
            (void)fwrite(out.p, 1, out.n, stdout);
        }
    }
    return 0;
}
static const struct opt opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_info = {.name = "info", .usage = "ID…", .help = "show a sandbox", .opts = opts, .min = 1, .max = -1, .words = "@id", .exec = exec_info};
