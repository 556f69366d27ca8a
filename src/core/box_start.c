/* How a box comes to be: started from a template or a snapshot, resumed from its
 * files, or adopted from an earlier daemon; then its agent's channel is open. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "backend/vm/vm.h"
#include "core/agent.h"
#include "core/box_int.h"
#include "core/internal.h"
#include "core/variant.h"
#include "spawn/client.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint32_t vcpus(const struct box_spec *s) { return (s->cpu_millis + 999) / 1000; }

static struct box *box_new(struct core *c, const struct box_spec *spec)
{
    struct box *b = xcalloc(1, sizeof *b);
    b->core = c, b->spec = *spec, b->pidfd = -1;
    list_init(&b->removers);
    timer_init(&b->deadline, c->loop, box_overdue, b);
    b->started_mono = clock_mono();
    return b;
}

static void on_broken(void *arg, const struct err *why)
{
    struct box *b = arg;
    if (why->code == E_GONE)
        return; /* the process ended; its exit event says how */
    box_ended(b, END_HOST_FAULT, why->msg, false);
}

static void open_channel(struct box *b, int fd)
{
    b->agent = agent_new(b->core->loop, fd, on_broken, b);
    agent_silence(b->agent, b->core->cfg.agent_silent_s * NS_PER_S);
}

static void vm_lost(void *arg, struct vm *vm, const struct err *e)
{
    (void)vm;
    struct box *b = arg;
    if (e && e->code == E_GONE)
        return; /* likewise */
    log_warn("box %s: %s", b->id, e ? e->msg : "lost");
}

/* ---- start ---- */
static void start_failed(struct box *b, const struct err *e)
{
    struct err copy = *e;
    box_finish(b, &copy);
    box_remove(b, NULL, NULL);
}

static void container_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    struct err e;
    if (rep->rc) {
        start_failed(b, &rep->err);
        return;
    }
    if (nfds < 2) {
        err_set(&e, E_INTERNAL, "the spawner returned no channel");
        start_failed(b, &e);
        return;
    }
    b->pidfd = take_fd(&fds[0]);
    open_channel(b, take_fd(&fds[1]));
    b->phase = BOX_WAITING;
    box_finish(b, NULL);
}

static void container_start(struct box *b)
{
    struct sp_req q = {.op = SP_BOX_START};
    struct err e;
    memcpy(q.u.box.id, b->id, sizeof b->id);
    memcpy(q.u.box.template_id, b->spec.template_id, sizeof b->spec.template_id);
    q.u.box.limit = box_limit(&b->spec);
    q.u.box.disk_mib = b->spec.disk_mib;
    (void)snprintf(q.u.box.hostname, sizeof q.u.box.hostname, "hutch");
    struct ref *r = box_ref(b);
    if (spawn_call(b->core->spawn, &q, NULL, 0, container_started, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}

static void ignore_end(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

/* The box was removed while its process was still being made: that removal came too early for it. */
static void end_late(struct core *c, struct vm *vm, bool keep_files)
{
    struct sp_req q = {.op = keep_files ? SP_RELEASE : SP_REMOVE};
    struct err e;
    if (!vm)
        return;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", vm_id(vm));
    vm_free(vm);
    if (spawn_call(c->spawn, &q, NULL, 0, ignore_end, NULL, &e))
        log_warn("box %s: %s", q.u.id.id, e.msg);
}

static void vm_started(void *arg, struct vm *vm, const struct err *e)
{
    struct ref r = ref_take(arg);
    struct box *b = box_of(&r);
    if (!b) {
        end_late(r.core, vm, r.keep_files);
        return;
    }
    if (e) {
        start_failed(b, e);
        return;
    }
    b->vm = vm;
    vm_on_lost(vm, vm_lost, b);
    open_channel(b, dup(vm_chan(vm)));
    b->phase = BOX_WAITING;
    box_finish(b, NULL);
}

static void variant_ready(void *arg, struct vm_variant *v, const struct err *e)
{
    struct box *b = box_take(arg);
    if (e || !b) {
        if (b)
            start_failed(b, e);
        vm_variant_unref(v);
        return;
    }
    struct vm_limits lim = {.limit = box_limit(&b->spec), .low_priority = b->low_priority};
    vm_start(b->core->vmh, v, b->id, &lim, vm_started, box_ref(b));
    vm_variant_unref(v);
}

static void resume_later(void *arg)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    if (b->spec.tier == TIER_CONTAINER) {
        container_start(b);
        return;
    }
    struct vm_limits lim = {.limit = box_limit(&b->spec)};
    if (b->booting)
        vm_boot(b->core->vmh, b->id, &lim, vm_started, box_ref(b));
    else
        vm_resume(b->core->vmh, b->id, &lim, vm_started, box_ref(b));
}

struct box *box_resume(struct core *c, const char *id, const struct box_spec *spec, bool boot, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true;
    b->torn = !boot;
    b->booting = boot;
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    loop_defer(c->loop, resume_later, box_ref(b));
    return b;
}

static void layer_seeded(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct box *b = box_take(arg);
    if (b && rep->rc)
        start_failed(b, &rep->err);
    else if (b)
        container_start(b);
}

static void start_from(struct box *b)
{
    struct vm_limits lim = {.limit = box_limit(&b->spec)};
    struct sp_req q = {.op = SP_LAYER_SEED};
    struct err e;
    if (b->spec.tier == TIER_VM) {
        vm_start_from(b->core->vmh, b->from, b->booting, b->copies, b->id, &lim, vm_started, box_ref(b));
        return;
    }
    memcpy(q.u.layer.id, b->id, sizeof b->id);
    memcpy(q.u.layer.snapshot, b->from, sizeof b->from);
    struct ref *r = box_ref(b);
    if (spawn_call(b->core->spawn, &q, NULL, 0, layer_seeded, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}

static void start_later(void *arg)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    if (*b->from) {
        start_from(b);
        return;
    }
    if (b->spec.tier == TIER_CONTAINER) {
        container_start(b);
        return;
    }
    struct vm_spec vs = {.ram_mib = b->spec.memory_mib, .vcpus = vcpus(&b->spec), .disk_mib = b->spec.disk_mib};
    memcpy(vs.template_id, b->spec.template_id, sizeof b->spec.template_id);
    variant_get(b->core, &vs, NULL, NULL, variant_ready, box_ref(b));
}

struct box *box_start(struct core *c, const struct box_spec *spec, bool low_priority, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    id_make('b', b->id);
    b->low_priority = low_priority;
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    loop_defer(c->loop, start_later, box_ref(b));
    return b;
}

struct box *box_start_from(struct core *c, const struct box_spec *spec, const char *snapshot, bool boot, unsigned copies, box_cb *cb, void *arg)
{
    struct box *b = box_start(c, spec, false, cb, arg);
    (void)snprintf(b->from, sizeof b->from, "%s", snapshot);
    b->booting = boot;
    b->copies = copies;
    b->torn = !boot && spec->tier == TIER_VM;
    return b;
}

/* ---- adopt ---- */
static void vm_adopted(void *arg, struct vm *vm, const struct err *e)
{
    struct box *b = box_take(arg);
    if (!b) {
        vm_free(vm);
        return;
    }
    if (e) {
        start_failed(b, e);
        return;
    }
    b->vm = vm;
    b->restored = vm_run_state(vm) == VM_RUNNING;
    vm_on_lost(vm, vm_lost, b);
    open_channel(b, dup(vm_chan(vm)));
    b->phase = BOX_LIVE;
    box_finish(b, NULL);
}

static void attached(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    struct err e;
    if (rep->rc) {
        start_failed(b, &rep->err);
        return;
    }
    if (!rep->u.info.alive || nfds < (b->spec.tier == TIER_VM ? 3 : 2)) {
        err_set(&e, E_GONE, "its process has ended");
        start_failed(b, &e);
        return;
    }
    if (b->spec.tier == TIER_VM) {
        vm_adopt(b->core->vmh, NULL, b->id, take_fd(&fds[0]), take_fd(&fds[1]), take_fd(&fds[2]), vm_adopted, box_ref(b));
        return;
    }
    b->pidfd = take_fd(&fds[0]);
    open_channel(b, take_fd(&fds[1]));
    b->phase = BOX_LIVE;
    box_finish(b, NULL);
}

void box_adopt(struct core *c, const char *id, const struct box_spec *spec, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    struct err e;
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true; /* who ends it decides */
    b->cb = cb, b->cb_arg = arg;
    map_set(&c->boxes, b->id, b);
    struct sp_req q = {.op = SP_ATTACH};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    struct ref *r = box_ref(b);
    if (spawn_call(c->spawn, &q, NULL, 0, attached, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}
