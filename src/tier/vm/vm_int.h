/* Shared by the files of this folder only: host.c (identity), variant.c
 * (cache), varfile.c and manifest.c (files of a variant), build.c, start.c,
 * saved.c and save.c (a machine on disk), image.c (memory that machines share),
 * vm.c (a machine). */
#pragma once
#include "tier/vm/vm.h"
#include "base/list.h"
#include "crypto/digest.h"
#include "loop/loop.h"
#include <sys/types.h>

/* Raise when the machine that the spawner builds, or the layout of a variant, changes: old variants are then rebuilt. */
#define VM_FORMAT 5
#define VM_PAGE   4096u

/* What a variant's content depends on besides its template and size. By value: jobs take a copy along. */
struct vm_identity {
    uint32_t accel, tsc_khz;
    char cpu[SHA256_HEX + 32];
    char qemu[64];
    char kernel[96];
    char kernel_sums[SHA256_HEX];
    char agent[SHA256_HEX];
};

struct vm_host {
    struct vm_host_conf conf;
    struct vm_identity ident;
    bool ready;
    int kernel_fd;        /* vmlinux */
    int initrd_fd;        /* sealed memfd */
    struct list variants; /* loading and loaded, by key */
    struct list launches; /* of vm.c: machines that are not yet handed out */
    struct list builds;   /* of build.c */
    struct list images;   /* of image.c */
    unsigned refs;        /* the owner's, and one of everything that may come back to us */
    bool closed; /* vm_host_free was called: no callback any more, spawner and jobs are not used */
};
struct vm_host *host_ref(struct vm_host *h);
void host_unref(struct vm_host *h);
void launches_drop(struct vm_host *h); /* vm.c */
void builds_drop(struct vm_host *h);   /* build.c */

/* ---- varfile.c: blocking, for workers ---- */

struct varfile { /* an opened variant; all fds owned, -1 if not open */
    int ram_fd;  /* sealed memfd */
    int state_fd, disk_fd, base_fd;
    uint64_t ram_bytes; /* not zero */
    char ram_sha256[SHA256_HEX], disk_sha256[SHA256_HEX];
};
void varfile_init(struct varfile *f);
void varfile_close(struct varfile *f);

/* A build in progress: templates/<tid>/vm/.<key>.<rand>/ */
struct vartmp {
    int vm_dir, dir; /* templates/<tid>/vm and the temporary directory in it */
    char name[VM_KEY_SIZE + 16];
    int ram_fd;   /* memfd, shared with QEMU */
    int disk_fd;  /* rw */
    int base_fd;  /* rootfs.ext4, ro */
    int state_fd; /* write-only */
};
void vartmp_init(struct vartmp *t);
int vartmp_open(struct vartmp *t, int home, const struct vm_spec *spec, const char *key,
                struct err *e);
/* QEMU is gone: write the RAM file and the manifest, make it durable, rename it into place. */
int vartmp_publish(struct vartmp *t, const struct vm_spec *spec, const struct vm_identity *id,
                   const char *key, struct err *e);
void vartmp_drop(struct vartmp *t);                /* close; remove what was not published */
void varfile_remove(int vm_dir, const char *name); /* whoever has it loaded has its files open */
int varfile_sweep_stale(int home, const struct vm_identity *id); /* stale.c -> how many went */
int varfile_open(struct varfile *f, int home, const struct vm_spec *spec,
                 const struct vm_identity *id, const char *key, struct err *e);
int varfile_open_disks(struct varfile *f, int home, const struct vm_spec *spec, const char *key,
                       struct err *e); /* whatever emulator made it */

int fd_reopen(int fd, int flags); /* a new open file description of the same file; -1 + errno */

/* ---- manifest.c: pure ---- */

struct manifest_file {
    uint64_t bytes;
    char sha256[SHA256_HEX];
};
struct manifest {
    struct manifest_file state, disk, ram;
    uint64_t base_bytes;
    int64_t base_mtime_ns;
};
struct buf;
void varmanifest_write(struct buf *out, const struct vm_spec *spec, const struct vm_identity *id,
                       const char *key, const struct manifest *m);
/* E_CONFLICT unless every field says what we would have written. An identity with an empty agent stands for any guest
 * software: what is inside a saved machine is its own business, the emulator around it is not. No identity at all: only its
 * disk is wanted, and that fits every emulator. */
int varmanifest_read(const char *p, size_t n, const struct vm_spec *spec,
                     const struct vm_identity *id, const char *key, struct manifest *ret,
                     struct err *e);

/* ---- variant.c ---- */

struct vm_variant {
    struct list node; /* in host->variants, unless that let go of it */
    unsigned refs;
    bool loading;
    struct vm_spec spec;
    char key[VM_KEY_SIZE];
    struct varfile file;
    struct list waiters;
};
void variant_forget(struct vm_host *h, const char *key); /* the next load reads the files again */
/* As vm_variant_load, but of one that was once built, whatever kernel and agent are current. */
void variant_load_key(struct vm_host *h, const struct vm_spec *spec, const char *key,
                      vm_variant_cb *cb, void *arg);

/* ---- machine.c, saved.c: blocking, for workers ---- */

int machine_write(int home, const char *box_id, const struct vm_machine *m, bool durable,
                  struct err *e);
void machine_of_variant(const struct vm_variant *v, struct vm_machine *ret);
void machine_top_name(uint32_t top, char out[24]);
struct jw;
struct json;
void machine_put(struct jw *w, const struct vm_machine *m); /* members of an open object */
int machine_get(struct json *j, struct vm_machine *ret, struct err *e);

struct saved_parts {
    uint64_t pages_bytes, devices_bytes;
    char devices_sha256[VM_SHA_SIZE];
}; /* of `state` */

struct savedtmp {    /* a saved machine being written */
    int parent, dir; /* boxes/<bid> or snapshots, and the temporary directory in it */
    char tmp[SP_ID + 8], name[SP_ID];
    int state_fd, index_fd; /* rw */
    int from_fd, disk_fd;   /* a snapshot: the box's own disk, and the copy of it */
    int dev_fd;             /* memfd: device state as QEMU writes it */
    bool memory;
    bool whole; /* `state` has its devices already: linked, parts are known */
    struct saved_parts parts;
};
void savedtmp_init(struct savedtmp *t);
int savedtmp_open(struct savedtmp *t, int home, const char *box_id, const char *snapshot_id,
                  bool memory, struct err *e);
/* For a snapshot: top is the box's disk. The copy is taken while the VM stands still. */
int savedtmp_open_disk(struct savedtmp *t, int home, const char *box_id, uint32_t top,
                       struct err *e);
int savedtmp_copy_disk(struct savedtmp *t, struct err *e);
/* For a snapshot of a box that is saved (t open without memory, its disk with it): its memory, checked, by links, as nobody ever
 * writes to those files. E_NOT_FOUND: saved without memory. */
int savedtmp_link_memory(struct savedtmp *t, int home, const char *box_id,
                         const struct vm_identity *id, struct vm_machine *m, struct vm_saved *facts,
                         struct err *e);
/* Device state behind the pages, manifest, sync, rename. */
int savedtmp_publish(struct savedtmp *t, const struct vm_machine *m, const struct vm_identity *id,
                     struct vm_saved *facts, struct err *e);
void savedtmp_drop(struct savedtmp *t); /* close; remove what was not published */

struct savedfile {
    int state_fd, index_fd;
    struct vm_machine machine;
    struct vm_saved facts;
    struct saved_parts parts;
};
void savedfile_close(struct savedfile *f);
/* dir: of the saved machine. Facts and identity are checked; the pages only by savedfile_verify. */
int savedfile_open(struct savedfile *f, int dir, const struct vm_identity *id, struct err *e);
int savedfile_machine(struct savedfile *f, int dir,
                      struct err *e); /* what it stands on alone, whoever wrote its memory */
int savedfile_verify(const struct savedfile *f, struct err *e);
int savedfile_apply(const struct savedfile *f, int ram_fd,
                    struct err *e); /* the same, and every page to its place */
void saved_remove(int home, const char *box_id);
int saved_dir_open(int home, const char *box_id, const char *snapshot_id, struct err *e);

/* ---- image.c ---- */

struct vm_image {
    struct list node;
    unsigned refs;
    char id[SP_ID];
    bool making, failed;
    int ram_fd, devices_fd; /* -1: not made */
    struct list waiters;
};
struct vm_image *image_of(struct vm_host *h, const char *snapshot_id); /* a reference */
struct vm_image *image_ref(struct vm_image *m);
void image_unref(struct vm_image *m); /* NULL is fine */
bool image_pays(const struct vm_image *m, unsigned copies, uint64_t variant_bytes, uint32_t pages);
typedef void image_cb(void *arg); /* made, or not: then a machine does without */
void image_make(struct vm_host *h, struct vm_image *m, struct vm_variant *v /* NULL: it booted */,
                const struct savedfile *f /* copied */, image_cb *cb, void *arg);
int image_compose(int variant_ram /* -1: it booted */, const struct savedfile *f, int *ret_ram,
                  int *ret_devices, struct err *e); /* blocks */

/* ---- vm.c ---- */

/* Ask the spawner for a QEMU and connect to it. fds are borrowed until this returns. cb as in vm_start. */
struct vm_launch {
    const struct sp_vm *req;
    const int *fds;
    int nfds;
    int state_fd;                     /* moved; -1: none */
    struct vm_variant *variant;       /* or NULL */
    struct vm_image *image;           /* of the snapshot it is made of, or NULL */
    const struct vm_machine *machine; /* or NULL; copied */
    bool keep_files;                  /* a failure leaves boxes/<bid> alone */
};
void vm_launch(struct vm_host *h, struct vm_launch l, vm_cb *cb, void *arg);
void vm_remove_box(struct vm_host *h, const char *id);  /* SP_REMOVE, nobody waits */
void vm_release_box(struct vm_host *h, const char *id); /* SP_RELEASE, likewise */
struct vm_host *vm_host_of(struct vm *vm);
struct vm_machine *vm_machine_of(struct vm *vm);        /* NULL: not known */
void vm_set_saving(struct vm *vm, struct vm_saving *s); /* told when the vm is freed meanwhile */
void saving_vm_freed(struct vm_saving *s);              /* save.c */
