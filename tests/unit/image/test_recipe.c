/* Recipes: every instruction, Docker's line rules, and many refusals. */
#include "base/cleanup.h"
#include "image/recipe.h"
#include "test.h"

static struct recipe good(const char *text)
{
    struct recipe r;
    struct err e = {0};
    if (recipe_parse(text, strlen(text), &r, &e) < 0) {
        printf("# %.200s\n# -> %s %s\n", text, err_name(e.code), e.msg);
        CHECK(0);
    }
    return r;
}

static void bad(const char *text, enum err_code want, const char *hint)
{
    struct recipe r;
    struct err e = {0};
    int rc = recipe_parse(text, strlen(text), &r, &e);
    if (rc == 0 || e.code != want || !strstr(e.msg, hint)) {
        printf("# %.200s\n# -> %d %s %s, want %s %s\n", text, rc, err_name(e.code), e.msg, err_name(want), hint);
        CHECK(0);
    }
}

TEST(recipe, parses_every_instruction)
{
    struct recipe r = good("# syntax=docker/dockerfile:1\n"
                           "FROM debian:12\n"
                           "\n"
                           "  # a comment\n"
                           "env A=1 B=\"two words\" C=x\\ y\n"
                           "ENV OLD the rest of  the line\n"
                           "WORKDIR /app\n"
                           "COPY --chown=user:user --chmod=0755 a.py dir/b.py ./\n"
                           "COPY [\"with space\", \"/x y\"]\n"
                           "USER user\n"
                           "RUN apt-get update && \\\n"
                           "    # inside\n"
                           "\n"
                           "    apt-get install -y gcc   \n"
                           "RUN [\"echo\", \"a\\nb\", \"\\u00e9\\ud83d\\ude00\"]\n"
                           "START python3 -m http.server\n"
                           "READY [\"true\"]\n"
                           "KERNELS python javascript");
    CHECK_STR(r.from, "debian");
    CHECK_STR(r.tag, "12");
    CHECK(r.debian);
    CHECK_INT(r.nsteps, 8);
    CHECK_INT(r.step[0].kind, RECIPE_ENV);
    CHECK_INT(r.step[0].line, 5);
    CHECK_INT(r.step[0].nwords, 6);
    CHECK_STR(r.step[0].word[3], "two words");
    CHECK_STR(r.step[0].word[5], "x y");
    CHECK_STR(r.step[1].word[0], "OLD");
    CHECK_STR(r.step[1].word[1], "the rest of  the line");
    CHECK_STR(r.step[2].word[0], "/app");
    CHECK_INT(r.step[3].nwords, 3);
    CHECK_STR(r.step[3].word[2], "./");
    CHECK_STR(r.step[3].chown, "user:user");
    CHECK_INT(r.step[3].chmod, 0755);
    CHECK_STR(r.step[4].word[1], "/x y");
    CHECK_INT(r.step[4].chmod, -1);
    CHECK_STR(r.step[5].word[0], "user");
    CHECK(r.step[6].cmd.shell);
    CHECK_STR(r.step[6].cmd.argv[0], "apt-get update &&     apt-get install -y gcc");
    CHECK(!r.step[7].cmd.shell);
    CHECK_INT(r.step[7].cmd.argc, 3);
    CHECK_STR(r.step[7].cmd.argv[1], "a\nb");
    CHECK_STR(r.step[7].cmd.argv[2], "\xc3\xa9\xf0\x9f\x98\x80");
    CHECK_STR(r.start.argv[0], "python3 -m http.server");
    CHECK(!r.ready.shell && r.ready.argc == 1);
    CHECK_STR(r.kernels, "python javascript");
    auto_buf text = {0};
    recipe_describe(&r.step[7], &text);
    CHECK_STR(text.p, "RUN echo a b \xc3\xa9\xf0\x9f\x98\x80");
    text.n = 0;
    recipe_describe(&r.step[0], &text);
    CHECK_STR(text.p, "ENV A=1 B=two words C=x y");
    recipe_fini(&r);
}

TEST(recipe, from_names)
{
    struct recipe r = good("FROM base\n");
    CHECK(!r.debian && !*r.tag);
    recipe_fini(&r);
    r = good("from my-template:v1.2\r\nRUN true\r\n");
    CHECK_STR(r.tag, "v1.2");
    CHECK_STR(r.step[0].cmd.argv[0], "true");
    recipe_fini(&r);
    r = good("FROM debian:bookworm-slim");
    CHECK_STR(r.tag, "12");
    recipe_fini(&r);
    bad("", E_INVALID, "starts with FROM");
    bad("# nothing\n", E_INVALID, "starts with FROM");
    bad("RUN true\nFROM base\n", E_INVALID, "line 1: a recipe starts with FROM");
    bad("FROM\n", E_INVALID, "line 1: FROM needs");
    bad("FROM base\nFROM base\n", E_UNSUPPORTED, "line 2: a second FROM");
    bad("FROM base AS build\n", E_UNSUPPORTED, "multi-stage");
    bad("FROM --platform=linux/amd64 base\n", E_UNSUPPORTED, "options");
    bad("FROM debian:11\n", E_UNSUPPORTED, "only debian:12");
    bad("FROM debian\n", E_UNSUPPORTED, "only debian:12");
    bad("FROM example.org/library/x:1\n", E_INVALID, "not a template name");
    bad("FROM ../etc\n", E_INVALID, "not a template name");
    bad("FROM UPPER\n", E_INVALID, "not a template name");
    bad("FROM base:\n", E_INVALID, "not a template name");
    bad("FROM base:a/b\n", E_INVALID, "not a template name");
    bad("FROM base:a:b\n", E_INVALID, "not a template name");
    bad("FROM $BASE\n", E_INVALID, "not a template name");
}

TEST(recipe, names_unsupported_instructions)
{
    static const char *const word[] = {"ADD", "ARG", "CMD", "ENTRYPOINT", "HEALTHCHECK", "EXPOSE", "LABEL", "MAINTAINER", "ONBUILD", "SHELL", "STOPSIGNAL", "VOLUME"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        char text[64], want[64];
        (void)snprintf(text, sizeof text, "FROM base\n\n# c\n%s x\n", word[i]);
        (void)snprintf(want, sizeof want, "line 4: %s is not supported", word[i]);
        bad(text, E_UNSUPPORTED, want);
    }
    bad("ARG X=1\nFROM base\n", E_UNSUPPORTED, "line 1: ARG");
    bad("FROM base\nFETCH x\n", E_INVALID, "line 2: unknown instruction FETCH");
    bad("FROM base\nRUNx\n", E_INVALID, "line 2: unknown instruction RUNx");
    bad("FROM base\n\\\n", E_INVALID, "line 2");
    bad("FROM base\nR\\\nUN true \\\n", E_INVALID, "continued line");
}

TEST(recipe, run_forms)
{
    struct recipe r = good("FROM base\nRUN [ -d /x ] && echo y\nRUN [ \"$A\" = b ]\nRUN [\"a\"]\nRUN [ \"a\" , \"b\" ]\nRUN echo 'a # b' \"$X\" \\\\\n");
    CHECK(r.step[0].cmd.shell && r.step[1].cmd.shell && !r.step[2].cmd.shell && !r.step[3].cmd.shell);
    CHECK_STR(r.step[1].cmd.argv[0], "[ \"$A\" = b ]");
    CHECK_INT(r.step[3].cmd.argc, 2);
    recipe_fini(&r);
    bad("FROM base\nRUN\n", E_INVALID, "line 2: RUN needs a command");
    bad("FROM base\nRUN <<EOF\nx\nEOF\n", E_UNSUPPORTED, "here-documents");
    bad("FROM base\nRUN --mount=type=cache,target=/x make\n", E_UNSUPPORTED, "no options");
    bad("FROM base\nRUN [\"a\",]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"a\" \"b\"]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"a\", 1]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"\\q\"]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"\\u0000\"]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"\\ud800\"]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN [\"\\udc00\"]\n", E_INVALID, "JSON");
    bad("FROM base\nRUN []\n", E_INVALID, "empty");
    bad("FROM base\nRUN [\"\"]\n", E_INVALID, "needs a program");
    bad("FROM base\nSTART a\nSTART b\n", E_INVALID, "line 3: a second START");
    bad("FROM base\nREADY\n", E_INVALID, "READY needs a command");
    bad("FROM base\nKERNELS python\nKERNELS r\n", E_INVALID, "line 3: a second KERNELS");
    bad("FROM base\nKERNELS\n", E_INVALID, "KERNELS needs names");
    bad("FROM base\nKERNELS $x\n", E_INVALID, "KERNELS needs names");
}

TEST(recipe, copy_rules)
{
    bad("FROM base\nCOPY\n", E_INVALID, "source and a destination");
    bad("FROM base\nCOPY a\n", E_INVALID, "source and a destination");
    bad("FROM base\nCOPY a b /dst\n", E_INVALID, "ends in /");
    bad("FROM base\nCOPY ../a /dst\n", E_INVALID, "is outside of the build context");
    bad("FROM base\nCOPY a/../../b /dst\n", E_INVALID, "is outside of the build context");
    bad("FROM base\nCOPY [\"../a\", \"/dst\"]\n", E_INVALID, "is outside of the build context");
    bad("FROM base\nCOPY /etc/passwd /dst\n", E_INVALID, "relative");
    bad("FROM base\nCOPY *.py /dst/\n", E_UNSUPPORTED, "wildcards");
    bad("FROM base\nCOPY $A /dst\n", E_UNSUPPORTED, "variables");
    bad("FROM base\nCOPY --from=build a b\n", E_UNSUPPORTED, "--from=build");
    bad("FROM base\nCOPY --chown= a b\n", E_INVALID, "--chown");
    bad("FROM base\nCOPY --chown=a:b:c a b\n", E_INVALID, "--chown");
    bad("FROM base\nCOPY --chown=a;b a b\n", E_INVALID, "--chown");
    bad("FROM base\nCOPY --chmod=9 a b\n", E_INVALID, "--chmod");
    bad("FROM base\nCOPY --chmod=u+x a b\n", E_INVALID, "--chmod");
    bad("FROM base\nCOPY --chmod=77777 a b\n", E_INVALID, "--chmod");
    bad("FROM base\nCOPY \"\" b\n", E_INVALID, "empty");
    bad("FROM base\nCOPY \"a b\n", E_INVALID, "quote is not closed");
    struct recipe r = good("FROM base\nCOPY . $HOME/\nCOPY 'a b' \"c d\"\n");
    CHECK_STR(r.step[0].word[1], "$HOME/");
    CHECK_STR(r.step[1].word[0], "a b");
    recipe_fini(&r);
}

TEST(recipe, env_user_workdir_rules)
{
    bad("FROM base\nENV\n", E_INVALID, "ENV needs");
    bad("FROM base\nENV A\n", E_INVALID, "needs a value");
    bad("FROM base\nENV A=1 B\n", E_INVALID, "not name=value");
    bad("FROM base\nENV 1A=1\n", E_INVALID, "variable name");
    bad("FROM base\nENV A-B=1\n", E_INVALID, "variable name");
    bad("FROM base\nENV =1\n", E_INVALID, "variable name");
    bad("FROM base\nENV A='x\n", E_INVALID, "quote");
    bad("FROM base\nENV A=${B\n", E_INVALID, "${");
    bad("FROM base\nUSER\n", E_INVALID, "USER takes one");
    bad("FROM base\nUSER a b\n", E_INVALID, "USER takes one");
    bad("FROM base\nUSER a/b\n", E_INVALID, "not a user name");
    bad("FROM base\nUSER -x\n", E_INVALID, "not a user name");
    bad("FROM base\nWORKDIR\n", E_INVALID, "WORKDIR takes one");
    bad("FROM base\nWORKDIR a b\n", E_INVALID, "WORKDIR takes one");
}

TEST(recipe, bounds)
{
    auto_buf t = {0};
    buf_puts(&t, "FROM base\n");
    for (int i = 0; i < RECIPE_STEPS_MAX; i++)
        buf_puts(&t, "RUN true\n");
    struct recipe r = good(t.p);
    recipe_fini(&r);
    buf_puts(&t, "RUN true\n");
    bad(t.p, E_TOO_LARGE, "line 258: more than 256 steps");
    t.n = 0;
    buf_puts(&t, "FROM base\nRUN ");
    for (int i = 0; i < RECIPE_LINE_MAX / 7 + 1; i++)
        buf_puts(&t, "aaaaaaa\\\n\n");
    bad(t.p, E_TOO_LARGE, "line 2: instruction is longer");
    t.n = 0;
    buf_puts(&t, "FROM base\nENV");
    for (int i = 0; i < RECIPE_WORDS_MAX; i++)
        buf_printf(&t, " A%d=1", i);
    bad(t.p, E_TOO_LARGE, "words");
    t.n = 0;
    while (t.n <= RECIPE_BYTES_MAX)
        buf_puts(&t, "# comment comment comment comment comment\n");
    bad(t.p, E_TOO_LARGE, "larger than");
    struct err e = {0};
    CHECK_INT(recipe_parse("FROM base\0RUN x", 15, &r, &e), -1);
    bad("FROM base\nRUN \xff\n", E_INVALID, "UTF-8");
}

/* ---- expansion -------------------------------------------------------------------------------------------------- */

static const char *vars(void *arg, const char *name, size_t n)
{
    (void)arg;
    return n == 4 && !memcmp(name, "PATH", 4) ? "/bin" : n == 1 && *name == 'E' ? "" : n == 3 && !memcmp(name, "BIG", 3) ? arg : NULL;
}

static void expands(const char *line, const char *want)
{
    struct err e = {0};
    auto_buf text = {0}, out = {0};
    buf_printf(&text, "FROM base\nENV X=%s\n", line);
    struct recipe r = good(text.p);
    int rc = recipe_expand(r.step[0].word[1], vars, NULL, &out, &e);
    if (want)
        CHECK_STR(out.p, want);
    CHECK_INT(rc, want ? 0 : -1);
    recipe_fini(&r);
}

TEST(recipe, expands_words)
{
    expands("/opt:$PATH", "/opt:/bin");
    expands("${PATH}x", "/binx");
    expands("\"$PATH and $NOPE.\"", "/bin and .");
    expands("'$PATH'", "$PATH");
    expands("\\$PATH", "$PATH");
    expands("\"\\$PATH \\n\"", "$PATH \\n");
    expands("a\\\\b", "a\\b");
    expands("${NOPE:-def ault}", "def ault");
    expands("${E:-x}${E:+y}${PATH:+set}${PATH:-no}", "xset/bin");
    expands("${NOPE:-${PATH}}", "/bin");
    expands("$", "$");
    expands("$1", "$1");
    expands("${1}", NULL);
    expands("${PATH:?}", NULL);
    expands("${}", NULL);
    expands("${PATH%x}", NULL);
}

TEST(recipe, expansion_is_bounded)
{
    struct err e = {0};
    auto_buf big = {0}, word = {0}, out = {0};
    while (big.n < 4000)
        buf_puts(&big, "xxxxxxxxxxxxxxxxxxxx");
    for (int i = 0; i < 100; i++)
        buf_puts(&word, "$BIG");
    CHECK_INT(recipe_expand(word.p, vars, big.p, &out, &e), -1);
    CHECK_INT(e.code, E_TOO_LARGE);
    word.n = 0;
    for (int i = 0; i < 1000; i++)
        buf_puts(&word, "${A:-");
    for (int i = 0; i < 1000; i++)
        buf_putc(&word, '}');
    CHECK_INT(recipe_expand(word.p, vars, NULL, &out, &e), -1);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static int content(void *arg, size_t step, unsigned char out[RECIPE_KEY], struct err *e)
{
    (void)step;
    if (!arg)
        return err_set(e, E_NOT_FOUND, "no such file");
    memset(out, *(const char *)arg, RECIPE_KEY);
    return 0;
}

static void keys(const char *text, char files, unsigned char (*ret)[RECIPE_KEY])
{
    static const unsigned char base[RECIPE_KEY] = {1};
    struct err e = {0};
    struct recipe r = good(text);
    CHECK_INT(recipe_keys(&r, base, content, &files, ret, &e), 0);
    recipe_fini(&r);
}

TEST(recipe, keys_are_cumulative_and_canonical)
{
    unsigned char a[8][RECIPE_KEY], b[8][RECIPE_KEY];
    keys("FROM base\nRUN a\nCOPY x /y\nRUN b\n", 1, a);
    keys("# other\nFROM base\n\nrun a\nCOPY \"x\" '/y'\nRUN   b\n", 1, b);
    CHECK(!memcmp(a, b, 3 * RECIPE_KEY)); /* same meaning, same keys */
    keys("FROM base\nRUN a\nCOPY x /y\nRUN b\n", 2, b);
    CHECK(!memcmp(a[0], b[0], RECIPE_KEY) && memcmp(a[1], b[1], RECIPE_KEY) && memcmp(a[2], b[2], RECIPE_KEY)); /* other files */
    keys("FROM base\nRUN c\nCOPY x /y\nRUN b\n", 1, b);
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(a[i], b[i], RECIPE_KEY));
    /* words cannot be shifted into one another */
    keys("FROM base\nRUN [\"a\", \"bc\"]\n", 1, a);
    keys("FROM base\nRUN [\"ab\", \"c\"]\n", 1, b);
    CHECK(memcmp(a[0], b[0], RECIPE_KEY));
    keys("FROM base\nRUN [\"a\"]\n", 1, a);
    keys("FROM base\nRUN a\n", 1, b);
    CHECK(memcmp(a[0], b[0], RECIPE_KEY));
    keys("FROM base\nCOPY --chmod=755 x y\n", 1, a);
    keys("FROM base\nCOPY --chown=755 x y\n", 1, b);
    CHECK(memcmp(a[0], b[0], RECIPE_KEY));
}

TEST(recipe, keys_stop_when_files_are_missing)
{
    static const unsigned char base[RECIPE_KEY] = {1};
    unsigned char out[2][RECIPE_KEY];
    struct err e = {0};
    struct recipe r = good("FROM base\nRUN a\nCOPY x /y\n");
    CHECK_INT(recipe_keys(&r, base, content, NULL, out, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    recipe_fini(&r);
}

TEST_MAIN
