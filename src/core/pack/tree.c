/* The snapshot of one directory: a tar that a command inside writes, kept as
 * snapshots/<id>/tree.tar and never opened on the host; and its way into a
 * sandbox, where another command unpacks it beside the place and then puts it
 * there by a rename. What lies in the sandbox, links above all, is therefore not
 * walked through, and a failure leaves the place as it was. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/catalog/snapshot.h"
#include "core/sandbox/spool.h"
#include "base/tree.h"
#include "core/life/usage.h"
#include "loop/job.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_MS   (30 * 60 * 1000)
#define PATH_MOST 4096

#define TAR \
    "command -v tar >/dev/null || { echo 'there is no tar in the sandbox' >&2; exit 2; }; x=; tar --version 2>/dev/null | grep -q GNU && x=\"--numeric-owner --xattrs --xattrs-include=*\"; set -f; "

/* $1: the directory, $2: how many names it may have */
static const char read_script[] = TAR
    "cd -- \"$1\" || exit 2; n=$(find . -xdev | wc -l); [ \"$n\" -le \"$2\" ] || { echo \"$n files and directories, the limit (HUTCH_TREE_FILES) is $2\" >&2; exit 75; }; "
    "[ -z \"$x\" ] || x=\"$x --sparse --one-file-system --warning=no-file-ignored\"; exec tar $x -cf - .";

/* $1: the place */
static const char write_script[] = TAR
    "set -e; p=$(dirname -- \"$1\"); mkdir -p -- \"$p\"; t=$(mktemp -d \"$p/.hutch-XXXXXX\"); trap 'rm -rf -- \"$t\"' EXIT; mkdir \"$t/new\"; "
    "tar $x -C \"$t/new\" -xpf -; if [ -e \"$1\" ] || [ -L \"$1\" ]; then mv -T -- \"$1\" \"$t/old\"; fi; "
    "mv -T -- \"$t/new\" \"$1\" || { mv -T -- \"$t/old\" \"$1\"; exit 4; }";

static int check_path(const char *path, struct err *e)
{
    if (*path != '/' || strlen(path) >= PATH_MOST || !path[strspn(path, "/")])
        return err_set(
            e, E_INVALID,
            "path: must be the absolute path of a directory other than /; leave path out for everything");
    for (const char *p = path; (p = strstr(p, "/..")); p += 3)
        if (!p[3] || p[3] == '/')
            return err_set(e, E_INVALID, "path: must not have '..' in it");
    return 0;
}

/* ---- take ---------------------------------------------------------------------------------------------------------- */

struct keeping {
    struct core *core;
    char id[22], sandbox[22];
    uint32_t keep_last;
    int home, dir, fd;
    struct stat st;
    int rc;
    struct err err;
    snapshot_cb *done;
    void *arg;
};

static void bury(void *arg)
{
    struct keeping *k = arg;
    cleanup_fd(&k->fd), cleanup_fd(&k->dir), cleanup_fd(&k->home);
    free(k);
}

static void scrap_work(void *arg)
{
    struct keeping *k = arg;
    char tmp[32];
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", k->id);
    if (k->dir >= 0 && tree_remove(k->dir, tmp, &k->err))
        log_warn("snapshot %s: %s", k->id, k->err.msg); /* the next start sweeps it */
}

static void fail(struct keeping *k, const struct err *e)
{
    struct err copy = *e;
    struct snapshot *s = snapshot_at(k->core, k->id);
    if (s)
        snapshot_forget(s);
    k->done(k->arg, NULL, &copy);
    job_run(k->core->jobs, scrap_work, bury, k);
}

static void stored(void *arg, const struct err *e)
{
    struct keeping *k = arg;
    struct snapshot *s = snapshot_at(k->core, k->id);
    if (e) {
        fail(k, e); /* without a row the next start sweeps the directory */
        return;
    }
    snapshot_made(s, k->keep_last);
    event_emit(k->core, "snapshot.made", snapshot_tenant(s), k->sandbox, NULL);
    k->done(k->arg, s, NULL);
    bury(k);
}

static void publish_work(void *arg)
{
    struct keeping *k = arg;
    char tmp[32];
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", k->id);
    if (fdatasync(k->fd) || fstat(k->fd, &k->st) || renameat(k->dir, tmp, k->dir, k->id) ||
        fsync(k->dir))
        k->rc = err_sys(&k->err, errno, "publishing a snapshot");
}

static void published(void *arg)
{
    struct keeping *k = arg;
    if (k->rc) {
        fail(k, &k->err);
        return;
    }
    struct snapshot *s = snapshot_at(k->core, k->id);
    s->disk_bytes = (uint64_t)k->st.st_blocks * 512;
    snapshot_store(s, stored, k);
}

static void was_read(void *arg, uint64_t bytes, const struct err *e)
{
    struct keeping *k = arg;
    (void)bytes;
    if (e)
        fail(k, e);
    else
        job_run(k->core->jobs, publish_work, published, k);
}

static void open_work(void *arg)
{
    struct keeping *k = arg;
    char path[48];
    (void)snprintf(path, sizeof path, ".%s.tmp", k->id);
    k->dir = openat(k->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->dir < 0 || mkdirat(k->dir, path, 0700)) {
        k->rc = err_sys(&k->err, errno, "directory of a snapshot");
        return;
    }
    (void)snprintf(path, sizeof path, ".%s.tmp/tree.tar", k->id);
    k->fd = openat(k->dir, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    k->rc = k->fd < 0 ? err_sys(&k->err, errno, "file of a snapshot") : 0;
}

static void opened(void *arg)
{
    struct keeping *k = arg;
    struct snapshot *s = snapshot_at(k->core, k->id);
    struct sandbox *sb = sandbox_at(k->core, k->sandbox);
    const struct config *cfg = &k->core->cfg;
    char files[16], what[120];
    const char *const args[] = {s->path, files, NULL};
    (void)snprintf(files, sizeof files, "%u", cfg->tree_files);
    (void)snprintf(what, sizeof what, "reading '%.80s'", s->path);
    struct spool_spec how = {.script = read_script,
                             .args = args,
                             .what = what,
                             .out = k->fd,
                             .in = -1,
                             .max = (uint64_t)cfg->tree_mib << 20,
                             .limit = "HUTCH_TREE_MAX",
                             .timeout_ms = TREE_MS};
    if (!k->rc && !sb)
        k->rc = err_set(&k->err, E_GONE, "sandbox %s ended", k->sandbox);
    if (k->rc || !spool_start(sb, &how, was_read, k, &k->err))
        fail(k, &k->err);
}

int snapshot_take_tree(struct sandbox *sb, const struct snapshot_spec *asked, snapshot_cb *done,
                       void *arg, struct err *e)
{
    struct snapshot_spec how = *asked;
    if (check_path(how.path, e) || snapshot_name_free(sb->core, sandbox_tenant(sb), how.name, e) ||
        usage_check(sb->core, sandbox_tenant(sb), 0, e) || !sandbox_agent(sb, e))
        return -1;
    if (how.memory_wanted)
        return err_set(e, E_INVALID, "memory: a directory has none");
    how.files_only = true;
    struct snapshot *s = snapshot_new(sb, &how);
    struct keeping *k = xcalloc(1, sizeof *k);
    *k = (struct keeping){.core = sb->core,
                          .keep_last = how.keep_last,
                          .home = fcntl(sb->core->home_fd, F_DUPFD_CLOEXEC, 0),
                          .dir = -1,
                          .fd = -1,
                          .done = done,
                          .arg = arg};
    memcpy(k->id, s->id, sizeof k->id);
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    job_run(k->core->jobs, open_work, opened, k);
    return 0;
}

/* ---- put ----------------------------------------------------------------------------------------------------------- */

struct putting {
    int fd;
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void was_put(void *arg, uint64_t bytes, const struct err *e)
{
    struct putting p = *(struct putting *)arg;
    (void)bytes;
    free(arg);
    (void)close(p.fd);
    p.done(p.arg, e);
}

int snapshot_put_tree(struct snapshot *s, struct sandbox *sb, const char *path,
                      void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
    char file[64], what[160];
    if (!s->path)
        return err_set(
            e, E_INVALID,
            "snapshot '%s' is of a whole sandbox: create a sandbox from it, or roll back to it",
            s->name ? s->name : s->id);
    if (!path)
        path = s->path;
    if (check_path(path, e))
        return -1;
    (void)snprintf(file, sizeof file, "snapshots/%s/tree.tar", s->id);
    auto_fd fd = openat(sb->core->home_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "the files of snapshot %s", s->id);
    const char *const args[] = {path, NULL};
    (void)snprintf(what, sizeof what, "putting a directory at '%.80s'", path);
    struct spool_spec how = {.script = write_script,
                             .args = args,
                             .what = what,
                             .out = -1,
                             .in = fd,
                             .timeout_ms = TREE_MS};
    struct putting *p = xcalloc(1, sizeof *p);
    *p = (struct putting){.fd = fd, .done = done, .arg = arg};
    if (!spool_start(sb, &how, was_put, p, e)) {
        free(p);
        return -1;
    }
    (void)take_fd(&fd);
    return 0;
}
