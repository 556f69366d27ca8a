/* The client's half of wire/share.h: between a FUSE kernel and the messages
 * for a volume's keeper. No I/O of its own: the owner hands in what the kernel
 * asked (fuse_request) and what the server answered (fuse_reply), takes
 * messages out (fuse_next, fuse_sent), and gives replies to the kernel through
 * `answer`.
 *
 * Everything that has to outlive a lost server is here: names, handles, and
 * each request until its answer has come. fuse_connected() starts over with a
 * new server: handles are opened again, unanswered requests sent again. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "guest/nodes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUSE_PENDING_MAX 64
#define FUSE_READ_SIZE   (160u << 10) /* of the buffer the kernel's requests are read into */

struct fuse {
    struct nodes nodes;
    struct list pending;      /* struct fuse_pending, oldest first: sent, or to be sent */
    struct list handles;      /* struct fuse_handle */
    struct fuse_pending *next; /* the first that is not sent completely; NULL: none */
    size_t next_at;           /* bytes of it that are sent */
    unsigned npending;
    uint64_t next_fh, next_own; /* handles; ids of requests that are not the kernel's */
    bool connected;
    int (*answer)(void *arg, const void *p, size_t n); /* to the kernel; 0 or an errno */
    void *arg;
};

void fuse_init(struct fuse *f, int (*answer)(void *arg, const void *p, size_t n), void *arg);
void fuse_fini(struct fuse *f);
bool fuse_room(const struct fuse *f); /* another request of the kernel may be taken */
int fuse_request(struct fuse *f, const void *p, size_t n) __attribute__((warn_unused_result)); /* -1: not a request */
/* Bytes to send now. What was taken of them is told by fuse_sent. */
const unsigned char *fuse_next(struct fuse *f, size_t *ret_n);
void fuse_sent(struct fuse *f, size_t n);
int fuse_reply(struct fuse *f, const void *p, size_t n) __attribute__((warn_unused_result)); /* one whole reply; -1: nonsense */
void fuse_connected(struct fuse *f);    /* to a server that knows nothing */
void fuse_disconnected(struct fuse *f);

/* -- of fuse.c and fuse_local.c alone -- */
struct fuse_in_header;
bool fuse_local(struct fuse *f, const struct fuse_in_header *in, const unsigned char *body, size_t n); /* true: it is dealt with */
void fuse_answer(struct fuse *f, uint64_t unique, int error, const void *p, size_t n /* up to 128 */);
