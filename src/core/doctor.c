/* What this host has, what is lost without it, how to fix it. Looks only;
 * changes nothing. May block for some 100 ms. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/core.h"
#include "core/doctor.h"
#include "core/host/host.h"
#include "spawn/client.h"
#include "spawn/runsc.h"
#include "core/sandbox/object.h"
#include "tls/files.h"
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
static void advise(struct doctor_check *c, const char *lost, const char *fix)
{
    (void)snprintf(c->lost, sizeof c->lost, "%s", lost);
    (void)snprintf(c->fix, sizeof c->fix, "%s", fix);
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

static void check_program(struct report *r, const char *name, const char *path, bool needed, const char *lost, const char *fix)
{
    if (!access(path, X_OK))
        add(r, name, "ok", "%s", path);
    else
        advise(add(r, name, needed ? "fail" : "warn", "not installed"), lost, fix);
}

static void check_runsc(struct report *r, const struct config *cfg)
{
    char path[512];
    if (runsc_find(cfg->bin, path, sizeof path))
        add(r, "runsc", "ok", "%s", path);
    else if (cfg->use_kvm)
        add(r, "runsc", "ok",
            "not installed; only isolation gvisor needs it (`hutch gvisor install`)");
    else
        advise(
            add(r, "runsc", "warn", "not installed"),
            "isolation gvisor: on a host without KVM it runs code ten times as fast as a microVM",
            "hutch gvisor install");
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
        add(r, name, "ok", "the kernel supports it");
    else
        advise(add(r, name, "warn", "not in the running kernel (perhaps a module that is not loaded)"), lost, "load it with modprobe, or use a kernel that has it");
}

static void check_namespaces(struct report *r)
{
    static const char *const kinds[] = {"user", "mnt", "net", "pid", "ipc", "uts"};
    char path[64];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        (void)snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i]);
        auto_free char *v = fd_slurp_at(AT_FDCWD, path, 64, NULL);
        if (!v || atol(v) <= 0) {
            advise(add(r, "namespaces", "fail", "%s is %s", path, v ? "0" : "absent"), "both tiers: no process can be isolated",
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
        add(r, "namespaces", "ok",
            "user, mount, network, pid, ipc and uts namespaces can be created");
    else /* as root this is how it will be; without, the settings for others may be stricter than what hutch-spawn needs */
        advise(add(r, "namespaces", geteuid() ? "warn" : "fail", "the settings allow them, but creating one failed"), "perhaps both tiers: no process can be isolated",
               "do not run inside a chroot; check the sysctl kernel.unprivileged_userns_clone; `hutchd --doctor` as root tests it");
}

/* Whatever the version says: the very mounts that a box is made of. */
static void check_mounts(struct report *r, const struct doctor_root *root)
{
    if (root->features & SP_FEAT_MOUNTS_OK)
        add(r, "mounts", "ok", "a mount clone and an overlay were created%s", root->features & SP_FEAT_SHELF ? ", as on kernels before 6.15" : "");
    else if (root->features & SP_FEAT_MOUNTS_BAD)
        advise(add(r, "mounts", "fail", "%s", root->why), "containers, isolates, and building or importing templates",
               "use Linux 6.1 or newer with overlayfs; inside a container hutch needs all capabilities and a root that is a mount point");
}

static void check_disk(struct report *r, const struct config *cfg)
{
    struct statvfs v;
    if (statvfs(cfg->home, &v)) {
        advise(add(r, "disk", "warn", "%s does not exist yet", cfg->home), "nothing: the first start creates it", "hutch up");
        return;
    }
    uint64_t gib = (uint64_t)v.f_bavail * v.f_frsize >> 30;
    struct doctor_check *c = add(r, "disk", gib >= 4 ? "ok" : gib ? "warn" : "fail", "%llu GiB free for %s", (unsigned long long)gib, cfg->home);
    if (gib < 4)
        advise(c, "disk space: a template takes about 1 GiB, a sandbox what it writes", "free some space or set HUTCH_HOME to a larger disk");
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
        advise(c, "start times: no sandboxes are kept ready",
               "free memory, or lower HUTCH_POOL_VM");
}

static void check_template(struct report *r, const struct config *cfg)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/kernel/vmlinux", cfg->home);
    if (!access(path, R_OK))
        add(r, "guest kernel", "ok", "installed");
    else
        advise(add(r, "guest kernel", "warn", "not fetched yet"), "the vm tier", "hutch template build base");
}

/* The value of `key`, without its quotes; "" if there is none. */
static void os_value(const char *text, const char *key, char *out, size_t cap)
{
    size_t k = strlen(key);
    *out = '\0';
    for (const char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, key, k) || at[k] != '=')
            continue;
        const char *v = at + k + 1;
        v += *v == '"' || *v == '\'';
        (void)snprintf(out, cap, "%.*s", (int)strcspn(v, "\"'\n"), v);
    }
}

bool os_tried(const char *os_release, char *ret_name, size_t cap)
{
    char id[32], version[32];
    os_value(os_release, "ID", id, sizeof id);
    os_value(os_release, "VERSION_ID", version, sizeof version);
    os_value(os_release, "PRETTY_NAME", ret_name, cap);
    if (!*ret_name)
        (void)snprintf(ret_name, cap, "%s", *id ? id : "unknown");
    return !strcmp(id, "debian") && (!strcmp(version, "12") || !strcmp(version, "13"));
}

/* What is tried with every change: packages, emulators and kernels differ elsewhere. */
static void check_system(struct report *r)
{
    auto_free char *text = fd_slurp_at(AT_FDCWD, "/etc/os-release", 65536, NULL);
    char name[80];
    bool tried = os_tried(text ? text : "", name, sizeof name);
    struct doctor_check *c = add(r, "system", tried ? "ok" : "warn", "%s", name);
    if (!tried)
        advise(c, "perhaps nothing: hutch is tested on Debian 12 and 13 only", "use one of those if something fails");
}

/* Some packagings of QEMU leave it out; see FIRMWARE in spawn/op_vm.c. */
static void check_firmware(struct report *r)
{
    static const char path[] = "/usr/share/qemu/qboot.rom";
    if (!access(path, R_OK))
        add(r, "firmware", "ok", "%s", path);
    else
        advise(add(r, "firmware", "warn", "%s is missing", path), "the vm tier (the default), unless QEMU finds it elsewhere", "apt-get install qemu-system-data");
}

static void check_tls(struct report *r, const struct config *cfg)
{
    struct x509_facts f;
    struct err e;
    if (!*cfg->tls_cert)
        return;
    if (tls_files_facts(cfg->tls_cert, &f, &e)) {
        advise(
            add(r, "certificate", "fail", "%s", e.msg),
            "https: a changed certificate is not taken over, the next start fails",
            "put a PEM certificate there that HUTCH_UID can read, or run `hutch tls self-signed`");
        return;
    }
    int left = tls_days_left(&f);
    struct doctor_check *c =
        add(r, "certificate",
            left < 0               ? "fail"
            : left < TLS_SOON_DAYS ? "warn"
                                   : "ok",
            "for %.100s, %s %s", f.names, left < 0 ? "ended on" : "until", f.to);
    if (left < TLS_SOON_DAYS)
        advise(
            c, left < 0 ? "https: clients refuse it" : "https: clients will refuse it then",
            "renew it (`hutch tls self-signed` if it came from there); the daemon reads it again by itself");
}

size_t doctor_run(const struct config *cfg, const struct doctor_root *root, struct doctor_check *ret, size_t max)
{
    struct report r = {ret, 0, max};
    struct utsname u;
    if (!uname(&u))
        add(&r, "kernel", "ok", "Linux %s on %s", u.release, u.machine);
    check_system(&r);
    if (geteuid() == 0)
        add(&r, "root", "ok", "started as root");
    else
        add(&r, "root", "ok", "the daemon runs as uid %d; hutch-spawn runs as root for it", (int)geteuid());
    check_kvm(&r, cfg);
    check_program(&r, "qemu", "/usr/bin/qemu-system-x86_64", false, "the vm tier (the default)", "apt-get install qemu-system-x86");
    check_firmware(&r);
    check_runsc(&r, cfg);
    check_cgroup(&r);
    check_fs(&r, "overlay", "the container tier");
    check_fs(&r, "ext4", "the container tier: template images cannot be mounted");
    check_namespaces(&r);
    check_mounts(&r, root);
    check_program(&r, "mkfs.ext4", "/sbin/mkfs.ext4", true, "disks of containers and templates", "apt-get install e2fsprogs");
    check_program(&r, "mmdebstrap", "/usr/bin/mmdebstrap", false, "building the base template", "apt-get install mmdebstrap");
    check_template(&r, cfg);
    check_disk(&r, cfg);
    check_memory(&r);
    check_tls(&r, cfg);
    return r.n;
}

/* ---- what only root can try ---- */

static void root_says(struct doctor_root *r, uint32_t features, const char *why)
{
    r->features = features;
    (void)snprintf(r->why, sizeof r->why, "%s", why);
}

struct asked { doctor_root_done *done; void *arg; };

static void answered(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct asked *a = arg;
    struct doctor_root r = {0};
    (void)fds, (void)nfds;
    if (!rep->rc)
        root_says(&r, rep->u.hello.features, rep->u.hello.note);
    a->done(a->arg, &r);
    free(a);
}

void doctor_ask_root(struct core *c, doctor_root_done *done, void *arg)
{
    struct sp_req q = {.op = SP_HELLO};
    struct asked *a = xmalloc(sizeof *a);
    *a = (struct asked){done, arg};
    if (!spawn_call(c->spawn, &q, NULL, 0, answered, a, NULL))
        return;
    free(a);
    done(arg, &(struct doctor_root){0});
}

void doctor_try_as_root(const struct config *cfg, struct doctor_root *ret)
{
    char cmd[512], line[160] = "";
    root_says(ret, 0, "");
    if (geteuid())
        return;
    (void)snprintf(cmd, sizeof cmd, "'%s/hutch-spawn' --try 2>/dev/null", cfg->bin);
    FILE *f = popen(cmd, "re"); /* bin is the operator's own word */
    if (!f)
        return;
    if (fgets(line, sizeof line, f))
        line[strcspn(line, "\n")] = 0;
    int st = pclose(f);
    if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
        root_says(ret, (uint32_t)strtoul(line, NULL, 10), "");
    else if (WIFEXITED(st) && WEXITSTATUS(st) == 1)
        root_says(ret, SP_FEAT_MOUNTS_BAD, line);
}
