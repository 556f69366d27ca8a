#include "guest/init_vm.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/network.h"
#include "guest/sys.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ROOT        "/root-mnt"
#define DISK        "/dev/vda"
#define DISK_NS     (10 * NS_PER_S)
#define PORT_NS     (5 * NS_PER_S)
#define PORT_NAME   "agent"

static int mount_at(const char *type, const char *to, unsigned long flags, const char *opts, struct err *e)
{
    (void)mkdir(to, 0755);
    if (mount(type, to, type, flags, opts) && errno != EBUSY) /* EBUSY: the kernel mounted it (devtmpfs) */
        return err_sys(e, errno, "mount %s on %s", type, to);
    return 0;
}

static int load_module(const char *path, struct err *e)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "module %s", path);
    if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
        return err_sys(e, errno, "module %s", path);
    return 0;
}

int init_load_modules(const char *list_path, const char *prefix, struct err *e)
{
    auto_free char *list = fd_slurp_at(AT_FDCWD, list_path, 64 << 10, NULL);
    if (!list)
        return errno == ENOENT ? 0 : err_sys(e, errno, "%s", list_path); /* all built in */
    for (char *at = list, *end; *at; at = end) {
        end = at + strcspn(at, "\n");
        if (*end)
            *end++ = 0;
        if (!*at || *at == '#')
            continue;
        char path[512];
        (void)snprintf(path, sizeof path, "%s%s%.400s", prefix, *at == '/' ? "" : "/", at);
        if (load_module(path, e))
            return -1;
    }
    return 0;
}

/* Devices appear as their drivers probe, usually before we look. Waits on the directory, not by polling. */
static int wait_for(const char *dir, bool (*there)(void *), void *arg, int64_t budget_ns)
{
    int64_t deadline = clock_mono() + budget_ns;
    auto_fd in = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (in >= 0)
        (void)inotify_add_watch(in, dir, IN_CREATE | IN_ATTRIB);
    while (!there(arg)) {
        char buf[1024];
        int64_t left = deadline - clock_mono();
        if (left <= 0)
            return -1;
        struct pollfd w = {.fd = in, .events = POLLIN};
        int ms = (int)(left / NS_PER_MS) + 1;
        (void)poll(&w, in >= 0 ? 1 : 0, ms > 50 ? 50 : ms); /* sysfs sends no events: look again after a while */
        (void)!read(in, buf, sizeof buf);
    }
    return 0;
}

static bool exists(void *path) { return !access(path, F_OK); }

int init_find_port(const char *class_dir, const char *dev_dir, const char *name, char *out, unsigned long cap)
{
    DIR *d = opendir(class_dir);
    int rc = -1;
    for (struct dirent *de; d && rc && (de = readdir(d));) {
        char path[600];
        if (de->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%.255s/name", class_dir, de->d_name);
        auto_free char *s = fd_slurp_at(AT_FDCWD, path, 256, NULL);
        if (!s)
            continue;
        s[strcspn(s, "\n")] = 0;
        if (!strcmp(s, name) && (unsigned long)snprintf(out, cap, "%s/%.255s", dev_dir, de->d_name) < cap)
            rc = access(out, F_OK);
    }
    if (d)
        closedir(d);
    return rc;
}

static bool port_there(void *out) { return !init_find_port("/sys/class/virtio-ports", "/dev", PORT_NAME, out, 320); }

const char *init_cmdline_value(const char *cmdline, const char *key, char *out, unsigned long cap)
{
    size_t k = strlen(key);
    for (const char *at = cmdline; (at = strstr(at, key)); at += k)
        if ((at == cmdline || at[-1] == ' ') && at[k] == '=') {
            size_t n = strcspn(at + k + 1, " \n");
            if (n >= cap)
                return NULL;
            memcpy(out, at + k + 1, n);
            out[n] = 0;
            return out;
        }
    return NULL;
}

/* Frees the memory of the initramfs. Only the first file system; never into another mount. */
static void empty_dir(int fd, dev_t dev, int depth)
{
    DIR *d = depth < 16 ? fdopendir(fd) : NULL;
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *de; (de = readdir(d));) {
        struct stat st;
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") || fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != dev)
            continue;
        if (S_ISDIR(st.st_mode)) {
            int sub = openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (sub >= 0)
                empty_dir(sub, dev, depth + 1);
            (void)unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR);
        } else
            (void)unlinkat(dirfd(d), de->d_name, 0);
    }
    closedir(d);
}

static int switch_root(struct err *e)
{
    static const char *const move[] = {"/dev", "/proc", "/sys"};
    struct stat st;
    for (size_t i = 0; i < sizeof move / sizeof *move; i++) {
        char to[64];
        (void)snprintf(to, sizeof to, ROOT "%s", move[i]);
        (void)mkdir(to, 0755);
        if (mount(move[i], to, NULL, MS_MOVE, NULL))
            return err_sys(e, errno, "move %s to the root disk", move[i]);
    }
    int old = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 || fstat(old, &st) || chdir(ROOT))
        return err_sys(e, errno, "root disk");
    if (mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        return err_sys(e, errno, "switch to the root disk");
    empty_dir(old, st.st_dev, 0);
    return 0;
}

static void lo_up(void)
{
    struct ifreq r = {.ifr_name = "lo"};
    auto_fd s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && !ioctl(s, SIOCGIFFLAGS, &r)) {
        r.ifr_flags |= IFF_UP | IFF_RUNNING;
        (void)ioctl(s, SIOCSIFFLAGS, &r);
    }
}

/* A guest that is broken should end, not linger: panic= of the command line (default: at once), no ctrl-alt-del. */
static void end_semantics(void)
{
    char v[32] = "-1";
    auto_free char *cmdline = fd_slurp_at(AT_FDCWD, "/proc/cmdline", 8192, NULL);
    if (cmdline)
        (void)init_cmdline_value(cmdline, "panic", v, sizeof v);
    (void)sys_write_file("/proc/sys/kernel/panic", v);
    (void)sys_write_file("/proc/sys/kernel/panic_on_oops", "1");
    (void)reboot(RB_DISABLE_CAD);
}

/* The host orders requests and bounds writing; to do it here as well only costs. */
static void queue_plain(const char *disk)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/block%.60s/queue/scheduler", disk ? disk : "");
    (void)sys_write_file(path, "none");
    (void)snprintf(path, sizeof path, "/sys/block%.60s/queue/wbt_lat_usec", disk ? disk : "");
    (void)sys_write_file(path, "0");
}

static int mount_root(struct err *e)
{
    auto_free char *cmdline = fd_slurp_at(AT_FDCWD, "/proc/cmdline", 8192, NULL);
    char disk[64] = DISK;
    if (cmdline)
        (void)init_cmdline_value(cmdline, "hutch.root", disk, sizeof disk);
    if (wait_for("/dev", exists, disk, DISK_NS))
        return err_set(e, E_TIMEOUT, "root disk %s did not appear", disk);
    (void)mkdir(ROOT, 0755);
    queue_plain(strrchr(disk, '/'));
    /* no clone writes inode tables that nobody asked for */
    if (mount(disk, ROOT, "ext4", MS_NOATIME, "noinit_itable") && mount(disk, ROOT, "ext4", MS_RELATIME, NULL))
        return err_sys(e, errno, "mount %s", disk);
    return 0;
}

static int mount_rest(struct err *e)
{
    (void)mkdir("/dev/pts", 0755), (void)mkdir("/dev/shm", 01777);
    if (mount_at("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666", e) ||
        mount_at("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", e) ||
        mount_at("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=755", e) ||
        mount_at("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, e))
        return -1;
    (void)mkdir("/run/lock", 01777);
    (void)!symlink("/proc/self/fd", "/dev/fd");
    (void)!symlink("/proc/self/fd/0", "/dev/stdin");
    (void)!symlink("/proc/self/fd/1", "/dev/stdout");
    (void)!symlink("/proc/self/fd/2", "/dev/stderr");
    return 0;
}

/* 0, 1, 2 from the kernel are the console or nothing at all. */
static void std_fds(void)
{
    int fd = open("/dev/console", O_RDWR | O_NOCTTY);
    if (fd < 0)
        fd = open("/dev/null", O_RDWR);
    for (int i = 0; i <= 2; i++)
        if (fd >= 0 && fd != i)
            (void)dup2(fd, i);
    if (fd > 2)
        close(fd);
}

int init_vm(int *ret_volumes, struct err *e)
{
    char port[320], volumes[320];
    umask(0);
    if (mount_at("devtmpfs", "/dev", MS_NOSUID, "mode=755", e))
        return -1;
    std_fds();
    if (mount_at("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, e) ||
        mount_at("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, e))
        return -1;
    end_semantics();
    if (init_load_modules("/modules.list", "/modules", e) || mount_root(e) || switch_root(e) || mount_rest(e))
        return -1;
    lo_up();
    if (network_up(e))
        return -1;
    if (wait_for("/dev", port_there, port, PORT_NS))
        return err_set(e, E_TIMEOUT, "no virtio port named '%s'", PORT_NAME);
    umask(022);
    (void)sys_write_file("/proc/sys/kernel/printk", "4"); /* as "quiet" has it: a boot that was to be loud is over */
    /* the two ports are of one device: when one is there, so is the other */
    *ret_volumes = init_find_port("/sys/class/virtio-ports", "/dev", "volumes", volumes, sizeof volumes) ? -1 : open(volumes, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int fd = open(port, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "channel %s", port) : fd;
}
