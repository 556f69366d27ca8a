/* E2B's build steps as a recipe of the core. Every step becomes one or a few
 * lines; a table from line to step turns the core's errors back into E2B's. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/e2b.h"
#include "api/params.h"
#include "base/quote.h" /* literal in a recipe's words too */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define CONTEXT \
    "/.hutch-context" /* where the core unpacks the context: here one archive per COPY, named by its hash */

void e2b_recipe_fini(struct e2b_recipe *r)
{
    buf_free(&r->text);
    kv_free(&r->lines), kv_free(&r->files);
}

/* Ends the line; what it stands for: step number, kind, text for an error. */
static void line_end(struct e2b_recipe *r, size_t step, char kind, const char *detail)
{
    char n[16];
    auto_buf v = {0};
    buf_putc(&r->text, '\n');
    (void)snprintf(n, sizeof n, "%d", ++r->line);
    buf_printf(&v, "%zu|%c|%s", step, kind, detail ? detail : "");
    kv_set(&r->lines, str_of(n), (struct str){v.p, v.n});
}

static void put_user(struct e2b_recipe *r, size_t step, const char *user, char kind,
                     const char *detail)
{
    buf_puts(&r->text, "USER ");
    shell_quote(&r->text, user);
    line_end(r, step, kind, detail);
}

static void put_command(struct e2b_recipe *r, const char *what, bool login, const char *cmd)
{
    struct jw w;
    buf_printf(&r->text, "%s ", what);
    jw_init(&w, &r->text);
    jw_arr(&w);
    jw_strz(&w, "/bin/bash");
    if (login)
        jw_strz(&w, "-l");
    jw_strz(&w, "-c");
    jw_strz(&w, cmd);
    jw_end(&w);
}

static const char *arg(struct json *args, size_t i)
{
    struct str v = {0};
    return json_at(args, i) && !json_to_str(json_at(args, i), &v, NULL) ? v.p : "";
}

static bool user_ok(const char *u)
{
    if (!*u || *u == '-' || strlen(u) > 64)
        return false;
    for (; *u; u++)
        if (!((*u >= 'a' && *u <= 'z') || (*u >= 'A' && *u <= 'Z') || (*u >= '0' && *u <= '9') ||
              strchr("._-", *u)))
            return false;
    return true;
}

static int step_run(struct e2b_recipe *r, size_t i, struct json *args, const char *user,
                    struct err *e)
{
    const char *cmd = arg(args, 0), *as = arg(args, 1);
    if (!*cmd)
        return err_set(e, E_INVALID, "step %zu: RUN needs a command", i);
    if (*as && strcmp(as, user)) {
        auto_buf d = {0};
        if (!user_ok(as))
            return err_set(e, E_INVALID, "step %zu: RUN: not a user name", i);
        buf_printf(&d, "%s|%s", as, cmd);
        put_user(r, i, as, 'u', d.p);
    }
    put_command(r, "RUN", true, cmd);
    line_end(r, i, 'r', cmd);
    if (*as && strcmp(as, user))
        put_user(r, i, user, 'x', "");
    return 0;
}

/* As the core's COPY, with wildcards; the archive's own folder is the context. */
static int step_copy(struct e2b_recipe *r, size_t i, struct json *step, struct json *args,
                     const char *user, const char *cwd, struct err *e)
{
    const char *src = arg(args, 0), *dst = arg(args, 1), *owner = arg(args, 2),
               *mode = arg(args, 3);
    struct str hash = {0};
    if (json_str(step, "filesHash", &hash, true, e))
        return -1;
    for (size_t k = 0; k < hash.n; k++)
        if (!((hash.p[k] >= '0' && hash.p[k] <= '9') || (hash.p[k] >= 'a' && hash.p[k] <= 'f')))
            hash.n = 0;
    if (hash.n != 64 || !*src || !*dst ||
        (*owner &&
         strspn(owner, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:") !=
             strlen(owner)) ||
        *owner == '-' || (*mode && (strspn(mode, "01234567") != strlen(mode) || strlen(mode) > 5)))
        return err_set(e, E_INVALID, "step %zu: COPY is malformed", i);
    kv_set(&r->files, hash, S(""));
    auto_buf b = {0};
    buf_printf(&b,
               "set -e; d=" CONTEXT "/x-%s; [ -d \"$d\" ] || { mkdir \"$d\"; tar -xf " CONTEXT
               "/%s.tgz -C \"$d\" --no-same-owner; }; cd \"$d\"; dst=",
               hash.p, hash.p);
    if (*dst != '/') {
        shell_quote(&b, cwd);
        buf_puts(&b, "/");
    }
    shell_quote(&b, dst);
    auto_buf who = {0};
    buf_printf(&who, *owner ? strchr(owner, ':') ? "%s" : "%s:%s" : "%s:", *owner ? owner : user,
               owner);
    buf_puts(&b, "; who=");
    shell_quote(&b, who.p);
    buf_puts(
        &b,
        "; mk() { [ -d \"$1\" ] || { mk \"$(dirname -- \"$1\")\"; mkdir -- \"$1\"; chown -- \"$who\" \"$1\"; }; }; own() { chown -R -- \"$who\" \"$1\"; ");
    if (*mode)
        buf_printf(&b, "chmod -R %s -- \"$1\"; ", mode);
    buf_printf(&b, "}; into=%d; set -- ", dst[strlen(dst) - 1] == '/');
    while (*src == '/' || (src[0] == '.' && src[1] == '/'))
        src += *src == '/' ? 1 : 2;
    bool glob = strpbrk(src, "*?[") != NULL;
    for (const char *p = *src ? src : "."; *p; p++) {
        if (strchr("*?[]", *p)) {
            buf_putc(&b, *p);
        } else {
            char one[2] = {*p, 0};
            shell_quote(&b, one);
        }
    }
    buf_printf(
        &b,
        "; [ $# -gt 1 ] && into=1; for f in \"$@\"; do case \"/$f/\" in */../*) echo \"$f leaves the context\" >&2; exit 1;; esac; "
        "[ -e \"$f\" ] || [ -L \"$f\" ] || { echo \"$f: no such file\" >&2; exit 1; }; "
        "if [ -d \"$f\" ] && ! [ -L \"$f\" ]; then t=\"$dst\"; %s mk \"$t\"; cp -a -- \"$f/.\" \"$t/\"; own \"$t\"; "
        "elif [ $into = 1 ] || [ -d \"$dst\" ]; then mk \"$dst\"; cp -a -- \"$f\" \"$dst/\"; own \"$dst/${f##*/}\"; "
        "else mk \"$(dirname -- \"$dst\")\"; cp -a -- \"$f\" \"$dst\"; own \"$dst\"; fi; done",
        glob ? "t=\"$dst/${f##*/}\";" : "");
    put_user(r, i, "root", 'x', "");
    put_command(r, "RUN", false, b.p);
    line_end(r, i, 'c', src);
    put_user(r, i, user, 'x', "");
    return 0;
}

static void step_user(struct e2b_recipe *r, size_t i, const char *user)
{
    auto_buf b = {0};
    put_user(r, i, "root", 'x', "");
    buf_puts(&b, "id -u -- ");
    shell_quote(&b, user);
    buf_puts(&b, " >/dev/null 2>&1 || useradd -m -s /bin/bash -- ");
    shell_quote(&b, user);
    put_command(r, "RUN", false, b.p);
    line_end(r, i, 'x', "USER");
    put_user(r, i, user, 'x', "USER");
}

static int step_env(struct e2b_recipe *r, size_t i, struct json *args, struct err *e)
{
    buf_puts(&r->text, "ENV");
    for (size_t k = 0; k + 1 < json_len(args); k += 2) {
        const char *name = arg(args, k), *value = arg(args, k + 1);
        if (!env_key_ok(str_of(name)))
            return err_set(e, E_INVALID, "step %zu: ENV: '%.60s' is not a variable name", i, name);
        if (strpbrk(value, "\r\n"))
            return err_set(e, E_INVALID, "step %zu: ENV %.60s: a value cannot hold line breaks", i,
                           name);
        buf_printf(&r->text, " %s=", name);
        shell_quote(&r->text, value);
    }
    line_end(r, i, 'x', "ENV");
    return 0;
}

static int one_step(struct e2b_recipe *r, size_t i, struct json *step, char **user, char **cwd,
                    struct err *e)
{
    struct str type = {0};
    struct json *args = NULL;
    if (json_str(step, "type", &type, true, e) || json_arr(step, "args", &args, false, e))
        return -1;
    const char *first = arg(args, 0);
    if (str_ieqz(type, "RUN"))
        return step_run(r, i, args, *user, e);
    if (str_ieqz(type, "COPY") || str_ieqz(type, "ADD"))
        return step_copy(r, i, step, args, *user, *cwd, e);
    if (str_ieqz(type, "ENV") || str_ieqz(type, "ARG"))
        return json_len(args) < 2 ? 0 : step_env(r, i, args, e);
    if (strpbrk(first, "\r\n") || !*first)
        return err_set(e, E_INVALID, "step %zu: %s is malformed", i, type.p);
    if (str_ieqz(type, "WORKDIR")) {
        buf_puts(&r->text, "WORKDIR ");
        shell_quote(&r->text, first);
        line_end(r, i, 'x', "WORKDIR");
        char *full = *first == '/' ? xstrdup(first) : xasprintf("%s/%s", *cwd, first);
        free(*cwd), *cwd = full;
        return 0;
    }
    if (str_ieqz(type, "USER")) {
        char *u = xstrndup(first, strcspn(first, ":"));
        if (!user_ok(u)) {
            free(u);
            return err_set(e, E_INVALID, "step %zu: USER: not a user name", i);
        }
        step_user(r, i, u);
        free(*user), *user = u;
        return 0;
    }
    return err_set(e, E_INVALID, "step %zu: '%.40s' is not a kind of step", i, type.p);
}

int e2b_steps(struct json *body, const char *from, const char *user, const char *workdir,
              struct e2b_recipe *r, struct err *e)
{
    struct json *steps = NULL;
    struct str start = {0}, ready = {0};
    if (json_arr(body, "steps", &steps, false, e) || json_str(body, "startCmd", &start, false, e) ||
        json_str(body, "readyCmd", &ready, false, e))
        return -1;
    char *u = xstrdup(user && *user ? user : "user");
    char *cwd = xstrdup(workdir && *workdir  ? workdir
                        : !strcmp(u, "root") ? "/root"
                                             : "/home/user");
    buf_printf(&r->text, "FROM %s", from);
    line_end(r, 0, 'x', "FROM");
    put_user(r, 0, u, 'x', "USER");
    buf_puts(&r->text, "WORKDIR ");
    shell_quote(&r->text, cwd);
    line_end(r, 0, 'x', "WORKDIR");
    int rc = 0;
    bool force = false; /* once one is to run, all after it do */
    (void)json_bool(body, "force", false, &force, NULL);
    r->cached_line = force ? 0 : INT_MAX;
    for (size_t i = 0; !rc && i < json_len(steps); i++) {
        if (!force && !json_bool(json_at(steps, i), "force", false, &force, NULL) && force)
            r->cached_line = r->line;
        rc = one_step(r, i + 1, json_at(steps, i), &u, &cwd, e);
    }
    free(u), free(cwd);
    if (rc)
        return -1;
    if (start.n) {
        put_command(r, "START", true, start.p);
        line_end(r, json_len(steps) + 1, 's', start.p);
    }
    if (ready.n) {
        put_command(r, "READY", true, ready.p);
        line_end(r, json_len(steps) + 1, 's', ready.p);
    }
    return 0;
}

void e2b_build_message(const struct kv *lines, const char *core_msg, struct buf *msg, char step[12])
{
    int line = 0, used = 0, status = 0;
    char n[16];
    (void)snprintf(step, 12, "finalize");
    if (sscanf(core_msg, "line %d: %n", &line, &used) != 1 || !used) {
        buf_puts(msg, core_msg);
        return;
    }
    (void)snprintf(n, sizeof n, "%d", line);
    const char *v = kv_get(lines, n), *rest = core_msg + used;
    const char *kind = v ? strchr(v, '|') : NULL;
    if (!kind || strlen(kind) < 3) {
        buf_puts(msg, rest);
        return;
    }
    const char *detail = kind + 3, *bar = strchr(detail, '|'),
               *st = strstr(rest, "failed with status ");
    (void)snprintf(step, 12, "%.*s", (int)(kind - v), !strncmp(v, "0|", 2) ? "base" : v);
    if (!strncmp(v, "0|", 2))
        (void)snprintf(step, 12, "base");
    if (st)
        (void)sscanf(st, "failed with status %d", &status);
    const char *tail = st ? strchr(st, ':') : NULL;
    if (kind[1] == 'u' && bar)
        buf_printf(
            msg,
            "failed to run command '%s': command failed: unauthenticated: invalid username: '%.*s'",
            bar + 1, (int)(bar - detail), detail);
    else if (kind[1] == 'r' && st)
        buf_printf(msg, "failed to run command '%s': exit status %d%s", detail, status,
                   tail ? tail : "");
    else if (kind[1] == 'c' && st)
        buf_printf(msg, "failed to copy '%s'%s", detail, tail ? tail : "");
    else
        buf_puts(msg, rest);
}

const char *e2b_image_template(const char *image, char out[64])
{
    static const char *const base[] = {
        "e2bdev/base",       "e2bdev/base:latest",   "base",   "debian:12",     "debian:12-slim",
        "debian:bookworm",   "debian:bookworm-slim", "debian", "debian:latest", "debian:stable",
        "debian:stable-slim"};
    const char *hub = strncmp(image, "docker.io/", 10) ? image : image + 10;
    hub = strncmp(hub, "library/", 8) ? hub : hub + 8;
    size_t n = 0;
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if (!strcmp(hub, base[i]))
            return strcpy(out, "base");
    if (!strncmp(hub, "e2bdev/code-interpreter", 23))
        return strcpy(out, "code-interpreter");
    for (; *hub && n < 63; hub++) {
        char c = *hub >= 'A' && *hub <= 'Z' ? (char)(*hub + 32) : *hub;
        out[n++] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
    }
    out[n] = 0;
    return out;
}
