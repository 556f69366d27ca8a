/* hutch eval: a cell in a sandbox's code context, or one program in an isolate. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmds.h"
#include "cli/eval.h"
#include "cli/isolate.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int post_shown(struct cli *x, const char *method, const char *target, const struct buf *body)
{
    auto_json j = NULL;
    if (api_call(x, method, target, body, &j))
        return cli_fail(x);
    if (j)
        json_print(j);
    return 0;
}

#define CODE_MAX (8u << 20)

/* NULL + x->err: too much, or bytes that no program has; never a part of it. */
static char *read_stdin(struct cli *x)
{
    size_t n;
    char *all = fd_slurp(STDIN_FILENO, CODE_MAX, &n);
    const char *nul = all ? memchr(all, 0, n) : NULL;
    if (!all)
        (void)err_set(&x->err, E_TOO_LARGE, "the program on standard input cannot be read, or is larger than %u MiB", CODE_MAX >> 20);
    else if (nul)
        (void)err_set(&x->err, E_INVALID, "the program on standard input is not text: byte %zu is NUL", (size_t)(nul - all));
    if (!nul)
        return all;
    free(all);
    return NULL;
}

static int exec_eval(struct cli *x, struct args *a)
{
    bool from_stdin = !strcmp(a->v[0], "-");
    if (from_stdin && !strcmp(args_str(a, "input", ""), "-"))
        return cli_usage(x,
                         "CODE and --input cannot both be '-': there is only one standard input");
    auto_free char *code = from_stdin ? read_stdin(x) : xstrdup(a->v[0]);
    if (!code)
        return cli_fail(x);
    if (isolate_asked(a))
        return isolate_run(x, a, args_str(a, "language", "python"), str_of(code), true);
    const char *in = args_str(a, "in", NULL);
    auto_json sb = NULL;
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "code", code);
    jw_kv_str(&w, "language", args_str(a, "language", "python"));
    jw_end(&w);
    if (!in)
        eval_template(x, a);
    if (!in && sandbox_create(x, a, -1, true, &sb))
        return cli_fail(x);
    const char *id = in ? in : jget_str(sb, "id", "");
    auto_free char *t = url("/v1/sandboxes/{}/eval", id);
    int rc = args_flag(a, "json") ? post_shown(x, "POST", t, &b) : eval_show(x, a, id, args_str(a, "language", NULL), code);
    if (!in)
        sandbox_kill_quiet(x, id);
    return rc;
}

static const struct opt eval_opts[] = {{"language", 'l', 's', "LANG", "python, js, ts, bash, r or java (python); in an isolate python, js, php or ruby", "python js ts bash r java php ruby"},
                                       {"isolation", 0, 's', "TIER", "vm, gvisor, container, auto (auto), or isolate (one program without a sandbox)", "vm gvisor container isolate auto"},
                                       {"timeout", 0, 's', "S", "time limit in seconds", NULL},
                                       {"memory", 'm', 's', "MIB", "memory in MiB", NULL},
                                       ISOLATE_OPTS,
                                       {"in", 0, 's', "ID", "use this sandbox instead of a new one", "@id"},
                                       {"template", 't', 's', "NAME", "template of the new sandbox (code-interpreter if it is built, else base)", "@template"},
                                       EVAL_OPTS,
                                       OPT_JSON,
                                       OPT_END};
const struct cmd cmd_eval = {.name = "eval", .usage = "[-l LANG] [--in ID] CODE|-", .help = "evaluate code and show its results", .opts = eval_opts, .min = 1, .max = 1, .exec = exec_eval};
