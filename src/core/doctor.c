/* What this host has, what is lost without it, how to mend it. Looks only;
 * changes nothing. May block for some 100 ms. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/core.h"
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

struct report { struct doctor_check *at; size_t n, max; };

static struct doctor_check *add(struct report *r, const char *name, const char *status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static struct doctor_check *add(struct report *r, const char *name, const char *status, const char *fmt, ...)
{
    static struct doctor_check spare;
    struct doctor_check *c = r->n < r->max ? &r->at[r->n++] : &spare;
    *c = (struct doctor_check){.name = name, .status = status};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->found, sizeof c->found, fmt, ap);
    va_end(ap);
    return c;
}
static void advise(struct doctor_check *c, const char *lost, const char *mend)
{
    (void)snprintf(c->lost, sizeof c->lost, "%s", lost);
    (void)snprintf(c->mend, sizeof c->mend, "%s", mend);
}

static void check_kvm(struct report *r, const struct config *cfg)
{
    if (cfg->use_kvm) {
        add(r, "kvm", "ok", "hardware virtualisation works: %s", cfg->accel_why);
        return;
    }
    struct doctor_check *c = add(r, "kvm", "warn", "not used, microVMs run under TCG emulation: %s", cfg->accel_why);
    advise(c, "speed: guest code runs 3 to 10 times slower; the boundary is the same",
           "run on a machine with hardware virtualisation (or nested virtualisation enabled) and load kvm_intel or kvm_amd");
}

static void check_program(struct report *r, const char *name, const char *path, bool needed, const char *lost, const char *mend)
{
    if (!access(path, X_OK))
        add(r, name, "ok", "%s", path);
    else
        advise(add(r, name, needed ? "fail" : "warn", "not installed"), lost, mend);
}

static void check_cgroup(struct report *r)
{
    struct statfs fs;
    if (!statfs("/sys/fs/cgroup", &fs) && fs.f_type == 0x63677270) {
        auto_free char *ctl = fd_slurp_at(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", 4096, NULL);
        bool all = ctl && strstr(ctl, "cpu") && strstr(ctl, "memory") && strstr(ctl, "pids");
        struct doctor_check *c = add(r, "cgroups", all ? "ok" : "fail", "version 2%s", all ? "" : ", but cpu, memory or pids is not enabled");
        if (!all)
            advise(c, "CPU, memory and process limits cannot be enforced: sandboxes do not start", "enable the controllers in the root cgroup's subtree_control");
        return;
    }
    bool v1 = !access("/sys/fs/cgroup/memory", F_OK) && !access("/sys/fs/cgroup/cpu", F_OK) && !access("/sys/fs/cgroup/pids", F_OK);
    struct doctor_check *c = add(r, "cgroups", v1 ? "ok" : "fail", v1 ? "version 1 controllers" : "no usable controllers");
    if (!v1)
        advise(c, "limits cannot be enforced: sandboxes do not start", "mount cgroup2 at /sys/fs/cgroup");
}

static bool fs_known(const char *name)
{
    auto_free char *all = fd_slurp_at(AT_FDCWD, "/proc/filesystems", 65536, NULL);
    char want[32];
    (void)snprintf(want, sizeof want, "\t%s\n", name);
    return all && strstr(all, want);
}

static void check_fs(struct report *r, const char *name, const char *lost)
{
    if (fs_known(name))
        add(r, name, "ok", "the kernel has it");
    else
        advise(add(r, name, "warn", "not in the running kernel (may be a module that is not loaded)"), lost, "modprobe it, or use a kernel that has it");
}

static void check_namespaces(struct report *r)
{
    static const char *const kinds[] = {"user", "mnt", "net", "pid", "ipc", "uts"};
    char path[64];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        (void)snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i]);
        auto_free char *v = fd_slurp_at(AT_FDCWD, path, 64, NULL);
        if (!v || atol(v) <= 0) {
            advise(add(r, "namespaces", "fail", "%s is %s", path, v ? "0" : "absent"), "both tiers: nothing can be jailed",
                   "set the sysctls user.max_*_namespaces above 0");
            return;
        }
    }
    /* One trial: a chroot forbids user namespaces whatever the settings say. */
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) ? 1 : 0);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        add(r, "namespaces", "ok", "user, mount, network, pid, ipc and uts namespaces can be made");
    else /* as root this is how it will be; without, the settings for others may be stricter than what hutch-spawn needs */
        advise(add(r, "namespaces", geteuid() ? "warn" : "fail", "the settings allow them, a trial failed"), "perhaps both tiers: nothing can be jailed",
               "do not run inside a chroot; look at the sysctl kernel.unprivileged_userns_clone; `hutchd --doctor` as root tells for sure");
}

static void check_disk(struct report *r, const struct config *cfg)
{
    struct statvfs v;
    if (statvfs(cfg->home, &v)) {
        advise(add(r, "disk", "warn", "%s does not exist yet", cfg->home), "nothing: the first start makes it", "hutch up");
        return;
    }
    uint64_t gib = (uint64_t)v.f_bavail * v.f_frsize >> 30;
    struct doctor_check *c = add(r, "disk", gib >= 4 ? "ok" : gib ? "warn" : "fail", "%llu GiB free for %s", (unsigned long long)gib, cfg->home);
    if (gib < 4)
        advise(c, "templates take about 1 GiB each and every sandbox its own writes", "free some space or set HUTCH_HOME to a larger disk");
}

static void check_memory(struct report *r)
{
    auto_free char *m = fd_slurp_at(AT_FDCWD, "/proc/meminfo", 65536, NULL);
    unsigned long kib = 0;
    const char *p = m ? strstr(m, "MemAvailable:") : NULL;
    if (p)
        (void)sscanf(p, "MemAvailable: %lu", &kib);
    struct doctor_check *c = add(r, "memory", kib > 1 << 20 ? "ok" : "warn", "%lu MiB available", kib / 1024);
    if (kib <= 1 << 20)
        advise(c, "the pool stays empty, starts are slower", "free memory, or lower HUTCH_POOL_VM");
}

static void check_template(struct report *r, const struct config *cfg)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/kernel/vmlinux", cfg->home);
    if (!access(path, R_OK))
        add(r, "guest kernel", "ok", "installed");
    else
        advise(add(r, "guest kernel", "warn", "not fetched yet"), "microVMs cannot start", "hutch template build base");
}

size_t doctor_run(const struct config *cfg, struct doctor_check *ret, size_t max)
{
    struct report r = {ret, 0, max};
    struct utsname u;
    if (!uname(&u))
        add(&r, "kernel", "ok", "Linux %s on %s", u.release, u.machine);
    if (geteuid() == 0)
        add(&r, "root", "ok", "started as root");
    else
        add(&r, "root", "ok", "the daemon runs as uid %d; hutch-spawn is root for it", (int)geteuid());
    check_kvm(&r, cfg);
    check_program(&r, "qemu", "/usr/bin/qemu-system-x86_64", false, "the vm tier (the default)", "apt-get install qemu-system-x86");
    check_cgroup(&r);
    check_fs(&r, "overlay", "the container tier");
    check_fs(&r, "ext4", "template images cannot be mounted: the container tier");
    check_namespaces(&r);
    check_program(&r, "mkfs.ext4", "/sbin/mkfs.ext4", true, "disks of containers and templates", "apt-get install e2fsprogs");
    check_program(&r, "mmdebstrap", "/usr/bin/mmdebstrap", false, "building the base template", "apt-get install mmdebstrap");
    check_program(&r, "runsc", "/usr/bin/runsc", false, "the gvisor tier (optional)", "install gVisor's runsc if you want that tier");
    check_template(&r, cfg);
    check_disk(&r, cfg);
    check_memory(&r);
    return r.n;
}
