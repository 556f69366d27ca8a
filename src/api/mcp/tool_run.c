/* run_code, run_command, read_process, stop_process. */
#include "api/mcp/args.h"
#include "api/mcp/process.h"
#include "api/params.h"
#include <math.h>
#include <stdlib.h>

static uint64_t timeout_ms(struct mcall *k)
{
    return (uint64_t)(args_num(k->schema, k->args, "timeout_s", 0) * 1000);
}
static double wait_s(struct mcall *k) { return args_num(k->schema, k->args, "wait_s", 45); }

/* ---- run_code ---- */
static enum language asked_language(struct mcall *k)
{
    enum language l = LANG_PYTHON;
    (void)language_parse(args_str(k->schema, k->args, "language"), &l); /* checked before */
    return l;
}

static void begin_cell(struct mcall *k, struct sandbox *sb)
{
    (void)process_cell(k, sb, asked_language(k), args_str(k->schema, k->args, "code"),
                       timeout_ms(k), wait_s(k));
}

static void run_restarted(void *arg, const struct err *e, const struct context_info *c)
{
    struct mcall *k = arg;
    struct err gone;
    (void)c;
    if (!mcall_back(k))
        return;
    struct sandbox *sb = mcall_own_sandbox(k, &gone);
    if (e || !sb)
        mcall_fail(k, e ? e : &gone, ABOUT_CONTEXT);
    else
        begin_cell(k, sb);
}

/* The interpreter that cells run in unless they name another, if it runs at all. */
static void run_contexts(void *arg, const struct err *e, const struct context_info *c, size_t n)
{
    struct mcall *k = arg;
    struct err no;
    if (!mcall_back(k))
        return;
    struct sandbox *sb = mcall_own_sandbox(k, &no);
    if (e || !sb) {
        mcall_fail(k, e ? e : &no, ABOUT_CONTEXT);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (c[i].is_default && c[i].language == asked_language(k) && strcmp(c[i].state, "new")) {
            mcall_hold(k);
            mcall_settle(k, context_restart(sb, c[i].id, run_restarted, k, &no), &no,
                         ABOUT_CONTEXT);
            return;
        }
    begin_cell(k, sb);
}

void tool_run_code(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    if (!args_bool(k->schema, k->args, "restart")) {
        begin_cell(k, sb);
        return;
    }
    mcall_hold(k);
    mcall_settle(k, context_list(sb, run_contexts, k, &e), &e, ABOUT_CONTEXT);
}

/* ---- run_command ---- */
void tool_run_command(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct kv env = {0};
    struct str line = args_str(k->schema, k->args, "command");
    struct command c = {.line = line.p,
                        .cwd = args_str(k->schema, k->args, "cwd").p,
                        .input = args_str(k->schema, k->args, "stdin"),
                        .background = args_bool(k->schema, k->args, "background"),
                        .timeout_ms = timeout_ms(k)};
    if (line.n > PARAM_ARG_MAX) {
        mcall_refuse(k, "command: at most %d bytes; write a script with write_file and run that.",
                     PARAM_ARG_MAX);
        return;
    }
    if (body_env(k->args, "env", &env, &e)) {
        mcall_fail(k, &e, ABOUT_REQUEST);
        return;
    }
    char **vars = kv_to_env(&env);
    c.env = vars;
    (void)process_command(k, sb, &c, wait_s(k)); /* k was told if it did not begin */
    env_free(vars);
    kv_free(&env);
}

/* ---- processes ---- */
static struct process *asked_process(struct mcall *k)
{
    struct err e;
    struct str id = args_str(k->schema, k->args, "process_id");
    struct process *p = mcall_process(k, id);
    if (!p)
        p = process_adopt(k, id, &e);
    if (!p)
        mcall_fail(k, &e, ABOUT_PROCESS);
    return p;
}

void tool_read_process(struct mcall *k, struct sandbox *sb)
{
    (void)sb;
    struct process *p = asked_process(k);
    if (p)
        process_read(k, p, args_str(k->schema, k->args, "input"),
                     args_num(k->schema, k->args, "wait_s", 20));
}

void tool_stop_process(struct mcall *k, struct sandbox *sb)
{
    struct str name = args_str(k->schema, k->args, "signal");
    (void)sb;
    struct process *p = asked_process(k);
    if (p)
        process_stop(k, p, signal_number(name.p));
}
