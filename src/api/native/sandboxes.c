/* Sandboxes: create, list, look, change, end. */
#include "api/native/native.h"
#include "api/gate.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/catalog/snapshot.h"
#include "core/volume/volume.h"
#include "core/network/network.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 1000

/* ---- rendering ---- */
static void put_map(struct jw *w, const char *key, const struct kv *m)
{
    jw_kv_obj(w, key);
    for (size_t i = 0; i < m->n; i++)
        jw_kv_str(w, m->at[i].k, m->at[i].v);
    jw_end(w);
}

void put_sandbox(struct jw *w, const struct sandbox *sb)
{
    jw_obj(w);
    jw_kv_str(w, "id", sb->id);
    jw_kv_str(w, "name", sb->name);
    jw_kv_str(w, "template", sb->template_name);
    jw_kv_str(w, "template_id", sb->template_id);
    jw_kv_str(w, "tenant", *sandbox_tenant(sb) ? sandbox_tenant(sb) : NULL);
    jw_kv_str(w, "state", state_name(sb->state));
    jw_kv_obj(w, "isolation");
    jw_kv_str(w, "tier", sb->tier->name);
    jw_kv_str(w, "boundary", sandbox_boundary(sb));
    jw_kv_str(w, "accel", sandbox_accel(sb));
    jw_end(w);
    if (sb->cpu_millis % 1000)
        jw_kv_f64(w, "cpu", sb->cpu_millis / 1000.0);
    else
        jw_kv_u64(w, "cpu", sb->cpu_millis / 1000);
    jw_kv_u64(w, "memory_mib", sb->memory_mib);
    jw_kv_u64(w, "disk_mib", sb->disk_mib);
    jw_kv_u64(w, "timeout_s", sb->timeout_s);
    jw_kv_str(w, "on_timeout", on_timeout_name(sb->on_timeout));
    jw_kv_u64(w, "idle_timeout_s", sb->life.idle_s);
    jw_kv_str(w, "on_idle", on_timeout_name(sb->life.on_idle));
    jw_kv_u64(w, "max_lifetime_s", sb->life.lifetime_s);
    jw_kv_bool(w, "auto_resume", sb->life.auto_resume);
    if (sb->state == SB_PAUSED) {
        jw_kv_obj(w, "paused");
        jw_kv_str(w, "kind", pause_name(sb->life.paused));
        jw_kv_bool(w, "memory", sb->life.memory);
        put_time(w, "at", sb->life.paused_ns);
        jw_kv_u64(w, "bytes", sb->life.bytes);
        jw_kv_str(w, "reason", pause_why_name(sb->life.why));
        jw_end(w);
    } else {
        jw_kv_null(w, "paused");
    }
    put_time(w, "created_at", sb->created_ns);
    put_time(w, "started_at", sb->started_ns);
    put_time(w, "expires_at", sb->state != SB_PAUSED ? sb->expires_ns : sb->life.lifetime_s ? sandbox_lifetime_end(sb) : 0);
    put_map(w, "metadata", &sb->metadata);
    jw_key(w, "network");
    network_put(w, sb);
    put_attachments(w, sb);
    jw_kv_str(w, "snapshot", sandbox_base(sb));
    jw_kv_str(w, "box", *sb->box_id ? sb->box_id : NULL);
    jw_kv_u64(w, "generation", sb->generation);
    jw_kv_str(w, "kernel", sb->kernel);
    if (sb->start_path) {
        jw_kv_obj(w, "start");
        jw_kv_str(w, "path", sb->start_path);
        jw_kv_f64(w, "ms", tenths(sb->start_ms));
        jw_end(w);
    } else {
        jw_kv_null(w, "start");
    }
    if (sb->end_reason != END_NONE) {
        jw_kv_obj(w, "end");
        jw_kv_str(w, "reason", end_name(sb->end_reason));
        jw_kv_str(w, "message", sb->end_message);
        put_time(w, "at", sb->ended_ns);
        jw_end(w);
    } else {
        jw_kv_null(w, "end");
    }
    jw_end(w);
}

static void reply_sandbox(struct http_stream *s, int status, const struct sandbox *sb)
{
    struct jw *w = reply_begin(s);
    put_sandbox(w, sb);
    reply_send(s, status);
}

/* ---- create ---- */
#define THEN(name_, struct_, member, help_, ...) \
    FIELD(name_, F_CHOICE, struct_, member, .words = "kill|pause", .help = (help_), __VA_ARGS__)
_Static_assert(ON_TIMEOUT_KILL == 0 && ON_TIMEOUT_PAUSE == 1, "the order of the words in THEN");

static const struct field mount_rows[] = {
    FIELD("name", F_STR, struct volume_mount, volume, .flags = F_REQUIRED, .max = 63,
          .help = "Name or id of a volume."),
    FIELD("path", F_PATH, struct volume_mount, path, .flags = F_REQUIRED, .max = VOLUME_PATH_MAX,
          .help = "Where it appears inside."),
    FIELD("read_only", F_BOOL, struct volume_mount, read_only, .def = "false",
          .help = "The sandbox cannot write to it."),
};
static const struct shape mount_shape = SHAPE_OF("VolumeMount", struct volume_mount, mount_rows);

enum preview { PREVIEW_PUBLIC, PREVIEW_TOKEN };
struct create {
    struct sandbox_spec sp;
    struct json *network;
    struct network_spec net;
    const char *isolation, *snapshot, *tenant;
    bool memory;
    enum preview preview;
    struct volume_mount volumes[VOLUMES_PER_SANDBOX];
};
static const struct field create_rows[] = {
    FIELD("template", F_NAME, struct create, sp.template,
          .help = "Name or id of a template. Default: `base`."),
    FIELD(
        "snapshot", F_NAME, struct create, snapshot,
        .help =
            "Name or id of a snapshot to start from, in place of a template. Sizes and isolation are then the snapshot's."),
    FIELD(
        "memory", F_BOOL, struct create, memory,
        .help =
            "With `snapshot`: continue with its memory and processes, the default if it has any. false: boot from its files."),
    FIELD("name", F_NAME, struct create, sp.name, .help = "A name, unique among living sandboxes."),
    FIELD(
        "isolation", F_WORD, struct create, isolation, .words = "auto|vm|gvisor|container|isolate",
        .help =
            "`auto` is the operator's default, `vm` unless HUTCH_DEFAULT_ISOLATION says otherwise. `isolate` is refused: `POST /v1/eval` runs programs."),
    FIELD("cpu", F_CORES, struct create, sp.cpu_millis, .min = SANDBOX_CPU_MIN,
          .max = SANDBOX_CPU_MAX, .help = "Cores, whole or fractional. Default: 1."),
    FIELD("memory_mib", F_INT, struct create, sp.memory_mib, .min = SANDBOX_MEMORY_MIN,
          .max = SANDBOX_MEMORY_MAX,
          .help = "Memory in MiB, at most what the host has. Default: HUTCH_DEFAULT_MEMORY, 512."),
    FIELD("disk_mib", F_INT, struct create, sp.disk_mib, .min = 1, .max = SANDBOX_DISK_MAX,
          .help =
              "Disk in MiB, at least what the template needs. Default: HUTCH_DEFAULT_DISK, 4096."),
    FIELD_TIMEOUT(
        struct create, sp.timeout_s,
        "Seconds until `on_timeout`, at most HUTCH_MAX_TIMEOUT. Default: HUTCH_DEFAULT_TIMEOUT, 300."),
    THEN("on_timeout", struct create, sp.on_timeout, "What happens when the timeout is over.",
         .def = "\"kill\""),
    FIELD("idle_timeout_s", F_INT, struct create, sp.idle_s, .max = SANDBOX_LIFE_MAX, .def = "0",
          .help =
              "Seconds without work until `on_idle`. 0: never. state.md says what counts as work."),
    THEN("on_idle", struct create, sp.on_idle, "What happens when it is idle for that long.",
         .def = "\"kill\""),
    FIELD("max_lifetime_s", F_INT, struct create, sp.lifetime_s, .max = SANDBOX_LIFE_MAX,
          .def = "0",
          .help =
              "Seconds from its creation, running or paused. No extension passes it. 0: no bound."),
    FIELD("auto_resume", F_BOOL, struct create, sp.auto_resume, .def = "false",
          .help = "A call that needs it running resumes it when it is paused."),
    FIELD("env", F_ENV, struct create, sp.env, .help = "Variables for every process."),
    FIELD("metadata", F_META, struct create, sp.metadata,
          .help = "Notes of the client; lists can filter by them."),
    FIELD("network", F_JSON, struct create, network, .of = &network_shape,
          .help = "What it may reach. Default: nothing."),
    FIELD("preview", F_CHOICE, struct create, preview, .words = "public|token", .def = "\"public\"",
          .help =
              "Who may reach its ports: everybody, or who sends the token that `GET …/url` tells."),
    FIELD("volumes", F_LIST, struct create, volumes, .of = &mount_shape, .max = VOLUMES_PER_SANDBOX,
          .count = offsetof(struct create, sp.nvolumes), .help = "Volumes to attach."),
    FIELD("tenant", F_STR, struct create, tenant, .max = 64,
          .help = "Whose it is. Default: the key's tenant. An admin may name another."),
};
const struct shape create_body = SHAPE_OF("SandboxCreate", struct create, create_rows);

static int check_network(struct api *a, struct create *g, struct err *e)
{
    g->sp.network = &g->net;
    return g->network ? native_network(a, g->sp.by, g->sp.tenant, g->network, &g->net, e)
                      : network_parse(api_core(a), g->sp.by, g->sp.tenant, NULL, &g->net, e);
}

/* Who may reach ports inside: everybody who can reach us, or those with a token that `url` tells. */
static void make_token(struct create *g)
{
    char token[41];
    if (g->preview != PREVIEW_TOKEN)
        return;
    token_make("", 20, token);
    kept_set(&g->sp.kept.preview_token, token);
}

static int check_isolation(struct create *g, struct err *e)
{
    if (!g->isolation || !strcmp(g->isolation, "auto"))
        return 0;
    if (!(g->sp.tier = tier_find(g->isolation)))
        return err_set(e, E_INVALID, "isolation: this daemon has no '%s'", g->isolation);
    return 0;
}

/* A key makes sandboxes for its own tenant; an admin for any. */
static int check_tenant(struct create *g, struct err *e)
{
    if (g->tenant && !caller_changes(g->sp.by, g->tenant))
        return err_why(e, REASON_ROLE, E_FORBIDDEN,
                       "tenant: this key creates sandboxes for '%.64s'; another needs role admin",
                       g->sp.tenant);
    if (g->tenant)
        g->sp.tenant = g->tenant;
    return 0;
}

static int check_snapshot(struct api *a, struct http_stream *s, struct json *j, struct create *g,
                          struct err *e)
{
    bool given = json_has(j, "memory");
    if (!g->snapshot)
        return given ? err_set(e, E_INVALID, "memory: needs a snapshot; did you mean memory_mib?")
                     : 0;
    if (json_has(j, "template"))
        return err_set(e, E_INVALID, "template: cannot be combined with snapshot, which has its own");
    g->sp.from = api_snapshot(a, s, g->snapshot, e);
    if (!g->sp.from)
        return -1;
    if (g->memory && given && !g->sp.from->memory)
        return err_set(e, E_INVALID, "memory: the snapshot has none");
    g->sp.boot = !g->memory;
    return 0;
}

static void on_created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r)) {
        /* Nobody knows its id: a create that was not heard of did not happen. */
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the client disconnected before it was created", NULL, NULL, NULL);
        return;
    }
    if (!sb) {
        req_fail(r, e, e->code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
        return;
    }
    reply_sandbox(r->s, 201, sb);
    req_end(r);
}

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct caller who = api_caller(a, s);
    struct create g = {.sp.tenant = who.tenant, .sp.by = &who, .memory = true};
    auto_json j = native_body(a, p, n, &create_body, &g, &e);
    g.sp.volumes = g.volumes;
    if (!j || check_isolation(&g, &e) || check_tenant(&g, &e) || check_network(a, &g, &e) ||
        check_snapshot(a, s, j, &g, &e)) {
        problem_about(s, &e, e.code == E_NOT_FOUND ? ABOUT_SNAPSHOT : ABOUT_REQUEST);
    } else {
        struct req *r = req_new(a, s, sizeof *r, NULL);
        make_token(&g);
        req_watch(r);
        req_hold(r);
        int rc = sandbox_create(api_core(a), &g.sp, on_created, r, &e);
        req_settle(r, rc, &e, rc && e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
    }
    fields_free(&create_body, &g);
    kept_free(&g.sp.kept);
    network_spec_free(&g.net);
}
void sandboxes_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

/* ---- list ---- */
struct listing {
    struct sandbox_filter f;
    const char *states;
};
static const struct field list_rows[] = {
    FIELD("state", F_STR, struct listing, states, .max = 100,
          .help = "States, separated by commas. Default: all but `gone`.", .ex = "\"running\""),
    FIELD("name", F_STR, struct listing, f.name, .max = 63, .help = "Only the one with this name."),
    FIELD("template", F_STR, struct listing, f.template, .max = 63,
          .help = "Only those of this template, by name or id."),
    FIELD("meta", F_META, struct listing, f.meta,
          .help = "Only those with this metadata: `meta.KEY=VALUE`, or `meta[KEY]=VALUE`."),
    FIELD("limit", F_INT, struct listing, f.limit, .min = 1, .max = LIST_MAX, .def = "100",
          .help = "At most so many."),
    FIELD("cursor", F_STR, struct listing, f.cursor, .max = 200,
          .help = "`next` of the page before."),
};
const struct shape list_query = SHAPE_OF(NULL, struct listing, list_rows);

static int read_states(const char *p, unsigned *ret, struct err *e)
{
    char one[16];
    while (p && *p) {
        size_t n = strcspn(p, ",");
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : 0), p);
        int st = state_parse(one);
        if (st < 0)
            return err_set(e, E_INVALID, "state: '%s' is not creating, running, pausing, paused, stopping, gone or failed", one);
        *ret |= 1u << st;
        p += n + (p[n] == ',');
    }
    return 0;
}

void sandboxes_list(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e = {0};
    struct listing q = {0};
    bool more = false;
    auto_free struct sandbox **hit = xcalloc(LIST_MAX, sizeof(struct sandbox *));
    int bad = native_query(a, s, &list_query, &q, &e) || read_states(q.states, &q.f.states, &e);
    size_t n = 0, limit = q.f.limit;
    if (!bad) {
        struct caller who = api_caller(a, s);
        q.f.who = &who;
        n = sandbox_list(api_core(a), &q.f, hit, limit, &more, &e);
        bad = n > limit; /* refused: SIZE_MAX */
    }
    query_free(&list_query, &q);
    if (bad) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "sandboxes");
    for (size_t i = 0; i < n; i++)
        put_sandbox(w, hit[i]);
    jw_end(w);
    char next[24];
    if (more && n)
        (void)snprintf(next, sizeof next, "%lld", (long long)hit[n - 1]->created_ns);
    jw_kv_str(w, "next", more && n ? next : NULL);
    jw_end(w);
    reply_send(s, 200);
}

/* ---- one ---- */
void sandboxes_get(struct http_stream *s, void *a)
{
    struct sandbox *sb = api_sandbox(a, s);
    if (sb)
        reply_sandbox(s, 200, sb);
}

struct patch {
    const char *name;
    struct kv metadata;
    uint32_t timeout_s, idle_s;
    enum on_timeout on_timeout, on_idle;
};
static const struct field patch_rows[] = {
    FIELD("name", F_NAME, struct patch, name, .flags = F_NULL, .help = "Its new name. null: none."),
    FIELD("metadata", F_META, struct patch, metadata, .help = "Replaces what was there."),
    FIELD_TIMEOUT(struct patch, timeout_s,
                  "Its timeout from now on; expires so many seconds from now."),
    THEN("on_timeout", struct patch, on_timeout, "What happens when the timeout is over."),
    FIELD("idle_timeout_s", F_INT, struct patch, idle_s, .max = SANDBOX_LIFE_MAX,
          .help = "Seconds without work until `on_idle`. 0: never."),
    THEN("on_idle", struct patch, on_idle, "What happens when it is idle for that long."),
};
const struct shape patch_body = SHAPE_OF("SandboxPatch", struct patch, patch_rows);

static void on_patch_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct patch g = {
        .idle_s = sb->life.idle_s, .on_timeout = sb->on_timeout, .on_idle = sb->life.on_idle};
    auto_json j = native_body(a, p, n, &patch_body, &g, &e);
    /* Everything is checked before anything changes; the name, the only part that can still be refused, goes first. */
    int bad = !j || (json_has(j, "name") && sandbox_rename(sb, g.name, &e)) || (json_get(j, "metadata") && sandbox_set_metadata(sb, &g.metadata, &e)) ||
              (g.timeout_s && sandbox_set_timeout(sb, g.timeout_s, &e));
    if (!bad && g.on_timeout != sb->on_timeout)
        sandbox_set_on_timeout(sb, g.on_timeout);
    if (!bad && (g.idle_s != sb->life.idle_s || g.on_idle != sb->life.on_idle))
        sandbox_set_idle(sb, g.idle_s, g.on_idle);
    fields_free(&patch_body, &g);
    if (bad)
        problem_about(s, &e, ABOUT_SANDBOX);
    else
        reply_sandbox(s, 200, sb);
}
void sandboxes_patch(struct http_stream *s, void *a) { api_body(a, s, on_patch_body); }

struct seconds {
    uint32_t timeout_s;
};
static const struct field timeout_rows[] = {
    FIELD_TIMEOUT(struct seconds, timeout_s, "Seconds from now.", .flags = F_REQUIRED),
};
const struct shape timeout_body = SHAPE_OF("SandboxTimeout", struct seconds, timeout_rows);
static const struct field keepalive_rows[] = {
    FIELD_TIMEOUT(struct seconds, timeout_s, "Seconds from now. Default: its timeout."),
};
const struct shape keepalive_body = SHAPE_OF("KeepAlive", struct seconds, keepalive_rows);

typedef int extend_fn(struct sandbox *sb, uint32_t seconds, struct err *e);
static void extend(struct http_stream *s, struct api *a, const char *p, size_t n,
                   const struct shape *body, extend_fn *fn)
{
    struct err e;
    struct seconds g = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, body, &g, &e);
    if (!j || fn(sb, g.timeout_s, &e))
        problem_about(s, &e, ABOUT_SANDBOX);
    else
        reply_sandbox(s, 200, sb);
}

static void on_timeout_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    extend(s, a, p, n, &timeout_body, sandbox_set_timeout);
}
void sandboxes_timeout(struct http_stream *s, void *a) { api_body(a, s, on_timeout_body); }
static void on_keepalive_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    extend(s, a, p, n, &keepalive_body, sandbox_keep_alive);
}
void sandboxes_keepalive(struct http_stream *s, void *a) { api_body(a, s, on_keepalive_body); }

/* ---- end ---- */
static void on_killed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    (void)sb;
    req_none(r, e, ABOUT_SANDBOX);
}

void sandboxes_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (sb->state == SB_GONE) {
        err_set(&e, E_NOT_FOUND, "sandbox '%s' has already ended", sb->id);
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_kill(sb, END_KILLED, "ended by request", on_killed, r, &e), &e,
               ABOUT_SANDBOX);
}
