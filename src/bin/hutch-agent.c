/* hutch-agent: PID 1 inside a sandbox. See guest/agent.h.
 *
 *   hutch-agent --container --fd N    started by the jail, everything mounted
 *   hutch-agent --gvisor --fd N       likewise, by runsc
 *   hutch-agent --keeper --fd N       serves the files of a volume, which is its root
 *   hutch-agent --isolate LANG --fd N likewise; warden of one interpreter (guest/isolate.h)
 *   /init | hutch-agent --vm          first program of a VM's initramfs */
#include "base/str.h"
#include "guest/agent.h"
#include "guest/init_vm.h"
#include "guest/sys.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

/* 0, 1 and 2 must be something harmless: a started process gets its own, and nothing of ours may land there. */
static int raise_fd(int fd)
{
    int moved = fd >= 0 && fd <= 2 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd;
    for (int i = 0; i <= 2; i++)
        if (i == fd || fcntl(i, F_GETFD) < 0) {
            int n = open("/dev/null", O_RDWR);
            if (n >= 0 && n != i) {
                (void)dup2(n, i);
                close(n);
            }
        }
    return moved;
}

/* A process of its own for volumes, from the beginning, so that snapshots have it; see guest/share.c. */
static void start_volumes(int fd, int agent_fd)
{
    struct agent_opts o = {.fd = fd, .vm = true, .role = ROLE_SHARE};
    if (fd < 0 || fork())
        return;
    (void)close(agent_fd);
    (void)prctl(PR_SET_NAME, "hutch-volumes", 0, 0, 0);
    _exit(agent_run(&o));
}

/* runsc lays a file system in memory over an empty /tmp. What is written there is to be on the disk, as in every sandbox: it
 * counts as disk, and a pause keeps it. */
static void uncover_tmp(void) { (void)umount2("/tmp", 0); }

int main(int argc, char **argv)
{
    struct agent_opts o = {.fd = -1};
    const char *name = strrchr(argv[0], '/');
    o.vm = !strcmp(name ? name + 1 : argv[0], "init");
    for (int i = 1; i < argc; i++) {
        uint64_t v;
        if (!strcmp(argv[i], "--version")) {
            (void)printf("hutch-agent %s\n", HUTCH_VERSION);
            return 0;
        }
        if (!strcmp(argv[i], "--vm"))
            o.vm = true;
        else if (!strcmp(argv[i], "--container"))
            o.vm = false;
        else if (!strcmp(argv[i], "--gvisor"))
            o.vm = false, uncover_tmp();
        else if (!strcmp(argv[i], "--keeper"))
            o.vm = false, o.role = ROLE_KEEPER;
        else if (!strcmp(argv[i], "--isolate") && i + 1 < argc)
            o.isolate = argv[++i];
        else if (!strcmp(argv[i], "--fd") && i + 1 < argc && str_u64(str_of(argv[i + 1]), &v) && v < 65536)
            o.fd = (int)v, i++;
        else if (!o.vm) /* the kernel hands its unknown options to init: ignored there */
            return (void)dprintf(2, "hutch-agent: unknown option %s\n", argv[i]), 64;
    }
    if (o.vm) {
        struct err e = {0};
        int volumes = -1;
        if ((o.fd = init_vm(&volumes, &e)) < 0) {
            sys_console("hutch-agent: %s\n", e.msg);
            sys_power_off();
        }
        start_volumes(volumes, o.fd);
        if (volumes >= 0)
            (void)close(volumes);
    } else {
        if (o.fd < 0)
            return (void)dprintf(2, "usage: hutch-agent --container|--gvisor|--keeper --fd N\n"),
                   64;
        o.fd = raise_fd(o.fd);
    }
    int rc = agent_run(&o);
    if (o.vm) /* only reached when the agent could not start */
        sys_power_off();
    return rc;
}
