#include "core/sandbox/sandbox.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "store/store.h"
#include "json/write.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GONE_KEPT_NS (24 * 3600 * NS_PER_S)
#define GONE_KEPT    10000

struct sandboxes {
    struct map by_id, by_name; /* by_name: full_name() */
    uint64_t creates, create_failures;
};

void sandboxes_init(struct core *c) { c->sandboxes = xcalloc(1, sizeof *c->sandboxes); }
void sandboxes_free(struct core *c)
{
    map_free(&c->sandboxes->by_id), map_free(&c->sandboxes->by_name);
    free(c->sandboxes);
    c->sandboxes = NULL;
}
const struct map *sandboxes(const struct core *c) { return &c->sandboxes->by_id; }
struct sandbox *sandbox_at(const struct core *c, const char *id)
{
    return map_get(&c->sandboxes->by_id, id);
}
struct sandbox *sandbox_named(const struct core *c, const char *tenant, const char *name)
{
    char full[FULL_NAME];
    return map_get(&c->sandboxes->by_name, full_name(tenant, name, full));
}

void sandbox_enter(struct sandbox *sb)
{
    struct sandboxes *all = sb->core->sandboxes;
    char full[FULL_NAME];
    map_set(&all->by_id, sb->id, sb);
    if (sb->name && sb->state != SB_GONE && sb->state != SB_FAILED)
        map_set(&all->by_name, full_name(sandbox_tenant(sb), sb->name, full), sb);
}
void sandbox_free_name(struct sandbox *sb)
{
    char full[FULL_NAME];
    if (sb->name && sandbox_named(sb->core, sandbox_tenant(sb), sb->name) == sb)
        map_del(&sb->core->sandboxes->by_name, full_name(sandbox_tenant(sb), sb->name, full));
}

void sandbox_count_create(struct core *c, bool well)
{
    c->sandboxes->creates += well;
    c->sandboxes->create_failures += !well;
}
void sandbox_creates(const struct core *c, uint64_t *ret_well, uint64_t *ret_failed)
{
    *ret_well = c->sandboxes->creates, *ret_failed = c->sandboxes->create_failures;
}

void activity_touch(struct sandbox *sb) { sb->activity.since = clock_mono(); }
void activity_begin(struct sandbox *sb)
{
    activity_touch(sb);
    sb->activity.looked = 0;
}

const char *sandbox_accel(const struct sandbox *sb)
{
    return sb->tier->accel[sb->core->cfg.use_kvm];
}
const char *sandbox_boundary(const struct sandbox *sb)
{
    return sb->tier->boundary[sb->core->cfg.use_kvm];
}

/* ---- rows and events ---- */
static void store_row(struct sandbox *sb, bool durable, store_done *done, void *arg)
{
    char *env = kv_to_json(&sb->env), *meta = kv_to_json(&sb->metadata),
         *kept = kept_to_json(&sb->kept), *life = life_to_json(&sb->life);
    struct sandbox_row r = {
        .id = sb->id,
        .name = sb->name,
        .box_id = *sb->box_id ? sb->box_id : NULL,
        .template_id = sb->template_id,
        .template_name = sb->template_name,
        .tier = sb->tier->name,
        .state = state_name(sb->state),
        .cpu_millis = sb->cpu_millis,
        .memory_mib = sb->memory_mib,
        .disk_mib = sb->disk_mib,
        .timeout_s = sb->timeout_s,
        .on_timeout = on_timeout_name(sb->on_timeout),
        .created_wall_ns = sb->created_ns,
        .started_wall_ns = sb->started_ns,
        .expires_wall_ns = sb->expires_ns,
        .ended_wall_ns = sb->ended_ns,
        .end_reason = end_name(sb->end_reason),
        .end_message = sb->end_message,
        .env_json = env,
        .metadata_json = meta,
        .kept_json = kept,
        .generation = (int64_t)sb->generation,
        .token = sb->token,
        .start_path = sb->start_path,
        .start_ns = (int64_t)(sb->start_ms * 1e6),
        .kernel = sb->kernel,
        .boot_id = sb->core->host_boot_id,
        .life_json = life,
        .durable = durable,
    };
    store_put_sandbox(sb->core->store, &r, done, arg);
    free(env);
    free(meta);
    free(kept);
    free(life);
}
void sandbox_store(struct sandbox *sb, store_done *done, void *arg)
{
    store_row(sb, false, done, arg);
}
void sandbox_store_durable(struct sandbox *sb, store_done *done, void *arg)
{
    store_row(sb, true, done, arg);
}

struct sandbox_ref *sandbox_ref_new(struct sandbox *sb)
{
    struct sandbox_ref *s = xcalloc(1, sizeof *s);
    s->core = sb->core;
    memcpy(s->id, sb->id, sizeof s->id);
    return s;
}

struct sandbox_ref sandbox_ref_take(void *ref)
{
    struct sandbox_ref r = *(struct sandbox_ref *)ref;
    free(ref);
    return r;
}

struct box_spec sandbox_box_spec(const struct sandbox *sb)
{
    struct box_spec spec = {.tier = sb->tier,
                            .cpu_millis = sb->cpu_millis,
                            .memory_mib = sb->memory_mib,
                            .disk_mib = sb->disk_mib};
    memcpy(spec.template_id, sb->template_id, sizeof spec.template_id);
    return spec;
}

void sandbox_announce(struct sandbox *sb)
{
    struct buf b = {0};
    struct jw w;
    char type[40];
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "tier", sb->tier->name);
    if (sb->state == SB_RUNNING) {
        jw_kv_str(&w, "path", sb->start_path);
        jw_kv_f64(&w, "ms", sb->start_ms);
    }
    if (sb->state == SB_PAUSED) {
        jw_kv_str(&w, "kind", pause_name(sb->life.paused));
        jw_kv_bool(&w, "memory", sb->life.memory);
        jw_kv_str(&w, "reason", pause_why_name(sb->life.why));
    }
    if (sb->end_reason) {
        jw_kv_str(&w, "reason", end_name(sb->end_reason));
        jw_kv_str(&w, "message", sb->end_message);
    }
    jw_end(&w);
    (void)snprintf(type, sizeof type, "sandbox.%s", state_name(sb->state));
    event_emit(sb->core, type, sandbox_tenant(sb), sb->id, b.p);
    buf_free(&b);
}

int sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e)
{
    int next = state_next(sb->state, ev);
    if (next < 0)
        return err_why(e, sb->state == SB_PAUSED ? REASON_PAUSED : REASON_NONE, E_CONFLICT,
                       "sandbox %s is %s", sb->id, state_name(sb->state));
    sb->state = (enum sb_state)next;
    return 0;
}

void sandbox_set_end(struct sandbox *sb, enum end_reason why, const char *message)
{
    if (sb->end_reason)
        return; /* the first cause is the cause */
    sb->end_reason = why;
    sb->end_message = xstrdup(message);
}

/* ---- find and list ---- */

/* A failed sandbox does not hold its name, but answers to it while nobody else has it; of several the one that failed last. */
static struct sandbox *find_failed(struct core *c, const struct caller *who, const char *name)
{
    struct sandbox *best = NULL;
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));) {
        struct sandbox *sb = en->value;
        if (sb->state == SB_FAILED && sb->name && !strcmp(sb->name, name) &&
            caller_sees(who, sandbox_tenant(sb)) && (!best || sb->ended_ns > best->ended_ns))
            best = sb;
    }
    return best;
}

static struct sandbox *find_named(struct core *c, const struct caller *who, const char *name,
                                  struct err *e)
{
    struct pick p = {.who = who};
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->sandboxes->by_name, &i));)
        if (full_name_len(en->key) == strlen(name) && str_starts(str_of(en->key), name))
            pick_add(&p, full_name_tenant(en->key), en->value);
    if (pick_several(&p))
        err_why(e, REASON_NAME_TAKEN, E_CONFLICT,
                "several tenants have a sandbox named '%.63s': use its id", name);
    return pick_get(&p, false);
}

struct sandbox *sandbox_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                                 struct err *e)
{
    struct err several = {0};
    struct sandbox *sb = sandbox_at(c, id_or_name);
    if (sb && !caller_sees(who, sandbox_tenant(sb)))
        sb = NULL;
    else if (!sb)
        sb = find_named(c, who, id_or_name, &several);
    if (!sb && !several.code)
        sb = find_failed(c, who, id_or_name);
    if (!sb && several.code && e)
        *e = several;
    else if (!sb)
        err_why(e, REASON_NO_SANDBOX, E_NOT_FOUND, "sandbox '%.64s' does not exist", id_or_name);
    return sb;
}

struct sandbox *sandbox_find(struct core *c, const char *id_or_name, struct err *e)
{
    return sandbox_find_for(c, &caller_daemon, id_or_name, e);
}

int sandbox_ended_err(const struct sandbox *sb, struct err *e)
{
    bool kept = sb->state == SB_FAILED && sb->life.kept;
    (void)err_set(e, E_GONE, "sandbox %s is %s%s%.120s%s", sb->id, state_name(sb->state),
                  sb->end_message ? ": " : "", sb->end_message ? sb->end_message : "",
                  kept ? "; its files are kept" : "");
    return err_because(e, kept ? REASON_FAILED : REASON_ENDED);
}

struct agent *sandbox_agent(struct sandbox *sb, struct err *e)
{
    activity_touch(sb);
    return sandbox_channel(sb, e);
}

struct agent *sandbox_channel(struct sandbox *sb, struct err *e)
{
    if (sb->state == SB_RUNNING && sb->box && sb->box->phase == BOX_LIVE && sb->box->agent)
        return sb->box->agent;
    if (sb->state == SB_GONE || sb->state == SB_STOPPING || sb->state == SB_FAILED)
        (void)sandbox_ended_err(sb, e);
    else if (sb->state == SB_PAUSED && !sb->busy)
        err_why(e, REASON_PAUSED, E_CONFLICT, "sandbox %s is paused", sb->id);
    else
        err_why(e, REASON_BUSY, E_UNAVAILABLE, "sandbox %s is %s", sb->id,
                sb->state == SB_PAUSED ? "resuming" : state_name(sb->state));
    return NULL;
}

/* ---- objects ---- */
struct sandbox *sandbox_new(struct core *c)
{
    struct sandbox *sb = xcalloc(1, sizeof *sb);
    sb->core = c;
    list_init(&sb->waiters);
    list_init(&sb->attachments);
    timer_init(&sb->expiry, c->loop, c->on->sandbox_expired, sb);
    return sb;
}

static void bury(void *arg)
{
    struct sandbox *sb = arg;
    free(sb->name), free(sb->template_name), free(sb->end_message), free(sb->start_path),
        free(sb->kernel);
    kv_free(&sb->env), kv_free(&sb->metadata), kept_free(&sb->kept);
    sb->core->on->sandbox_buried(sb);
    free(sb);
}

void sandbox_forget(struct sandbox *sb)
{
    struct core *c = sb->core;
    struct err gone;
    err_set(&gone, E_GONE, "sandbox %s no longer exists", sb->id);
    timer_stop(&sb->expiry), timer_stop(&sb->net_later);
    c->on->sandbox_forgotten(sb, &gone);
    map_del(&c->sandboxes->by_id, sb->id);
    sandbox_free_name(sb);
    loop_defer(c->loop, bury, sb);
}

void sandbox_sweep(struct core *c)
{
    struct map_entry *en;
    size_t i = 0, gone = 0;
    int64_t now = clock_wall();
    while ((en = map_next(sandboxes(c), &i))) {
        struct sandbox *sb = en->value;
        if (sb->state != SB_GONE)
            continue;
        if (now - sb->ended_ns > GONE_KEPT_NS || ++gone > GONE_KEPT) {
            store_del_sandbox(c->store, sb->id, NULL, NULL);
            sandbox_forget(sb);
        }
    }
}

bool sandbox_has_files(const struct sandbox *sb)
{
    char path[32];
    (void)snprintf(path, sizeof path, "boxes/%s", sb->box_id);
    return *sb->box_id && !faccessat(sb->core->home_fd, path, F_OK, 0);
}

const char *sandbox_tenant(const struct sandbox *sb)
{
    return sb->kept.tenant ? sb->kept.tenant : "";
}
int sandbox_rename(struct sandbox *sb, const char *name, struct err *e)
{
    struct core *c = sb->core;
    if (name && !name_ok(str_of(name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    struct sandbox *other = name ? sandbox_named(c, sandbox_tenant(sb), name) : NULL;
    if ((other && other != sb) || (name && sandbox_at(c, name)))
        return err_why(e, REASON_NAME_TAKEN, E_CONFLICT, "a sandbox named '%s' already exists",
                       name);
    sandbox_free_name(sb);
    free(sb->name);
    sb->name = name ? xstrdup(name) : NULL;
    sandbox_enter(sb);
    sandbox_store(sb, NULL, NULL);
    return 0;
}

void sandbox_keep(struct sandbox *sb, const char *key, const char *value)
{
    kv_set(&sb->kept.dialect, str_of(key), str_of(value));
    sandbox_store(sb, NULL, NULL);
}

int sandbox_set_metadata(struct sandbox *sb, const struct kv *m, struct err *e)
{
    (void)e;
    struct kv copy = {0};
    kv_copy(&copy, m);
    kv_free(&sb->metadata);
    sb->metadata = copy;
    sandbox_store(sb, NULL, NULL);
    return 0;
}

/* ---- after a restart ---- */
struct sandbox *sandbox_adopt_row(struct core *c, const void *row)
{
    const struct sandbox_row *r = row;
    int st = state_parse(r->state ? r->state : "");
    const struct tier *tier = r->tier ? tier_find(r->tier) : NULL;
    if (st < 0 || !r->id || !id_ok(str_of(r->id)) || !tier)
        return NULL;
    struct sandbox *sb = sandbox_new(c);
    (void)snprintf(sb->id, sizeof sb->id, "%s", r->id);
    (void)snprintf(sb->box_id, sizeof sb->box_id, "%s", r->box_id ? r->box_id : "");
    (void)snprintf(sb->template_id, sizeof sb->template_id, "%s",
                   r->template_id ? r->template_id : "");
    (void)snprintf(sb->token, sizeof sb->token, "%s", r->token ? r->token : "");
    sb->name = r->name ? xstrdup(r->name) : NULL;
    sb->template_name = xstrdup(r->template_name ? r->template_name : "");
    sb->tier = tier, sb->state = (enum sb_state)st;
    sb->cpu_millis = (uint32_t)r->cpu_millis, sb->memory_mib = (uint32_t)r->memory_mib,
    sb->disk_mib = (uint32_t)r->disk_mib;
    sb->timeout_s = (uint32_t)r->timeout_s;
    sb->on_timeout =
        r->on_timeout && !strcmp(r->on_timeout, "pause") ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_KILL;
    sb->created_ns = r->created_wall_ns, sb->started_ns = r->started_wall_ns,
    sb->expires_ns = r->expires_wall_ns, sb->ended_ns = r->ended_wall_ns;
    sb->end_reason = end_parse(r->end_reason);
    sb->end_message = r->end_message ? xstrdup(r->end_message) : NULL;
    sb->generation = (uint64_t)r->generation;
    sb->start_path = xstrdup(r->start_path ? r->start_path : "");
    sb->start_ms = (double)r->start_ns / 1e6;
    sb->kernel = r->kernel ? xstrdup(r->kernel) : NULL;
    struct err e;
    if (life_from_json(&sb->life, r->life_json, &e))
        log_warn("sandbox %s: its stored policy is damaged: %s", sb->id, e.msg);
    if (kv_from_json(&sb->env, r->env_json, &e) ||
        kv_from_json(&sb->metadata, r->metadata_json, &e) ||
        (r->kept_json ? kept_from_json(&sb->kept, r->kept_json, &e)
                      : kept_from_options(&sb->kept, r->options_json, &e)))
        log_warn("sandbox %s: its stored maps are damaged: %s", sb->id, e.msg);
    c->on->sandbox_loaded(sb);
    sandbox_enter(sb);
    if (sb->created_ns > c->last_created_ns)
        c->last_created_ns = sb->created_ns;
    return sb;
}
