/* Microvms as a tier: machine.h in terms of vm.h. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "tier/machine.h"
#include "tier/variant.h"
#include "tier/vm/vm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the host ---- */
static void vm_open(struct tier_host *h)
{
    struct vm_host_conf conf = {.loop = h->loop,
                                .jobs = h->jobs,
                                .spawn = h->spawn,
                                .home_fd = h->home_fd,
                                .accel = h->kvm ? SP_ACCEL_KVM : SP_ACCEL_TCG,
                                .tsc_khz = h->tsc_khz,
                                .boot_timeout_ns =
                                    180 * NS_PER_S /* READY may take two minutes of it */};
    struct err e;
    if (vm_qemu_version("/usr/bin/qemu-system-x86_64", conf.qemu_version, &e))
        log_warn("microVMs are not available: %s", e.msg);
    else
        h->vm = vm_host_new(&conf);
}
static void vm_close(struct tier_host *h)
{
    vm_host_free(h->vm);
    h->vm = NULL;
}
static bool vm_here(const struct tier_host *h) { return h->vm != NULL; }
static bool vm_ready(const struct tier_host *h) { return vm_host_ready(h->vm); }
static int vm_load(struct tier_host *h, int kernel_dir_fd, int agent_fd, struct err *e)
{
    return vm_host_load(h->vm, kernel_dir_fd, agent_fd, e);
}

struct machine_vm {
    struct machine m;
    struct vm *vm;
    struct list calls;
};
/* One of several: a machine may be told to stop before QEMU has said that it runs. */
struct call {
    struct list link;
    struct machine_vm *v;
    machine_cb *cb;
    void *arg;
};
static struct machine_vm *of(const struct machine *m) { return (struct machine_vm *)(uintptr_t)m; }

static void on_lost(void *arg, struct vm *vm, const struct err *e)
{
    struct machine_vm *v = arg;
    (void)vm;
    if (v->m.lost)
        v->m.lost(v->m.lost_arg, e);
}

static struct machine *machine_of(struct tier_host *h, const struct tier *t, struct vm *vm)
{
    struct machine_vm *v = xcalloc(1, sizeof *v);
    v->m = (struct machine){.tier = t, .host = h};
    (void)snprintf(v->m.id, sizeof v->m.id, "%s", vm_id(vm));
    v->vm = vm;
    list_init(&v->calls);
    vm_on_lost(vm, on_lost, v);
    return &v->m;
}

/* ---- start ---- */
static void started(void *arg, struct vm *vm, const struct err *e)
{
    struct start *st = arg;
    start_end(st, e ? NULL : machine_of(st->host, st->tier, vm), e);
}

static struct vm_limits limits(const struct start *st)
{
    return (struct vm_limits){.limit = start_limit(st), .low_priority = st->spec.low_priority};
}

static void variant_ready(void *arg, struct variant *v, const struct err *e)
{
    struct start *st = arg;
    struct vm_limits lim = limits(st);
    if (!start_over(st, e)) {
        st->on_host = true;
        vm_start(st->host->vm, vm_variant_of(v), st->spec.id, &lim, started, st);
    }
    variant_unref(v);
}

static void vm_machine_start(struct start *st)
{
    struct tier_host *h = st->host;
    const struct machine_start *s = &st->spec;
    struct vm_limits lim = limits(st);
    struct variant_spec vs = {.tier = st->tier,
                              .memory_mib = s->memory_mib,
                              .vcpus = (s->cpu_millis + 999) / 1000,
                              .disk_mib = s->disk_mib};
    memcpy(vs.template_id, s->template_id, sizeof s->template_id);
    st->on_host = *s->snapshot || s->own_files;
    if (*s->snapshot)
        vm_start_from(h->vm, s->snapshot, s->boot, s->copies, s->id, &lim, started, st);
    else if (!s->own_files)
        h->variant(h->variant_arg, &vs, variant_ready, st);
    else if (s->boot)
        vm_boot(h->vm, s->id, &lim, started, st);
    else
        vm_resume(h->vm, s->id, &lim, started, st);
}

static void vm_machine_adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds,
                             int nfds, machine_cb *cb, void *arg)
{
    struct machine_start s = {0};
    struct err e;
    if (nfds < 3) {
        err_set(&e, E_GONE, "its process has ended");
        cb(arg, NULL, &e);
        return;
    }
    int pidfd = fds[0], chan = fds[1], qmp = fds[2];
    fds[0] = fds[1] = fds[2] = -1;
    vm_adopt(h->vm, NULL, id, pidfd, chan, qmp, started, start_new(h, t, &s, cb, arg));
}

/* ---- run states ---- */
static void done(void *arg, struct vm *vm, const struct err *e)
{
    struct call c = *(struct call *)arg;
    (void)vm;
    list_del(&((struct call *)arg)->link);
    free(arg);
    c.cb(c.arg, &c.v->m, e);
}
static struct call *call_new(struct machine_vm *v, machine_cb *cb, void *arg)
{
    struct call *c = xcalloc(1, sizeof *c);
    *c = (struct call){.v = v, .cb = cb, .arg = arg};
    list_add_tail(&v->calls, &c->link);
    return c;
}

static int chan(const struct machine *m) { return dup(vm_chan(of(m)->vm)); }
static bool waking(const struct machine *m) { return vm_run_state(of(m)->vm) == VM_RESTORING; }
static bool running(const struct machine *m) { return vm_run_state(of(m)->vm) == VM_RUNNING; }

static bool wake(struct machine *m, machine_cb *cb, void *arg)
{
    struct machine_vm *v = of(m);
    enum vm_run is = vm_run_state(v->vm);
    if (is != VM_SLOT && is != VM_STOPPED)
        return false;
    if (is == VM_SLOT)
        vm_restore(v->vm, done, call_new(v, cb, arg));
    else
        vm_cont(v->vm, done, call_new(v, cb, arg));
    return true;
}

static void hold(struct machine *m, bool on, machine_cb *cb, void *arg)
{
    struct machine_vm *v = of(m);
    if (on)
        vm_stop(v->vm, done, call_new(v, cb, arg));
    else
        vm_cont(v->vm, done, call_new(v, cb, arg));
}

static void drop(struct machine *m)
{
    struct machine_vm *v = of(m);
    struct call *c;
    vm_free(v->vm);
    list_each(c, &v->calls, link) {
        list_del(&c->link);
        free(c);
    }
    free(v);
}

/* ---- on disk ---- */
struct saving_vm {
    struct saving s;
    struct vm_saving *vm;
    saving_cb *cb;
    void *arg;
};

static void saving_step(void *arg, struct vm_saving *vm, const struct err *e)
{
    struct saving_vm *s = arg;
    (void)vm;
    s->cb(s->arg, &s->s, e);
}

static struct saving_vm *saving_make(const struct tier *t, saving_cb *cb, void *arg)
{
    struct saving_vm *s = xcalloc(1, sizeof *s);
    *s = (struct saving_vm){.s = {t}, .cb = cb, .arg = arg};
    return s;
}

static struct saving *save(struct machine *m, const char *snapshot, bool memory, saving_cb *cb,
                           void *arg)
{
    struct saving_vm *s = saving_make(m->tier, cb, arg);
    s->vm = vm_saving_new(of(m)->vm, snapshot, memory, saving_step, s);
    return &s->s;
}

static struct saving *save_saved(struct tier_host *h, const struct tier *t, const char *id,
                                 const char *snapshot, bool memory, saving_cb *cb, void *arg)
{
    struct saving_vm *s = saving_make(t, cb, arg);
    s->vm = vm_saving_of_saved(h->vm, id, snapshot, memory, saving_step, s);
    return &s->s;
}

static void take(struct saving *sv, saving_cb *cb, void *arg)
{
    struct saving_vm *s = (struct saving_vm *)sv;
    s->cb = cb, s->arg = arg;
    vm_saving_take(s->vm, saving_step, s);
}

static void publish(struct saving *sv, uint64_t generation, saving_cb *cb, void *arg)
{
    struct saving_vm *s = (struct saving_vm *)sv;
    s->cb = cb, s->arg = arg;
    vm_saving_publish(s->vm, generation, saving_step, s);
}

static struct saved saved_of(const struct vm_saved *v)
{
    return (struct saved){.generation = v->generation,
                          .memory = v->memory,
                          .bytes = v->bytes,
                          .disk_bytes = v->disk_bytes,
                          .at_wall_ns = v->at_wall_ns};
}
static struct saved facts(const struct saving *sv)
{
    return saved_of(vm_saving_facts(((const struct saving_vm *)sv)->vm));
}

static void scrap(struct saving *sv)
{
    vm_saving_free(((struct saving_vm *)sv)->vm);
    free(sv);
}

static int read_saved(struct tier_host *h, const char *id, struct saved *ret, struct err *e)
{
    struct vm_saved v;
    if (!h->vm)
        return err_set(e, E_UNAVAILABLE, "there are no microVMs on this host");
    if (vm_saved_read(h->vm, id, &v, e))
        return -1;
    *ret = saved_of(&v);
    return 0;
}

static void drop_saved(struct tier_host *h, const char *id)
{
    if (h->vm)
        vm_saved_drop(h->vm, id);
}

static int console(struct tier_host *h, const char *id, vm_console_cb *cb, void *arg, struct err *e)
{
    return vm_console(h->vm, id, cb, arg, e);
}

const struct machine_ops vm_ops = {
    .open = vm_open,
    .close = vm_close,
    .here = vm_here,
    .ready = vm_ready,
    .load = vm_load,
    .variants = &vm_variant_ops,
    .start = vm_machine_start,
    .adopt = vm_machine_adopt,
    .chan = chan,
    .wake = wake,
    .waking = waking,
    .running = running,
    .hold = hold,
    .drop = drop,
    .save = save,
    .save_saved = save_saved,
    .take = take,
    .publish = publish,
    .facts = facts,
    .scrap = scrap,
    .saved_read = read_saved,
    .saved_drop = drop_saved,
    .console = console,
};
