/* Virtual machines: QEMU microvm processes that hutch-spawn starts and jails,
 * driven over QMP. This module knows snapshots, disks and run states; it does
 * not speak the agent protocol (core does, on vm_chan()).
 *
 * Words:
 *   variant  a booted, prepared and frozen guest of one template and one size:
 *            templates/<tid>/vm/<key>/{state,ram,disk.qcow2,manifest.json}.
 *   slot     a QEMU process that has a variant's RAM mapped privately and waits
 *            for vm_restore(). About 12 MB, no CPU.
 *   vm       a slot, later a running guest.
 *
 * Thread: everything here belongs to the loop thread of the host. Files are
 * touched on workers (host.jobs) only, except where a comment says "blocks".
 *
 * Callbacks: each asynchronous call has exactly one; it never runs inside the
 * call itself; it never runs after the object was freed (vm_free,
 * vm_build_cancel, vm_host_free). A callback may free the object it is about.
 * `e` is NULL on success and borrowed otherwise.
 *
 * Hostile side: a guest may have taken over its QEMU. What QEMU says is capped
 * and typed (qmp.h); a violation loses that VM (on_lost), never the daemon. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "spawn/op.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct jobs;
struct spawn_client;

#define VM_KEY_SIZE 33 /* 32 hex + NUL */
#define VM_SHA_SIZE 65
#define VM_PREPARED 96

/* ---- host ------------------------------------------------------------------------------------------------------ */

struct vm_host_conf {
    struct loop *loop; /* all three borrowed, must outlive the host */
    struct jobs *jobs;
    struct spawn_client *spawn;
    int home_fd;             /* HUTCH_HOME; borrowed */
    uint32_t accel;          /* SP_ACCEL_TCG or SP_ACCEL_KVM: the probe's verdict (kvmprobe.h) */
    uint32_t tsc_khz;        /* tsc_khz_measure(); used with TCG only */
    char qemu_version[64];   /* as vm_qemu_version() found it */
    int64_t boot_timeout_ns; /* of one build attempt until prepared; 0: 60 s */
    int64_t qmp_timeout_ns;  /* of one QMP step; 0: 20 s */
};

struct vm_host;
struct vm_host *vm_host_new(const struct vm_host_conf *conf);
/* No callback of this module runs after this, what is in flight is given up quietly. Every vm must have been freed; free
 * the spawn client in the same turn, then the jobs, then the loop. NULL is fine. */
void vm_host_free(struct vm_host *h);

/* Load the guest kernel (output of share/tools/kernel.sh) and the agent binary; builds the initrd in memory. May be
 * called again after either changed: keys change with it. Blocks for some 10 ms: start-up or a worker's result only.
 * Both fds stay the caller's. Until it succeeded everything but vm_adopt fails with E_UNAVAILABLE. */
int vm_host_load(struct vm_host *h, int kernel_dir_fd, int agent_fd, struct err *e);
bool vm_host_ready(const struct vm_host *h);

/* Identity of the emulator: "qemu " + 40 hex of the SHA-256 of the binary that is exec'ed, so that after an upgrade old
 * device state is never loaded. Blocks (~40 ms for 20 MB); once at start. */
int vm_qemu_version(const char *binary, char out[64], struct err *e);

/* ---- variants -------------------------------------------------------------------------------------------------- */

struct vm_spec {
    char template_id[SP_ID];
    uint32_t ram_mib, vcpus, disk_mib;
    char prepared
        [VM_PREPARED]; /* names what else runs in its guest; "": nothing. Part of the key only */
};

/* Hash over (template, RAM, vCPUs, disk, accelerator, CPU model, QEMU, kernel, agent, what else runs in it). The TSC rate, which TCG guests
 * are bound to as well, is compared at load with a tolerance: two measurements never agree to the last digit. */
void vm_key(const struct vm_host *h, const struct vm_spec *spec, char out[VM_KEY_SIZE]);

struct vm_variant; /* sealed RAM in memory and where its files are; one per key, counted */
const struct vm_spec *vm_variant_spec(const struct vm_variant *v);
const char *vm_variant_key(const struct vm_variant *v);
uint64_t vm_variant_ram_bytes(
    const struct vm_variant *v); /* not zero, i.e. what the memfd occupies */
struct variant;
struct vm_variant *vm_variant_of(struct variant *v); /* of the tier's (variant.h); borrowed */
struct vm_variant *vm_variant_ref(struct vm_variant *v);
void vm_variant_unref(struct vm_variant *v); /* the last one drops the memfd; NULL is fine */

/* Load a published variant, or share the one already in memory. `v` is the callback's own reference (unref it).
 * E_NOT_FOUND: never built. E_CONFLICT: manifest or hashes do not fit (other versions, damage): rebuild; nothing of
 * it was used. */
typedef void vm_variant_cb(void *arg, struct vm_variant *v, const struct err *e);
void vm_variant_load(struct vm_host *h, const struct vm_spec *spec, vm_variant_cb *cb, void *arg);

/* Remove, on a worker, what was built by another agent, guest kernel or emulator and no box and no snapshot stands on. */
void vm_variants_sweep(struct vm_host *h);

struct vm_build;
struct vm_build_ops {
    /* 0..100 and a few words; may be NULL. */
    void (*progress)(void *arg, int percent, const char *what);
    /* The guest boots. chan_fd (non-blocking stream, borrowed) is the agent channel: bytes written now wait there until
     * the agent reads. Do the handshake, warm what should be warm, sync; then call vm_build_prepared() once. After
     * that, and when prepare is called a second time (the first boot hung; another channel) or done is called, the
     * earlier chan_fd is dead: stop using it, it is about to be closed. */
    void (*prepare)(void *arg, struct vm_build *b, int chan_fd);
    /* The build is over and `b` is gone. v: as in vm_variant_load, read back from what was published. */
    void (*done)(void *arg, struct vm_variant *v, const struct err *e);
};
/* Build and publish; replaces a published one of the same key. NULL + e only for impossible specs and an unready host. */
struct vm_build *vm_variant_build(struct vm_host *h, const struct vm_spec *spec,
                                  const struct vm_build_ops *ops, void *arg, struct err *e);
/* why: NULL = prepared, go on; else the build fails with it (no retry: the guest answered, and the answer was no). */
void vm_build_prepared(struct vm_build *b, const struct err *why);
/* The guest did not come up, or went silent: as if the deadline had passed, once more with everything made anew, then the build fails. */
void vm_build_silent(struct vm_build *b, const struct err *why);
const char *vm_build_id(const struct vm_build *b);
void vm_build_cancel(
    struct vm_build *b); /* no callback follows; its VM is killed and its files removed */

/* ---- what a machine stands on ---------------------------------------------------------------------------------- */

/* Snapshots whose disk lies between the variant's and the machine's own, lowest first. */
struct vm_layers {
    char id[SP_LAYERS_MAX][SP_ID];
    int n;
};

/* boxes/<bid>/machine.json: written before a machine starts and whenever it changes, so that whoever comes later (a
 * successor of the daemon, a resume, a cold boot) can put the same machine together. */
struct vm_machine {
    struct vm_spec spec;
    char key[VM_KEY_SIZE];                                  /* of its variant */
    char ram_sha256[VM_SHA_SIZE], disk_sha256[VM_SHA_SIZE]; /* … which, rebuilt, would be another */
    char image[SP_ID]; /* snapshot whose memory lies over the variant's; "": none */
    bool booted;       /* its RAM began empty: booted from its disk, not restored */
    struct vm_layers layers;
    uint32_t top; /* its own disk: disk.qcow2, disk-1.qcow2, … */
};
int vm_machine_read(int home_fd, const char *box_id, struct vm_machine *ret,
                    struct err *e); /* blocks */

/* ---- machines -------------------------------------------------------------------------------------------------- */

struct vm;
typedef void vm_cb(void *arg, struct vm *vm, const struct err *e);

struct vm_limits {
    struct sp_limit limit;
    bool low_priority;
};

/* Start a slot: boxes/<bid>/disk.qcow2 (a new overlay over the variant's disk over the template's image) and a QEMU
 * at -incoming defer. On failure the callback gets vm == NULL and what was made is removed (SP_REMOVE). On success the
 * callback owns vm. The variant is referenced until vm_free. */
void vm_start(struct vm_host *h, struct vm_variant *v, const char *box_id,
              const struct vm_limits *lim, vm_cb *cb, void *arg);

/* Load the variant's device state and run; done when the vCPUs run. Requests may be written to vm_chan before. */
void vm_restore(struct vm *vm, vm_cb *cb, void *arg);

void vm_stop(struct vm *vm, vm_cb *cb,
             void *arg); /* vCPUs stand still, nothing is read from the channel */
void vm_cont(struct vm *vm, vm_cb *cb, void *arg);
/* Device state of a *stopped* vm into fd (O_WRONLY, empty file; stays the caller's; a duplicate is passed). */
void vm_save_state(struct vm *vm, int fd, vm_cb *cb, void *arg);
void vm_quit(struct vm *vm, vm_cb *cb,
             void *arg); /* orderly: disks flushed and closed; done when the process is gone */

/* ---- a machine on disk: pause, resume, cold boot ---- */

/* A VM's memory and devices on their way to boxes/<bid>/saved, or to a snapshot. Three steps, so that what can be done
 * before and after is not done while the guest stands still: new (files are made), take (the vm must be stopped), publish
 * (manifest, sync, rename: it is there whole, or not at all). The vm is only used in `take`. */
struct vm_saving;
struct vm_saved {
    uint64_t generation;
    bool memory;
    uint32_t pages;
    uint64_t bytes;      /* on disk, without the disk layer */
    uint64_t disk_bytes; /* of a snapshot */
    int64_t at_wall_ns;
};
typedef void vm_saving_cb(void *arg, struct vm_saving *s, const struct err *e);
/* memory: false keeps the files only, and a resume boots; for its own box (snapshot_id NULL) take is then left out. A snapshot
 * holds a copy of the machine's own disk layer, taken in `take` too. E_QUOTA: the snapshot chain is too deep. */
struct vm_saving *vm_saving_new(struct vm *vm, const char *snapshot_id, bool memory,
                                vm_saving_cb *cb, void *arg);
void vm_saving_take(struct vm_saving *s, vm_saving_cb *cb, void *arg);
void vm_saving_publish(struct vm_saving *s, uint64_t generation, vm_saving_cb *cb, void *arg);
/* A snapshot of a box that is saved already and has no vm: all of it is copied or linked by this, then comes publish.
 * E_NOT_FOUND: memory was asked for, and it was saved without. */
struct vm_saving *vm_saving_of_saved(struct vm_host *h, const char *box_id, const char *snapshot_id,
                                     bool memory, vm_saving_cb *cb, void *arg);
const struct vm_saved *vm_saving_facts(const struct vm_saving *s); /* after publish */
void vm_saving_free(
    struct vm_saving *s); /* no callback follows; what was not published is removed. NULL is fine */

/* What vm_saving_publish left for a box. E_NOT_FOUND: nothing. E_CONFLICT: unusable here (other emulator, damage). Blocks. */
int vm_saved_read(struct vm_host *h, const char *box_id, struct vm_saved *ret, struct err *e);
void vm_saved_drop(struct vm_host *h, const char *box_id); /* its machine runs again; on a worker */

/* A slot on boxes/<bid> as it was saved, every page checked; vm_restore() then brings it back. Failure leaves all as it
 * was (SP_RELEASE). Saved without memory: E_NOT_FOUND, boot it. */
void vm_resume(struct vm_host *h, const char *box_id, const struct vm_limits *lim, vm_cb *cb,
               void *arg);
/* The machine of boxes/<bid> booted from its disk: a new kernel, the files as they were. Done when the vCPUs run. */
void vm_boot(struct vm_host *h, const char *box_id, const struct vm_limits *lim, vm_cb *cb,
             void *arg);

/* A new box on snapshots/<sid>: a fresh overlay over its disk, its memory checked and ready for vm_restore(), as vm_start
 * otherwise; or (boot) a new kernel on its files, as vm_boot. E_NOT_FOUND: no such snapshot, or without memory. copies: how
 * many are asked for at once, this one included; many of one snapshot share its memory (image.c). */
void vm_start_from(struct vm_host *h, const char *snapshot_id, bool boot, unsigned copies,
                   const char *box_id, const struct vm_limits *lim, vm_cb *cb, void *arg);
/* What lies in snapshots/<sid>: facts, and that its manifest can be read. Blocks. */
int vm_snapshot_read(struct vm_host *h, const char *snapshot_id, struct vm_saved *ret,
                     struct err *e);

/* ---- packs: a snapshot that leaves, or comes from elsewhere (image/pack.h). All of it blocks but vm_unpack_new. ---- */

struct vm_pack { /* what a snapshot stands on, opened; -1: not there */
    int image, ram, devices, boot, state,
        pages;  /* the template's image; its variant's files; the snapshot's memory */
    unsigned n; /* machines: those below it, lowest first, and itself */
    int disk[SP_LAYERS_MAX + 1];
    char *variant, *text[SP_LAYERS_MAX + 1]; /* their manifests */
};
int vm_pack_open(int home_fd, const char *snapshot_id, struct vm_pack *ret,
                 struct err *e); /* vm_pack_close also after a failure */
void vm_pack_close(struct vm_pack *p);

struct vm_unpack; /* keeps what this host is, so that workers can ask */
struct vm_unpack *vm_unpack_new(const struct vm_host *h);
void vm_unpack_free(struct vm_unpack *u); /* NULL is fine */
/* Can it be used here? E_CONFLICT names what differs. spec: as the pack has it. Before anything of it is written. */
int vm_unpack_fit(struct vm_unpack *u, const struct vm_spec *spec, bool memory, const char *variant,
                  char *const *machine, unsigned n, struct err *e);
const char *vm_unpack_key(const struct vm_unpack *u);
bool vm_unpack_same(const struct vm_unpack *u, int home_fd,
                    const char *template_id); /* that template here has the very same variant */
/* Directories with the files of a pack get their manifests, with ids of this home, and are checked. */
int vm_unpack_variant(struct vm_unpack *u, int dir, int image, const char *template_id,
                      struct err *e);
int vm_unpack_machine(struct vm_unpack *u, unsigned i, int dir, const char *template_id,
                      const char (*ids)[22], struct err *e);

/* What QEMU and the guest's kernel printed last, bounded by SP_CONSOLE_MAX, as lines of printable ASCII (the rest is
 * escaped: the guest chooses it). -1: the callback will not come. */
typedef void vm_console_cb(void *arg, struct str text, const struct err *e);
int vm_console(struct vm_host *h, const char *box_id, vm_console_cb *cb, void *arg, struct err *e);

/* Take over a VM of an earlier daemon: fds from SP_ATTACH (pidfd, chan, qmp; moved, also on failure). v may be NULL
 * when its variant is no longer loaded (a slot that was never restored is then useless: free it). Done when QEMU
 * answered; vm_run_state() then tells whether it runs. */
void vm_adopt(struct vm_host *h, struct vm_variant *v, const char *box_id, int pidfd, int chan_fd,
              int qmp_fd, vm_cb *cb, void *arg);

enum vm_run { VM_SLOT /* waits for vm_restore */, VM_RESTORING, VM_RUNNING, VM_STOPPED, VM_LOST };
enum vm_run vm_run_state(const struct vm *vm);
const char *vm_id(const struct vm *vm);
int vm_chan(const struct vm *vm);  /* borrowed until vm_free: stop its io first */
int vm_pidfd(const struct vm *vm); /* borrowed */
int vm_pid(const struct vm
               *vm); /* as seen by us; 0 once gone. For pagemap and process_vm_* (snapshots). */
/* The process ended or QEMU broke the QMP protocol: called once, after the pending calls failed. The vm must still be
 * freed. Exit status and OOM come from the spawner's exit event. `e` says what was seen. */
void vm_on_lost(struct vm *vm, void (*fn)(void *arg, struct vm *vm, const struct err *e),
                void *arg);

/* Forget the vm: closes our ends of QMP and channel. Does not end the process (hutchd restarts do exactly this); who
 * wants that calls SP_KILL or SP_REMOVE with its id. Pending callbacks are dropped. NULL is fine. */
void vm_free(struct vm *vm);
