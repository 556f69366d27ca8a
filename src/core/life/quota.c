#include "core/life/quota.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "core/life/life_int.h"
#include "core/life/pause.h"
#include "core/life/idle.h"
#include <stdlib.h>
#include <string.h>

/* It runs, or is on its way there. */
static bool runs(const struct sandbox *sb)
{
    return sb->state == SB_CREATING || sb->state == SB_RUNNING ||
           (sb->state == SB_PAUSED && sb->box && sb->life.paused == PAUSE_DISK);
}
static bool holds_memory(const struct sandbox *sb)
{
    return runs(sb) || (sb->state == SB_PAUSED && sb->life.paused == PAUSE_STANDBY);
}

static bool may_be_paused(struct sandbox *sb)
{
    return sb->state == SB_RUNNING && !sb->busy && sb->life.idle_s &&
           sb->life.on_idle == ON_TIMEOUT_PAUSE && idle_rests(sb);
}

static int by_rest(const void *a, const void *b) /* the longest first */
{
    const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
    return (x->activity.since > y->activity.since) - (x->activity.since < y->activity.since);
}

static int refuse(const struct tenant *t, const char *tenant, bool count, unsigned running,
                  uint64_t memory, struct err *e)
{
    static const char hint[] =
        "kill or pause one, or create sandboxes with idle_timeout_s and on_idle pause: they make room by themselves";
    if (count)
        return err_set(
            e, E_QUOTA,
            "tenant '%.64s' has %u running sandboxes; the limit (running in HUTCH_TENANTS) is %u: %s",
            tenant, running, t->running, hint);
    return err_set(
        e, E_QUOTA,
        "the sandboxes of tenant '%.64s' use %llu MiB of memory; the limit (memory_mib in HUTCH_TENANTS) is %llu MiB: %s",
        tenant, (unsigned long long)memory, (unsigned long long)t->memory_mib, hint);
}

int quota_admit(struct core *c, const char *tenant, uint32_t memory_mib, const struct sandbox *but,
                struct err *e)
{
    const struct tenant *t = tenant_find(&c->tenants, tenant);
    if (!t || (!t->running && !t->memory_mib))
        return 0;
    auto_free struct sandbox **resting = xcalloc(sandboxes(c)->n + 1, sizeof(struct sandbox *));
    struct map_entry *en;
    unsigned running = 0;
    uint64_t memory = 0;
    size_t n = 0, chosen = 0;
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));) {
        struct sandbox *sb = en->value;
        if (sb == but || strcmp(sandbox_tenant(sb), tenant))
            continue;
        running += runs(sb);
        memory += holds_memory(sb) ? sb->memory_mib : 0;
        if (may_be_paused(sb))
            resting[n++] = sb;
    }
    qsort(resting, n, sizeof *resting, by_rest);
    unsigned left = running;
    uint64_t held = memory;
    for (;;) {
        bool count = t->running && left >= t->running;
        if (!count && (!t->memory_mib || held + memory_mib <= t->memory_mib))
            break;
        if (chosen == n)
            return refuse(t, tenant, count, running, memory, e);
        left--;
        held -= resting[chosen++]->memory_mib;
    }
    for (size_t i = 0; i < chosen; i++) {
        struct pause_spec how = {.files_only = resting[i]->life.files_only, .why = WHY_QUOTA};
        if (sandbox_pause(resting[i], &how, NULL, NULL, e))
            return -1;
        log_info("sandbox %s: paused to make room for another of tenant '%s'", resting[i]->id,
                 tenant);
    }
    return 0;
}
