/* hutch run: create, run with the streams here, exit with the command's status,
 * destroy. Whatever happens after the create, the sandbox is killed before we
 * leave; if even that fails, its timeout ends it. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmds.h"
#include "cli/isolate.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include "cli/pty.h"
#include "cli/sandbox.h"
#include "cli/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_S 30 /* the sandbox outlives the command's own deadline, so that the deadline is what is reported */

static const struct { const char *ext, *prog; } runtimes[] = {
    {"py", "python3"}, {"js", "node"}, {"mjs", "node"}, {"cjs", "node"}, {"sh", "bash"}, {"bash", "bash"},
};

static const char *runtime_of(const char *path)
{
    const char *base = strrchr(path, '/'), *dot = strrchr(base ? base : path, '.');
    for (size_t i = 0; dot && i < sizeof runtimes / sizeof *runtimes; i++)
        if (!strcmp(dot + 1, runtimes[i].ext))
            return runtimes[i].prog;
    return NULL;
}

static int put_file(struct cli *x, const char *id, int fd, int64_t len, const char *path, const char *user)
{
    auto_free char *t = url("/v1/sandboxes/{}/files?path={}&mode=0755", id, path);
    url_arg(&t, "user", user);
    auto_client c = api_open(x);
    return c ? api_send_fd(x, c, "PUT", t, "application/octet-stream", fd, len) : -1;
}

/* Returns the exit status; -1 with x->err. argv has room for two words before the script's own. */
static int run_inside(struct cli *x, struct args *a, const char *id, int script_fd, int64_t script_len, const char *script)
{
    const char *user = args_str(a, "user", NULL), *cwd = args_str(a, "cwd", NULL);
    int64_t timeout_s = 0;
    if (args_seconds(a, "timeout", 1, 86400, 300, &timeout_s, &x->err))
        return -1;
    auto_free char **argv = xcalloc((size_t)a->n + 3, sizeof *argv), *inside = NULL;
    int argc = 0;
    if (script) {
        const char *base = strrchr(script, '/');
        inside = xasprintf("/home/user/%s", base ? base + 1 : script);
        if (put_file(x, id, script_fd, script_len, inside, user))
            return err_wrap(&x->err, "copying the script into the sandbox");
        argv[argc++] = (char *)runtime_of(script);
        argv[argc++] = inside;
    }
    for (int i = script ? 1 : 0; i < a->n; i++)
        argv[argc++] = a->v[i];
    int rc = -1;
    if (args_flag(a, "tty") || at_terminal(a))
        rc = pty_run(x, id, argc, argv, user, cwd, NULL); /* --env is the sandbox's already */
    else {
        bool in = stdin_worth_forwarding();
        static const char *const env[] = {"PYTHONUNBUFFERED=1", NULL}; /* output as it is made, not when 4 KiB are full */
        struct exec_req q = {.argv = argv, .argc = argc, .user = user, .cwd = cwd, .timeout_ms = timeout_s * 1000, .keep_stdin = in, .env = script ? env : NULL};
        struct exec_run r = {.id = id, .stdin_fd = in ? STDIN_FILENO : -1, .out_fd = STDOUT_FILENO, .err_fd = STDERR_FILENO};
        if (exec_body(x, &q, &r.body) == 0 && exec_stream(x, &r) == 0)
            rc = r.status;
        buf_free(&r.body);
    }
    return rc;
}

/* --isolation isolate: the file is one program, and nothing else goes in. */
static int run_isolated(struct cli *x, struct args *a)
{
    if (a->dashdash || a->n != 1)
        return cli_usage(x, "an isolate runs one script and no commands: hutch run --isolation isolate FILE.py|.js|.php|.rb");
    const char *language = isolate_language_of(a->v[0]);
    if (!language)
        return cli_usage(x, "an isolate runs .py, .js, .mjs, .cjs, .php and .rb");
    size_t n;
    auto_free char *text = fd_slurp_at(AT_FDCWD, a->v[0], 2u << 20, &n);
    if (!text) {
        char shown[128];
        esc_text(str_of(a->v[0]), shown, sizeof shown);
        (void)err_sys(&x->err, errno, "cannot read '%s'", shown);
        return cli_fail(x);
    }
    return isolate_run(x, a, language, (struct str){text, n}, false);
}

static int exec_run(struct cli *x, struct args *a)
{
    const char *script = NULL;
    auto_fd fd = -1;
    struct stat st = {0};
    if (a->n == 0)
        return cli_usage(x, "run: nothing to run; usage: hutch run [options] -- CMD… or hutch run FILE.py|.js|.sh [args]");
    if (isolate_asked(a))
        return run_isolated(x, a);
    if (!a->dashdash) {
        char shown[128];
        script = a->v[0];
        esc_text(str_of(script), shown, sizeof shown);
        if (!runtime_of(script)) {
            (void)snprintf(x->hint, sizeof x->hint, "to run a command: hutch run -- %s …", shown);
            return cli_usage(x, "'%s' is not a script: known extensions are .py, .js, .mjs, .cjs, .sh and .bash", shown);
        }
        fd = open(script, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st)) {
            (void)err_sys(&x->err, errno, "cannot open '%s'", shown);
            return cli_fail(x);
        }
        if (!S_ISREG(st.st_mode))
            return cli_usage(x, "'%s' is not a regular file", shown);
    }
    int64_t timeout_s = 0;
    if (args_seconds(a, "timeout", 1, 86400, 300, &timeout_s, &x->err))
        return cli_fail(x);
    auto_json sb = NULL;
    int64_t life = timeout_s + GRACE_S > 86400 ? 86400 : timeout_s + GRACE_S;
    x->sigfd = signals_open();
    if (sandbox_create(x, a, life, !args_flag(a, "no-build"), &sb))
        return cli_fail(x);
    const char *id = jget_str(sb, "id", NULL);
    if (!id) {
        (void)err_set(&x->err, E_INTERNAL, "the server created a sandbox without an id");
        return cli_fail(x);
    }
    int status = x->caught ? 128 + x->caught : run_inside(x, a, id, fd, st.st_size, script);
    struct cli failed = *x;
    if (args_flag(a, "keep"))
        (void)fprintf(stderr, "hutch: sandbox %s is kept until its timeout\n", id);
    else
        sandbox_kill_quiet(x, id);
    if (failed.caught && status < 0)
        return 128 + failed.caught;
    return status >= 0 ? status : cli_fail(&failed);
}

static const struct opt opts[] = {CREATE_OPTS, ISOLATE_OPTS,
                                  {"user", 'u', 's', "NAME", "run as this user of the sandbox (user)", NULL},
                                  {"cwd", 'C', 's', "DIR", "working directory in the sandbox (/home/user)", NULL},
                                  {"tty", 0, 'f', NULL, "give the command a terminal (default at a terminal)", NULL},
                                  {"keep", 0, 'f', NULL, "do not destroy the sandbox afterwards", NULL},
                                  {"no-build", 0, 'f', NULL, "do not build template base when it is missing", NULL},
                                  OPT_END};
const struct cmd cmd_run = {.name = "run",
                            .usage = "[options] -- CMD… | [options] FILE.py|.js|.sh [args]",
                            .help = "run one command or script in a new sandbox",
                            .opts = opts,
                            .max = -1,
                            .stop_at = 1,
                            .words = "@file",
                            .exec = exec_run};
