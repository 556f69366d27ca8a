#include "base/conf.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *conf_path(void)
{
    const char *asked = getenv("HUTCH_CONFIG");
    if (!asked || !*asked)
        return CONF_FILE;
    return strcmp(asked, "none") ? asked : NULL;
}

static struct str trim(struct str s)
{
    while (s.n && isspace((unsigned char)s.p[0]))
        s.p++, s.n--;
    while (s.n && isspace((unsigned char)s.p[s.n - 1]))
        s.n--;
    return s;
}

static bool is_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!isalnum((unsigned char)s.p[i]) && s.p[i] != '_')
            return false;
    return s.n && !isdigit((unsigned char)s.p[0]);
}

static int add(const char *name, int line, struct str text, struct conf *c, struct err *e)
{
    const char *eq = memchr(text.p, '=', text.n);
    struct str k = trim((struct str){text.p, eq ? (size_t)(eq - text.p) : text.n});
    if (!eq || !is_name(k))
        return err_set(e, E_INVALID, "%s:%d: not NAME=VALUE", name, line);
    struct str v = trim((struct str){eq + 1, text.n - (size_t)(eq + 1 - text.p)});
    if (v.n && (*v.p == '"' || *v.p == '\'')) {
        if (v.n < 2 || v.p[v.n - 1] != *v.p)
            return err_set(e, E_INVALID, "%s:%d: the quote is not closed", name, line);
        v.p++, v.n -= 2;
    }
    if (memchr(v.p, 0, v.n))
        return err_set(e, E_INVALID, "%s:%d: a NUL byte", name, line);
    c->at = xrealloc(c->at, (c->n + 1) * sizeof *c->at);
    c->at[c->n++] = (struct conf_line){xstrndup(k.p, k.n), xstrndup(v.p, v.n), line};
    return 0;
}

int conf_parse(const char *name, struct str text, struct conf *ret, struct err *e)
{
    *ret = (struct conf){0};
    for (int line = 1; text.n; line++) {
        const char *nl = memchr(text.p, '\n', text.n);
        size_t n = nl ? (size_t)(nl - text.p) : text.n, eaten = nl ? n + 1 : n;
        struct str s = trim((struct str){text.p, n});
        if (s.n && *s.p != '#' && *s.p != ';' && add(name, line, s, ret, e)) {
            conf_free(ret);
            return -1;
        }
        text.p += eaten, text.n -= eaten;
    }
    return 0;
}

int conf_read(const char *path, struct conf *ret, struct err *e)
{
    struct stat st;
    size_t n = 0;
    *ret = (struct conf){0};
    if (!path)
        return 0;
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !strcmp(path, CONF_FILE))
        return 0;
    if (fd < 0 || fstat(fd, &st))
        return err_sys(e, errno, "%s", path);
    if ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022)
        return err_set(e, E_DENIED,
                       "%s: others than root can write it: `chown root %s; chmod 644 %s`", path,
                       path, path);
    auto_free char *text = fd_slurp(fd, CONF_MAX, &n);
    return text ? conf_parse(path, (struct str){text, n}, ret, e) : err_sys(e, errno, "%s", path);
}

int conf_load(struct conf *ret, struct err *e)
{
    const char *path = conf_path(), *home = getenv("HUTCH_HOME");
    if (conf_read(path, ret, e))
        return -1;
    const char *its = conf_get(ret, "HUTCH_HOME");
    if (path && !strcmp(path, CONF_FILE) && home && *home &&
        strcmp(home, its && *its ? its : CONF_HOME))
        conf_free(ret);
    return 0;
}

const char *conf_get(const struct conf *c, const char *name)
{
    for (size_t i = c->n; i-- > 0;)
        if (!strcmp(c->at[i].name, name))
            return c->at[i].value;
    return NULL;
}

void conf_free(struct conf *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].name), free(c->at[i].value);
    free(c->at);
    *c = (struct conf){0};
}
