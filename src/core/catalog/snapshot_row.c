/* A snapshot's row: JSON in the store. Members that an older row lacks are taken
 * as false, 0 or empty. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/catalog/snapshot.h"
#include "json/read.h"
#include "json/write.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *to_json(const struct snapshot *s)
{
    struct buf b = {0};
    struct jw w;
    auto_free char *env = kv_to_json(&s->env), *dialect = kv_to_json(&s->dialect),
                   *volumes = kv_to_json(&s->volumes);
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "sandbox", *s->sandbox ? s->sandbox : NULL);
    jw_kv_str(&w, "parent", *s->parent ? s->parent : NULL);
    jw_kv_str(&w, "base", *s->base ? s->base : NULL);
    jw_kv_str(&w, "template_id", s->template_id);
    jw_kv_str(&w, "template", s->template_name);
    jw_kv_str(&w, "tier", s->tier->name);
    jw_kv_bool(&w, "memory", s->memory);
    jw_kv_bool(&w, "deleted", s->deleted);
    jw_kv_bool(&w, "bare", s->bare);
    jw_kv_str(&w, "path", s->path);
    jw_kv_str(&w, "signer", *s->signer ? s->signer : NULL);
    jw_kv_u64(&w, "cpu_millis", s->cpu_millis);
    jw_kv_u64(&w, "memory_mib", s->memory_mib);
    jw_kv_u64(&w, "disk_mib", s->disk_mib);
    jw_kv_u64(&w, "generation", s->generation);
    jw_kv_i64(&w, "expires_ns", s->expires_ns);
    jw_kv_u64(&w, "memory_bytes", s->memory_bytes);
    jw_kv_u64(&w, "disk_bytes", s->disk_bytes);
    jw_kv_i64(&w, "downtime_ns", s->downtime_ns);
    jw_kv_raw(&w, "env", str_of(env));
    jw_kv_str(&w, "tenant", s->tenant);
    jw_kv_str(&w, "step", *s->step ? s->step : NULL);
    jw_kv_raw(&w, "dialect", str_of(dialect));
    jw_kv_raw(&w, "volumes", str_of(volumes));
    jw_end(&w);
    return buf_take(&b);
}

void snapshot_store(struct snapshot *s, store_done *done, void *arg)
{
    auto_free char *json = to_json(s);
    struct snapshot_row r = {
        .id = s->id, .name = s->name, .created_wall_ns = s->created_ns, .json = json};
    store_put_snapshot(s->core->store, &r, done, arg);
}

static int get_id(struct json *j, const char *key, char out[22], struct err *e)
{
    struct str v = {0};
    if (json_str(j, key, &v, false, e))
        return -1;
    if (v.p && !id_ok(v))
        return err_set(e, E_INVALID, "%s: not an id", key);
    (void)snprintf(out, 22, "%s", v.p ? v.p : "");
    return 0;
}

/* What the map `options` held, which schema 5 and before had instead of these members. */
static int get_options(struct snapshot *s, struct json *j, struct err *e)
{
    struct kv old = {0};
    int rc = kv_from_object(&old, json_get(j, "options"), e);
    for (size_t i = 0; !rc && i < old.n; i++) {
        const char *k = old.at[i].k, *v = old.at[i].v;
        if (!strcmp(k, "tenant"))
            s->tenant = xstrdup(v);
        else if (!strcmp(k, "build.step"))
            (void)snprintf(s->step, sizeof s->step, "%s", v);
        else
            kv_set(&s->dialect, str_of(k), str_of(v));
    }
    kv_free(&old);
    return rc;
}

static int get_kept(struct snapshot *s, struct json *j, struct err *e)
{
    struct str tenant = {0}, step = {0};
    if (json_str(j, "tenant", &tenant, false, e) || json_str(j, "step", &step, false, e) ||
        kv_from_object(&s->dialect, json_get(j, "dialect"), e))
        return -1;
    s->tenant = tenant.p ? xstrdup(tenant.p) : NULL;
    (void)snprintf(s->step, sizeof s->step, "%s", step.p ? step.p : "");
    return 0;
}

int snapshot_from_json(struct snapshot *s, const char *text, struct err *e)
{
    auto_json j = json_parse_obj(text, strlen(text), e);
    struct str template = {0}, tier = {0}, signer = {0}, path = {0};
    int64_t cpu, memory, disk, generation, mem_bytes, disk_bytes;
    if (!j || get_id(j, "sandbox", s->sandbox, e) || get_id(j, "parent", s->parent, e) ||
        get_id(j, "base", s->base, e) || get_id(j, "template_id", s->template_id, e) ||
        json_str(j, "template", &template, true, e) || json_str(j, "tier", &tier, true, e) ||
        json_bool(j, "memory", false, &s->memory, e) ||
        json_bool(j, "deleted", false, &s->deleted, e) ||
        json_bool(j, "bare", false, &s->bare, e) || json_str(j, "signer", &signer, false, e) ||
        json_str(j, "path", &path, false, e) ||
        json_i64(j, "cpu_millis", 1, UINT32_MAX, 1, &cpu, e) ||
        json_i64(j, "memory_mib", 1, UINT32_MAX, 1, &memory, e) ||
        json_i64(j, "disk_mib", 1, UINT32_MAX, 1, &disk, e) ||
        json_i64(j, "generation", 0, INT64_MAX, 0, &generation, e) ||
        json_i64(j, "expires_ns", 0, INT64_MAX, 0, &s->expires_ns, e) ||
        json_i64(j, "memory_bytes", 0, INT64_MAX, 0, &mem_bytes, e) ||
        json_i64(j, "disk_bytes", 0, INT64_MAX, 0, &disk_bytes, e) ||
        json_i64(j, "downtime_ns", 0, INT64_MAX, 0, &s->downtime_ns, e) ||
        kv_from_object(&s->env, json_get(j, "env"), e) ||
        (json_get(j, "options") ? get_options(s, j, e) : get_kept(s, j, e)) ||
        kv_from_object(&s->volumes, json_get(j, "volumes"), e))
        return -1;
    if (!(s->tier = tier_find(tier.p)))
        return err_set(e, E_INVALID, "tier: unknown");
    s->template_name = xstrndup(template.p, template.n);
    (void)snprintf(s->signer, sizeof s->signer, "%s", signer.p ? signer.p : "");
    s->path = path.p ? xstrdup(path.p) : NULL;
    s->cpu_millis = (uint32_t)cpu, s->memory_mib = (uint32_t)memory, s->disk_mib = (uint32_t)disk;
    s->generation = (uint64_t)generation, s->memory_bytes = (uint64_t)mem_bytes,
    s->disk_bytes = (uint64_t)disk_bytes;
    return 0;
}
