/* vm_start: the box's own disk and a slot's descriptors, then the launch. */
#include "backend/vm/qcow2.h"
#include "backend/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "loop/job.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

struct start { /* job: prepares the box's files */
    struct vm_host *host;
    struct vm_variant *variant;
    struct sp_vm req;
    int home, ram, state, top, mid, base; /* descriptors of our own; home and the variant's are duplicates */
    vm_cb *cb;
    void *arg;
    int rc;
    struct err err;
};

static int make_overlay(struct start *s)
{
    char dir[8 + SP_ID], path[32 + SP_ID];
    (void)snprintf(dir, sizeof dir, "boxes/%s", s->req.id);
    (void)snprintf(path, sizeof path, "%s/disk.qcow2", dir);
    if (mkdirat(s->home, "boxes", 0711) && errno != EEXIST)
        return err_sys(&s->err, errno, "sandbox directory");
    if (mkdirat(s->home, dir, 0700) && errno != EEXIST)
        return err_sys(&s->err, errno, "sandbox directory");
    s->top = openat(s->home, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->top < 0)
        return err_sys(&s->err, errno, "sandbox disk");
    return qcow2_create_overlay(s->top, (uint64_t)s->variant->spec.disk_mib << 20, &s->err);
}

static void start_work(void *arg)
{
    struct start *s = arg;
    const struct varfile *f = &s->variant->file; /* immutable while referenced */
    s->rc = make_overlay(s);
    if (s->rc)
        return;
    /* Own descriptions: QEMU moves offsets and takes locks on them. */
    s->state = fd_reopen(f->state_fd, O_RDONLY);
    s->mid = fd_reopen(f->disk_fd, O_RDONLY);
    s->base = fd_reopen(f->base_fd, O_RDONLY);
    s->ram = fcntl(f->ram_fd, F_DUPFD_CLOEXEC, 0);
    if (s->state < 0 || s->mid < 0 || s->base < 0 || s->ram < 0)
        s->rc = err_sys(&s->err, errno, "VM snapshot");
}

static void start_free(struct start *s)
{
    host_unref(s->host);
    vm_variant_unref(s->variant);
    cleanup_fd(&s->home);
    cleanup_fd(&s->ram);
    cleanup_fd(&s->state);
    cleanup_fd(&s->top);
    cleanup_fd(&s->mid);
    cleanup_fd(&s->base);
    free(s);
}

static void start_done(void *arg)
{
    struct start *s = arg;
    if (s->host->closed) {
        start_free(s);
        return;
    }
    if (s->rc) {
        vm_remove_box(s->host, s->req.id);
        s->cb(s->arg, NULL, &s->err);
        start_free(s);
        return;
    }
    int fds[] = {s->ram, s->top, s->mid, s->base};
    s->req.have = 1u << SPF_RAM | 1u << SPF_DISK_TOP | 1u << SPF_DISK_MID | 1u << SPF_DISK_BASE;
    vm_launch(s->host, s->variant, &s->req, fds, 4, take_fd(&s->state), s->cb, s->arg);
    start_free(s);
}

void vm_start(struct vm_host *h, struct vm_variant *v, const char *box_id, const struct vm_limits *lim, vm_cb *cb, void *arg)
{
    struct start *s = xcalloc(1, sizeof *s);
    s->host = host_ref(h);
    s->variant = vm_variant_ref(v);
    s->ram = s->state = s->top = s->mid = s->base = -1;
    s->cb = cb;
    s->arg = arg;
    s->req = (struct sp_vm){.limit = lim->limit, .ram_mib = v->spec.ram_mib, .vcpus = v->spec.vcpus, .accel = h->ident.accel, .incoming = 1,
                            .net = lim->net, .low_priority = lim->low_priority};
    (void)snprintf(s->req.id, sizeof s->req.id, "%s", box_id);
    s->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    job_run(h->conf.jobs, start_work, start_done, s);
}
