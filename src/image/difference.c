#include "image/difference.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct entry { char type; mode_t mode; uint64_t uid, gid, size; long long mtime; const char *path; };

/* ---- the list ---- */
static int read_list(int fd, char **ret, size_t *ret_n, struct err *e)
{
    char head[32];
    uint64_t bytes;
    size_t n = 0;
    while (n < sizeof head && fd_read_all(fd, head + n, 1) == 1 && head[n] != '\n')
        n++;
    if (n < 6 || n == sizeof head || memcmp(head, "tree ", 5) != 0 || !str_u64((struct str){head + 5, n - 5}, &bytes))
        return err_set(e, E_INVALID, "the difference does not begin with its tree");
    if (!bytes || bytes > DIFFERENCE_LIST_MAX)
        return err_set(e, E_TOO_LARGE, "the tree's list has no bytes, or more than %u", DIFFERENCE_LIST_MAX);
    auto_free char *list = xmalloc((size_t)bytes);
    if (fd_read_all(fd, list, (size_t)bytes) != (ssize_t)bytes || list[bytes - 1])
        return err_set(e, E_INVALID, "the tree's list is cut off");
    *ret = list, *ret_n = (size_t)bytes;
    list = NULL;
    return 0;
}

/* The word before the next blank; the text goes on behind it. */
static bool word(const char **at, struct str *ret)
{
    const char *end = strchr(*at, ' ');
    if (!end || end == *at)
        return false;
    *ret = (struct str){*at, (size_t)(end - *at)};
    *at = end + 1;
    return true;
}

static bool number(const char **at, uint64_t *ret)
{
    struct str w;
    return word(at, &w) && str_u64(w, ret);
}

static int parse(const char *line, struct entry *en, struct err *e)
{
    struct str type, mode, time;
    char *end;
    if (word(&line, &type) && type.n == 1 && strchr("fdl", *type.p) && word(&line, &mode) && number(&line, &en->uid) && number(&line, &en->gid) &&
        number(&line, &en->size) && word(&line, &time)) {
        en->type = *type.p;
        en->mode = (mode_t)strtoul(mode.p, &end, 8) & 07777;
        en->mtime = strtoll(time.p, NULL, 10); /* up to the point */
        en->path = line;
        if (end == mode.p + mode.n)
            return 0;
    }
    return err_set(e, E_INVALID, "an entry of the tree's list is malformed");
}

/* What is not listed goes: untar_empty keeps what u->layer holds. */
static int prune(struct untar *u, const char *list, size_t n, struct err *e)
{
    struct entry en;
    char path[UNTAR_PATH_MAX];
    for (const char *at = list; at < list + n; at += strlen(at) + 1)
        if (parse(at, &en, e) || untar_path(en.path, path, e) || strcmp(path, en.path) != 0)
            return err_set(e, E_INVALID, "an entry of the tree's list is malformed");
        else if (*path)
            (void)map_set(&u->layer, path, u);
    int rc = untar_empty(u, "", e);
    map_free(&u->layer);
    return rc;
}

/* ---- the proof ---- */
static bool same(const struct entry *en, const struct stat *st, bool owner)
{
    char type = S_ISREG(st->st_mode) ? 'f' : S_ISDIR(st->st_mode) ? 'd' : S_ISLNK(st->st_mode) ? 'l' : '?';
    if (type != en->type || (owner && (st->st_uid != en->uid || st->st_gid != en->gid)) || (type != 'l' && (st->st_mode & 07777) != en->mode))
        return false;
    return type == 'd' || ((uint64_t)st->st_size == en->size && (long long)st->st_mtime == en->mtime);
}

static int compare(struct untar *u, const char *list, size_t n, struct err *e)
{
    struct entry en;
    struct stat st;
    const char *name;
    char shown[96];
    for (const char *at = list; at < list + n; at += strlen(at) + 1) {
        if (parse(at, &en, e))
            return -1;
        int parent = untar_parent(u, en.path, false, &name, e);
        if (parent < 0 || fstatat(parent, *name ? name : ".", &st, AT_SYMLINK_NOFOLLOW) < 0 || !same(&en, &st, !u->no_owner)) {
            untar_forget_dir(u);
            return err_set(e, E_CONFLICT, "%s does not match the list", untar_show(en.path, shown));
        }
    }
    untar_forget_dir(u);
    return 0;
}

int untar_onto(struct untar *u, int fd, struct err *e)
{
    auto_free char *list = NULL;
    size_t n = 0;
    if (read_list(fd, &list, &n, e) || prune(u, list, n, e) || untar_fd(u, fd, e))
        return -1;
    return compare(u, list, n, e);
}
