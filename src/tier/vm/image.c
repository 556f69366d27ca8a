/* Memory of a snapshot that its machines share.
 *
 * One machine made of a snapshot maps the variant's memory and reads the
 * snapshot's pages over it, each page its own from then on. Many of them would
 * each hold the same pages. So once it pays, the two are put together in one
 * sealed file in memory, which all further machines map privately: what they do
 * not write they share, and there is nothing for them to read but device state.
 * Such a machine names the snapshot in its machine.json (`image`): the pages it
 * saves are its own and those of the snapshot, so that what it leaves on disk
 * stands on the variant as ever.
 *
 * One object per snapshot that machines of ours were made of, made or only
 * counted; gone with the last of them. Loop thread, but for image_compose. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/copy.h"
#include "base/fd.h"
#include "base/log.h"
#include "loop/job.h"
#include "spawn/pages.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct waiter {
    struct list node;
    image_cb *cb;
    void *arg;
};

struct vm_image *image_of(struct vm_host *h, const char *snapshot_id)
{
    struct vm_image *m;
    list_each(m, &h->images, node)
        if (!strcmp(m->id, snapshot_id))
            return image_ref(m);
    m = xcalloc(1, sizeof *m);
    m->refs = 1;
    m->ram_fd = m->devices_fd = -1;
    (void)snprintf(m->id, sizeof m->id, "%s", snapshot_id);
    list_init(&m->waiters);
    list_add_tail(&h->images, &m->node);
    return m;
}

struct vm_image *image_ref(struct vm_image *m)
{
    m->refs++;
    return m;
}

void image_unref(struct vm_image *m)
{
    if (!m || --m->refs)
        return;
    list_del(&m->node);
    cleanup_fd(&m->ram_fd);
    cleanup_fd(&m->devices_fd);
    free(m);
}

/* It takes the variant's bytes and the snapshot's once; without it each machine takes the latter. */
bool image_pays(const struct vm_image *m, unsigned copies, uint64_t variant_bytes, uint32_t pages)
{
    uint64_t each = (uint64_t)pages * PAGE_BYTES,
             machines = m->refs - 1 + (copies ? copies : 1); /* one reference is who asks */
    return m->ram_fd >= 0 || m->making || (!m->failed && machines * each > variant_bytes + each);
}

/* ---- making it ------------------------------------------------------------------------------------------------------ */

static int compose_devices(const struct savedfile *f, int to, struct err *e)
{
    static const unsigned char head[QEVM_HEAD] = {'Q', 'E', 'V', 'M', 0, 0, 0, 3};
    size_t n = (size_t)f->parts.devices_bytes;
    auto_free unsigned char *p = xmalloc(n);
    if (pread(f->state_fd, p, n, (off_t)f->parts.pages_bytes) != (ssize_t)n ||
        !fd_write_all(to, head, sizeof head) || !fd_write_all(to, p, n))
        return err_sys(e, errno, "device state of a snapshot");
    return 0;
}

int image_compose(int variant_ram, const struct savedfile *f, int *ret_ram, int *ret_devices,
                  struct err *e)
{
    auto_fd ram = memfd_create("hutch-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING),
            devices = memfd_create("hutch-devices", MFD_CLOEXEC);
    auto_fd from =
        variant_ram >= 0 ? fd_reopen(variant_ram, O_RDONLY) : -1; /* an offset of our own */
    if (ram < 0 || devices < 0 || (variant_ram >= 0 && from < 0) ||
        ftruncate(ram, (off_t)f->machine.spec.ram_mib << 20))
        return err_sys(e, errno, "memory of a snapshot");
    if ((from >= 0 && copy_sparse(from, ram, e)) || savedfile_apply(f, ram, e) ||
        compose_devices(f, devices, e))
        return -1;
    if (fcntl(ram, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return err_sys(e, errno, "memory of a snapshot");
    *ret_ram = take_fd(&ram);
    *ret_devices = take_fd(&devices);
    return 0;
}

struct making { /* the job's until it is done */
    struct vm_host *host;
    struct vm_image *image;     /* loop thread only */
    struct vm_variant *variant; /* a reference or NULL */
    struct savedfile saved;     /* descriptors of its own */
    int ram_fd, devices_fd, rc;
    struct err err;
};

static void make_work(void *arg)
{
    struct making *k = arg;
    k->rc = image_compose(k->variant ? k->variant->file.ram_fd : -1, &k->saved, &k->ram_fd,
                          &k->devices_fd, &k->err);
}

static void make_done(void *arg)
{
    struct making *k = arg;
    struct vm_image *m = k->image;
    m->making = false;
    m->failed = k->rc != 0;
    m->ram_fd = k->ram_fd;
    m->devices_fd = k->devices_fd;
    if (k->rc)
        log_warn("snapshot %s: its machines do not share memory: %s", m->id, k->err.msg);
    while (!list_empty(&m->waiters)) {
        struct waiter *w = container_of(m->waiters.next, struct waiter, node), x = *w;
        list_del(&w->node);
        free(w);
        x.cb(x.arg);
    }
    savedfile_close(&k->saved);
    vm_variant_unref(k->variant);
    image_unref(m);
    host_unref(k->host);
    free(k);
}

void image_make(struct vm_host *h, struct vm_image *m, struct vm_variant *v,
                const struct savedfile *f, image_cb *cb, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    *w = (struct waiter){.cb = cb, .arg = arg};
    list_add_tail(&m->waiters, &w->node);
    if (m->making)
        return;
    struct making *k = xcalloc(1, sizeof *k);
    *k = (struct making){.host = host_ref(h),
                         .image = image_ref(m),
                         .variant = v ? vm_variant_ref(v) : NULL,
                         .saved = *f,
                         .ram_fd = -1,
                         .devices_fd = -1};
    k->saved.state_fd = fcntl(f->state_fd, F_DUPFD_CLOEXEC, 0); /* only ever read with pread */
    k->saved.index_fd = fcntl(f->index_fd, F_DUPFD_CLOEXEC, 0);
    m->making = true;
    job_run(h->conf.jobs, make_work, make_done, k);
}
