#include "test.h"
#include "json/kv.h"

TEST(kv, sets_replaces_and_keeps_order)
{
    struct kv m = {0};
    kv_set(&m, S("b"), S("1"));
    kv_set(&m, S("a"), S("2"));
    kv_set(&m, S("b"), S("3"));
    CHECK_INT(m.n, 2);
    CHECK_STR(m.at[0].k, "b");
    CHECK_STR(kv_get(&m, "b"), "3");
    CHECK(!kv_get(&m, "c"));
    kv_free(&m);
}
TEST(kv, json_round_trip_with_hostile_text)
{
    struct kv m = {0}, back = {0};
    struct err e = {0};
    kv_set(&m, S("quote\"and\\slash"), S("line\nbreak \xc3\xbc"));
    kv_set(&m, S(""), S(""));
    char *j = kv_to_json(&m);
    CHECK_INT(kv_from_json(&back, j, &e), 0);
    CHECK_INT(back.n, 2);
    CHECK_STR(kv_get(&back, "quote\"and\\slash"), "line\nbreak \xc3\xbc");
    free(j);
    kv_free(&m), kv_free(&back);
}
TEST(kv, damaged_json_is_refused)
{
    struct kv m = {0};
    struct err e = {0};
    CHECK_INT(kv_from_json(&m, "{\"a\":1}", &e), -1);
    CHECK_INT(kv_from_json(&m, "[", &e), -1);
    CHECK_INT(kv_from_json(&m, NULL, &e), 0);
    kv_free(&m);
}
TEST(kv, becomes_an_environment)
{
    struct kv m = {0};
    kv_set(&m, S("A"), S("x=y"));
    char **env = kv_to_env(&m);
    CHECK_STR(env[0], "A=x=y");
    CHECK(!env[1]);
    env_free(env);
    kv_free(&m);
}
TEST_MAIN
