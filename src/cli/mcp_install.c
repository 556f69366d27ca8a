#include "cli/mcp_install.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- text that stays as it was ---- */
static size_t skip_string(struct str s, size_t i) /* at its first quote; returns after its last */
{
    for (i++; i < s.n && s.p[i] != '"'; i++)
        i += s.p[i] == '\\';
    return i + 1;
}

static size_t skip_space(struct str s, size_t i)
{
    while (i < s.n && strchr(" \t\r\n", s.p[i]))
        i++;
    return i;
}

/* Where the object of member `key` of the outermost object opens; SIZE_MAX: it has none. The text
 * was parsed before. key NULL: the outermost object itself. */
static size_t find_object(struct str s, const char *key)
{
    int depth = 0;
    for (size_t i = 0; i < s.n;) {
        if (s.p[i] == '"') {
            size_t end = skip_string(s, i), colon = skip_space(s, end);
            struct str word = {s.p + i + 1, end - i - 2};
            if (key && depth == 1 && colon < s.n && s.p[colon] == ':' && str_eqz(word, key))
                return skip_space(s, colon + 1);
            i = end;
            continue;
        }
        if (!key && s.p[i] == '{')
            return i;
        depth += s.p[i] == '{' || s.p[i] == '[';
        depth -= s.p[i] == '}' || s.p[i] == ']';
        i++;
    }
    return SIZE_MAX;
}

static void insert(struct str old, size_t brace, const char *member, struct buf *out)
{
    bool empty = old.p[skip_space(old, brace + 1)] == '}';
    buf_put(out, old.p, brace + 1);
    buf_printf(out, "\n%s%s", member, empty ? "\n  " : ",");
    buf_put(out, old.p + brace + 1, old.n - brace - 1);
}

int mcp_add_json(struct str old, const char *group, const char *name, struct str entry,
                 struct buf *out, struct err *e)
{
    auto_buf member = {0}, have = {0};
    struct str text = str_trim(old);
    if (!text.n || skip_space(old, 0) == old.n)
        text = old = S("{}\n");
    auto_json j = json_parse_obj(old.p, old.n, e);
    if (!j)
        return err_wrap(e, "it is not plain JSON");
    struct json *g = json_get(j, group), *there = json_get(g, name);
    if (g && json_kind(g) != JSON_OBJ)
        return err_set(e, E_CONFLICT, "its '%s' is not an object", group);
    if (there) {
        auto_json ours = json_parse_obj(entry.p, entry.n, e);
        auto_buf want = {0};
        json_dump(there, &have);
        json_dump(ours, &want);
        return !strcmp(have.p, want.p)
                   ? 1
                   : err_set(e, E_CONFLICT, "it has another entry '%s': %.120s", name, have.p);
    }
    if (g)
        buf_printf(&member, "    \"%s\": %.*s", name, (int)entry.n, entry.p);
    else
        buf_printf(&member, "  \"%s\": {\n    \"%s\": %.*s\n  }", group, name, (int)entry.n,
                   entry.p);
    insert(old, find_object(old, g ? group : NULL), member.p, out);
    return 0;
}

int mcp_add_toml(struct str old, const char *table, struct str body, struct buf *out, struct err *e)
{
    auto_buf head = {0};
    buf_printf(&head, "[%s]", table);
    const char *hit = old.n ? memmem(old.p, old.n, head.p, head.n) : NULL;
    if (hit) {
        size_t at = (size_t)(hit - old.p) + head.n;
        at += at < old.n && old.p[at] == '\n';
        return old.n - at >= body.n && !memcmp(old.p + at, body.p, body.n)
                   ? 1
                   : err_set(e, E_CONFLICT, "it has another table %s", head.p);
    }
    buf_put(out, old.p, old.n);
    if (old.n)
        buf_puts(out, old.p[old.n - 1] == '\n' ? "\n" : "\n\n");
    buf_printf(out, "%s\n%.*s", head.p, (int)body.n, body.p);
    return 0;
}

/* ---- clients ---- */
static const struct client {
    const char *name;
    const char *user, *project; /* its file: below the home, below the current directory */
    const char *group;          /* NULL: TOML */
    bool typed;                 /* its entries have a "type" */
} clients[] = {
    {"claude-code", ".claude.json", ".mcp.json", "mcpServers", true},
    {"codex", ".codex/config.toml", ".codex/config.toml", NULL, false},
    {"cursor", ".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", false},
    {"vscode", ".config/Code/User/mcp.json", ".vscode/mcp.json", "servers", true},
};

static const struct client *find_client(const char *name)
{
    for (size_t i = 0; name && i < sizeof clients / sizeof *clients; i++)
        if (!strcmp(clients[i].name, name))
            return &clients[i];
    return NULL;
}

/* ---- what goes in ---- */
static void put_args(struct jw *w, struct args *a)
{
    static const char *const passed[] = {"sandbox", "tools", "image", "url"};
    jw_arr(w);
    jw_strz(w, "mcp");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        const char *v = args_str(a, passed[i], NULL);
        if (!v)
            continue;
        auto_buf option = {0};
        buf_printf(&option, "--%s", passed[i]);
        jw_strz(w, option.p);
        jw_strz(w, v);
    }
    jw_end(w);
}

static void make_entry(const struct client *c, struct args *a, struct buf *out)
{
    char self[4096];
    struct jw w;
    auto_buf list = {0};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    (void)snprintf(self + (n > 0 ? n : 0), 8, "%s", n > 0 ? "" : "hutch");
    jw_init(&w, &list);
    put_args(&w, a);
    if (!c->group) {
        buf_puts(out, "command = ");
        jw_init(&w, out);
        jw_strz(&w, self);
        buf_printf(out, "\nargs = %s\n", list.p);
        return;
    }
    jw_init(&w, out);
    jw_obj(&w);
    if (c->typed)
        jw_kv_str(&w, "type", "stdio");
    jw_kv_str(&w, "command", self);
    jw_kv_raw(&w, "args", (struct str){list.p, list.n});
    jw_end(&w);
}

/* ---- the file ---- */
static int make_parents(const char *path, struct err *e)
{
    auto_free char *dir = xstrdup(path);
    for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(dir, 0755) && errno != EEXIST)
            return err_sys(e, errno, "cannot make '%.100s'", dir);
        *p = '/';
    }
    return 0;
}

/* Beside it, then renamed: what was there is whole until the new one is. */
static int replace_file(const char *path, const struct buf *text, struct err *e)
{
    struct stat st;
    auto_free char *tmp = xasprintf("%s.hutch-XXXXXX", path);
    if (make_parents(path, e))
        return -1;
    mode_t mode = stat(path, &st) ? 0644 : st.st_mode & 07777;
    auto_fd fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0 || !fd_write_all(fd, text->p, text->n) || fchmod(fd, mode) || rename(tmp, path)) {
        int sys = errno;
        if (fd >= 0)
            (void)unlink(tmp);
        return err_sys(e, sys, "cannot write '%.100s'", path);
    }
    return 0;
}

static char *file_of(const struct client *c, struct args *a)
{
    const char *home = getenv("HOME");
    if (args_flag(a, "project"))
        return xstrdup(c->project);
    return xasprintf("%s/%s", home && *home ? home : "/root", c->user);
}

int mcp_install(struct cli *x, struct args *a)
{
    const struct client *c = find_client(a->n > 1 ? a->v[1] : NULL);
    auto_buf entry = {0}, text = {0};
    if (!c)
        return cli_usage(x, "install for whom? claude-code, codex, cursor or vscode");
    auto_free char *path = file_of(c, a);
    auto_free char *old = fd_slurp_at(AT_FDCWD, path, 16u << 20, NULL);
    if (!old && errno != ENOENT) {
        (void)err_sys(&x->err, errno, "cannot read '%.100s'", path);
        return cli_fail(x);
    }
    make_entry(c, a, &entry);
    struct str new = {entry.p, entry.n}, was = str_of(old ? old : "");
    int rc = c->group ? mcp_add_json(was, c->group, "hutch", new, &text, &x->err)
                      : mcp_add_toml(was, "mcp_servers.hutch", new, &text, &x->err);
    if (rc < 0) {
        (void)err_wrap(&x->err, "%.100s was left alone", path);
        (void)snprintf(x->hint, sizeof x->hint, "add it by hand: %.200s", entry.p);
        return cli_fail(x);
    }
    if (rc == 0 && !args_flag(a, "print") && replace_file(path, &text, &x->err))
        return cli_fail(x);
    (void)printf("%s %s: hutch = %s\n",
                 rc                      ? "already in"
                 : args_flag(a, "print") ? "would be written to"
                                         : "written to",
                 path, entry.p);
    return 0;
}
