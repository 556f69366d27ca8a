#include "api/mcp/rpc.h"
#include "base/enc.h"
#include <string.h>

static const char *const names[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25",
                                    "2026-07-28"};
_Static_assert(sizeof names / sizeof *names == MCP_VERSIONS, "a name for each");

const char *mcp_version_name(enum mcp_version v) { return names[v]; }

int mcp_version_find(struct str name)
{
    for (int i = 0; i < MCP_VERSIONS; i++)
        if (str_eqz(name, names[i]))
            return i;
    return -1;
}

/* ---- reading ---- */
static bool id_ok_to_echo(struct json *id)
{
    return json_kind(id) == JSON_STR || json_kind(id) == JSON_INT;
}

int rpc_read(struct json *m, struct rpc *ret, struct err *e)
{
    struct str version = {0};
    *ret = (struct rpc){0};
    if (json_kind(m) != JSON_OBJ)
        return err_set(e, E_INVALID, "a message is a JSON object");
    struct json *id = json_get(m, "id");
    if (id_ok_to_echo(id))
        ret->id = id;
    if (json_str(m, "jsonrpc", &version, false, NULL) || !str_eqz(version, "2.0"))
        return err_set(e, E_INVALID, "jsonrpc must be \"2.0\"");
    if (!json_has(m, "method")) {
        if (!json_has(m, "result") && !json_has(m, "error"))
            return err_set(e, E_INVALID, "neither method nor result nor error");
        ret->kind = RPC_RESPONSE;
        return 0;
    }
    if (json_str(m, "method", &ret->method, true, NULL))
        return err_set(e, E_INVALID, "method must be a string");
    if (json_has(m, "id") && !ret->id)
        return err_set(e, E_INVALID, "id must be a string or an integer");
    ret->kind = ret->id ? RPC_REQUEST : RPC_NOTIFICATION;
    ret->params = json_get(m, "params");
    if (ret->params && json_kind(ret->params) != JSON_OBJ)
        return err_set(e, E_INVALID, "params must be an object");
    ret->meta = json_get(ret->params, "_meta");
    if (json_kind(ret->meta) != JSON_OBJ)
        ret->meta = NULL;
    return 0;
}

bool rpc_says_version(const struct rpc *r)
{
    return json_has(r->meta, MCP_META("protocolVersion"));
}

bool rpc_header_value(struct str raw, struct buf *out)
{
    static const char head[] = "=?base64?", tail[] = "?=";
    size_t h = sizeof head - 1, t = sizeof tail - 1;
    raw = str_trim(raw);
    if (!str_starts(raw, head) || raw.n < h + t || memcmp(raw.p + raw.n - t, tail, t)) {
        buf_put(out, raw.p, raw.n);
        return true;
    }
    return base64_decode(raw.p + h, raw.n - h - t, out);
}

/* ---- writing ---- */
static void put_head(struct jw *w, const char *id_json, bool null_id)
{
    jw_obj(w);
    jw_kv_str(w, "jsonrpc", "2.0");
    if (id_json)
        jw_kv_raw(w, "id", str_of(id_json));
    else if (null_id)
        jw_kv_null(w, "id");
}

void rpc_put_error(struct jw *w, const char *id_json, bool modern, const struct rpc_error *e)
{
    put_head(w, id_json, !modern);
    jw_kv_obj(w, "error");
    jw_kv_i64(w, "code", e->code);
    jw_kv_str(w, "message", e->say);
    if (e->data)
        jw_kv_raw(w, "data", str_of(e->data));
    jw_end(w);
    jw_end(w);
}

void rpc_put_result(struct jw *w, const char *id_json, struct str result)
{
    put_head(w, id_json, true);
    jw_kv_raw(w, "result", result);
    jw_end(w);
}

void rpc_put_versions(struct jw *w)
{
    jw_arr(w);
    for (int i = MCP_VERSIONS; i-- > 0;)
        jw_strz(w, names[i]);
    jw_end(w);
}

void rpc_versions_data(struct str requested, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_key(&w, "supported");
    rpc_put_versions(&w);
    jw_kv_strn(&w, "requested", requested);
    jw_end(&w);
}
