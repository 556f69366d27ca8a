/* What the operator allows: all sandboxes together, and each tenant. */
#include "api/native/native.h"
#include "core/host/config.h"
#include "core/host/tenant.h"

static void put_limit(struct jw *w, const char *key, uint64_t v) /* 0: none */
{
    jw_key(w, key);
    if (v)
        jw_u64(w, v);
    else
        jw_null(w);
}
static void put_ceiling(struct jw *w, const char *json)
{
    jw_key(w, "ceiling");
    if (json)
        jw_raw(w, str_of(json));
    else
        jw_null(w);
}

void tenants_get(struct http_stream *s, void *a)
{
    const struct config *cfg = core_config(api_core(a));
    const struct tenants *all = core_tenants(api_core(a));
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_obj(w, "host");
    put_limit(w, "connections", cfg->net_connections);
    put_limit(w, "bytes_per_second", cfg->net_bytes_per_second);
    put_ceiling(w, cfg->ceiling);
    jw_end(w);
    jw_kv_arr(w, "tenants");
    for (size_t i = 0; i < all->n; i++) {
        const struct tenant *t = &all->at[i];
        jw_obj(w);
        jw_kv_str(w, "name", t->name);
        put_limit(w, "connections", t->limits.connections);
        put_limit(w, "bytes_per_second", t->limits.bytes_per_second);
        put_limit(w, "bytes_per_day", t->limits.bytes_per_day);
        put_limit(w, "held_bytes", t->held_bytes);
        put_limit(w, "running", t->running);
        put_limit(w, "memory_mib", t->memory_mib);
        put_ceiling(w, t->ceiling);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}
