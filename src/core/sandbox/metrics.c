/* What a sandbox uses now: the cgroup's word for CPU and memory of a container,
 * the agent's for a VM; disk from the agent. And what its console shows. */
#include "tier/machine.h"
#include "base/buf.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include <stdlib.h>
#include <string.h>

struct metrics_wait {
    struct core *core;
    char id[22];
    struct sandbox_metrics m;
    void (*cb)(void *arg, const struct err *e, const struct sandbox_metrics *m);
    void *arg;
};

static void metrics_stat(void *arg, const struct err *e, const struct sp_stat *st)
{
    struct metrics_wait *w = arg;
    if (!e) {
        w->m.cpu_ns = st->cpu_ns;
        w->m.mem_used =
            st->mem_bytes > st->mem_cache ? st->mem_bytes - st->mem_cache : st->mem_bytes;
        w->m.mem_cache = st->mem_cache;
        w->m.nproc = st->nproc;
        if (st->disk_bytes)
            w->m.disk_used = st->disk_used, w->m.disk_total = st->disk_bytes;
    }
    w->cb(w->arg, e, &w->m);
    free(w);
}

static void metrics_agent(void *arg, const struct err *e, struct rec r)
{
    struct metrics_wait *w = arg;
    struct sandbox *sb = sandbox_at(w->core, w->id);
    struct err gone;
    if (!e && (!sb || !sb->box)) {
        err_set(&gone, E_GONE, "the sandbox ended");
        e = &gone;
    }
    if (e) {
        w->cb(w->arg, e, NULL);
        free(w);
        return;
    }
    w->m.cpu_ns = rec_u64_or(r, T_CPU_NS, 0);
    w->m.mem_used = rec_u64_or(r, T_MEM_USED, 0), w->m.mem_cache = rec_u64_or(r, T_MEM_CACHE, 0);
    w->m.disk_used = rec_u64_or(r, T_DISK_USED, 0),
    w->m.disk_total = rec_u64_or(r, T_DISK_BYTES, 0);
    w->m.nproc = rec_u64_or(r, T_NPROC, 0);
    if (tier_can(sb->tier, TIER_COUNTED)) {
        box_stat(sb->box, metrics_stat, w);
        return;
    }
    w->cb(w->arg, NULL, &w->m);
    free(w);
}

int sandbox_metrics(struct sandbox *sb,
                    void (*cb)(void *arg, const struct err *e, const struct sandbox_metrics *m),
                    void *arg, struct err *e)
{
    static const struct call_ops ops = {.done = metrics_agent};
    struct agent *a = sandbox_channel(sb, e);
    if (!a)
        return -1;
    struct metrics_wait *w = xcalloc(1, sizeof *w);
    *w = (struct metrics_wait){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(w->id, sb->id, sizeof w->id);
    w->m.mem_total = (uint64_t)sb->memory_mib << 20;
    w->m.cpu_count = (sb->cpu_millis + 999) / 1000;
    if (!agent_call(a, OP_METRICS, NULL, &ops, w, e)) {
        free(w);
        return -1;
    }
    return 0;
}

int sandbox_console(struct sandbox *sb, void (*cb)(void *arg, struct str text, const struct err *e),
                    void *arg, struct err *e)
{
    if (!tier_can(sb->tier, TIER_KERNEL))
        return err_set(e, E_UNSUPPORTED,
                       "only microVMs have a console; a container uses the host's kernel");
    if (!sb->box)
        return err_set(e, E_CONFLICT, "sandbox '%s' is %s and has no console any more", sb->id,
                       state_name(sb->state));
    return machine_console(&sb->core->tiers, sb->tier, sb->box->id, cb, arg, e);
}
