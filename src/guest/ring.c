#include "guest/ring.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void ring_free(struct ring *r)
{
    if (r->p && r->cap == RING_CAP)
        (void)munmap(r->p, RING_CAP);
    else
        free(r->p);
    free(r->seg);
    r->p = NULL;
    r->seg = NULL;
    r->seg_cap = 0;
    r->seg_tail = r->seg_head;
    r->tail = r->head;
}

static struct ring_seg *seg_at(const struct ring *r, uint64_t i) { return &r->seg[i & (r->seg_cap - 1)]; }

static int needs_seg(const struct ring *r, uint8_t chan)
{
    return r->seg_head == r->seg_tail || seg_at(r, r->seg_head - 1)->chan != chan;
}

size_t ring_room(const struct ring *r, uint8_t chan, uint64_t floor)
{
    if (floor < r->tail)
        floor = r->tail;
    if (floor < r->head && needs_seg(r, chan) && r->seg_head - r->seg_tail == RING_SEG_MAX && seg_at(r, r->seg_tail)->end > floor)
        return 0; /* the oldest segment would have to go */
    return floor >= r->head ? RING_CAP : RING_CAP - (size_t)(r->head - floor);
}

int ring_space(struct ring *r, size_t n, struct iovec v[2])
{
    if (!r->p) {
        r->p = mmap(NULL, RING_CAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r->p == MAP_FAILED) {
            r->p = NULL;
            return 0;
        }
        r->cap = RING_CAP;
    }
    size_t at = (size_t)(r->head - r->base) & (RING_CAP - 1), k = RING_CAP - at;
    v[0] = (struct iovec){r->p + at, n < k ? n : k};
    v[1] = (struct iovec){r->p, n > k ? n - k : 0};
    return n > k ? 2 : 1;
}

static void seg_push(struct ring *r, uint8_t chan)
{
    uint64_t held = r->seg_head - r->seg_tail;
    if (held == r->seg_cap && r->seg_cap < RING_SEG_MAX) {
        uint32_t cap = r->seg_cap ? r->seg_cap * 4 : 4;
        struct ring_seg *n = xmalloc(cap * sizeof *n);
        for (uint64_t i = r->seg_tail; i < r->seg_head; i++)
            n[i & (cap - 1)] = *seg_at(r, i);
        free(r->seg);
        r->seg = n, r->seg_cap = cap;
    } else if (held == r->seg_cap) {
        if (r->tail < seg_at(r, r->seg_tail)->end)
            r->tail = seg_at(r, r->seg_tail)->end;
        r->seg_tail++;
    }
    *seg_at(r, r->seg_head++) = (struct ring_seg){r->head, chan};
}

void ring_commit(struct ring *r, uint8_t chan, size_t n)
{
    if (!n)
        return;
    if (needs_seg(r, chan))
        seg_push(r, chan);
    r->head += n;
    seg_at(r, r->seg_head - 1)->end = r->head;
    if (r->head - r->tail > RING_CAP)
        r->tail = r->head - RING_CAP;
    while (r->seg_tail < r->seg_head && seg_at(r, r->seg_tail)->end <= r->tail)
        r->seg_tail++;
}

size_t ring_peek(const struct ring *r, uint64_t *pos, uint64_t *seg, const unsigned char **p, uint8_t *chan)
{
    if (*pos < r->tail)
        *pos = r->tail;
    if (*pos >= r->head)
        return 0;
    if (*seg < r->seg_tail)
        *seg = r->seg_tail;
    while (seg_at(r, *seg)->end <= *pos)
        ++*seg;
    size_t n = (size_t)(seg_at(r, *seg)->end - *pos), at = (size_t)(*pos - r->base);
    if (r->cap == RING_CAP) {
        at &= RING_CAP - 1;
        if (n > RING_CAP - at)
            n = RING_CAP - at;
    }
    *p = r->p + at;
    *chan = seg_at(r, *seg)->chan;
    return n;
}

void ring_seal(struct ring *r)
{
    size_t n = (size_t)(r->head - r->tail);
    if (!r->p || r->cap != RING_CAP || n > RING_CAP / 2)
        return;
    unsigned char *q = xmalloc(n);
    size_t at = (size_t)(r->tail - r->base) & (RING_CAP - 1), k = RING_CAP - at < n ? RING_CAP - at : n;
    memcpy(q, r->p + at, k);
    memcpy(q + k, r->p, n - k);
    (void)munmap(r->p, RING_CAP);
    r->p = q, r->cap = n, r->base = r->tail;
}
