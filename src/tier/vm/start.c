/* Slots and boots: the box's files, the descriptors, then the launch.
 *   vm_start   a new box on a variant: a fresh overlay
 *   vm_start_from  a new box on a snapshot: a fresh overlay over the snapshot's disk, then as one of the two below
 *   vm_resume  a saved box: its own disk, the variant's memory, the saved pages over it
 *   vm_boot    a box's disk under a new kernel */
#include "tier/vm/qcow2.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "loop/job.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum how { NEW, RESUME, BOOT };

struct start {
    struct vm_host *host;
    struct vm_variant *variant;
    struct vm_image *image; /* of the snapshot, if it has memory */
    unsigned copies;
    bool shared;          /* its memory is the image's */
    struct varfile disks; /* without a variant: a RAM that begins empty needs nothing else of it */
    enum how how;
    char from[SP_ID]; /* the snapshot it is made of; "": none */
    bool fresh;       /* the box is new: a failure takes its files away */
    struct sp_vm req;
    struct vm_machine machine;
    struct vm_identity ident;
    struct savedfile saved;
    int home, ram, state, top, mid, base, layer[SP_LAYERS_MAX]; /* descriptors of our own */
    /* RESUME: QEMU starts while a worker checks the pages */
    struct vm *vm;
    int pending, check_fd;
    bool damaged;
    vm_cb *cb;
    void *arg;
    int rc;
    struct err err;
};

static struct start *start_new(struct vm_host *h, enum how how, const char *box_id,
                               const struct vm_limits *lim, vm_cb *cb, void *arg)
{
    struct start *s = xcalloc(1, sizeof *s);
    s->host = host_ref(h);
    s->how = how;
    s->fresh = how == NEW;
    s->ident = h->ident;
    s->ram = s->state = s->top = s->mid = s->base = s->check_fd = s->saved.state_fd =
        s->saved.index_fd = -1;
    for (int i = 0; i < SP_LAYERS_MAX; i++)
        s->layer[i] = -1;
    varfile_init(&s->disks);
    s->cb = cb;
    s->arg = arg;
    s->req = (struct sp_vm){.limit = lim->limit,
                            .accel = h->ident.accel,
                            .incoming = how != BOOT,
                            .low_priority = lim->low_priority,
                            .tsc_khz = h->ident.tsc_khz,
                            .ram_private = 1};
    (void)snprintf(s->req.id, sizeof s->req.id, "%s", box_id);
    s->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    return s;
}

static void start_free(struct start *s)
{
    int *fds[] = {&s->home, &s->ram, &s->state, &s->top, &s->mid, &s->base, &s->check_fd};
    vm_variant_unref(s->variant);
    image_unref(s->image);
    host_unref(s->host); /* after what is in its lists */
    varfile_close(&s->disks);
    savedfile_close(&s->saved);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        cleanup_fd(fds[i]);
    for (int i = 0; i < SP_LAYERS_MAX; i++)
        cleanup_fd(&s->layer[i]);
    free(s);
}

/* The spawner is told no more; what we made a moment ago we take away ourselves. */
static void forget_files(struct start *s)
{
    char path[64];
    (void)snprintf(path, sizeof path, "boxes/%s", s->req.id);
    auto_fd dir = openat(s->home, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    (void)unlinkat(dir, "disk.qcow2", 0);
    (void)unlinkat(dir, "machine.json", 0);
    (void)unlinkat(s->home, path, AT_REMOVEDIR);
}

static void start_failed(struct start *s)
{
    if (s->fresh && s->host->closed)
        forget_files(s);
    else if (s->fresh)
        vm_remove_box(s->host, s->req.id);
    if (!s->host->closed)
        s->cb(s->arg, NULL, &s->err);
    start_free(s);
}

/* ---- files: on a worker ------------------------------------------------------------------------------------------ */

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
    return qcow2_create_overlay(s->top, (uint64_t)s->machine.spec.disk_mib << 20, &s->err);
}

static int open_top(struct start *s)
{
    char path[48 + SP_ID], name[24];
    uint64_t size;
    machine_top_name(s->machine.top, name);
    (void)snprintf(path, sizeof path, "boxes/%s/%s", s->req.id, name);
    s->top = openat(s->home, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (s->top < 0)
        return err_sys(&s->err, errno, "sandbox disk");
    return qcow2_check_overlay(s->top, &size, &s->err);
}

static int open_layers(struct start *s)
{
    for (int i = 0; i < s->machine.layers.n; i++) {
        char path[32 + SP_ID];
        uint64_t size;
        (void)snprintf(path, sizeof path, "snapshots/%s/disk.qcow2", s->machine.layers.id[i]);
        s->layer[i] = openat(s->home, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (s->layer[i] < 0)
            return err_set(&s->err, E_CONFLICT, "a snapshot that its disk is based on is missing");
        if (qcow2_check_overlay(s->layer[i], &size, &s->err))
            return -1;
    }
    return 0;
}

/* Own descriptions: QEMU moves offsets and takes locks on them. */
static int open_variant(struct start *s)
{
    const struct varfile *f =
        s->variant ? &s->variant->file : &s->disks; /* immutable while referenced */
    s->mid = fd_reopen(f->disk_fd, O_RDONLY);
    s->base = fd_reopen(f->base_fd, O_RDONLY);
    if (s->shared) {
        s->ram = fcntl(s->image->ram_fd, F_DUPFD_CLOEXEC, 0);
    } else if (s->machine
                   .booted) { /* an empty RAM, sealed like any other: the mapping is private */
        s->ram = memfd_create("hutch-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (s->ram >= 0 &&
            (ftruncate(s->ram, (off_t)s->machine.spec.ram_mib << 20) ||
             fcntl(s->ram, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
            return err_sys(&s->err, errno, "guest memory");
    } else {
        s->ram = fcntl(f->ram_fd, F_DUPFD_CLOEXEC, 0);
    }
    s->state = s->how == NEW ? fd_reopen(f->state_fd, O_RDONLY)
               : s->shared   ? fd_reopen(s->image->devices_fd, O_RDONLY)
                             : take_fd(&s->saved.state_fd);
    if (s->mid < 0 || s->base < 0 || s->ram < 0 || (s->how != BOOT && s->state < 0))
        return err_sys(&s->err, errno, "VM snapshot");
    return 0;
}

static int rebuilt(struct err *e)
{
    return err_set(
        e, E_CONFLICT,
        "the template's VM snapshot was rebuilt since; what is based on the old one cannot be used");
}

/* A kernel that boots fits every emulator, also one that was not there when its disk began. */
static int open_disks(struct start *s)
{
    if (varfile_open_disks(&s->disks, s->home, &s->machine.spec, s->machine.key, &s->err))
        return -1;
    return strcmp(s->disks.disk_sha256, s->machine.disk_sha256) ? rebuilt(&s->err) : 0;
}

/* NEW: everything. The others: the parts that need the variant. */
static void files_work(void *arg)
{
    struct start *s = arg;
    if (s->how == NEW) {
        machine_of_variant(s->variant, &s->machine);
        s->rc = make_overlay(s) || machine_write(s->home, s->req.id, &s->machine, false, &s->err);
    } else {
        bool same = !s->fresh && (s->how != BOOT || s->machine.booted) && !*s->machine.image;
        s->machine.booted |= s->how == BOOT;
        s->machine.image[0] = '\0'; /* saved pages are relative to the variant */
        if (s->shared)
            memcpy(s->machine.image, s->from, sizeof s->machine.image);
        s->rc = (s->fresh ? make_overlay(s) : open_top(s)) || open_layers(s) ||
                (!same && machine_write(s->home, s->req.id, &s->machine, !s->fresh, &s->err));
    }
    if (!s->rc && !s->variant)
        s->rc = open_disks(s);
    if (!s->rc)
        s->rc = open_variant(s);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

/* RESUME: launch and check are both over. */
static void resume_over(struct start *s)
{
    if (--s->pending)
        return;
    if (s->rc) {
        if (s->vm) {
            vm_free(s->vm);
            if (!s->fresh)
                vm_release_box(s->host, s->req.id);
        }
        start_failed(s);
        return;
    }
    if (s->host->closed)
        vm_free(s->vm);
    else
        s->cb(s->arg, s->vm, NULL);
    start_free(s);
}

static void on_launched(void *arg, struct vm *vm, const struct err *e)
{
    struct start *s = arg;
    s->vm = vm;
    if (e && !s->rc)
        s->rc = -1, s->err = *e;
    resume_over(s);
}

static void verify_work(void *arg)
{
    struct start *s = arg;
    struct savedfile f = s->saved;
    f.state_fd = s->check_fd;
    s->damaged = savedfile_verify(&f, NULL);
}
static void verify_done(void *arg)
{
    struct start *s = arg;
    if (s->damaged && !s->rc)
        s->rc = err_set(
            &s->err, E_CONFLICT,
            "its saved memory is damaged; its files are kept (resume with \"memory\": false boots it from them)");
    resume_over(s);
}

static void launch(struct start *s)
{
    int fds[SPF_MAX], n = 0;
    int by[SPF_MAX] = {[SPF_RAM] = s->ram,
                       [SPF_STATE] = -1,
                       [SPF_DISK_TOP] = s->top,
                       [SPF_DISK_MID] = s->mid,
                       [SPF_DISK_BASE] = s->base,
                       [SPF_KERNEL] = s->how == BOOT ? s->host->kernel_fd : -1,
                       [SPF_INITRD] = s->how == BOOT ? s->host->initrd_fd : -1};
    for (int i = 0; i < SP_LAYERS_MAX; i++)
        by[SPF_LAYER + i] = s->layer[i];
    for (int i = 0; i < SPF_MAX; i++)
        if (by[i] >= 0) {
            s->req.have |= 1u << i;
            fds[n++] = by[i];
        }
    s->req.ram_mib = s->machine.spec.ram_mib;
    s->req.vcpus = s->machine.spec.vcpus;
    struct vm_launch l = {.req = &s->req,
                          .fds = fds,
                          .nfds = n,
                          .variant = s->variant,
                          .image = s->image,
                          .machine = &s->machine,
                          .keep_files = !s->fresh};
    if (s->how != RESUME || s->shared) { /* what is shared was checked when it was made */
        l.state_fd = take_fd(&s->state);
        vm_launch(s->host, l, s->cb, s->arg);
        start_free(s);
        return;
    }
    /* QEMU starts while the pages are read and checked: both take some 20 ms */
    s->pending = 2;
    s->check_fd = fcntl(s->state, F_DUPFD_CLOEXEC, 0); /* the worker reads with pread */
    l.state_fd = take_fd(&s->state);
    job_run(s->host->conf.jobs, verify_work, verify_done, s);
    vm_launch(s->host, l, on_launched, s);
}

static void files_done(void *arg)
{
    struct start *s = arg;
    if (s->rc || s->host->closed)
        start_failed(s);
    else
        launch(s);
}

void vm_start(struct vm_host *h, struct vm_variant *v, const char *box_id,
              const struct vm_limits *lim, vm_cb *cb, void *arg)
{
    struct start *s = start_new(h, NEW, box_id, lim, cb, arg);
    s->variant = vm_variant_ref(v);
    job_run(h->conf.jobs, files_work, files_done, s);
}

/* ---- what was there before ---------------------------------------------------------------------------------------- */

static void image_there(void *arg)
{
    struct start *s = arg;
    s->shared = s->image->ram_fd >= 0;
    if (s->host->closed)
        start_failed(s);
    else
        job_run(s->host->conf.jobs, files_work, files_done, s);
}

/* One of many that are made of a snapshot shares its memory with them. */
static void begin_files(struct start *s)
{
    if (s->how != RESUME || !*s->from) {
        job_run(s->host->conf.jobs, files_work, files_done, s);
        return;
    }
    s->image = image_of(s->host, s->from);
    if (s->image->ram_fd < 0 &&
        image_pays(s->image, s->copies, s->variant ? s->variant->file.ram_bytes : 0,
                   s->saved.facts.pages))
        image_make(s->host, s->image, s->variant, &s->saved, image_there, s);
    else
        image_there(s);
}

static void on_variant(void *arg, struct vm_variant *v, const struct err *e)
{
    struct start *s = arg;
    if (!e && (strcmp(v->file.disk_sha256, s->machine.disk_sha256) ||
               strcmp(v->file.ram_sha256, s->machine.ram_sha256))) {
        s->rc = rebuilt(&s->err);
        vm_variant_unref(v);
        start_failed(s);
        return;
    }
    if (e) {
        s->err = *e;
        start_failed(s);
        return;
    }
    s->variant = v;
    begin_files(s);
}

static void look_at_snapshot(struct start *s)
{
    auto_fd dir = saved_dir_open(s->home, NULL, s->from, &s->err);
    struct vm_layers *l = &s->machine.layers;
    s->rc = dir < 0          ? -1
            : s->how == BOOT ? savedfile_machine(&s->saved, dir, &s->err)
                             : savedfile_open(&s->saved, dir, &s->ident, &s->err);
    if (s->rc)
        return;
    s->machine = s->saved.machine;
    s->machine.top = 0;
    if (s->how == RESUME && !s->saved.facts.memory)
        s->rc = err_set(&s->err, E_NOT_FOUND, "the snapshot has no memory");
    else if (l->n == SP_LAYERS_MAX)
        s->rc = err_set(&s->err, E_QUOTA, "the snapshot chain is too deep");
    else
        memcpy(l->id[l->n++], s->from, SP_ID);
}

static void look_work(void *arg)
{
    struct start *s = arg;
    if (*s->from) {
        look_at_snapshot(s);
        return;
    }
    s->rc = vm_machine_read(s->home, s->req.id, &s->machine, &s->err);
    if (s->rc || s->how == BOOT)
        return;
    auto_fd dir = saved_dir_open(s->home, s->req.id, NULL, &s->err);
    s->rc = dir < 0 ? -1 : savedfile_open(&s->saved, dir, &s->ident, &s->err);
    if (!s->rc && !s->saved.facts.memory)
        s->rc = err_set(&s->err, E_NOT_FOUND, "its memory was not saved");
}

static void look_done(void *arg)
{
    struct start *s = arg;
    if (!s->rc && !s->host->ready)
        s->rc = err_set(&s->err, E_UNAVAILABLE,
                        "the guest kernel is not installed yet: build template base first");
    if (s->rc || s->host->closed)
        start_failed(s);
    else if (s->how == BOOT || s->machine.booted)
        begin_files(s);
    else
        variant_load_key(s->host, &s->machine.spec, s->machine.key, on_variant, s);
}

void vm_resume(struct vm_host *h, const char *box_id, const struct vm_limits *lim, vm_cb *cb,
               void *arg)
{
    struct start *s = start_new(h, RESUME, box_id, lim, cb, arg);
    job_run(h->conf.jobs, look_work, look_done, s);
}

void vm_boot(struct vm_host *h, const char *box_id, const struct vm_limits *lim, vm_cb *cb,
             void *arg)
{
    struct start *s = start_new(h, BOOT, box_id, lim, cb, arg);
    job_run(h->conf.jobs, look_work, look_done, s);
}

void vm_start_from(struct vm_host *h, const char *snapshot_id, bool boot, unsigned copies,
                   const char *box_id, const struct vm_limits *lim, vm_cb *cb, void *arg)
{
    struct start *s = start_new(h, boot ? BOOT : RESUME, box_id, lim, cb, arg);
    s->fresh = true;
    s->copies = copies;
    (void)snprintf(s->from, sizeof s->from, "%s", snapshot_id);
    job_run(h->conf.jobs, look_work, look_done, s);
}
