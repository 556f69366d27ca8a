/* The file of settings: what a line may be, which file counts for which home. */
#include "base/conf.h"
#include "base/suggest.h"
#include "test.h"
#include <sys/stat.h>

static int parse(const char *text, struct conf *c, struct err *e)
{
    *e = (struct err){0};
    return conf_parse("f", str_of(text), c, e);
}

TEST(conf, lines)
{
    struct conf c;
    struct err e;
    CHECK_INT(parse("# no\n; no\n\n A = b c \nB=\"x #y\"\nC='{\"k\": [1]}'\nD=\nA=last", &c, &e),
              0);
    CHECK_INT(c.n, 5);
    CHECK_STR(conf_get(&c, "A"), "last");
    CHECK_STR(c.at[0].value, "b c");
    CHECK_INT(c.at[0].line, 4);
    CHECK_STR(conf_get(&c, "B"), "x #y");
    CHECK_STR(conf_get(&c, "C"), "{\"k\": [1]}");
    CHECK_STR(conf_get(&c, "D"), "");
    CHECK(!conf_get(&c, "E"));
    conf_free(&c);
    CHECK_INT(parse("", &c, &e), 0);
    CHECK_INT(c.n, 0);
}

TEST(conf, a_wrong_line_is_named)
{
    static const char *const bad[] = {"A=1\nnonsense\n", "A=1\n=x",  "A=1\n1A=x",      "A=1\nA B=x",
                                      "A=1\nB=\"x",      "A=1\nB='", "A=1\nexport B=x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct conf c;
        struct err e;
        CHECK_INT(parse(bad[i], &c, &e), -1);
        CHECK_INT(e.code, E_INVALID);
        CHECK(strstr(e.msg, "f:2:") && !c.n && !c.at);
    }
    struct conf c;
    struct err e = {0};
    CHECK_INT(conf_parse("f", S("A=a\0b\n"), &c, &e), -1);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST(conf, which_file)
{
    char path[64];
    struct conf c;
    struct err e = {0};
    (void)snprintf(path, sizeof path, "/tmp/hutch-conf-%d", (int)getpid());
    unsetenv("HUTCH_CONFIG");
    CHECK_STR(conf_path(), CONF_FILE);
    setenv("HUTCH_CONFIG", "none", 1);
    CHECK(!conf_path() && !conf_load(&c, &e) && !c.n);
    setenv("HUTCH_CONFIG", path, 1);
    CHECK_INT(conf_load(&c, &e), -1); /* asked for, so it must be there */
    CHECK(strstr(e.msg, path));
    put(path, "HUTCH_HOME=/a\n");
    setenv("HUTCH_HOME", "/b", 1); /* a file that was asked for counts whatever the home */
    CHECK(!conf_load(&c, &e));
    CHECK_STR(conf_get(&c, "HUTCH_HOME"), "/a");
    conf_free(&c);
    CHECK(!chmod(path, 0666));
    CHECK_INT(conf_load(&c, &e), -1);
    CHECK_INT(e.code, E_DENIED);
    CHECK(!unlink(path));
}

static const char *at(const void *arg, int i) { return ((const char *const *)arg)[i]; }
TEST(suggest, near_or_nothing)
{
    static const char *const words[] = {"create", "keepalive", "ls", NULL};
    CHECK_STR(suggest("craete", at, words), "create");
    CHECK_STR(suggest("keep", at, words), "keepalive");
    CHECK(!suggest("zzz", at, words));
}
TEST_MAIN
