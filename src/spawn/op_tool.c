/* SP_TOOL: one of the fixed scripts of share/tools, as root, with the host's
 * network and its proxy settings, and nothing else of the environment. */
#include "base/cleanup.h"
#include "jail/sys.h"
#include "spawn/place.h"
#include "spawn/server.h"
#include "spawn/server_task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TOOL_PIDS 4096u
#define ENV_MAX   32

#define DEFAULTS_MAX 1024
struct tool { const char *argv[6]; const char *env[ENV_MAX]; char script[PATH_LEN], kernel_dir[PATH_LEN], work[PATH_LEN], defaults[DEFAULTS_MAX]; int out, err; };

extern char **environ;

/* PATH and friends fixed; what the operator said about proxies and package sources passes. */
static void make_env(struct tool *t)
{
    static const char *const pass[] = {"http_proxy=",  "https_proxy=", "ftp_proxy=",   "no_proxy=",       "all_proxy=",     "HTTP_PROXY=",
                                       "HTTPS_PROXY=", "NO_PROXY=",    "ALL_PROXY=",   "APT_CONFIG=",     "SSL_CERT_FILE=", "SSL_CERT_DIR=",
                                       "CURL_CA_BUNDLE=",
                                       "PIP_INDEX_URL=", "PIP_EXTRA_INDEX_URL=", "PIP_CONFIG_FILE=", "npm_config_registry=", "NPM_CONFIG_REGISTRY=", "NPM_CONFIG_USERCONFIG=",
                                       "GIT_CONFIG_GLOBAL=", "GIT_CONFIG_SYSTEM=", "PIP_PROXY=", "npm_config_proxy=", "npm_config_https_proxy="};
    int n = 0;
    t->env[n++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    t->env[n++] = "HOME=/root";
    t->env[n++] = "LANG=C.UTF-8";
    t->env[n++] = "TERM=dumb";
    for (char **v = environ; *v && n < ENV_MAX - 1; v++)
        for (unsigned i = 0; i < sizeof pass / sizeof *pass; i++)
            if (!strncmp(*v, pass[i], strlen(pass[i])) && n < ENV_MAX - 1)
                t->env[n++] = *v;
    t->env[n] = NULL;
}

static int body(void *arg, struct err *e)
{
    struct tool *t = arg;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (!pid) {
        int null = open("/dev/null", O_RDONLY);
        (void)dup2(null, 0);
        (void)dup2(t->out, 1);
        (void)dup2(t->err, 2);
        (void)sys_close_range(3, ~0u);
        (void)execve(t->argv[0], (char *const *)(uintptr_t)t->argv, (char *const *)(uintptr_t)t->env);
        _exit(127);
    }
    (void)close(t->out);
    (void)close(t->err);
    int st = task_wait(pid);
    if (st < 0 || WIFSIGNALED(st))
        return err_set(e, E_INTERNAL, "the tool died of signal %d", st < 0 ? 0 : WTERMSIG(st));
    if (WEXITSTATUS(st))
        return err_set(e, E_INTERNAL, "the tool failed with status %d", WEXITSTATUS(st));
    return 0;
}

/* What bootstrap.sh noted, as text. */
static void read_defaults(struct server *s, char out[DEFAULTS_MAX])
{
    struct stat st;
    out[0] = 0;
    auto_fd fd = server_home_open(s, O_RDONLY, NULL, PLACE_DEBS "/defaults");
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid || st.st_size >= DEFAULTS_MAX)
        return;
    ssize_t n = read(fd, out, DEFAULTS_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
}

static int start(struct server *s, struct box *b, const struct sp_tool *q, struct err *e)
{
    static struct tool t; /* one thread; the child has its own copy */
    int out[2], err[2];
    memset(&t, 0, sizeof t);
    int n = 1;
    static const char *const script[] = {[SP_TOOL_BOOTSTRAP] = "bootstrap.sh", [SP_TOOL_KERNEL] = "kernel.sh", [SP_TOOL_PRESET] = "presets.sh"};
    (void)snprintf(t.script, sizeof t.script, "%s/tools/%s", s->share, script[q->kind]);
    (void)snprintf(t.kernel_dir, sizeof t.kernel_dir, "%s/kernel", s->home);
    (void)snprintf(t.work, sizeof t.work, "%s/" PLACE_ROOT_CACHE, s->home);
    if (access(t.script, R_OK) < 0)
        return err_sys(e, errno, "tool");
    t.argv[0] = "/bin/sh"; /* the mode bits of a checkout do not decide */
    t.argv[n++] = t.script;
    if (q->kind == SP_TOOL_PRESET) {
        t.argv[n++] = q->variant;
        t.argv[n++] = t.defaults;
        read_defaults(s, t.defaults);
    } else if (q->kind == SP_TOOL_BOOTSTRAP) {
        t.argv[n++] = q->variant;
        t.argv[n++] = s->home;
    } else {
        t.argv[n++] = t.kernel_dir;
        t.argv[n++] = t.work;
    }
    make_env(&t);
    b->limit = (struct cgroup_limit){.pids_max = TOOL_PIDS};
    if (cgroup_make(&s->cg, b->id, &b->limit, &b->cg, e))
        return -1;
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    b->start_fds[b->nstart_fds++] = out[0];
    auto_fd out_end = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    b->start_fds[b->nstart_fds++] = err[0];
    auto_fd err_end = err[1];
    struct fd_keep keep = {0};
    fds_keep(&keep, t.out = out_end);
    fds_keep(&keep, t.err = err_end);
    return task_start(b, &keep, body, &t, e);
}

int op_tool(struct server *s, struct request *r, struct err *e)
{
    const struct sp_tool *q = &r->q->u.tool;
    if (!sp_id_ok(q->id) || q->kind < SP_TOOL_BOOTSTRAP || q->kind > SP_TOOL_PRESET)
        return err_set(e, E_INVALID, "unknown tool");
    if (!memchr(q->variant, 0, sizeof q->variant) || (q->kind != SP_TOOL_KERNEL && !name_ok(str_of(q->variant))))
        return err_set(e, E_INVALID, "not a variant name");
    struct box *b = box_new(s, q->id, SP_KIND_TOOL, e);
    if (!b)
        return -1;
    if (start(s, b, q, e)) {
        box_discard(b);
        return -1;
    }
    box_answer(b, r->gen, r->q->seq);
    return 0;
}
