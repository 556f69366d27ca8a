/* Finds the verb, parses its options, runs it. `hutch help`, `hutch help VERB`
 * and `hutch VERB --help` print to stdout and succeed; a wrong word or option
 * prints one line to stderr and exits 64. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/conf.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/cmds.h"
#include "cli/hint.h"
#include "cli/out.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *title; const struct cmd *list[16]; } groups[] = {
    {"one-shot", {&cmd_run, &cmd_eval}},
    {"sandboxes", {&cmd_create, &cmd_ls, &cmd_info, &cmd_kill, &cmd_timeout, &cmd_keepalive, &cmd_pause, &cmd_resume, &cmd_recover, &cmd_fork, &cmd_snapshot, &cmd_snapshots, &cmd_usage, &cmd_rollback}},
    {"inside", {&cmd_exec, &cmd_sh, &cmd_cp, &cmd_ps, &cmd_logs, &cmd_metrics, &cmd_net, &cmd_egress, &cmd_url}},
    {"host", {&cmd_up, &cmd_down, &cmd_template, &cmd_volume, &cmd_secret, &cmd_key, &cmd_tls, &cmd_top, &cmd_events, &cmd_doctor, &cmd_gvisor, &cmd_bench, &cmd_mcp, &cmd_completion, &cmd_version, &cmd_help_verb}},
};

const struct cmd *const cmds[] = {
    &cmd_up, &cmd_down, &cmd_run, &cmd_create, &cmd_ls, &cmd_info, &cmd_exec, &cmd_sh, &cmd_cp, &cmd_logs, &cmd_kill, &cmd_timeout, &cmd_keepalive, &cmd_ps,
    &cmd_pause, &cmd_resume, &cmd_recover, &cmd_fork, &cmd_snapshot, &cmd_snapshots, &cmd_usage, &cmd_rollback, &cmd_eval, &cmd_template, &cmd_volume, &cmd_key, &cmd_tls, &cmd_secret, &cmd_net, &cmd_url,
    &cmd_metrics, &cmd_top, &cmd_events, &cmd_egress, &cmd_doctor, &cmd_gvisor, &cmd_bench, &cmd_mcp, &cmd_completion, &cmd_version, &cmd_help_verb, NULL,
};

/* For scripts and the build: they work, nothing lists them. */
static const struct cmd *const hidden[] = {&cmd_complete, &cmd_man, NULL};

int cli_fail(struct cli *x)
{
    bool colour = out_colour(stderr);
    (void)fprintf(stderr, "%shutch:%s %s\n", colour ? style_on(ST_BAD) : "", colour ? STYLE_OFF : "", x->err.msg);
    if (x->hint[0])
        (void)fprintf(stderr, "  hint: %s\n", x->hint);
    int shell = cli_exit_of((enum err_why)x->err.why);
    return shell ? shell : err_exit(x->err.code == E_OK ? E_INTERNAL : x->err.code);
}

int cli_usage(struct cli *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)err_vset(&x->err, E_INVALID, fmt, ap);
    va_end(ap);
    return cli_fail(x);
}

static void print(const struct buf *b) { (void)fwrite(b->p, 1, b->n, stdout); /* checked at the end of cli_main */ }

static void overview(void)
{
    auto_buf b = {0};
    buf_puts(&b, "hutch runs untrusted code in sandboxes.\n\nusage: hutch [--url URL] [--cacert FILE] VERB [options] …\n");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        buf_printf(&b, "\n%s:\n", groups[g].title);
        for (int i = 0; i < 16 && groups[g].list[i]; i++)
            buf_printf(&b, "  %-12s %s\n", groups[g].list[i]->name, groups[g].list[i]->help);
    }
    buf_puts(&b, "\n`hutch VERB --help` explains a verb, with examples. ID is the id or the name of a sandbox.\n"
                 "environment: HUTCH_HOME, HUTCH_RUN (directories of state and sockets), HUTCH_URL and HUTCH_API_KEY (another machine),\n"
                 "             HUTCH_CA (certificates to trust besides the system's), HUTCH_NO_START=1 (never start the daemon), NO_COLOR\n");
    print(&b);
}

static int unknown(struct cli *x, const struct cmd *const *list, const char *what, const char *word)
{
    char shown[96];
    esc_text(str_of(word), shown, sizeof shown);
    const char *near = cmd_suggest(list, word), *answer = list == cmds ? cmd_foreign(word) : NULL;
    if (answer) {
        (void)snprintf(x->hint, sizeof x->hint, "%s", answer);
        return cli_usage(x, "unknown verb '%s'", shown);
    }
    if (near)
        return cli_usage(x, "unknown %s%s '%s'; did you mean '%s'?", list == cmds ? "" : what,
                         list == cmds ? "verb" : " verb", shown, near);
    (void)snprintf(x->hint, sizeof x->hint, "`hutch help%s%s` lists the verbs",
                   list == cmds ? "" : " ", list == cmds ? "" : what);
    return cli_usage(x, "unknown %s%s '%s'", list == cmds ? "" : what,
                     list == cmds ? "verb" : " verb", shown);
}

static int run_cmd(struct cli *x, const struct cmd *c, const char *parent, int argc, char **argv)
{
    auto_buf b = {0};
    if (c->sub) {
        if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
            cmd_help(c, parent, &b);
            if (argc < 2) {
                (void)fwrite(b.p, 1, b.n, stderr);
                return EX_USAGE_CODE;
            }
            print(&b);
            return 0;
        }
        const struct cmd *s = cmd_find(c->sub, argv[1]);
        auto_free char *up = xasprintf("%s%s ", parent, c->name);
        return s ? run_cmd(x, s, up, argc - 1, argv + 1) : unknown(x, c->sub, c->name, argv[1]);
    }
    struct args a;
    if (args_parse(c, argc, argv, &a, &x->err)) {
        (void)snprintf(x->hint, sizeof x->hint, "`hutch %s%s --help` shows its options", parent, c->name);
        return cli_fail(x);
    }
    if (a.help) {
        cmd_help(c, parent, &b);
        print(&b);
        return 0;
    }
    return c->exec(x, &a);
}

static int exec_help(struct cli *x, struct args *a)
{
    if (a->n == 0) {
        overview();
        return 0;
    }
    const struct cmd *const *list = cmds, *c = NULL;
    auto_buf parent = {0}, b = {0};
    for (int i = 0; i < a->n; i++) {
        if (!list || !(c = cmd_find(list, a->v[i])))
            return unknown(x, list ? list : cmds, "verb", a->v[i]);
        list = c->sub;
        if (i + 1 < a->n)
            buf_printf(&parent, "%s ", c->name);
    }
    cmd_help(c, parent.n ? parent.p : "", &b);
    print(&b);
    return 0;
}
const struct cmd cmd_help_verb = {.name = "help", .usage = "[VERB]", .help = "explain a verb", .max = 2, .words = "@verb;", .exec = exec_help};

/* HUTCH_HOME or HUTCH_RUN as hutchd will see it: of the environment, of its file of settings, or the default. */
static char *place(const struct conf *c, const char *name, const char *def)
{
    const char *v = getenv(name), *file = conf_get(c, name);
    return xstrdup(v && *v ? v : file && *file ? file : def);
}
static void places(struct cli *x)
{
    struct err e;
    auto_conf c = {0};
    (void)conf_load(&c, &e); /* hutchd says what is wrong with it */
    x->home = place(&c, "HUTCH_HOME", CONF_HOME);
    x->run = place(&c, "HUTCH_RUN", "/run/hutch");
}

static void cli_init(struct cli *x, const char *url, const char *ca)
{
    places(x);
    if (!url || !*url)
        url = getenv("HUTCH_URL");
    x->local = !url || !*url;
    x->url = x->local ? xasprintf("unix:%s/hutch.sock", x->run) : xstrdup(url);
    const char *key = getenv("HUTCH_API_KEY"), *no = getenv("HUTCH_NO_START");
    x->key = key && *key ? xstrdup(key) : NULL;
    if (!ca)
        ca = getenv("HUTCH_CA");
    x->ca = ca && *ca ? xstrdup(ca) : NULL;
    x->no_start = no && *no && strcmp(no, "0") != 0;
}

static void cli_fini(struct cli *x)
{
    free(x->url);
    free(x->key);
    free(x->ca);
    free(x->home);
    free(x->run);
}

int cli_main(int argc, char **argv)
{
    struct cli x = {0};
    const char *url = NULL, *ca = NULL;
    char help[] = "help", version[] = "version";
    int i = 1, rc;
    log_init("hutch", LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    for (; i < argc && argv[i][0] == '-'; i++) { /* options before the verb */
        if (!strcmp(argv[i], "--url") && i + 1 < argc)
            url = argv[++i];
        else if (!strncmp(argv[i], "--url=", 6))
            url = argv[i] + 6;
        else if (!strcmp(argv[i], "--cacert") && i + 1 < argc)
            ca = argv[++i];
        else if (!strncmp(argv[i], "--cacert=", 9))
            ca = argv[i] + 9;
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            argv[i] = help, argc = i + 1, i--; /* as the verb, on the next turn */
        else if (!strcmp(argv[i], "--version"))
            argv[i] = version, argc = i + 1, i--;
        else
            return cli_usage(&x, "unknown option %s before the verb; `hutch help` lists the verbs", argv[i]);
    }
    cli_init(&x, url, ca);
    if (i >= argc) {
        overview();
        rc = EX_USAGE_CODE;
    } else {
        const struct cmd *c = cmd_find(cmds, argv[i]);
        if (!c)
            c = cmd_find(hidden, argv[i]);
        rc = c ? run_cmd(&x, c, "", argc - i, argv + i) : unknown(&x, cmds, "verb", argv[i]);
    }
    if (fflush(stdout) || ferror(stdout)) {
        if (errno != EPIPE)
            (void)fprintf(stderr, "hutch: cannot write the output: %s\n", strerror(errno));
        if (rc == 0)
            rc = errno == EPIPE ? 128 + SIGPIPE : 74; /* EX_IOERR */
    }
    cli_fini(&x);
    return rc;
}
