/* hutch-spawn: the only root code that runs after start. Everything it can be
 * asked is in spawn/op.h.
 *
 * With --watch two processes: the spawner, and a watcher that does nothing but
 * wait for its end and start it again when a signal ended it. hutchd could not:
 * it has given up root by then. docs/decisions/022-spawner-watched.md */
#include "base/log.h"
#include "base/str.h"
#include "base/version.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include "spawn/starter.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUICK_S   2 /* one that ends sooner cannot be helped by starting it again */
#define QUICK_MAX 5

static volatile sig_atomic_t child;
static void pass_on(int sig) { (void)kill((pid_t)child, sig); }

/* Returns in the spawner. In the watcher it does not. */
static void watch(int starter)
{
    const struct sigaction sa = {.sa_handler = pass_on};
    int quick = 0;
    for (;;) {
        time_t begun = time(NULL);
        int status = 0;
        pid_t pid = fork();
        if (!pid)
            return;
        if (pid < 0)
            exit(1);
        child = pid;
        (void)prctl(PR_SET_NAME, "hutch-watch");
        (void)sigaction(SIGTERM, &sa, NULL);
        (void)sigaction(SIGINT, &sa, NULL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (WIFEXITED(status)) /* as it was told to, or with a reason that starting it again does not mend */
            exit(WEXITSTATUS(status));
        quick = time(NULL) - begun < QUICK_S ? quick + 1 : 0;
        (void)fprintf(stderr, "hutch-spawn: killed by signal %d%s\n", WTERMSIG(status), quick < QUICK_MAX ? ", starting it again" : " again and again: giving up");
        if (quick == QUICK_MAX) {
            struct err e;
            (void)err_set(&e, E_INTERNAL, "killed by signal %d again and again", WTERMSIG(status));
            spawn_tell(starter, &e);
            exit(1);
        }
        (void)usleep(20000);
    }
}

#define SYNOPSIS \
    "usage: hutch-spawn [--watch] --home DIR --run DIR --share DIR --bin DIR [--allow-uid N] [--egress-uid N] [--starter FD]\n" \
    "       hutch-spawn --try\n"
static int usage(void)
{
    (void)fputs(SYNOPSIS, stderr);
    return 64;
}

static const char man[] =
    ".TH HUTCH\\-SPAWN 8 \"\" \"hutch " HUTCH_VERSION "\" \"System administration\"\n"
    ".SH NAME\nhutch\\-spawn \\- the part of hutch that stays root\n"
    ".SH SYNOPSIS\n.B hutch\\-spawn\n[\\-\\-watch] \\-\\-home DIR \\-\\-run DIR \\-\\-share DIR \\-\\-bin DIR "
    "[\\-\\-allow\\-uid N] [\\-\\-egress\\-uid N]\n.br\n.B hutch\\-spawn\n\\-\\-try\n"
    ".SH DESCRIPTION\n.B hutch\\-spawn\nmakes namespaces, mounts and control groups and starts what runs in them.\n"
    ".BR hutchd (8)\nstarts it; nobody else has to.\nIt takes requests from that daemon only, from a closed list, over a socket.\n"
    "It outlives the daemon, so that sandboxes survive an upgrade, and ends with `hutch down`.\n"
    "Its log is log/spawn.log in the home.\n"
    ".SH OPTIONS\n.TP\n.B \\-\\-watch\nStart it again when a signal ended it.\n"
    ".TP\n.BI \\-\\-home \" DIR\"\nState of the daemon.\n.TP\n.BI \\-\\-run \" DIR\"\nSockets and locks.\n"
    ".TP\n.BI \\-\\-share \" DIR\"\nSeccomp profiles and tools.\n.TP\n.BI \\-\\-bin \" DIR\"\nThe other programs of hutch.\n"
    ".TP\n.BI \\-\\-allow\\-uid \" N\"\nThe user id that may send requests.\n"
    ".TP\n.BI \\-\\-egress\\-uid \" N\"\nThe user id of the network gate.\n"
    ".TP\n.B \\-\\-try\nSay whether this host allows the mounts that sandboxes need, and exit.\n"
    ".TP\n.B \\-\\-version\nPrint the version.\n"
    ".SH SEE ALSO\n.BR hutchd (8),\n.BR hutch (1)\n";

/* For `hutchd --doctor`, which has no spawner to ask: features as SP_HELLO gives them, or why not. */
static int try_mounts(void)
{
    struct shelf shelf;
    struct err e;
    if (sys_unshare(NS_MOUNT) < 0 || sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_PRIVATE, NULL) < 0) {
        printf("private mount namespace: %s\n", strerror(errno));
        return 1;
    }
    if (shelf_open(&shelf, false, &e) || shelf_try(&shelf, &e)) {
        printf("%s\n", e.msg);
        return 1;
    }
    printf("%d\n", SP_FEAT_MOUNTS_OK | (shelf.ns >= 0 ? SP_FEAT_SHELF : 0));
    return 0;
}

int main(int argc, char **argv)
{
    static struct server s;
    struct err e;
    uint64_t uid = 0, egress = 0, starter = 0;
    bool watched = argc > 1 && !strcmp(argv[1], "--watch");
    argc -= watched, argv += watched;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("hutch-spawn %s\n", version_full);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--man")) {
        (void)fputs(man, stdout);
        return 0;
    }
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        (void)fputs(SYNOPSIS "hutchd starts it; see hutch-spawn(8).\n", stdout);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--try"))
        return try_mounts();
    for (int i = 1; i < argc; i += 2) {
        const char *v = argv[i + 1];
        if (i + 1 >= argc)
            return usage();
        if (!strcmp(argv[i], "--home"))
            s.home = v;
        else if (!strcmp(argv[i], "--run"))
            s.run = v;
        else if (!strcmp(argv[i], "--share"))
            s.share = v;
        else if (!strcmp(argv[i], "--bin"))
            s.bin = v;
        else if (!strcmp(argv[i], "--egress-uid") && str_u64(str_of(v), &egress) && egress && egress <= 0xfffffffeu)
            s.egress_uid = (uint32_t)egress;
        else if (!strcmp(argv[i], "--starter") && str_u64(str_of(v), &starter) && starter > 2 && starter < 10)
            s.starter = (int)starter;
        else if (strcmp(argv[i], "--allow-uid") || !str_u64(str_of(v), &uid) || uid > 0xfffffffeu)
            return usage();
    }
    if (!s.home || !s.run || !s.share || !s.bin || s.home[0] != '/' || s.run[0] != '/' || strlen(s.home) > 256 || strlen(s.run) > 256 ||
        strlen(s.share) > 256 || strlen(s.bin) > 256)
        return usage();
    s.allow_uid = (uint32_t)uid;
    if (watched)
        watch(s.starter ? s.starter : -1);
    for (int sig = 1; sig < 32; sig++) /* what our starter ignored and the watcher catches, sandboxes must not */
        (void)signal(sig, SIG_DFL);
    log_init("hutch-spawn", LOG_INFO);
    if (s.starter) { /* low numbers are for what children get */
        int low = s.starter;
        s.starter = fcntl(low, F_DUPFD_CLOEXEC, 10);
        (void)close(low);
        if (s.starter < 0)
            return 1;
    }
    int tell = s.starter ? s.starter : -1;
    if (server_init(&s, &e)) {
        log_error("%s", e.msg);
        server_abandon(&s);
        spawn_tell(tell, &e);
        return err_exit(e.code);
    }
    spawn_tell(tell, NULL);
    log_info("ready: cgroup v%d, ids from %u", s.cg.version, s.uid_base);
    int rc = server_run(&s);
    server_fini(&s);
    return rc ? 1 : 0;
}
