/* File contents in and out at the pace of the slower side: what the file calls
 * of every dialect share. A dialect's state starts with one of the two structs
 * and says how a failure and a result are told.
 *
 * Out: a regular file of known size is sent with Content-Length; if it turns
 * out shorter, the connection is cut, so a client can never take a part for
 * the whole. A file that says size 0 may still have content (/proc): then the
 * first bytes decide, and the reply is chunked. */
#pragma once
#include "api/req.h"
#include "base/buf.h"
#include "core/sandbox/files.h"

struct gzip;
struct sending {
    struct req r;
    void (*fail)(struct sending *st, const struct err *e); /* tells it and ends the request */
    struct file_read *f;
    uint64_t offset, length, left;
    size_t owed;
    bool known; /* how much is to come */
    struct gzip *pack; /* set before the start: sent packed, so without a length; owned */
};
void *sending_new(struct api *a, struct http_stream *s, size_t size, void (*fail)(struct sending *st, const struct err *e)); /* the whole file */
int sending_start(struct sending *st, struct agent *ag, const char *path, const char *user, struct err *e); /* -1: the caller fails it */

struct taking {
    struct req r;
    void (*done)(struct taking *st, const struct err *e, const struct file_entry *en); /* tells it and ends the request */
    struct file_write *f;
    struct buf rest; /* read from the client, not yet taken */
    bool paused, ended;
};
void *taking_new(struct api *a, struct http_stream *s, size_t size, void (*done)(struct taking *st, const struct err *e, const struct file_entry *en));
int taking_start(struct taking *st, struct agent *ag, const struct file_write_spec *spec, struct err *e); /* as above */
