/* QEMU in the jail: starts, answers on QMP, has nothing else. */
#include "fixture.h"
#include <sys/mman.h>

#define MIB 64u

static int disk(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fx.dir, name);
    int fd = open(path, flags | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static struct sp_req vm_req(int incoming)
{
    struct sp_req q = {.op = SP_VM_START,
                       .u.vm = {.limit = {.memory_mib = MIB, .cpu_millis = 1000, .pids_max = 64},
                                .ram_mib = MIB, .vcpus = 1, .accel = SP_ACCEL_TCG, .incoming = (uint32_t)incoming, .tsc_khz = 2300000}};
    id_make('i', q.u.vm.id);
    q.u.vm.have = 1u << SPF_RAM | 1u << SPF_DISK_TOP | 1u << SPF_DISK_MID | 1u << SPF_DISK_BASE;
    return q;
}

static void disks(void)
{
    if (access("/usr/bin/qemu-system-x86_64", X_OK) || system("command -v qemu-img >/dev/null"))
        SKIP("needs qemu-system-x86 and qemu-utils");
    CHECK_INT(sh("cd %s && truncate -s 16M base.raw && qemu-img create -q -f qcow2 mid.qcow2 16M && qemu-img create -q -f qcow2 top.qcow2 16M", fx.dir), 0);
}

static int ram(void)
{
    int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && !ftruncate(fd, MIB << 20));
    return fd;
}

static const char *read_some(int fd, const char *until)
{
    static char out[8192];
    size_t n = 0;
    while (n < sizeof out - 1) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 20000) != 1)
            break;
        ssize_t r = read(fd, out + n, sizeof out - 1 - n);
        if (r <= 0)
            break;
        out[n += (size_t)r] = 0;
        if (strstr(out, until))
            break;
    }
    out[n] = 0;
    return out;
}

static char *status_of(int pid, const char *key)
{
    static char line[256];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':') {
            fclose(f);
            line[strcspn(line, "\n")] = 0;
            return line + strlen(key) + 2;
        }
    fclose(f);
    return "";
}

/* Which firmware QEMU takes by itself differs between releases of Debian, and not all of them boot a kernel. */
static bool names_firmware(int pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    auto_free char *line = fd_slurp_at(AT_FDCWD, path, 65536, &n);
    return line && memmem(line, n, "\0-bios\0qboot.rom\0", 17);
}

TEST(vm, slot_answers_and_is_confined)
{
    fx_start();
    disks();
    struct sp_req q = vm_req(1);
    int in[] = {ram(), disk("top.qcow2", O_RDWR), disk("mid.qcow2", O_RDONLY), disk("base.raw", O_RDONLY)}, fds[3], n = 3;
    struct sp_rep rep;
    struct err e;
    if (spawn_call_sync(fx.fd, &q, in, 4, &rep, fds, &n, &fx.ev, 20000, &e)) {
        printf("# %s\n", e.msg);
        fx_log();
        CHECK(!"starts");
    }
    CHECK_INT(n, 3);
    const char *t = read_some(fds[2], "QMP");
    if (!strstr(t, "QMP"))
        sh("sleep 0.3"), fx_log();
    CHECK(strstr(t, "QMP"));
    CHECK(fd_write_all(fds[2], "{\"execute\":\"qmp_capabilities\"}{\"execute\":\"query-named-block-nodes\"}{\"execute\":\"query-status\"}", 93));
    t = read_some(fds[2], "inmigrate");
    CHECK(strstr(t, "inmigrate"));
    int pid = rep.u.info.pid;
    CHECK(names_firmware(pid));
    char want[64];
    snprintf(want, sizeof want, "%u\t%u\t%u\t%u", rep.u.info.uid_base, rep.u.info.uid_base, rep.u.info.uid_base, rep.u.info.uid_base);
    CHECK_STR(status_of(pid, "Uid"), want);
    CHECK_STR(status_of(pid, "CapEff"), "0000000000000000");
    CHECK_STR(status_of(pid, "CapBnd"), "0000000000000000");
    CHECK_STR(status_of(pid, "NoNewPrivs"), "1");
    CHECK_STR(status_of(pid, "Seccomp"), "2");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/root", pid);
    CHECK_INT(count_lines(({ static char c[200]; snprintf(c, sizeof c, "ls %s/dev | wc -l", path); c; })), 3);
    /* a network namespace of its own, with a tap and no way out of it */
    CHECK_INT(sh("test $(readlink /proc/%d/ns/net) != $(readlink /proc/self/ns/net) && ! grep : /proc/%d/net/dev | grep -qvE '(lo|tap0):'", pid, pid), 0);
    CHECK_INT(sh("test -z \"$(ls /proc/%d/root/out)\" && ! test -e /proc/%d/root/etc/passwd", pid, pid), 0);
    /* the process dies with SP_KILL and the event comes */
    struct sp_exit x;
    CHECK_INT(call(SP_KILL, q.u.vm.id, &rep, NULL, NULL, &e), 0);
    CHECK_INT(spawn_wait_exit(fx.fd, q.u.vm.id, &x, &fx.ev, 10000, &e), 0);
    CHECK_INT(x.signaled, 1);
    CHECK_INT(x.code, SIGKILL);
    CHECK_INT(call(SP_REMOVE, q.u.vm.id, &rep, NULL, NULL, &e), 0);
    fx_stop();
}

TEST(vm, refuses_wrong_descriptors)
{
    fx_start();
    disks();
    struct sp_rep rep;
    struct err e;
    struct sp_req q = vm_req(1);
    int file = disk("base.raw", O_RDWR), top = disk("top.qcow2", O_RDWR), mid = disk("mid.qcow2", O_RDONLY), base = disk("base.raw", O_RDONLY);
    int a[] = {file, top, mid, base}; /* RAM no memfd */
    CHECK_INT(spawn_call_sync(fx.fd, &q, a, 4, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    int b[] = {ram(), mid, mid, base}; /* top read-only */
    CHECK_INT(spawn_call_sync(fx.fd, &q, b, 4, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    int c[] = {ram(), top, mid, file}; /* base writable */
    CHECK_INT(spawn_call_sync(fx.fd, &q, c, 4, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    int d[] = {ram(), top, mid}; /* one missing */
    CHECK_INT(spawn_call_sync(fx.fd, &q, d, 3, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q.u.vm.incoming = 0; /* boot without a kernel */
    int f[] = {ram(), top, mid, base};
    CHECK_INT(spawn_call_sync(fx.fd, &q, f, 4, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    fx_stop();
}

/* What SP_CONSOLE hands out, NUL-terminated. */
static const char *console(const char *id)
{
    static char out[SP_CONSOLE_MAX + 1];
    struct sp_rep rep;
    struct err e;
    int fds[1], nfds = 1;
    CHECK_INT(call(SP_CONSOLE, id, &rep, fds, &nfds, &e), 0);
    CHECK_INT(nfds, 1);
    ssize_t n = fd_read_all(fds[0], out, SP_CONSOLE_MAX);
    CHECK(n >= 0);
    out[n] = 0;
    close(fds[0]);
    return out;
}

/* Boots as far as PID 1 of an initrd that does not exist: the kernel's complaint must be in the exit log, and be had for the asking;
 * a loud boot tells all that came before it. */
TEST(vm, boots_and_logs_the_console)
{
    const char *kernel = getenv("HUTCH_TEST_KERNEL");
    if (!kernel)
        SKIP("HUTCH_TEST_KERNEL names no kernel directory (share/tools/kernel.sh makes one)");
    fx_start();
    disks();
    CHECK_INT(sh("cd %s && cp %s/vmlinux kernel && head -c 512 /dev/zero > initrd && chmod 644 kernel initrd", fx.dir, kernel), 0);
    struct sp_req q = vm_req(0);
    struct sp_rep rep;
    struct sp_exit x;
    struct err e;
    q.u.vm.have |= 1u << SPF_KERNEL | 1u << SPF_INITRD;
    q.u.vm.loud = 1;
    int in[] = {ram(), disk("top.qcow2", O_RDWR), disk("mid.qcow2", O_RDONLY), disk("base.raw", O_RDONLY), disk("kernel", O_RDONLY), disk("initrd", O_RDONLY)};
    CHECK_INT(spawn_call_sync(fx.fd, &q, in, 6, &rep, NULL, NULL, &fx.ev, 20000, &e), 0);
    CHECK_INT(spawn_wait_exit(fx.fd, q.u.vm.id, &x, &fx.ev, 40000, &e), 0);
    CHECK_INT(sh("grep -q 'Kernel panic' %s/log", fx.dir), 0);
    CHECK(strstr(console(q.u.vm.id), "Kernel panic"));
    CHECK(strstr(console(q.u.vm.id), "Trying to unpack rootfs"));
    CHECK_INT(call(SP_REMOVE, q.u.vm.id, &rep, NULL, NULL, &e), 0);
    fx_stop();
}

TEST_MAIN
