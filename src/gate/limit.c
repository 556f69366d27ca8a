#include "gate/limit.h"
#include "base/clock.h"

void bucket_set(struct bucket *b, uint64_t rate, uint64_t burst, int64_t now)
{
    if (b->rate == rate && b->burst == burst && b->at)
        return;
    *b = (struct bucket){rate, burst, (double)burst, now};
}
uint64_t bucket_has(struct bucket *b, uint64_t want, int64_t now)
{
    if (!b->rate)
        return want;
    if (now > b->at) {
        b->tokens += (double)b->rate * (double)(now - b->at) / (double)NS_PER_S;
        if (b->tokens > (double)b->burst)
            b->tokens = (double)b->burst;
        b->at = now;
    }
    if (b->tokens < 1)
        return 0;
    return b->tokens < (double)want ? (uint64_t)b->tokens : want;
}
void bucket_take(struct bucket *b, uint64_t n)
{
    if (b->rate)
        b->tokens -= (double)n;
}
