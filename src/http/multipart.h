/* multipart/form-data (RFC 7578), push parser, data passed on as it comes.
 * Filenames are given as sent (they may hold directories): the receiver decides
 * what a path may be. Part heads are capped at 8 KiB, parts at 1000. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct multipart_cb {
    int (*on_part)(void *arg, struct str name, struct str filename /* p == NULL: plain field */, struct str content_type);
    int (*on_data)(void *arg, const char *p, size_t n);
    int (*on_part_end)(void *arg);
    /* any of them: nonzero stops, the push returns -1 with e untouched */
};
struct multipart;
struct multipart *multipart_new(struct str content_type, const struct multipart_cb *cb, void *arg, struct err *e); /* NULL: not multipart, no boundary */
int multipart_push(struct multipart *m, const char *p, size_t n, struct err *e);
int multipart_end(struct multipart *m, struct err *e); /* the final boundary must have been seen */
void multipart_free(struct multipart *m);
