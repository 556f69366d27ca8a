/* Token buckets. rate 0: no limit. */
#pragma once
#include <stdint.h>

struct bucket { uint64_t rate, burst; double tokens; int64_t at; };
void bucket_set(struct bucket *b, uint64_t rate, uint64_t burst, int64_t now); /* full; an unchanged rate keeps what it has */
uint64_t bucket_has(struct bucket *b, uint64_t want, int64_t now);              /* how much of want may be taken now */
void bucket_take(struct bucket *b, uint64_t n);                                 /* after bucket_has */
