/* The reading half of tar.h: a push parser. Names are resolved one component at
 * a time with O_NOFOLLOW beneath the root, so no link in the archive, whenever
 * it was made, can lead anywhere else. ".." is refused. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define META_MAX (1 << 20) /* bytes of one long name or pax header */

void untar_init(struct untar *u, int root, const struct untar_may *may)
{
    *u = (struct untar){.root = root, .may = *may, .file = PARTIAL_NONE};
}

bool tar_link_stays(const char *target, unsigned depth)
{
    bool down = false;
    if (*target == '/')
        return false;
    for (const char *p = target; *p;) {
        size_t n = strcspn(p, "/");
        bool up = n == 2 && !memcmp(p, "..", 2), here = !n || (n == 1 && *p == '.');
        if (up && (down || !depth--))
            return false;
        down |= !up && !here;
        p += n;
        p += strspn(p, "/");
    }
    return true;
}

static int count(struct untar *u, struct err *e)
{
    if (u->entries >= u->may.entries)
        return err_set(
            e, E_TOO_LARGE,
            "there are more than %lld files and directories, the limit; --max-files raises it",
            (long long)u->may.entries);
    u->entries++;
    return 0;
}

static bool number(const char *p, size_t n, int64_t *ret)
{
    uint64_t v = 0;
    if ((unsigned char)p[0] == 0x80) { /* GNU binary */
        for (size_t i = 1; i < n; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | (unsigned char)p[i];
        }
        *ret = (int64_t)v;
        return true;
    }
    size_t i = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60)
            return false;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    *ret = (int64_t)v;
    return i == n || p[i] == 0 || p[i] == ' ';
}

static int make_dir(struct untar *u, int dir, const char *name, mode_t mode, struct err *e)
{
    if (!mkdirat(dir, name, mode))
        return count(u, e);
    return errno == EEXIST ? 0 : err_sys(e, errno, "cannot create the directory %s", name);
}

/* Opens the parent of name beneath the root, making missing folders; *last points into name, *depth: folders between it and the root. */
static int parent_of(struct untar *u, char *name, char **last, unsigned *depth, struct err *e)
{
    auto_fd dir = dup(u->root);
    char *p = name;
    *depth = 0;
    if (dir < 0)
        return err_sys(e, errno, "dup");
    for (;;) {
        while (*p == '/')
            p++;
        char *slash = strchr(p, '/');
        if (!strcmp(p, ".."))
            break;
        if (!slash || !slash[strspn(slash, "/")]) {
            if (slash)
                *slash = 0;
            if (!strcmp(p, ".."))
                break;
            *last = p; /* may be "" or ".": the root itself */
            return take_fd(&dir);
        }
        *slash = 0;
        if (!strcmp(p, ".."))
            break;
        if (strcmp(p, ".") != 0) {
            if (make_dir(u, dir, p, 0755, e))
                return -1;
            int next = openat(dir, p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (next < 0)
                return err_sys(e, errno, "cannot enter the directory %s", p);
            (void)close(dir);
            dir = next;
            ++*depth;
        }
        p = slash + 1;
    }
    return err_set(e, E_INVALID, "the archive contains '..': refused");
}

static int make_link(struct untar *u, int dir, const char *name, unsigned depth, struct err *e)
{
    if (u->link.n && !u->may.links_out && !tar_link_stays(u->link.p, depth)) {
        u->left_out++;
        return 0;
    }
    (void)unlinkat(
        dir, name,
        0); /* an older file or link of that name; a folder stays and the next call says so */
    if (!u->link.n || symlinkat(u->link.p, dir, name))
        return err_sys(e, u->link.n ? errno : EINVAL, "cannot create the link %s", name);
    return count(u, e);
}

static int make_entry(struct untar *u, struct err *e)
{
    char *last = NULL;
    unsigned depth;
    if (!u->name.n || memchr(u->name.p, 0, u->name.n))
        return err_set(e, E_INVALID, "the archive has an entry with an invalid name");
    if (u->type == 'x' || u->type == 'g' || strchr("1346", u->type)) {
        u->skipped += strchr("1346", u->type) != NULL; /* hard links, devices, pipes */
        return 0;
    }
    auto_fd dir = parent_of(u, u->name.p, &last, &depth, e);
    if (dir < 0)
        return -1;
    bool self = !*last || !strcmp(last, ".");
    if (u->type == '5')
        return self ? 0 : make_dir(u, dir, last, (u->mode & 0777) | 0700, e);
    if (self)
        return err_set(e, E_INVALID, "the archive has a file without a name");
    if (u->type == '2')
        return make_link(u, dir, last, depth, e);
    if (count(u, e) || partial_begin(&u->file, dir, u->mode & 0777, e))
        return -1;
    u->file_name = xstrdup(last);
    return 0;
}

/* "len key=value\n" records; only path, linkpath and size matter here */
static int apply_pax(struct untar *u, struct err *e)
{
    const char *p = u->pax.p, *end = p + u->pax.n;
    while (p < end) {
        const char *sp = memchr(p, ' ', (size_t)(end - p));
        uint64_t n = 0;
        if (!sp || !str_u64((struct str){p, (size_t)(sp - p)}, &n) || n > (uint64_t)(end - p) || n < (uint64_t)(sp - p) + 3 || p[n - 1] != '\n')
            return err_set(e, E_INVALID, "the archive has a broken extended header");
        const char *kv = sp + 1, *next = p + n, *eq = memchr(kv, '=', (size_t)(next - kv));
        if (!eq)
            return err_set(e, E_INVALID, "the archive has a broken extended header");
        struct str k = {kv, (size_t)(eq - kv)}, v = {eq + 1, (size_t)(next - 1 - (eq + 1))};
        struct buf *to = str_eqz(k, "path") ? &u->name : str_eqz(k, "linkpath") ? &u->link : NULL;
        if (to)
            to->n = 0, buf_put(to, v.p, v.n);
        uint64_t size;
        if (str_eqz(k, "size") && (!str_u64(v, &size) || size > INT64_MAX / 2))
            return err_set(e, E_INVALID, "the archive has a broken size");
        else if (str_eqz(k, "size"))
            u->size = (int64_t)size;
        p = next;
    }
    u->pax.n = 0;
    return 0;
}

static int on_head(struct untar *u, struct err *e)
{
    const char *h = u->head.p;
    int64_t sum = 0, want = 0, mode = 0;
    for (int i = 0; i < 512; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)h[i];
    if (sum == ' ' * 8) { /* a block of zeros */
        u->done = true;
        return 0;
    }
    if (!number(h + 148, 8, &want) || want != sum || !number(h + 124, 12, &u->size) || !number(h + 100, 8, &mode) || u->size < 0)
        return err_set(e, E_INVALID, "not a tar archive, or a damaged one");
    u->type = h[156] ? h[156] : '0';
    u->mode = (unsigned)mode;
    bool meta = strchr("LKxg", u->type) != NULL;
    if (!meta) {
        if (!u->name.n) {
            if (h[345] && !memcmp(h + 257, "ustar\0", 6)) {
                buf_put(&u->name, h + 345, strnlen(h + 345, 155));
                buf_putc(&u->name, '/');
            }
            buf_put(&u->name, h, strnlen(h, 100));
        }
        if (!u->link.n)
            buf_put(&u->link, h + 157, strnlen(h + 157, 100));
        if (u->pax.n && apply_pax(u, e))
            return -1;
        if (make_entry(u, e))
            return -1;
        u->name.n = u->link.n = 0;
    } else if (u->size > META_MAX)
        return err_set(e, E_TOO_LARGE, "the archive has a name of %lld bytes", (long long)u->size);
    if (u->type == '5' || u->type == '2' || strchr("1346", u->type))
        u->size = 0; /* these carry no bytes, whatever the field says */
    u->left = u->size;
    u->padding = -u->size & 511;
    return 0;
}

static int on_data(struct untar *u, const char *p, size_t n, struct err *e)
{
    struct buf *to = u->type == 'L' ? &u->name : u->type == 'K' ? &u->link : u->type == 'x' ? &u->pax : NULL;
    if (to)
        buf_put(to, p, n);
    if (to || u->file.fd < 0)
        return 0;
    if ((int64_t)n > u->may.bytes - u->bytes)
        return err_set(e, E_TOO_LARGE,
                       "it is larger than %lld MiB, the limit; --max-size raises it",
                       (long long)(u->may.bytes >> 20));
    u->bytes += (int64_t)n;
    return fd_write_all(u->file.fd, p, n)
               ? 0
               : err_sys(e, errno, "cannot write '%.100s'", u->file_name);
}

static int on_data_end(struct untar *u, struct err *e)
{
    struct buf *z = u->type == 'L' ? &u->name : u->type == 'K' ? &u->link : NULL;
    while (z && z->n && !z->p[z->n - 1]) /* GNU long names end in NUL */
        z->n--;
    if (u->file.fd < 0)
        return 0;
    auto_free char *name = take_ptr(&u->file_name);
    return partial_keep(&u->file, name, e);
}

int untar_push(struct untar *u, const char *p, size_t n, struct err *e)
{
    while (n && !u->done) {
        size_t k;
        if (u->left) {
            k = (uint64_t)u->left < n ? (size_t)u->left : n;
            if (on_data(u, p, k, e))
                return -1;
            if (!(u->left -= (int64_t)k) && on_data_end(u, e))
                return -1;
        } else if (u->padding) {
            k = (uint64_t)u->padding < n ? (size_t)u->padding : n;
            u->padding -= (int64_t)k;
        } else {
            k = 512 - u->head.n < n ? 512 - u->head.n : n;
            buf_put(&u->head, p, k);
            if (u->head.n == 512) {
                int rc = on_head(u, e);
                u->head.n = 0;
                if (rc)
                    return -1;
                if (!u->left && on_data_end(u, e))
                    return -1;
            }
        }
        p += k;
        n -= k;
    }
    return 0;
}

int untar_end(struct untar *u, struct err *e)
{
    bool whole = u->done || (!u->left && !u->head.n && !u->padding);
    partial_drop(&u->file);
    free(take_ptr(&u->file_name));
    buf_free(&u->head);
    buf_free(&u->name);
    buf_free(&u->link);
    buf_free(&u->pax);
    return whole ? 0 : err_set(e, E_INVALID, "the archive ended early");
}
