/* The files of a pack on their way in: written under snapshots/.<id>.tmp, where
 * a restart sweeps them, and put in place by renames when all was checked.
 * Nothing in a pack names a file: where a part goes follows from what it is.
 * Blocks; for workers. */
#pragma once
#include "base/err.h"
#include "core/pack/signer.h"
#include "image/pack.h"

struct vm_unpack;
struct pack_stage {
    int home, templates; /* owned */
    uint64_t max_bytes;
    struct vm_unpack *vm; /* owned; NULL: this host has no VMs */
    struct pack_reader *reader;
    const struct pack *pack; /* the reader's; NULL until the manifest was read */
    char signer[SIGNER_NAME];
    char id[PACK_MACHINES_MAX][22]; /* of this home: those below it, and the snapshot itself */
    unsigned n;
    char template_id[22];     /* what it will stand on */
    bool reuse;               /* … which is here already */
    struct manifest template; /* of a new one */
    int dir, fd;              /* the staging directory; the file being written */
    int tree;                 /* a container's: an unnamed file */
    bool published, kept;     /* in place; and with rows */
};
void pack_stage_init(struct pack_stage *s, int home_fd, int templates_fd, uint64_t max_bytes,
                     struct vm_unpack *vm); /* duplicates the descriptors */
int pack_stage_push(struct pack_stage *s, const char *p, size_t n, struct err *e);
/* All of it has come: checked, synced, and in place; without rows it is nothing yet. */
int pack_stage_publish(struct pack_stage *s, struct err *e);
void pack_stage_drop(struct pack_stage *s); /* close; remove what was not kept */
