#include "core/code/kernels.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/sandbox/files.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "crypto/digest.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GUEST_DIR "/usr/lib/hutch/kernels"
#define FILES_MAX 64
#define FILE_MAX  (60u << 10) /* one window of the channel: a write never waits */
#define DEPTH_MAX 4

struct kernel_file {
    char *path /* "./python/kernel.py" */, *text;
    size_t n;
};
struct kernels {
    struct kernel_file file[FILES_MAX];
    size_t n;
    char dir[96];
};

/* ---- the files on the host ---- */
static bool wanted(const char *name)
{
    return *name != '.' && strcmp(name, "__pycache__") && strcmp(name, "README.md");
}

static int read_dir(struct kernels *k, int at, const char *dir, const char *prefix, int depth,
                    struct err *e)
{
    int fd = openat(at, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *en;
    int rc = 0;
    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return err_sys(e, errno, "kernels: %s", prefix);
    }
    while (!rc && (en = readdir(d))) {
        struct stat st;
        if (!wanted(en->d_name) || fstatat(fd, en->d_name, &st, 0))
            continue;
        auto_free char *path = xasprintf("%s/%s", prefix, en->d_name);
        if (S_ISDIR(st.st_mode)) {
            rc = depth < DEPTH_MAX ? read_dir(k, fd, en->d_name, path, depth + 1, e)
                                   : err_set(e, E_INTERNAL, "kernels: too deep");
            continue;
        }
        size_t n = 0;
        char *text = k->n < FILES_MAX ? fd_slurp_at(fd, en->d_name, FILE_MAX, &n) : NULL;
        if (!text)
            rc = k->n < FILES_MAX ? err_sys(e, errno, "kernels: %s", path)
                                  : err_set(e, E_INTERNAL, "kernels: too many files");
        else
            k->file[k->n++] = (struct kernel_file){take_ptr(&path), text, n};
    }
    (void)closedir(d);
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct kernel_file *)a)->path, ((const struct kernel_file *)b)->path);
}

/* The same bytes as share/tools/bootstrap.sh hashes: every path and a newline, then the file, in byte order of the paths. */
static void name_dir(struct kernels *k)
{
    char hex[SHA256_HEX];
    struct sha256 *h = sha256_new();
    qsort(k->file, k->n, sizeof *k->file, by_path);
    for (size_t i = 0; i < k->n; i++) {
        sha256_add(h, k->file[i].path, strlen(k->file[i].path));
        sha256_add(h, "\n", 1);
        sha256_add(h, k->file[i].text, k->file[i].n);
    }
    sha256_end_hex(h, hex);
    (void)snprintf(k->dir, sizeof k->dir, GUEST_DIR "/%.16s", hex);
}

int kernels_load(struct core *c, struct err *e)
{
    char path[240];
    (void)snprintf(path, sizeof path, "%s/kernels", c->cfg.share);
    c->kernels = xcalloc(1, sizeof *c->kernels);
    if (read_dir(c->kernels, AT_FDCWD, path, ".", 0, e))
        return -1;
    name_dir(c->kernels);
    return 0;
}

void kernels_free(struct core *c)
{
    for (size_t i = 0; c->kernels && i < c->kernels->n; i++)
        free(c->kernels->file[i].path), free(c->kernels->file[i].text);
    free(c->kernels);
    c->kernels = NULL;
}

/* ---- into a sandbox ---- */
struct ensure {
    struct core *core;
    struct agent *agent; /* there as long as its calls succeed */
    char tmp[128];
    void (*cb)(void *arg, const struct err *e);
    void *arg;
    size_t left;
    struct err err;
};

static void finish(struct ensure *w, const struct err *e)
{
    w->cb(w->arg, e);
    free(w);
}

static void moved(void *arg, const struct err *e, const struct file_entry *en)
{
    struct ensure *w = arg;
    (void)en;
    finish(w, e && e->code != E_CONFLICT ? e : NULL); /* somebody else was faster */
}

static void written(void *arg, const struct err *e, const struct file_entry *en)
{
    struct ensure *w = arg;
    (void)en;
    if (e && !w->err.code)
        w->err = *e;
    if (--w->left)
        return;
    if (w->err.code ||
        files_move_on(w->agent, w->tmp, w->core->kernels->dir, "root", moved, w, &w->err)) {
        err_wrap(&w->err, "installing the code kernels in the sandbox");
        finish(w, &w->err);
    }
}

static void write_all(struct ensure *w)
{
    static const struct file_write_ops ops = {.done = written};
    const struct kernels *k = w->core->kernels;
    char id[22];
    id_make('k', id);
    (void)snprintf(w->tmp, sizeof w->tmp, GUEST_DIR "/%s", id);
    w->left = 1;
    for (size_t i = 0; i < k->n && !w->err.code; i++) {
        auto_free char *path = xasprintf("%s%s", w->tmp, k->file[i].path + 1);
        struct file_write_spec s = {.path = path, .user = "root", .mode = 0644};
        struct file_write *f = file_write_start_on(w->agent, &s, &ops, w, &w->err);
        if (!f)
            break;
        w->left++;
        (void)file_write_send(f, k->file[i].text, k->file[i].n); /* fits: FILE_MAX */
        file_write_eof(f);
    }
    written(w, NULL, NULL); /* our own share */
}

static void looked(void *arg, const struct err *e, const struct file_entry *en)
{
    struct ensure *w = arg;
    (void)en;
    if (e && e->code == E_NOT_FOUND)
        write_all(w);
    else
        finish(w, e);
}

int kernels_ensure(struct core *c, struct agent *a, void (*cb)(void *arg, const struct err *e),
                   void *arg, struct err *e)
{
    if (!a)
        return -1;
    if (!c->kernels || !c->kernels->n)
        return err_why(e, REASON_HOST_CANNOT, E_UNSUPPORTED,
                       "the code kernels are not installed on this host (share/kernels)");
    struct ensure *w = xcalloc(1, sizeof *w);
    *w = (struct ensure){.core = c, .agent = a, .cb = cb, .arg = arg};
    if (files_stat_on(a, c->kernels->dir, "root", looked, w, e)) {
        free(w);
        return -1;
    }
    return 0;
}

const char *kernels_version(const struct core *c)
{
    return c->kernels ? c->kernels->dir + sizeof GUEST_DIR : "";
}

void kernels_command(struct core *c, enum language l, bool warm, struct kernel_cmd *ret)
{
    size_t n = 0;
    const char *dir = c->kernels ? c->kernels->dir : "";
    *ret = (struct kernel_cmd){0};
    (void)snprintf(ret->text, sizeof ret->text, "%s/%s", dir,
                   l == LANG_PYTHON ? "python/kernel.py" : "relay.py");
    ret->argv[n++] = "python3";
    if (l != LANG_PYTHON)
        ret->argv[n++] = "-IS";
    ret->argv[n++] = ret->text;
    if (l != LANG_PYTHON)
        ret->argv[n++] = language_name(l);
    else if (warm)
        ret->argv[n++] = "--warm";
}
