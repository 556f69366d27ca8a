/* What became of a call: the verdict over what the kernel and the warden reported. */
#include "base/sysnr.h"
#include "core/isolate/isolate.h"
#include "test.h"
#include "wire/isolate.h"
#include "wire/zygote.h"

#define SIGNALED(n) (n)
#define EXITED(n)   ((n) << 8)
#define MIB         (1ull << 20)

static struct isolate_verdict V;
static struct isolate_facts facts(int status, const char *result)
{
    return (struct isolate_facts){.status = status, .cpu_ms = 1000, .timeout_ms = 5000, .memory_mib = 128, .result = str_of(result)};
}
static enum isolate_end judge(struct isolate_facts f)
{
    struct err e;
    CHECK_INT(isolate_judge(&f, &V, &e), 0);
    CHECK(V.end == ISOLATE_VALUE || *V.message);
    return V.end;
}
static struct isolate_facts trap(char *room, const char *call, uint64_t third)
{
    struct zy_trap t = {.magic = ZY_TRAP_MAGIC, .nr = (uint32_t)sysnr(call), .arg = {0, 0, third}};
    struct isolate_facts f = facts(SIGNALED(SIGSYS), "L");
    memcpy(room, "LV1", 3); /* what came before it does not count any more */
    memcpy(room + 3, &t, sizeof t);
    f.result = (struct str){room, 3 + sizeof t};
    return f;
}

TEST(judge, values)
{
    CHECK_INT(judge(facts(EXITED(0), "LV[1,2]")), ISOLATE_VALUE);
    CHECK(V.value && V.detail.n == 5 && !memcmp(V.detail.p, "[1,2]", 5));
    CHECK_INT(judge(facts(EXITED(0), "L")), ISOLATE_VALUE); /* it left by itself, and well */
    CHECK(!V.value && !V.detail.n);
    CHECK_INT(judge(facts(EXITED(3), "L")), ISOLATE_EXIT);
    CHECK_INT(judge(facts(EXITED(3), "LV1")), ISOLATE_EXIT); /* a value and a failure: the status is what wait said */
    CHECK(!V.value);
}

TEST(judge, errors_of_the_program)
{
    CHECK_INT(judge(facts(EXITED(1), "LE{\"kind\":\"exception\"}")), ISOLATE_EXCEPTION);
    CHECK_INT(V.detail.n, 20);
    CHECK_INT(judge(facts(EXITED(0), "LE{}")), ISOLATE_EXCEPTION);
}

/* Messages hold what programs put into them; one such character must not cost the caller the rest. */
TEST(judge, messages_are_mended)
{
    static const struct { const char *in, *out; } k[] = {
        {"{\"m\":\"a\\u0000b\"}", "{\"m\":\"a\\ufffdb\"}"}, {"\"\\ud83e\\udd80\"", "\"\\ud83e\\udd80\""}, {"\"\\uD83E\\uDD80\\uDD80\"", "\"\\uD83E\\uDD80\\ufffd\""},
        {"\"\\ud800\\ud800\\udc00\"", "\"\\ufffd\\ud800\\udc00\""}, {"\"\\ud800x\"", "\"\\ufffdx\""}, {"\"\\\\u0000\"", "\"\\\\u0000\""}, {"\"\\\\\\u0000\"", "\"\\\\\\ufffd\""},
        {"\"\\u00e9\\n\"", "\"\\u00e9\\n\""}, {"\\", "\\"}, {"\\u", "\\u"}, {"\\u000", "\\u000"}, {"\\ud800\\", "\\ufffd\\"}, {"\\u00g0", "\\u00g0"}, {"", ""},
    };
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        char *t = strdup(k[i].in); /* of its exact size, for the sanitizer */
        isolate_mend(t, strlen(t));
        CHECK_STR(t, k[i].out);
        free(t);
    }
}

/* PHP cannot get memory and leaves with a status; that is no exit of the program's own. */
TEST(judge, php_without_memory)
{
    struct isolate_facts f = facts(EXITED(1), "L");
    f.err = S("\nmmap() failed: [12] Cannot allocate memory\nOut of memory\n");
    CHECK_INT(judge(f), ISOLATE_MEMORY);
    f.err = S("out of memory, says the program\n");
    CHECK_INT(judge(f), ISOLATE_EXIT);
}

TEST(judge, cut_wins_over_everything)
{
    static const struct { unsigned cut; enum isolate_end end; } k[] = {
        {ISO_CUT_WALL, ISOLATE_TIMEOUT}, {ISO_CUT_CPU, ISOLATE_CPU}, {ISO_CUT_OUTPUT, ISOLATE_OUTPUT_LIMIT}, {ISO_CUT_RESULT, ISOLATE_OUTPUT_LIMIT}};
    for (size_t i = 0; i < 4; i++) {
        struct isolate_facts f = facts(SIGNALED(SIGKILL), "LV1");
        f.cut = k[i].cut;
        CHECK_INT(judge(f), k[i].end);
        f.result.n = 0; /* too early to have said anything */
        CHECK_INT(judge(f), k[i].end);
    }
}

TEST(judge, forbidden_calls_are_named)
{
    char room[64];
    CHECK_INT(judge(trap(room, "openat", 0)), ISOLATE_FORBIDDEN);
    CHECK_STR(V.syscall, "openat");
    CHECK_INT(judge(trap(room, "tgkill", SIGTERM)), ISOLATE_FORBIDDEN);
    CHECK_STR(V.syscall, "tgkill");
    struct isolate_facts f = trap(room, "openat", 0);
    f.result.n = 5; /* no record: a call of another architecture, say */
    CHECK_INT(judge(f), ISOLATE_FORBIDDEN);
    CHECK_STR(V.syscall, "");
    f = trap(room, "read", 0);
    struct zy_trap t;
    memcpy(&t, room + 3, sizeof t);
    t.nr = 100000;
    memcpy(room + 3, &t, sizeof t);
    CHECK_INT(judge(f), ISOLATE_FORBIDDEN);
    CHECK_STR(V.syscall, "100000");
}

TEST(judge, memory)
{
    struct isolate_facts f = facts(SIGNALED(SIGABRT), "L");
    CHECK_INT(judge(f), ISOLATE_CRASHED);
    f.rss = 100 * MIB;
    CHECK_INT(judge(f), ISOLATE_MEMORY);
    f = facts(SIGNALED(SIGSEGV), "L");
    f.err = S("FATAL ERROR: JavaScript heap out of memory\n");
    CHECK_INT(judge(f), ISOLATE_MEMORY);
    f = facts(SIGNALED(SIGKILL), "L"); /* not by us: the kernel */
    CHECK_INT(judge(f), ISOLATE_MEMORY);
    char room[64];
    f = trap(room, "tgkill", SIGABRT); /* abort(3) asks for its own end */
    CHECK_INT(judge(f), ISOLATE_CRASHED);
    f.rss = 127 * MIB;
    CHECK_INT(judge(f), ISOLATE_MEMORY);
}

TEST(judge, processor_time)
{
    CHECK_INT(judge(facts(SIGNALED(SIGXCPU), "L")), ISOLATE_CPU);
    struct isolate_facts f = facts(SIGNALED(SIGKILL), "L");
    f.cpu_ns = 1000 * 1000000ll;
    CHECK_INT(judge(f), ISOLATE_CPU);
}

TEST(judge, without_the_filter_nothing_counts)
{
    struct err e = {0};
    static const char *const early[] = {"", "V1", "E{}", "xLV1"};
    for (size_t i = 0; i < 4; i++) {
        struct isolate_facts f = facts(EXITED(0), early[i]);
        CHECK_INT(isolate_judge(&f, &V, &e), -1);
        CHECK_INT(e.code, E_GUEST);
    }
}

TEST(names, are_the_wire_s)
{
    for (int i = 0; i < ISOLATE_END_MAX; i++)
        CHECK(*isolate_end_name((enum isolate_end)i));
    CHECK_STR(isolate_end_name(ISOLATE_FORBIDDEN), "forbidden");
    CHECK(isolate_language_ok("python") && isolate_language_ok("js") && isolate_language_ok("php") && isolate_language_ok("ruby"));
    CHECK(!isolate_language_ok("perl") && !isolate_language_ok("") && !isolate_language_ok("Python"));
}

TEST_MAIN
