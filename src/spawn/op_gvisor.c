/* SP_GVISOR_START: a container whose kernel is gVisor's, a process in user
 * space. The jail is a box's own (user, pid, mount, network namespaces, control
 * group); in it runs runsc, which makes narrower ones for its two halves, the
 * kernel (sentry) and the file server (gofer), and starts our agent on top.
 *
 * All that runsc is told is made here: its arguments, and the bundle's
 * config.json of fixed text and numbers. Nothing of a request but sizes and a
 * checked host name gets into either. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/mount.h"
#include "jail/sys.h"
#include "spawn/runsc.h"
#include "spawn/server.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define AGENT_FD 4 /* runsc's number for the agent's program */
_Static_assert(JAIL_CHANNEL_FD == 3, "argv below says so");

/* gVisor counts no memory of its own: it believes this file, so the guest sees the size it was given. */
#define MEMINFO "MemTotal: %llu kB\nMemFree: %llu kB\nMemAvailable: %llu kB\n"

#define CAPS \
    "[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_DAC_READ_SEARCH\",\"CAP_FOWNER\",\"CAP_FSETID\",\"CAP_KILL\",\"CAP_SETGID\"," \
    "\"CAP_SETUID\",\"CAP_SETPCAP\",\"CAP_NET_BIND_SERVICE\",\"CAP_NET_RAW\",\"CAP_IPC_OWNER\",\"CAP_SYS_CHROOT\",\"CAP_SYS_NICE\"," \
    "\"CAP_LEASE\",\"CAP_AUDIT_WRITE\",\"CAP_SETFCAP\",\"CAP_SYS_ADMIN\",\"CAP_SYS_PTRACE\"]" /* as jail/privs.c gives a container */

/* %s: host name, %u: MiB of /dev/shm */
static const char config[] =
    "{\"ociVersion\":\"1.0.2\","
    "\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},\"cwd\":\"/\","
    "\"args\":[\"hutch-agent\",\"--gvisor\",\"--fd\",\"3\"],"
    "\"env\":[\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\",\"HOME=/root\",\"LANG=C.UTF-8\"],"
    "\"capabilities\":{\"bounding\":" CAPS ",\"effective\":" CAPS ",\"permitted\":" CAPS "}},"
    "\"root\":{\"path\":\"" SENTRY_ROOTFS "\",\"readonly\":false},"
    "\"hostname\":\"%s\","
    "\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
    "{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\",\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"ro\"]},"
    "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\",\"options\":[\"nosuid\",\"nodev\",\"mode=1777\",\"size=%um\"]},"
    "{\"destination\":\"/run\",\"type\":\"tmpfs\",\"source\":\"run\",\"options\":[\"nosuid\",\"nodev\",\"mode=0755\",\"size=64m\"]}],"
    "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"mount\"}]}}\n";

/* The program, which root is going to run: nobody else may have a hand in it. */
static int program(struct server *s, struct err *e)
{
    char path[PATH_LEN];
    struct stat st;
    if (!runsc_find(s->bin, path, sizeof path))
        return err_set(e, E_UNSUPPORTED, "runsc, gVisor's program, is not installed");
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_uid || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(e, E_DENIED, "%s must be a file of root's that nobody else can write", path);
    return take_fd(&fd);
}

static int put_file(int dir, const char *name, const char *text, struct err *e)
{
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    return fd < 0 || !fd_write_all(fd, text, strlen(text)) ? err_sys(e, errno, "bundle: %s", name)
                                                           : 0;
}

/* The root that runsc lives in: the bundle, and places for what the jail mounts -> owned, read-only. */
static int make_bundle(const struct sp_box *q, struct err *e)
{
    static const char *const places[] = {"proc", "dev", "run", &SENTRY_ROOTFS[1], "tmp", "etc"};
    char text[sizeof config + 128], meminfo[128];
    unsigned long long kib = (unsigned long long)q->limit.memory_mib << 10;
    auto_fd m = mount_tmpfs("256k", "0755", e);
    if (m < 0)
        return -1;
    auto_fd dir = openat(m, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++)
        if (dir < 0 || mkdirat(dir, places[i], 0755) < 0)
            return err_sys(e, errno, "bundle: %s", places[i]);
    (void)snprintf(text, sizeof text, config, q->hostname[0] ? q->hostname : "hutch",
                   box_shm_mib(&q->limit));
    (void)snprintf(meminfo, sizeof meminfo, MEMINFO, kib, kib, kib);
    if (put_file(dir, "config.json", text, e) || put_file(dir, "meminfo", meminfo, e))
        return -1;
    cleanup_fd(&dir);
    dir = -1;
    return mount_attr(m, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV, false, e) ? -1 : take_fd(&m);
}

/* Files: a volume may be another sandbox's too, so what is remembered of a file is looked at again (shared).
 * Network: the sandbox's namespace has nothing but loopback and the gate's rules, so its sockets are the host kernel's,
 * inside that namespace, and the gate sees them as it sees a container's. */
static char *const argv[] = {"runsc",
                             "--root=/run",
                             "--platform=systrap",
                             "--network=host",
                             "--net-raw",
                             "--ignore-cgroups",
                             "--overlay2=none",
                             "--file-access=shared",
                             "--allow-suid",
                             "--host-settings=ignore",
                             "run",
                             "--bundle=/",
                             "--pass-fd=3:3",
                             "--exec-fd=4",
                             "sandbox",
                             NULL};
static char *const envp[] = {"PATH=/", "HOME=/", NULL};

static int start(struct server *s, struct box *b, const struct sp_box *q, struct err *e)
{
    int none = -1;
    auto_fd runsc = program(s, e);
    int template = runsc < 0 ? -1 : disk_template(s, q->template_id, e);
    int agent = template <0 ? -1 : server_program(s, "hutch-agent", &s->agent, s->agent_id, e);
    struct cgroup_limit limit = {.memory_bytes =
                                     (uint64_t)(q->limit.memory_mib + SP_GVISOR_OVERHEAD_MIB) << 20,
                                 .cpu_millis = q->limit.cpu_millis,
                                 .pids_max = q->limit.pids_max};
    if (agent < 0 || box_cage(b, &limit, e))
        return -1;
    b->gvisor = true;
    auto_fd inner = -1, err_end = -1, userns = -1, lower = -1;
    if (box_disk(b, q, e) || box_channel(&b->chan, &inner, e) ||
        box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;
    auto_fd bundle = make_bundle(q, e);
    auto_fd dev = mount_clone(s->dev_mnt, "", false, e);
    if (bundle < 0 || dev < 0 ||
        mount_attr(dev, MATTR_RDONLY | MATTR_NOSUID | MATTR_NOEXEC, false, e))
        return -1;
    struct jail j = {.kind = JAIL_SENTRY,
                     .hostname = "gvisor",
                     .run_size = "4m",
                     .filter = &s->f_gvisor,
                     .place = {{err_end, 2}, {inner, JAIL_CHANNEL_FD}, {agent, AGENT_FD}},
                     .nplace = 3,
                     .exec_fd = runsc,
                     .argv = argv,
                     .envp = envp};
    struct jailed child;
    if (box_jail(b, &j, &child, &userns, e) || net_furnish(&s->net, NET_BOX, child.pidfd, &none, e))
        return -1;
    auto_fd root = box_root(b, userns, template, &lower, e);
    return root < 0 ? -1 : jail_go(child.sync, bundle, dev, root, e);
}

int op_gvisor_start(struct server *s, struct request *r, struct err *e)
{
    const struct sp_box *q = &r->q->u.box;
    if (box_check(q, e))
        return -1;
    struct box *b = box_begin(s, r, q->id, SP_KIND_BOX, e);
    return b ? box_begun(b, start(s, b, q, e)) : -1;
}
