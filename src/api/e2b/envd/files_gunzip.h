/* Streaming gunzip for uploads: the reader pulls, so that a small body which
 * unpacks to a large one is never in memory as a whole. Several members one
 * after the other are one stream, as gzip(1) sees it. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct gunzip;
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *g); /* NULL is fine */
/* Unpacks from *p (moved on) into out; returns how much came out, -1 + e if it is not gzip. 0 with *n == 0: needs more. */
long gunzip_step(struct gunzip *g, const char **p, size_t *n, char *out, size_t cap, struct err *e);
bool gunzip_whole(const struct gunzip *g); /* the input may end here */
