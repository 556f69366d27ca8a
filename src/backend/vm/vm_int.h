/* Shared by the files of this folder only: host.c (identity), variant.c
 * (cache), varfile.c and manifest.c (files of a variant), build.c, start.c,
 * vm.c (a machine). */
#pragma once
#include "backend/vm/vm.h"
#include "base/list.h"
#include "crypto/digest.h"
#include "loop/loop.h"
#include <sys/types.h>

/* Raise when the machine that the spawner builds, or the layout of a variant, changes: old variants are then rebuilt. */
#define VM_FORMAT 2
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
    int kernel_fd; /* vmlinux */
    int initrd_fd; /* sealed memfd */
    struct list variants; /* loading and loaded, by key */
    struct list launches; /* of vm.c: machines that are not yet handed out */
    struct list builds;   /* of build.c */
    unsigned refs;        /* the owner's, and one of everything that may come back to us */
    bool closed;          /* vm_host_free was called: no callback any more, spawner and jobs are not used */
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
int vartmp_open(struct vartmp *t, int home, const struct vm_spec *spec, const char *key, struct err *e);
/* QEMU is gone: write the RAM file and the manifest, make it durable, rename it into place. */
int vartmp_publish(struct vartmp *t, const struct vm_spec *spec, const struct vm_identity *id, const char *key, struct err *e);
void vartmp_drop(struct vartmp *t); /* close; remove what was not published */
int varfile_open(struct varfile *f, int home, const struct vm_spec *spec, const struct vm_identity *id, const char *key, struct err *e);

int fd_reopen(int fd, int flags); /* a new open file description of the same file; -1 + errno */

/* ---- manifest.c: pure ---- */

struct manifest_file { uint64_t bytes; char sha256[SHA256_HEX]; };
struct manifest { struct manifest_file state, disk, ram; uint64_t base_bytes; int64_t base_mtime_ns; };
struct buf;
void varmanifest_write(struct buf *out, const struct vm_spec *spec, const struct vm_identity *id, const char *key, const struct manifest *m);
/* E_CONFLICT unless every field says what we would have written. */
int varmanifest_read(const char *p, size_t n, const struct vm_spec *spec, const struct vm_identity *id, const char *key, struct manifest *ret,
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

/* ---- vm.c ---- */

/* Ask the spawner for a QEMU and connect to it. fds are borrowed until this returns. cb as in vm_start. */
void vm_launch(struct vm_host *h, struct vm_variant *v, const struct sp_vm *req, const int *fds, int nfds, int state_fd, vm_cb *cb, void *arg);
void vm_remove_box(struct vm_host *h, const char *id); /* SP_REMOVE, nobody waits */
