/* A private spawner on a temporary home with a tiny template, for tests. Uses
 * the built hutch-spawn beside the test if there is one, else runs the server
 * in a forked child. Needs root, musl-gcc and mkfs.ext4. */
#pragma once
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "spawn/client.h"
#include "spawn/server.h"
#include "test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TID "t00000000000000000000"

struct fixture { char dir[64]; char tag[32]; /* of its control groups */ char sock[128]; pid_t pid; int fd; struct spawn_events ev; };
static struct fixture fx;

static inline int sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline int sh(const char *fmt, ...)
{
    char cmd[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    return system(cmd);
}

static inline void fx_source_dir(char *out, size_t n)
{
    char abs[PATH_MAX];
    CHECK(realpath(__FILE__, abs)); /* run from the top of the tree */
    snprintf(out, n, "%s", abs);
    *strrchr(out, '/') = 0;
}

static inline void fx_connect(void)
{
    struct err e;
    for (int i = 0; i < 500; i++) {
        fx.fd = spawn_connect(fx.sock, &e);
        if (fx.fd >= 0)
            return;
        usleep(10000);
    }
    printf("# %s\n", e.msg);
    CHECK(!"spawner answers");
}

static inline void fx_spawner(void)
{
    char home[96], run[96], bin[96], share[PATH_MAX], exe[PATH_MAX];
    snprintf(home, sizeof home, "%s/home", fx.dir);
    snprintf(run, sizeof run, "%s/run", fx.dir);
    snprintf(bin, sizeof bin, "%s/bin", fx.dir);
    fx_source_dir(share, sizeof share);
    strcat(share, "/../../../share");
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    for (int i = 0; i < 3; i++)
        if (strrchr(exe, '/'))
            *strrchr(exe, '/') = 0;
    strcat(exe, "/hutch-spawn");
    fx.pid = fork();
    if (!fx.pid) {
        char log[96];
        snprintf(log, sizeof log, "%s/log", fx.dir);
        int fd = open(log, O_CREAT | O_APPEND | O_WRONLY, 0600);
        alarm(0);
        dup2(fd, 1);
        dup2(fd, 2);
        if (!access(exe, X_OK))
            execl(exe, exe, "--home", home, "--run", run, "--share", share, "--bin", bin, (char *)NULL);
        static struct server s;
        struct err e;
        s.home = home, s.run = run, s.share = share, s.bin = bin;
        log_init("hutch-spawn", LOG_DEBUG);
        if (server_init(&s, &e)) {
            log_error("%s", e.msg);
            _exit(1);
        }
        server_run(&s);
        server_fini(&s);
        _exit(0);
    }
    snprintf(fx.sock, sizeof fx.sock, "%s/spawn.sock", run);
}

/* A failed test leaves no spawner: it ends itself and its boxes on SIGTERM. */
static inline void fx_abandon(void)
{
    if (fx.pid > 0)
        kill(fx.pid, SIGTERM);
}

/* As spawn/server_own.c makes it: of the home's device and inode, so that the same path in another root is another tag. */
static inline void fx_name_tag(void)
{
    char home[96];
    struct stat st;
    snprintf(home, sizeof home, "%s/home", fx.dir);
    CHECK(!stat(home, &st));
    uint64_t id[2] = {st.st_dev, st.st_ino}, h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof id; i++)
        h = (h ^ ((unsigned char *)id)[i]) * 1099511628211u;
    snprintf(fx.tag, sizeof fx.tag, "hutch-%016llx", (unsigned long long)h);
}

static inline void fx_start(void)
{
    if (getuid())
        SKIP("needs root");
    atexit(fx_abandon);
    if (system("command -v musl-gcc mkfs.ext4 >/dev/null"))
        SKIP("needs musl-gcc and mkfs.ext4");
    char src[PATH_MAX];
    fx_source_dir(src, sizeof src);
    strcpy(fx.dir, "/tmp/hutch-spawn-test-XXXXXX");
    CHECK(mkdtemp(fx.dir));
    CHECK_INT(sh("cd %s && mkdir -p bin run home/templates/" TID " root/tmp root/etc root/sbin root/proc root/dev root/run && echo library > bin/hutch-zygote.so && musl-gcc -static -O1 -o bin/hutch-agent %s/init.c "
                 "&& cp bin/hutch-agent root/sbin/init && mkfs.ext4 -q -F -E nodiscard -d root home/templates/" TID "/rootfs.ext4 16m >/dev/null",
                 fx.dir, src), 0);
    fx_name_tag();
    fx_spawner();
    fx_connect();
}

static inline void fx_log(void) { sh("sed 's/^/# /' %s/log | tail -20", fx.dir); }

static inline void fx_stop(void)
{
    int st = 0;
    close(fx.fd);
    kill(fx.pid, SIGTERM);
    waitpid(fx.pid, &st, 0);
    fx.pid = 0;
    if (!WIFEXITED(st) || WEXITSTATUS(st))
        fx_log();
    CHECK(WIFEXITED(st) && !WEXITSTATUS(st));
    sh("rm -rf %s", fx.dir);
}

static inline int call(uint32_t op, const char *id, struct sp_rep *rep, int *fds, int *nfds, struct err *e)
{
    struct sp_req q = {.op = op};
    if (id)
        strcpy(q.u.id.id, id);
    return spawn_call_sync(fx.fd, &q, NULL, 0, rep, fds, nfds, &fx.ev, 20000, e);
}

static inline struct sp_req box_req(const char *id)
{
    struct sp_req q = {.op = SP_BOX_START, .u.box = {.limit = {.memory_mib = 128, .cpu_millis = 1000, .pids_max = 64}, .disk_mib = 64}};
    strcpy(q.u.box.id, id);
    strcpy(q.u.box.template_id, TID);
    strcpy(q.u.box.hostname, "testbox");
    return q;
}

struct tbox { char id[SP_ID]; int pidfd, chan; struct sp_info info; };
static inline struct tbox box_start_req(struct sp_req q)
{
    struct tbox b;
    struct sp_rep rep;
    struct err e;
    int fds[3], n = 3;
    memcpy(b.id, q.u.box.id, sizeof b.id);
    if (spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e)) {
        printf("# start: %s\n", e.msg);
        fx_log();
        CHECK(!"box starts");
    }
    CHECK_INT(n, 2);
    b.pidfd = fds[0], b.chan = fds[1], b.info = rep.u.info;
    return b;
}
static inline struct tbox box_start(void)
{
    char id[SP_ID] = {0};
    id_make('i', id);
    return box_start_req(box_req(id));
}

/* Ask the test init; the answer is in a static buffer. */
static inline const char *ask(int chan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline const char *ask(int chan, const char *fmt, ...)
{
    static char out[65536];
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    CHECK(fd_write_all(chan, line, (size_t)n));
    size_t got = 0;
    for (;;) {
        struct pollfd p = {.fd = chan, .events = POLLIN};
        if (poll(&p, 1, 30000) != 1)
            break;
        ssize_t r = read(chan, out + got, sizeof out - 1 - got);
        if (r <= 0)
            break;
        got += (size_t)r;
        out[got] = 0;
        if (got >= 3 && !strcmp(out + got - 3, "\n.\n")) {
            out[got - 3] = 0;
            return out;
        }
    }
    return "(gone)";
}

static inline void box_gone(struct tbox *b)
{
    struct sp_rep rep;
    struct err e;
    close(b->pidfd);
    close(b->chan);
    if (call(SP_REMOVE, b->id, &rep, NULL, NULL, &e)) {
        printf("# remove: %s\n", e.msg);
        CHECK(!"box is removed");
    }
}

/* ---- leak census: what a host has more after than before ------------------------------------------------------ */
struct census { int loops, cgroups, mounts, netns; };
static inline int count_lines(const char *cmd)
{
    FILE *f = popen(cmd, "r");
    int n = 0;
    if (fscanf(f, "%d", &n) != 1)
        n = -1;
    pclose(f);
    return n;
}
/* Others may run spawners on this host: only our tag counts. */
static inline struct census census(void)
{
    char find[160];
    snprintf(find, sizeof find, "find /sys/fs/cgroup -type d -path '*%s*' 2>/dev/null | wc -l", *fx.tag ? fx.tag : "/no/such");
    return (struct census){count_lines(({ static char c[200]; snprintf(c, sizeof c, "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '%s/'", fx.dir); c; })),
                           count_lines(find), count_lines("wc -l < /proc/self/mountinfo"),
                           count_lines("ls -l /proc/[0-9]*/ns/net 2>/dev/null | grep -o 'net:.*' | sort -u | wc -l")};
}

static inline void expect_sys(int chan, const char *name, const char *want)
{
    const char *got = ask(chan, "sys %s", name);
    if (strcmp(got, want))
        printf("# %s: %s, want %s\n", name, got, want);
    CHECK(!strcmp(got, want));
}
