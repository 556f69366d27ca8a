#include "core/life/idle.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/code/context.h"
#include "core/network/egress.h"
#include "core/life/life_int.h"
#include "core/life/pause.h"
#include "gate/client.h"

#define LOOK_MIN_NS (1 * NS_PER_S)
#define LOOK_MAX_NS (15 * NS_PER_S)
#define BUSY_PART   20 /* of one core */

/* Calls that clients hold open. Code contexts keep one each to their kernel, which is nobody's work while no cell runs. */
static bool has_clients(struct sandbox *sb)
{
    struct agent *a = sandbox_channel(sb, NULL);
    return a && agent_open(a) > contexts_resting(sb);
}

bool idle_rests(struct sandbox *sb)
{
    return sb->activity.looked > sb->activity.since && !has_clients(sb);
}

/* The figures of this look against those of the last. */
static void judge(struct sandbox *sb, uint64_t cpu_ns, uint64_t traffic)
{
    struct activity *i = &sb->activity;
    int64_t now = clock_mono();
    if (i->looked && cpu_ns > i->cpu_ns &&
        (cpu_ns - i->cpu_ns) * BUSY_PART > (uint64_t)(now - i->looked))
        i->since = now;
    if (i->looked && traffic != i->traffic)
        i->since = now;
    *i = (struct activity){.since = i->since, .looked = now, .cpu_ns = cpu_ns, .traffic = traffic};
    if (has_clients(sb))
        i->since = now;
    if (now - i->since >= (int64_t)sb->life.idle_s * NS_PER_S)
        sandbox_time_up(sb, sb->life.on_idle, WHY_IDLE, sb->life.idle_s);
}

/* ---- one look: processor time, then the gate's count ------------------------------------------------------------------ */

struct look {
    struct core *core;
    char id[22];
    uint64_t cpu_ns;
};

/* NULL: it stopped running, or somebody else's rule holds by now; nothing is concluded. */
static struct sandbox *look_end(struct look *l)
{
    struct sandbox *sb = sandbox_at(l->core, l->id);
    if (sb)
        sb->activity.looking = false;
    return sb && sb->state == SB_RUNNING && !sb->busy && sb->life.idle_s ? sb : NULL;
}

static void counted(void *arg, const struct err *e, const struct gate_stat *s, size_t n)
{
    struct look l = *(struct look *)arg;
    struct sandbox *sb = look_end(&l);
    free(arg);
    if (sb) /* a gate that is away carries nothing: as before */
        judge(sb, l.cpu_ns, !e && n ? s->in + s->out + s->dns : sb->activity.traffic);
}

static void measured(void *arg, const struct err *e, const struct sandbox_metrics *m)
{
    struct look *l = arg;
    struct sandbox *sb = sandbox_at(l->core, l->id);
    if (!e && sb && egress_up(l->core)) {
        l->cpu_ns = m->cpu_ns;
        gate_stats(egress_client(l->core), sb->box_id, counted, l);
        return;
    }
    sb = look_end(l);
    free(l);
    if (!e && sb)
        judge(sb, m->cpu_ns, sb->activity.traffic);
}

void idle_tick(struct sandbox *sb)
{
    int64_t limit = (int64_t)sb->life.idle_s * NS_PER_S, every = limit / 4;
    if (!limit || sb->state != SB_RUNNING || sb->activity.looking || sb->busy)
        return;
    every = every < LOOK_MIN_NS ? LOOK_MIN_NS : every > LOOK_MAX_NS ? LOOK_MAX_NS : every;
    if (sb->activity.looked && clock_mono() - sb->activity.looked < every - LOOK_MIN_NS / 2)
        return;
    struct look *l = xcalloc(1, sizeof *l);
    struct err e;
    l->core = sb->core;
    memcpy(l->id, sb->id, sizeof l->id);
    sb->activity.looking = true;
    if (has_clients(sb))
        activity_touch(sb);
    if (sandbox_metrics(sb, measured, l, &e)) {
        (void)look_end(l); /* it ends, or is about to be found broken */
        free(l);
    }
}
