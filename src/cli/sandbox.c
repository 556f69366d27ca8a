/* See sandbox.h. */
#include "cli/sandbox.h"
#include "base/cleanup.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include "cli/stream.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- create -- */

static int put_number(struct cli *x, struct jw *w, struct args *a, const char *opt, const char *member)
{
    const char *s = args_str(a, opt, NULL);
    if (!s)
        return 0;
    char *end = NULL;
    double v = strtod(s, &end);
    if (!*s || *end || !(v > 0) || v > 1e9)
        return err_set(&x->err, E_INVALID, "--%s: '%.40s' is not a positive number", opt, s);
    jw_kv_f64(w, member, v);
    return 0;
}

static int put_network(struct cli *x, struct jw *w, const char *s)
{
    if (!s)
        return 0;
    jw_key(w, "network");
    return json_network(x, w, s);
}

static int put_volumes(struct cli *x, struct jw *w, struct args *a)
{
    int i = 0;
    const char *v = args_list(a, "volume", &i);
    if (!v)
        return 0;
    jw_kv_arr(w, "volumes");
    for (; v; v = args_list(a, "volume", &i)) {
        const char *colon = strchr(v, ':');
        if (!colon || colon == v || colon[1] != '/')
            return err_set(
                &x->err, E_INVALID,
                "--volume: must be NAME:/path or NAME:/path:ro, where NAME is a volume; directories of this machine cannot be mounted");
        size_t n = strlen(colon + 1);
        bool ro = n > 3 && !strcmp(colon + 1 + n - 3, ":ro");
        jw_obj(w);
        jw_kv_strn(w, "name", (struct str){v, (size_t)(colon - v)});
        jw_kv_strn(w, "path", (struct str){colon + 1, n - (ro ? 3 : 0)});
        if (ro)
            jw_kv_bool(w, "read_only", true);
        jw_end(w);
    }
    jw_end(w);
    return 0;
}

static int create_body(struct cli *x, struct args *a, int64_t timeout_s, struct buf *out)
{
    struct jw w;
    int64_t t = 0, idle = 0, life = 0;
    if (args_seconds(a, "timeout", 1, 86400, 0, &t, &x->err) || args_seconds(a, "idle", 1, 86400 * 365, 0, &idle, &x->err) ||
        args_seconds(a, "max-lifetime", 1, 86400 * 365, 0, &life, &x->err))
        return -1;
    if (timeout_s >= 0)
        t = timeout_s;
    jw_init(&w, out);
    jw_obj(&w);
    if (args_str(a, "template", NULL))
        jw_kv_str(&w, "template", args_str(a, "template", NULL));
    if (args_str(a, "snapshot", NULL))
        jw_kv_str(&w, "snapshot", args_str(a, "snapshot", NULL));
    if (args_str(a, "name", NULL))
        jw_kv_str(&w, "name", args_str(a, "name", NULL));
    if (args_str(a, "isolation", NULL))
        jw_kv_str(&w, "isolation", args_str(a, "isolation", NULL));
    if (put_number(x, &w, a, "cpu", "cpu") || put_number(x, &w, a, "memory", "memory_mib") || put_number(x, &w, a, "disk", "disk_mib"))
        return -1;
    if (t)
        jw_kv_i64(&w, "timeout_s", t);
    if (args_str(a, "on-timeout", NULL))
        jw_kv_str(&w, "on_timeout", args_str(a, "on-timeout", NULL));
    if (idle)
        jw_kv_i64(&w, "idle_timeout_s", idle);
    if (args_str(a, "on-idle", NULL))
        jw_kv_str(&w, "on_idle", args_str(a, "on-idle", NULL));
    if (life)
        jw_kv_i64(&w, "max_lifetime_s", life);
    if (args_flag(a, "auto-resume"))
        jw_kv_bool(&w, "auto_resume", true);
    int i = 0;
    if (args_list(a, "env", &i)) {
        if (json_env(x, &w, "env", a, "env"))
            return -1;
        jw_end(&w);
    }
    i = 0;
    if (args_list(a, "meta", &i)) {
        if (json_env(x, &w, "metadata", a, "meta"))
            return -1;
        jw_end(&w);
    }
    if (args_str(a, "preview", NULL))
        jw_kv_str(&w, "preview", args_str(a, "preview", NULL));
    if (put_network(x, &w, args_str(a, "net", NULL)) || put_volumes(x, &w, a))
        return -1;
    jw_end(&w);
    return 0;
}

int sandbox_create(struct cli *x, struct args *a, int64_t timeout_s, bool may_build, struct json **ret)
{
    auto_buf body = {0};
    if (create_body(x, a, timeout_s, &body))
        return -1;
    int rc = api_call(x, "POST", "/v1/sandboxes", &body, ret);
    const char *t = args_str(a, "template", "base");
    if (rc == 0 || x->err.code != E_NOT_FOUND || !may_build || strcmp(t, "base") != 0 || args_str(a, "snapshot", NULL))
        return rc;
    /* the template is missing: build it, once, and try again */
    x->hint[0] = 0;
    auto_json built = NULL;
    if (build_builtin(x, "base", "base", false, &built) && x->err.code != E_CONFLICT) /* conflict: someone else just made it */
        return -1;
    x->hint[0] = 0;
    return api_call(x, "POST", "/v1/sandboxes", &body, ret);
}

void sandbox_kill_quiet(struct cli *x, const char *id)
{
    struct cli y = {.url = x->url, .key = x->key, .ca = x->ca, .no_start = true};
    auto_free char *t = url("/v1/sandboxes/{}", id);
    if (api_call(&y, "DELETE", t, NULL, NULL) && y.err.code != E_NOT_FOUND)
        (void)fprintf(stderr, "hutch: sandbox %s may still be running: %s\n", id, y.err.msg);
}

int each_arg(struct cli *x, struct args *a,
             int (*one)(struct cli *x, struct args *a, const char *arg, void *ctx), void *ctx)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) {
        x->hint[0] = 0;
        int k = one(x, a, a->v[i], ctx) ? cli_fail(x) : 0;
        rc = rc ? rc : k;
    }
    return rc;
}

void said(const char *id, const char *what)
{
    char shown[128];
    esc_text(str_of(id), shown, sizeof shown);
    if (isatty(STDOUT_FILENO))
        (void)printf("%s: %s\n", shown, what);
}

void sandbox_tier(struct json *sb, char out[48])
{
    struct json *iso = json_get(sb, "isolation");
    const char *accel = jget_str(iso, "accel", "");
    bool shown = *accel && strcmp(accel, "none") != 0;
    (void)snprintf(out, 48, "%.20s%s%.20s", jget_str(iso, "tier", "-"), shown ? "/" : "", shown ? accel : "");
}

/* -- builds -- */

/* 1: done, 0: go on, -1: x->err */
static int on_build_line(struct cli *x, struct progress *p, struct str line, struct json **ret)
{
    auto_json j = json_parse_obj(line.p, line.n, &x->err);
    if (!j)
        return err_wrap(&x->err, "the server's stream");
    const char *ev = jget_str(j, "event", "");
    if (!strcmp(ev, "progress"))
        progress_set(p, (int)jget_i64(j, "percent", -1), jget_str(j, "step", NULL));
    else if (!strcmp(ev, "log"))
        progress_line(p, jget_str(j, "line", ""));
    else if (!strcmp(ev, "error")) {
        api_problem_json(x, json_get(j, "error"));
        return -1;
    } else if (!strcmp(ev, "done")) {
        auto_buf b = {0};
        struct json *t = json_get(j, "template");
        if (t)
            json_dump(t, &b);
        *ret = json_parse(b.n ? b.p : "{}", b.n ? b.n : 2, &x->err);
        return *ret ? 1 : -1;
    }
    return 0;
}

int build_run(struct cli *x, const char *target, const struct buf *json_body, int fd, int64_t len, const char *content_type, struct json **ret)
{
    auto_client c = api_open(x);
    if (!c)
        return -1;
    int rc = json_body ? api_send(x, c, "POST", target, json_body) : api_send_fd(x, c, "POST", target, content_type, fd, len);
    if (rc || (json_body && api_check(x, c)))
        return -1;
    struct lines l = {.c = c, .sigfd = x->sigfd > 0 ? x->sigfd : -1};
    struct progress p;
    struct str line;
    progress_begin(&p);
    while (rc == 0) {
        switch (lines_next(&l, p.tty ? 200 : -1, &line, &x->err)) {
        case LINES_LINE: rc = on_build_line(x, &p, line, ret); break;
        case LINES_TICK: progress_tick(&p); break;
        case LINES_END: rc = err_set(&x->err, E_UNAVAILABLE, "the build's stream ended without a result"); break;
        case LINES_SIGNAL: rc = err_set(&x->err, E_CANCELED, "the build was interrupted"); break;
        case LINES_BROKEN: rc = -1; break;
        }
    }
    splitter_free(&l.split);
    char words[160];
    (void)snprintf(words, sizeof words, "template %s is ready", rc > 0 ? jget_str(*ret, "name", "") : "");
    progress_end(&p, rc > 0 ? words : NULL);
    return rc > 0 ? 0 : -1;
}

int build_builtin(struct cli *x, const char *name, const char *builtin, bool force, struct json **ret)
{
    auto_buf body = {0};
    struct jw w;
    jw_init(&w, &body);
    jw_obj(&w);
    jw_kv_str(&w, "name", name);
    jw_kv_str(&w, "builtin", builtin);
    if (force)
        jw_kv_bool(&w, "force", true);
    jw_end(&w);
    return build_run(x, "/v1/templates", &body, -1, 0, NULL, ret);
}
