#include "api/openapi.h"
#include "api/schema.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- which shapes there are ---- */
static void add_shape(const struct shape *sh, const struct shape **all, size_t *n)
{
    if (!sh)
        return;
    for (size_t i = 0; i < *n; i++)
        if (all[i] == sh)
            return;
    if (*n == SHAPES_MAX)
        abort();
    if (sh->name && !sh->media)
        all[(*n)++] = sh;
    for (size_t i = 0; i < sh->n; i++)
        add_shape(sh->rows[i].of, all, n);
}

size_t api_shapes(const struct api_table *t, const struct shape *ret[SHAPES_MAX])
{
    size_t n = 0;
    add_shape(t->problem, ret, &n);
    for (size_t i = 0; i < t->n; i++) {
        add_shape(t->routes[i].body, ret, &n);
        for (const struct api_answer *a = t->routes[i].answer; a->status; a++)
            add_shape(a->of, ret, &n);
    }
    return n;
}

/* ---- parameters ---- */
static void put_parameter(struct jw *w, const struct field *f, const char *in, const struct config *cfg)
{
    bool family = f->type == F_ENV || f->type == F_META;
    struct field plain = *f;
    plain.help = NULL; /* it belongs to the parameter */
    jw_obj(w);
    jw_kv_str(w, "name", f->name);
    jw_kv_str(w, "in", in);
    jw_kv_bool(w, "required", f->flags & F_REQUIRED);
    if (f->help)
        jw_kv_str(w, "description", f->help);
    if (family)
        jw_kv_str(w, "style", "deepObject");
    jw_key(w, "schema");
    if (f->type == F_ARGV)
        jw_raw(w, S("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"));
    else
        schema_put_field(w, &plain, cfg);
    jw_end(w);
}

static void put_parameters(struct jw *w, const struct api_table *t, const struct api_route *r,
                           const struct config *cfg)
{
    jw_kv_arr(w, "parameters");
    for (const char *p = strchr(r->pattern, '{'); p; p = strchr(p, '{')) {
        struct str name = {p + 1, strcspn(p + 1, "}")};
        const struct field *f = shape_row(t->captures, name);
        if (!f)
            abort(); /* a capture that is not described */
        put_parameter(w, f, "path", cfg);
        p++;
    }
    for (size_t i = 0; r->query && i < r->query->n; i++)
        put_parameter(w, &r->query->rows[i], "query", cfg);
    jw_end(w);
}

/* ---- bodies ---- */
static void put_media(struct jw *w, const char *media, const struct shape *of)
{
    jw_kv_obj(w, media);
    jw_key(w, "schema");
    schema_put_ref(w, of);
    jw_end(w);
}

static void put_body(struct jw *w, const struct shape *body, const struct config *cfg)
{
    bool required = body->media != NULL;
    for (size_t i = 0; i < body->n; i++)
        required |= body->rows[i].flags & F_REQUIRED;
    jw_kv_obj(w, "requestBody");
    jw_kv_bool(w, "required", required);
    jw_kv_obj(w, "content");
    if (!body->media) {
        put_media(w, "application/json", body);
    } else if (body->n) { /* a form */
        jw_kv_obj(w, body->media);
        jw_key(w, "schema");
        schema_put(w, body, cfg);
        jw_end(w);
    } else {
        jw_kv_raw(w, body->media, S("{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}"));
    }
    jw_end(w);
    jw_end(w);
}

/* A stream is a string to OpenAPI 3.1; what a line of it is, JSON Schema can say. */
static void put_stream(struct jw *w, const char *media, const char *what, const struct shape *of)
{
    jw_kv_obj(w, media);
    jw_kv_obj(w, "schema");
    jw_kv_str(w, "type", "string");
    jw_kv_str(w, "contentMediaType", media);
    jw_kv_str(w, "description", what);
    if (of) {
        jw_key(w, "contentSchema");
        schema_put_ref(w, of);
    }
    jw_end(w);
    jw_end(w);
}

static void put_answer(struct jw *w, const struct api_answer *a)
{
    switch (a->kind) {
    case ANSWER_JSON: put_media(w, "application/json", a->of); break;
    case ANSWER_LINES:
        put_stream(w, "application/x-ndjson", "JSON objects, one in each line, as they happen.",
                   a->of);
        break;
    case ANSWER_EVENTS:
        put_stream(w, "text/event-stream", "Server-sent events; the data of each is a JSON object.",
                   a->of);
        break;
    case ANSWER_BYTES:
        jw_kv_raw(w, "application/octet-stream",
                  S("{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}"));
        break;
    case ANSWER_TEXT: jw_kv_raw(w, "text/plain", S("{\"schema\":{\"type\":\"string\"}}")); break;
    case ANSWER_NONE:
    case ANSWER_SOCKET: break;
    }
}

static const char *describe(int status)
{
    switch (status) {
    case 101: return "The connection becomes a WebSocket.";
    case 201: return "Created.";
    case 202: return "Accepted.";
    case 204: return "Done.";
    default: return "OK.";
    }
}

static void put_answers(struct jw *w, const struct api_route *r)
{
    jw_kv_obj(w, "responses");
    for (const struct api_answer *a = r->answer; a->status; a++) {
        char status[4] = {(char)('0' + a->status / 100), (char)('0' + a->status / 10 % 10),
                          (char)('0' + a->status % 10), 0};
        bool content = a->kind != ANSWER_NONE && a->kind != ANSWER_SOCKET;
        jw_kv_obj(w, status);
        jw_kv_str(w, "description", describe(a->status));
        if (content)
            jw_kv_obj(w, "content");
        put_answer(w, a);
        for (; a[1].status == a->status; a++) /* the same status in another form */
            put_answer(w, &a[1]);
        if (content)
            jw_end(w);
        jw_end(w);
    }
    jw_kv_raw(w, "default", S("{\"$ref\":\"#/components/responses/Problem\"}"));
    jw_end(w);
}

/* ---- operations ---- */
static void put_description(struct jw *w, const struct api_route *r)
{
    auto_buf b = {0};
    if (r->flags & ROUTE_SOCKET)
        buf_puts(&b, "Only over the unix socket.");
    if (r->more)
        buf_printf(&b, "%s%s", b.n ? " " : "", r->more);
    if (b.n)
        jw_kv_strn(w, "description", (struct str){b.p, b.n});
}

static void put_operation(struct jw *w, const struct api_table *t, const struct api_route *r,
                          const struct config *cfg)
{
    char method[16] = "";
    for (size_t i = 0; i < sizeof method - 1 && r->method[i]; i++)
        method[i] = (char)tolower((unsigned char)r->method[i]), method[i + 1] = 0;
    jw_kv_obj(w, method);
    jw_kv_arr(w, "tags");
    jw_strz(w, r->tag);
    jw_end(w);
    jw_kv_str(w, "operationId", r->id);
    jw_kv_str(w, "summary", r->summary);
    put_description(w, r);
    if (r->flags & ROUTE_OPEN) {
        jw_kv_arr(w, "security");
        jw_end(w);
    }
    put_parameters(w, t, r, cfg);
    if (r->body)
        put_body(w, r->body, cfg);
    put_answers(w, r);
    jw_end(w);
}

static bool seen_before(const struct api_route *routes, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(routes[k].pattern, routes[i].pattern))
            return true;
    return false;
}

static void put_paths(struct jw *w, const struct api_table *t, const struct config *cfg)
{
    jw_kv_obj(w, "paths");
    for (size_t i = 0; i < t->n; i++) {
        if (seen_before(t->routes, i))
            continue;
        jw_kv_obj(w, t->routes[i].pattern);
        for (size_t k = i; k < t->n; k++)
            if (!strcmp(t->routes[k].pattern, t->routes[i].pattern))
                put_operation(w, t, &t->routes[k], cfg);
        jw_end(w);
    }
    jw_end(w);
}

static void put_components(struct jw *w, const struct api_table *t, const struct config *cfg)
{
    const struct shape *all[SHAPES_MAX];
    size_t n = api_shapes(t, all);
    jw_kv_obj(w, "components");
    jw_kv_obj(w, "schemas");
    for (size_t i = 0; i < n; i++) {
        jw_key(w, all[i]->name);
        schema_put(w, all[i], cfg);
    }
    jw_end(w);
    jw_kv_raw(
        w, "responses",
        S("{\"Problem\":{\"description\":\"An error.\","
          "\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Problem\"}}}}}"));
    jw_kv_raw(w, "securitySchemes",
              S("{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
                "\"key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"X-API-Key\"}}"));
    jw_end(w);
}

void openapi_write(struct buf *out, const struct api_table *t, const struct config *cfg)
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
    jw_kv_arr(&w, "tags");
    for (const char *const *tag = t->tags; *tag; tag++) {
        jw_obj(&w);
        jw_kv_str(&w, "name", *tag);
        jw_end(&w);
    }
    jw_end(&w);
    put_paths(&w, t, cfg);
    put_components(&w, t, cfg);
    jw_end(&w);
}
