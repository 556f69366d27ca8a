#include "tier/vm/initrd.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define AGENT_MAX  (32u << 20)
#define MODULE_MAX (16u << 20)
#define LIST_MAX   (16u << 10)

static void align4(struct buf *b)
{
    static const char zero[4];
    buf_put(b, zero, (4 - b->n % 4) % 4);
}

void cpio_put(struct buf *out, uint32_t ino, const char *path, uint32_t mode, uint32_t rdev_major,
              uint32_t rdev_minor, const void *p, uint32_t n)
{
    size_t name = strlen(path) + 1;
    unsigned nlink = S_ISDIR(mode) ? 2 : 1;
    /* magic ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check */
    buf_printf(out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ino, mode, 0u, 0u,
               nlink, 0u, n, 0u, 0u, rdev_major, rdev_minor, (unsigned)name, 0u);
    buf_put(out, path, name);
    align4(out); /* the archive starts at offset 0 of the buffer: every entry stays aligned to it */
    buf_put(out, p, n);
    align4(out);
}

void cpio_end(struct buf *out)
{
    cpio_put(out, 0, "TRAILER!!!", 0, 0, 0, NULL, 0);
    static const char zero[512];
    buf_put(out, zero, (512 - out->n % 512) % 512);
}

static bool module_name_ok(struct str s)
{
    if (s.n < 4 || s.n > 64 || memcmp(s.p + s.n - 3, ".ko", 3))
        return false;
    for (size_t i = 0; i < s.n - 3; i++)
        if (!(s.p[i] >= 'a' && s.p[i] <= 'z') && !(s.p[i] >= '0' && s.p[i] <= '9') &&
            s.p[i] != '_' && s.p[i] != '-')
            return false;
    return true;
}

static bool next_line(struct str *text, struct str *line)
{
    do {
        if (!text->n)
            return false;
        const char *nl = memchr(text->p, '\n', text->n);
        *line = (struct str){text->p, nl ? (size_t)(nl - text->p) : text->n};
        size_t step = line->n + (nl ? 1 : 0);
        text->p += step, text->n -= step;
    } while (!line->n);
    return true;
}

/* The list goes in checked and without blank lines. */
static int put_list(struct str list, uint32_t ino, struct buf *out, struct err *e)
{
    auto_buf text = {0};
    struct str line;
    while (next_line(&list, &line)) {
        if (!module_name_ok(line))
            return err_set(e, E_INVALID, "the kernel's modules.list contains an invalid name");
        buf_printf(&text, "%.*s\n", (int)line.n, line.p);
    }
    cpio_put(out, ino, "modules.list", S_IFREG | 0644, 0, 0, text.p, (uint32_t)text.n);
    return 0;
}

static int put_modules(int dir, struct str list, uint32_t ino, struct buf *out, struct err *e)
{
    struct str line;
    while (next_line(&list, &line)) {
        char path[80];
        (void)snprintf(path, sizeof path, "modules/%.*s", (int)line.n, line.p);
        size_t n;
        auto_free char *ko = fd_slurp_at(dir, path, MODULE_MAX, &n);
        if (!ko)
            return err_sys(e, errno, "kernel %s", path);
        cpio_put(out, ino++, path, S_IFREG | 0644, 0, 0, ko, (uint32_t)n);
    }
    return 0;
}

int initrd_build(int kernel_dir, int agent_fd, struct buf *out, struct err *e)
{
    auto_buf b = {0};
    size_t nlist, nagent;
    auto_free char *list = fd_slurp_at(kernel_dir, "modules.list", LIST_MAX, &nlist);
    if (!list)
        return err_sys(e, errno, "kernel modules.list");
    if (lseek(agent_fd, 0, SEEK_SET) < 0)
        return err_sys(e, errno, "agent binary");
    auto_free char *agent = fd_slurp(agent_fd, AGENT_MAX, &nagent);
    if (!agent)
        return err_sys(e, errno, "agent binary");
    if (nagent < 4 || memcmp(agent, "\177ELF", 4))
        return err_set(e, E_INVALID, "the agent is not an ELF program");

    static const char *const dirs[] = {"dev", "proc", "sys", "root", "modules"};
    uint32_t ino = 1;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        cpio_put(&b, ino++, dirs[i], S_IFDIR | 0755, 0, 0, NULL, 0);
    cpio_put(&b, ino++, "dev/console", S_IFCHR | 0600, 5, 1, NULL, 0);
    cpio_put(&b, ino++, "init", S_IFREG | 0755, 0, 0, agent, (uint32_t)nagent);
    struct str names = {list, nlist};
    if (put_list(names, ino, &b, e) || put_modules(kernel_dir, names, ino + 1, &b, e))
        return -1;
    cpio_end(&b);
    buf_free(out);
    *out = b;
    b = (struct buf){0};
    return 0;
}
