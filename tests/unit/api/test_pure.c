/* The parts of the API without a request: grammars, text, hints, the gate's names. */
#include "api/gate.h"
#include "api/native/native.h"
#include "api/params.h"
#include "api/problem.h"
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

/* ---- problems ---- */
static const char *hint_for(enum err_code code, enum about about, enum err_why why)
{
    struct err e;
    err_why(&e, why, code, "x");
    return problem_hint(problem_why(&e, about));
}
TEST(problem, a_hint_fits_every_error_of_its_code_or_there_is_none)
{
    CHECK_STR(hint_for(E_NOT_FOUND, ABOUT_REQUEST, REASON_NONE), "");
    CHECK_STR(hint_for(E_CONFLICT, ABOUT_SANDBOX, REASON_NONE), "");
    CHECK_STR(hint_for(E_CONFLICT, ABOUT_SNAPSHOT, REASON_NONE), "");
    CHECK_STR(hint_for(E_UNSUPPORTED, ABOUT_REQUEST, REASON_NONE), "");
    CHECK_STR(hint_for(E_GUEST, ABOUT_REQUEST, REASON_NONE), "");
    CHECK_STR(hint_for(E_GONE, ABOUT_SANDBOX, REASON_NONE), "");
    CHECK(strstr(hint_for(E_NOT_FOUND, ABOUT_SANDBOX, REASON_NONE), "GET /v1/sandboxes"));
    CHECK(strstr(hint_for(E_INVALID, ABOUT_REQUEST, REASON_NONE), "openapi.json"));
}
TEST(problem, what_happened_chooses_the_hint)
{
    /* exec of a missing program was told to check the id or name */
    CHECK(strstr(hint_for(E_NOT_FOUND, ABOUT_REQUEST, REASON_PROGRAM_MISSING), "PATH"));
    /* a failed RUN: a new sandbox is a clean start */
    CHECK(strstr(hint_for(E_GUEST, ABOUT_TEMPLATE, REASON_STEP_FAILED), "failed step"));
    /* ARG in a recipe: hutch doctor */
    CHECK(strstr(hint_for(E_UNSUPPORTED, ABOUT_TEMPLATE, REASON_BAD_RECIPE), "templates.md"));
    /* a name that is taken: resume it first */
    CHECK(strstr(hint_for(E_CONFLICT, ABOUT_SNAPSHOT, REASON_NAME_TAKEN), "another name"));
    /* a template in use: force, which does not exist */
    CHECK(!strstr(hint_for(E_CONFLICT, ABOUT_TEMPLATE, REASON_TEMPLATE_USED), "force"));
    /* a paused sandbox */
    CHECK(strstr(hint_for(E_CONFLICT, ABOUT_STATE, REASON_PAUSED), "/resume"));
    /* a failed one was told to create a new one */
    CHECK(strstr(hint_for(E_GONE, ABOUT_SANDBOX, REASON_FAILED), "/recover"));
    /* presets and certificates: try again in a moment */
    CHECK(strstr(hint_for(E_UNSUPPORTED, ABOUT_SANDBOX, REASON_PRESET), "preset"));
    CHECK(strstr(hint_for(E_GUEST, ABOUT_SANDBOX, REASON_TRUST_STORE), "certificate"));
}
TEST(problem, hints_are_about_http)
{
    for (int w = REASON_NONE + 1; w < REASON_MAX; w++) {
        CHECK(*err_why_name((enum err_why)w));
        CHECK_INT(err_why_from_name(err_why_name((enum err_why)w)), w);
        CHECK(*problem_hint((enum err_why)w));
        CHECK(!strstr(problem_hint((enum err_why)w), "`hutch"));
    }
}
TEST(problem, internal_details_are_for_the_socket_only)
{
    struct err e;
    err_set(&e, E_INTERNAL, "open /var/lib/secret");
    for (int trusted = 0; trusted < 2; trusted++) {
        auto_buf b = {0};
        struct jw w;
        jw_init(&w, &b);
        problem_put(&w, &e, "r1", trusted);
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
    static const char *const ok[] = {"localhost", "LOCALHOST:4882", "127.0.0.1:1", "[::1]:4882", "[::1]", "192.168.7.7:4882", "box.test", "one.example:80", "two.example",
                                     "api.box.test", "API.Box.Test:443", "api.localhost:4882"};
    static const char *const bad[] = {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "x.box.test", "192.168.7.8", "localhost:x",
                                      "localhost:99999", "[::1", "::1", "[::1]x", ":4882", "one.example,two.example", "127.0.0.2", "api.one.example", "api.", "xapi.box.test", "api.x.box.test", "apixbox.test"};
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++)
        CHECK_STR(gate_host_ok(&c, str_of(ok[i])) ? "" : ok[i], "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STR(gate_host_ok(&c, str_of(bad[i])) ? bad[i] : "-", "-");
}
TEST(gate, a_domain_may_have_a_port)
{
    struct config c = config("127.0.0.1:4882");
    snprintf(c.domain, sizeof c.domain, "box.test:4882");
    CHECK(gate_host_ok(&c, S("box.test:4882")) && gate_host_ok(&c, S("box.test")) &&
          gate_host_ok(&c, S("api.box.test:4882")));
    CHECK(!gate_host_ok(&c, S("x.box.test:4882")));
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

TEST_MAIN
