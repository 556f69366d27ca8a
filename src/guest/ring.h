/* What a process has written and nobody has taken yet: a byte ring with the
 * order of stdout and stderr kept. Positions are byte offsets in the whole
 * output since the start; [tail, head) is held. Memory comes with the first
 * byte (RING_CAP of address space, pages as they are touched). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RING_CAP     (256u << 10) /* power of two */
#define RING_SEG_MAX 4096         /* changes of channel that are held */

struct ring_seg { uint64_t end; uint8_t chan; };
struct ring {
    unsigned char *p;
    size_t cap;             /* RING_CAP; smaller once sealed */
    uint64_t head, tail, base; /* base: offset that lies at p[0] modulo cap */
    struct ring_seg *seg;   /* circular, indexed by sequence number */
    uint32_t seg_cap;
    uint64_t seg_head, seg_tail;
};

void ring_free(struct ring *r);
/* Bytes of channel `chan` that may be added without overwriting anything at or after `floor`. */
size_t ring_room(const struct ring *r, uint8_t chan, uint64_t floor);
int ring_space(struct ring *r, size_t n, struct iovec v[2]); /* n <= ring_room; returns the number of pieces */
void ring_commit(struct ring *r, uint8_t chan, size_t n);
/* The longest run of one channel at *pos; moves *pos up to the tail if that part is lost. *seg is a hint, start with 0. */
size_t ring_peek(const struct ring *r, uint64_t *pos, uint64_t *seg, const unsigned char **p, uint8_t *chan);
void ring_seal(struct ring *r); /* no more input: keep no more memory than is held */
