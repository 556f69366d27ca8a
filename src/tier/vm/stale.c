/* Variants that nothing can use any more. A key names all a variant depends on,
 * so after an upgrade of the agent, the guest kernel or QEMU the old ones lie
 * there, some hundred MB each, and are never asked for again. They go, unless a
 * machine stands on one: a paused or failed sandbox, a snapshot. Whatever refers
 * to a variant has its key in a JSON file below boxes/ or snapshots/. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "json/read.h"
#include "loop/job.h"
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define JSON_MAX  (256u << 10)
#define DEPTH_MAX 3 /* boxes/<id>/saved/manifest.json */

static DIR *open_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        cleanup_fd(&fd);
    return d;
}

static bool is_json(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && !strcmp(name + n - 5, ".json");
}

/* A file that cannot be read might be the one: then it counts as a reference. */
static bool mentions(int at, const char *name, const char *key)
{
    size_t n;
    auto_free char *text = fd_slurp_at(at, name, JSON_MAX, &n);
    return !text || memmem(text, n, key, strlen(key));
}

static bool referred(int at, const char *dir, const char *key, int depth)
{
    DIR *d = open_dir(at, dir);
    bool hit = false;
    for (struct dirent *t; d && !hit && (t = readdir(d));) {
        if (!strcmp(t->d_name, ".") || !strcmp(t->d_name, ".."))
            continue;
        struct stat st;
        if (fstatat(dirfd(d), t->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue; /* gone meanwhile */
        if (S_ISDIR(st.st_mode))
            hit = depth && referred(dirfd(d), t->d_name, key, depth - 1);
        else if (S_ISREG(st.st_mode) && is_json(t->d_name))
            hit = mentions(dirfd(d), t->d_name, key);
    }
    if (d)
        (void)closedir(d);
    return hit;
}

static bool differs(struct json *j, const char *name, const char *now)
{
    struct str s = {0};
    return json_str(j, name, &s, true, NULL) || !str_eqz(s, now);
}

/* By another agent, guest kernel or emulator. Another accelerator or processor is the operator's to switch back. */
static bool outdated(int vm_dir, const char *key, const struct vm_identity *id)
{
    char path[VM_KEY_SIZE + 16];
    size_t n;
    (void)snprintf(path, sizeof path, "%s/manifest.json", key);
    auto_free char *text = fd_slurp_at(vm_dir, path, JSON_MAX, &n);
    auto_json j = text ? json_parse_obj(text, n, NULL) : NULL;
    return j && (differs(j, "agent", id->agent) || differs(j, "kernel_sums", id->kernel_sums) ||
                 differs(j, "qemu", id->qemu));
}

static int sweep_template(int home, int vm_dir, const struct vm_identity *id)
{
    int gone = 0;
    DIR *d = open_dir(vm_dir, ".");
    for (struct dirent *t; d && (t = readdir(d));) {
        if (strlen(t->d_name) != VM_KEY_SIZE - 1 || !outdated(vm_dir, t->d_name, id))
            continue;
        /* boxes first: a snapshot of one is there before the box goes */
        if (referred(home, "boxes", t->d_name, DEPTH_MAX) ||
            referred(home, "snapshots", t->d_name, DEPTH_MAX))
            continue;
        varfile_remove(vm_dir, t->d_name);
        gone++;
    }
    if (d)
        (void)closedir(d);
    return gone;
}

int varfile_sweep_stale(int home, const struct vm_identity *id)
{
    int gone = 0;
    DIR *d = open_dir(home, "templates");
    for (struct dirent *t; d && (t = readdir(d));) {
        char path[300];
        if (t->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/vm", t->d_name);
        auto_fd vm = openat(dirfd(d), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (vm >= 0)
            gone += sweep_template(home, vm, id);
    }
    if (d)
        (void)closedir(d);
    return gone;
}

struct sweep {
    int home;
    struct vm_identity ident;
};

static void work(void *arg)
{
    struct sweep *s = arg;
    int n = varfile_sweep_stale(s->home, &s->ident);
    if (n)
        log_info("%d VM snapshots of an earlier agent, guest kernel or emulator removed", n);
}

void vm_variants_sweep(struct vm_host *h)
{
    if (!h->ready)
        return;
    struct sweep *s = xcalloc(1, sizeof *s);
    *s = (struct sweep){h->conf.home_fd, h->ident};
    job_run(h->conf.jobs, work, free, s);
}
