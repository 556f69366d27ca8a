/* The closed list of what hutchd may ask of hutch-spawn, the only root code
 * that runs after start. Requests and replies are fixed-size structs in one
 * SEQPACKET message each, with file descriptors beside them. Nothing here is a
 * path or a command: ids are validated against id_ok(), sizes against the
 * limits below, and every descriptor is checked for its type before use.
 *
 * Layout under HUTCH_HOME that the spawner builds paths from (by ids only):
 *   templates/<tid>/rootfs.ext4      immutable image, lower layer of containers
 *   boxes/<bid>/upper.ext4           writable layer of a container
 *   snapshots/<sid>/upper.ext4       a copy of one, written by the spawner and root's
 *   fs/<mib>.ext4                    formatted empty images, copied for new uppers
 *   volumes/<vid>.ext4               volumes; the directory is root's alone, so that what is mounted on the host was only
 *                                    ever written by the host's kernel (docs/decisions/014-volumes.md)
 *
 * The spawner keeps, for every box, the host ends of its channel (and QMP)
 * sockets; hutchd gets duplicates, again after a restart (SP_ATTACH). */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define SP_VERSION     4
#define SP_ID         24   /* 21 characters + NUL, padded */
#define SP_MEM_MIN    64u  /* MiB */
#define SP_MEM_MAX    (1u << 20)
#define SP_CPU_MAX    64u
#define SP_DISK_MAX   (16u << 20) /* MiB */
#define SP_LIST_MAX   64
#define SP_LAYERS_MAX 20   /* disk layers between a variant's disk and the top */
#define SP_VOLUME_MIN 16u /* MiB */
#define SP_CONSOLE_MAX 16384
#define SP_PLACE      256 /* where a volume goes inside a box */

enum sp_op {
    SP_HELLO = 1,      /* -> sp_hello: version, features, uid base, cgroup version */
    SP_BOX_START,      /* container: sp_box -> sp_info, fds: pidfd, channel */
    SP_VM_START,       /* sp_vm + fds in SPF_* order -> sp_info, fds: pidfd, channel, qmp */
    SP_ATTACH,         /* sp_id -> sp_info, fds as at start (a dead box: E_GONE with its status in u.exit) */
    SP_LIST,           /* sp_page -> sp_listing: live boxes, SP_LIST_MAX at a time */
    SP_KILL,           /* sp_id: SIGKILL everything of the box; the exit event follows */
    SP_REMOVE,         /* sp_id: kill if alive, wait for the end, remove cgroups; boxes/<bid> follows at once (a crash in between: the next start's sweep); idempotent */
    SP_FREEZE, SP_THAW,/* sp_id: freezer */
    SP_LIMITS,         /* sp_limits: change cpu/memory/pids of a live box */
    SP_STAT,           /* sp_id -> sp_stat: cgroup accounting; of a released box only disk_used: what boxes/<bid> takes */
    SP_TEMPLATE_DROP,  /* sp_id: forget the template's cached mount (before deletion) */
    SP_PACK,           /* sp_pack + fd: tar stream on stdin -> templates/<tid>.tmp/rootfs.ext4, in a jail; fd: progress pipe (text lines), then the exit event (its id is the template's) */
    SP_TOOL,           /* sp_tool: run one of the fixed programs of share/ (mmdebstrap, kernel) -> fds: stdout pipe, stderr pipe; exit event */
    SP_NET,            /* sp_id -> sp_net, fds: the gate's sockets inside the box's network namespace, in the order of enum net_sock (wire/net.h); the spawner keeps none */
    SP_EGRESS,         /* sp_id: start hutch-egress unless one runs -> sp_info of the one that runs; exit event with its id */
    SP_SHUTDOWN,       /* kill every box and exit */
    SP_RELEASE,        /* sp_id: as SP_REMOVE, but boxes/<bid> stays (a sandbox paused to disk); idempotent */
    SP_VM_SAVE,        /* sp_save + fds: page file, index file (both empty, rw) [, index file of pages that are saved in any case] -> sp_saved.
                        * The memory of a stopped VM as spawn/pages.h has it. In a process of its own; others are served meanwhile. */
    SP_VOLUME_MAKE,    /* sp_volume: a formatted image of that size; E_CONFLICT if there is one */
    SP_VOLUME_DELETE,  /* sp_id: unmount and delete the image; absent is fine; E_UNAVAILABLE while something still holds it */
    SP_VOLUME_CLOSE,   /* sp_id: forget our mount of it; it is written back and unmounted when the last box that has it ends */
    SP_VOLUME_STAT,    /* sp_id -> sp_stat: disk_bytes (its size), disk_used (what it takes on the host) */
    SP_KEEPER_START,   /* sp_keeper: the process that serves a volume's files, mounting it if need be -> sp_info, fds: pidfd, channel */
    SP_VOLUME_PORT,    /* sp_id of a VM -> fd: its channel for volumes */
    SP_VOLUME_LEND,    /* sp_lend: mount an open volume inside a running container that has not been configured yet */
    SP_ISOLATE_START,  /* sp_isolate -> sp_info, fds: pidfd, channel to the warden (wire/isolate.h) */
    SP_LAYER_SAVE,     /* sp_layer -> sp_saved (ns it stood still, bytes): the writable layer of a running container into snapshots/.<sid>.tmp, which
                        * is there. In a process of its own. */
    SP_LAYER_SEED,     /* sp_layer -> sp_saved: boxes/<bid> made, with the layer of snapshots/<sid>; SP_BOX_START then starts on it. Likewise. */
    SP_CONSOLE,        /* sp_id -> fd: the last SP_CONSOLE_MAX bytes that a box wrote to stderr (a VM: its guest's console too), as they are; also of a dead box */
    SP_GVISOR_START,   /* sp_box -> sp_info, fds: pidfd, channel: as SP_BOX_START, under a kernel of its own in user space (runsc) */
    SP_OP_MAX
};

enum sp_cgroup { SP_CG_V1 = 1, SP_CG_V2 = 2 };
enum sp_feature {
    SP_FEAT_CGROUP2_KILL = 1,
    SP_FEAT_KVM_NODE = 2,   /* /dev/kvm exists; whether it is any good is not known here */
    SP_FEAT_MOUNTS_OK = 4,  /* a clone and an overlay were just made, as boxes need them … */
    SP_FEAT_MOUNTS_BAD = 8, /* … or could not: note says why. Neither: a spawner of an older version */
    SP_FEAT_SHELF = 16,     /* by the way of kernels before 6.15 (jail/shelf.h) */
};
#define SP_VM_OVERHEAD_MIB 512u /* emulator beside the guest RAM: translation cache 128, heap, and page cache of the disk under writeback */
#define SP_GVISOR_OVERHEAD_MIB 96u /* runsc's kernel and file server beside the guest's memory */
#define SP_VM_STATE_FD     9            /* number of SPF_STATE inside QEMU: {"uri":"fd:9"} */
#define SP_VM_TAP_FD       8            /* number of its tap; every VM has one */

struct sp_id { char id[SP_ID]; };

struct sp_limit { uint32_t memory_mib, cpu_millis /* 1000 = one core */, pids_max, pad; };

struct sp_box {
    char id[SP_ID];
    char template_id[SP_ID];
    struct sp_limit limit;
    uint32_t disk_mib;
    uint32_t inodes;      /* 0: from disk size */
    char hostname[64];
};

/* Descriptors of SP_VM_START, in this order; absent ones are left out and not flagged in `have`. */
enum sp_vm_fd { SPF_RAM, SPF_STATE, SPF_DISK_TOP /* qcow2, rw */, SPF_DISK_MID /* qcow2, ro */, SPF_DISK_BASE /* raw, ro */, SPF_KERNEL, SPF_INITRD,
                SPF_LAYER /* qcow2, ro; SP_LAYERS_MAX of them, lowest first: base <- mid <- layers <- top */, SPF_MAX = SPF_LAYER + SP_LAYERS_MAX };
enum { SP_ACCEL_TCG = 1, SP_ACCEL_KVM = 2 };
struct sp_vm {
    char id[SP_ID];
    struct sp_limit limit;   /* of the QEMU process: the spawner adds the emulator's own overhead to memory */
    uint32_t ram_mib, vcpus;
    uint32_t accel;          /* SP_ACCEL_* */
    uint32_t have;           /* bit set over sp_vm_fd */
    uint32_t incoming;       /* 1: -incoming defer and a private mapping of RAM; 0: boot kernel+initrd with RAM shared */
    uint32_t tsc_khz;        /* TCG boot: tsc_early_khz */
    uint32_t low_priority;   /* start niced (pool refill); lifted with SP_LIMITS */
    uint32_t ram_private;    /* boot: map RAM privately as well, so that it can be saved like a clone's */
    uint32_t loud;           /* boot: the kernel says all it does */
};

struct sp_volume { char id[SP_ID]; uint32_t size_mib; uint32_t inodes; /* 0: from the size */ };
struct sp_keeper { char id[SP_ID]; char volume[SP_ID]; };
/* `place` is resolved inside the box, by a process that has the box's root, ids and rights; see sp_place_ok(). */
struct sp_lend { char box[SP_ID]; char volume[SP_ID]; uint32_t read_only, pad; char place[SP_PLACE]; };

enum sp_language { SP_LANG_PYTHON = 1, SP_LANG_JS, SP_LANG_PHP, SP_LANG_RUBY, SP_LANG_MAX };
struct sp_isolate { char id[SP_ID]; char template_id[SP_ID]; struct sp_limit limit; uint32_t language, pad; };

enum sp_kind { SP_KIND_BOX = 1, SP_KIND_VM, SP_KIND_PACK, SP_KIND_TOOL, SP_KIND_EGRESS, SP_KIND_KEEPER, SP_KIND_ISOLATE };
struct sp_info { char id[SP_ID]; uint32_t kind; int32_t alive; uint32_t uid_base; int32_t pid; uint64_t started_mono_ns; };
struct sp_page { char after[SP_ID]; };
struct sp_listing { uint32_t n; uint32_t more; struct sp_info item[SP_LIST_MAX]; };
struct sp_limits { char id[SP_ID]; struct sp_limit limit; uint32_t raise_priority, pad; };
struct sp_stat { uint64_t cpu_ns, mem_bytes, mem_cache, mem_peak, oom_kills, nproc, disk_used, disk_bytes; };
enum { SP_PACK_TAR = 0 /* fd: tar stream */, SP_PACK_IMAGE = 1 /* fd: seekable OCI or docker archive (hutch-untar --image) */,
       SP_PACK_ONTO = 2 /* fd: a difference (hutch-untar --onto), applied to a copy of the image of base_id */ };
struct sp_pack { char template_id[SP_ID]; uint32_t size_mib; uint32_t slack_mib; /* free space left after shrinking */ uint32_t mode, pad; char base_id[SP_ID]; };
enum sp_tool_kind { SP_TOOL_BOOTSTRAP = 1 /* stdout: tar of the tree */, SP_TOOL_KERNEL /* share/tools/kernel.sh HOME/kernel */,
                    SP_TOOL_PRESET /* share/tools/presets.sh VARIANT: where the host's own package tools go */ };
struct sp_tool { char id[SP_ID]; uint32_t kind; uint32_t pad; char variant[32]; /* recipe name, name_ok() */ };
struct sp_save { char id[SP_ID]; uint32_t ram_mib; uint32_t skip_zero; /* pages of zeros are not saved: the RAM began empty */ };
struct sp_saved { uint32_t pages, pad; uint64_t ns, bytes; };
struct sp_layer { char id[SP_ID]; char snapshot[SP_ID]; };
struct sp_net { uint32_t n, pad; };
struct sp_hello { uint32_t version, cgroup; uint64_t uid_base; uint32_t features, pad; char note[160]; };

struct sp_req {
    uint32_t version, op;
    uint64_t seq; /* echoed; 0 is for events */
    union { struct sp_id id; struct sp_box box; struct sp_vm vm; struct sp_isolate isolate; struct sp_page page; struct sp_limits limits; struct sp_pack pack; struct sp_tool tool;
            struct sp_volume volume; struct sp_keeper keeper; struct sp_lend lend; struct sp_save save; struct sp_layer layer; } u;
};

struct sp_exit { char id[SP_ID]; uint32_t kind; int32_t code; /* exit status or signal */ int32_t signaled; uint32_t oom_kills; };

struct sp_rep {
    uint64_t seq;     /* 0: event, u.exit is set */
    int32_t rc, pad;  /* 0 or -1 with err */
    struct err err;
    union { struct sp_hello hello; struct sp_info info; struct sp_listing listing; struct sp_stat stat; struct sp_net net; struct sp_exit exit; struct sp_saved saved; } u;
};
