#include "guest/path.h"
#include "base/cleanup.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

void place_fini(struct place *p)
{
    free(p->path);
    cleanup_fd(&p->dir);
}

int path_user(struct agent *a, struct rec r, struct user *ret, struct err *e)
{
    struct str name;
    if (!rec_get(r, T_USER, &name) || !name.n)
        name = str_of(a->def_user ? a->def_user : "root");
    return user_find(&a->users, name, ret, e);
}

int path_err(struct err *e, int sys, const char *path)
{
    switch (sys) {
    case ENOENT:
        return err_set(e, E_NOT_FOUND, "path '%.190s' does not exist", path);
    case EISDIR:
        return err_set(e, E_INVALID, "path '%.190s' is a directory", path);
    case ENOTDIR:
        return err_set(e, E_INVALID, "path '%.190s' is not a directory", path);
    case EEXIST:
        return err_set(e, E_CONFLICT, "path '%.190s' already exists", path);
    case ENOTEMPTY:
        return err_set(e, E_CONFLICT, "directory '%.180s' is not empty", path);
    case ELOOP:
        return err_set(e, E_INVALID, "path '%.180s' has too many symbolic links", path);
    case ENXIO: /* a FIFO without a reader, a socket */
        return err_set(e, E_INVALID, "path '%.180s' is not a regular file", path);
    case ENOSPC: case EDQUOT:
        return err_set(e, E_QUOTA, "no space left on device");
    case EXDEV:
        return err_set(e, E_INVALID, "path '%.150s' is on another file system; copy it instead", path);
    default: /* what has no better name is the file's, not the daemon's, fault */
        (void)err_sys(e, sys, "path '%.150s'", path);
        if (e->code == E_INTERNAL)
            e->code = E_GUEST;
        return -1;
    }
}

/* Adds s to the n bytes in out, without empty and "." parts; ".." takes the part before it away, as it is written, whatever
 * links there are: what a path is called in answers is then what was meant. Returns the length. */
static size_t tidy(char *out, size_t n, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        while (i < len && s[i] == '/')
            i++;
        size_t k = i;
        while (k < len && s[k] != '/')
            k++;
        if (k == i + 2 && s[i] == '.' && s[i + 1] == '.') {
            while (n && out[--n] != '/')
                ;
        } else if (k > i && !(k == i + 1 && s[i] == '.')) {
            out[n++] = '/';
            memcpy(out + n, s + i, k - i);
            n += k - i;
        }
        i = k;
    }
    return n;
}

char *path_absolute(const struct user *u, struct str s, const char *what, struct err *e)
{
    if (!s.n || memchr(s.p, 0, s.n)) {
        err_set(e, E_INVALID, s.n ? "%s contains a NUL byte" : "no %s given", what);
        return NULL;
    }
    bool home = s.p[0] != '/';
    if (s.p[0] == '~' && (s.n == 1 || s.p[1] == '/'))
        s.p++, s.n--;
    size_t h = home ? strlen(u->home) : 0;
    if (s.n + h + 2 > PATH_LIMIT) {
        err_set(e, E_INVALID, "%s is longer than %d bytes", what, PATH_LIMIT);
        return NULL;
    }
    char *out = xmalloc(s.n + h + 3);
    size_t n = home ? tidy(out, 0, u->home, h) : 0;
    n = tidy(out, n, s.p, s.n);
    if (!n)
        out[n++] = '/';
    out[n] = 0;
    return out;
}

int open_beneath(int dir, const char *path, int flags, unsigned mode)
{
    static bool missing; /* gVisor and old kernels: plain openat */
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC), .resolve = RESOLVE_NO_MAGICLINKS};
    if (flags & O_CREAT)
        how.mode = mode;
    if (!missing) {
        long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
        if (fd >= 0 || errno != ENOSYS)
            return (int)fd;
        missing = true;
    }
    return openat(dir, path, flags | O_CLOEXEC, mode);
}

/* Walks down from "/", making what is missing. Links in existing parts are followed. */
static int make_parents(const char *path, const struct user *u)
{
    char part[256];
    auto_fd at = open_beneath(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
    while (at >= 0) {
        const char *end = strchr(path + 1, '/');
        if (!end)
            return take_fd(&at);
        size_t n = (size_t)(end - path - 1);
        if (n >= sizeof part) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, path + 1, n), part[n] = 0;
        path = end;
        int next = open_beneath(at, part, O_PATH | O_DIRECTORY, 0);
        if (next < 0 && errno == ENOENT) {
            bool made = !mkdirat(at, part, 0755);
            if (!made && errno != EEXIST)
                return -1;
            next = open_beneath(at, part, O_PATH | O_DIRECTORY | (made ? O_NOFOLLOW : 0), 0);
            if (next >= 0 && made && u->uid)
                (void)!fchownat(next, "", u->uid, u->gid, AT_EMPTY_PATH);
        }
        close(at);
        at = next;
    }
    return -1;
}

int place_open(struct agent *a, struct rec r, uint8_t tag, bool parents, struct place *ret, struct err *e)
{
    struct str s = {0};
    *ret = (struct place){.dir = -1};
    if (path_user(a, r, &ret->user, e))
        return -1;
    (void)rec_get(r, tag, &s);
    if (!(ret->path = path_absolute(&ret->user, s, "path", e)))
        return -1;
    char *slash = strrchr(ret->path, '/');
    ret->base = slash[1] ? slash + 1 : ".";
    if (slash == ret->path)
        ret->dir = open_beneath(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
    else {
        *slash = 0;
        ret->dir = open_beneath(AT_FDCWD, ret->path, O_PATH | O_DIRECTORY, 0);
        *slash = '/';
        if (ret->dir < 0 && errno == ENOENT && parents)
            ret->dir = make_parents(ret->path, &ret->user);
    }
    return ret->dir < 0 ? path_err(e, errno, ret->path) : 0;
}

int place_changeable(const struct place *p, struct err *e)
{
    if (!strcmp(p->base, "."))
        return err_set(e, E_INVALID, "path '%.150s' cannot be removed or replaced", p->path);
    return 0;
}
