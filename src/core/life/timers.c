/* The clocks of a sandbox: its timeout, its longest life, standby that becomes a pause on disk, and what happens
 * when one of them (or idleness, core/life/idle.h) says that the time is up. Which one it was is in the end's
 * reason, or in that of the pause. */
#include "core/life/timers.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/ahead/pool.h"
#include "core/life/idle.h"
#include "core/life/pause.h"
#include "core/sandbox/object.h"
#include "core/life/life_int.h"
#include <stdio.h>
#include <stdlib.h>

#define TICK_NS (1 * NS_PER_S)

struct timers {
    struct timer tick;
};

void sandbox_on_expiry(void *arg)
{
    struct sandbox *sb = arg;
    if (clock_mono() < sb->expires_mono)
        timer_arm(&sb->expiry, sb->expires_mono - clock_mono());
    else if (sb->expires_ns == sandbox_lifetime_end(sb))
        sandbox_lifetime_over(sb);
    else
        sandbox_time_up(sb, sb->on_timeout, WHY_TIMEOUT, sb->timeout_s);
}

/* A timer of its fired: what was asked for then happens, and says which one it was. */
void sandbox_time_up(struct sandbox *sb, enum on_timeout what, enum pause_why which,
                     uint32_t seconds)
{
    struct pause_spec how = {.files_only = sb->life.files_only, .why = which};
    struct err e;
    char m[80];
    if (what == ON_TIMEOUT_PAUSE && !sandbox_pause(sb, &how, NULL, NULL, &e))
        return;
    if (which == WHY_IDLE)
        (void)snprintf(m, sizeof m, "idle for %u s (idle_timeout_s)", seconds);
    else
        (void)snprintf(m, sizeof m, "timeout of %u s reached", seconds);
    (void)sandbox_kill(sb, which == WHY_IDLE ? END_IDLE : END_TIMEOUT, m, NULL, NULL,
                       NULL); /* only refused when it is ending anyway */
}

void sandbox_lifetime_over(struct sandbox *sb)
{
    char m[80];
    (void)snprintf(m, sizeof m, "maximum lifetime of %u s reached (max_lifetime_s)",
                   sb->life.lifetime_s);
    (void)sandbox_kill(sb, END_LIFETIME, m, NULL, NULL, NULL); /* likewise */
}

int64_t sandbox_lifetime_end(const struct sandbox *sb)
{
    return sb->life.lifetime_s ? sb->created_ns + (int64_t)sb->life.lifetime_s * NS_PER_S
                               : INT64_MAX;
}

void sandbox_arm_expiry(struct sandbox *sb, int64_t in_ns)
{
    int64_t now = clock_wall(), end = sandbox_lifetime_end(sb);
    sb->expires_ns = end - now < in_ns ? end : now + in_ns;
    in_ns = sb->expires_ns - now;
    sb->expires_mono = clock_mono() + in_ns;
    timer_arm(&sb->expiry, in_ns > 0 ? in_ns : 0);
}

int sandbox_set_timeout(struct sandbox *sb, uint32_t seconds, struct err *e)
{
    if (sb->state == SB_FAILED)
        return sandbox_ended_err(sb, e);
    if (sb->state != SB_RUNNING)
        return err_why(e, sb->state == SB_PAUSED ? REASON_PAUSED : REASON_NONE,
                       sb->state == SB_GONE ? E_NOT_FOUND : E_CONFLICT, "sandbox %s is %s", sb->id,
                       state_name(sb->state));
    if (seconds > sb->core->cfg.max_timeout_s)
        return err_set(e, E_INVALID, "timeout_s: at most %u", sb->core->cfg.max_timeout_s);
    sb->timeout_s = seconds;
    sandbox_arm_expiry(sb, (int64_t)seconds * NS_PER_S);
    sandbox_store(sb, NULL, NULL);
    return 0;
}

int sandbox_keep_alive(struct sandbox *sb, uint32_t seconds, struct err *e)
{
    activity_touch(sb);
    if (!seconds)
        seconds = sb->timeout_s;
    if (sb->state == SB_RUNNING && clock_mono() + (int64_t)seconds * NS_PER_S <= sb->expires_mono)
        return 0;
    return sandbox_set_timeout(sb, seconds, e);
}

void sandbox_set_on_timeout(struct sandbox *sb, enum on_timeout what)
{
    sb->on_timeout = what;
    sandbox_store(sb, NULL, NULL);
}

void sandbox_set_idle(struct sandbox *sb, uint32_t seconds, enum on_timeout what)
{
    sb->life.idle_s = seconds;
    sb->life.on_idle = what;
    activity_begin(sb);
    sandbox_store(sb, NULL, NULL);
}

/* ---- what happens without anybody asking, once a second ---- */
static void moved(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)arg, (void)sb;
    if (e)
        log_warn("from standby to disk: %s", e->msg);
}

/* Only of VMs: a container's memory cannot go anywhere. One at a time: it is disk work, and the host may be short already. */
static bool standby_over(struct core *c, struct sandbox *sb, bool pressed)
{
    struct pause_spec how = {
        .why =
            WHY_TIMEOUT}; /* nobody's call, so no quota stands in its way; the reason it was paused for stays */
    int64_t lasted = clock_wall() - sb->life.paused_ns,
            limit = (int64_t)c->cfg.standby_s * NS_PER_S;
    struct err e;
    if (sb->state != SB_PAUSED || sb->life.paused != PAUSE_STANDBY ||
        !tier_can(sb->tier, TIER_MEMORY) || sb->busy)
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
    timer_arm(&c->timers->tick, TICK_NS);
    if (c->stopping || c->spawn_lost)
        return;
    while ((en = map_next(sandboxes(c), &i))) {
        struct sandbox *sb = en->value;
        standing += sb->life.paused == PAUSE_STANDBY;
        if (sb->state == SB_PAUSED &&
            now >= sandbox_lifetime_end(sb)) /* a running one has a timer for it */
            sandbox_lifetime_over(sb);
        else if (sb->state == SB_FAILED &&
                 now - sb->ended_ns >= (int64_t)c->cfg.failed_keep_s * NS_PER_S)
            (void)sandbox_kill(sb, sb->end_reason, "", NULL, NULL,
                               NULL); /* of what was kept to be recovered; the reason stays */
        else
            idle_tick(sb);
    }
    bool pressed = standing && host_free_mib() < c->cfg.standby_free_mib;
    for (i = 0; standing && (en = map_next(sandboxes(c), &i));)
        if (standby_over(c, en->value, pressed))
            return;
}

void timers_start(struct core *c)
{
    c->timers = xcalloc(1, sizeof *c->timers);
    timer_init(&c->timers->tick, c->loop, tick, c);
    timer_arm(&c->timers->tick, TICK_NS);
}
void timers_stop(struct core *c)
{
    if (c->timers)
        timer_stop(&c->timers->tick);
    free(c->timers);
    c->timers = NULL;
}
