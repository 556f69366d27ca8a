/* The agent as /init of a real guest kernel under QEMU. Needs files that no
 * unit test can make: HUTCH_TEST_KERNEL (a directory with vmlinux, modules/,
 * modules.list, as share/tools/kernel.sh writes it), HUTCH_TEST_DISK (an ext4
 * root image, used through a snapshot) and HUTCH_TEST_AGENT (the static
 * binary). Skipped without them. */
#define TEST_SECONDS 180
#include "driver.h"

static void cpio(struct buf *b, const char *name, unsigned mode, const void *p, size_t n)
{
    static unsigned ino = 1;
    buf_printf(b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ino++, mode, 0, 0, 1, 0, (unsigned)n, 0, 0, 0, 0,
               (unsigned)strlen(name) + 1, 0);
    buf_put(b, name, strlen(name) + 1);
    while (b->n % 4)
        buf_putc(b, 0);
    buf_put(b, p, n);
    while (b->n % 4)
        buf_putc(b, 0);
}

static const char *want(const char *name)
{
    const char *v = getenv(name);
    if (!v || access(v, F_OK))
        SKIP("no kernel, disk or agent for a VM given");
    return v;
}

static void make_initrd(const char *out)
{
    struct buf b = {0};
    char path[300];
    size_t n;
    char *s = fd_slurp_at(AT_FDCWD, want("HUTCH_TEST_AGENT"), 64 << 20, &n);
    CHECK(s);
    cpio(&b, "init", S_IFREG | 0755, s, n);
    free(s);
    cpio(&b, "modules", S_IFDIR | 0755, "", 0);
    snprintf(path, sizeof path, "%s/modules.list", want("HUTCH_TEST_KERNEL"));
    char *list = fd_slurp_at(AT_FDCWD, path, 1 << 20, &n);
    CHECK(list);
    cpio(&b, "modules.list", S_IFREG | 0644, list, n);
    for (char *at = strtok(list, "\n"); at; at = strtok(NULL, "\n")) {
        snprintf(path, sizeof path, "%s/modules/%s", want("HUTCH_TEST_KERNEL"), at);
        s = fd_slurp_at(AT_FDCWD, path, 64 << 20, &n);
        CHECK(s);
        snprintf(path, sizeof path, "modules/%s", at);
        cpio(&b, path, S_IFREG | 0644, s, n);
        free(s);
    }
    free(list);
    cpio(&b, "TRAILER!!!", 0, "", 0);
    int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && fd_write_all(fd, b.p, b.n));
    close(fd);
    buf_free(&b);
}

static uint64_t tsc_khz(void)
{
    struct timespec ts = {.tv_nsec = 50 * NS_PER_MS};
    int64_t t = clock_read(CLOCK_MONOTONIC_RAW);
    uint64_t c = __builtin_ia32_rdtsc();
    nanosleep(&ts, NULL);
    c = __builtin_ia32_rdtsc() - c;
    return c * 1000000 / (uint64_t)(clock_read(CLOCK_MONOTONIC_RAW) - t);
}

/* path: QEMU listens there instead of inheriting a connected socket */
static pid_t boot(struct host *h, const char *initrd, const char *path)
{
    int sv[2];
    char chardev[128], append[512], kernel[300], drive[300];
    *h = (struct host){.next_id = 1};
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
    fcntl(sv[0], F_SETFD, FD_CLOEXEC);
    if (path)
        snprintf(chardev, sizeof chardev, "socket,id=c0,path=%s,server=on,wait=off", path);
    else
        snprintf(chardev, sizeof chardev, "socket,id=c0,fd=%d", sv[1]);
    snprintf(kernel, sizeof kernel, "%s/vmlinux", want("HUTCH_TEST_KERNEL"));
    snprintf(drive, sizeof drive, "id=d0,file=%s,format=raw,if=none,snapshot=on", want("HUTCH_TEST_DISK"));
    snprintf(append, sizeof append,
             "console=ttyS0 reboot=t panic=-1 quiet tsc=reliable tsc_early_khz=%llu mitigations=off norandmaps cryptomgr.notests audit=0 "
             "i8042.noaux i8042.nokbd i8042.nomux i8042.nopnp", (unsigned long long)tsc_khz());
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const char *serial = getenv("HUTCH_TEST_CONSOLE");
        char file[300];
        snprintf(file, sizeof file, "file:%s", serial ? serial : "/dev/null");
        execlp("qemu-system-x86_64", "qemu-system-x86_64", "-M", "microvm,x-option-roms=off,rtc=on,pit=off,pic=off", "-accel", "tcg,tb-size=128",
               "-cpu", "max,erms=off,la57=off", "-m", "256", "-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-serial", file, "-kernel", kernel, "-initrd", initrd, "-append", append, "-drive", drive, "-device",
               "virtio-blk-device,drive=d0", "-device", "virtio-serial-device", "-chardev", chardev, "-device",
               "virtserialport,chardev=c0,name=agent", (char *)NULL);
        _exit(77);
    }
    close(sv[1]);
    h->fd = sv[0];
    return pid;
}

static void first_sync(struct host *h, uint32_t epoch)
{
    struct buf b = {0};
    struct frame f;
    frame_put_sync(&b, epoch, false, false);
    host_write(h, b.p, b.n);
    buf_free(&b);
    h->rd = (struct frame_reader){.want_epoch = epoch, .want_ack = true};
    CHECK(host_frame(h, &f, 60000) && f.type == 0);
}

static int64_t time_of(struct host *h, const char *cmd, int n)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < n; i++) {
        struct result r = {0};
        int64_t t = clock_mono();
        host_sh(h, cmd, &r);
        CHECK_INT(r.code, 0);
        CHECK_INT(r.status, 0);
        if (clock_mono() - t < best)
            best = clock_mono() - t;
        result_free(&r);
    }
    return best / 1000;
}

TEST(vm, boots_serves_freezes_and_powers_off)
{
    struct host h;
    struct result r = {0};
    const char *initrd = "/tmp/.hutch-test-initrd";
    make_initrd(initrd);
    int64_t t = clock_mono();
    pid_t qemu = boot(&h, initrd, NULL);
    first_sync(&h, 4242);
    printf("# boot to ack: %lld ms\n", (long long)(clock_mono() - t) / 1000000);
    host_configure(&h);
    int64_t best = INT64_MAX;
    for (int i = 0; i < 50; i++) {
        t = clock_mono();
        host_configure(&h);
        best = clock_mono() - t < best ? clock_mono() - t : best;
    }
    int64_t ping = INT64_MAX;
    for (int i = 0; i < 200; i++) {
        t = clock_mono();
        host_call(&h, OP_PING, NULL, &r);
        ping = clock_mono() - t < ping ? clock_mono() - t : ping;
        result_free(&r);
    }
    printf("# best: configure %lld us, ping %lld us, sh -c true %lld us\n", (long long)best / 1000, (long long)ping / 1000,
           (long long)time_of(&h, "true", 30));

    struct buf b = sh("hostname; cat /etc/machine-id; stat -f -c %T /run /sys/fs/cgroup /; cat /proc/self/cgroup; cat /proc/1/oom_score_adj; "
                      "cat /proc/sys/kernel/panic; ls / | grep -c root-mnt; cat /sys/class/net/lo/flags; echo x > /dev/stdout; grep ^MemTotal /proc/meminfo >/dev/null && echo mem; grep VmRSS /proc/1/status");
    rec_put_str(&b, T_USER, "root");
    host_call(&h, OP_START, &b, &r);
    printf("# %s\n", r.msg);
    for (char *p = r.out.p; p && *p; p++)
        putchar(*p == '\n' ? ' ' : *p);
    putchar('\n');
    CHECK(strstr(r.out.p, "box-one\n0123456789abcdef0123456789abcdef\ntmpfs\ncgroup2fs\next2/ext3\n0::/user/"));
    CHECK(strstr(r.out.p, "100\n-1\n0\n0x9\n") && strstr(r.out.p, "mem"));
    result_free(&r);

    /* a tree is killed by its cgroup, however it hides */
    b = sh("setsid setsid sh -c 'sleep 1111 & exec env -i sleep 1112' & sleep 1113");
    rec_put_u64(&b, T_TIMEOUT_MS, 700);
    host_call(&h, OP_START, &b, &r);
    CHECK_INT(r.kind, EXIT_TIMEOUT);
    result_free(&r);
    b = sh("sleep 0.3; pgrep -c sleep; ls /sys/fs/cgroup/user | grep -c '^[0-9]'"); /* one group: this command's own */
    host_call(&h, OP_START, &b, &r);
    CHECK_STR(r.out.p, "0\n1\n");
    result_free(&r);

    /* memory: told apart from an ordinary SIGKILL */
    b = sh("kill -9 $$");
    host_call(&h, OP_START, &b, &r);
    CHECK_INT(r.kind, EXIT_SIGNAL);
    result_free(&r);
    b = (struct buf){0};
    rec_put_str(&b, T_ARG, "perl");
    rec_put_str(&b, T_ARG, "-e");
    rec_put_str(&b, T_ARG, "my @a; while (1) { push @a, 'x' x 10000000 }");
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    host_call(&h, OP_START, &b, &r);
    CHECK_INT(r.kind, EXIT_OOM);
    result_free(&r);

    /* freeze: nothing moves, file operations are refused, a new host end thaws by CONFIGURE */
    b = sh("while true; do echo x; sleep 0.05; done");
    rec_put_str(&b, T_TAG, "ticker");
    uint32_t id = host_req(&h, OP_START, &b);
    while (r.out.n < 4)
        CHECK(host_step(&h, id, &r, 5000));
    struct result x = {0};
    t = clock_mono();
    uint32_t fid = host_req(&h, OP_FREEZE, NULL);
    while (!x.over) {
        struct frame f;
        CHECK(host_frame(&h, &f, 10000));
        take_frame(&h, f.stream == fid ? &x : &r, &f);
    }
    printf("# freeze: %lld ms %s\n", (long long)(clock_mono() - t) / 1000000, x.msg);
    CHECK_INT(x.code, 0);
    result_free(&x);
    while (host_step(&h, id, &r, 300)) /* what was on its way */
        ;
    size_t n = r.out.n;
    CHECK(!host_step(&h, id, &r, 500));
    CHECK_INT(r.out.n, n);
    rec_put_str(&b, T_PATH, "/etc/hostname");
    host_call(&h, OP_STAT, &b, &x);
    CHECK_INT(x.code, E_UNAVAILABLE);
    result_free(&x);
    host_sync(&h, 777, true);
    host_configure(&h);
    result_free(&r);
    rec_put_str(&b, T_TAG, "ticker");
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    id = host_req(&h, OP_ATTACH, &b);
    while (r.out.n < 6)
        CHECK(host_step(&h, id, &r, 5000));
    result_free(&r);

    host_call(&h, OP_METRICS, NULL, &r);
    struct rec m = {(unsigned char *)r.res.p, r.res.n};
    CHECK(rec_u64_or(m, T_CPU_NS, 0) && rec_u64_or(m, T_MEM_BYTES, 0) > 100 << 20 && rec_u64_or(m, T_MEM_USED, 0) && rec_u64_or(m, T_DISK_BYTES, 0));
    printf("# memory used in the guest: %llu KiB\n", (unsigned long long)rec_u64_or(m, T_MEM_USED, 0) / 1024);
    result_free(&r);
    host_call(&h, OP_GROW, NULL, &r);
    printf("# grow: %d %s\n", r.code, r.msg);
    result_free(&r);

    /* bulk */
    t = clock_mono();
    uint64_t got = 0;
    b = sh("head -c 50000000 /dev/zero");
    id = host_req(&h, OP_START, &b);
    while (!r.over) {
        CHECK(host_step(&h, id, &r, 20000));
        got += r.out.n;
        r.out.n = 0;
    }
    CHECK_INT(got, 50000000);
    printf("# 50 MB of output: %lld ms\n", (long long)(clock_mono() - t) / 1000000);
    result_free(&r);

    host_call(&h, OP_SHUTDOWN, NULL, &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    t = clock_mono();
    int st;
    CHECK(waitpid(qemu, &st, 0) == qemu);
    printf("# power-off: %lld ms, status %d\n", (long long)(clock_mono() - t) / 1000000, st);
    CHECK_INT(st, 0);
    unlink(initrd);
}
static double cpu_s(pid_t pid)
{
    char path[64], line[1024];
    unsigned long u = 0, k = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    fclose(f);
    CHECK(sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &k) == 2);
    return (double)(u + k) / (double)sysconf(_SC_CLK_TCK);
}

static int dial(const char *path)
{
    struct sockaddr_un { unsigned short family; char path[108]; } a = {AF_UNIX, ""};
    strcpy(a.path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(!connect(fd, (void *)&a, sizeof a));
    return fd;
}

TEST(vm, an_absent_host_costs_nothing_and_may_come_and_go)
{
    struct host h;
    struct result r = {0};
    const char *initrd = "/tmp/.hutch-test-initrd", *path = "/tmp/.hutch-test-port";
    make_initrd(initrd);
    unlink(path);
    pid_t qemu = boot(&h, initrd, path);
    struct timespec ts = {.tv_sec = 1};
    double used = 9;
    for (int i = 0; i < 30 && used > 0.2; i++) { /* boot, then quiet */
        double before = cpu_s(qemu);
        nanosleep(&ts, NULL);
        used = cpu_s(qemu) - before;
    }
    printf("# CPU while nobody is connected: %.0f ms a second\n", used * 1000);
    CHECK(used <= 0.2);
    for (uint32_t i = 1; i <= 3; i++) {
        close(h.fd);
        h.fd = dial(path);
        h.at = h.in.n = 0;
        host_sync(&h, 100 + i, true);
        host_configure(&h);
        host_sh(&h, "echo hi", &r);
        CHECK_STR(r.out.p, "hi\n");
        result_free(&r);
        struct buf b = sh("yes");
        host_req(&h, OP_START, &b); /* leave in the middle of its output */
        nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
    }
    host_sync(&h, 999, true);
    host_call(&h, OP_SHUTDOWN, NULL, &r);
    result_free(&r);
    int st;
    CHECK(waitpid(qemu, &st, 0) == qemu && st == 0);
    unlink(initrd), unlink(path);
}
TEST_MAIN
