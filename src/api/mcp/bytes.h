/* Bytes of ours into a file of a sandbox, and a file of a sandbox into memory. */
#pragma once
#include "base/buf.h"
#include "core/sandbox/files.h"

/* -- pour: put what there is whenever it comes; it goes at the sandbox's pace -- */
struct pour;
struct pour_ops {
    void (*room)(void *arg); /* less waits than before; may be NULL */
    void (*done)(void *arg, const struct err *e, const struct file_entry *en); /* last; frees it */
};
struct pour *pour_start(struct sandbox *sb, const struct file_write_spec *spec,
                        const struct pour_ops *ops, void *arg, struct err *e);
void pour_put(struct pour *p, const void *bytes, size_t n);
size_t pour_waiting(const struct pour *p);
void pour_end(struct pour *p);
void pour_cancel(struct pour *p); /* no callback after this; NULL is fine */

/* -- gather: the first max bytes of a file -- */
struct gather;
/* en (of the opened file) and data are valid during the call; both NULL on error. Frees it. */
typedef void gather_done(void *arg, const struct err *e, const struct file_entry *en,
                         struct buf *data);
struct gather *gather_start(struct sandbox *sb, const char *path, size_t max, gather_done *done,
                            void *arg, struct err *e);
void gather_cancel(struct gather *g); /* no callback after this; NULL is fine */
