#include "core/sandbox.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/agent.h"
#include "core/box.h"
#include "core/context.h"
#include "core/internal.h"
#include "core/network.h"
#include "core/pause.h"
#include "core/pool.h"
#include "core/prime.h"
#include "core/snapshot.h"
#include "core/template.h"
#include "core/volume.h"
#include "crypto/digest.h"
#include "json/write.h"
#include "store/store.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPT_TENANT "tenant"

#define GONE_KEPT_NS (24 * 3600 * NS_PER_S)
#define GONE_KEPT    10000

struct waiter { struct list link; sandbox_cb *done; void *arg; };
struct creation { struct core *core; char id[22]; sandbox_cb *done; void *arg; int64_t begun; bool boots; /* a VM from files alone */ bool asleep; };

const char *tier_name(enum tier t) { return t == TIER_VM ? "vm" : t == TIER_CONTAINER ? "container" : "isolate"; }
int tier_parse(const char *s, enum tier *ret)
{
    if (!strcmp(s, "vm"))
        *ret = TIER_VM;
    else if (!strcmp(s, "container"))
        *ret = TIER_CONTAINER;
    else if (!strcmp(s, "isolate"))
        *ret = TIER_ISOLATE;
    else
        return -1;
    return 0;
}

const char *sandbox_accel(const struct sandbox *sb) { return sb->tier == TIER_VM ? sb->core->accel : "none"; }
const char *sandbox_boundary(const struct sandbox *sb)
{
    if (sb->tier == TIER_CONTAINER)
        return "shared host kernel: namespaces, own uid range, seccomp allow-list, cgroup limits";
    return !strcmp(sb->core->accel, "kvm") ? "own kernel under QEMU microvm (KVM), emulator jailed on the host"
                                           : "own kernel under QEMU microvm (TCG emulation), emulator jailed on the host";
}

/* ---- rows and events ---- */
static void store_row(struct sandbox *sb, bool durable, store_done *done, void *arg)
{
    char *env = kv_to_json(&sb->env), *meta = kv_to_json(&sb->metadata), *options = kv_to_json(&sb->options), *life = life_to_json(&sb->life);
    struct sandbox_row r = {
        .id = sb->id, .name = sb->name, .box_id = *sb->box_id ? sb->box_id : NULL, .template_id = sb->template_id, .template_name = sb->template_name,
        .tier = tier_name(sb->tier), .state = state_name(sb->state), .cpu_millis = sb->cpu_millis, .memory_mib = sb->memory_mib,
        .disk_mib = sb->disk_mib, .timeout_s = sb->timeout_s, .on_timeout = on_timeout_name(sb->on_timeout),
        .created_wall_ns = sb->created_ns, .started_wall_ns = sb->started_ns, .expires_wall_ns = sb->expires_ns, .ended_wall_ns = sb->ended_ns,
        .end_reason = end_name(sb->end_reason), .end_message = sb->end_message, .env_json = env, .metadata_json = meta,
        .network_json = options, .generation = (int64_t)sb->generation, .token = sb->token, .start_path = sb->start_path,
        .start_ns = (int64_t)(sb->start_ms * 1e6), .kernel = sb->kernel, .boot_id = sb->core->host_boot_id,
        .life_json = life, .durable = durable,
    };
    store_put_sandbox(sb->core->store, &r, done, arg);
    free(env);
    free(meta);
    free(options);
    free(life);
}
void sandbox_store(struct sandbox *sb, store_done *done, void *arg) { store_row(sb, false, done, arg); }
void sandbox_store_durable(struct sandbox *sb, store_done *done, void *arg) { store_row(sb, true, done, arg); }

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
    struct box_spec spec = {.tier = sb->tier, .cpu_millis = sb->cpu_millis, .memory_mib = sb->memory_mib, .disk_mib = sb->disk_mib};
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
    jw_kv_str(&w, "tier", tier_name(sb->tier));
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
    event_emit(sb->core, type, sb->id, b.p);
    buf_free(&b);
}

int sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e)
{
    int next = state_next(sb->state, ev);
    if (next < 0)
        return err_set(e, E_CONFLICT, "sandbox %s is %s", sb->id, state_name(sb->state));
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
struct sandbox *sandbox_find(struct core *c, const char *id_or_name, struct err *e)
{
    struct sandbox *sb = map_get(&c->sandboxes, id_or_name);
    if (!sb)
        sb = map_get(&c->names, id_or_name);
    if (!sb)
        err_set(e, E_NOT_FOUND, "sandbox '%.64s' does not exist", id_or_name);
    return sb;
}

int sandbox_ended_err(const struct sandbox *sb, struct err *e)
{
    bool kept = sb->state == SB_FAILED && sb->life.kept;
    return err_set(e, E_GONE, "sandbox %s is %s%s%s%s", sb->id, state_name(sb->state), sb->end_message ? ": " : "", sb->end_message ? sb->end_message : "",
                   kept ? "; its files are kept, recover brings it back" : "");
}

struct agent *sandbox_agent(struct sandbox *sb, struct err *e)
{
    idle_touch(sb);
    return sandbox_channel(sb, e);
}

struct agent *sandbox_channel(struct sandbox *sb, struct err *e)
{
    if (sb->state == SB_RUNNING && sb->box && sb->box->phase == BOX_LIVE && sb->box->agent)
        return sb->box->agent;
    if (sb->state == SB_GONE || sb->state == SB_STOPPING || sb->state == SB_FAILED)
        (void)sandbox_ended_err(sb, e);
    else if (sb->state == SB_PAUSED && !sandbox_busy(sb))
        err_set(e, E_CONFLICT, "sandbox %s is paused; resume it first", sb->id);
    else
        err_set(e, E_UNAVAILABLE, "sandbox %s is %s", sb->id, sb->state == SB_PAUSED ? "resuming" : state_name(sb->state));
    return NULL;
}

/* ---- objects ---- */
static struct sandbox *sandbox_new(struct core *c)
{
    struct sandbox *sb = xcalloc(1, sizeof *sb);
    sb->core = c;
    list_init(&sb->waiters);
    list_init(&sb->attachments);
    timer_init(&sb->expiry, c->loop, sandbox_on_expiry, sb);
    return sb;
}

static void bury(void *arg)
{
    struct sandbox *sb = arg;
    free(sb->name), free(sb->template_name), free(sb->end_message), free(sb->start_path), free(sb->kernel);
    kv_free(&sb->env), kv_free(&sb->metadata), kv_free(&sb->options);
    network_free(sb);
    free(sb);
}

void sandbox_forget(struct sandbox *sb)
{
    struct core *c = sb->core;
    struct err gone;
    err_set(&gone, E_GONE, "sandbox %s is not there any more", sb->id);
    contexts_drop(sb, &gone);
    timer_stop(&sb->expiry), timer_stop(&sb->net_later);
    volumes_forget(sb);
    map_del(&c->sandboxes, sb->id);
    if (sb->name && map_get(&c->names, sb->name) == sb)
        map_del(&c->names, sb->name);
    loop_defer(c->loop, bury, sb);
}

void sandbox_sweep(struct core *c)
{
    struct map_entry *en;
    size_t i = 0, gone = 0;
    int64_t now = clock_wall();
    while ((en = map_next(&c->sandboxes, &i))) {
        struct sandbox *sb = en->value;
        if (sb->state != SB_GONE)
            continue;
        if (now - sb->ended_ns > GONE_KEPT_NS || ++gone > GONE_KEPT) {
            store_del_sandbox(c->store, sb->id, NULL, NULL);
            sandbox_forget(sb);
        }
    }
}

void sandbox_use_template(struct sandbox *sb, int by)
{
    struct template *t = map_get(&sb->core->templates, sb->template_id);
    if (!t || sb->uses_template == (by > 0))
        return;
    sb->uses_template = by > 0;
    t->users = (unsigned)((int)t->users + by);
}

bool sandbox_has_files(const struct sandbox *sb)
{
    char path[32];
    (void)snprintf(path, sizeof path, "boxes/%s", sb->box_id);
    return *sb->box_id && !faccessat(sb->core->home_fd, path, F_OK, 0);
}

/* ---- the end ---- */
static void tell_waiters(struct sandbox *sb)
{
    struct waiter *w;
    struct list all;
    list_init(&all);
    list_each(w, &sb->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    list_each(w, &all, link) {
        list_del(&w->link);
        w->done(w->arg, sb, NULL);
        free(w);
    }
}

static void end_stored(void *arg, const struct err *e)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    if (e)
        log_error("sandbox %s: storing its end: %s", s.id, e->msg);
    struct sandbox *sb = map_get(&s.core->sandboxes, s.id);
    if (!sb)
        return;
    fault("ended.stored");
    sandbox_announce(sb);
    tell_waiters(sb);
}

static void box_gone(void *arg)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    struct sandbox *sb = map_get(&s.core->sandboxes, s.id);
    if (!sb || sb->state != SB_STOPPING)
        return;
    (void)sandbox_advance(sb, SBE_ENDED, NULL);
    fault("delete.removed");
    if (!sb->ended_ns)
        sb->ended_ns = clock_wall();
    volumes_detach(sb);
    snapshots_collect(sb->core);
    sandbox_store(sb, end_stored, sandbox_ref_new(sb));
}

static void release(struct sandbox *sb)
{
    timer_stop(&sb->expiry);
    timer_stop(&sb->net_later);
    if (sb->name && map_get(&sb->core->names, sb->name) == sb)
        map_del(&sb->core->names, sb->name);
}

static void cut_off(struct sandbox *sb)
{
    struct err gone;
    volumes_disconnect(sb);
    err_set(&gone, E_GONE, "sandbox %s is %s%s%.120s", sb->id, state_name(sb->state), sb->end_message ? ": " : "", sb->end_message ? sb->end_message : "");
    contexts_drop(sb, &gone);
}

/* keep: its disk stays where it is, and so does its template. */
static void drop_box(struct sandbox *sb, bool keep, void (*done)(void *arg), void *arg)
{
    struct box *b = sb->box;
    bool files = sb->life.paused == PAUSE_DISK || sb->life.kept;
    struct err gone;
    cut_off(sb);
    sb->box = NULL;
    if (sb->prime) {
        err_set(&gone, E_CANCELED, "sandbox %s was killed while it was being created", sb->id);
        prime_fail(sb->prime, &gone);
        sb->prime = NULL;
    }
    sandbox_use_template(sb, keep ? 1 : -1);
    sb->life.kept = keep;
    if (b) {
        b->keep_files = keep;
        box_remove(b, done, arg);
    } else if (files && !keep) {
        box_remove_files(sb->core, sb->box_id, done, arg);
    } else if (done) {
        loop_defer(sb->core->loop, done, arg);
    }
}

/* Its row says so before anything of it goes: a successor finishes the end, and finds no half of a sandbox. */
static void stopping_stored(void *arg, const struct err *e)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    struct sandbox *sb = map_get(&s.core->sandboxes, s.id);
    if (e)
        log_error("sandbox %s: storing its end: %s", s.id, e->msg);
    if (!sb || sb->state != SB_STOPPING)
        return;
    fault("delete.begun");
    drop_box(sb, false, box_gone, sandbox_ref_new(sb));
}

int sandbox_kill(struct sandbox *sb, enum end_reason why, const char *message, sandbox_cb *done, void *arg, struct err *e)
{
    if (sb->state == SB_GONE)
        return err_set(e, E_NOT_FOUND, "sandbox '%s' does not exist any more", sb->id);
    if (done) {
        struct waiter *w = xcalloc(1, sizeof *w);
        w->done = done, w->arg = arg;
        list_add_tail(&sb->waiters, &w->link);
    }
    bool has_row = sb->state != SB_CREATING;
    if (sb->state == SB_STOPPING)
        return 0;
    if (sandbox_advance(sb, SBE_KILL, e))
        return -1;
    struct err ended;
    err_set(&ended, E_GONE, "sandbox %s ended meanwhile: %s", sb->id, message);
    transit_abort(sb, &ended);
    sandbox_set_end(sb, why, message);
    sb->ended_ns = clock_wall();
    release(sb);
    network_ended(sb);
    sandbox_announce(sb);
    if (has_row) {
        cut_off(sb);
        if (sb->box)
            box_silence(sb->box); /* what is under way with it ends with the transition that asked for it */
        sandbox_store(sb, stopping_stored, sandbox_ref_new(sb));
    } else
        drop_box(sb, false, box_gone, sandbox_ref_new(sb));
    return 0;
}

/* Its machine is gone or useless: a guest's own doing ends it, a fault of the host leaves it `failed`, without processes but
 * with its disk, to be seen and recovered. */
void sandbox_box_ended(struct sandbox *sb, enum end_reason why, const char *message, bool host_fault)
{
    struct err ended;
    if (transit_box_lost(sb, message))
        return;
    if (!host_fault) {
        (void)sandbox_kill(sb, why, message, NULL, NULL, NULL); /* refused only when it is ending already */
        return;
    }
    if (sandbox_advance(sb, SBE_FAIL, NULL))
        return;
    err_set(&ended, E_GONE, "sandbox %s failed: %s", sb->id, message);
    transit_abort(sb, &ended);
    sandbox_set_end(sb, why, message);
    sb->ended_ns = clock_wall();
    release(sb);
    drop_box(sb, sb->core->cfg.failed_keep_s && sandbox_has_files(sb), NULL, NULL);
    sb->life.paused = PAUSE_NONE;
    sandbox_store(sb, end_stored, sandbox_ref_new(sb));
    log_warn("sandbox %s failed: %s", sb->id, message);
}

void sandbox_lost(struct sandbox *sb, enum end_reason why, const char *message)
{
    if (sb->state == SB_STOPPING) { /* its end was under way: finish it */
        box_gone(sandbox_ref_new(sb));
        return;
    }
    sandbox_box_ended(sb, why, message, true);
}

/* ---- creation ---- */
static void created(struct creation *cr, struct sandbox *sb, const struct err *e)
{
    cr->done(cr->arg, sb, e);
    snapshots_collect(cr->core); /* one it was made of may not be needed any more */
    free(cr);
}

static void create_failed(struct creation *cr, struct sandbox *sb, const struct err *e)
{
    struct err copy = *e;
    cr->core->create_failures++;
    if (sb && sb->state == SB_CREATING) {
        if (e->code == E_GONE) /* its process; to who asked for a sandbox nothing is gone */
            err_set(&copy, E_UNAVAILABLE, "%s before it was ready; most often the host is short of memory (hutch-spawn's log has its last words)", e->msg);
        (void)sandbox_advance(sb, SBE_FAIL, NULL);
        sandbox_set_end(sb, END_HOST_FAULT, copy.msg);
        release(sb);
        network_ended(sb);
        drop_box(sb, false, NULL, NULL);
        sandbox_announce(sb);
        volumes_detach(sb);
        sandbox_forget(sb); /* the caller got the reason; nothing of it stays */
    }
    created(cr, NULL, &copy);
}

static void running_stored(void *arg, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = map_get(&cr->core->sandboxes, cr->id);
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
    cr->core->creates++;
    sandbox_announce(sb);
    created(cr, sb, NULL);
}

static void ready(struct creation *cr, struct sandbox *sb);
static void commands_ready(void *arg, const struct err *e);

static void box_configured(void *arg, struct box *b, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = map_get(&cr->core->sandboxes, cr->id);
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
    struct template *t = map_get(&sb->core->templates, sb->template_id);
    if (!cr->asleep && (sb->tier == TIER_CONTAINER || cr->boots) && t && (t->start || t->ready)) {
        sb->prime = prime_start(sb->core->loop, b->agent, t->start, t->ready, commands_ready, cr);
        return;
    }
    ready(cr, sb);
}

static void commands_ready(void *arg, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = map_get(&cr->core->sandboxes, cr->id);
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
    idle_begin(sb);
    sandbox_store(sb, running_stored, cr);
}

void sandbox_environment(const struct sandbox *sb, struct kv *ret)
{
    const struct template *t = map_get(&sb->core->templates, sb->template_id);
    if (t)
        kv_copy(ret, &t->env);
    network_env(sb, ret);
    for (size_t i = 0; i < sb->env.n; i++)
        kv_set(ret, str_of(sb->env.at[i].k), str_of(sb->env.at[i].v));
    for (size_t i = 0; i < sb->options.n; i++) {
        const char *k = sb->options.at[i].k, *v = sb->options.at[i].v;
        if (!strncmp(k, "env:", 4))
            kv_set(ret, str_of(k + 4), str_of(strcmp(v, "{sandbox}") ? v : sb->id));
    }
}

/* The second half of sandbox_configure_box: what its box is told. */
void sandbox_tell_identity(struct sandbox *sb, box_cb *cb, void *arg)
{
    struct template *t = map_get(&sb->core->templates, sb->template_id);
    struct kv env = {0}, files = {0};
    sandbox_environment(sb, &env);
    for (size_t i = 0; i < sb->options.n; i++) {
        const char *k = sb->options.at[i].k, *v = sb->options.at[i].v;
        if (!strncmp(k, "file:", 5))
            kv_set(&files, str_of(k + 5), str_of(strcmp(v, "{sandbox}") ? v : sb->id));
    }
    /* the same after a takeover, another for every sandbox and every fork of one */
    char seed[80], machine_id[SHA256_HEX];
    (void)snprintf(seed, sizeof seed, "machine-id %s %s", sb->id, sb->token);
    sha256_hex(seed, strlen(seed), machine_id);
    machine_id[32] = 0;
    struct box_identity id = {.sandbox = sb->id, .hostname = sb->name ? sb->name : sb->id, .env = &env, .files = &files, .generation = sb->generation,
                              .machine_id = machine_id, .takeover = sb->state == SB_RUNNING && sb->life.paused != PAUSE_DISK && !sandbox_rolling_back(sb),
                              /* from disk, or from standby under another daemon: frozen until it is told to thaw */
                              .resume = sb->life.paused != PAUSE_NONE && sb->life.memory && sb->tier == TIER_VM};
    id.user = t && t->user ? t->user : "user";
    id.workdir = t ? t->workdir : NULL;
    box_configure(sb->box, &id, cb, arg);
    kv_free(&env);
    kv_free(&files);
}

struct configuring { struct core *core; char id[22], box_id[22]; box_cb *cb; void *arg; };

static void volumes_there(void *arg, const struct err *e)
{
    struct configuring k = *(struct configuring *)arg;
    struct sandbox *sb = map_get(&k.core->sandboxes, k.id);
    struct box *b = sb && sb->box && !strcmp(sb->box->id, k.box_id) ? sb->box : NULL;
    struct err gone;
    free(arg);
    if (!e && !b) {
        err_set(&gone, E_CANCELED, "sandbox %s ended meanwhile", k.id);
        e = &gone;
    }
    if (e)
        k.cb(k.arg, b, e);
    else
        sandbox_tell_identity(sb, k.cb, k.arg);
}

/* Give its box this sandbox's volumes and identity: at creation, and again after every takeover of the channel. */
void sandbox_configure_box(struct sandbox *sb, box_cb *cb, void *arg)
{
    if (list_empty(&sb->attachments)) {
        sandbox_tell_identity(sb, cb, arg);
        return;
    }
    struct configuring *k = xcalloc(1, sizeof *k);
    *k = (struct configuring){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(k->id, sb->id, sizeof k->id);
    memcpy(k->box_id, sb->box->id, sizeof k->box_id);
    volumes_connect(sb, volumes_there, k);
}

static void box_started(void *arg, struct box *b, const struct err *e)
{
    struct creation *cr = arg;
    struct sandbox *sb = map_get(&cr->core->sandboxes, cr->id);
    (void)b;
    if (e) {
        if (sb && sb->state == SB_CREATING) {
            sb->box = NULL; /* it removes itself */
            sandbox_use_template(sb, -1);
        }
        create_failed(cr, sb, e);
        return;
    }
    fault("create.started");
    sandbox_configure(sb, box_configured, cr); /* a kill meanwhile would have removed the box, and this callback with it */
}

static int check_spec(struct core *c, const struct sandbox_spec *s, struct template *t, enum tier tier, struct err *e)
{
    uint32_t disk = s->disk_mib ? s->disk_mib : c->cfg.def_disk_mib;
    if (c->stopping)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    if (c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "hutch-spawn has died and is being started again: try again in a moment");
    if (tier == TIER_ISOLATE)
        return err_set(e, E_UNSUPPORTED, "an isolate is no sandbox: it evaluates one program (POST /v1/eval, `hutch run --isolation isolate`)");
    if (tier > (enum tier)c->cfg.min_tier)
        return err_set(e, E_DENIED, "isolation '%s' is below the floor '%s' that the operator set", tier_name(tier), tier_name((enum tier)c->cfg.min_tier));
    if (tier == TIER_VM && !c->vmh)
        return err_set(e, E_UNSUPPORTED, "microVMs cannot run on this host; `hutch doctor` says why");
    uint32_t memory = s->memory_mib ? s->memory_mib : c->cfg.def_memory_mib;
    if (memory > host_total_mib())
        return err_set(e, E_QUOTA, "memory_mib: %u is more than this host has in all (%zu MiB)", memory, host_total_mib());
    if (s->disk_mib && disk < t->disk_min_mib)
        return err_set(e, E_INVALID, "disk_mib: template '%s' needs at least %u", t->name, t->disk_min_mib);
    if (s->timeout_s > c->cfg.max_timeout_s)
        return err_set(e, E_INVALID, "timeout_s: at most %u", c->cfg.max_timeout_s);
    if (s->name && !name_ok(str_of(s->name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    if (s->name && (map_get(&c->names, s->name) || map_get(&c->sandboxes, s->name)))
        return err_set(e, E_CONFLICT, "a sandbox named '%s' exists already", s->name);
    size_t living = 0, i = 0;
    struct map_entry *en;
    while ((en = map_next(&c->sandboxes, &i)))
        living += ((struct sandbox *)en->value)->box != NULL;
    if (living >= c->cfg.max_sandboxes)
        return err_set(e, E_QUOTA, "%zu sandboxes run, the limit (HUTCH_MAX_SANDBOXES) is %u", living, c->cfg.max_sandboxes);
    return 0;
}

/* A machine of its own, from the pool or new, or one made of a snapshot. */
static void get_box(struct sandbox *sb, struct creation *cr, const struct snapshot *from, bool boot)
{
    struct box_spec spec = sandbox_box_spec(sb);
    const char *path = from ? (boot ? "boot" : "snapshot") : sb->tier == TIER_VM ? "restore" : "cold";
    sb->box = from ? NULL : pool_take(sb->core, &spec, &path);
    bool pooled = sb->box != NULL;
    sb->start_path = xstrdup(path);
    if (from && !from->bare)
        sb->box = box_start_from(sb->core, &spec, from->id, boot, box_started, cr);
    else if (!pooled)
        sb->box = box_start(sb->core, &spec, false, box_started, cr);
    cr->boots = from && boot && sb->tier == TIER_VM;
    sb->box->owner = sb;
    memcpy(sb->box_id, sb->box->id, sizeof sb->box_id);
    if (pooled)
        sandbox_configure(sb, box_configured, cr);
}

int sandbox_create(struct core *c, const struct sandbox_spec *asked, sandbox_cb *done, void *arg, struct err *e)
{
    struct sandbox_spec fitted = *asked, *s = &fitted;
    struct snapshot *from = s->from;
    struct volume_mount mounts[VOLUMES_PER_SANDBOX];
    if (from && (snapshot_fit(from, s, e) || (!s->boot && from->memory && snapshot_mounts(from, s, mounts, e))))
        return -1;
    struct template *t = template_find(c, s->template ? s->template : "base", e);
    enum tier tier = s->tier ? (enum tier)s->tier : (enum tier)c->cfg.default_tier;
    if (!t || check_spec(c, s, t, tier, e) || volumes_check(c, s->volumes, s->nvolumes, e))
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
    sb->life = (struct life){.auto_resume = s->auto_resume, .files_only = s->files_only, .idle_s = s->idle_s, .on_idle = s->on_idle, .lifetime_s = s->lifetime_s};
    if (from)
        kv_copy(&sb->env, &from->env);
    for (size_t i = 0; i < s->env.n; i++)
        kv_set(&sb->env, str_of(s->env.at[i].k), str_of(s->env.at[i].v));
    kv_copy(&sb->metadata, &s->metadata);
    kv_copy(&sb->options, &s->options);
    if (s->tenant && *s->tenant)
        kv_set(&sb->options, S(OPT_TENANT), str_of(s->tenant));
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
    map_set(&c->sandboxes, sb->id, sb);
    if (sb->name)
        map_set(&c->names, sb->name, sb);
    volumes_attach(sb, s->volumes, s->nvolumes);

    struct creation *cr = xcalloc(1, sizeof *cr);
    *cr = (struct creation){.core = c, .done = done, .arg = arg, .begun = clock_mono(), .asleep = s->asleep};
    memcpy(cr->id, sb->id, sizeof cr->id);
    sandbox_use_template(sb, 1);
    get_box(sb, cr, from, s->boot || (from && !from->memory));
    return 0;
}

const char *sandbox_tenant(const struct sandbox *sb)
{
    const char *t = kv_get(&sb->options, OPT_TENANT);
    return t ? t : "";
}
int sandbox_rename(struct sandbox *sb, const char *name, struct err *e)
{
    struct core *c = sb->core;
    if (name && !name_ok(str_of(name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    struct sandbox *other = name ? map_get(&c->names, name) : NULL;
    if ((other && other != sb) || (name && map_get(&c->sandboxes, name)))
        return err_set(e, E_CONFLICT, "a sandbox named '%s' exists already", name);
    if (sb->name && map_get(&c->names, sb->name) == sb)
        map_del(&c->names, sb->name);
    free(sb->name);
    sb->name = name ? xstrdup(name) : NULL;
    if (name)
        map_set(&c->names, name, sb);
    sandbox_store(sb, NULL, NULL);
    return 0;
}

void sandbox_set_option(struct sandbox *sb, const char *key, const char *value)
{
    kv_set(&sb->options, str_of(key), str_of(value));
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
    enum tier tier;
    if (st < 0 || !r->id || !id_ok(str_of(r->id)) || !r->tier || tier_parse(r->tier, &tier))
        return NULL;
    struct sandbox *sb = sandbox_new(c);
    (void)snprintf(sb->id, sizeof sb->id, "%s", r->id);
    (void)snprintf(sb->box_id, sizeof sb->box_id, "%s", r->box_id ? r->box_id : "");
    (void)snprintf(sb->template_id, sizeof sb->template_id, "%s", r->template_id ? r->template_id : "");
    (void)snprintf(sb->token, sizeof sb->token, "%s", r->token ? r->token : "");
    sb->name = r->name ? xstrdup(r->name) : NULL;
    sb->template_name = xstrdup(r->template_name ? r->template_name : "");
    sb->tier = tier, sb->state = (enum sb_state)st;
    sb->cpu_millis = (uint32_t)r->cpu_millis, sb->memory_mib = (uint32_t)r->memory_mib, sb->disk_mib = (uint32_t)r->disk_mib;
    sb->timeout_s = (uint32_t)r->timeout_s;
    sb->on_timeout = r->on_timeout && !strcmp(r->on_timeout, "pause") ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_KILL;
    sb->created_ns = r->created_wall_ns, sb->started_ns = r->started_wall_ns, sb->expires_ns = r->expires_wall_ns, sb->ended_ns = r->ended_wall_ns;
    sb->end_reason = end_parse(r->end_reason);
    sb->end_message = r->end_message ? xstrdup(r->end_message) : NULL;
    sb->generation = (uint64_t)r->generation;
    sb->start_path = xstrdup(r->start_path ? r->start_path : "");
    sb->start_ms = (double)r->start_ns / 1e6;
    sb->kernel = r->kernel ? xstrdup(r->kernel) : NULL;
    struct err e;
    if (life_from_json(&sb->life, r->life_json, &e))
        log_warn("sandbox %s: its stored policy is damaged: %s", sb->id, e.msg);
    if (kv_from_json(&sb->env, r->env_json, &e) || kv_from_json(&sb->metadata, r->metadata_json, &e) || kv_from_json(&sb->options, r->network_json, &e))
        log_warn("sandbox %s: its stored maps are damaged: %s", sb->id, e.msg);
    network_load(sb);
    map_set(&c->sandboxes, sb->id, sb);
    if (sb->name && sb->state != SB_GONE && sb->state != SB_FAILED)
        map_set(&c->names, sb->name, sb);
    if (sb->created_ns > c->last_created_ns)
        c->last_created_ns = sb->created_ns;
    return sb;
}

void sandbox_resumed(struct sandbox *sb)
{
    int64_t left = sb->expires_ns - clock_wall();
    sandbox_use_template(sb, 1);
    sb->expires_mono = clock_mono() + left;
    timer_arm(&sb->expiry, left > 0 ? left : 0);
    idle_begin(sb);
}
