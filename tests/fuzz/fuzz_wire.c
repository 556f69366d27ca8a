/* Frames from a hostile peer, cut into pieces by the first bytes: the reader
 * must stay inside its input, always get on, and never take a frame whose tail
 * does not carry the epoch. */
#include "base/enc.h"
#include "wire/frame.h"
#include <stdlib.h>
#include <string.h>

static void feed(const uint8_t *p, size_t n, struct frame_reader r, size_t step)
{
    unsigned char *held = NULL;
    size_t have = 0, at = 0;
    while (at < n) {
        size_t k = n - at < step ? n - at : step;
        held = realloc(held, have + k); /* exact size: the sanitizer guards the end */
        memcpy(held + have, p + at, k);
        have += k, at += k;
        for (;;) {
            struct frame f;
            size_t used = 0;
            uint32_t epoch = r.epoch;
            enum frame_result x = frame_next(&r, held, have, &used, &f);
            if (used > have)
                abort();
            if (x == FRAME_GOT) {
                if (!epoch || f.p < held || f.p + f.n + FRAME_TAIL > held + have || get_le32(f.p + f.n) != epoch || f.n > FRAME_MAX)
                    abort();
                if (used != FRAME_HEAD + f.n + FRAME_TAIL)
                    abort();
            }
            if (x == FRAME_SYNC && (!r.epoch || used < SYNC_SIZE))
                abort();
            if (x == FRAME_BAD && r.epoch)
                abort();
            memmove(held, held + used, have - used);
            have -= used;
            if (x == FRAME_MORE)
                break;
            if (!used && x != FRAME_BAD)
                abort(); /* no progress */
        }
        if (have >= FRAME_FLUSH && !r.epoch)
            abort(); /* hunting keeps less than one sync */
    }
    free(held);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 6)
        return 0;
    size_t step = 1 + p[0];
    uint32_t epoch = get_le32(p + 1);
    feed(p + 6, n - 6, (struct frame_reader){.epoch = epoch}, step);
    feed(p + 6, n - 6, (struct frame_reader){.want_ack = true, .want_epoch = epoch}, step);
    return 0;
}
