/* Values that are only passed on: valid or not, and where they end. */
#include "json/valid.h"
#include "test.h"

static bool ok(const char *s) { return !json_valid(str_of(s), NULL); }

TEST(valid, takes_what_the_rfc_takes)
{
    static const char *const yes[] = {"0", "-0", "1.5e-3", "1E+400", "265252859812191058636308480000000", "null", "true", "false", "\"\"", "\"a\\u00e9\\n\\/\"", "[]", "{}",
                                      " [ 1 , 2 ] ", "{\"a\":{\"a\":[null,-1]},\"A\":{\"a\":2}}", "\"\xc3\xa9\"", "\"\\ud800\"", "\t\r\n 1"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!ok(yes[i])) {
            printf("# %s\n", yes[i]);
            CHECK(!"accepted");
        }
}

TEST(valid, refuses_the_rest)
{
    static const char *const no[] = {"", " ", "01", "+1", "1.", ".5", "1e", "-", "NaN", "Infinity", "nul", "nulll", "'a'", "\"a", "\"\\x\"", "\"\\u12g4\"", "\"\n\"", "[1,]",
                                     "[1 2]", "[", "{", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}", "1 2", "[]]", "\"\xff\"", ("\xef\xbb\xbf" "1"), "\"\\"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (ok(no[i])) {
            printf("# %s\n", no[i]);
            CHECK(!"refused");
        }
}

TEST(valid, refuses_a_key_that_is_there_twice)
{
    static const char *const no[] = {"{\"a\":1,\"a\":1}",
                                     "[{\"x\":{\"a\":1,\"b\":2,\"a\":3}}]",
                                     "{\"a\":1,\"\\u0061\":2}",
                                     "{\"/\":1,\"\\/\":2}",
                                     "{\"\\u000a\":1,\"\\n\":2}",
                                     "{\"\xc3\xa9\":1,\"\\u00E9\":2}",
                                     "{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":2}",
                                     "{\"\":1,\"\":2}",
                                     "{\"a\\u0000\":1,\"a\\u0000\":2}"};
    static const char *const yes[] = {
        "{\"a\":1,\"\\\\u0061\":2}", "{\"a\":1,\"a\\u0000\":2,\"\":3}",
        "{\"\\ud83d\":1,\"\\ude00\":2,\"\\ud83d\\ude00\":3}", "[{\"a\":1},{\"a\":1}]"};
    struct err e;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK(!ok(no[i]));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        CHECK(ok(yes[i]));
    CHECK_INT(json_valid(S("{\"a\":1,\"a\":2}"), &e), -1);
    CHECK_STR(e.msg, "byte 10: a key that was there before");
}

TEST(valid, says_where)
{
    struct err e;
    CHECK_INT(json_valid(S("[1,x]"), &e), -1);
    CHECK_INT(e.code, E_INVALID);
    CHECK_STR(e.msg, "byte 3: not a number");
}

TEST(valid, bounds_the_depth)
{
    char t[2 * JSON_VALID_DEPTH + 8];
    size_t n = JSON_VALID_DEPTH - 1;
    memset(t, '[', n);
    t[n] = '1';
    memset(t + n + 1, ']', n);
    CHECK(!json_valid((struct str){t, 2 * n + 1}, NULL));
    n++;
    memset(t, '[', n);
    t[n] = '1';
    memset(t + n + 1, ']', n);
    CHECK(json_valid((struct str){t, 2 * n + 1}, NULL));
}

/* Every prefix of a value is none, and reading one never goes past its end. */
TEST(valid, prefixes_are_refused)
{
    static const char whole[] = "{\"k\":[1.5,\"\\u0041\",true,null,{\"x\":-2e3}]}";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char *p = malloc(n ? n : 1);
        memcpy(p, whole, n);
        CHECK(json_valid((struct str){p, n}, NULL));
        free(p);
    }
    CHECK(ok(whole));
}

TEST(extent, ends_with_the_value)
{
    CHECK_INT(json_extent(S("12,\"x\":1")), 2);
    CHECK_INT(json_extent(S("{\"a\":[1,2]} ,")), 11);
    CHECK_INT(json_extent(S("\"}\",")), 3);
    CHECK_INT(json_extent(S(",")), 0);
    CHECK_INT(json_extent(S("[1,")), 0);
}

TEST(valid, a_member_as_text)
{
    struct str v = {0};
    CHECK(json_member(S(" {\"a\" : {\"input\":0}, \"input\": [1, 123456789012345678901234567890] , \"b\":2}"), S("input"), &v));
    CHECK(str_eqz(v, "[1, 123456789012345678901234567890]"));
    CHECK(json_member(S("{\"input\":\"}\\\"\",\"input\":2}"), S("input"), &v));
    CHECK(str_eqz(v, "\"}\\\"\""));
    static const char *const none[] = {"", "[]", "{}", "{\"a\":1}", "{\"a\":\"input\"}", "{\"in\\u0070ut\":1}", "{\"input\":}", "{\"input\" 1}", "{input:1}",
                                       "{\"a\":[,\"input\":1}", "{\"input\":[1", "{\"inputs\":1}", "{\"input"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(!json_member(str_of(none[i]), S("input"), &v));
    char deep[2 * JSON_VALID_DEPTH + 16]; /* as deep as a value that stands alone */
    size_t n = (size_t)snprintf(deep, sizeof deep, "{\"input\":");
    memset(deep + n, '[', JSON_VALID_DEPTH), memset(deep + n + JSON_VALID_DEPTH, ']', JSON_VALID_DEPTH);
    n += 2 * JSON_VALID_DEPTH;
    deep[n++] = '}';
    CHECK(json_member((struct str){deep, n}, S("input"), &v));
    CHECK_INT(v.n, 2 * JSON_VALID_DEPTH);
}

TEST_MAIN
