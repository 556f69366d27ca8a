/* hutch-spawn: the only root code that runs after start. Everything it can be
 * asked is in spawn/op.h. */
#include "base/log.h"
#include "base/str.h"
#include "spawn/server.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
    (void)fprintf(stderr, "usage: hutch-spawn --home DIR --run DIR --share DIR --bin DIR [--allow-uid N] [--egress-uid N]\n");
    return 64;
}

int main(int argc, char **argv)
{
    static struct server s;
    struct err e;
    uint64_t uid = 0, egress = 0;
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
    for (int sig = 1; sig < 32; sig++) /* what our starter ignored, sandboxes must not */
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
