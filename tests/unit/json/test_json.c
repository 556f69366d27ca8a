#include "json/read.h"
#include "json/write.h"
#include "base/buf.h"
#include "test.h"
#include <math.h>

static struct json *parse(const char *z, struct err *e) { return json_parse(z, strlen(z), e); }
static void check_bad(const char *z)
{
    struct err e = {0};
    CHECK(!parse(z, &e));
    CHECK_INT(e.code, E_INVALID);
}
TEST(read, refuses_what_is_not_strict_json)
{
    check_bad("");
    check_bad("{");
    check_bad("{\"a\":1,\"a\":2}");
    check_bad("{\"a\":1}x");
    check_bad("[1,]");
    check_bad("{'a':1}");
    check_bad("\"\xff\"");
    check_bad("\"\xed\xa0\x80\"");
    check_bad("\"\\u0000\"");
    check_bad("\"\\ud800\"");
    check_bad("99999999999999999999");
    check_bad("NaN");
    check_bad("01");
    check_bad("\"a\nb\"");
    struct err e;
    CHECK(!json_parse_obj("[]", 2, &e));
    CHECK_STR(e.msg, "body: not a JSON object");
}
TEST(read, limits_the_depth)
{
    char t[200] = "";
    struct err e;
    memset(t, '[', 32), memset(t + 32, ']', 32);
    struct json *j = parse(t, &e);
    CHECK(j);
    json_free(j);
    memset(t, '[', 33), memset(t + 33, ']', 33);
    check_bad(t);
    j = parse("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"", &e); /* not inside strings */
    CHECK(j);
    json_free(j);
}
TEST(read, names_the_path_of_a_mistake)
{
    struct err e;
    auto_json j = parse("{\"limits\":{\"cpu\":\"x\",\"mem\":5.5,\"ok\":7},\"mounts\":[{},{\"path\":3}],\"n\":null}", &e);
    CHECK(j);
    struct json *lim = json_get(j, "limits");
    int64_t v = 1;
    CHECK(json_i64(lim, "cpu", 0, 10, 0, &v, &e) < 0);
    CHECK_STR(e.msg, "limits.cpu: not an integer");
    CHECK(json_i64(lim, "mem", 0, 10, 0, &v, &e) < 0);
    CHECK(json_i64(lim, "ok", 0, 5, 0, &v, &e) < 0);
    CHECK_STR(e.msg, "limits.ok: must be between 0 and 5");
    CHECK_INT(v, 1);
    CHECK(!json_i64(lim, "none", 0, 5, 42, &v, &e));
    CHECK_INT(v, 42);
    struct str s = S("keep");
    struct json *m = json_at(json_get(j, "mounts"), 1);
    CHECK(json_str(m, "path", &s, true, &e) < 0);
    CHECK_STR(e.msg, "mounts[1].path: not a string");
    CHECK(json_str(json_at(json_get(j, "mounts"), 0), "path", &s, true, &e) < 0);
    CHECK_STR(e.msg, "mounts[0].path: missing");
    CHECK(!json_str(j, "n", &s, false, &e));
    CHECK(str_eqz(s, "keep"));
    CHECK(json_str(j, "n", &s, true, &e) < 0);
    CHECK_STR(e.msg, "n: missing");
    CHECK(json_has(j, "n") && !json_get(j, "n") && !json_has(j, "zz"));
    CHECK(json_only(lim, &e, "cpu", "mem", NULL) < 0);
    CHECK_STR(e.msg, "limits.ok: unknown field");
    CHECK(!json_only(lim, &e, "cpu", "mem", "ok", NULL));
    CHECK(json_need(j, &e, "limits", "foo", NULL) < 0);
    CHECK_STR(e.msg, "foo: missing");
    CHECK(!json_at(json_get(j, "mounts"), 2) && !json_at(NULL, 0) && !json_get(NULL, "x"));
    struct json *o = NULL;
    CHECK(json_obj(j, "mounts", &o, true, &e) < 0 && !o);
    CHECK(!json_arr(j, "mounts", &o, true, &e) && json_len(o) == 2);
    char path[32];
    CHECK_STR(json_path(m, path, sizeof path), "mounts[1]");
}
TEST(read, keeps_64_bit_integers_and_takes_integral_reals)
{
    struct err e;
    auto_json j = parse("{\"a\":9223372036854775807,\"b\":300.0,\"c\":1e300,\"d\":true,\"f\":2}", &e);
    int64_t v;
    double f;
    bool b;
    CHECK(!json_i64(j, "a", INT64_MIN, INT64_MAX, 0, &v, &e) && v == INT64_MAX);
    CHECK(!json_i64(j, "b", 0, 1000, 0, &v, &e) && v == 300);
    CHECK(json_i64(j, "c", INT64_MIN, INT64_MAX, 0, &v, &e) < 0);
    CHECK(!json_f64(j, "f", 0, 10, 0, &f, &e) && f == 2.0);
    CHECK(json_f64(j, "c", 0, 10, 0, &f, &e) < 0);
    CHECK(!json_bool(j, "d", false, &b, &e) && b);
    CHECK(json_bool(j, "f", false, &b, &e) < 0);
}
TEST(read, iterates_and_dumps_in_text_order)
{
    static const char text[] = "{\"z\":1,\"a\":[true,null,\"\xc3\xa4\\n\",1.5],\"m\":{}}";
    struct err e;
    auto_json j = parse(text, &e);
    auto_buf keys = {0}, out = {0};
    for (void *it = json_first(j); it; it = json_next(j, it)) {
        struct str k = json_iter_key(it);
        buf_put(&keys, k.p, k.n);
        CHECK(json_kind(json_iter_value(j, it)) != JSON_NONE);
    }
    CHECK_STR(keys.p, "zam");
    json_dump(j, &out);
    CHECK_STR(out.p, text);
}

static char *one(struct str s, bool ascii)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    w.ascii = ascii;
    jw_str(&w, s);
    return buf_take(&b);
}
TEST(write, escapes_and_repairs_strings)
{
    static const struct { struct str in; bool ascii; const char *out; } c[] = {
        {{"a\"b\\\n\r\t\x01\x7f", 9}, false, "\"a\\\"b\\\\\\n\\r\\t\\u0001\\u007f\""},
        {{"\xc3\xa4\xf0\x9f\x98\x80", 6}, false, "\"\xc3\xa4\xf0\x9f\x98\x80\""},
        {{"\xc3\xa4\xf0\x9f\x98\x80", 6}, true, "\"\\u00e4\\ud83d\\ude00\""},
        {{"a\xff\xc3", 3}, false, "\"a\xef\xbf\xbd\xef\xbf\xbd\""},
        {{"\xed\xa0\x80", 3}, true, "\"\\ufffd\\ufffd\\ufffd\""},
        {{"\xc0\x80", 2}, true, "\"\\ufffd\\ufffd\""},
        {{"a\0b", 3}, false, "\"a\\u0000b\""},
        {{NULL, 0}, false, "\"\""},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char *got = one(c[i].in, c[i].ascii);
        CHECK_STR(got, c[i].out);
        free(got);
    }
}
TEST(write, places_commas_and_numbers)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_i64(&w, "min", INT64_MIN);
    jw_kv_u64(&w, "max", UINT64_MAX);
    jw_kv_f64(&w, "third", 1.0 / 3);
    jw_kv_f64(&w, "tenth", 0.1);
    jw_kv_f64(&w, "two", 2);
    jw_kv_f64(&w, "nan", NAN);
    jw_kv_str(&w, "nil", NULL);
    jw_kv_arr(&w, "list");
    jw_i64(&w, -1);
    jw_obj(&w);
    jw_end(&w);
    jw_arr(&w);
    jw_end(&w);
    jw_bool(&w, true);
    jw_raw(&w, S("{}"));
    jw_base64(&w, "hi", 2);
    jw_end(&w);
    jw_kv_bool(&w, "b", false);
    jw_end(&w);
    CHECK_STR(b.p, "{\"min\":-9223372036854775808,\"max\":18446744073709551615,\"third\":0.3333333333333333,\"tenth\":0.1,\"two\":2.0,"
                   "\"nan\":null,\"nil\":null,\"list\":[-1,{},[],true,{},\"aGk=\"],\"b\":false}");
}
TEST_MAIN
