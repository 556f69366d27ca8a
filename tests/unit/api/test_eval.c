/* Code contexts over a fake core: the native form and E2B's. */
#include "fake.h"

#define EVAL "/v1/sandboxes/box/eval"
static const struct context_info info = {.id = "c1", .language = LANG_PYTHON, .cwd = "/home/user", .state = "idle", .is_default = true, .cells = 2};

static void event(struct kernel_event ev) { E.v->ops.event(E.v->arg, &ev); }
static void begin(void) { E.v->ops.started(E.v->arg, &info); }
static void out(bool err, const char *z) { event((struct kernel_event){.type = KE_OUT, .is_stderr = err, .text = str_of(z)}); }
static void done(struct eval_end end)
{
    struct eval *v = E.v;
    E.v = NULL;
    v->ops.done(v->arg, &end);
    free(v);
}
static void failed(const struct err *e)
{
    struct eval *v = E.v;
    E.v = NULL;
    v->ops.failed(v->arg, e);
    free(v);
}
static void result(bool main)
{
    static const struct mime m[] = {{S("text/plain"), S("'b\xc3\xa4r'"), false}, {S("application/json"), S("{\"a\":[1,null]}"), true}, {S("x/y"), S("z"), false}};
    event((struct kernel_event){.type = KE_RESULT, .is_main = main, .mime = m, .nmime = 3});
}
static void error(void)
{
    event((struct kernel_event){.type = KE_ERROR, .name = S("NameError"), .value = S("no x"), .traceback = S("line 1\nline 2")});
}

/* ---- native ---- */
TEST(eval, waits_and_collects)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EVAL, "{\"code\":\"1+1\",\"language\":\" JS \",\"env\":{\"A\":\"v\"},\"timeout_ms\":700}");
    CHECK_STR(E.code.p, "1+1");
    CHECK_STR(E.env.p, "v");
    CHECK_STR(E.context, "-");
    CHECK_INT(E.language, LANG_JAVASCRIPT);
    CHECK_INT(E.timeout_ms, 700);
    CHECK_INT(E.max_output, 1 << 20);
    begin();
    event((struct kernel_event){.type = KE_COUNT, .n = 5});
    out(false, "a"), out(true, "b"), out(false, "c\n");
    result(false), result(true);
    done((struct eval_end){.how = EVAL_OK});
    fx_until(x, "duration_ms");
    HAS(x, "{\"context\":\"c1\",\"language\":\"python\",\"execution_count\":5,\"stdout\":\"ac\\n\",\"stderr\":\"b\",\"results\":["
           "{\"main\":false,\"data\":{\"text/plain\":\"'b\xc3\xa4r'\",\"application/json\":{\"a\":[1,null]},\"x/y\":\"z\"}},{\"main\":true,");
    HAS(x, "\"error\":null,\"status\":\"ok\",\"state_lost\":false,\"truncated\":false");
    HAS(x, "\"problem\":null}");
    fx_free(x);
}
TEST(eval, tells_of_errors_cuts_and_lost_state)
{
    struct fx *x = fx_new();
    struct err e;
    fx_begin(x, "POST", EVAL, "{\"code\":\"x\",\"context\":\"c1\"}");
    CHECK_STR(E.context, "c1");
    begin();
    error();
    err_set(&e, E_TIMEOUT, "too long");
    done((struct eval_end){.how = EVAL_TIMEOUT, .state_lost = true, .cut_output = 9, .e = &e});
    fx_until(x, "\"problem\":{");
    HAS(x, "\"results\":[],\"error\":{\"name\":\"NameError\",\"value\":\"no x\",\"traceback\":\"line 1\\nline 2\"},\"status\":\"timeout\",\"state_lost\":true,"
           "\"truncated\":true,\"cut_output_bytes\":9");
    HAS(x, "\"problem\":{\"code\":\"timeout\",\"message\":\"too long\"");
    fx_free(x);
}
TEST(eval, streams_lines)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EVAL, "{\"code\":\"x\",\"stream\":true}");
    begin();
    fx_until(x, "{\"event\":\"started\",\"context\":\"c1\",\"language\":\"python\"}\n");
    out(true, "warn");
    fx_until(x, "{\"event\":\"stderr\",\"text\":\"warn\",\"at\":\"");
    result(true);
    error();
    fx_until(x, "{\"event\":\"error\",\"name\":\"NameError\"");
    done((struct eval_end){.how = EVAL_ERROR});
    fx_until(x, "{\"event\":\"end\",\"status\":\"error\"");
    fx_free(x);
}
TEST(eval, a_slow_reader_holds_the_cell_and_one_that_leaves_cancels_it)
{
    struct fx *x = fx_new();
    char *big = xmalloc(100001);
    memset(big, 'x', 100000);
    big[100000] = 0;
    fx_begin(x, "POST", EVAL, "{\"code\":\"x\",\"stream\":true}");
    begin();
    for (int i = 0; i < 40 && !E.held; i++)
        out(false, big);
    CHECK(E.held);
    for (int i = 0; i < 200 && E.held; i++)
        fx_read(x), fx_turn(x, 3);
    CHECK(!E.held);
    fx_close(x);
    CHECK_INT(E.cancels, 1);
    free(big);
    fx_free(x);
}
TEST(eval, refusals)
{
    static const char *const bad[] = {"{}", "{\"code\":1}", "{\"code\":\"x\",\"language\":\"cobol\"}", "{\"code\":\"x\",\"language\":\"r\",\"context\":\"c\"}",
                                      "{\"code\":\"x\",\"timeout_ms\":-1}", "{\"code\":\"x\",\"more\":1}", "{\"code\":\"x\",\"env\":{\"1a\":\"b\"}}"};
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", EVAL, bad[i]);
        HAS(x, "HTTP/1.1 400");
        HAS(x, "\"code\":\"invalid\"");
    }
    err_set(&F.refuse, E_GONE, "it ended");
    fx_ask(x, "POST", EVAL, "{\"code\":\"x\"}");
    HAS(x, "HTTP/1.1 410");
    struct err e;
    fx_begin(x, "POST", EVAL, "{\"code\":\"x\",\"language\":\"r\"}");
    err_set(&e, E_UNSUPPORTED, "no R here");
    failed(&e);
    fx_until(x, "template code-interpreter has all six languages");
    fx_free(x);
}
TEST(contexts, are_listed_made_and_changed)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/sandboxes/box/contexts", NULL);
    E.list_cb(E.arg, NULL, &info, 1);
    fx_until(x, "{\"contexts\":[{\"id\":\"c1\",\"language\":\"python\",\"cwd\":\"/home/user\",\"state\":\"idle\",\"default\":true,\"cells\":2}]}");
    fx_begin(x, "POST", "/v1/sandboxes/box/contexts", "{\"language\":\"bash\",\"cwd\":\"/tmp\"}");
    CHECK_INT(E.language, LANG_BASH);
    CHECK_STR(E.cwd, "/tmp");
    E.cb(E.arg, NULL, &info);
    fx_until(x, "HTTP/1.1 201");
    static const char *const verbs[][3] = {{"POST", "/restart", "restart"}, {"POST", "/interrupt", "interrupt"}, {"GET", "", "get"}, {"DELETE", "", "remove"}};
    for (int i = 0; i < 4; i++) {
        char path[80];
        snprintf(path, sizeof path, "/v1/sandboxes/box/contexts/c1%s", verbs[i][1]);
        fx_begin(x, verbs[i][0], path, NULL);
        CHECK_STR(E.verb, verbs[i][2]);
        CHECK_STR(E.id, "c1");
        E.cb(E.arg, NULL, i == 3 ? NULL : &info);
        fx_until(x, i == 3 ? "HTTP/1.1 204" : "\"id\":\"c1\"");
    }
    struct err e;
    fx_begin(x, "DELETE", "/v1/sandboxes/box/contexts/c9", NULL);
    err_set(&e, E_NOT_FOUND, "Context c9 not found");
    E.cb(E.arg, &e, NULL);
    fx_until(x, "/contexts lists them");
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}

/* ---- E2B ---- */
#define TOKEN "0011223344556677889900112233445566778899"
static void e2b(struct fx *x, const char *method, const char *path, const char *body)
{
    auto_buf b = {0};
    fx_open(x);
    snprintf(x->core.sb.token, sizeof x->core.sb.token, "%s", TOKEN);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49999\r\nX-Access-Token: " TOKEN "\r\n", method, path);
    if (body)
        buf_printf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    buf_printf(&b, "\r\n%s", body ? body : "");
    fx_send(x, b.p, b.n);
}
TEST(execute, sends_the_lines_the_sdks_read)
{
    struct fx *x = fx_new();
    e2b(x, "POST", "/execute", "{\"code\":\"x\",\"context_id\":null,\"language\":null,\"env_vars\":null}");
    CHECK_INT(E.language, LANG_PYTHON);
    begin();
    event((struct kernel_event){.type = KE_COUNT, .n = 3});
    out(false, "h\xc3\xa9\n");
    result(true);
    error(), error();
    done((struct eval_end){.how = EVAL_ERROR});
    fx_until(x, "{\"type\":\"end_of_execution\"}\n");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "{\"type\":\"number_of_executions\",\"execution_count\":3}\n");
    HAS(x, "{\"type\":\"stdout\",\"text\":\"h\\u00e9\\n\",\"timestamp\":\"20");
    HAS(x, "+00:00\"}\n");
    HAS(x, "{\"type\":\"result\",\"text\":\"b\\u00e4r\",\"json\":{\"a\":[1,null]},\"is_main_result\":true,\"extra\":{\"x/y\":\"z\"}}\n");
    HAS(x, "{\"type\":\"error\",\"name\":\"NameError\",\"value\":\"no x\",\"traceback\":\"line 1\\nline 2\"}\n");
    const char *first = strstr(x->in.p, "\"type\":\"error\"");
    CHECK(first && !strstr(first + 1, "\"type\":\"error\""));
    fx_free(x);
}
TEST(execute, lost_contexts_and_dead_sandboxes)
{
    struct fx *x = fx_new();
    struct err e;
    e2b(x, "POST", "/execute", "{\"code\":\"x\",\"context_id\":\"c1\"}");
    begin();
    err_set(&e, E_CANCELED, "the context was restarted");
    done((struct eval_end){.how = EVAL_LOST, .e = &e});
    fx_until(x, "{\"type\":\"error\",\"name\":\"ContextRestarting\",\"value\":\"the context was restarted\",\"traceback\":\"\"}\n");
    HAS(x, "{\"type\":\"end_of_execution\"}\n");
    e2b(x, "POST", "/execute", "{\"code\":\"x\"}");
    begin();
    x->core.sb.state = SB_GONE;
    err_set(&e, E_GONE, "it was killed");
    done((struct eval_end){.how = EVAL_LOST, .e = &e});
    fx_until(x, NULL); /* cut, without the last chunk */
    CHECK(!strstr(x->in.p, "end_of_execution") && !strstr(x->in.p, "\r\n0\r\n"));
    e2b(x, "POST", "/execute", "{\"code\":\"x\"}");
    fx_until(x, "The sandbox was not found");
    HAS(x, "HTTP/1.1 502");
    fx_free(x);
}
TEST(execute, refusals_are_text)
{
    struct fx *x = fx_new();
    struct err e;
    e2b(x, "POST", "/execute", "{\"code\":\"x\",\"context_id\":\"c\",\"language\":\"python\"}");
    fx_until(x, "Only one of context_id or language");
    HAS(x, "HTTP/1.1 400");
    HAS(x, "text/plain");
    e2b(x, "POST", "/execute", "{\"code\":\"x\",\"context_id\":\"nope\"}");
    err_set(&e, E_NOT_FOUND, "Context nope not found");
    failed(&e);
    fx_until(x, "\r\n\r\nContext nope not found");
    HAS(x, "HTTP/1.1 404");
    e2b(x, "POST", "/execute", "{\"code\":\"x\",\"language\":\"cobol\"}");
    fx_until(x, "No kernel for language 'cobol'");
    HAS(x, "HTTP/1.1 500");
    e2b(x, "POST", "/execute", "{\"code\":\"x\"}");
    fx_close(x);
    CHECK_INT(E.cancels, 1);
    fx_free(x);
}
TEST(e2b_contexts, as_the_sdks_ask)
{
    struct fx *x = fx_new();
    struct err e;
    e2b(x, "GET", "/health", NULL);
    fx_until(x, "\r\n\r\n\"OK\"");
    e2b(x, "POST", "/contexts", "{\"language\":\"ts\",\"cwd\":\"/tmp\"}");
    CHECK_INT(E.language, LANG_TYPESCRIPT);
    CHECK_STR(E.cwd, "/tmp");
    E.cb(E.arg, NULL, &info);
    fx_until(x, "\r\n\r\n{\"id\":\"c1\",\"language\":\"python\",\"cwd\":\"/home/user\"}");
    e2b(x, "POST", "/contexts", "{}");
    err_set(&e, E_NOT_FOUND, "cwd does not exist");
    E.cb(E.arg, &e, NULL);
    fx_until(x, "cwd does not exist");
    HAS(x, "HTTP/1.1 500");
    e2b(x, "GET", "/contexts", NULL);
    E.list_cb(E.arg, NULL, &info, 1);
    fx_until(x, "\r\n\r\n[{\"id\":\"c1\"");
    e2b(x, "POST", "/contexts/c1/restart", NULL);
    CHECK_STR(E.verb, "restart");
    E.cb(E.arg, NULL, &info);
    fx_until(x, "\r\n\r\nnull");
    e2b(x, "DELETE", "/contexts/c1?source=x", NULL);
    CHECK_STR(E.verb, "remove");
    err_set(&e, E_NOT_FOUND, "Context c1 not found");
    E.cb(E.arg, &e, NULL);
    fx_until(x, "\r\n\r\nContext c1 not found");
    e2b(x, "GET", "/nothing", NULL);
    fx_until(x, "HTTP/1.1 404");
    fx_free(x);
}
TEST_MAIN
