/* hutch net, egress, url, secret: what a sandbox may reach, what it did, how to reach it. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY_MAX (64u << 10)
#define SECRET_MAX 8192u

/* ---- net ---- */
int json_network(struct cli *x, struct jw *w, const char *s)
{
    bool allow = !strncmp(s, "allow=", 6);
    if (!allow && strcmp(s, "none") != 0 && strcmp(s, "open") != 0)
        return err_set(&x->err, E_INVALID, "network: must be none, open or allow=host,… (presets as @pip)");
    jw_obj(w);
    jw_kv_str(w, "mode", allow ? "allow" : s);
    for (int presets = 0; allow && presets < 2; presets++) {
        auto_free char *list = xstrdup(s + 6);
        char *rest = list, *one;
        jw_kv_arr(w, presets ? "presets" : "allow");
        while ((one = strsep(&rest, ",")))
            if (*one && (*one == '@') == presets)
                jw_strz(w, one + presets);
        jw_end(w);
    }
    jw_end(w);
    return 0;
}

static char *read_file(struct cli *x, const char *path)
{
    bool in = !strcmp(path, "-");
    auto_fd fd = in ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd < 0 ? NULL : fd_slurp(fd, POLICY_MAX, NULL);
    if (!text)
        err_sys(&x->err, errno, "%.200s", path);
    return text;
}

static int policy_body(struct cli *x, struct args *a, struct buf *out)
{
    const char *file = args_str(a, "policy", NULL);
    struct jw w;
    if (file) {
        auto_free char *text = read_file(x, file);
        if (!text)
            return -1;
        buf_puts(out, text);
        return 0;
    }
    jw_init(&w, out);
    return json_network(x, &w, a->v[1]);
}

static void show_rule(struct buf *b, struct json *v)
{
    struct str s;
    if (json_kind(v) == JSON_STR && !json_to_str(v, &s, NULL))
        buf_put(b, s.p, s.n);
    else
        json_dump(v, b);
}

static void show_list(struct json *net, const char *key)
{
    struct json *list = json_get(net, key);
    for (size_t i = 0; i < json_len(list); i++) {
        auto_buf raw = {0}, safe = {0};
        show_rule(&raw, json_at(list, i));
        esc_put(&safe, (struct str){raw.p, raw.n});
        (void)printf("%-8s %s\n", key, safe.p);
    }
}

static void show_network(struct json *net)
{
    char mode[32], limited[256];
    static const char *const lists[] = {"allow", "deny", "presets", "inject"};
    esc_text(str_of(jget_str(net, "mode", "none")), mode, sizeof mode);
    (void)printf("mode     %s\n", mode);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        show_list(net, lists[i]);
    if (jget_str(net, "limited", NULL)) {
        esc_text(str_of(jget_str(net, "limited", "")), limited, sizeof limited);
        (void)printf("limited  %s\n", limited);
    }
}

static int exec_net(struct cli *x, struct args *a)
{
    auto_free char *t = url("/v1/sandboxes/{}/network", a->v[0]);
    auto_json j = NULL;
    auto_buf b = {0};
    bool set = a->n > 1 || args_str(a, "policy", NULL);
    if (a->n > 1 && args_str(a, "policy", NULL))
        return cli_usage(x, "net: give rules or --policy, not both");
    if (set && policy_body(x, a, &b))
        return cli_fail(x);
    if (api_call(x, set ? "PUT" : "GET", t, set ? &b : NULL, &j))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(j);
        return 0;
    }
    show_network(set ? json_get(j, "network") : j);
    int64_t cut = set ? jget_i64(j, "cut", 0) : 0;
    if (cut)
        (void)fprintf(stderr, "hutch: closed %lld open connection%s\n", (long long)cut, cut == 1 ? "" : "s");
    return 0;
}

/* ---- egress ---- */
static void put_where(struct table *t, struct json *r)
{
    const char *name = jget_str(r, "name", NULL), *addr = jget_str(r, "addr", NULL), *type = jget_str(r, "type", ""), *kind = jget_str(r, "kind", "");
    int64_t port = jget_i64(r, "port", 0);
    auto_buf b = {0};
    if (name)
        buf_puts(&b, name);
    if (!strcmp(kind, "dns"))
        buf_printf(&b, " %s%s%s", type, addr ? " = " : "", addr ? addr : "");
    else if (addr && name)
        buf_printf(&b, " (%s)", addr);
    else if (addr)
        buf_puts(&b, addr);
    if (port)
        buf_printf(&b, ":%lld", (long long)port);
    if (jget_str(r, "method", NULL))
        buf_printf(&b, " %s %s", jget_str(r, "method", ""), jget_str(r, "path", ""));
    table_cell(t, ST_PLAIN, b.p);
}

static void put_record(struct table *t, struct json *r)
{
    const char *verdict = jget_str(r, "verdict", ""), *reason = jget_str(r, "reason", NULL);
    char in[24], out[24];
    bool over = !strcmp(jget_str(r, "kind", ""), "close") || !strcmp(jget_str(r, "kind", ""), "cut");
    bytes_format(over ? jget_i64(r, "in", 0) : -1, in);
    bytes_format(over ? jget_i64(r, "out", 0) : -1, out);
    table_cell(t, ST_DIM, jget_str(r, "time", ""));
    table_cell(t, ST_PLAIN, jget_str(r, "kind", ""));
    put_where(t, r);
    table_cell(t, !strcmp(verdict, "deny") ? ST_BAD : ST_GOOD, verdict);
    table_cell(t, ST_PLAIN, in);
    table_cell(t, ST_PLAIN, out);
    table_cell(t, ST_PLAIN, reason && *reason ? reason : jget_str(r, "rule", ""));
}

static int exec_egress(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"TIME", "KIND", "WHERE", "VERDICT", ">RECEIVED", ">SENT", "REASON", NULL};
    auto_free char *base = url("/v1/sandboxes/{}/egress", a->v[0]);
    auto_free char *cursor = xstrdup("");
    const char *name = args_str(a, "name", NULL);
    bool json = args_flag(a, "json"), verify = args_flag(a, "verify");
    struct table *t = table_new(heads);
    int64_t verified = 0;
    int rc = 0;
    do {
        auto_free char *n = name ? url("&name={}", name) : xstrdup("");
        auto_free char *target = xasprintf("%s?limit=1000%s%s%s%s%s", base, args_flag(a, "denied") ? "&verdict=deny" : "", n, verify ? "&verify=1" : "",
                                           *cursor ? "&cursor=" : "", cursor);
        auto_json j = NULL;
        if (api_call(x, "GET", target, NULL, &j)) {
            rc = cli_fail(x);
            break;
        }
        struct json *list = json_get(j, "records");
        for (size_t i = 0; i < json_len(list); i++)
            if (json)
                json_print(json_at(list, i));
            else
                put_record(t, json_at(list, i));
        if (verify)
            verified = jget_i64(j, "verified", 0);
        verify = false; /* once says it of all */
        free(cursor);
        cursor = xstrdup(jget_str(j, "next", ""));
    } while (*cursor);
    if (json || rc)
        table_free(t);
    else
        table_print(t);
    if (!rc && args_flag(a, "verify"))
        (void)fprintf(stderr, "hutch: %lld lines, none changed or removed\n", (long long)verified);
    return rc;
}

/* ---- url ---- */
static int exec_url(struct cli *x, struct args *a)
{
    uint64_t port;
    auto_json j = NULL;
    char text[320];
    if (!str_u64(str_of(a->v[1]), &port) || port < 1 || port > 65535)
        return cli_usage(x, "url: the port must be from 1 to 65535");
    auto_free char *t = url("/v1/sandboxes/{}/url?port={}", a->v[0], a->v[1]);
    if (api_call(x, "GET", t, NULL, &j))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(j);
        return 0;
    }
    esc_text(str_of(jget_str(j, "url", "")), text, sizeof text);
    (void)printf("%s\n", text);
    if (jget_str(j, "token", NULL)) {
        esc_text(str_of(jget_str(j, "token", "")), text, sizeof text);
        (void)fprintf(stderr, "hutch: send the header %s: %s\n", jget_str(j, "header", ""), text);
    }
    return 0;
}

/* ---- secrets: the value comes on standard input, so that it is in no history and no process list ---- */
static int exec_secret_set(struct cli *x, struct args *a)
{
    int64_t calls = 0, bytes = 0;
    auto_buf b = {0};
    auto_json j = NULL;
    struct jw w;
    if (args_int(a, "calls", 0, INT64_MAX, 0, &calls, &x->err) || args_int(a, "bytes", 0, INT64_MAX, 0, &bytes, &x->err))
        return cli_fail(x);
    if (isatty(0))
        (void)fprintf(stderr, "hutch: type the value, then end of file (^D)\n");
    auto_free char *value = fd_slurp(0, SECRET_MAX + 1, NULL);
    if (!value) {
        err_sys(&x->err, errno, "standard input");
        return cli_fail(x);
    }
    value[strcspn(value, "\r\n")] = 0;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "value", value);
    jw_kv_i64(&w, "calls_max", calls);
    jw_kv_i64(&w, "bytes_max", bytes);
    jw_end(&w);
    auto_free char *t = url("/v1/secrets/{}", a->v[0]);
    int rc = api_call(x, "PUT", t, &b, &j);
    explicit_bzero(value, strlen(value));
    explicit_bzero(b.p, b.n);
    if (rc)
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(j);
    return 0;
}

static int exec_secret_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"NAME", "UPDATED", ">CALLS", ">OF", ">BYTES", ">OF", NULL};
    static const char *const numbers[] = {"calls", "calls_max", "bytes", "bytes_max"};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/secrets", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "secrets");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *s = json_at(list, i);
        table_cell(t, ST_PLAIN, jget_str(s, "name", ""));
        table_cell(t, ST_DIM, jget_str(s, "updated_at", ""));
        for (size_t k = 0; k < 4; k++) {
            int64_t v = jget_i64(s, numbers[k], 0);
            if (v || !(k & 1))
                table_cellf(t, ST_PLAIN, "%lld", (long long)v);
            else
                table_cell(t, ST_PLAIN, "");
        }
    }
    table_print(t);
    return 0;
}

static int exec_secret_rm(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) {
        auto_free char *t = url("/v1/secrets/{}", a->v[i]);
        if (api_call(x, "DELETE", t, NULL, NULL))
            rc = cli_fail(x);
    }
    return rc;
}

static const struct opt json_opts[] = {OPT_JSON, OPT_END};
static const struct opt net_opts[] = {{"policy", 'p', 's', "FILE", "read the whole policy as JSON from a file (-: standard input)", "@file"}, OPT_JSON, OPT_END};
static const struct opt egress_opts[] = {{"denied", 'd', 'f', NULL, "only what was denied", NULL},
                                         {"name", 0, 's', "HOST", "only this host, address or *.suffix", NULL},
                                         {"verify", 0, 'f', NULL, "check that no line was changed or removed", NULL},
                                         OPT_JSON,
                                         OPT_END};
static const struct opt set_opts[] = {{"calls", 0, 's', "N", "maximum number of requests it may be used for (no limit)", NULL},
                                      {"bytes", 0, 's', "N", "maximum bytes of these requests and responses (no limit)", NULL},
                                      OPT_JSON,
                                      OPT_END};
const struct cmd cmd_net = {.name = "net", .usage = "ID [none|open|allow=host,@preset,…] [--policy FILE]", .help = "show or set what a sandbox may reach", .opts = net_opts, .min = 1, .max = 2, .words = "@id;none open allow=", .exec = exec_net};
const struct cmd cmd_egress = {.name = "egress", .usage = "ID", .help = "show the DNS queries and connections of a sandbox", .opts = egress_opts, .min = 1, .max = 1, .words = "@id", .exec = exec_egress};
const struct cmd cmd_url = {.name = "url", .usage = "ID PORT", .help = "print the URL of a port in a sandbox", .opts = json_opts, .min = 2, .max = 2, .words = "@id;", .exec = exec_url};
static const struct cmd s_set = {.name = "set", .usage = "NAME <value", .help = "store a value that the network gate inserts into requests", .opts = set_opts, .min = 1, .max = 1, .words = "@secret", .exec = exec_secret_set};
static const struct cmd s_ls = {.name = "ls", .usage = "", .help = "list secrets; values are never shown", .opts = json_opts, .exec = exec_secret_ls};
static const struct cmd s_rm = {.name = "rm", .usage = "NAME…", .help = "delete secrets", .min = 1, .max = -1, .words = "@secret", .exec = exec_secret_rm};
static const struct cmd *const secret_subs[] = {&s_set, &s_ls, &s_rm, NULL};
const struct cmd cmd_secret = {.name = "secret", .usage = "set|ls|rm", .help = "manage credentials that stay outside of sandboxes", .sub = secret_subs};
