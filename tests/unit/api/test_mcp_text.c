/* What MCP is made of and needs no daemon: messages, output as text, arguments against schemas. */
#include "api/mcp/args.h"
#include "api/mcp/rpc.h"
#include "api/mcp/text.h"
#include "api/mcp/tools_text.h"
#include "base/buf.h"
#include "test.h"

/* ---- messages ---- */
static int read_kind(const char *text)
{
    struct err e;
    struct rpc r;
    auto_json j = json_parse(text, strlen(text), &e);
    CHECK(j);
    return rpc_read(j, &r, &e) ? -1 : (int)r.kind;
}

TEST(rpc, tells_messages_apart)
{
    CHECK_INT(read_kind("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"), RPC_REQUEST);
    CHECK_INT(read_kind("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"x\",\"params\":{}}"),
              RPC_REQUEST);
    CHECK_INT(read_kind("{\"jsonrpc\":\"2.0\",\"method\":\"x\"}"), RPC_NOTIFICATION);
    CHECK_INT(read_kind("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"), RPC_RESPONSE);
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"x\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[]}",
        "{\"jsonrpc\":\"2.0\",\"id\":1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(read_kind(bad[i]), -1);
}

TEST(rpc, decodes_header_values)
{
    auto_buf b = {0};
    CHECK(rpc_header_value(S(" run_code "), &b));
    CHECK_STR(b.p, "run_code");
    b.n = 0;
    CHECK(rpc_header_value(S("=?base64?w6k=?="), &b));
    CHECK_STR(b.p, "é");
    b.n = 0;
    CHECK(!rpc_header_value(S("=?base64?*?="), &b));
}

/* ---- output ---- */
static void clean_is(const char *raw, const char *want)
{
    auto_buf b = {0};
    text_clean(str_of(raw), &b);
    buf_putc(&b, 0);
    CHECK_STR(b.p, want);
}

TEST(text, is_without_terminal_control)
{
    clean_is("plain\n", "plain\n");
    clean_is("\033[1;31mred\033[0m", "red");
    clean_is("\033]0;title\007x\033]8;;u\033\\y", "xy");
    clean_is("10%\r50%\r100%\n", "100%\n");
    clean_is("a\r\nb\r\n", "a\nb\n");
    clean_is("ab\bc", "ac");
    clean_is("a\377b\303(", "a\xef\xbf\xbd"
                            "b\xef\xbf\xbd(");
    clean_is("\033", "");
    clean_is("\033[", "");
    clean_is("t\tx\001y", "t\txy");
}

TEST(text, is_cut_in_the_middle)
{
    struct pane p = {0};
    auto_buf out = {0};
    pane_add(&p, "short\n", 6);
    CHECK(!pane_render(&p, 100, "", &out));
    CHECK_STR(out.p, "short\n");
    pane_clear(&p);
    for (int i = 0; i < 100000; i++) {
        char line[16];
        int n = snprintf(line, sizeof line, "%d\n", i);
        pane_add(&p, line, (size_t)n);
    }
    out.n = 0;
    CHECK(pane_render(&p, 4000, "/log", &out));
    CHECK(!strncmp(out.p, "0\n1\n2\n", 6) && strstr(out.p, "\n99999\n") && out.n < 4200);
    CHECK(strstr(out.p, " bytes omitted; full: /log\n"));
    struct str last = pane_last_line(&p);
    CHECK(str_eqz(last, "99999"));
    pane_free(&p);
}

TEST(text, globs)
{
    CHECK(text_glob("*.py", "a/b.py") && !text_glob("*.py", "b.pyc"));
    CHECK(text_glob("**/*.py", "a/b/c.py") && text_glob("**/*.py", "c.py"));
    CHECK(text_glob("src/*.c", "src/a.c") && !text_glob("src/*.c", "src/b/a.c"));
    CHECK(text_glob("src/**", "src/b/a.c") && text_glob("[a-c]?.x", "b1.x"));
    CHECK(!text_glob("[!a]x", "ax") && text_glob("[", "[") && !text_glob("a*b*c", "axbx"));
    CHECK(!text_glob("[!", "["));
    /* many stars end, whatever they would find */
    CHECK(!text_glob("*a*a*a*a*a*a*a*a*a*a*a*a*b",
                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

TEST(text, diffs)
{
    auto_buf out = {0};
    text_diff(S("/f"), S("a\nb\nc\n"), S("a\nB\nc\n"), &out);
    CHECK_STR(out.p, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    out.n = 0;
    text_diff(S("f"), S("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"),
              S("1\nX\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12"), &out);
    CHECK(strstr(out.p, "@@ -1,5 +1,5 @@\n") && strstr(out.p, "@@ -9,4 +9,4 @@\n"));
    CHECK(strstr(out.p, "-12\n+12\n\\ No newline at end of file\n"));
    out.n = 0;
    text_diff(S("f"), S(""), S("new\n"), &out);
    CHECK(strstr(out.p, "@@ -0,0 +1,1 @@\n+new\n"));
}

TEST(text, knows_types)
{
    CHECK_STR(text_mime("a.md", S("# t")), "text/markdown");
    CHECK_STR(text_mime("a.png", S("\x89PNG\r\n\x1a\n")), "image/png");
    CHECK_STR(text_mime("a.png", S("no picture")), "text/plain");
    CHECK_STR(text_mime("x", S("\0\0")), "application/octet-stream");
    CHECK_STR(text_mime("x", S("")), "text/plain");
}

/* ---- arguments ---- */
static const char *says(const char *tool, const char *arguments)
{
    static struct err e;
    auto_json all = json_parse_obj(mcp_tools_text, strlen(mcp_tools_text), &e);
    auto_json args = json_parse(arguments, strlen(arguments), &e);
    struct json *list = json_get(all, "tools");
    struct str name;
    CHECK(all && args);
    for (size_t i = 0; i < json_len(list); i++)
        if (!json_str(json_at(list, i), "name", &name, true, NULL) && str_eqz(name, tool))
            return args_check(json_get(json_at(list, i), "inputSchema"), args, &e) ? e.msg : "ok";
    return "no such tool";
}

TEST(args, are_held_against_the_schema)
{
    CHECK_STR(says("run_command",
                   "{\"command\":\"x\",\"wait_s\":0.5,\"env\":{\"A\":\"b\"},\"cwd\":null}"),
              "ok");
    CHECK_STR(says("run_command", "{}"), "command: missing");
    CHECK_STR(says("run_command", "{\"comand\":\"x\"}"),
              "comand: unknown argument; did you mean 'command'?");
    CHECK_STR(says("run_command", "{\"command\":7}"), "command: must be a string");
    CHECK_STR(says("run_command", "{\"command\":\"x\",\"wait_s\":301}"),
              "wait_s: 301 is above the maximum, 300");
    CHECK_STR(says("run_command", "{\"command\":\"x\",\"env\":{\"A\":1}}"),
              "env.A: must be a string");
    CHECK(strstr(says("run_code", "{\"code\":\"\",\"language\":\"perl\"}"),
                 "'perl' is not one of python, javascript"));
    CHECK_STR(says("edit_file", "{\"path\":\"a\",\"edits\":[]}"), "edits: at least 1 needed");
    CHECK_STR(says("edit_file", "{\"path\":\"a\",\"edits\":[{\"old\":\"x\"}]}"),
              "edits[0].new: missing");
    CHECK_STR(says("read_file", "{\"path\":\"a\",\"start_line\":1.5}"),
              "start_line: must be an integer");
    CHECK_STR(says("read_file", "{\"path\":\"a\",\"start_line\":2.0}"), "ok");
}

TEST_MAIN
