/* hutch gvisor install: builds runsc, gVisor's program, with the host's Go and puts it where hutchd looks for it. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/args.h"
#include "cli/cmds.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNSC_MODULE  "gvisor.dev/gvisor/runsc"
#define RUNSC_VERSION "v0.0.0-20260905035102-160fafc42237" /* the one hutch is tested with */
#define RUNSC_PLACE   "/usr/local/bin/runsc"               /* one of runsc_find()'s */

/* Its output is the user's to see. -1: it could not be run, else its exit status. */
static int run(char *const *argv, const char *gobin)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        /* with cgo runsc dies at its start */
        if (!setenv("CGO_ENABLED", "0", 1) && !setenv("GOBIN", gobin, 1))
            (void)execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) == 127)
        return -1;
    return WEXITSTATUS(status);
}

static int copy_to(int from, const char *path, struct err *e)
{
    char t[65536];
    auto_fd to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (to < 0)
        return err_sys(e, errno, "%s", path);
    for (ssize_t n; (n = read(from, t, sizeof t)) != 0;)
        if (n < 0 || !fd_write_all(to, t, (size_t)n))
            return err_sys(e, errno, "%s", path);
    return fchmod(to, 0755) || fsync(to) ? err_sys(e, errno, "%s", path) : 0;
}

/* Whole or not at all: a daemon may look for it at any moment. */
static int put_in_place(const char *built, const char *place, struct err *e)
{
    auto_free char *part = xasprintf("%s.new", place);
    auto_fd from = open(built, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return err_sys(e, errno, "%s", built);
    (void)unlink(part);
    if (!copy_to(from, part, e) && !rename(part, place))
        return 0;
    if (e->code == E_OK)
        (void)err_sys(e, errno, "%s", place);
    (void)unlink(part);
    return -1;
}

static int build(struct cli *x, const char *version, const char *place)
{
    const char *tmp = getenv("TMPDIR");
    auto_free char *dir = xasprintf("%s/hutch-runsc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    auto_free char *what = xasprintf("%s@%s", RUNSC_MODULE, version);
    if (!mkdtemp(dir))
        return err_sys(&x->err, errno, "%s", dir);
    auto_free char *built = xasprintf("%s/runsc", dir);
    (void)fprintf(stderr, "hutch: go install %s; this takes some minutes\n", what);
    int rc = run((char *[]){"go", "install", what, NULL}, dir);
    if (rc < 0)
        (void)err_set(&x->err, E_UNSUPPORTED,
                      "the Go compiler (go) is not installed or could not be run");
    else if (rc)
        (void)err_set(&x->err, E_INTERNAL, "go install %s failed with status %d", what, rc);
    else
        rc = put_in_place(built, place, &x->err);
    (void)unlink(built);
    (void)rmdir(dir);
    return rc ? -1 : 0;
}

static int exec_install(struct cli *x, struct args *a)
{
    const char *place = args_str(a, "to", RUNSC_PLACE);
    if (place[0] != '/')
        return cli_usage(x, "gvisor install: --to needs an absolute path");
    auto_free char *dir = xstrdup(place);
    *(strrchr(dir, '/') + 1) = '\0';
    if (access(dir, W_OK)) { /* before minutes are spent */
        (void)err_sys(&x->err, errno, "%s", dir);
        (void)snprintf(
            x->hint, sizeof x->hint,
            "run it as root, or name another place with --to and tell the daemon with HUTCH_RUNSC");
        return cli_fail(x);
    }
    if (build(x, args_str(a, "version", RUNSC_VERSION), place))
        return cli_fail(x);
    (void)printf("%s\n", place);
    return 0;
}

static const struct opt opts[] = {
    {"to", 0, 's', "FILE", "where it goes (" RUNSC_PLACE "); elsewhere HUTCH_RUNSC must name it",
     "@file"},
    {"version", 0, 's', "VERSION",
     "a version of the Go module, such as `latest` (the one hutch is tested with)", NULL},
    OPT_END,
};
static const struct cmd g_install = {
    .name = "install",
    .usage = "[--to FILE]",
    .help = "build runsc with the host's Go compiler, for isolation gvisor",
    .opts = opts,
    .exec = exec_install};
static const struct cmd *const subs[] = {&g_install, NULL};
const struct cmd cmd_gvisor = {.name = "gvisor",
                               .usage = "install",
                               .help = "install gVisor's program, for isolation gvisor",
                               .sub = subs};
