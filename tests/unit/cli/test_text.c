/* The parts without a server: options, escaping, tables, times, exit codes,
 * line splitting, completion. */
#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/cmds.h"
#include "cli/ndjson.h"
#include "cli/hint.h"
#include "cli/out.h"
#include "cli/stream.h"
#include "test.h"

static const struct opt o[] = {{"name", 'n', 's', "N", "", NULL}, {"env", 'e', 'l', "K=V", "", NULL}, {"force", 'f', 'f', NULL, "", NULL},
                               {"quiet", 'q', 'f', NULL, "", NULL}, {"wait", 0, 's', "S", "", NULL}, OPT_END};
static const struct cmd any = {.name = "any", .usage = "A…", .help = "", .opts = o, .max = -1};
static const struct cmd one = {.name = "one", .usage = "A…", .help = "", .opts = o, .max = -1, .stop_at = 1};
static const struct cmd two = {.name = "two", .usage = "ID CMD…", .help = "", .opts = o, .min = 2, .max = -1, .stop_at = 2};
static const struct cmd none = {.name = "none", .usage = "", .help = "", .min = 0, .max = 1};

static struct args a;
static struct err e;
static char *argv_copy[32];
static int parse_list(const struct cmd *c, const char *const *l)
{
    int n = 0;
    for (; l[n]; n++)
        argv_copy[n] = (char *)l[n];
    e = (struct err){0};
    return args_parse(c, n, argv_copy, &a, &e);
}
#define PARSE(c, ...) parse_list(&c, (const char *const[]){c.name, ##__VA_ARGS__, NULL})

TEST(args, shapes)
{
    CHECK(!PARSE(any, "--name", "x", "p1", "-fq", "--env=A=1", "-e", "B=2", "-eC=3", "-", "p2"));
    CHECK_STR(args_str(&a, "name", NULL), "x");
    CHECK(args_flag(&a, "force") && args_flag(&a, "quiet"));
    int i = 0;
    CHECK_STR(args_list(&a, "env", &i), "A=1");
    CHECK_STR(args_list(&a, "env", &i), "B=2");
    CHECK_STR(args_list(&a, "env", &i), "C=3");
    CHECK(!args_list(&a, "env", &i));
    CHECK_INT(a.n, 3);
    CHECK_STR(a.v[0], "p1");
    CHECK_STR(a.v[1], "-");
    CHECK_STR(a.v[2], "p2");
    CHECK(!PARSE(any, "--name", "x", "--name=y"));
    CHECK_STR(args_str(&a, "name", NULL), "y");
}

TEST(args, where_options_end)
{
    CHECK(!PARSE(one, "-f", "--", "cmd", "-f", "--name"));
    CHECK(a.dashdash);
    CHECK_INT(a.n, 3);
    CHECK_STR(a.v[1], "-f");
    CHECK(!PARSE(one, "-f", "script.py", "-x", "--", "--name"));
    CHECK(!a.dashdash);
    CHECK_INT(a.n, 4);
    CHECK_STR(a.v[2], "--");
    CHECK(!PARSE(two, "id", "--name", "u", "-f", "--", "ls", "-la"));
    CHECK_INT(a.n, 3);
    CHECK_STR(a.v[2], "-la");
    CHECK_STR(args_str(&a, "name", ""), "u");
    CHECK(!PARSE(two, "id", "ls", "-la"));
    CHECK_INT(a.n, 3);
    CHECK(!PARSE(any, "--", "--help"));
    CHECK(!a.help);
    CHECK_STR(a.v[0], "--help");
}

TEST(args, refusals)
{
    CHECK_INT(PARSE(any, "--nmae", "x"), -1);
    CHECK_INT(e.code, E_INVALID);
    CHECK_STR(e.msg, "unknown option --nmae; did you mean --name?");
    CHECK_INT(PARSE(any, "--zzzzzzzz"), -1);
    CHECK(!strstr(e.msg, "did you mean"));
    CHECK_INT(PARSE(any, "--\033[31m"), -1);
    CHECK(!strchr(e.msg, '\033'));
    CHECK_INT(PARSE(any, "-x"), -1);
    CHECK_INT(PARSE(any, "--name"), -1);
    CHECK_INT(PARSE(any, "-n"), -1);
    CHECK_INT(PARSE(any, "--force=1"), -1);
    CHECK_INT(PARSE(two, "id"), -1);
    CHECK_INT(PARSE(none, "a", "b"), -1);
    CHECK_INT(PARSE(none, "--hepl"), -1);
    CHECK(strstr(e.msg, "--help"));
    CHECK(!PARSE(two, "--help"));
    CHECK(a.help);
    CHECK(!PARSE(any, "-h"));
    CHECK(a.help);
    const char *many[300] = {"any"};
    for (int i = 1; i < 200; i++)
        many[i] = "-f";
    static char *copy[300];
    memcpy(copy, many, sizeof many);
    CHECK_INT(args_parse(&any, 200, copy, &a, &e), -1);
}

TEST(args, numbers)
{
    int64_t v = 0;
    CHECK(!PARSE(any, "--wait", "5m", "--name", "12"));
    CHECK(!args_seconds(&a, "wait", 1, 86400, 0, &v, &e) && v == 300);
    CHECK(!args_int(&a, "name", 1, 20, 0, &v, &e) && v == 12);
    CHECK_INT(args_int(&a, "name", 1, 10, 0, &v, &e), -1);
    CHECK_INT(args_seconds(&a, "wait", 1, 299, 0, &v, &e), -1);
    CHECK(!args_int(&a, "env", 1, 10, 7, &v, &e) && v == 7);
}

TEST(text, durations)
{
    static const struct { int64_t s; const char *t; } c[] = {{0, "0s"}, {59, "59s"}, {60, "1m"}, {298, "4m58s"}, {3600, "1h"}, {7500, "2h05m"}, {86400, "1d"}, {273600, "3d4h"}};
    char out[24];
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        dur_format(c[i].s * NS_PER_S, out);
        CHECK_STR(out, c[i].t);
    }
    dur_format(-1, out);
    CHECK_STR(out, "-");
    int64_t v = 0;
    CHECK(dur_parse("90", &v) && v == 90);
    CHECK(dur_parse("1h30m", &v) && v == 5400);
    CHECK(dur_parse("2d", &v) && v == 172800);
    CHECK(dur_parse("5m10s", &v) && v == 310);
    const char *bad[] = {"", "-1", "1.5", "m", "30m1h", "1h30", "1w", " 1", "99999999999999999999", "9999999999999999d", "1m1m"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!dur_parse(bad[i], &v));
}

TEST(text, bytes_and_times)
{
    char out[24];
    bytes_format(0, out);
    CHECK_STR(out, "0 B");
    bytes_format(1023, out);
    CHECK_STR(out, "1023 B");
    bytes_format(1536, out);
    CHECK_STR(out, "1.5 KiB");
    bytes_format(INT64_C(512) << 20, out);
    CHECK_STR(out, "512 MiB");
    bytes_format((INT64_C(1) << 30) - 1, out);
    CHECK_STR(out, "1.0 GiB");
    bytes_format(-1, out);
    CHECK_STR(out, "-");
    int64_t ns = 0;
    CHECK(time_parse(S("2026-01-02T03:04:05.678Z"), &ns));
    char back[32];
    clock_rfc3339(ns, back);
    CHECK_STR(back, "2026-01-02T03:04:05.678Z");
    CHECK(time_parse(S("1970-01-01T00:00:01Z"), &ns) && ns == NS_PER_S);
    CHECK(!time_parse(S("yesterday"), &ns));
    CHECK(!time_parse(S("2026-01-02T03:04:05+01:00"), &ns));
    CHECK(!time_parse((struct str){NULL, 0}, &ns));
}

static const char *esc(const char *s, size_t n)
{
    static char out[256];
    esc_text((struct str){s, n}, out, sizeof out);
    return out;
}
#define ESC(s) esc(s, sizeof(s) - 1)

TEST(text, hostile_bytes_are_escaped)
{
    CHECK_STR(ESC("plain \xc3\xa4 \xe6\xbc\xa2 \xf0\x9f\x98\x80"), "plain \xc3\xa4 \xe6\xbc\xa2 \xf0\x9f\x98\x80");
    CHECK_STR(ESC("\033[2Ja\nb\tc\rd\0e\x7f"), "\\x1b[2Ja\\nb\\tc\\rd\\x00e\\x7f");
    CHECK_STR(ESC("\xc2\x9b" "31m"), "\\u{9b}31m");            /* C1 CSI */
    CHECK_STR(ESC("\xe2\x80\xae" "txt"), "\\u{202e}txt");      /* right-to-left override */
    CHECK_STR(ESC("\xff\xc0\xaf\xed\xa0\x80\xe2\x82"), "\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xe2\\x82");
    CHECK_INT(text_width("a\xc3\xa4\xe6\xbc\xa2"), 4);
}

TEST(table, aligns_escapes_and_fills)
{
    static const char *const heads[] = {"NAME", ">SIZE", "LAST", NULL};
    struct table *t = table_new(heads);
    table_cell(t, ST_PLAIN, "a\033[31m");
    table_cellf(t, ST_PLAIN, "%d", 5);
    table_cell(t, ST_GOOD, "x");
    table_cell(t, ST_PLAIN, "\xe6\xbc\xa2");
    table_cell(t, ST_PLAIN, "12345");
    table_cell(t, ST_PLAIN, NULL);
    auto_buf b = {0};
    table_render(t, false, &b);
    CHECK_STR(b.p, "NAME        SIZE  LAST\n"
                   "a\\x1b[31m      5  x\n"
                   "\xe6\xbc\xa2         12345  -\n");
    b.n = 0;
    table_render(t, true, &b);
    CHECK(strstr(b.p, "\033[32mx\033[0m\n"));
    table_free(t);
}

static int status_of(const char *json)
{
    auto_json j = json_parse(json, strlen(json), NULL);
    CHECK(j);
    return exit_status(j, true);
}

TEST(exit, statuses)
{
    CHECK_INT(status_of("{\"kind\":\"exit\",\"code\":0}"), 0);
    CHECK_INT(status_of("{\"kind\":\"exit\",\"code\":3}"), 3);
    CHECK_INT(status_of("{\"kind\":\"signal\",\"signal\":15,\"name\":\"SIGTERM\"}"), 143);
    CHECK_INT(status_of("{\"kind\":\"oom\",\"signal\":9}"), 137);
    CHECK_INT(status_of("{\"kind\":\"timeout\",\"signal\":9,\"timeout_ms\":10}"), 124);
    CHECK(status_of("{\"kind\":\"abducted\"}") != 0);
    CHECK(exit_status(NULL, true) != 0); /* no status is no success */
}

TEST(exit, problems_map_to_codes)
{
    struct cli x = {0};
    const char *body = "{\"error\":{\"code\":\"conflict\",\"message\":\"name \\u001b[2J taken\",\"hint\":\"pick another\",\"request_id\":\"r1\"}}";
    api_problem(&x, 409, body, strlen(body));
    CHECK_INT(x.err.code, E_CONFLICT);
    CHECK_STR(x.err.msg, "name \\x1b[2J taken");
    CHECK_STR(x.hint, "pick another");
    CHECK_INT(err_exit(x.err.code), 73);
    api_problem(&x, 404, "<html>", 6);
    CHECK_INT(x.err.code, E_NOT_FOUND);
    api_problem(&x, 503, NULL, 0);
    CHECK_INT(x.err.code, E_UNAVAILABLE);
    api_problem(&x, 599, "{\"error\":7}", 11);
    CHECK_INT(x.err.code, E_INTERNAL);
}

TEST(lines, split_anywhere)
{
    const char text[] = "{\"a\":1}\n\r\n{\"b\":2}\r\nlast";
    for (size_t step = 1; step < sizeof text; step++) {
        struct splitter s = {0};
        struct str l;
        char got[128] = "";
        for (size_t i = 0; i < sizeof text - 1; i += step) {
            splitter_push(&s, text + i, i + step < sizeof text - 1 ? step : sizeof text - 1 - i);
            while (splitter_next(&s, &l)) {
                strncat(got, l.p, l.n);
                strcat(got, "|");
            }
        }
        CHECK_STR(got, "{\"a\":1}||{\"b\":2}|");
        CHECK_INT(splitter_rest(&s), 4);
        splitter_free(&s);
    }
}

TEST(url, encodes_arguments)
{
    char *t = url("/v1/sandboxes/{}/files?path={}", "a/../b", "/tmp/x y&z?\n");
    CHECK_STR(t, "/v1/sandboxes/a%2F..%2Fb/files?path=%2Ftmp%2Fx%20y%26z%3F%0A");
    url_arg(&t, "user", NULL);
    url_arg(&t, "env.A", "1=2");
    CHECK(strstr(t, "&env.A=1%3D2"));
    free(t);
}

/* Every verb: a name, a help line, options that do not collide. */
TEST(cmds, tables_are_sound)
{
    for (const struct cmd *const *c = cmds; *c; c++) {
        CHECK((*c)->name && (*c)->usage && (*c)->help && (*c)->help[0]);
        CHECK(!(*c)->exec == !!(*c)->sub);
        for (const struct cmd *const *d = c + 1; *d; d++)
            CHECK(strcmp((*c)->name, (*d)->name));
        for (const struct opt *p = (*c)->opts; p && p->name; p++) {
            CHECK(strchr("fsl", p->kind) && (p->kind == 'f') == !p->arg && p->help[0]);
            for (const struct opt *q = p + 1; q->name; q++)
                CHECK(strcmp(p->name, q->name) && (!p->letter || p->letter != q->letter));
        }
    }
}

TEST_MAIN

/* ---- hints ---- */
static const char *hint_of(enum err_why why, const char *target)
{
    static char out[256];
    out[0] = 0;
    if (cli_hint(why))
        cli_hint_fill(cli_hint(why), target, out, sizeof out);
    return out;
}
TEST(hint, names_commands_and_what_the_call_was_about)
{
    CHECK_STR(hint_of(REASON_FAILED, "/v1/sandboxes/victim/exec"),
              "`hutch recover victim` brings it back from its disk");
    CHECK_STR(hint_of(REASON_PAUSED, "/v1/sandboxes/a%20b?x=1"), "`hutch resume a b` first");
    CHECK_STR(hint_of(REASON_PAUSED, "/v1/sandboxes"), "`hutch resume ID` first");
    CHECK(strstr(hint_of(REASON_API_KEY, "/v1/sandboxes"), "HUTCH_API_KEY"));
    CHECK_STR(hint_of(REASON_BAD_VALUE, "/v1/sandboxes"), ""); /* was: GET /v1/openapi.json */
    CHECK(!strstr(hint_of(REASON_PROGRAM_MISSING, "/v1/sandboxes/b/exec"), "id or name"));
    CHECK(!strstr(hint_of(REASON_TEMPLATE_USED, "/v1/templates/t"), "force"));
    for (int w = REASON_NONE; w < REASON_MAX; w++) {
        const char *h = cli_hint((enum err_why)w);
        CHECK(!h || (!strstr(h, "/v1/") && !strstr(h, "GET ") && !strstr(h, "POST ")));
    }
}
TEST(hint, a_program_that_does_not_run_is_127_or_126)
{
    CHECK_INT(cli_exit_of(REASON_PROGRAM_MISSING), 127);
    CHECK_INT(cli_exit_of(REASON_PROGRAM_DENIED), 126);
    CHECK_INT(cli_exit_of(REASON_NO_SANDBOX), 0);
}

/* ---- help ---- */
static void parses(const struct cmd *c, const char *name, const char *line)
{
    char text[256], *word[32];
    int n = 0;
    (void)snprintf(text, sizeof text, "%s", line);
    char *cut = strpbrk(text, "<>|"); /* the shell's business */
    if (cut)
        *cut = 0;
    CHECK(!strncmp(text, name, strlen(name)));
    char *p = text + strlen(name) - strlen(c->name);
    while (*p && n < 31) { /* words, with single quotes */
        while (*p == ' ')
            p++;
        if (!*p)
            break;
        bool quoted = *p == '\'';
        word[n++] = p += quoted;
        p += strcspn(p, quoted ? "'" : " ");
        if (*p)
            *p++ = 0;
    }
    word[n] = NULL;
    struct args got;
    struct err why = {0};
    if (args_parse(c, n, word, &got, &why)) {
        fprintf(stderr, "%s: %s\n", line, why.msg);
        CHECK(0);
    }
}
static void has_examples(const struct cmd *const *list, const char *parent)
{
    for (; *list; list++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s%s", parent, (*list)->name);
        if ((*list)->sub) {
            strcat(name, " ");
            has_examples((*list)->sub, name);
            continue;
        }
        const char *const *ex = cmd_examples(name);
        if (!ex && (*list)->name[0] == '_')
            continue; /* for scripts */
        if (!ex)
            fprintf(stderr, "%s has no examples\n", name);
        CHECK(ex != NULL);
        for (int i = 0; i < 2; i++)
            parses(*list, name, ex[i]);
        auto_buf b = {0};
        cmd_help(*list, parent, &b);
        CHECK(strstr(b.p, "\nexamples:\n  hutch ") != NULL);
    }
}
TEST(help, every_verb_has_two_examples_that_parse) { has_examples(cmds, ""); }

TEST(help, a_guess_never_destroys)
{
    static const char *const words[] = {"pull",    "kil",  "killl", "dwon", "dow",
                                        "rollbak", "fill", "bill",  "skill"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *near = cmd_suggest(cmds, words[i]);
        CHECK(!near || (strcmp(near, "kill") && strcmp(near, "down") && strcmp(near, "rollback")));
    }
    CHECK_STR(cmd_suggest(cmds, "crate"), "create");
}
TEST(help, verbs_of_other_tools_have_an_answer)
{
    static const char *const words[] = {"stop",   "rm",     "pull",  "prune", "inspect",
                                        "stats",  "images", "build", "start", "restart",
                                        "attach", "commit", "rename"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        CHECK(cmd_foreign(words[i]) != NULL);
        CHECK(!cmd_find(cmds, words[i])); /* one that exists needs no excuse */
    }
    CHECK(!cmd_foreign("run"));
}

/* ---- numbers, widths ---- */
TEST(text, milliseconds)
{
    static const struct {
        double ms;
        const char *text;
    } rows[] = {{0.04, "0.0 ms"}, {3.21, "3.2 ms"},    {41.6, "42 ms"},
                {850, "850 ms"},  {22645.8, "22.6 s"}, {125000, "2m05s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[24];
        ms_format(rows[i].ms, out);
        CHECK_STR(out, rows[i].text);
    }
}
TEST(table, fits_the_terminal)
{
    static const char *const heads[] = {"ID", "WHERE", "REASON", NULL};
    struct table *t = table_new(heads);
    table_cell(t, ST_PLAIN, "i123456789012345678901");
    table_cell(t, ST_PLAIN, "a-very-long-host-name.with-many-parts.example.org:443");
    table_cell(t, ST_PLAIN, "n\303\266 rule of the policy allows this host");
    table_fit(t, 60);
    auto_buf b = {0};
    table_render(t, false, &b);
    for (const char *p = b.p, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
        char line[400];
        (void)snprintf(line, sizeof line, "%.*s", (int)(nl - p), p);
        CHECK(text_width(line) <= 60);
    }
    CHECK(strstr(b.p, "i123456789012345678901 ") && strstr(b.p, "…"));
    table_free(t);
}
