#include "core/policy.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/internal.h"
#include "core/pause.h"
#include "core/pool.h"

#define TICK_NS (1 * NS_PER_S)

static void moved(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)arg, (void)sb;
    if (e)
        log_warn("from standby to disk: %s", e->msg);
}

/* Only of VMs: a container's memory cannot go anywhere. One at a time: it is disk work, and the host may be short already. */
static bool standby_over(struct core *c, struct sandbox *sb, bool pressed)
{
    struct pause_spec how = {.why = WHY_TIMEOUT}; /* nobody's call, so no quota stands in its way; the reason it was paused for stays */
    int64_t lasted = clock_wall() - sb->life.paused_ns, limit = (int64_t)c->cfg.standby_s * NS_PER_S;
    struct err e;
    if (sb->state != SB_PAUSED || sb->life.paused != PAUSE_STANDBY || sb->tier != TIER_VM || sandbox_busy(sb))
        return false;
    if (!pressed && (!limit || lasted < limit))
        return false;
    return !sandbox_pause(sb, &how, moved, NULL, &e);
}

static void tick(void *arg)
{
    struct core *c = arg;
    struct map_entry *en;
    size_t i = 0, standing = 0;
    int64_t now = clock_wall();
    timer_arm(&c->policy, TICK_NS);
    if (c->stopping || c->spawn_lost)
        return;
    while ((en = map_next(&c->sandboxes, &i))) {
        struct sandbox *sb = en->value;
        standing += sb->life.paused == PAUSE_STANDBY;
        if (sb->state == SB_PAUSED && now >= sandbox_lifetime_end(sb)) /* a running one has a timer for it */
            sandbox_lifetime_over(sb);
        else if (sb->state == SB_FAILED && now - sb->ended_ns >= (int64_t)c->cfg.failed_keep_s * NS_PER_S)
            (void)sandbox_kill(sb, sb->end_reason, "", NULL, NULL, NULL); /* of what was kept to be recovered; the reason stays */
        else
            idle_tick(sb);
    }
    bool pressed = standing && host_free_mib() < c->cfg.standby_free_mib;
    for (i = 0; standing && (en = map_next(&c->sandboxes, &i));)
        if (standby_over(c, en->value, pressed))
            return;
}

void policy_start(struct core *c)
{
    timer_init(&c->policy, c->loop, tick, c);
    timer_arm(&c->policy, TICK_NS);
}
void policy_stop(struct core *c) { timer_stop(&c->policy); }
