/* The tables of requests and answers: the reader, what every table must have, and the OpenAPI document made from them. */
#include "api/fields.h"
#include "api/native/native.h"
#include "api/openapi.h"
#include "api/params.h"
#include "api/schema.h"
#include "core/host/config.h"
#include "fake.h"
#include "gate/policy.h"
#include "json/read.h"

/* ---- a table of our own ---- */
struct item {
    const char *name;
    unsigned size;
};
static const struct field item_rows[] = {
    FIELD("name", F_NAME, struct item, name, .flags = F_REQUIRED, .help = "x"),
    FIELD("size", F_INT, struct item, size, .min = 1, .max = 9, .def = "3", .help = "x"),
};
static const struct shape item_shape = SHAPE_OF("Item", struct item, item_rows);

struct box {
    const char *text, *path, *word;
    struct str any;
    uint8_t tiny;
    int64_t wide;
    uint32_t timeout_s, cores, mode;
    bool flag;
    enum { RED, GREEN, BLUE } color;
    int sig;
    struct kv env, meta;
    char **argv;
    struct item one, list[2];
    size_t nlist;
    struct json *raw;
};
static const struct field box_rows[] = {
    FIELD("text", F_STR, struct box, text, .max = 5, .help = "x"),
    FIELD("path", F_PATH, struct box, path, .max = 8, .help = "x"),
    FIELD("word", F_WORD, struct box, word, .words = "up|down", .help = "x"),
    FIELD("any", F_TEXT, struct box, any, .help = "x"),
    FIELD("tiny", F_INT, struct box, tiny, .max = 255, .def = "7", .help = "x"),
    FIELD("wide", F_INT, struct box, wide, .min = -1, .max = INT64_MAX, .help = "x"),
    FIELD("timeout_s", F_INT, struct box, timeout_s, .min = 1, .max = 100,
          .max_of = offsetof(struct config, max_timeout_s), .help = "x"),
    FIELD("cores", F_CORES, struct box, cores, .min = 100, .max = 64000, .help = "x"),
    FIELD("mode", F_MODE, struct box, mode, .def = "\"0755\"", .help = "x"),
    FIELD("flag", F_BOOL, struct box, flag, .def = "true", .help = "x"),
    FIELD("color", F_CHOICE, struct box, color, .words = "red|green|blue", .def = "\"green\"",
          .help = "x"),
    FIELD("sig", F_SIGNAL, struct box, sig, .help = "x"),
    FIELD("env", F_ENV, struct box, env, .help = "x"),
    FIELD("meta", F_META, struct box, meta, .help = "x"),
    FIELD("argv", F_ARGV, struct box, argv, .help = "x"),
    FIELD("one", F_OBJ, struct box, one, .of = &item_shape, .help = "x"),
    FIELD("list", F_LIST, struct box, list, .of = &item_shape, .max = 2,
          .count = offsetof(struct box, nlist), .help = "x"),
    FIELD("raw", F_JSON, struct box, raw, .help = "x"),
};
static const struct shape box_shape = SHAPE_OF("Box", struct box, box_rows);

TEST(fields, every_type_is_read)
{
    static const char text[] =
        "{\"text\":\"abc\",\"path\":\"/a\\n\",\"word\":\"down\",\"any\":\"\",\"tiny\":255,\"wide\":-1,\"timeout_s\":5,\"cores\":0.5,"
        "\"mode\":\"640\",\"flag\":false,\"color\":\"blue\",\"sig\":\"TERM\",\"env\":{\"A\":\"1\"},\"meta\":{\"k\":\"v\"},"
        "\"argv\":[\"ls\",\"\"],\"one\":{\"name\":\"x\"},\"list\":[{\"name\":\"a\",\"size\":9},{\"name\":\"b\"}],\"raw\":[1,{}]}";
    struct err e;
    struct box g = {0};
    auto_json j = body_read(text, sizeof text - 1, &box_shape, &g, NULL, &e);
    CHECK(j != NULL);
    CHECK_STR(g.text, "abc");
    CHECK_STR(g.path, "/a\n");
    CHECK_STR(g.word, "down");
    CHECK(g.any.p && !g.any.n);
    CHECK_INT(g.tiny, 255);
    CHECK(g.wide == -1);
    CHECK_INT(g.cores, 500);
    CHECK_INT(g.mode, 0640);
    CHECK(!g.flag);
    CHECK_INT(g.color, BLUE);
    CHECK_INT(g.sig, 15);
    CHECK_STR(kv_get(&g.env, "A"), "1");
    CHECK_STR(kv_get(&g.meta, "k"), "v");
    CHECK_STR(g.argv[0], "ls");
    CHECK(!g.argv[2]);
    CHECK_STR(g.one.name, "x");
    CHECK_INT(g.one.size, 3); /* a default inside */
    CHECK_INT(g.nlist, 2);
    CHECK_INT(g.list[0].size, 9);
    CHECK_STR(g.list[1].name, "b");
    CHECK_INT(json_len(g.raw), 2);
    fields_free(&box_shape, &g);
    CHECK(!g.argv && !g.env.n);
}
TEST(fields, what_is_absent_has_its_default_or_stays)
{
    struct err e;
    struct box g = {.wide = 42, .one.size = 77};
    auto_json j = body_read("", 0, &box_shape, &g, NULL, &e);
    CHECK(j != NULL);
    CHECK_INT(g.tiny, 7);
    CHECK_INT(g.mode, 0755);
    CHECK_INT(g.color, GREEN);
    CHECK(g.flag && g.wide == 42 && g.one.size == 77 && !g.text && !g.argv && !g.nlist);
    auto_json nil = body_read("{\"tiny\":null,\"one\":null}", 24, &box_shape, &g, NULL,
                              &e); /* null is absent */
    CHECK(nil && g.tiny == 7 && g.one.size == 77);
}
TEST(fields, a_shell_string_is_run_by_bash)
{
    struct err e;
    struct box g = {0};
    auto_json j = body_read("{\"argv\":\"a | b\"}", 16, &box_shape, &g, NULL, &e);
    CHECK(j != NULL);
    CHECK_STR(g.argv[0], "/bin/bash");
    CHECK_STR(g.argv[1], "-c");
    CHECK_STR(g.argv[2], "a | b");
    CHECK(!g.argv[3]);
    fields_free(&box_shape, &g);
}
TEST(fields, refusals_name_the_member_and_the_limit)
{
    static const struct {
        const char *body, *says;
    } bad[] = {
        {"{\"text\":\"abcdef\"}", "text: at most 5 bytes"},
        {"{\"text\":\"\"}", "text: must not be empty"},
        {"{\"text\":\"a\\u0001\"}", "text: control characters are not allowed"},
        {"{\"text\":5}", "text: not a string"},
        {"{\"path\":\"/23456789\"}", "path: at most 8 bytes"},
        {"{\"word\":\"left\"}", "word: must be up or down"},
        {"{\"color\":\"pink\"}", "color: must be red, green or blue"},
        {"{\"color\":\"re\"}", "color: must be"},
        {"{\"tiny\":256}", "tiny: must be between 0 and 255"},
        {"{\"tiny\":1.5}", "tiny: not an integer"},
        {"{\"tiny\":\"1\"}", "tiny: not an integer"},
        {"{\"wide\":-2}", "wide: must be at least -1"},
        {"{\"timeout_s\":101}", "timeout_s: must be between 1 and 100"},
        {"{\"cores\":0.05}", "cores: must be between 0.1 and 64"},
        {"{\"mode\":\"888\"}", "mode: must be octal"},
        {"{\"mode\":644}", "mode: not a string"},
        {"{\"flag\":1}", "flag: not true or false"},
        {"{\"sig\":65}", "sig: must be between 1 and 64"},
        {"{\"sig\":\"NOPE\"}", "sig: not a signal"},
        {"{\"argv\":[]}", "argv: must not be empty"},
        {"{\"argv\":[\"\"]}", "argv[0]: must not be empty"},
        {"{\"argv\":[\"a\",1]}", "argv[1]: not a string"},
        {"{\"argv\":7}", "argv: must be an array of strings, or a string"},
        {"{\"env\":{\"9\":\"\"}}", "variable name"},
        {"{\"one\":{}}", "one.name: missing"},
        {"{\"one\":[]}", "one: not an object"},
        {"{\"one\":{\"name\":\"A\"}}", "one.name: must match"},
        {"{\"one\":{\"name\":\"a\",\"size\":10}}", "one.size: must be between 1 and 9"},
        {"{\"one\":{\"name\":\"a\",\"sizes\":1}}", "one.sizes: unknown member; did you mean size?"},
        {"{\"list\":[{\"name\":\"a\"},{\"size\":1}]}", "list[1].name: missing"},
        {"{\"list\":[{\"name\":\"a\"},7]}", "list[1]: not an object"},
        {"{\"list\":[{\"name\":\"a\"},{\"name\":\"a\"},{\"name\":\"a\"}]}", "list: at most 2"},
        {"{\"list\":{}}", "list: not an array"},
        {"{\"tiemout_s\":3}", "tiemout_s: unknown member; did you mean timeout_s?"},
        {"{\"timeout\":3}", "timeout: unknown member; did you mean timeout_s?"},
        {"{\"zzz\":3}", "zzz: unknown member"},
        {"{\"tiny\":1,\"tiny\":2}", "tiny"}, /* twice */
        {"[]", "object"},
        {"{", ""},
    };
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct box g = {0};
        struct json *j = body_read(bad[i].body, strlen(bad[i].body), &box_shape, &g, NULL, &e);
        if (j || e.code != E_INVALID || !strstr(e.msg, bad[i].says))
            printf("# %s: %s\n", bad[i].body, j ? "accepted" : e.msg);
        CHECK(!j && e.code == E_INVALID && strstr(e.msg, bad[i].says));
        fields_free(&box_shape, &g);
    }
    struct box g = {0};
    CHECK(!body_read("{\"zzz\":3}", 9, &box_shape, &g, NULL, &e) && !strstr(e.msg, "did you mean"));
}
TEST(fields, an_operator_moves_a_limit)
{
    struct err e;
    struct config cfg = {.max_timeout_s = 3};
    struct box g = {0};
    CHECK(!body_read("{\"timeout_s\":4}", 15, &box_shape, &g, &cfg, &e) &&
          strstr(e.msg, "between 1 and 3"));
    cfg.max_timeout_s = 200;
    auto_json j = body_read("{\"timeout_s\":150}", 17, &box_shape, &g, &cfg, &e);
    CHECK(j && g.timeout_s == 150);
}

/* ---- a query ---- */
TEST(query, is_read_by_the_same_rows)
{
    struct fx *x = fx_new();
    static const struct {
        const char *query, *says;
    } bad[] = {
        {"limit=0", "limit: must be between 1 and 1000"},
        {"limit=x", "limit: not a number"},
        {"limit=5&limit=6", "limit: given twice"},
        {"name=%zz", "broken %-escape"},
        {"name=a%00b", "or %00"},
        {"state=flying", "state: 'flying' is not creating"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[100];
        snprintf(path, sizeof path, "/v1/sandboxes?%s", bad[i].query);
        fx_ask(x, "GET", path, NULL);
        HAS(x, "HTTP/1.1 400");
        HAS(x, bad[i].says);
    }
    fx_ask(x, "GET", "/v1/sandboxes?limit=&name=&meta.a=b&meta[c]=d", NULL);
    HAS(x, "HTTP/1.1 200");
    fx_ask(x, "GET", "/v1/sandboxes/" ID "/url", NULL);
    HAS(x, "port: missing");
    fx_free(x);
}

/* ---- every table ---- */
static const struct shape *all[SHAPES_MAX];
static bool sent(const struct shape *sh) { return sh->size != 0; }

static void check_row(const struct shape *sh, const struct field *f)
{
    bool ok = f->name && *f->name && (f->help || (f->type == F_OBJ && f->of)) &&
              (!sent(sh) || f->at + f->size <= sh->size);
    ok = ok && ((f->type == F_WORD || f->type == F_CHOICE) == (f->words != NULL));
    ok = ok && (f->type != F_OBJ || f->of) && (f->type != F_RULES || f->of) &&
         (!sent(sh) || f->type != F_LIST || f->of->size);
    ok = ok && (!(f->flags & F_REQUIRED) || !f->def) && (!sent(sh) || f->type != F_INT || f->max);
    ok = ok && (!f->help || f->help[strlen(f->help) - 1] == '.');
    ok = ok && shape_row(sh, str_of(f->name)) == f; /* each name once */
    if (f->def) {
        struct err e;
        auto_json j = json_parse(f->def, strlen(f->def), &e);
        ok = ok && j;
    }
    if (f->ex && *f->ex) {
        struct err e;
        auto_json j = json_parse(f->ex, strlen(f->ex), &e);
        ok = ok && j;
    }
    if (!ok)
        printf("# %s.%s\n", sh->name ? sh->name : "query", f->name);
    CHECK(ok);
}
TEST(tables, are_complete)
{
    size_t n = api_shapes(&native_table, all);
    CHECK(n > 80);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(all[i]->name, all[k]->name));
        for (size_t k = 0; k < all[i]->n; k++)
            check_row(all[i], &all[i]->rows[k]);
    }
    for (size_t i = 0; i < native_nroutes; i++)
        for (size_t k = 0; native_routes[i].query && k < native_routes[i].query->n; k++)
            check_row(native_routes[i].query, &native_routes[i].query->rows[k]);
}
/* Each numeric limit of each body is really refused one beyond, and taken at the limit. */
TEST(tables, limits_hold)
{
    size_t n = api_shapes(&native_table, all), tried = 0;
    struct config cfg = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; sent(all[i]) && k < all[i]->n; k++) {
            const struct field *f = &all[i]->rows[k];
            if (f->type != F_INT || f->max == INT64_MAX)
                continue;
            struct field alone = *f;
            struct shape one = *all[i];
            alone.flags = 0, one.rows = &alone, one.n = 1;
            for (int beyond = 0; beyond < 2; beyond++) {
                char body[100];
                struct err e;
                void *into = xcalloc(1, all[i]->size);
                snprintf(body, sizeof body, "{\"%s\":%lld}", f->name, (long long)f->max + beyond);
                struct json *j = body_read(body, strlen(body), &one, into, &cfg, &e);
                CHECK((j != NULL) == !beyond);
                json_free(j);
                snprintf(body, sizeof body, "{\"%s\":%lld}", f->name, (long long)f->min - beyond);
                j = body_read(body, strlen(body), &one, into, &cfg, &e);
                CHECK((j != NULL) == !beyond);
                json_free(j);
                free(into);
                tried++;
            }
        }
    CHECK(tried > 30);
}

/* ---- the policy: its parser is the gate's, its description is ours ---- */
static void policy_takes(const char *text, const char *member)
{
    struct err e;
    struct policy *p = policy_parse(text, strlen(text), 0, &e);
    if (!p)
        printf("# %s: %s: %s\n", member, text, e.msg);
    CHECK(p != NULL);
    policy_unref(p);
}
TEST(tables, the_gate_knows_every_member_of_a_policy)
{
    char text[512];
    const struct field *allow = shape_row(&network_shape, S("allow")),
                       *inject = shape_row(&network_shape, S("inject")),
                       *limits = shape_row(&network_shape, S("limits"));
    for (size_t i = 0; i < allow->of->n; i++) {
        const struct field *f = &allow->of->rows[i];
        bool target = !strcmp(f->name, "domain") || !strcmp(f->name, "cidr");
        struct str word = {0};
        (void)(f->words && field_word(f->words, 0, &word));
        snprintf(text, sizeof text, "{\"mode\":\"open\",\"%s\":[{%s\"%s\":%s%.*s%s}]}",
                 !strcmp(f->name, "final") ? "deny" : "allow",
                 target ? "" : "\"domain\":\"example.org\",", f->name,
                 word.n  ? "\""
                 : f->ex ? f->ex
                         : "true",
                 (int)word.n, word.n ? word.p : "", word.n ? "\"" : "");
        policy_takes(text, f->name);
    }
    for (size_t i = 0; i < inject->of->n; i++) {
        const struct field *f = &inject->of->rows[i];
        if (!strcmp(f->name, "value")) /* core/network stores it and hands on a secret */
            continue;
        bool have = !strcmp(f->name, "domain") || !strcmp(f->name, "secret"),
             header = !strcmp(f->name, "header"), place = !strcmp(f->name, "placeholder");
        snprintf(
            text, sizeof text,
            "{\"mode\":\"open\",\"inject\":[{\"domain\":\"example.org\",\"secret\":\"a\"%s%s%s%s%s%s}]}",
            header || place ? "" : ",\"header\":\"X-Key\"", have ? "" : ",\"", have ? "" : f->name,
            have ? "" : "\":",
            have                          ? ""
            : f->ex                       ? f->ex
            : f->type == F_BOOL           ? "true"
            : place                       ? "\"12345678\""
            : !strcmp(f->name, "methods") ? "[\"GET\"]"
                                          : "[\"/a\"]",
            "");
        policy_takes(text, f->name);
    }
    for (size_t i = 0; i < limits->of->n; i++) {
        struct err e;
        snprintf(text, sizeof text, "{\"mode\":\"open\",\"limits\":{\"%s\":%lld}}",
                 limits->of->rows[i].name, (long long)limits->of->rows[i].max);
        policy_takes(text, limits->of->rows[i].name);
        snprintf(text, sizeof text, "{\"mode\":\"open\",\"limits\":{\"%s\":%lld}}",
                 limits->of->rows[i].name, (long long)limits->of->rows[i].max + 1);
        CHECK(!policy_parse(text, strlen(text), 0, &e) && strstr(e.msg, limits->of->rows[i].name));
    }
    struct str mode;
    for (size_t i = 0; field_word(shape_row(&network_shape, S("mode"))->words, i, &mode); i++) {
        snprintf(text, sizeof text, "{\"mode\":\"%.*s\",\"%s\":[\"example.org\"]}", (int)mode.n,
                 mode.p, i == 1 ? "allow" : "deny");
        policy_takes(text, "mode");
    }
}
TEST(tables, a_policy_with_another_member_is_refused)
{
    struct err e;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"alow\":[]}", "alow: unknown member; did you mean allow?"},
        {"{\"private\":[]}", "private: unknown member"},
        {"{\"allow\":[\"a\",{\"domian\":\"b\"}]}",
         "allow[1].domian: unknown member; did you mean domain?"},
        {"{\"limits\":{\"byte\":1}}", "limits.byte: unknown member; did you mean bytes?"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_json j = json_parse_obj(bad[i].text, strlen(bad[i].text), &e);
        CHECK(j && fields_known(j, &network_shape, &e));
        CHECK_STR(e.msg, bad[i].says);
    }
}

/* ---- the document ---- */
static struct json *operation(struct json *doc, const struct api_route *r)
{
    char method[8];
    size_t n = 0;
    for (; r->method[n]; n++)
        method[n] = (char)(r->method[n] | 32);
    method[n] = 0;
    return json_get(json_get(json_get(doc, "paths"), r->pattern), method);
}
static struct json *document(const struct config *cfg)
{
    auto_buf b = {0};
    struct err e;
    openapi_write(&b, &native_table, cfg);
    struct json *j = json_parse_obj(b.p, b.n, &e);
    CHECK(j != NULL);
    return j;
}
TEST(openapi, lists_exactly_the_routes)
{
    auto_json j = document(NULL);
    struct json *paths = json_get(j, "paths");
    size_t ops = 0;
    for (void *it = json_first(paths); it; it = json_next(paths, it))
        ops += json_len(json_iter_value(paths, it));
    CHECK_INT(ops, native_nroutes);
    for (size_t i = 0; i < native_nroutes; i++) {
        const struct api_route *r = &native_routes[i];
        struct json *op = operation(j, r);
        struct str s;
        struct err e;
        CHECK(r->fn && op);
        CHECK(!json_str(op, "operationId", &s, true, &e) && str_eqz(s, r->id));
        CHECK(!json_str(op, "summary", &s, true, &e) && s.n);
        bool known = false;
        for (const char *const *t = native_table.tags; *t; t++)
            known |= !strcmp(*t, r->tag);
        CHECK(known && json_len(json_get(op, "tags")) == 1);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(r->id, native_routes[k].id) &&
                  (strcmp(r->pattern, native_routes[k].pattern) ||
                   strcmp(r->method, native_routes[k].method)));
    }
}
/* Every body and every answer has a schema; whatever has one is in components with all its members. */
static void check_media(struct json *content, const char *id)
{
    if (!json_len(content))
        printf("# %s: no content\n", id);
    CHECK(json_len(content) > 0);
    for (void *it = json_first(content); it; it = json_next(content, it))
        CHECK(json_len(json_get(json_iter_value(content, it), "schema")) > 0);
}
TEST(openapi, every_operation_has_schemas)
{
    auto_json j = document(NULL);
    for (size_t i = 0; i < native_nroutes; i++) {
        const struct api_route *r = &native_routes[i];
        struct json *op = operation(j, r), *answers = json_get(op, "responses");
        CHECK(json_get(answers, "default") && json_len(answers) >= 2);
        CHECK(!r->body == !json_get(op, "requestBody"));
        if (r->body)
            check_media(json_get(json_get(op, "requestBody"), "content"), r->id);
        size_t params = r->query ? r->query->n : 0;
        for (const char *p = r->pattern; (p = strchr(p, '{')); p++)
            params++;
        CHECK_INT(json_len(json_get(op, "parameters")), params);
        CHECK(r->answer[0].status);
        for (const struct api_answer *a = r->answer; a->status; a++) {
            char status[8];
            snprintf(status, sizeof status, "%d", a->status);
            CHECK(json_get(answers, status));
            CHECK((a->kind == ANSWER_JSON) <= (a->of != NULL));
            if (a->kind != ANSWER_NONE && a->kind != ANSWER_SOCKET)
                check_media(json_get(json_get(answers, status), "content"), r->id);
        }
    }
}
TEST(openapi, every_member_of_every_shape_is_there)
{
    auto_json j = document(NULL);
    struct json *schemas = json_get(json_get(j, "components"), "schemas");
    size_t n = api_shapes(&native_table, all);
    CHECK_INT(json_len(schemas), n);
    for (size_t i = 0; i < n; i++) {
        struct json *props = json_get(json_get(schemas, all[i]->name), "properties");
        size_t required = 0;
        CHECK_INT(json_len(props), all[i]->n);
        for (size_t k = 0; k < all[i]->n; k++) {
            struct json *one = json_get(props, all[i]->rows[k].name);
            CHECK(one && (!all[i]->rows[k].help || json_get(one, "description")));
            required += !!(all[i]->rows[k].flags & F_REQUIRED);
        }
        CHECK_INT(json_len(json_get(json_get(schemas, all[i]->name), "required")), required);
    }
}
static int64_t limit_of(struct json *doc, const char *shape, const char *member, const char *which)
{
    int64_t v = -1;
    struct err e;
    struct json *m = json_get(
        json_get(json_get(json_get(json_get(doc, "components"), "schemas"), shape), "properties"),
        member);
    CHECK(!json_i64(m, which, INT64_MIN, INT64_MAX, -1, &v, &e));
    return v;
}
TEST(openapi, has_the_limits_of_the_core_and_of_the_operator)
{
    struct config cfg = {.max_timeout_s = 77};
    auto_json plain = document(NULL);
    auto_json set = document(&cfg);
    CHECK_INT(limit_of(plain, "SandboxCreate", "memory_mib", "minimum"), SANDBOX_MEMORY_MIN);
    CHECK_INT(limit_of(plain, "SandboxCreate", "memory_mib", "maximum"), SANDBOX_MEMORY_MAX);
    CHECK_INT(limit_of(plain, "SandboxCreate", "timeout_s", "maximum"), CONFIG_MAX_TIMEOUT_S);
    CHECK_INT(limit_of(set, "SandboxCreate", "timeout_s", "maximum"), 77);
    CHECK_INT(limit_of(plain, "SandboxCreate", "volumes", "maxItems"), VOLUMES_PER_SANDBOX);
    CHECK_INT(limit_of(plain, "SandboxFork", "count", "maximum"), FORK_MAX);
    CHECK_INT(limit_of(plain, "SandboxFork", "count", "default"), 1);
    CHECK_INT(limit_of(plain, "Exec", "tag", "maxLength"), 128);
}
TEST_MAIN
