/* POST /v1/eval over a fake core: what is asked, what is answered, who is stopped. */
#include "fake.h"

#define EVAL "/v1/eval"
static void answer(const struct isolate_result *r, const struct err *e) { F.eval.done(F.eval.arg, r, e); }
static struct isolate_result base(void)
{
    return (struct isolate_result){.end = ISOLATE_VALUE, .out = S("hi\n"), .err = S(""), .value = S("{\"a\":265252859812191058636308480000000}"), .language = "python",
                                   .template = "base", .message = "", .wall_ns = 1540000, .cpu_ns = 2000000, .memory_bytes = 4096};
}
static void eval_free(void) { buf_free(&F.eval.code), buf_free(&F.eval.input), buf_free(&F.eval.language), buf_free(&F.eval.template), buf_free(&F.eval.function); }

TEST(eval, passes_everything_on)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"print(1)\\n2\",\"input\":{\"k\":[1,null,\"\xc3\xa9\"]},\"function\":\"main\",\"template\":\"base\",\"timeout_ms\":100,"
                              "\"cpu_ms\":50,\"memory_mib\":64,\"max_output\":10}");
    CHECK_STR(F.eval.language.p, "python");
    CHECK_STR(F.eval.code.p, "print(1)\n2");
    CHECK_STR(F.eval.input.p, "{\"k\":[1,null,\"\xc3\xa9\"]}");
    CHECK_STR(F.eval.function.p, "main");
    CHECK_STR(F.eval.template.p, "base");
    CHECK_INT(F.eval.spec.timeout_ms, 100);
    CHECK_INT(F.eval.spec.cpu_ms, 50);
    CHECK_INT(F.eval.spec.memory_mib, 64);
    CHECK_INT(F.eval.spec.max_output, 10);
    struct isolate_result r = base();
    answer(&r, NULL);
    fx_until(x, "duration_ms");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "{\"value\":{\"a\":265252859812191058636308480000000},\"stdout\":\"hi\\n\",\"stderr\":\"\",\"error\":null,\"exit_code\":0,\"signal\":null,\"language\":\"python\",");
    HAS(x, "\"isolation\":{\"tier\":\"isolate\",\"boundary\":\"shared host kernel: ");
    HAS(x, "\"accel\":\"none\"},\"usage\":{\"wall_ms\":1.5,\"cpu_ms\":2.0,\"memory_bytes\":4096}");
    CHECK_INT(F.eval.cancels, 0);
    eval_free();
    fx_free(x);
}

/* What a program may return, the next may be given: any size of integer, 200 levels, \u0000; and as it was written. */
TEST(eval, the_input_is_passed_on_as_text)
{
    struct fx *x = fx_new();
    static const char *const inputs[] = {"265252859812191058636308480000000", "1e400", "\"a\\u0000b\"", "\"\\ud800\"", "[ 1.50 , -0 ]", "{\"a\":{\"input\":1}}", "null", "\"}\"",
                                         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        char body[512];
        (void)snprintf(body, sizeof body, "{\"language\":\"js\", \"input\" : %s ,\"code\":\"\\\"input\\\":7\"}", inputs[i]);
        eval_free();
        fx_begin(x, "POST", EVAL, body);
        CHECK_STR(F.eval.input.p, inputs[i]);
        CHECK_STR(F.eval.code.p, "\"input\":7");
        struct isolate_result r = base();
        answer(&r, NULL);
        fx_until(x, "duration_ms");
    }
    eval_free();
    fx_begin(x, "POST", EVAL, "{\"language\":\"js\",\"code\":\"\",\"in\\u0070ut\":[1]}"); /* a name written with escapes is that name */
    CHECK_STR(F.eval.input.p, "[1]");
    struct isolate_result r = base();
    answer(&r, NULL);
    fx_until(x, "duration_ms");
    static const char *const bad[] = {"{\"language\":\"js\",\"code\":\"\",\"input\":1,\"input\":2}", "{\"language\":\"js\",\"code\":\"\",\"input\":[1}",
                                      "{\"language\":\"js\",\"code\":\"\",\"input\":\"\xff\"}", "{\"language\":\"js\",\"code\":\"\",\"input\":}", "{\"input\":1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_begin(x, "POST", EVAL, bad[i]);
        fx_until(x, "\"code\":\"invalid\"");
    }
    eval_free();
    fx_free(x);
}

TEST(eval, defaults_and_absent_members)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EVAL, "{\"language\":\"js\",\"code\":\"\"}");
    CHECK(!F.eval.spec.template && !F.eval.spec.function && !F.eval.spec.input.n);
    CHECK(!F.eval.spec.timeout_ms && !F.eval.spec.cpu_ms && !F.eval.spec.memory_mib && !F.eval.spec.max_output);
    struct isolate_result r = base();
    r.value = S("null");
    answer(&r, NULL);
    fx_until(x, "\"value\":null");
    eval_free();
    fx_free(x);
}

TEST(eval, failures_of_the_program)
{
    struct fx *x = fx_new();
    struct isolate_result r = base();
    r.end = ISOLATE_FORBIDDEN, r.value = S("null"), r.message = "no", r.syscall = "openat", r.signal = 31, r.exit_code = -1;
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    answer(&r, NULL);
    fx_until(x, "duration_ms");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "\"error\":{\"code\":\"forbidden\",\"message\":\"no\",\"hint\":");
    HAS(x, "\"syscall\":\"openat\"},\"exit_code\":null,\"signal\":31,");
    r = base();
    r.end = ISOLATE_EXCEPTION, r.message = "boo", r.type = "ValueError", r.traceback = "at 1", r.exit_code = 1;
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    answer(&r, NULL);
    fx_until(x, "\"error\":{\"code\":\"exception\",\"message\":\"boo\",\"type\":\"ValueError\",\"traceback\":\"at 1\"},\"exit_code\":1,\"signal\":null");
    eval_free();
    fx_free(x);
}

TEST(eval, bytes_that_are_no_text)
{
    struct fx *x = fx_new();
    struct isolate_result r = base();
    r.out = S("\xff\xfe");
    r.err = S("half \xc3"); /* cut inside a character */
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    answer(&r, NULL);
    fx_until(x, "\"stdout_base64\":\"//4=\",\"stderr\":\"half \",");
    eval_free();
    fx_free(x);
}

TEST(eval, refusals)
{
    static const struct { const char *body, *says; } k[] = {
        {"{\"language\":\"python\"}", "code: missing"},
        {"{\"code\":\"1\"}", "language: missing"},
        {"{\"language\":\"perl\",\"code\":\"1\"}", "python, js, php or ruby"},
        {"{\"language\":\"python\",\"code\":1}", "code"},
        {"{\"language\":\"python\",\"code\":\"1\",\"function\":\"a b\"}", "function"},
        {"{\"language\":\"python\",\"code\":\"1\",\"function\":\"1a\"}", "function"},
        {"{\"language\":\"python\",\"code\":\"1\",\"timeout_ms\":0}", "timeout_ms"},
        {"{\"language\":\"python\",\"code\":\"1\",\"timeout_ms\":300001}", "timeout_ms"},
        {"{\"language\":\"python\",\"code\":\"1\",\"memory_mib\":15}", "memory_mib"},
        {"{\"language\":\"python\",\"code\":\"1\",\"max_output\":4194305}", "max_output"},
        {"{\"language\":\"python\",\"code\":\"1\",\"template\":\"../x\"}", "template"},
        {"{\"language\":\"python\",\"code\":\"1\",\"env\":{}}", "env"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        fx_begin(x, "POST", EVAL, k[i].body);
        fx_until(x, "request_id");
        HAS(x, "HTTP/1.1 400");
        HAS(x, "\"code\":\"invalid\"");
        HAS(x, k[i].says);
    }
    err_set(&F.refuse, E_RATE, "busy");
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    fx_until(x, "HUTCH_ISOLATE_CALLS");
    HAS(x, "HTTP/1.1 429");
    fx_free(x);
}

TEST(eval, a_jail_that_cannot_be)
{
    struct fx *x = fx_new();
    struct err e;
    err_set(&e, E_UNSUPPORTED, "template 'base': this template has no php");
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    answer(NULL, &e);
    fx_until(x, "isolate_language");
    HAS(x, "\"code\":\"unsupported\"");
    eval_free();
    fx_free(x);
}

TEST(eval, a_client_that_leaves_stops_it)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", EVAL, "{\"language\":\"python\",\"code\":\"1\"}");
    CHECK_INT(F.eval.cancels, 0);
    fx_close(x);
    CHECK_INT(F.eval.cancels, 1);
    eval_free();
    fx_free(x);
}

TEST_MAIN
