/* struct vm_saving: a machine on its way to disk. Files are made and published
 * by jobs; in between QEMU writes its devices while the spawner copies memory,
 * both at once. The object lives until its owner frees it and nothing of it is
 * under way any more. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "loop/job.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct vm_saving {
    struct vm_host *host;
    struct vm *vm; /* borrowed, in `take` */
    char box[SP_ID], snapshot[SP_ID];
    struct vm_machine machine;
    struct vm_identity ident;
    struct savedtmp tmp;
    struct vm_saved facts;
    int home, also; /* also: pages of the image it was started from */
    bool freed, memory, known;
    int pending; /* parts of the step under way */
    int rc, copy_rc;
    struct err err, copy_err;
    vm_saving_cb *cb;
    void *arg;
};

const struct vm_saved *vm_saving_facts(const struct vm_saving *s) { return &s->facts; }

static void bury(struct vm_saving *s)
{
    host_unref(s->host);
    cleanup_fd(&s->home);
    cleanup_fd(&s->also);
    free(s);
}

static void drop_work(void *arg) { savedtmp_drop(&((struct vm_saving *)arg)->tmp); }
static void drop_done(void *arg) { bury(arg); }

/* The owner let go and nothing is under way: the files go, on a worker. */
static void end(struct vm_saving *s)
{
    if (s->host->closed) {
        savedtmp_drop(&s->tmp);
        bury(s);
        return;
    }
    job_run(s->host->conf.jobs, drop_work, drop_done, s);
}

void vm_saving_free(struct vm_saving *s)
{
    if (!s || s->freed)
        return;
    s->freed = true;
    s->vm = NULL;
    if (!s->pending)
        end(s);
}

/* One part of a step came back; the last one answers. */
static void part_done(struct vm_saving *s, const struct err *e)
{
    if (e && !s->rc) {
        s->rc = -1;
        s->err = *e;
    }
    if (--s->pending)
        return;
    if (s->freed) {
        end(s);
        return;
    }
    if (!s->host->closed)
        s->cb(s->arg, s, s->rc ? &s->err : NULL);
}

static void begin(struct vm_saving *s, int parts, vm_saving_cb *cb, void *arg)
{
    s->pending = parts;
    s->rc = 0;
    s->cb = cb;
    s->arg = arg;
}

/* ---- new --------------------------------------------------------------------------------------------------------- */

static int too_deep(const struct vm_saving *s, struct err *e)
{
    if (!*s->snapshot || s->machine.layers.n < SP_LAYERS_MAX)
        return 0;
    return err_set(e, E_QUOTA, "it is based on a chain of %d snapshots, the limit",
                   s->machine.layers.n);
}

static void open_work(void *arg)
{
    struct vm_saving *s = arg;
    if (!s->known) {
        s->rc = err_set(&s->err, E_CONFLICT,
                        "there is no record of its machine, so it cannot be saved");
        return;
    }
    if ((s->rc = too_deep(s, &s->err)))
        return;
    s->rc = savedtmp_open(&s->tmp, s->home, s->box, *s->snapshot ? s->snapshot : NULL, s->memory,
                          &s->err);
    if (!s->rc && *s->snapshot)
        s->rc = savedtmp_open_disk(&s->tmp, s->home, s->box, s->machine.top, &s->err);
    if (s->rc || !s->memory || !*s->machine.image)
        return;
    auto_fd dir = saved_dir_open(s->home, NULL, s->machine.image, &s->err);
    s->also = dir < 0 ? -1 : openat(dir, "pages.idx", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (s->also < 0)
        s->rc = err_set(&s->err, E_CONFLICT, "the snapshot it was started from no longer exists");
}

static void job_done(void *arg)
{
    struct vm_saving *s = arg;
    part_done(s, NULL); /* rc and err are the job's */
}

static struct vm_saving *saving_alloc(struct vm_host *h, const char *box_id,
                                      const char *snapshot_id, bool memory)
{
    struct vm_saving *s = xcalloc(1, sizeof *s);
    s->host = host_ref(h);
    s->memory = memory;
    s->ident = h->ident;
    s->also = -1;
    (void)snprintf(s->box, sizeof s->box, "%s", box_id);
    (void)snprintf(s->snapshot, sizeof s->snapshot, "%s", snapshot_id ? snapshot_id : "");
    savedtmp_init(&s->tmp);
    s->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    return s;
}

struct vm_saving *vm_saving_new(struct vm *vm, const char *snapshot_id, bool memory,
                                vm_saving_cb *cb, void *arg)
{
    struct vm_host *h = vm_host_of(vm);
    struct vm_saving *s = saving_alloc(h, vm_id(vm), snapshot_id, memory);
    const struct vm_machine *m = vm_machine_of(vm);
    s->vm = vm;
    s->known = m != NULL;
    if (m)
        s->machine = *m;
    begin(s, 1, cb, arg);
    job_run(h->conf.jobs, open_work, job_done, s);
    return s;
}

/* ---- of one that is saved ---------------------------------------------------------------------------------------- */

static void saved_work(void *arg)
{
    struct vm_saving *s = arg;
    struct err *e = &s->err;
    s->rc = vm_machine_read(s->home, s->box, &s->machine, e) || too_deep(s, e) ||
                    savedtmp_open(&s->tmp, s->home, s->box, s->snapshot, false, e) ||
                    (s->memory && savedtmp_link_memory(&s->tmp, s->home, s->box, &s->ident,
                                                       &s->machine, &s->facts, e)) ||
                    savedtmp_open_disk(&s->tmp, s->home, s->box, s->machine.top, e) ||
                    savedtmp_copy_disk(&s->tmp, e)
                ? -1
                : 0;
}

struct vm_saving *vm_saving_of_saved(struct vm_host *h, const char *box_id, const char *snapshot_id,
                                     bool memory, vm_saving_cb *cb, void *arg)
{
    struct vm_saving *s = saving_alloc(h, box_id, snapshot_id, memory);
    begin(s, 1, cb, arg);
    job_run(h->conf.jobs, saved_work, job_done, s);
    return s;
}

/* ---- take -------------------------------------------------------------------------------------------------------- */

static void on_devices(void *arg, struct vm *vm, const struct err *e)
{
    vm_set_saving(vm, NULL);
    part_done(arg, e);
}

static void on_pages(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    part_done(arg, rep->rc ? &rep->err : NULL);
}

struct failure {
    struct vm_saving *s;
    struct err err;
};
static void fail_now(void *arg)
{
    struct failure f = *(struct failure *)arg;
    free(arg);
    part_done(f.s, &f.err);
}
static void fail_later(struct vm_saving *s, const struct err *e)
{
    struct failure *f = xcalloc(1, sizeof *f);
    *f = (struct failure){s, *e};
    loop_defer(s->host->conf.loop, fail_now, f);
}

void saving_vm_freed(struct vm_saving *s)
{
    struct err e;
    s->vm = NULL;
    (void)err_set(&e, E_GONE, "the VM ended while it was saved");
    fail_later(s, &e);
}

static void copy_work(void *arg)
{
    struct vm_saving *s = arg;
    s->copy_rc = savedtmp_copy_disk(&s->tmp, &s->copy_err);
}
static void copy_done(void *arg)
{
    struct vm_saving *s = arg;
    part_done(s, s->copy_rc ? &s->copy_err : NULL);
}

void vm_saving_take(struct vm_saving *s, vm_saving_cb *cb, void *arg)
{
    struct err e;
    begin(s, (*s->snapshot ? 1 : 0) + (s->memory ? 2 : 0), cb, arg);
    if (*s->snapshot)
        job_run(s->host->conf.jobs, copy_work, copy_done, s);
    if (!s->memory)
        return;
    /* the access mode must be the one QEMU asks its fdset for */
    auto_fd out = fd_reopen(s->tmp.dev_fd, O_WRONLY);
    if (out < 0) {
        (void)err_sys(&e, errno, "device state");
        fail_later(s, &e);
    } else {
        vm_set_saving(s->vm, s);
        vm_save_state(s->vm, out, on_devices, s);
    }
    struct sp_req q = {
        .op = SP_VM_SAVE,
        .u.save = {.ram_mib = s->machine.spec.ram_mib, .skip_zero = s->machine.booted}};
    memcpy(q.u.save.id, s->box, sizeof q.u.save.id);
    int fds[3] = {s->tmp.state_fd, s->tmp.index_fd, s->also};
    if (spawn_call(s->host->conf.spawn, &q, fds, s->also >= 0 ? 3 : 2, on_pages, s, &e))
        fail_later(s, &e);
}

/* ---- publish ----------------------------------------------------------------------------------------------------- */

static void publish_work(void *arg)
{
    struct vm_saving *s = arg;
    s->rc = savedtmp_publish(&s->tmp, &s->machine, &s->ident, &s->facts, &s->err);
}

void vm_saving_publish(struct vm_saving *s, uint64_t generation, vm_saving_cb *cb, void *arg)
{
    begin(s, 1, cb, arg);
    s->facts.generation = generation;
    job_run(s->host->conf.jobs, publish_work, job_done, s);
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

int vm_saved_read(struct vm_host *h, const char *box_id, struct vm_saved *ret, struct err *e)
{
    struct savedfile f = {.state_fd = -1, .index_fd = -1};
    auto_fd dir = saved_dir_open(h->conf.home_fd, box_id, NULL, e);
    if (dir < 0)
        return -1;
    int rc = savedfile_open(&f, dir, &h->ident, e);
    *ret = f.facts;
    savedfile_close(&f);
    return rc;
}

int vm_snapshot_read(struct vm_host *h, const char *snapshot_id, struct vm_saved *ret,
                     struct err *e)
{
    struct savedfile f = {.state_fd = -1, .index_fd = -1};
    auto_fd dir = saved_dir_open(h->conf.home_fd, NULL, snapshot_id, e);
    if (dir < 0 || savedfile_machine(&f, dir, e))
        return -1;
    *ret = f.facts;
    return 0;
}

struct dropping {
    int home;
    char box[SP_ID];
};
static void saved_drop_work(void *arg)
{
    struct dropping *d = arg;
    saved_remove(d->home, d->box);
    cleanup_fd(&d->home);
}
static void saved_drop_done(void *arg) { free(arg); }

void vm_saved_drop(struct vm_host *h, const char *box_id)
{
    struct dropping *d = xcalloc(1, sizeof *d);
    d->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    (void)snprintf(d->box, sizeof d->box, "%s", box_id);
    job_run(h->conf.jobs, saved_drop_work, saved_drop_done, d);
}
