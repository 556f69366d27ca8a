/* The agent's dispatcher with everything behind it: requests with arbitrary
 * records, data, credit and cancels against a real agent in this process.
 * Files live in a private tmpfs root that holds nothing but /proc, /dev/null,
 * an /etc and what the command line names (corpus, one input), so no
 * operation can reach the machine; programs to start do not exist there.
 * Needs root for the namespaces; exit 77 where there is none to be had. */
#include "base/enc.h"
#include "guest/agent.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct agent a;
static int host = -1;

static void must_do(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "SKIP: fuzz_agent cannot be set up here: %s: %s\n", what, strerror(errno));
        _exit(77);
    }
}
#define must(x) must_do((x), #x)

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* The folder or file `path` of the machine, at the same path below the private root (the working directory will be "/"). */
static void keep(const char *root, const char *path)
{
    char at[512];
    struct stat st;
    if (stat(path, &st))
        return; /* libFuzzer will say so */
    must((size_t)snprintf(at, sizeof at, "%s/%s", root, path) < sizeof at - 1);
    for (char *p = at + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            must(!mkdir(at, 0755) || errno == EEXIST);
            *p = '/';
        }
    must(!(S_ISDIR(st.st_mode) ? mkdir(at, 0755) : mknod(at, S_IFREG | 0644, 0)) || errno == EEXIST);
    must(!mount(path, at, NULL, MS_BIND, NULL));
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int sv[2];
    must(!unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC));
    must(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    must(!mount("tmpfs", "/mnt", "tmpfs", 0, "size=64m,nr_inodes=20000"));
    for (int i = 1; i < *argc; i++)
        if ((*argv)[i][0] != '-')
            keep("/mnt", (*argv)[i]);
    must(!chdir("/mnt") && !mkdir("etc", 0755) && !mkdir("dev", 0755) && !mkdir("proc", 0755) && !mkdir("w", 0755));
    must(!mknod("dev/null", S_IFCHR | 0666, makedev(1, 3)));
    must(!mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) && !mount(NULL, "proc", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
    must(!chroot(".") && !chdir("/"));
    put("/etc/passwd", "root:x:0:0::/w:/bin/sh\n");
    put("/etc/group", "root:x:0:\n");
    must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv));
    host = sv[0];
    struct err e = {0};
    must(!agent_init(&a, &(struct agent_opts){.fd = sv[1]}, &e));
    return 0;
}

static void drain(void)
{
    char b[65536];
    while (read(host, b, sizeof b) > 0)
        ;
}

static void turn(int n)
{
    while (n-- > 0) {
        if (!agent_turn(&a, false))
            a.stop = false; /* OP_SHUTDOWN: the caller would end here; go on */
        drain();
    }
}

/* Input: pieces of { kind, stream, length(2), bytes }. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static uint32_t epoch;
    struct buf b = {0};
    frame_put_sync(&b, ++epoch ? epoch : ++epoch, false, true);
    unsigned char cfg = OP_CONFIGURE;
    frame_put(&b, epoch, FR_REQ, 0, 1000, &cfg, 1);
    for (size_t at = 0; at + 4 <= n;) {
        size_t k = (size_t)p[at + 2] | (size_t)(p[at + 3] & 3) << 8;
        uint8_t kind = p[at], stream = p[at + 1];
        at += 4;
        if (k > n - at)
            k = n - at;
        uint8_t type = (uint8_t)(1 + kind % 7);
        if (type == FR_RES || type == FR_EVENT)
            type = FR_REQ;
        if (!(type == FR_REQ && (k == 0 || p[at] == OP_SYNC)))
            frame_put(&b, epoch, type, (uint8_t)(kind / 7 % CH_MAX), 1 + stream % 8u, p + at, k);
        at += k;
    }
    for (size_t at = 0; at < b.n;) {
        ssize_t k = write(host, b.p + at, b.n - at);
        if (k > 0)
            at += (size_t)k;
        turn(1);
    }
    buf_free(&b);
    turn(6);
    return 0;
}
