/* cgroup2 against a directory tree of plain files, both generations' mount
 * discovery against sample mount tables, and v1 for real when there is one. */
#include "base/cleanup.h"
#include "base/err.h"
#include "jail/cgroup.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static const char hybrid[] = "23 1 0:20 / /proc rw - proc proc rw\n"
                             "30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
                             "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
                             "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(cgroup, finds_mounts_by_option)
{
    char at[64];
    CHECK(cg_mount_find(hybrid, "cgroup", "cpuacct", at, sizeof at));
    CHECK_STR(at, "/sys/fs/cgroup/cpu,cpuacct");
    CHECK(cg_mount_find(hybrid, "cgroup", "memory", at, sizeof at));
    CHECK_STR(at, "/sys/fs/cgroup/memory");
    CHECK(cg_mount_find(hybrid, "cgroup2", NULL, at, sizeof at));
    CHECK_STR(at, "/sys/fs/cgroup/unified");
    CHECK(!cg_mount_find(hybrid, "cgroup", "pids", at, sizeof at));
    CHECK(!cg_mount_find(hybrid, "cgroup", "mem", at, sizeof at));
    CHECK(!cg_mount_find("", "cgroup", NULL, at, sizeof at));
}

static char dir[64];
static void put(const char *path, const char *text)
{
    char p[256];
    snprintf(p, sizeof p, "%s/%s", dir, path);
    FILE *f = fopen(p, "w");
    CHECK(f);
    fputs(text, f);
    fclose(f);
}
static const char *get(const char *path)
{
    static char t[256];
    char p[256];
    snprintf(p, sizeof p, "%s/%s", dir, path);
    FILE *f = fopen(p, "r");
    CHECK(f);
    size_t n = fread(t, 1, sizeof t - 1, f);
    t[n] = 0;
    fclose(f);
    return t;
}

/* What the kernel makes in a new directory. */
static void fake_group(const char *name)
{
    static const char *const files[] = {"cgroup.subtree_control", "cgroup.kill", "cgroup.freeze", "cgroup.procs", "memory.max", "memory.swap.max",
                                        "memory.current", "memory.peak", "memory.stat", "memory.events", "cpu.max", "cpu.weight", "cpu.stat",
                                        "pids.max", "pids.current"};
    char p[256];
    snprintf(p, sizeof p, "%s/%s", dir, name);
    (void)mkdir(p, 0755);
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(p, sizeof p, "%s/%s", name, files[i]);
        put(p, "");
    }
}

static void fake_host(struct cgroup_host *h)
{
    char table[160], cmd[160];
    struct err e;
    strcpy(dir, "/tmp/hutch-cgroup-test-XXXXXX");
    CHECK(mkdtemp(dir));
    fake_group("fs");
    fake_group("fs/hutch-test");
    snprintf(table, sizeof table, "30 23 0:26 / %s/fs rw - cgroup2 cgroup2 rw\n", dir);
    put("mountinfo", table);
    snprintf(cmd, sizeof cmd, "%s/mountinfo", dir);
    if (cgroup_host_open(h, cmd, "hutch-test", &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"opens");
    }
}

TEST(cgroup2, writes_limits_reads_usage)
{
    struct cgroup_host h;
    struct cgroup g;
    struct cgroup_usage u;
    struct err e;
    char cmd[128];
    fake_host(&h);
    CHECK_INT(h.version, 2);
    CHECK(h.v2_kill);
    CHECK_STR(get("fs/cgroup.subtree_control"), "+cpu +memory +pids");
    CHECK_STR(get("fs/hutch-test/cgroup.subtree_control"), "+cpu +memory +pids");
    fake_group("fs/hutch-test/box");
    CHECK_INT(cgroup_make(&h, "box", &(struct cgroup_limit){.memory_bytes = 256u << 20, .cpu_millis = 1500, .pids_max = 100, .low_priority = true}, &g, &e), 0);
    CHECK_STR(get("fs/hutch-test/box/memory.max"), "268435456");
    CHECK_STR(get("fs/hutch-test/box/memory.swap.max"), "0");
    CHECK_STR(get("fs/hutch-test/box/cpu.max"), "150000 100000");
    CHECK_STR(get("fs/hutch-test/box/cpu.weight"), "2");
    CHECK_STR(get("fs/hutch-test/box/pids.max"), "100");
    int fd[CG_TREES];
    CHECK_INT(cgroup_join_fds(&g, fd, &e), 0); /* born in it instead */
    put("fs/hutch-test/box/memory.max", "");
    put("fs/hutch-test/box/pids.max", "");
    put("fs/hutch-test/box/cpu.max", "");
    CHECK_INT(cgroup_set(&h, &g, &(struct cgroup_limit){0}, &e), 0);
    CHECK_STR(get("fs/hutch-test/box/memory.max"), "max");
    CHECK_STR(get("fs/hutch-test/box/cpu.max"), "max 100000");
    CHECK_STR(get("fs/hutch-test/box/pids.max"), "max");
    put("fs/hutch-test/box/cpu.stat", "usage_usec 1234\nuser_usec 1000\n");
    put("fs/hutch-test/box/memory.current", "4096\n");
    put("fs/hutch-test/box/memory.peak", "8192\n");
    put("fs/hutch-test/box/memory.stat", "anon 1\nfile 77\nkernel 3\nshmem 7\n");
    put("fs/hutch-test/box/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n");
    put("fs/hutch-test/box/pids.current", "12\n");
    cgroup_usage(&h, &g, &u);
    CHECK_INT(u.cpu_ns, 1234000);
    CHECK_INT(u.mem_bytes, 4096);
    CHECK_INT(u.mem_peak, 8192);
    CHECK_INT(u.mem_cache, 70); /* nobody but the box can give back what it keeps in memory files */
    CHECK_INT(u.oom_kills, 3);
    CHECK_INT(u.nproc, 12);
    CHECK_INT(cgroup_freeze(&g, true, &e), 0);
    CHECK_STR(get("fs/hutch-test/box/cgroup.freeze"), "1");
    CHECK_INT(cgroup_kill(&h, &g, &e), 0);
    CHECK_STR(get("fs/hutch-test/box/cgroup.kill"), "1");
    CHECK_INT(cgroup_remove(&h, &g), 1); /* plain files keep the directory busy, as processes would */
    snprintf(cmd, sizeof cmd, "rm -rf %s/fs/hutch-test/box", dir);
    CHECK_INT(system(cmd), 0);
    CHECK_INT(cgroup_remove(&h, &g), 0);
    cgroup_host_close(&h, false);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}

TEST(cgroup, nothing_mounted_is_said)
{
    struct cgroup_host h;
    struct err e;
    char path[128], cmd[128];
    strcpy(dir, "/tmp/hutch-cgroup-test-XXXXXX");
    CHECK(mkdtemp(dir));
    put("mountinfo", "23 1 0:20 / /proc rw - proc proc rw\n");
    snprintf(path, sizeof path, "%s/mountinfo", dir);
    CHECK_INT(cgroup_host_open(&h, path, "hutch-test", &e), -1);
    CHECK_INT(e.code, E_UNSUPPORTED);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}

TEST(cgroup, this_host_limits_and_kills)
{
    struct cgroup_host h;
    struct cgroup g;
    struct cgroup_usage u;
    struct err e;
    char tag[32];
    if (getuid())
        SKIP("needs root");
    snprintf(tag, sizeof tag, "hutch-t%d", (int)getpid());
    if (cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e)) {
        printf("# %s\n", e.msg);
        SKIP("no usable cgroups here");
    }
    CHECK_INT(cgroup_begin(&h, "ready-1", &g, &e), 0);
    int fd[CG_TREES], n = cgroup_join_fds(&g, fd, &e);
    CHECK(n >= 0);
    pid_t pid = fork();
    if (!pid) {
        if (cgroup_join(fd, n, &e))
            _exit(1);
        pid_t up = getpid();
        if (!fork()) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != up)
                _exit(0); /* it was killed before we asked for the signal */
        }
        for (;;)
            pause();
    }
    for (int i = 0; i < n; i++)
        close(fd[i]);
    for (int i = 0; i < 2000 && h.version == 1; i++) {
        cgroup_usage(&h, &g, &u);
        if (u.nproc == 2)
            break;
        usleep(10000);
    }
    /* whoever is in it does not notice that it gets a name and limits */
    e = (struct err){0};
    CHECK_STR(cgroup_finish(&h, "box", &(struct cgroup_limit){.memory_bytes = 64u << 20, .cpu_millis = 500, .pids_max = 16}, &g, &e) ? e.msg : "", "");
    if (h.version == 1) {
        cgroup_usage(&h, &g, &u);
        CHECK_INT(u.nproc, 2);
        CHECK_INT(faccessat(h.tree[CG_PIDS], "ready-1", F_OK, 0), -1);
        auto_fd pids = openat(h.tree[CG_PIDS], "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK_INT((int)cg_read_u64(pids, "pids.max"), 16);
        auto_fd memory = openat(h.tree[CG_MEMORY], "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (!faccessat(memory, "memory.kmem.tcp.limit_in_bytes", F_OK, 0)) /* not in every kernel */
            CHECK_INT((int)cg_read_u64(memory, "memory.kmem.tcp.limit_in_bytes"), 16 << 20);
        if (g.tree[CG_FREEZER] >= 0) {
            CHECK_INT(cgroup_freeze(&g, true, &e), 0);
            CHECK_INT(cgroup_kill(&h, &g, &e), 0); /* frozen ones too */
        } else { /* not born in the cgroup2: only this process is known to us */
            kill(pid, SIGKILL);
        }
        int st;
        CHECK_INT(waitpid(pid, &st, 0), pid);
        CHECK(WIFSIGNALED(st));
    } else {
        kill(pid, SIGKILL);
    }
    int busy = 1;
    for (int i = 0; i < 2000 && (busy = cgroup_remove(&h, &g)); i++)
        usleep(10000);
    CHECK_INT(busy, 0);
    /* what a crash leaves is swept by the next life */
    CHECK_INT(cgroup_make(&h, "left", &(struct cgroup_limit){.memory_bytes = 64u << 20, .cpu_millis = 500, .pids_max = 16}, &g, &e), 0);
    cgroup_host_close(&h, false);
    CHECK_INT(cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e), 0);
    CHECK_INT(cgroup_host_sweep(&h, &e), 1);
    CHECK_INT(cgroup_host_sweep(&h, &e), 0);
    cgroup_host_close(&h, true);
}

/* Whoever has the tree keeps it as long as he lives, whatever name or namespace the next one comes from. */
TEST(cgroup, this_host_one_owner)
{
    struct cgroup_host h, other;
    struct cgroup g;
    struct cgroup_census c;
    struct err e = {0};
    char tag[32], mine[32];
    if (getuid())
        SKIP("needs root");
    snprintf(tag, sizeof tag, "hutch-t%d-own", (int)getpid());
    snprintf(mine, sizeof mine, "hutch-t%d-me", (int)getpid());
    if (cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e)) {
        printf("# %s\n", e.msg);
        SKIP("no usable cgroups here");
    }
    CHECK_INT(cgroup_make(&h, "box",
                          &(struct cgroup_limit){
                              .memory_bytes = 64u << 20, .cpu_millis = 500, .pids_max = 16},
                          &g, &e),
              0);
    /* and whoever is not root cannot even try to lock it */
    for (int i = 0; i <= CG_TREES; i++) {
        struct stat s;
        int fd = i < CG_TREES ? h.tree[i] : h.v2;
        if (fd >= 0)
            CHECK(!fstat(fd, &s) && (s.st_mode & 0777) == 0700);
    }
    pid_t pid = fork();
    if (!pid) { /* as another container: only the tree is shared */
        struct cgroup_host x;
        if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC))
            _exit(3);
        _exit(!cgroup_host_open(&x, "/proc/self/mountinfo", tag, &e) ? 1 : e.code == E_CONFLICT ? 0 : 2);
    }
    int st;
    CHECK_INT(waitpid(pid, &st, 0), pid);
    CHECK_INT(WIFEXITED(st) ? WEXITSTATUS(st) : -1, 0);
    /* numbers likewise, across tags */
    CHECK_INT(cgroup_host_open(&other, "/proc/self/mountinfo", mine, &e), 0);
    int a = cgroup_host_claim(&h, 1000), b = cgroup_host_claim(&other, 1001);
    CHECK(a >= 0 && b >= 0);
    errno = 0;
    CHECK(cgroup_host_claim(&other, 1000) < 0 && errno == EAGAIN);
    /* a lock that anybody could take says nothing */
    struct flock reader = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0x68757463 + 1002, .l_len = 1};
    int procs = openat(h.version == 1 ? h.tree[CG_MEMORY] : h.v2, "../cgroup.procs", O_RDONLY | O_CLOEXEC);
    CHECK(procs >= 0 && !fcntl(procs, F_OFD_SETLK, &reader));
    CHECK(cgroup_host_claim(&other, 1002) < 0 && errno == EACCES);
    close(procs);
    close(a);
    a = cgroup_host_claim(&other, 1000);
    CHECK(a >= 0);
    close(a), close(b);
    /* one without an owner can be looked at and cleared */
    cgroup_host_close(&h, false);
    CHECK(cgroup_host_census(&other, tag, &c) > 0);
    CHECK(c.groups > 0 && !c.procs && !c.unseen);
    CHECK_INT(cgroup_host_clear(&other, tag, &e), 1);
    CHECK_INT(cgroup_host_census(&other, tag, &c), 0);
    cgroup_host_close(&other, true);
}

/* v1 renames; a cgroup2 cannot, and says whose it is in an attribute. */
TEST(cgroup, this_host_named_later)
{
    struct cgroup_host h;
    struct cgroup g;
    struct err e = {0};
    char tag[32], text[64] = "";
    if (getuid())
        SKIP("needs root");
    snprintf(tag, sizeof tag, "hutch-t%d-late", (int)getpid());
    if (cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e)) {
        printf("# %s\n", e.msg);
        SKIP("no usable cgroups here");
    }
    CHECK_INT(cgroup_begin(&h, "ready-1", &g, &e), 0);
    CHECK_INT(cgroup_finish(&h, "ibox", &(struct cgroup_limit){.memory_bytes = 64u << 20, .cpu_millis = 500, .pids_max = 16}, &g, &e), 0);
    for (int i = 0; i < CG_TREES; i++)
        if (h.tree[i] >= 0)
            CHECK(faccessat(h.tree[i], "ready-1", F_OK, 0) && !faccessat(h.tree[i], "ibox", F_OK, 0));
    if (h.v2 >= 0) {
        CHECK(!faccessat(h.v2, "ready-1", F_OK, 0));
        CHECK_INT(fgetxattr(g.v2, CG_BOX_ATTR, text, sizeof text - 1), 4);
        CHECK_STR(text, "ibox");
    }
    CHECK_INT(cgroup_remove(&h, &g), 0);
    cgroup_host_close(&h, true);
}

TEST_MAIN
