/* hutch-spawn: the only root code that runs after start. Everything it can be
 * asked is in spawn/op.h.
 *
 * With --watch two processes: the spawner, and a watcher that does nothing but
 * wait for its end and start it again when a signal ended it. hutchd could not:
 * it has given up root by then. docs/decisions/022-spawner-watched.md */
#include "base/log.h"
#include "base/str.h"
#include "spawn/server.h"
#include <errno.h>
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
static void watch(void)
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
        (void)fprintf(stderr, "hutch-spawn: ended by signal %d%s\n", WTERMSIG(status), quick < QUICK_MAX ? ", starting it again" : " again and again: giving up");
        if (quick == QUICK_MAX)
            exit(1);
        (void)usleep(20000);
    }
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: hutch-spawn [--watch] --home DIR --run DIR --share DIR --bin DIR [--allow-uid N] [--egress-uid N]\n");
    return 64;
}

int main(int argc, char **argv)
{
    static struct server s;
    struct err e;
    uint64_t uid = 0, egress = 0;
    bool watched = argc > 1 && !strcmp(argv[1], "--watch");
    argc -= watched, argv += watched;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("hutch-spawn %s\n", HUTCH_VERSION);
        return 0;
    }
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
        else if (strcmp(argv[i], "--allow-uid") || !str_u64(str_of(v), &uid) || uid > 0xfffffffeu)
            return usage();
    }
    if (!s.home || !s.run || !s.share || !s.bin || s.home[0] != '/' || s.run[0] != '/' || strlen(s.home) > 256 || strlen(s.run) > 256 ||
        strlen(s.share) > 256 || strlen(s.bin) > 256)
        return usage();
    s.allow_uid = (uint32_t)uid;
    if (watched)
        watch();
    for (int sig = 1; sig < 32; sig++) /* what our starter ignored and the watcher catches, sandboxes must not */
        (void)signal(sig, SIG_DFL);
    log_init("hutch-spawn", LOG_INFO);
    if (server_init(&s, &e)) {
        log_error("%s", e.msg);
        return err_exit(e.code);
    }
    log_info("ready: cgroup v%d, ids from %u", s.cg.version, s.uid_base);
    int rc = server_run(&s);
    server_fini(&s);
    return rc ? 1 : 0;
}
