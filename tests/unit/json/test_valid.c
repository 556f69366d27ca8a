/* Values that are only passed on: valid or not, and where they end. */
#include "json/valid.h"
#include "test.h"

static bool ok(const char *s) { return !json_valid(str_of(s), NULL); }

TEST(valid, takes_what_the_rfc_takes)
{
    static const char *const yes[] = {"0", "-0", "1.5e-3", "1E+400", "265252859812191058636308480000000", "null", "true", "false", "\"\"", "\"a\\u00e9\\n\\/\"", "[]", "{}",
                                      " [ 1 , 2 ] ", "{\"a\":{\"b\":[null,-1]},\"a\":2}", "\"\xc3\xa9\"", "\"\\ud800\"", "\t\r\n 1"};
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

TEST_MAIN
