/* The clocks of a sandbox: its timeout, its longest life, and what happens when
 * one of them (or idleness, core/idle.h) says that the time is up. Which one it
 * was is in the end's reason, or in that of the pause. */
#include "base/clock.h"
#include "core/internal.h"
#include "core/pause.h"
#include <stdio.h>

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
void sandbox_time_up(struct sandbox *sb, enum on_timeout what, enum pause_why which, uint32_t seconds)
{
    struct pause_spec how = {.files_only = sb->life.files_only, .why = which};
    struct err e;
    char m[80];
    if (what == ON_TIMEOUT_PAUSE && !sandbox_pause(sb, &how, NULL, NULL, &e))
        return;
    if (which == WHY_IDLE)
        (void)snprintf(m, sizeof m, "it did nothing for %u s (idle_timeout_s)", seconds);
    else
        (void)snprintf(m, sizeof m, "its timeout of %u s has passed", seconds);
    (void)sandbox_kill(sb, which == WHY_IDLE ? END_IDLE : END_TIMEOUT, m, NULL, NULL, NULL); /* only refused when it is ending anyway */
}

void sandbox_lifetime_over(struct sandbox *sb)
{
    char m[80];
    (void)snprintf(m, sizeof m, "its longest life of %u s (max_lifetime_s) is over", sb->life.lifetime_s);
    (void)sandbox_kill(sb, END_LIFETIME, m, NULL, NULL, NULL); /* likewise */
}

int64_t sandbox_lifetime_end(const struct sandbox *sb)
{
    return sb->life.lifetime_s ? sb->created_ns + (int64_t)sb->life.lifetime_s * NS_PER_S : INT64_MAX;
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
        return err_set(e, sb->state == SB_GONE ? E_NOT_FOUND : E_CONFLICT, "sandbox %s is %s", sb->id, state_name(sb->state));
    if (seconds > sb->core->cfg.max_timeout_s)
        return err_set(e, E_INVALID, "timeout_s: at most %u", sb->core->cfg.max_timeout_s);
    sb->timeout_s = seconds;
    sandbox_arm_expiry(sb, (int64_t)seconds * NS_PER_S);
    sandbox_store(sb, NULL, NULL);
    return 0;
}

int sandbox_keep_alive(struct sandbox *sb, uint32_t seconds, struct err *e)
{
    idle_touch(sb);
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
    idle_begin(sb);
    sandbox_store(sb, NULL, NULL);
}
