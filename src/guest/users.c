#include "guest/users.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

void users_free(struct users *u)
{
    free(u->pf.text), free(u->gf.text), free(u->user), free(u->group);
    *u = (struct users){0};
}

/* true: the text changed (or was read for the first time) */
static bool file_refresh(struct user_file *f, const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) {
        bool had = f->text != NULL || !f->loaded;
        free(f->text);
        *f = (struct user_file){.loaded = true};
        return had;
    }
    if (f->loaded && f->text && f->ino == st.st_ino && f->size == (uint64_t)st.st_size && f->mtime.tv_sec == st.st_mtim.tv_sec &&
        f->mtime.tv_nsec == st.st_mtim.tv_nsec)
        return false;
    free(f->text);
    *f = (struct user_file){.mtime = st.st_mtim, .ino = st.st_ino, .size = (uint64_t)st.st_size, .loaded = true};
    f->text = fd_slurp_at(AT_FDCWD, path, USERS_FILE_MAX, NULL);
    return true;
}

/* Cuts the next line at its colons, in place; returns the number of fields (0 at the end). */
static int next_line(char **at, char *field[], int max)
{
    char *p = *at;
    if (!p || !*p)
        return 0;
    char *end = strchr(p, '\n');
    if (end)
        *end = 0;
    *at = end ? end + 1 : p + strlen(p);
    int n = 0;
    while (n < max) {
        field[n++] = p;
        char *c = n < max ? strchr(p, ':') : NULL;
        if (!c)
            break;
        *c = 0;
        p = c + 1;
    }
    return n;
}

static bool id_of(const char *s, uint32_t *ret)
{
    uint64_t v;
    if (!str_u64(str_of(s), &v) || v >= UINT32_MAX)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static size_t count_lines(const char *s)
{
    size_t n = 1;
    for (; s && (s = strchr(s, '\n')); s++)
        n++;
    return n;
}

static void parse_passwd(struct users *u)
{
    char *at = u->pf.text, *f[7];
    int n;
    free(u->user);
    u->user = xcalloc(count_lines(at), sizeof(*u->user));
    u->nuser = 0;
    while ((n = next_line(&at, f, 7))) {
        struct user x = {.name = f[0]};
        if (n < 7 || !f[0][0] || !id_of(f[2], &x.uid) || !id_of(f[3], &x.gid))
            continue;
        x.home = f[5][0] == '/' ? f[5] : "/";
        x.shell = f[6][0] ? f[6] : "/bin/sh";
        u->user[u->nuser++] = x;
    }
}

static void parse_group(struct users *u)
{
    char *at = u->gf.text, *f[4];
    int n;
    free(u->group);
    u->group = xcalloc(count_lines(at), sizeof(*u->group));
    u->ngroup = 0;
    while ((n = next_line(&at, f, 4))) {
        struct group x = {.name = f[0], .members = n > 3 ? f[3] : ""};
        if (n >= 3 && f[0][0] && id_of(f[2], &x.gid))
            u->group[u->ngroup++] = x;
    }
}

void users_refresh(struct users *u)
{
    if (u->none)
        return;
    if (file_refresh(&u->pf, "/etc/passwd"))
        parse_passwd(u);
    if (file_refresh(&u->gf, "/etc/group"))
        parse_group(u);
}

int user_find(struct users *u, struct str name, struct user *ret, struct err *e)
{
    uint64_t uid;
    users_refresh(u);
    for (size_t i = 0; i < u->nuser; i++)
        if (str_eqz(name, u->user[i].name)) {
            *ret = u->user[i];
            return 0;
        }
    if (str_eqz(name, "root")) { /* a tree without /etc/passwd still has root */
        *ret = (struct user){0, 0, "root", "/root", "/bin/sh"};
        return 0;
    }
    if (!str_u64(name, &uid) || uid >= UINT32_MAX)
        return err_set(e, E_NOT_FOUND, "user '%.*s' does not exist", (int)(name.n > 64 ? 64 : name.n), name.p);
    for (size_t i = 0; i < u->nuser; i++)
        if (u->user[i].uid == uid) {
            *ret = u->user[i];
            return 0;
        }
    *ret = (struct user){(uint32_t)uid, (uint32_t)uid, "", "/", "/bin/sh"};
    return 0;
}

bool group_find(struct users *u, const char *name, uint32_t *ret_gid)
{
    users_refresh(u);
    for (size_t i = 0; i < u->ngroup; i++)
        if (!strcmp(u->group[i].name, name)) {
            *ret_gid = u->group[i].gid;
            return true;
        }
    return id_of(name, ret_gid);
}

const char *user_name(struct users *u, uint32_t uid)
{
    for (size_t i = 0; i < u->nuser; i++)
        if (u->user[i].uid == uid)
            return u->user[i].name;
    return NULL;
}

const char *group_name(struct users *u, uint32_t gid)
{
    for (size_t i = 0; i < u->ngroup; i++)
        if (u->group[i].gid == gid)
            return u->group[i].name;
    return NULL;
}

static bool member_of(const char *list, const char *name)
{
    size_t n = strlen(name);
    while (*list) {
        size_t k = strcspn(list, ",");
        if (k == n && !memcmp(list, name, n))
            return true;
        list += k + (list[k] == ',');
    }
    return false;
}

int user_groups(struct users *u, const struct user *who, uint32_t *out)
{
    int n = 0;
    out[n++] = who->gid;
    for (size_t i = 0; i < u->ngroup && n < USER_GROUPS_MAX && *who->name; i++)
        if (u->group[i].gid != who->gid && member_of(u->group[i].members, who->name))
            out[n++] = u->group[i].gid;
    return n;
}
