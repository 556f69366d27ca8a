/* A volume's files between a VM and the volume's keeper. In the VM a FUSE
 * client (guest/share.c) turns what its kernel asks into messages; hutchd
 * passes them on as bytes, without looking; the keeper (guest/serve.c) acts on
 * them. Normative text: docs/wire.md.
 *
 *   request = share_head path path2 fuse_in_header body     client -> server
 *   reply   = fuse_out_header body                          server -> client
 *
 * The FUSE parts are as <linux/fuse.h> has them, with two differences that
 * make the server stateless but for open files: what a node id means is said
 * as a path (relative to the top, "" is the top itself), and the client, not
 * the server, chooses handles. So all that must survive a lost connection, a
 * pause or a copy of the VM lies in the VM's own memory: the client connects
 * again, opens its handles again by path, and repeats what was not answered.
 *
 * Node ids, lookup counts and cache times in replies are the client's to fill
 * in. FUSE_INIT, FORGET, BATCH_FORGET, INTERRUPT and DESTROY are never sent. */
#pragma once
#include <stdint.h>

#define SHARE_IO_MAX   (128u << 10) /* bytes of one READ or WRITE */
#define SHARE_PATH_MAX 4095u
#define SHARE_MSG_MAX  (SHARE_IO_MAX + 2 * SHARE_PATH_MAX + 512u)

enum {
    SHARE_AGAIN = 1, /* may have been done already, only its answer was lost: a result that shows this is success */
};

struct share_head {
    uint32_t length; /* of the whole message */
    uint32_t flags;
    uint64_t ino;    /* what lies at path as far as the client knows; another one: ESTALE. 0: whatever it is */
    uint64_t fh;     /* OPEN, OPENDIR, CREATE: the handle to make; must be new */
    uint16_t path_n, path2_n;
    uint32_t zero;
};
