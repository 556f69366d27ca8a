#include "api/openapi.h"
#include "api/schema.h"
#include <ctype.h>
#include <string.h>

static void put_ref(struct jw *w, const char *media, struct str schema)
{
    jw_kv_obj(w, media);
    jw_key(w, "schema");
    schema_put_type(w, schema, false);
    jw_end(w);
}

static void put_parameter(struct jw *w, struct str name, const char *in, struct str type, bool required)
{
    bool family = name.n > 2 && !memcmp(name.p + name.n - 2, ".*", 2);
    jw_obj(w);
    jw_kv_strn(w, "name", name);
    jw_kv_str(w, "in", in);
    jw_kv_bool(w, "required", required);
    if (family)
        jw_kv_str(w, "description", "a family: any name may stand for the star");
    jw_key(w, "schema");
    schema_put_type(w, type, false);
    jw_end(w);
}

static void put_parameters(struct jw *w, const struct api_route *r)
{
    struct schema_member m;
    jw_kv_arr(w, "parameters");
    for (const char *p = strchr(r->pattern, '{'); p; p = strchr(p, '{')) {
        size_t n = strcspn(++p, "}");
        put_parameter(w, (struct str){p, n}, "path", S("s"), true);
    }
    for (const char *at = r->query ? r->query : ""; schema_next(&at, &m);)
        put_parameter(w, m.name, "query", m.type, m.required);
    jw_end(w);
}

static void put_body(struct jw *w, const char *body)
{
    jw_kv_obj(w, "requestBody");
    jw_kv_obj(w, "content");
    if (!strcmp(body, "bytes"))
        jw_kv_raw(w, "application/octet-stream", S("{}"));
    else if (!strcmp(body, "form"))
        jw_kv_raw(w, "multipart/form-data",
                  S("{\"schema\":{\"type\":\"object\",\"properties\":{\"recipe\":{\"type\":\"string\"},"
                    "\"context\":{\"type\":\"string\",\"contentMediaType\":\"application/x-tar\"}},\"required\":[\"recipe\"]}}"));
    else
        put_ref(w, "application/json", str_of(body));
    jw_end(w);
    jw_end(w);
}

static bool cut(struct str *rest, char at, struct str *part) /* the next of a list */
{
    if (!rest->n)
        return false;
    const char *end = memchr(rest->p, at, rest->n);
    size_t n = end ? (size_t)(end - rest->p) : rest->n;
    *part = str_trim((struct str){rest->p, n});
    rest->p += n + !!end, rest->n -= n + !!end;
    return true;
}

static void put_content(struct jw *w, struct str what)
{
    if (str_starts(what, "lines "))
        put_ref(w, "application/x-ndjson", (struct str){what.p + 6, what.n - 6});
    else if (str_eqz(what, "events"))
        jw_kv_raw(w, "text/event-stream", S("{}"));
    else if (str_eqz(what, "bytes"))
        jw_kv_raw(w, "application/octet-stream", S("{}"));
    else if (str_eqz(what, "text"))
        jw_kv_raw(w, "text/plain", S("{}"));
    else if (isupper((unsigned char)*what.p))
        put_ref(w, "application/json", what);
}

static void put_replies(struct jw *w, const struct api_route *r)
{
    struct str all = str_of(r->reply), one, what;
    jw_kv_obj(w, "responses");
    while (cut(&all, ';', &one)) {
        struct str status = {one.p, 3}, kinds = str_trim((struct str){one.p + 3, one.n - 3});
        jw_key_str(w, status);
        jw_obj(w);
        jw_kv_str(w, "description", r->summary);
        if (kinds.n) {
            jw_kv_obj(w, "content");
            while (cut(&kinds, '|', &what))
                put_content(w, what);
            jw_end(w);
        }
        jw_end(w);
    }
    jw_kv_raw(w, "default", S("{\"$ref\":\"#/components/responses/Problem\"}"));
    jw_end(w);
}

static void put_operation(struct jw *w, const struct api_route *r)
{
    char method[16] = "";
    for (size_t i = 0; i < sizeof method - 1 && r->method[i]; i++)
        method[i] = (char)tolower((unsigned char)r->method[i]), method[i + 1] = 0;
    jw_kv_obj(w, method);
    jw_kv_str(w, "operationId", r->id);
    jw_kv_str(w, "summary", r->summary);
    if (r->flags & ROUTE_SOCKET)
        jw_kv_str(w, "description", "Unix socket only.");
    if (r->flags & ROUTE_OPEN) {
        jw_kv_arr(w, "security");
        jw_end(w);
    }
    put_parameters(w, r);
    if (r->body)
        put_body(w, r->body);
    put_replies(w, r);
    jw_end(w);
}

static bool seen_before(const struct api_route *routes, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(routes[k].pattern, routes[i].pattern))
            return true;
    return false;
}

void openapi_write(struct buf *out, const struct api_route *routes, size_t n)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_str(&w, "openapi", "3.1.0");
    jw_kv_obj(&w, "info");
    jw_kv_str(&w, "title", "hutch");
    jw_kv_str(&w, "version", HUTCH_VERSION);
    jw_end(&w);
    jw_kv_raw(&w, "security", S("[{\"bearer\":[]},{\"key\":[]}]"));
    jw_kv_obj(&w, "paths");
    for (size_t i = 0; i < n; i++) {
        if (seen_before(routes, i))
            continue;
        jw_kv_obj(&w, routes[i].pattern);
        for (size_t k = i; k < n; k++)
            if (!strcmp(routes[k].pattern, routes[i].pattern))
                put_operation(&w, &routes[k]);
        jw_end(&w);
    }
    jw_end(&w);
    jw_kv_obj(&w, "components");
    jw_kv_obj(&w, "schemas");
    for (size_t i = 0; i < nschemas; i++) {
        jw_key(&w, schemas[i].name);
        schema_put(&w, &schemas[i]);
    }
    jw_end(&w);
    jw_kv_raw(&w, "responses",
              S("{\"Problem\":{\"description\":\"An error\","
                "\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Problem\"}}}}}"));
    jw_kv_raw(&w, "securitySchemes",
              S("{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},\"key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"X-API-Key\"}}"));
    jw_end(&w);
    jw_end(&w);
}
