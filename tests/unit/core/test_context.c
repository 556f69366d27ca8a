/* Contexts and cells over a fake exec: what is said to a kernel, what is made of what it says, and what happens when it
 * does not. Everything below core/sandbox/exec.h is this file's. */
#include "base/buf.h"
#include "core/code/context.h"
#include "core/sandbox/exec.h"
#include "core/sandbox/object.h"
#include "core/catalog/template.h"
#include "test.h"

/* ---- the fakes ---- */
struct exec { struct exec_ops ops; void *arg; bool gone; };
static struct {
    struct exec *x;
    struct buf in;       /* what kernels were told */
    char tag[64], cwd[64], who[32];
    unsigned starts, attaches, kills, detaches, signals, ensures;
    size_t consumed;
    void (*list_cb)(void *, const struct err *, const struct proc_info *, size_t);
    void *list_arg;
    void (*files_cb)(void *, const struct err *);
    void *files_arg;
} F;
static struct sandbox sb;
static struct core core;

static struct exec *fake_exec(const struct exec_ops *o, void *arg)
{
    F.x = xcalloc(1, sizeof *F.x);
    F.x->ops = *o, F.x->arg = arg;
    return F.x;
}
struct exec *exec_start(struct sandbox *s, const struct exec_spec *spec, const struct exec_ops *o, void *arg, struct err *e)
{
    (void)s, (void)e;
    F.starts++;
    snprintf(F.tag, sizeof F.tag, "%s", spec->tag);
    snprintf(F.cwd, sizeof F.cwd, "%s", spec->cwd ? spec->cwd : "-");
    CHECK(spec->stdin_pipe);
    return fake_exec(o, arg);
}
struct exec *exec_attach(struct sandbox *s, const char *who, uint64_t offset, const struct exec_ops *o, void *arg, struct err *e)
{
    (void)s, (void)e;
    CHECK(offset == UINT64_MAX);
    F.attaches++;
    snprintf(F.who, sizeof F.who, "%s", who);
    return fake_exec(o, arg);
}
void exec_consumed(struct exec *x, size_t n) { (void)x; F.consumed += n; }
size_t exec_input(struct exec *x, const void *p, size_t n) { (void)x; buf_put(&F.in, p, n); return n; }
void exec_detach(struct exec *x) { F.detaches++; if (F.x == x) F.x = NULL; free(x); }
void exec_kill(struct exec *x) { F.kills++; if (F.x == x) F.x = NULL; free(x); }
int exec_list(struct sandbox *s, void (*cb)(void *, const struct err *, const struct proc_info *, size_t), void *arg, struct err *e)
{
    (void)s, (void)e;
    F.list_cb = cb, F.list_arg = arg;
    return 0;
}
int exec_signal(struct sandbox *s, const char *who, int signo, bool group, exec_cb *cb, void *arg, struct err *e)
{
    (void)s, (void)cb, (void)arg, (void)e;
    CHECK(signo == SIGINT && group);
    snprintf(F.who, sizeof F.who, "%s", who);
    F.signals++;
    return 0;
}
const char *signal_name(int n) { (void)n; return "SIGKILL"; }
struct sandbox *sandbox_find(struct core *c, const char *id, struct err *e) { (void)c, (void)id, (void)e; return &sb; }
struct agent *sandbox_agent(struct sandbox *s, struct err *e)
{
    if (s->state == SB_RUNNING)
        return (struct agent *)(void *)s;
    err_set(e, E_GONE, "gone");
    return NULL;
}
static void environment(const struct sandbox *s, struct kv *ret) { (void)s; kv_set(ret, S("A"), S("b")); }
static const struct hooks hooks = {.sandbox_environment = environment};
int kernels_ensure(struct core *c, struct agent *a, void (*cb)(void *, const struct err *), void *arg, struct err *e)
{
    (void)c, (void)a, (void)e;
    F.ensures++;
    F.files_cb = cb, F.files_arg = arg;
    return 0;
}
void kernels_command(struct core *c, enum language l, bool warm, struct kernel_cmd *ret) { (void)c, (void)l, (void)warm; *ret = (struct kernel_cmd){.argv = {"k"}}; }
struct sandbox_ref *sandbox_ref_new(struct sandbox *s)
{
    struct sandbox_ref *r = xcalloc(1, sizeof *r);
    r->core = s->core;
    memcpy(r->id, s->id, sizeof r->id);
    return r;
}
struct sandbox_ref sandbox_ref_take(void *ref)
{
    struct sandbox_ref r = *(struct sandbox_ref *)ref;
    free(ref);
    return r;
}
struct template *template_at(const struct core *c, const char *id)
{
    (void)c, (void)id;
    return NULL;
}

/* ---- driving ---- */
static void turn(void)
{
    for (int i = 0; i < 5; i++)
        loop_turn(core.loop, false);
}
static void setup(void)
{
    core.loop = loop_new();
    core.on = &hooks;
    code_init(&core);
    sb.core = &core, sb.state = SB_RUNNING;
    snprintf(sb.id, sizeof sb.id, "i00000000000000000001");
}
static void listed(const struct proc_info *p, size_t n)
{
    CHECK(F.list_cb != NULL);
    F.list_cb(F.list_arg, NULL, p, n);
    turn();
}
static void files(void)
{
    CHECK(F.files_cb != NULL);
    F.files_cb(F.files_arg, NULL);
    turn();
}
static void say(const char *z)
{
    F.x->ops.output(F.x->arg, CH_STDOUT, (const unsigned char *)z, strlen(z));
    turn();
}
static void kernel_exits(int code)
{
    struct exec *x = F.x;
    struct exec_exit how = {.kind = EXIT_CODE, .code = code};
    F.x = NULL;
    x->ops.exited(x->arg, &how, 0);
    x->ops.done(x->arg, NULL);
    free(x);
    turn();
}
static long long cell_id(void) /* of the last run that was sent */
{
    const char *at = F.in.p, *last = NULL;
    while ((at = strstr(at, "\"op\":\"run\",\"id\":")))
        last = at += 16;
    CHECK(last != NULL);
    return atoll(last);
}
static void sayf(const char *text) /* @ is the cell */
{
    auto_buf line = {0};
    for (; *text; text++)
        if (*text == '@')
            buf_printf(&line, "%lld", cell_id());
        else
            buf_putc(&line, *text);
    say(line.p);
}

/* what came out of a cell, as text */
static struct { struct buf log; bool over; struct eval_end end; struct err err; int failed; } R;
static void on_started(void *arg, const struct context_info *c) { (void)arg; buf_printf(&R.log, "started %s;", language_name(c->language)); }
static void on_event(void *arg, const struct kernel_event *ev)
{
    (void)arg;
    if (ev->type == KE_COUNT)
        buf_printf(&R.log, "count %d;", (int)ev->n);
    else if (ev->type == KE_OUT)
        buf_printf(&R.log, "%s %.*s;", ev->is_stderr ? "err" : "out", (int)ev->text.n, ev->text.p);
    else if (ev->type == KE_ERROR)
        buf_printf(&R.log, "error %.*s;", (int)ev->name.n, ev->name.p);
    for (size_t i = 0; ev->type == KE_RESULT && i < ev->nmime; i++)
        buf_printf(&R.log, "%s%.*s%s=%.*s;", ev->is_main ? "main " : "", (int)ev->mime[i].type.n, ev->mime[i].type.p, ev->mime[i].json ? "!" : "",
                   (int)ev->mime[i].value.n, ev->mime[i].value.p);
}
static void on_done(void *arg, const struct eval_end *end)
{
    (void)arg;
    CHECK(!R.over);
    R.over = true;
    R.end = *end;
    if (end->e)
        R.err = *end->e;
}
static void on_failed(void *arg, const struct err *e)
{
    (void)arg;
    R.failed++;
    R.err = *e;
}
static const struct eval_ops ops = {.started = on_started, .event = on_event, .done = on_done, .failed = on_failed};

static struct eval *run(const char *code, const char *context, enum language l, uint64_t timeout_ms, size_t max)
{
    struct eval_spec s = {.context = context, .language = l, .code = str_of(code), .timeout_ms = timeout_ms, .max_output = max};
    struct err e;
    R.over = false, R.failed = 0, R.log.n = 0;
    buf_puts(&R.log, "");
    struct eval *v = eval_start(&sb, &s, &ops, NULL, &e);
    CHECK(v != NULL);
    turn();
    return v;
}
static struct eval *first(const char *code) /* a cell in a fresh kernel, begun */
{
    struct eval *v = run(code, NULL, LANG_PYTHON, 0, 0);
    listed(NULL, 0);
    files();
    F.x->ops.started(F.x->arg, 50, 0);
    say("{\"ev\":\"ready\"}\n");
    return v;
}
static void teardown(void)
{
    struct err e;
    err_set(&e, E_GONE, "the end");
    contexts_drop(&sb, &e);
    turn();
    code_free(&core);
    loop_free(core.loop);
    buf_free(&F.in), buf_free(&R.log);
}

/* ---- tests ---- */
TEST(context, a_cell_starts_its_kernel_and_is_told_everything)
{
    setup();
    (void)first("x \"\xc3\xa9\"");
    CHECK_STR(F.tag, "kernel:python:default");
    CHECK(strstr(F.in.p, "{\"op\":\"adopt\",\"sandbox\":\"i00000000000000000001\",\"env\":{\"A\":\"b\"}}\n") == F.in.p);
    CHECK(strstr(F.in.p, "\"code\":\"x \\\"\\u00e9\\\"\",\"env\":{}}\n") != NULL); /* ASCII on the wire */
    sayf("{\"ev\":\"count\",\"id\":@,\"n\":1}\n{\"ev\":\"out\",\"id\":@,\"stream\":\"stderr\",\"te");
    say("xt\":\"hm\"}\n");
    sayf("{\"ev\":\"result\",\"id\":@,\"main\":true,\"data\":{\"text/plain\":\"5\",\"application/json\":\"[1]\",\"e2b/chart\":\"{broken\"}}\n");
    sayf("{\"ev\":\"error\",\"id\":@,\"name\":\"E1\"}\n{\"ev\":\"error\",\"id\":@,\"name\":\"E2\"}\n{\"ev\":\"done\",\"id\":@}\n");
    CHECK_STR(R.log.p, "started python;count 1;err hm;main text/plain=5;main application/json!=[1];error E1;");
    CHECK(R.over && R.end.how == EVAL_ERROR && !R.end.state_lost);
    (void)run("2", NULL, LANG_PYTHON, 0, 0);
    CHECK_INT(F.starts, 1);
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_OK);
    teardown();
}
TEST(context, nonsense_and_other_cells_are_ignored)
{
    setup();
    (void)first("1");
    say("rubbish\n{\"ev\":5}\n[1]\n{\"ev\":\"done\",\"id\":3}\n{\"ev\":\"out\",\"id\":\"x\"}\n{\"ev\":\"what\",\"id\":1}\n");
    CHECK(!R.over);
    sayf("{\"ev\":\"result\",\"id\":@,\"data\":{\"a\":1}}\n{\"ev\":\"result\",\"id\":@,\"data\":5}\n{\"ev\":\"out\",\"id\":@,\"text\":\"x\"}\n");
    CHECK_STR(R.log.p, "started python;");
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over);
    teardown();
}
TEST(context, output_over_the_limit_is_cut_between_characters)
{
    setup();
    struct eval *v = run("1", NULL, LANG_PYTHON, 0, 6);
    (void)v;
    listed(NULL, 0);
    files();
    say("{\"ev\":\"ready\"}\n");
    sayf("{\"ev\":\"out\",\"id\":@,\"stream\":\"stdout\",\"text\":\"abcd\"}\n{\"ev\":\"out\",\"id\":@,\"stream\":\"stdout\",\"text\":\"e\\u00e9f\"}\n");
    sayf("{\"ev\":\"out\",\"id\":@,\"stream\":\"stdout\",\"text\":\"more\"}\n{\"ev\":\"done\",\"id\":@}\n");
    CHECK_STR(R.log.p, "started python;out abcd;out e;out \n[hutch: output cut here, the limit is 6 bytes]\n;");
    CHECK_INT(R.end.cut_output, 7);
    teardown();
}
TEST(context, a_client_that_leaves_interrupts_once_the_cell_runs)
{
    setup();
    struct eval *v = first("loop");
    eval_cancel(v);
    turn();
    CHECK_INT(F.signals, 0); /* too early: it would be lost */
    sayf("{\"ev\":\"count\",\"id\":@,\"n\":1}\n");
    CHECK_INT(F.signals, 1);
    CHECK_STR(F.who, "50");
    long long old = cell_id();
    char line[200];
    snprintf(line, sizeof line, "{\"op\":\"interrupt\",\"id\":%lld}\n", old);
    CHECK(strstr(F.in.p, line) != NULL);
    (void)run("next", NULL, LANG_PYTHON, 0, 0);
    CHECK(cell_id() == old); /* it waits */
    snprintf(line, sizeof line, "{\"ev\":\"error\",\"id\":%lld,\"name\":\"KeyboardInterrupt\"}\n{\"ev\":\"done\",\"id\":%lld}\n", old, old);
    say(line);
    CHECK(cell_id() != old && !R.over && !F.kills);
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_OK);
    teardown();
}
TEST(context, a_kernel_that_always_hears_is_told_at_once)
{
    setup();
    struct eval *v = run("loop", NULL, LANG_PYTHON, 0, 0);
    listed(NULL, 0);
    files();
    F.x->ops.started(F.x->arg, 50, 0);
    say("{\"ev\":\"ready\",\"hears\":true}\n");
    eval_cancel(v);
    turn();
    CHECK_INT(F.signals, 1);
    sayf("{\"ev\":\"count\",\"id\":@,\"n\":1}\n");
    CHECK_INT(F.signals, 1); /* once is enough */
    teardown();
}
TEST(context, one_that_was_found_is_told_when_it_has_answered)
{
    setup();
    struct proc_info p = {.pid = 60, .running = true, .tag = "kernel:python:default"};
    struct eval *v = run("loop", NULL, LANG_PYTHON, 0, 0);
    listed(&p, 1);
    eval_cancel(v);
    turn();
    CHECK_INT(F.signals, 0);
    say("{\"ev\":\"adopted\",\"hears\":true}\n");
    CHECK_INT(F.signals, 1);
    teardown();
}
TEST(context, a_deadline_interrupts_then_kills)
{
    setup();
    (void)run("loop", NULL, LANG_PYTHON, 30, 0);
    listed(NULL, 0);
    files();
    F.x->ops.started(F.x->arg, 50, 0);
    say("{\"ev\":\"ready\"}\n");
    sayf("{\"ev\":\"count\",\"id\":@,\"n\":1}\n");
    for (int i = 0; i < 200 && !F.signals; i++)
        usleep(1000), turn();
    CHECK_INT(F.signals, 1);
    for (int i = 0; i < 7000 && !R.over; i++)
        usleep(1000), turn();
    CHECK(R.over && R.end.how == EVAL_TIMEOUT && R.end.state_lost && R.err.code == E_TIMEOUT);
    CHECK_INT(F.kills, 1);
    teardown();
}
TEST(context, a_kernel_that_dies_loses_its_cell_and_is_replaced)
{
    setup();
    (void)first("1");
    kernel_exits(3);
    CHECK(R.over && R.end.how == EVAL_LOST && R.end.state_lost && R.err.code == E_GUEST);
    CHECK(strstr(R.err.msg, "status 3") != NULL);
    (void)run("2", NULL, LANG_PYTHON, 0, 0);
    CHECK_INT(F.starts, 2);
    CHECK_INT(F.ensures, 1);
    say("{\"ev\":\"ready\"}\n");
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_OK);
    teardown();
}
TEST(context, a_kernel_that_cannot_start_fails_the_cell)
{
    setup();
    (void)run("1", NULL, LANG_R, 0, 0);
    listed(NULL, 0);
    files();
    CHECK_STR(F.tag, "kernel:r:default");
    F.x->ops.output(F.x->arg, CH_STDERR, (const unsigned char *)"first\nRscript: No such file\n", 28);
    kernel_exits(127);
    CHECK(!R.over && R.failed == 1 && R.err.code == E_UNSUPPORTED);
    CHECK(strstr(R.err.msg, "cannot run r: Rscript: No such file") != NULL);
    teardown();
}
static struct context_info seen[16];
static size_t nseen;
static char seen_id[16][CONTEXT_ID], seen_cwd[16][64];
static void on_list(void *arg, const struct err *e, const struct context_info *c, size_t n)
{
    (void)arg;
    CHECK(!e);
    nseen = n;
    for (size_t i = 0; i < n; i++) {
        seen[i] = c[i];
        snprintf(seen_id[i], CONTEXT_ID, "%s", c[i].id), snprintf(seen_cwd[i], 64, "%s", c[i].cwd);
    }
}
TEST(context, kernels_that_run_already_are_found)
{
    static char *env[] = {(char *)(uintptr_t)"K=v", NULL};
    struct proc_info p[] = {
        {.pid = 70, .tag = "kernel:python:default", .cwd = "/home/user", .running = true},
        {.pid = 71, .tag = "kernel:bash:0a0b0c0d-0000-4000-a000-000000000001", .cwd = "/tmp", .env = env, .running = true},
        {.pid = 72, .tag = "kernel:java:0a0b0c0d-0000-4000-a000-000000000002", .running = false},
        {.pid = 73, .tag = "kernel:cobol:x", .running = true},
        {.pid = 74, .tag = "other", .running = true},
        {.pid = 75, .running = true}};
    struct err e;
    setup();
    CHECK_INT(context_list(&sb, on_list, NULL, &e), 0);
    listed(p, 6);
    CHECK_INT(nseen, 3);
    CHECK(seen[0].language == LANG_PYTHON && seen[1].language == LANG_JAVASCRIPT && seen[2].language == LANG_BASH);
    CHECK_STR(seen[1].state, "new");
    CHECK_STR(seen_cwd[2], "/tmp");
    CHECK_STR(seen_id[2], "0a0b0c0d-0000-4000-a000-000000000001");
    (void)run("1", seen_id[2], LANG_PYTHON, 0, 0);
    CHECK_INT(F.starts, 0);
    CHECK_INT(F.attaches, 1);
    CHECK_STR(F.who, "71");
    CHECK(strstr(F.in.p, "\"op\":\"adopt\"") && strstr(F.in.p, "\"op\":\"run\"")); /* one after the other, without waiting */
    say("of an older line\"}\n{\"ev\":\"adopted\"}\n");
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_OK);
    (void)run("1", "no-such-context", LANG_PYTHON, 0, 0);
    CHECK(R.failed == 1 && R.err.code == E_NOT_FOUND);
    teardown();
}
TEST(context, one_that_ended_since_is_started_anew)
{
    struct proc_info p[] = {{.pid = 70, .tag = "kernel:python:default", .cwd = "/home/user", .running = true}};
    struct err e;
    setup();
    (void)run("1", NULL, LANG_PYTHON, 0, 0);
    listed(p, 1);
    CHECK_INT(F.attaches, 1);
    struct exec *x = F.x;
    err_set(&e, E_NOT_FOUND, "no such process");
    x->ops.done(x->arg, &e);
    free(x);
    turn();
    CHECK(!R.over && !R.failed);
    files();
    CHECK_INT(F.starts, 1);
    say("{\"ev\":\"ready\"}\n");
    sayf("{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_OK);
    CHECK_STR(R.log.p, "started python;"); /* once */
    teardown();
}
static struct err called;
static int calls;
static char made[CONTEXT_ID];
static void on_call(void *arg, const struct err *e, const struct context_info *c)
{
    (void)arg;
    calls++;
    called = e ? *e : (struct err){0};
    if (c)
        snprintf(made, sizeof made, "%s", c->id);
}
TEST(context, create_restart_interrupt_remove)
{
    struct err e;
    struct context_spec s = {.language = LANG_JAVASCRIPT, .cwd = "/srv"};
    setup();
    CHECK_INT(context_create(&sb, &s, on_call, NULL, &e), 0);
    CHECK_INT(calls, 0);
    listed(NULL, 0);
    files();
    CHECK_STR(F.cwd, "/srv");
    F.x->ops.started(F.x->arg, 60, 0);
    CHECK_INT(calls, 0);
    say("{\"ev\":\"ready\"}\n");
    CHECK(calls == 1 && !called.code && strlen(made) == 36);
    (void)run("1", made, LANG_PYTHON, 0, 0);
    sayf("{\"ev\":\"count\",\"id\":@,\"n\":1}\n");
    CHECK_INT(context_interrupt(&sb, made, on_call, NULL, &e), 0);
    turn();
    CHECK(calls == 2 && F.signals == 1);
    sayf("{\"ev\":\"error\",\"id\":@,\"name\":\"KeyboardInterrupt\"}\n{\"ev\":\"done\",\"id\":@}\n");
    CHECK(R.over && R.end.how == EVAL_INTERRUPTED);
    (void)run("2", made, LANG_PYTHON, 0, 0);
    CHECK_INT(context_restart(&sb, made, on_call, NULL, &e), 0);
    turn();
    CHECK(R.over && R.end.how == EVAL_LOST && R.err.code == E_CANCELED);
    CHECK(F.kills == 1 && F.starts == 2 && calls == 2);
    CHECK_STR(F.cwd, "/srv");
    say("{\"ev\":\"ready\"}\n");
    CHECK_INT(calls, 3);
    CHECK_INT(context_remove(&sb, made, on_call, NULL, &e), 0);
    turn();
    CHECK(calls == 4 && !called.code && F.kills == 2);
    CHECK_INT(context_remove(&sb, made, on_call, NULL, &e), 0);
    turn();
    CHECK(calls == 5 && called.code == E_NOT_FOUND);
    teardown();
}
TEST(context, a_sandbox_that_ends_ends_its_cells)
{
    struct err e;
    setup();
    (void)first("1");
    struct eval *waits = NULL;
    struct eval_spec s = {.language = LANG_PYTHON, .code = S("2")};
    waits = eval_start(&sb, &s, &ops, NULL, &e);
    CHECK(waits != NULL);
    turn();
    err_set(&e, E_GONE, "killed");
    contexts_drop(&sb, &e);
    turn();
    CHECK(R.over && R.end.how == EVAL_LOST && R.err.code == E_GONE && R.failed == 1);
    CHECK_INT(F.detaches, 1);
    sb.state = SB_GONE;
    CHECK(eval_start(&sb, &s, &ops, NULL, &e) == NULL && e.code == E_GONE);
    teardown();
}
TEST(language, names)
{
    enum language l;
    CHECK(!language_parse(S(" JavaScript "), &l) && l == LANG_JAVASCRIPT);
    CHECK(!language_parse(S("ts"), &l) && l == LANG_TYPESCRIPT);
    CHECK(!language_parse(S("R"), &l) && l == LANG_R);
    CHECK(language_parse(S("cobol"), &l) && language_parse(S(""), &l));
}
TEST_MAIN
