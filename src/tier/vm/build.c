/* Building a variant: boot, let the caller prepare the guest, stop, save the
 * device state, quit, write RAM, publish, read it back.
 *
 *   FILES (job) -> LAUNCH (spawner) -> BOOT (caller) -> SAVE (QMP) -> PUBLISH (job) -> LOAD
 *                                       '-> FAILED (spawner: the console) -> FILES, or the end
 *
 * BOOT has a deadline, and one retry with everything made anew: under emulation
 * a loaded host can hang a guest while it looks for its timer. In the second
 * boot the kernel says all it does. What was on the console of a guest that did
 * not come up is in log/console.log. A build that is
 * overtaken by a new kernel or agent starts over with those. One that was
 * cancelled lives on without callbacks until what is in flight came back. */
#include "tier/vm/console.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "loop/job.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ATTEMPTS      2
#define SHOWN         6 /* lines of its console, if a guest did not come up */
#define BUILD_PIDS    256
#define BUILD_THREADS 1000u /* cpu_millis per vCPU */

enum stage { ST_FILES, ST_LAUNCH, ST_BOOT, ST_FAILED, ST_SAVE, ST_PUBLISH, ST_LOAD };

struct vm_build {
    struct list node;     /* in host->builds */
    struct vm_host *host; /* reference */
    struct vm_spec spec;
    struct vm_identity
        ident; /* as of this attempt's start: a reload of kernel or agent meanwhile does not mix in */
    char key[VM_KEY_SIZE]; /* likewise */
    char id[SP_ID];        /* of this attempt's box */
    const struct vm_build_ops *ops;
    void *arg;
    enum stage stage;
    int attempt;
    bool cancelled, over;
    bool in_flight;           /* a job, a launch or a load will come back to us */
    bool in_job;              /* a worker is using us */
    bool box;                 /* `id` must be removed */
    int home, kernel, initrd; /* own duplicates */
    struct vartmp tmp;
    struct vm *vm;
    struct timer deadline;
    int rc;
    struct err err; /* of the job, of the boot */
};

const char *vm_build_id(const struct vm_build *b) { return b->id; }

static void attempt_start(struct vm_build *b);

static void progress(struct vm_build *b, int percent, const char *what)
{
    if (!b->cancelled && !b->host->closed && b->ops->progress)
        b->ops->progress(b->arg, percent, what);
}

/* End this attempt's machine and its box. */
static void drop_vm(struct vm_build *b)
{
    timer_stop(&b->deadline);
    vm_free(b->vm);
    b->vm = NULL;
    if (b->box)
        vm_remove_box(b->host, b->id);
    b->box = false;
}

static void drop_files_work(void *arg)
{
    vartmp_drop(arg);
    free(arg);
}
static void drop_files(struct vm_build *b)
{
    struct vartmp *t = xmalloc(sizeof *t);
    *t = b->tmp;
    vartmp_init(&b->tmp);
    if (b->host->closed) /* shutting down: nobody waits for us, and the pool takes no more */
        drop_files_work(t);
    else
        job_run(b->host->conf.jobs, drop_files_work, NULL, t);
}

static void build_bury(void *arg)
{
    struct vm_build *b = arg;
    cleanup_fd(&b->home);
    cleanup_fd(&b->kernel);
    cleanup_fd(&b->initrd);
    list_del(&b->node);
    host_unref(b->host);
    free(b);
}

/* Over. v: a reference that goes to the caller, or NULL. */
static void finish(struct vm_build *b, struct vm_variant *v, const struct err *e)
{
    struct err why = e ? *e : (struct err){0};
    b->over = true;
    drop_vm(b);
    drop_files(b);
    if (b->cancelled || b->host->closed)
        vm_variant_unref(v);
    else
        b->ops->done(b->arg, v, e ? &why : NULL);
    b->cancelled = true; /* a late vm_build_prepared or cancel in this turn does nothing */
    loop_defer(b->host->conf.loop, build_bury, b);
}

void builds_drop(struct vm_host *h)
{
    struct vm_build *b;
    list_each(b, &h->builds, node)
        if (!b->over && !b->in_job) /* a worker's result finds the host closed by itself */
            finish(b, NULL, NULL);
}

void vm_build_cancel(struct vm_build *b)
{
    if (!b || b->cancelled)
        return;
    b->cancelled = true;
    if (!b->in_flight)
        finish(b, NULL, NULL);
    else
        drop_vm(b);
}

/* What the next attempt is made of. */
static int take_parts(struct vm_build *b, struct err *e)
{
    cleanup_fd(&b->kernel);
    cleanup_fd(&b->initrd);
    b->ident = b->host->ident;
    vm_key(b->host, &b->spec, b->key);
    b->kernel = fcntl(b->host->kernel_fd, F_DUPFD_CLOEXEC, 0);
    b->initrd = fcntl(b->host->initrd_fd, F_DUPFD_CLOEXEC, 0);
    return b->kernel < 0 || b->initrd < 0 ? err_sys(e, errno, "building a VM snapshot") : 0;
}

/* Once more, with everything made anew. */
static void again(struct vm_build *b, const char *what)
{
    struct err e;
    drop_vm(b);
    drop_files(b);
    progress(b, 5, what);
    if (take_parts(b, &e))
        finish(b, NULL, &e);
    else
        attempt_start(b);
}

/* ---- it did not come up ---- */

/* Once more, or give up. known: what is on its console, perhaps nothing; else the spawner could not say. */
static void boot_over(struct vm_build *b, struct str console, bool known)
{
    struct err why = b->err;
    if (b->cancelled || b->host->closed) {
        finish(b, NULL, &why);
        return;
    }
    char what[512];
    (void)snprintf(what, sizeof what, "template %s, boot %d of %d: %s", b->spec.template_id,
                   b->attempt, ATTEMPTS, why.msg);
    if (known)
        console_log(b->host, what, console);
    if (b->attempt < ATTEMPTS) {
        again(b, "the guest did not boot; trying again");
        return;
    }
    struct str rest = console_last(console, SHOWN);
    while (rest.n) {
        char line[200];
        size_t n = (size_t)((const char *)memchr(rest.p, '\n', rest.n) - rest.p);
        (void)snprintf(line, sizeof line, "console: %.*s", (int)n, rest.p);
        progress(b, 15, line);
        rest.p += n + 1, rest.n -= n + 1;
    }
    if (known)
        console_explain(&why, console);
    finish(b, NULL, &why);
}

static void on_console(void *arg, struct str text, const struct err *e)
{
    struct vm_build *b = arg;
    b->in_flight = false;
    boot_over(b, text, !e);
}

static void boot_failed(struct vm_build *b, const struct err *e)
{
    timer_stop(&b->deadline);
    b->stage = ST_FAILED;
    b->err = *e;
    if (b->cancelled || b->host->closed || vm_console(b->host, b->id, on_console, b, NULL))
        boot_over(b, (struct str){0}, false);
    else
        b->in_flight = true;
}

void vm_build_silent(struct vm_build *b, const struct err *why)
{
    if (!b->cancelled && !b->over && b->stage == ST_BOOT)
        boot_failed(b, why);
}

/* Has the host another kernel or agent by now? Then nobody can use what this attempt made. */
static bool overtaken(struct vm_build *b)
{
    char now[VM_KEY_SIZE];
    vm_key(b->host, &b->spec, now);
    if (!strcmp(now, b->key))
        return false;
    b->attempt = 0;
    again(b, "kernel or agent changed; starting over");
    return true;
}

static void on_deadline(void *arg)
{
    struct vm_build *b = arg;
    struct err e;
    (void)err_why(&e, REASON_GUEST_BOOT, E_TIMEOUT,
                  "the guest of template %s was not ready within %d s", b->spec.template_id,
                  (int)(b->host->conf.boot_timeout_ns / NS_PER_S));
    boot_failed(b, &e);
}

static void on_lost(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct vm_build *b = arg;
    struct err why = *e;
    (void)err_wrap(&why, "booting template %s", b->spec.template_id);
    if (b->stage == ST_BOOT)
        boot_failed(b, &why);
    /* in ST_SAVE the pending call reports it */
}

/* ---- publish and load ---- */

static void on_loaded(void *arg, struct vm_variant *v, const struct err *e)
{
    struct vm_build *b = arg;
    b->in_flight = false;
    if (!e)
        progress(b, 100, "ready");
    finish(b, v, e);
}

static void publish_work(void *arg)
{
    struct vm_build *b = arg;
    b->rc = vartmp_publish(&b->tmp, &b->spec, &b->ident, b->key, &b->err);
}

static void publish_done(void *arg)
{
    struct vm_build *b = arg;
    b->in_flight = b->in_job = false;
    if (b->rc || b->cancelled || b->host->closed) {
        finish(b, NULL, b->rc ? &b->err : NULL);
        return;
    }
    if (overtaken(b))
        return;
    variant_forget(b->host, b->key);
    progress(b, 92, "checking what was written");
    b->stage = ST_LOAD;
    b->in_flight = true;
    vm_variant_load(b->host, &b->spec, on_loaded, b);
}

/* ---- save ---- */

static bool save_failed(struct vm_build *b, const struct err *e)
{
    if (!e)
        return false;
    struct err why = *e;
    (void)err_wrap(&why, "saving the guest of template %s", b->spec.template_id);
    finish(b, NULL, &why);
    return true;
}

static void on_quit(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct vm_build *b = arg;
    if (save_failed(b, e) || overtaken(b))
        return;
    drop_vm(b);
    progress(b, 75, "writing memory");
    b->stage = ST_PUBLISH;
    b->in_flight = b->in_job = true;
    job_run(b->host->conf.jobs, publish_work, publish_done, b);
}
static void on_saved(void *arg, struct vm *vm, const struct err *e)
{
    struct vm_build *b = arg;
    if (!save_failed(b, e))
        vm_quit(vm, on_quit, b); /* closes the disk: only then is it complete */
}
static void on_stopped(void *arg, struct vm *vm, const struct err *e)
{
    struct vm_build *b = arg;
    if (!save_failed(b, e))
        vm_save_state(vm, b->tmp.state_fd, on_saved, b);
}

void vm_build_prepared(struct vm_build *b, const struct err *why)
{
    if (b->cancelled || b->over || b->stage != ST_BOOT)
        return;
    timer_stop(&b->deadline);
    if (why) {
        finish(b, NULL, why);
        return;
    }
    progress(b, 70, "saving the guest");
    b->stage = ST_SAVE;
    vm_stop(b->vm, on_stopped, b);
}

/* ---- boot ---- */

static void on_launched(void *arg, struct vm *vm, const struct err *e)
{
    struct vm_build *b = arg;
    b->in_flight = false;
    b->vm = vm;
    if (e)
        b->box = false; /* removed already */
    if (b->cancelled || e) {
        if (b->cancelled && vm)
            b->box = true;
        finish(b, NULL, e);
        return;
    }
    b->stage = ST_BOOT;
    vm_on_lost(vm, on_lost, b);
    timer_arm(&b->deadline, b->host->conf.boot_timeout_ns);
    progress(b, 15, "booting the guest");
    b->ops->prepare(b->arg, b, vm_chan(vm));
}

static void files_work(void *arg)
{
    struct vm_build *b = arg;
    b->rc = vartmp_open(&b->tmp, b->home, &b->spec, b->key, &b->err);
}

static void files_done(void *arg)
{
    struct vm_build *b = arg;
    b->in_flight = b->in_job = false;
    if (b->rc || b->cancelled || b->host->closed) {
        finish(b, NULL, b->rc ? &b->err : NULL);
        return;
    }
    struct sp_vm req = {
        .limit = {.memory_mib = b->spec.ram_mib,
                  .cpu_millis = BUILD_THREADS * b->spec.vcpus,
                  .pids_max = BUILD_PIDS},
        .ram_mib = b->spec.ram_mib,
        .vcpus = b->spec.vcpus,
        .accel = b->ident.accel,
        .tsc_khz = b->ident.tsc_khz,
        .loud = b->attempt > 1,
        .have = 1u << SPF_RAM | 1u << SPF_DISK_TOP | 1u << SPF_DISK_BASE | 1u << SPF_KERNEL |
                1u << SPF_INITRD,
    };
    memcpy(req.id, b->id, sizeof req.id);
    int fds[] = {b->tmp.ram_fd, b->tmp.disk_fd, b->tmp.base_fd, b->kernel, b->initrd};
    progress(b, 10, "starting the emulator");
    b->stage = ST_LAUNCH;
    b->in_flight = true;
    b->box = true;
    vm_launch(b->host, (struct vm_launch){.req = &req, .fds = fds, .nfds = 5, .state_fd = -1},
              on_launched, b);
}

static void attempt_start(struct vm_build *b)
{
    b->attempt++;
    b->stage = ST_FILES;
    b->in_flight = b->in_job = true;
    memset(b->id, 0, sizeof b->id);
    id_make('b', b->id);
    job_run(b->host->conf.jobs, files_work, files_done, b);
}

struct vm_build *vm_variant_build(struct vm_host *h, const struct vm_spec *spec,
                                  const struct vm_build_ops *ops, void *arg, struct err *e)
{
    if (!h->ready) {
        (void)err_set(e, E_UNAVAILABLE,
                      "the guest kernel is not installed yet: build template base first");
        return NULL;
    }
    if (!id_ok(str_of(spec->template_id)) || spec->ram_mib < SP_MEM_MIN ||
        spec->ram_mib > SP_MEM_MAX || !spec->vcpus || spec->vcpus > SP_CPU_MAX || !spec->disk_mib ||
        spec->disk_mib > SP_DISK_MAX) {
        (void)err_set(e, E_INVALID, "a VM cannot have %u MiB memory, %u vCPUs and %u MiB disk",
                      spec->ram_mib, spec->vcpus, spec->disk_mib);
        return NULL;
    }
    struct vm_build *b = xcalloc(1, sizeof *b);
    b->host = host_ref(h);
    list_add_tail(&h->builds, &b->node);
    b->spec = *spec;
    b->ops = ops;
    b->arg = arg;
    b->kernel = b->initrd = -1;
    vartmp_init(&b->tmp);
    timer_init(&b->deadline, h->conf.loop, on_deadline, b);
    b->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    if (b->home < 0 ? err_sys(e, errno, "building a VM snapshot") : take_parts(b, e)) {
        build_bury(b);
        return NULL;
    }
    attempt_start(b);
    return b;
}
