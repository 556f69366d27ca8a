/* MCP over the fake core: the handshake, sessions, a command from its start to its report, and what
 * leaving means in either era. */
#include "fake.h"

#define RPC "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
#define HELLO \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":" \
    "\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}"
#define MODERN \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"," \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"

static void post(struct fx *x, const char *headers, const char *body)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b,
               "POST /mcp?tools=full HTTP/1.1\r\nHost: localhost\r\n" RPC
               "%sContent-Length: %zu\r\n\r\n%s",
               headers, strlen(body), body);
    fx_send(x, b.p, b.n);
}
static void answer(struct fx *x, const char *headers, const char *body)
{
    post(x, headers, body);
    fx_until(x, "\r\n\r\n");
    fx_turn(x, 5);
    fx_read(x);
}
/* "Mcp-Session-Id: …\r\n" of a new session. */
static void begin(struct fx *x, char out[256])
{
    answer(x, "", HELLO);
    HAS(x, "200 OK");
    HAS(x, "\"protocolVersion\":\"2025-11-25\"");
    const char *at = strstr(x->in.p, "Mcp-Session-Id: h1.");
    CHECK(at);
    snprintf(out, 256, "%.*s\r\n", (int)strcspn(at, "\r"), at);
}

TEST(session, is_sealed_and_ends)
{
    struct fx *x = fx_new();
    char head[256], forged[256];
    begin(x, head);
    answer(x, head, "{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"method\":\"ping\"}");
    HAS(x, "{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{}}");
    answer(x, "", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");
    HAS(x, "400 Bad Request");
    snprintf(forged, sizeof forged, "%s", head);
    forged[40] = forged[40] == 'A' ? 'B' : 'A';
    answer(x, forged, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");
    HAS(x, "404 Not Found");
    fx_open(x);
    auto_buf b = {0};
    buf_printf(&b, "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n%s\r\n", head);
    fx_send(x, b.p, b.n);
    fx_until(x, "200 OK");
    answer(x, head, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");
    HAS(x, "404 Not Found");
    fx_free(x);
}

#define CALL(id, args) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id \
    ",\"method\":\"tools/call\",\"params\":{\"name\":\"run_command\"," \
    "\"arguments\":" args "}}"

TEST(command, is_run_and_reported)
{
    struct fx *x = fx_new();
    char head[256];
    begin(x, head);
    post(x, head,
         CALL("1", "{\"sandbox\":\"box\",\"command\":\"make\",\"cwd\":\"/w\",\"timeout_s\":2}"));
    fx_turn(x, 5);
    CHECK(F.x);
    CHECK_STR(F.argv.p, "/bin/bash|-c|make|");
    CHECK_STR(F.cwd.p, "/w");
    CHECK_INT(F.timeout_ms, 2000);
    CHECK(!F.stdin_pipe && !strncmp(F.tag.p, "p_", 2));
    F.x->ops.started(F.x->arg, 77, 0);
    F.x->ops.output(F.x->arg, CH_STDOUT, (const unsigned char *)"built\n", 6);
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_CODE, .code = 2}, 6);
    fake_done(NULL);
    fx_until(x, "structuredContent");
    fx_turn(x, 5);
    fx_read(x);
    HAS(x, "Content-Type: application/json");
    HAS(x,
        "\"status\":\"exited\",\"exit_code\":2,\"stdout\":\"built\\n\",\"stderr\":\"\",\"truncated\":false");
    CHECK_INT(F.consumed, 6);
    answer(x, head, CALL("2", "{\"sandbox\":\"nobody\",\"command\":\"x\"}"));
    HAS(x, "\"isError\":true");
    answer(x, head, CALL("3", "{\"sandbox\":\"box\"}"));
    HAS(x, "command: missing");
    fx_free(x);
}

TEST(command, is_cancelled_by_a_notification)
{
    struct fx *x = fx_new();
    char head[256];
    begin(x, head);
    post(x, head, CALL("\"c\"", "{\"sandbox\":\"box\",\"command\":\"sleep 60\"}"));
    fx_turn(x, 5);
    F.x->ops.started(F.x->arg, 77, 0);
    answer(
        x, head,
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"c\"}}");
    HAS(x, "202 Accepted");
    CHECK_INT(F.unary.signo, 15);
    CHECK(F.unary.group);
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_SIGNAL, .code = 15}, 0);
    fake_done(NULL);
    fx_free(x);
}

TEST(modern, checks_headers_and_leaving_cancels)
{
    struct fx *x = fx_new();
    answer(x, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: ping\r\n",
           "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" MODERN "}}");
    HAS(x, "400 Bad Request");
    HAS(x, "\"code\":-32020");
    answer(x, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: ping\r\n",
           "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{" MODERN "}}");
    HAS(x, "404 Not Found");
    HAS(x, "\"code\":-32601");
    answer(x, "MCP-Protocol-Version: 2026-07-28\r\n",
           "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}");
    HAS(x, "\"code\":-32602");
    post(
        x,
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: run_command\r\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"run_command\","
        "\"arguments\":{\"sandbox\":\"box\",\"command\":\"sleep 60\"}," MODERN "}}");
    fx_turn(x, 5);
    CHECK(F.x);
    F.unary.signo = 0;
    F.x->ops.started(F.x->arg, 78, 0);
    close(x->fd);
    x->fd = -1;
    fx_turn(x, 10);
    CHECK_INT(F.unary.signo, 15);
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_SIGNAL, .code = 15}, 0);
    fake_done(NULL);
    fx_free(x);
}

TEST_MAIN
