#define _GNU_SOURCE
/* A stand-in for hutch-agent in the spawner's tests: PID 1 that obeys lines on
 * descriptor 3 and answers with text, ended by a line with a single dot. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *t)
{
    size_t n = strlen(t);
    while (n) {
        ssize_t w = write(3, t, n);
        if (w <= 0)
            _exit(1);
        t += w, n -= (size_t)w;
    }
}

static void cat(const char *path)
{
    char b[4097];
    int fd = open(path, O_RDONLY);
    ssize_t n;
    if (fd < 0) {
        say(strerror(errno));
        return;
    }
    while ((n = read(fd, b, 4096)) > 0) {
        b[n] = 0;
        say(b);
    }
    if (n < 0)
        say(strerror(errno));
    close(fd);
}

static void ls(const char *path)
{
    DIR *d = opendir(path);
    if (!d) {
        say(strerror(errno));
        return;
    }
    for (struct dirent *t; (t = readdir(d));)
        if (t->d_name[0] != '.')
            say(t->d_name), say(" ");
    closedir(d);
}

static const char *sys_try(const char *name)
{
    long r = -1;
    errno = 0;
    if (!strcmp(name, "mount"))
        r = syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, "");
    else if (!strcmp(name, "umount"))
        r = syscall(SYS_umount2, "/proc", 2);
    else if (!strcmp(name, "unshare"))
        r = syscall(SYS_unshare, 0x10000000);
    else if (!strcmp(name, "clone_newuser"))
        r = syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0);
    else if (!strcmp(name, "clone3"))
        r = syscall(435, NULL, 0);
    else if (!strcmp(name, "bpf"))
        r = syscall(SYS_bpf, 0, 0, 0);
    else if (!strcmp(name, "keyctl"))
        r = syscall(SYS_keyctl, 0, -3, 0);
    else if (!strcmp(name, "io_uring"))
        r = syscall(425, 1, NULL);
    else if (!strcmp(name, "fsopen"))
        r = syscall(430, "tmpfs", 0);
    else if (!strcmp(name, "setns"))
        r = syscall(SYS_setns, 0, 0);
    else if (!strcmp(name, "syslog"))
        r = syscall(SYS_syslog, 10, NULL, 0);
    else if (!strcmp(name, "settime"))
        r = clock_settime(CLOCK_REALTIME, &(struct timespec){1, 0});
    else if (!strcmp(name, "tiocsti"))
        r = ioctl(0, TIOCSTI, "x");
    else if (!strcmp(name, "sethostname"))
        r = sethostname("x", 1);
    else if (!strcmp(name, "ptrace1"))
        r = syscall(SYS_ptrace, PTRACE_ATTACH, 0x100000001L, 0, 0);
    else if (!strcmp(name, "mknod"))
        r = mknod("/tmp/sda", S_IFBLK | 0600, 0x800);
    else if (!strcmp(name, "handle"))
        r = syscall(SYS_open_by_handle_at, -1, NULL, 0);
    else if (!strcmp(name, "personality"))
        r = syscall(SYS_personality, 0x0400000);
    else if (!strcmp(name, "x32"))
        r = syscall(0x40000000 + 39);
    else if (!strcmp(name, "sysctl")) {
        int fd = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY);
        r = fd;
    }
    return r >= 0 ? "OK" : errno == EPERM ? "EPERM" : errno == ENOSYS ? "ENOSYS" : strerror(errno);
}

static void in_child(void (*fn)(long), long arg, char *out)
{
    pid_t p = fork();
    if (p < 0) {
        sprintf(out, "fork: %s", strerror(errno));
        return;
    }
    if (!p) {
        fn(arg);
        _exit(0);
    }
    int st;
    waitpid(p, &st, 0);
    sprintf(out, WIFSIGNALED(st) ? "signal %d" : "exit %d", WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
}

static void eat(long mib)
{
    for (long i = 0; i < mib; i++)
        memset(malloc(1 << 20), 1, 1 << 20);
}
static void x32(long a) { (void)a; (void)sys_try("x32"); }

static void bomb(char *out)
{
    int n = 0;
    pid_t p[4096];
    while (n < 4096 && (p[n] = fork()) >= 0) {
        if (!p[n]) {
            pause();
            _exit(0);
        }
        n++;
    }
    sprintf(out, "%d %s", n, n < 4096 ? strerror(errno) : "no limit");
    for (int i = 0; i < n; i++)
        kill(p[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
}

static void fill(char *out)
{
    static char b[1 << 20];
    long mib = 0;
    int fd = open("/fill", O_CREAT | O_WRONLY, 0600), e = 0;
    while (mib < 100000 && !e) {
        memset(b, (int)mib, sizeof b);
        e = write(fd, b, sizeof b) == (ssize_t)sizeof b ? 0 : errno ? errno : ENOSPC;
        mib += !e;
    }
    fsync(fd);
    close(fd);
    sprintf(out, "%ld %s", mib, strerror(e));
    unlink("/fill");
}

static void inodes(char *out)
{
    char path[32];
    int n = 0, fd = 0;
    mkdir("/many", 0700);
    for (; n < 2000000; n++) {
        sprintf(path, "/many/%d", n);
        if ((fd = open(path, O_CREAT | O_WRONLY, 0600)) < 0)
            break;
        close(fd);
    }
    sprintf(out, "%d %s", n, strerror(errno));
}

int main(int argc, char **argv)
{
    char line[512], out[512];
    FILE *f = fdopen(3, "r");
    (void)argc, (void)argv;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *arg = strchr(line, ' ');
        if (arg)
            *arg++ = 0;
        out[0] = 0;
        if (!strcmp(line, "cat"))
            cat(arg);
        else if (!strcmp(line, "ls"))
            ls(arg);
        else if (!strcmp(line, "sys"))
            say(sys_try(arg));
        else if (!strcmp(line, "x32"))
            in_child(x32, 0, out);
        else if (!strcmp(line, "eat"))
            in_child(eat, atol(arg), out);
        else if (!strcmp(line, "bomb"))
            bomb(out);
        else if (!strcmp(line, "fill"))
            fill(out);
        else if (!strcmp(line, "inodes"))
            inodes(out);
        else if (!strcmp(line, "host"))
            gethostname(out, sizeof out);
        else if (!strcmp(line, "ids"))
            sprintf(out, "%d %d %d %d", getpid(), getuid(), getgid(), getgroups(0, NULL));
        else if (!strcmp(line, "as")) { /* become a user, then root again by way of a set-id program: only the first half here */
            sprintf(out, "%d %d", setgroups(0, NULL), fork() ? 0 : (_exit(setresuid(1000, 1000, 1000)), 0));
            wait(NULL);
        } else if (!strcmp(line, "write")) {
            int fd = open(arg, O_CREAT | O_WRONLY | O_TRUNC, 0644);
            sprintf(out, "%s", fd < 0 ? strerror(errno) : write(fd, "hi\n", 3) == 3 ? "OK" : strerror(errno));
            if (fd >= 0)
                close(fd);
        } else if (!strcmp(line, "orphan")) { /* a grandchild that would live on */
            if (!fork()) {
                setsid();
                if (!fork())
                    pause();
                _exit(0);
            }
            wait(NULL);
        } else if (!strcmp(line, "stderr"))
            (void)!write(2, arg, strlen(arg));
        else if (!strcmp(line, "fds"))
            ls("/proc/self/fd");
        else if (!strcmp(line, "exit"))
            exit(atoi(arg));
        else
            say("?");
        say(out);
        say("\n.\n");
    }
    return 0;
}
