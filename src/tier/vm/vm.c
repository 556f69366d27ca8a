/* One virtual machine: launch, restore, stop, go on, quit, adopt. What happens
 * on disk before a launch is in start.c and build.c. */
#include "tier/vm/vm.h"
#include "tier/vm/console.h"
#include "tier/vm/qmp.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum op_kind { OP_READY, OP_RESTORE, OP_STOP, OP_CONT, OP_SAVE, OP_QUIT, OP_FAILED };
struct op { /* a call whose callback is due; in vm->ops */
    struct list node;
    struct vm *vm;
    enum op_kind kind;
    vm_cb *cb;
    void *arg;
    struct err err; /* OP_FAILED */
};

struct vm {
    struct vm_host *host;
    struct vm_variant *variant; /* reference or NULL */
    struct vm_image *image;     /* likewise */
    char id[SP_ID];
    int pidfd, chan_fd, state_fd;
    struct qmp *qmp;
    struct io pid_io;
    struct timer watchdog; /* of OP_RESTORE and OP_QUIT, which end by an event */
    enum vm_run run;
    bool dead, exited, known;
    struct vm_machine machine; /* if known */
    struct vm_saving *saving;  /* waits for the device state */
    struct list ops;
    void (*on_lost)(void *, struct vm *, const struct err *);
    void *lost_arg;
};

enum vm_run vm_run_state(const struct vm *vm) { return vm->run; }
const char *vm_id(const struct vm *vm) { return vm->id; }
int vm_chan(const struct vm *vm) { return vm->chan_fd; }
int vm_pidfd(const struct vm *vm) { return vm->pidfd; }
struct vm_host *vm_host_of(struct vm *vm) { return vm->host; }
void vm_set_saving(struct vm *vm, struct vm_saving *s) { vm->saving = s; }
struct vm_machine *vm_machine_of(struct vm *vm) { return vm->known ? &vm->machine : NULL; }
void vm_on_lost(struct vm *vm, void (*fn)(void *, struct vm *, const struct err *), void *arg)
{
    vm->on_lost = fn;
    vm->lost_arg = arg;
}

int vm_pid(const struct vm *vm)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", vm->pidfd);
    size_t n;
    auto_free char *text = fd_slurp_at(AT_FDCWD, path, 4096, &n);
    char *p = text ? strstr(text, "\nPid:") : NULL;
    int pid = p ? atoi(p + 5) : 0;
    return pid > 0 ? pid : 0;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static struct op *op_new(struct vm *vm, enum op_kind kind, vm_cb *cb, void *arg)
{
    struct op *o = xcalloc(1, sizeof *o);
    o->vm = vm;
    o->kind = kind;
    o->cb = cb;
    o->arg = arg;
    list_add_tail(&vm->ops, &o->node);
    return o;
}

static void op_end(struct op *o, const struct err *e)
{
    struct vm *vm = o->vm;
    vm_cb *cb = o->cb;
    void *arg = o->arg;
    if (o->kind == OP_RESTORE || o->kind == OP_QUIT)
        timer_stop(&vm->watchdog);
    list_del(&o->node);
    free(o);
    if (cb)
        cb(arg, vm, e);
}

static struct op *op_find(struct vm *vm, enum op_kind kind)
{
    struct op *o;
    list_each(o, &vm->ops, node)
        if (o->kind == kind)
            return o;
    return NULL;
}

static void fail_later(void *arg)
{
    struct vm *vm = arg; /* still there: its burial was deferred after us */
    struct op *o;
    while (!vm->dead && (o = op_find(vm, OP_FAILED))) {
        struct err e = o->err;
        op_end(o, &e);
    }
}

static void op_refuse(struct vm *vm, vm_cb *cb, void *arg, const struct err *why)
{
    op_new(vm, OP_FAILED, cb, arg)->err = *why;
    loop_defer(vm->host->conf.loop, fail_later, vm);
}

static bool op_allowed(struct vm *vm, bool state_ok, const char *what, vm_cb *cb, void *arg)
{
    if (state_ok && vm->run != VM_LOST)
        return true;
    struct err e;
    (void)err_set(&e, vm->run == VM_LOST ? E_GONE : E_CONFLICT,
                  vm->run == VM_LOST ? "the VM has ended" : "the VM cannot %s now", what);
    op_refuse(vm, cb, arg, &e);
    return false;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

static void vm_lose(struct vm *vm, const struct err *why)
{
    if (vm->run == VM_LOST || vm->dead)
        return;
    vm->run = VM_LOST;
    timer_stop(&vm->watchdog);
    qmp_free(vm->qmp); /* its pending callbacks are ours, failed below */
    vm->qmp = NULL;
    struct err e = *why;
    while (!vm->dead && !list_empty(&vm->ops)) {
        struct op *o = container_of(vm->ops.next, struct op, node);
        bool quit_ok = o->kind == OP_QUIT && vm->exited;
        struct err own = o->kind == OP_FAILED ? o->err : e;
        op_end(o, quit_ok ? NULL : &own);
    }
    if (!vm->dead && vm->on_lost)
        vm->on_lost(vm->lost_arg, vm, &e);
}

static void on_pid(void *arg, int events)
{
    (void)events;
    struct vm *vm = arg;
    struct err e;
    io_stop(&vm->pid_io);
    vm->exited = true;
    (void)err_set(&e, E_GONE, "the VM's process ended");
    vm_lose(vm, &e);
}

static void on_qmp_lost(void *arg, const struct err *why)
{
    struct vm *vm = arg;
    if (op_find(vm, OP_QUIT) && why->code == E_GONE)
        return; /* as it should be: the process is about to go */
    vm_lose(vm, why);
}

static void on_watchdog(void *arg)
{
    struct err e;
    (void)err_set(&e, E_TIMEOUT, "the VM did not reach that state in time");
    vm_lose(arg, &e);
}

static void on_event(void *arg, const struct qmp_msg *m)
{
    struct vm *vm = arg;
    struct op *o = op_find(vm, OP_RESTORE);
    if (!strcmp(m->name, "STOP")) {
        if (vm->run == VM_RUNNING)
            vm->run = VM_STOPPED;
    } else if (!strcmp(m->name, "RESUME")) {
        vm->run = VM_RUNNING;
        if (o)
            op_end(o, NULL);
    } else if (!strcmp(m->name, "MIGRATION") && !strcmp(m->status, "failed") && o) {
        struct err e;
        (void)err_set(&e, E_INTERNAL, "the emulator could not load the snapshot");
        op_end(o, &e);
    }
}
static const struct qmp_ops qmp_events = {.event = on_event, .lost = on_qmp_lost};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static struct vm *vm_new(struct vm_host *h, struct vm_variant *v, const char *id, int pidfd,
                         int chan_fd, int state_fd)
{
    struct vm *vm = xcalloc(1, sizeof *vm);
    vm->host = host_ref(h);
    vm->variant = v ? vm_variant_ref(v) : NULL;
    (void)snprintf(vm->id, sizeof vm->id, "%s", id);
    vm->pidfd = pidfd;
    vm->chan_fd = chan_fd;
    vm->state_fd = state_fd;
    list_init(&vm->ops);
    (void)fd_nonblock(chan_fd); /* a socket: does not fail */
    timer_init(&vm->watchdog, h->conf.loop, on_watchdog, vm);
    io_init(&vm->pid_io, h->conf.loop, pidfd, on_pid, vm);
    io_want(&vm->pid_io, IO_READ);
    return vm;
}

static void vm_bury(void *arg)
{
    struct vm *vm = arg;
    vm_variant_unref(vm->variant);
    image_unref(vm->image);
    host_unref(vm->host);
    free(vm);
}

void vm_free(struct vm *vm)
{
    if (!vm || vm->dead)
        return;
    vm->dead = true;
    vm->run = VM_LOST;
    qmp_free(vm->qmp);
    vm->qmp = NULL;
    io_stop(&vm->pid_io);
    timer_stop(&vm->watchdog);
    struct op *o;
    list_each(o, &vm->ops, node) {
        list_del(&o->node);
        free(o);
    }
    if (vm->saving)
        saving_vm_freed(vm->saving);
    cleanup_fd(&vm->pidfd);
    cleanup_fd(&vm->chan_fd);
    cleanup_fd(&vm->state_fd);
    vm->pidfd = vm->chan_fd = vm->state_fd = -1;
    loop_defer(vm->host->conf.loop, vm_bury, vm);
}

/* QMP answers of an operation that ends with its command. */
static void on_command(void *arg, const struct qmp_msg *m, const struct err *e)
{
    (void)m;
    struct op *o = arg;
    if (!e && o->kind == OP_STOP)
        o->vm->run = VM_STOPPED;
    if (!e && o->kind == OP_CONT)
        o->vm->run = VM_RUNNING;
    op_end(o, e);
}

/* ---- launch ------------------------------------------------------------------------------------------------------ */

struct launch {       /* a machine on its way to its owner: started, or adopted */
    struct list node; /* in host->launches */
    struct vm_host *host;
    struct vm_variant *variant; /* reference or NULL */
    struct vm_image *image;     /* likewise */
    struct vm *vm;              /* once its process is there */
    char id[SP_ID];
    bool incoming, adopted, keep_files, known;
    struct vm_machine machine;
    int state_fd;
    vm_cb *cb;
    void *arg;
    struct err err;
};

static void ignore_reply(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)rep, (void)fds, (void)nfds;
}

static void end_box(struct vm_host *h, const char *id, uint32_t op)
{
    if (h->closed)
        return;
    struct sp_req q = {.op = op};
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    struct err e;
    if (spawn_call(h->conf.spawn, &q, NULL, 0, ignore_reply, NULL, &e))
        return; /* a lost spawner is reported by its on_lost, and takes its boxes along or is asked again at adoption */
}
void vm_remove_box(struct vm_host *h, const char *id) { end_box(h, id, SP_REMOVE); }
void vm_release_box(struct vm_host *h, const char *id) { end_box(h, id, SP_RELEASE); }

static void launch_free(struct launch *l)
{
    list_del(&l->node);
    vm_variant_unref(l->variant);
    image_unref(l->image);
    cleanup_fd(&l->state_fd);
    free(l);
}

void launches_drop(struct vm_host *h)
{
    struct launch *l;
    list_each(l, &h->launches, node) {
        vm_free(l->vm);
        launch_free(l);
    }
}

/* Hand over, or report: e == NULL and l->vm, or e. */
static void launch_end(struct launch *l, const struct err *e)
{
    struct vm *vm = e ? NULL : l->vm;
    vm_cb *cb = l->cb;
    void *arg = l->arg;
    struct err why = e ? *e : (struct err){0};
    bool closed = l->host->closed;
    if (e || closed)
        vm_free(l->vm);
    if (e && !l->adopted)
        end_box(l->host, l->id, l->keep_files ? SP_RELEASE : SP_REMOVE);
    launch_free(l);
    if (!closed)
        cb(arg, vm, e ? &why : NULL);
}

static void launch_fail_later(void *arg)
{
    struct launch *l = arg;
    launch_end(l, &l->err);
}

static void on_last_words(void *arg, struct str text, const struct err *e)
{
    (void)e;
    struct launch *l = arg;
    struct str line = console_cause(text);
    if (line.n)
        (void)snprintf(l->err.msg + strlen(l->err.msg), sizeof l->err.msg - strlen(l->err.msg),
                       ": %.*s", (int)line.n, line.p);
    launch_end(l, &l->err);
}

/* The slot answered, or its QEMU did not come up; then it may have said why. */
static void on_slot(void *arg, struct vm *vm, const struct err *e)
{
    struct launch *l = arg;
    (void)vm;
    if (e)
        l->err = *e;
    if (!e || l->adopted || l->host->closed || vm_console(l->host, l->id, on_last_words, l, NULL))
        launch_end(l, e ? &l->err : NULL);
}

static struct launch *launch_new(struct vm_host *h, struct vm_variant *v, const char *id,
                                 int state_fd, vm_cb *cb, void *arg)
{
    struct launch *l = xcalloc(1, sizeof *l);
    l->host = h;
    l->variant = v ? vm_variant_ref(v) : NULL;
    l->state_fd = state_fd;
    l->cb = cb;
    l->arg = arg;
    (void)snprintf(l->id, sizeof l->id, "%s", id);
    list_add_tail(&h->launches, &l->node);
    return l;
}

static void on_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct launch *l = arg;
    struct err e;
    if (rep->rc || nfds < 3) {
        if (rep->rc)
            e = rep->err;
        else
            (void)err_set(&e, E_INTERNAL, "hutch-spawn returned no channel");
        launch_end(l, &e);
        return;
    }
    struct vm *vm = vm_new(l->host, l->variant, l->id, take_fd(&fds[0]), take_fd(&fds[1]),
                           take_fd(&l->state_fd));
    l->vm = vm;
    vm->image = l->image ? image_ref(l->image) : NULL;
    vm->known = l->known, vm->machine = l->machine;
    struct op *o = op_new(vm, OP_READY, on_slot, l);
    vm->run = l->incoming ? VM_SLOT : VM_RUNNING;
    vm->qmp = qmp_new(l->host->conf.loop, take_fd(&fds[2]), true, &qmp_events, vm,
                      l->host->conf.qmp_timeout_ns, on_command, o);
}

void vm_launch(struct vm_host *h, struct vm_launch a, vm_cb *cb, void *arg)
{
    struct launch *l = launch_new(h, a.variant, a.req->id, a.state_fd, cb, arg);
    l->incoming = a.req->incoming;
    l->keep_files = a.keep_files;
    l->image = a.image ? image_ref(a.image) : NULL;
    if (a.machine) {
        l->known = true;
        l->machine = *a.machine;
    }
    struct sp_req q = {.op = SP_VM_START, .u.vm = *a.req};
    if (spawn_call(h->conf.spawn, &q, a.fds, a.nfds, on_started, l, &l->err))
        loop_defer(h->conf.loop, launch_fail_later, l);
}

/* ---- calls on a machine ------------------------------------------------------------------------------------------ */

/* The answer may come after the event that ends the operation, so it looks the operation up. */
static void on_incoming(void *arg, const struct qmp_msg *m, const struct err *e)
{
    (void)m;
    struct op *o = op_find(arg, OP_RESTORE);
    if (e && o)
        op_end(o, e);
}

void vm_restore(struct vm *vm, vm_cb *cb, void *arg)
{
    if (!op_allowed(vm, vm->run == VM_SLOT && vm->state_fd >= 0, "be restored", cb, arg))
        return;
    (void)op_new(vm, OP_RESTORE, cb, arg);
    int64_t limit = vm->host->conf.qmp_timeout_ns;
    vm->run = VM_RESTORING;
    timer_arm(&vm->watchdog, limit);
    /* One write. The state comes by the control channel, not by inheritance: which one it is may be decided late. */
    qmp_command(vm->qmp, "getfd", "{\"fdname\":\"s\"}", vm->state_fd, limit, NULL, NULL);
    qmp_command(vm->qmp, "migrate-incoming", "{\"uri\":\"fd:s\"}", -1, limit, on_incoming, vm);
    cleanup_fd(&vm->state_fd);
    vm->state_fd = -1;
}

static void simple(struct vm *vm, bool ok, enum op_kind kind, const char *command, vm_cb *cb,
                   void *arg)
{
    if (op_allowed(vm, ok, command, cb, arg))
        qmp_command(vm->qmp, command, NULL, -1, vm->host->conf.qmp_timeout_ns, on_command,
                    op_new(vm, kind, cb, arg));
}

void vm_stop(struct vm *vm, vm_cb *cb, void *arg)
{
    simple(vm, vm->run == VM_RUNNING || vm->run == VM_STOPPED, OP_STOP, "stop", cb, arg);
}
void vm_cont(struct vm *vm, vm_cb *cb, void *arg)
{
    simple(vm, vm->run == VM_RUNNING || vm->run == VM_STOPPED, OP_CONT, "cont", cb, arg);
}

void vm_save_state(struct vm *vm, int fd, vm_cb *cb, void *arg)
{
    if (!op_allowed(vm, vm->run == VM_STOPPED, "be saved while it runs", cb, arg))
        return;
    int64_t limit = vm->host->conf.qmp_timeout_ns;
    /* live must be false: with true on a stopped VM the disks are inactivated, and the next migration aborts QEMU. */
    qmp_command(vm->qmp, "add-fd", "{\"fdset-id\":99}", fd, limit, NULL, NULL);
    qmp_command(vm->qmp, "xen-save-devices-state",
                "{\"filename\":\"/dev/fdset/99\",\"live\":false}", -1, limit, on_command,
                op_new(vm, OP_SAVE, cb, arg));
    qmp_command(vm->qmp, "remove-fd", "{\"fdset-id\":99}", -1, limit, NULL, NULL);
}

void vm_quit(struct vm *vm, vm_cb *cb, void *arg)
{
    if (!op_allowed(vm, true, "quit", cb, arg))
        return;
    (void)op_new(vm, OP_QUIT, cb, arg); /* ends with the process: on_pid */
    timer_arm(&vm->watchdog, vm->host->conf.qmp_timeout_ns);
    qmp_command(vm->qmp, "quit", NULL, -1, 0, NULL, NULL);
}

/* ---- adoption ---------------------------------------------------------------------------------------------------- */

static void on_status(void *arg, const struct qmp_msg *m, const struct err *e)
{
    struct op *o = arg;
    struct vm *vm = o->vm;
    if (m)
        vm->run = !strcmp(m->status, "running")     ? VM_RUNNING
                  : !strcmp(m->status, "inmigrate") ? VM_SLOT
                                                    : VM_STOPPED;
    op_end(o, e);
}

void vm_adopt(struct vm_host *h, struct vm_variant *v, const char *box_id, int pidfd, int chan_fd,
              int qmp_fd, vm_cb *cb, void *arg)
{
    struct launch *l = launch_new(h, v, box_id, -1, cb, arg);
    l->adopted = true;
    int state = v ? fd_reopen(v->file.state_fd, O_RDONLY) : -1;
    struct vm *vm = l->vm = vm_new(h, v, box_id, pidfd, chan_fd, state);
    vm->run = VM_STOPPED;
    vm->known = !vm_machine_read(h->conf.home_fd, box_id, &vm->machine,
                                 NULL); /* a small file, at start-up: may block */
    struct op *o = op_new(vm, OP_READY, on_slot, l);
    vm->qmp =
        qmp_new(h->conf.loop, qmp_fd, false, &qmp_events, vm, h->conf.qmp_timeout_ns, on_status, o);
}
