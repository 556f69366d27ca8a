/* How a sandbox comes to be: a row, a box from the pool or a new one, told who it is before anything of the user runs. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/life/life_int.h"
#include "core/network/network.h"
#include "core/ahead/pool.h"
#include "core/agent/prime.h"
#include "core/life/quota.h"
#include "core/sandbox/sandbox.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/volume/volume.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct creation {
    struct core *core;
    char id[22];
    sandbox_cb *done;
    void *arg;
    int64_t begun;
    bool boots; /* a VM from files alone */
    bool asleep;
};

static void created(struct creation *cr, struct sandbox *sb, const struct err *e)
{
    cr->done(cr->arg, sb, e);
    snapshots_collect(cr->core); /* one it was made of may not be needed any more */
    free(cr);
}

static void create_failed(struct creation *cr, struct sandbox *sb, const struct err *e)
{
    struct err copy = *e;
    sandbox_count_create(cr->core, false);
    if (sb && sb->state == SB_CREATING) {
        if (e->code == E_GONE) /* its process; to who asked for a sandbox nothing is gone */
            err_why(
                &copy, REASON_HOST_CANNOT, E_UNAVAILABLE,
                "%s before it was ready; most often the host is short of memory (see log/spawn.log for its last output)",
                e->msg);
        (void)sandbox_advance(sb, SBE_FAIL, NULL);
        sandbox_set_end(sb, END_HOST_FAULT, copy.msg);
        sandbox_release(sb);
        network_ended(sb);
        sandbox_drop_box(sb, false, NULL, NULL);
        sandbox_announce(sb);
        volumes_detach(sb);
        sandbox_forget(sb); /* the caller got the reason; nothing of it stays */
    }
    created(cr, NULL, &copy);
}

static void running_stored(void *arg, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = sandbox_at(cr->core, cr->id);
    struct err gone;
    if (!sb || (sb->state != SB_RUNNING)) {
        err_set(&gone, E_CANCELED, "sandbox %s was killed while it was being created", cr->id);
        created(cr, NULL, &gone);
        return;
    }
    if (e) {
        log_error("sandbox %s: storing it: %s", sb->id, e->msg);
        (void)sandbox_kill(sb, END_HOST_FAULT, "its state could not be stored", NULL, NULL, NULL);
        created(cr, NULL, e);
        return;
    }
    fault("create.stored");
    sandbox_count_create(cr->core, true);
    sandbox_announce(sb);
    created(cr, sb, NULL);
}

static void ready(struct creation *cr, struct sandbox *sb);
static void commands_ready(void *arg, const struct err *e);

static void box_configured(void *arg, struct box *b, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = sandbox_at(cr->core, cr->id);
    if (e) {
        create_failed(cr, sb, e);
        return;
    }
    if (!sb) {
        box_remove(b, NULL, NULL);
        struct err gone;
        err_set(&gone, E_CANCELED, "sandbox %s was killed while it was being created", cr->id);
        created(cr, NULL, &gone);
        return;
    }
    fault("create.configured");
    sb->kernel = xstrdup(b->kernel);
    /* a VM's snapshot was taken with START running; a container, and what boots, begins here */
    struct template *t = template_at(sb->core, sb->template_id);
    if (!cr->asleep && (!tier_can(sb->tier, TIER_VARIANTS) || cr->boots) && t &&
        (t->start || t->ready)) {
        sb->prime = prime_start(sb->core->loop, b->agent, t->start, t->ready, commands_ready, cr);
        return;
    }
    ready(cr, sb);
}

static void commands_ready(void *arg, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = sandbox_at(cr->core, cr->id);
    if (sb)
        sb->prime = NULL;
    if (!sb || sb->state != SB_CREATING || e) {
        struct err gone;
        err_set(&gone, E_CANCELED, "sandbox %s was killed while it was being created", cr->id);
        create_failed(cr, sb, e ? e : &gone);
        return;
    }
    ready(cr, sb);
}

static void ready(struct creation *cr, struct sandbox *sb)
{
    (void)sandbox_advance(sb, SBE_READY, NULL);
    sb->started_ns = clock_wall();
    sb->start_ms = (double)(clock_mono() - cr->begun) / 1e6;
    sandbox_arm_expiry(sb, (int64_t)sb->timeout_s * NS_PER_S);
    activity_begin(sb);
    sandbox_store(sb, running_stored, cr);
}

static void box_started(void *arg, struct box *b, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = sandbox_at(cr->core, cr->id);
    (void)b;
    if (e) {
        if (sb && sb->state == SB_CREATING) {
            sb->box = NULL; /* it removes itself */
            template_use(sb, -1);
        }
        create_failed(cr, sb, e);
        return;
    }
    fault("create.started");
    sandbox_configure(
        sb, box_configured,
        cr); /* a kill meanwhile would have removed the box, and this callback with it */
}

/* Whose it will be. */
static const char *tenant_of(const struct sandbox_spec *s)
{
    return s->tenant ? s->tenant : "";
}

static int check_spec(struct core *c, const struct sandbox_spec *s, struct template *t,
                      const struct tier *tier, struct err *e)
{
    uint32_t disk = s->disk_mib ? s->disk_mib : c->cfg.def_disk_mib;
    if (c->stopping)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    if (c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "hutch-spawn has died and is being restarted");
    if (!tier_can(tier, TIER_SANDBOX))
        return err_set(
            e, E_UNSUPPORTED,
            "an isolate is not a sandbox: it evaluates one program (POST /v1/eval, `hutch run --isolation isolate`)");
    if (tier->strength < c->cfg.min_tier->strength)
        return err_set(e, E_DENIED, "isolation '%s' is weaker than '%s', the operator's minimum",
                       tier->name, c->cfg.min_tier->name);
    if (!tier_here(&c->tiers, tier))
        return err_why(e, REASON_HOST_CANNOT, E_UNSUPPORTED, "%s", tier->missing);
    uint32_t memory = s->memory_mib ? s->memory_mib : c->cfg.def_memory_mib;
    if (memory > host_total_mib())
        return err_set(e, E_QUOTA, "memory_mib: %u is more than this host has (%zu MiB)", memory,
                       host_total_mib());
    if (s->disk_mib && disk < t->disk_min_mib)
        return err_set(e, E_INVALID, "disk_mib: template '%s' needs at least %u", t->name,
                       t->disk_min_mib);
    if (s->timeout_s > c->cfg.max_timeout_s)
        return err_set(e, E_INVALID, "timeout_s: at most %u", c->cfg.max_timeout_s);
    if (s->name && !name_ok(str_of(s->name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    if (s->name && (sandbox_named(c, tenant_of(s), s->name) || sandbox_at(c, s->name)))
        return err_why(e, REASON_NAME_TAKEN, E_CONFLICT, "a sandbox named '%s' already exists",
                       s->name);
    size_t living = 0, i = 0;
    struct map_entry *en;
    while ((en = map_next(sandboxes(c), &i)))
        living += ((struct sandbox *)en->value)->box != NULL;
    if (living >= c->cfg.max_sandboxes)
        return err_set(e, E_QUOTA,
                       "%zu sandboxes are running, the limit (HUTCH_MAX_SANDBOXES) is %u", living,
                       c->cfg.max_sandboxes);
    return 0;
}

static int check_scope(struct core *c, const struct sandbox_spec *s, const struct caller *who,
                       const struct template *t, const struct tier *tier, struct err *e)
{
    uint32_t disk = s->disk_mib ? s->disk_mib : c->cfg.def_disk_mib;
    return caller_may_start(who, t->name, t->id, tier->name, s->cpu_millis ? s->cpu_millis : 1000,
                            s->memory_mib ? s->memory_mib : c->cfg.def_memory_mib,
                            disk < t->disk_min_mib ? t->disk_min_mib : disk, e);
}

/* A machine of its own, from the pool or new, or one made of a snapshot. */
static void get_box(struct sandbox *sb, struct creation *cr, const struct snapshot *from, bool boot,
                    unsigned copies)
{
    struct box_spec spec = sandbox_box_spec(sb);
    const char *path = from ? (boot ? "boot" : "snapshot") : sb->tier->cold;
    sb->box = from ? NULL : pool_take(sb->core, &spec, &path);
    bool pooled = sb->box != NULL;
    sb->start_path = xstrdup(path);
    if (from && !from->bare)
        sb->box = box_start_from(sb->core, &spec, from->id, boot, copies, box_started, cr);
    else if (!pooled)
        sb->box = box_start(sb->core, &spec, false, box_started, cr);
    cr->boots = from && boot && tier_can(sb->tier, TIER_VARIANTS);
    sb->box->owner = sb;
    memcpy(sb->box_id, sb->box->id, sizeof sb->box_id);
    if (pooled)
        sandbox_configure(sb, box_configured, cr);
}

int sandbox_create(struct core *c, const struct sandbox_spec *asked, sandbox_cb *done, void *arg,
                   struct err *e)
{
    struct sandbox_spec fitted = *asked, *s = &fitted;
    struct snapshot *from = s->from;
    struct volume_mount mounts[VOLUMES_PER_SANDBOX];
    if (from && (snapshot_fit(from, s, e) ||
                 (!s->boot && from->memory && snapshot_mounts(from, s, mounts, e))))
        return -1;
    struct caller who = s->by ? *s->by : caller_of_tenant(tenant_of(s));
    struct template *t = from ? template_find(c, s->template, e)
                              : template_find_for(c, &who, s->template ? s->template : "base", e);
    const struct tier *tier = s->tier ? s->tier : c->cfg.default_tier;
    if (!t || check_spec(c, s, t, tier, e) || check_scope(c, s, &who, t, tier, e) ||
        volumes_check(c, &who, s->volumes, s->nvolumes, e) ||
        quota_admit(c, tenant_of(s), s->memory_mib ? s->memory_mib : c->cfg.def_memory_mib, NULL,
                    e)) /* last: it makes room */
        return -1;
    struct sandbox *sb = sandbox_new(c);
    id_make('i', sb->id);
    sb->name = s->name ? xstrdup(s->name) : NULL;
    sb->template_name = xstrdup(t->name);
    memcpy(sb->template_id, t->id, sizeof sb->template_id);
    sb->tier = tier;
    sb->state = SB_CREATING;
    sb->cpu_millis = s->cpu_millis ? s->cpu_millis : 1000;
    sb->memory_mib = s->memory_mib ? s->memory_mib : c->cfg.def_memory_mib;
    sb->disk_mib = s->disk_mib ? s->disk_mib : c->cfg.def_disk_mib;
    if (sb->disk_mib < t->disk_min_mib)
        sb->disk_mib = t->disk_min_mib;
    sb->timeout_s = s->timeout_s ? s->timeout_s : c->cfg.def_timeout_s;
    sb->on_timeout = s->on_timeout;
    sb->life = (struct life){.auto_resume = s->auto_resume,
                             .files_only = s->files_only,
                             .idle_s = s->idle_s,
                             .on_idle = s->on_idle,
                             .lifetime_s = s->lifetime_s};
    if (from)
        kv_copy(&sb->env, &from->env);
    for (size_t i = 0; i < s->env.n; i++)
        kv_set(&sb->env, str_of(s->env.at[i].k), str_of(s->env.at[i].v));
    kv_copy(&sb->metadata, &s->metadata);
    kept_copy(&sb->kept, &s->kept);
    kept_set(&sb->kept.tenant, s->tenant);
    if (from)
        sandbox_stands_on(sb, from);
    network_init(sb, s->network);
    sb->generation = from ? from->generation + 1 : 1;
    unsigned char token[20];
    random_bytes(token, sizeof token);
    hex_encode(token, sizeof token, sb->token);
    sb->created_ns = clock_wall();
    if (sb->created_ns <= c->last_created_ns)
        sb->created_ns = c->last_created_ns + 1; /* order of creation is a total order */
    c->last_created_ns = sb->created_ns;
    sandbox_enter(sb);
    volumes_attach(sb, &who, s->volumes, s->nvolumes);

    struct creation *cr = xcalloc(1, sizeof *cr);
    *cr = (struct creation){
        .core = c, .done = done, .arg = arg, .begun = clock_mono(), .asleep = s->asleep};
    memcpy(cr->id, sb->id, sizeof cr->id);
    template_use(sb, 1);
    get_box(sb, cr, from, s->boot || (from && !from->memory), s->copies);
    return 0;
}

void sandbox_resumed(struct sandbox *sb)
{
    int64_t left = sb->expires_ns - clock_wall();
    template_use(sb, 1);
    sb->expires_mono = clock_mono() + left;
    timer_arm(&sb->expiry, left > 0 ? left : 0);
    activity_begin(sb);
}
