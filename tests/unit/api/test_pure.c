/* The parts of the API without a request: grammars, text, hints, schemas, the gate's names, the OpenAPI document. */
#include "api/gate.h"
#include "api/native/native.h"
#include "api/openapi.h"
#include "api/params.h"
#include "api/problem.h"
#include "api/schema.h"
#include "api/utf8.h"
#include "fake.h"
#include "json/read.h"

/* ---- text ---- */
TEST(utf8, whole_keeps_complete_text)
{
    CHECK_INT(utf8_whole("", 0), 0);
    CHECK_INT(utf8_whole("abc", 3), 3);
    CHECK_INT(utf8_whole("a\xc3\xa9", 3), 3);
    CHECK_INT(utf8_whole("\xf0\x9f\x98\x80", 4), 4);
}
TEST(utf8, whole_cuts_an_unfinished_end)
{
    CHECK_INT(utf8_whole("a\xc3", 2), 1);
    CHECK_INT(utf8_whole("a\xe2\x82", 3), 1);
    CHECK_INT(utf8_whole("a\xf0\x9f\x98", 4), 1);
    CHECK_INT(utf8_whole("\xf0", 1), 0);
}
TEST(utf8, whole_leaves_garbage_alone)
{
    CHECK_INT(utf8_whole("\x80\x80\x80\x80", 4), 4);
    CHECK_INT(utf8_whole("a\xff", 2), 2);
    CHECK_INT(utf8_whole("a\xc0", 2), 2);
}
TEST(utf8, every_split_of_valid_text_gives_valid_pieces)
{
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
    size_t n = strlen(text);
    for (size_t i = 0; i <= n; i++)
        for (size_t k = i; k <= n; k++) {
            struct utf8_tail t = {0};
            auto_buf all = {0};
            size_t cut[4] = {0, i, k, n};
            for (int j = 0; j < 3; j++) {
                auto_buf b = {0};
                utf8_push(&t, text + cut[j], cut[j + 1] - cut[j], &b);
                CHECK(str_utf8((struct str){b.p, b.n}));
                buf_put(&all, b.p, b.n);
            }
            CHECK_INT(t.n, 0);
            CHECK_STR(all.p, text);
        }
}
TEST(utf8, flush_gives_what_was_held)
{
    struct utf8_tail t = {0};
    auto_buf b = {0};
    utf8_push(&t, "x\xe2\x82", 3, &b);
    CHECK_STR(b.p, "x");
    utf8_flush(&t, &b);
    CHECK_INT(b.n, 3);
    CHECK_INT(t.n, 0);
}

/* ---- grammars ---- */
TEST(params, env_names)
{
    CHECK(env_key_ok(S("PATH")) && env_key_ok(S("_x9")) && env_key_ok(S("a")));
    CHECK(!env_key_ok(S("")) && !env_key_ok(S("9a")) && !env_key_ok(S("a-b")) && !env_key_ok(S("a=b")) && !env_key_ok(S("a b")));
}
TEST(params, modes)
{
    uint32_t m = 0;
    CHECK(!mode_parse(S("0644"), &m));
    CHECK_INT(m, 0644);
    CHECK(!mode_parse(S("07777"), &m) && m == 07777);
    CHECK(mode_parse(S(""), &m) && mode_parse(S("888"), &m) && mode_parse(S("17777"), &m) && mode_parse(S("-1"), &m) && mode_parse(S("000644"), &m));
}
TEST(params, who)
{
    CHECK(who_ok("1") && who_ok("77") && who_ok("tag:web") && who_ok("4294967295"));
    CHECK(!who_ok("") && !who_ok("0") && !who_ok("-1") && !who_ok("tag:") && !who_ok("tag:a\nb") && !who_ok("web") && !who_ok("4294967296"));
}
static int env_of(const char *text, struct kv *m, struct err *e)
{
    auto_json j = json_parse_obj(text, strlen(text), e);
    CHECK(j != NULL);
    return body_env(j, "env", m, e);
}
TEST(params, env_maps)
{
    struct err e;
    struct kv m = {0};
    CHECK(!env_of("{}", &m, &e) && !m.n);
    CHECK(!env_of("{\"env\":{\"A\":\"1\",\"B\":\"\"}}", &m, &e));
    CHECK_STR(kv_get(&m, "A"), "1");
    CHECK_STR(kv_get(&m, "B"), "");
    kv_free(&m);
    CHECK(env_of("{\"env\":{\"A-B\":\"1\"}}", &m, &e) && e.code == E_INVALID && strstr(e.msg, "A-B"));
    CHECK(env_of("{\"env\":{\"A\":1}}", &m, &e) && e.code == E_INVALID && strstr(e.msg, "env.A"));
    CHECK(env_of("{\"env\":[]}", &m, &e) && e.code == E_INVALID);
    kv_free(&m);
    auto_buf b = {0};
    buf_puts(&b, "{\"env\":{");
    for (int i = 0; i <= PARAM_ENV_MAX; i++)
        buf_printf(&b, "%s\"V%d\":\"\"", i ? "," : "", i);
    buf_puts(&b, "}}");
    CHECK(env_of(b.p, &m, &e) && e.code == E_TOO_LARGE && strstr(e.msg, "256"));
    kv_free(&m);
}
static int argv_of(const char *text, char ***argv, struct json **keep, struct err *e)
{
    *keep = json_parse_obj(text, strlen(text), e);
    CHECK(*keep != NULL);
    return body_argv(*keep, "cmd", argv, e);
}
TEST(params, argv)
{
    struct err e;
    struct json *j;
    char **v;
    CHECK(!argv_of("{\"cmd\":\"a | b\"}", &v, &j, &e));
    CHECK_STR(v[0], "/bin/bash");
    CHECK_STR(v[1], "-c");
    CHECK_STR(v[2], "a | b");
    CHECK(!v[3]);
    free(v), json_free(j);
    CHECK(!argv_of("{\"cmd\":[\"ls\",\"\"]}", &v, &j, &e));
    CHECK_STR(v[0], "ls");
    CHECK(!v[2]);
    free(v), json_free(j);
    static const char *const bad[] = {"{}", "{\"cmd\":[]}", "{\"cmd\":[\"\"]}", "{\"cmd\":7}", "{\"cmd\":[1]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(argv_of(bad[i], &v, &j, &e) && e.code == E_INVALID && strstr(e.msg, "cmd"));
        json_free(j);
    }
}
TEST(params, unknown_members_are_named)
{
    struct err e;
    CHECK(!body_parse("{\"cmd\":\"x\",\"tiemout_ms\":3}", 26, "Exec", &e));
    CHECK_INT(e.code, E_INVALID);
    CHECK(strstr(e.msg, "tiemout_ms"));
    struct json *j = body_parse("", 0, "Exec", &e);
    CHECK(j != NULL);
    json_free(j);
    CHECK(!body_parse("[]", 2, "Exec", &e) && e.code == E_INVALID);
    CHECK(!body_parse("{", 1, "Exec", &e) && e.code == E_INVALID);
}

/* ---- problems ---- */
TEST(problem, every_code_has_a_hint)
{
    for (int c = E_OK + 1; c < E_CODE_MAX; c++)
        CHECK(*problem_hint((enum err_code)c, ABOUT_REQUEST));
    CHECK(strstr(problem_hint(E_NOT_FOUND, ABOUT_SANDBOX), "hutch ls"));
    CHECK_STR(problem_hint(E_GONE, ABOUT_FILE), problem_hint(E_GONE, ABOUT_REQUEST));
}
TEST(problem, internal_details_are_for_the_socket_only)
{
    struct err e;
    err_set(&e, E_INTERNAL, "open /var/lib/secret");
    for (int trusted = 0; trusted < 2; trusted++) {
        auto_buf b = {0};
        struct jw w;
        jw_init(&w, &b);
        problem_put(&w, &e, NULL, "r1", trusted);
        CHECK(!!strstr(b.p, "secret") == trusted);
        CHECK(strstr(b.p, "\"code\":\"internal\"") && strstr(b.p, "\"request_id\":\"r1\""));
    }
}

/* ---- the gate ---- */
static struct config config(const char *listen)
{
    struct config c = {0};
    snprintf(c.listen, sizeof c.listen, "%s", listen);
    snprintf(c.domain, sizeof c.domain, "box.test");
    snprintf(c.hosts, sizeof c.hosts, "one.example, Two.example");
    return c;
}
TEST(gate, hosts)
{
    struct config c = config("192.168.7.7:4882");
    static const char *const ok[] = {"localhost", "LOCALHOST:4882", "127.0.0.1:1", "[::1]:4882", "[::1]", "192.168.7.7:4882", "box.test", "one.example:80", "two.example"};
    static const char *const bad[] = {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "x.box.test", "192.168.7.8", "localhost:x",
                                      "localhost:99999", "[::1", "::1", "[::1]x", ":4882", "one.example,two.example", "127.0.0.2"};
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++)
        CHECK_STR(gate_host_ok(&c, str_of(ok[i])) ? "" : ok[i], "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STR(gate_host_ok(&c, str_of(bad[i])) ? bad[i] : "-", "-");
}
TEST(gate, a_wildcard_listener_takes_addresses_but_not_names)
{
    static const char *const all[] = {"0.0.0.0:4882", ":4882", "[::]:4882"};
    for (size_t i = 0; i < 3; i++) {
        struct config c = config(all[i]);
        CHECK(gate_host_ok(&c, S("10.1.2.3:4882")) && gate_host_ok(&c, S("[fe80::1]:4882")));
        CHECK(!gate_host_ok(&c, S("evil.example")));
        CHECK(gate_origin_ok(&c, S("http://10.1.2.3:4882"), S("10.1.2.3:4882")));
        CHECK(!gate_origin_ok(&c, S("http://10.1.2.4:4882"), S("10.1.2.3:4882")));
    }
}
TEST(gate, origins)
{
    struct config c = config("127.0.0.1:4882");
    struct str h = S("127.0.0.1:4882");
    CHECK(gate_origin_ok(&c, S("http://localhost:3000"), h) && gate_origin_ok(&c, S("https://one.example"), h));
    CHECK(!gate_origin_ok(&c, S("null"), h) && !gate_origin_ok(&c, S("http://evil.example"), h) && !gate_origin_ok(&c, S("file://"), h));
    CHECK(!gate_origin_ok(&c, S("http://evil.example"), S("evil.example")) && !gate_origin_ok(&c, S("http://"), h) && !gate_origin_ok(&c, S(""), h));
}

/* ---- schemas and the document ---- */
static void check_type(struct str t)
{
    if (t.n > 2 && *t.p == '[')
        t.p++, t.n -= 2;
    if (t.n == 1 || *t.p == '=')
        return;
    if (!schema_find(t)) {
        printf("# no schema %.*s\n", (int)t.n, t.p);
        CHECK(!"known type");
    }
}
TEST(schema, every_type_exists_and_names_are_unique)
{
    for (size_t i = 0; i < nschemas; i++) {
        struct schema_member m, o;
        CHECK(schema_find(str_of(schemas[i].name)) == &schemas[i]);
        for (const char *at = schemas[i].members; schema_next(&at, &m);) {
            check_type(m.type);
            int same = 0;
            for (const char *p = schemas[i].members; schema_next(&p, &o);)
                same += str_eq(o.name, m.name);
            CHECK_INT(same, 1);
        }
    }
}
TEST(schema, members_are_read)
{
    struct schema_member m;
    const char *at = " a!:s b:Sandbox? c:=x|y";
    CHECK(schema_next(&at, &m) && str_eqz(m.name, "a") && str_eqz(m.type, "s") && m.required && !m.null);
    CHECK(schema_next(&at, &m) && str_eqz(m.name, "b") && str_eqz(m.type, "Sandbox") && !m.required && m.null);
    CHECK(schema_next(&at, &m) && str_eqz(m.type, "=x|y"));
    CHECK(!schema_next(&at, &m));
}
TEST(openapi, lists_exactly_the_routes)
{
    auto_buf b = {0};
    struct err e;
    openapi_write(&b, native_routes, native_nroutes);
    auto_json j = json_parse_obj(b.p, b.n, &e);
    CHECK(j != NULL);
    struct json *paths = json_get(j, "paths");
    size_t ops = 0;
    for (void *it = json_first(paths); it; it = json_next(paths, it))
        ops += json_len(json_iter_value(paths, it));
    CHECK_INT(ops, native_nroutes);
    for (size_t i = 0; i < native_nroutes; i++) {
        const struct api_route *r = &native_routes[i];
        char method[8];
        size_t n = 0;
        for (; r->method[n]; n++)
            method[n] = (char)(r->method[n] | 32);
        method[n] = 0;
        struct json *op = json_get(json_get(paths, r->pattern), method);
        CHECK(op != NULL);
        struct str id;
        CHECK(!json_str(op, "operationId", &id, true, &e) && str_eqz(id, r->id));
        CHECK(json_len(json_get(op, "responses")) >= 2); /* its own and "default" */
    }
}
TEST(openapi, routes_are_complete_and_name_real_schemas)
{
    for (size_t i = 0; i < native_nroutes; i++) {
        const struct api_route *r = &native_routes[i];
        struct schema_member m;
        CHECK(r->fn && r->id && r->summary && r->reply);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(r->id, native_routes[k].id) && (strcmp(r->pattern, native_routes[k].pattern) || strcmp(r->method, native_routes[k].method)));
        if (r->body && strcmp(r->body, "bytes") && strcmp(r->body, "form"))
            check_type(str_of(r->body));
        for (const char *p = r->reply; *p; p += strcspn(p, " ;|") + !!p[strcspn(p, " ;|")])
            if (*p >= 'A' && *p <= 'Z')
                check_type((struct str){p, strcspn(p, " ;|")});
        for (const char *at = r->query ? r->query : ""; schema_next(&at, &m);)
            check_type(m.type);
    }
}
TEST_MAIN
