/* SP_VM_START: QEMU in the jail. The command line is made here from the typed
 * request; no string of the daemon's reaches it. All files are descriptors:
 * disks through -add-fd and /dev/fdset, memory, kernel and initrd through
 * /proc/self/fd. Device order fixes the virtio-mmio slots and with them what a
 * saved state fits: do not reorder the -device lines. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define QEMU      "/usr/bin/qemu-system-x86_64"
#define FIRMWARE  "qboot.rom" /* looked up in QEMU's own data folder */
#define ARGS_MAX  256
#define TEXT_MAX  16384
#define VM_PIDS   128u /* threads of one QEMU: vCPUs, disk workers */

struct args { char *v[ARGS_MAX]; int n; char text[TEXT_MAX]; size_t used; bool full; };

static void arg(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void arg(struct args *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(a->text + a->used, sizeof a->text - a->used, fmt, ap);
    va_end(ap);
    if (n < 0 || a->used + (size_t)n + 1 > sizeof a->text || a->n >= ARGS_MAX - 1) {
        a->full = true;
        return;
    }
    a->v[a->n++] = a->text + a->used;
    a->v[a->n] = NULL;
    a->used += (size_t)n + 1;
}
static void arg2(struct args *a, const char *opt, const char *value)
{
    arg(a, "%s", opt);
    arg(a, "%s", value);
}

/* ---- the request ---------------------------------------------------------------------------------------------- */

static const struct { const char *name; int mode; bool memfd, reopened; } want[SPF_MAX] = {
    [SPF_RAM] = {"RAM", -1, true, true},                    /* QEMU opens it again, read-write; seals protect a template */
    [SPF_STATE] = {"state", O_RDONLY, false, false},
    [SPF_DISK_TOP] = {"top disk", O_RDWR, false, false},    /* the access mode must be the one QEMU asks /dev/fdset for */
    [SPF_DISK_MID] = {"middle disk", O_RDONLY, false, false},
    [SPF_DISK_BASE] = {"base disk", O_RDONLY, false, false},
    [SPF_KERNEL] = {"kernel", -1, false, true},
    [SPF_INITRD] = {"initrd", -1, false, true},
    [SPF_LAYER ... SPF_MAX - 1] = {"disk layer", O_RDONLY, false, false},
};

static int check_fd(int fd, int i, uint32_t ram_mib, struct err *e)
{
    struct stat st;
    int fl = fcntl(fd, F_GETFL);
    if (fl < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fl & O_PATH)
        return err_set(e, E_INVALID, "%s: not a regular file", want[i].name);
    if (want[i].mode >= 0 && (fl & O_ACCMODE) != want[i].mode)
        return err_set(e, E_INVALID, "%s: opened with the wrong access mode", want[i].name);
    if (want[i].memfd && fcntl(fd, F_GET_SEALS) < 0)
        return err_set(e, E_INVALID, "%s: not a memfd", want[i].name);
    if (i == SPF_RAM && st.st_size != (off_t)ram_mib << 20)
        return err_set(e, E_INVALID, "RAM: %lld bytes instead of %u MiB", (long long)st.st_size, ram_mib);
    if (want[i].reopened && !(st.st_mode & S_IROTH))
        return err_set(e, E_INVALID, "%s: not readable by everybody, so not by the jailed emulator", want[i].name);
    return 0;
}

/* fds by sp_vm_fd, -1 where absent; borrowed from the request */
static int check(const struct sp_vm *q, struct request *r, int fd[SPF_MAX], struct err *e)
{
    if (!sp_id_ok(q->id))
        return err_set(e, E_INVALID, "not an id");
    if (q->accel != SP_ACCEL_TCG && q->accel != SP_ACCEL_KVM)
        return err_set(e, E_INVALID, "unknown accelerator");
    if (q->ram_mib < SP_MEM_MIN || q->ram_mib > SP_MEM_MAX || !q->vcpus || q->vcpus > SP_CPU_MAX)
        return err_set(e, E_INVALID, "impossible VM size");
    if (q->have >> SPF_MAX)
        return err_set(e, E_INVALID, "unknown descriptors");
    uint32_t must = 1u << SPF_RAM | 1u << SPF_DISK_TOP | 1u << SPF_DISK_BASE | (q->incoming ? 0 : 1u << SPF_KERNEL | 1u << SPF_INITRD);
    if ((q->have & must) != must)
        return err_set(e, E_INVALID, "RAM, top and base disk%s must be given", q->incoming ? "" : ", kernel and initrd");
    if (!q->incoming && q->accel == SP_ACCEL_TCG && (q->tsc_khz < 100000 || q->tsc_khz > 20000000))
        return err_set(e, E_INVALID, "a boot without KVM needs the host's TSC rate");
    int n = 0;
    for (int i = 0; i < SPF_MAX; i++) {
        fd[i] = -1;
        if (!(q->have >> i & 1))
            continue;
        if (n == r->nfds)
            return err_set(e, E_INVALID, "too few descriptors");
        fd[i] = r->fds[n++];
        if (check_fd(fd[i], i, q->ram_mib, e))
            return -1;
    }
    if (n != r->nfds)
        return err_set(e, E_INVALID, "too many descriptors");
    for (int i = SPF_LAYER + 1; i < SPF_MAX; i++)
        if (fd[i] >= 0 && fd[i - 1] < 0)
            return err_set(e, E_INVALID, "disk layers must be given without a gap");
    return sp_limit_ok(&q->limit, e);
}

/* ---- the command line ----------------------------------------------------------------------------------------- */

/* One node of the disk's chain; returns its name for the one above it. locking=off: exclusivity is ours to give, and all
 * but the top are shared by many. */
static const char *disk_node(struct args *a, const char *node, int set, int fd, const char *format, const char *below, bool top)
{
    const char *ro = top ? "off" : "on";
    arg(a, "-add-fd");
    arg(a, "fd=%d,set=%d", fd, set);
    arg(a, "-blockdev");
    arg(a, "driver=file,node-name=%s-file,filename=/dev/fdset/%d,read-only=%s,auto-read-only=off,locking=off,discard=unmap", node, set, ro);
    arg(a, "-blockdev");
    arg(a, "driver=%s,node-name=%s,file=%s-file%s%s,read-only=%s%s", format, node, node, below ? ",backing=" : "", below ? below : "", ro,
        top ? ",discard=unmap" : "");
    return node;
}

static void disk_args(struct args *a, const int fd[SPF_MAX])
{
    static char layer[SP_LAYERS_MAX][8];
    const char *at = disk_node(a, "base", 3, fd[SPF_DISK_BASE], "raw", NULL, false);
    if (fd[SPF_DISK_MID] >= 0)
        at = disk_node(a, "mid", 2, fd[SPF_DISK_MID], "qcow2", at, false);
    for (int i = 0; i < SP_LAYERS_MAX && fd[SPF_LAYER + i] >= 0; i++) {
        (void)snprintf(layer[i], sizeof layer[i], "l%d", i);
        at = disk_node(a, layer[i], 10 + i, fd[SPF_LAYER + i], "qcow2", at, false);
    }
    (void)disk_node(a, "top", 1, fd[SPF_DISK_TOP], "qcow2", at, true);
}

static void boot_args(struct args *a, const struct sp_vm *q, const int fd[SPF_MAX])
{
    arg(a, "-kernel");
    arg(a, "/proc/self/fd/%d", fd[SPF_KERNEL]);
    arg(a, "-initrd");
    arg(a, "/proc/self/fd/%d", fd[SPF_INITRD]);
    arg(a, "-append");
    const char *words = q->loud ? "earlyprintk=ttyS0 loglevel=7" : "quiet";
    static const char common[] = "console=ttyS0 reboot=t panic=-1 audit=0 cryptomgr.notests i8042.noaux i8042.nokbd i8042.nomux i8042.nopnp";
    /* Emulated: without the TSC rate a boot may hang; without norandmaps every exec is translated anew; the rest are a
     * kernel's defences against its own processes, which cost a tenth of every command there. */
    if (q->accel == SP_ACCEL_TCG)
        arg(a, "%s %s tsc=reliable tsc_early_khz=%u norandmaps mitigations=off init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off lsm=landlock,yama "
            "psi=0 nowatchdog transparent_hugepage=madvise",
            common, words, q->tsc_khz);
    else
        arg(a, "%s %s", common, words);
}

static int command_line(struct args *a, const struct sp_vm *q, const int fd[SPF_MAX], int chan, int volumes, int qmp, struct err *e)
{
    bool tcg = q->accel == SP_ACCEL_TCG;
    arg(a, "%s", QEMU);
    /* The default name, bios-microvm.bin, is qboot in Debian 12 and SeaBIOS in 13, which boots no kernel without option ROMs. */
    arg2(a, "-bios", FIRMWARE);
    arg2(a, "-M", "microvm,x-option-roms=off,rtc=on,pit=off,pic=off,suppress-vmdesc=on,memory-backend=mem0");
    arg2(a, "-accel", tcg ? "tcg,tb-size=128" : "kvm");
    arg2(a, "-cpu", tcg ? "max,erms=off,la57=off" : "host");
    arg(a, "-m");
    arg(a, "%u", q->ram_mib);
    arg(a, "-smp");
    arg(a, "%u", q->vcpus);
    arg(a, "-object");
    arg(a, "memory-backend-file,id=mem0,size=%uM,mem-path=/proc/self/fd/%d,share=%s", q->ram_mib, fd[SPF_RAM],
        q->incoming || q->ram_private ? "off" : "on");
    arg(a, "-nodefaults");
    arg(a, "-no-user-config");
    arg2(a, "-display", "none");
    arg(a, "-no-reboot");
    arg2(a, "-global", "migration.send-configuration=off");
    if (!q->incoming)
        boot_args(a, q, fd);
    /* the guest's console beside QEMU's own messages: server_console.c keeps the last of both */
    arg2(a, "-chardev", "file,id=con,path=/proc/self/fd/2,append=on");
    arg2(a, "-serial", "chardev:con");
    disk_args(a, fd);
    arg2(a, "-device", "virtio-blk-device,drive=top,serial=root");
    arg2(a, "-device", "virtio-scsi-device,id=scsi0");
    arg2(a, "-device", "virtio-serial-device");
    arg(a, "-chardev");
    arg(a, "socket,id=c0,fd=%d", chan);
    arg2(a, "-device", "virtserialport,chardev=c0,name=agent");
    arg(a, "-chardev");
    arg(a, "socket,id=c1,fd=%d", volumes);
    arg2(a, "-device", "virtserialport,chardev=c1,name=volumes");
    arg(a, "-netdev");
    arg(a, "tap,id=n0,fd=%d,vhost=off", SP_VM_TAP_FD);
    /* No announcements, see below. With them on and no rounds to make, QEMU 7.2 frees the card's timer when it loads a state, and
     * the guest that resets the card later, by powering off, makes it use that. */
    arg2(a, "-device", "virtio-net-device,netdev=n0,guest_announce=off,mac=" NET_GUEST_MAC_TEXT);
    arg(a, "-chardev");
    arg(a, "socket,id=mon,fd=%d", qmp);
    arg2(a, "-mon", "chardev=mon,mode=control");
    arg2(a, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    if (q->incoming) {
        arg2(a, "-incoming", "defer");
        arg2(a, "-global", "migration.x-events=on");
        /* nobody on its network has to be told that it is there, and the guest would work on that before it answers */
        arg2(a, "-global", "migration.announce-rounds=0");
    }
    return a->full ? err_set(e, E_INTERNAL, "QEMU command line too long") : 0;
}

/* ---- start ---------------------------------------------------------------------------------------------------- */

static int start(struct server *s, struct box *b, const struct sp_vm *q, const int fd[SPF_MAX], struct err *e)
{
    static struct args a; /* one thread; the child has its own copy */
    memset(&a, 0, sizeof a);
    uint32_t mib = (q->limit.memory_mib > q->ram_mib ? q->limit.memory_mib : q->ram_mib) + SP_VM_OVERHEAD_MIB;
    struct cgroup_limit limit = {.memory_bytes = (uint64_t)mib << 20, .cpu_millis = q->limit.cpu_millis, .pids_max = VM_PIDS, .low_priority = q->low_priority};
    auto_fd chan_in = -1, volumes_in = -1, qmp_in = -1, err_end = -1;
    if (box_cage(b, &limit, e) || box_channel(&b->chan, &chan_in, e) || box_channel(&b->volumes, &volumes_in, e) ||
        box_channel(&b->qmp, &qmp_in, e) || box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;
    b->disk = fcntl(fd[SPF_DISK_TOP], F_DUPFD_CLOEXEC, 10);
    if (command_line(&a, q, fd, chan_in, volumes_in, qmp_in, e))
        return -1;

    char *envp[] = {"PATH=/usr/bin", "HOME=/", "LANG=C", NULL};
    struct jail j = {.kind = JAIL_VM,
                     .hostname = "vm",
                     .filter = &s->f_vm,
                     .place = {{err_end, 2}, {fd[SPF_STATE], SP_VM_STATE_FD}},
                     .nplace = fd[SPF_STATE] >= 0 ? 2 : 1,
                     .exec_fd = -1,
                     .path = QEMU,
                     .argv = a.v,
                     .envp = envp};
    j.keep[j.nkeep++] = chan_in;
    j.keep[j.nkeep++] = volumes_in;
    j.keep[j.nkeep++] = qmp_in;
    for (int i = 0; i < SPF_MAX; i++)
        if (fd[i] >= 0 && i != SPF_STATE)
            j.keep[j.nkeep++] = fd[i];
    auto_fd root = mount_clone(s->vm_mnt[q->accel == SP_ACCEL_KVM], "", true, e);
    if (root < 0)
        return -1;
    struct jailed child;
    auto_fd tap = -1;
    if (box_jail(b, &j, &child, NULL, e) || net_furnish(&s->net, NET_VM, child.pidfd, &tap, e))
        return -1;
    return jail_go(child.sync, root, tap, -1, e);
}

int op_vm_start(struct server *s, struct request *r, struct err *e)
{
    const struct sp_vm *q = &r->q->u.vm;
    int fd[SPF_MAX];
    if (check(q, r, fd, e))
        return -1;
    if (access(QEMU, X_OK) < 0)
        return err_set(e, E_UNSUPPORTED, "QEMU is not installed (qemu-system-x86)");
    struct box *b = box_begin(s, r, q->id, SP_KIND_VM, e);
    return b ? box_begun(b, start(s, b, q, fd, e)) : -1;
}
