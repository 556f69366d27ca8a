#include "wire/frame.h"
#include "base/enc.h"
#include <stdlib.h>
#include <string.h>

static const unsigned char magic_sync[8] = {0xff, 0xff, 0xff, 0xff, 'H', 'U', 'T', 'S'};
static const unsigned char magic_ack[8] = {0xff, 0xff, 0xff, 0xff, 'H', 'U', 'T', 'A'};

static bool sync_here(struct frame_reader *r, const unsigned char *p)
{
    if (memcmp(p, r->want_ack ? magic_ack : magic_sync, 8))
        return false;
    uint32_t epoch = get_le32(p + 12);
    if (!epoch || (r->want_epoch && epoch != r->want_epoch))
        return false;
    r->peer_version = get_le32(p + 8);
    r->epoch = epoch;
    return true;
}

static enum frame_result hunt(struct frame_reader *r, const unsigned char *p, size_t n, size_t *used)
{
    size_t at = 0;
    while (n - at >= SYNC_SIZE) {
        const unsigned char *q = memchr(p + at, 0xff, n - at - SYNC_SIZE + 1);
        if (!q) {
            at = n - SYNC_SIZE + 1;
            break;
        }
        at = (size_t)(q - p);
        if (sync_here(r, q)) {
            *used = at + SYNC_SIZE;
            return FRAME_SYNC;
        }
        at++;
    }
    *used = at;
    return FRAME_MORE;
}

enum frame_result frame_next(struct frame_reader *r, const unsigned char *p, size_t n, size_t *used, struct frame *out)
{
    *used = 0;
    if (!r->epoch)
        return hunt(r, p, n, used);
    if (n < FRAME_HEAD)
        return FRAME_MORE;
    uint32_t len = get_le32(p);
    if (len == UINT32_MAX) { /* at a frame boundary this can only be a sync */
        if (n < SYNC_SIZE)
            return FRAME_MORE;
        if (sync_here(r, p)) {
            *used = SYNC_SIZE;
            return FRAME_SYNC;
        }
    }
    if (len > FRAME_MAX || p[4] == 0 || p[4] >= FR_TYPE_MAX || p[5] >= CH_MAX || p[6] || p[7])
        goto bad;
    if (n < FRAME_HEAD + (size_t)len + FRAME_TAIL)
        return FRAME_MORE;
    if (get_le32(p + FRAME_HEAD + len) != r->epoch) {
        /* Skip the torn frame whole: what it carries is a user's data and must not be searched for a sync. The
         * FRAME_FLUSH zeros that the new host end writes first reach past its end, so the real sync lies behind. */
        *used = FRAME_HEAD + (size_t)len + FRAME_TAIL;
        goto bad;
    }
    *out = (struct frame){.type = p[4], .chan = p[5], .stream = get_le32(p + 8), .p = p + FRAME_HEAD, .n = len};
    *used = FRAME_HEAD + (size_t)len + FRAME_TAIL;
    return FRAME_GOT;
bad:
    r->epoch = 0;
    return FRAME_BAD;
}

void frame_put(struct buf *b, uint32_t epoch, enum frame_type type, uint8_t chan, uint32_t stream, const void *p, size_t n)
{
    if (n > FRAME_MAX)
        abort(); /* callers split; a longer frame would desynchronise the peer */
    unsigned char head[FRAME_HEAD] = {0}, tail[FRAME_TAIL];
    put_le32(head, (uint32_t)n);
    head[4] = (unsigned char)type, head[5] = chan;
    put_le32(head + 8, stream);
    put_le32(tail, epoch);
    buf_reserve(b, FRAME_HEAD + n + FRAME_TAIL);
    buf_put(b, head, sizeof head);
    buf_put(b, p, n);
    buf_put(b, tail, sizeof tail);
}

void frame_put_sync(struct buf *b, uint32_t epoch, bool ack, bool flush)
{
    unsigned char s[SYNC_SIZE];
    if (flush) {
        buf_reserve(b, FRAME_FLUSH);
        memset(b->p + b->n, 0, FRAME_FLUSH);
        b->n += FRAME_FLUSH;
    }
    memcpy(s, ack ? magic_ack : magic_sync, 8);
    put_le32(s + 8, WIRE_VERSION);
    put_le32(s + 12, epoch);
    buf_put(b, s, sizeof s);
}
