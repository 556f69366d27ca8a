#include "core/host/tenant.h"
#include "base/cleanup.h"
#include "base/buf.h"
#include "base/log.h"
#include "core/host/config.h"
#include "core/host/host.h"
#include "gate/policy.h"
#include "json/read.h"
#include <stdlib.h>
#include <string.h>

static int read_ceiling(struct json *obj, struct tenant *t, struct err *e)
{
    struct json *p = NULL;
    struct buf text = {0};
    if (json_obj(obj, "ceiling", &p, false, e) || !p)
        return p ? 0 : json_has(obj, "ceiling") ? -1 : 0;
    if (json_len(json_get(p, "private")))
        return json_fail(
            json_get(p, "private"), e,
            "closed addresses can only be opened for the whole host (HUTCH_NETWORK_CEILING)");
    struct policy *parsed = policy_from_json(p, POLICY_CEILING, e);
    if (!parsed)
        return -1;
    policy_unref(parsed);
    json_dump(p, &text);
    t->ceiling = buf_take(&text);
    return 0;
}
static int read_tenant(struct json *v, struct tenant *t, struct err *e)
{
    int64_t conns, rate, bytes, held, running, memory;
    if (json_kind(v) != JSON_OBJ)
        return json_fail(v, e, "not an object");
    if (json_only(v, e, "ceiling", "connections", "bytes_per_second", "bytes_per_day", "held_bytes",
                  "running", "memory_mib", NULL) ||
        read_ceiling(v, t, e) || json_i64(v, "connections", 0, 1000000, 0, &conns, e) ||
        json_i64(v, "bytes_per_second", 0, INT64_MAX / 4, 0, &rate, e) ||
        json_i64(v, "bytes_per_day", 0, INT64_MAX / 4, 0, &bytes, e) ||
        json_i64(v, "held_bytes", 0, INT64_MAX, 0, &held, e) ||
        json_i64(v, "running", 0, 1000000, 0, &running, e) ||
        json_i64(v, "memory_mib", 0, UINT32_MAX, 0, &memory, e))
        return -1;
    t->held_bytes = (uint64_t)held;
    t->running = (uint32_t)running, t->memory_mib = (uint64_t)memory;
    t->limits = (struct gate_limits){.connections = (uint64_t)conns,
                                     .bytes_per_second = (uint64_t)rate,
                                     .bytes_per_day = (uint64_t)bytes};
    return 0;
}

int tenants_parse(const char *text, struct tenants *ret, struct err *e)
{
    *ret = (struct tenants){0};
    if (!text)
        return 0;
    auto_json obj = json_parse_obj(text, strlen(text), e);
    if (!obj)
        return err_wrap(e, "HUTCH_TENANTS");
    ret->at = xcalloc(json_len(obj) + 1, sizeof *ret->at);
    for (void *it = json_first(obj); it; it = json_next(obj, it)) {
        struct tenant *t = &ret->at[ret->n++];
        t->name = xstrndup(json_iter_key(it).p, json_iter_key(it).n);
        if (read_tenant(json_iter_value(obj, it), t, e)) {
            tenants_free(ret);
            return err_wrap(e, "HUTCH_TENANTS");
        }
    }
    return 0;
}
void tenants_free(struct tenants *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->at[i].name), free(t->at[i].ceiling);
    free(t->at);
    *t = (struct tenants){0};
}
const struct tenants *core_tenants(const struct core *c) { return &c->tenants; }
const struct tenant *tenant_find(const struct tenants *t, const char *name)
{
    const struct tenant *any = NULL;
    for (size_t i = 0; name && *name && i < t->n; i++) {
        if (!strcmp(t->at[i].name, name))
            return &t->at[i];
        if (!strcmp(t->at[i].name, "*"))
            any = &t->at[i];
    }
    return any;
}
