/* Files inside a sandbox, through its agent; a host path never occurs. Paths
 * are the guest's: absolute, or relative to the user's home. Main loop only.
 *
 * The _on forms are the same on a channel that is not a sandbox's: a volume's
 * keeper (core/volume/volume.h). NULL is a channel that could not be had; e is set. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox;
struct agent;

struct file_entry { /* strings valid during the callback */
    const char *name, *path, *owner, *group, *target /* NULL */;
    char type, target_type; /* 'f' 'd' 'l' 'o', target_type 0 if unknown */
    uint64_t size;
    uint32_t mode, uid, gid, target_mode;
    int64_t mtime_ns, atime_ns, ctime_ns;
    const char *const *xattr; /* "user.k=v", NULL-terminated, may be NULL */
    bool remote;              /* files_stat only: on a network or FUSE file system */
};

typedef void files_entry_cb(void *arg, const struct err *e,
                            const struct file_entry *en /* NULL on error or when there is none */);
int files_stat(struct sandbox *sb, const char *path, const char *user, files_entry_cb *cb,
               void *arg, struct err *e);
int files_mkdir(struct sandbox *sb, const char *path, const char *user, uint32_t mode, bool parents,
                files_entry_cb *cb, void *arg, struct err *e);
int files_move(struct sandbox *sb, const char *from, const char *to, const char *user,
               files_entry_cb *cb, void *arg, struct err *e);
int files_remove(struct sandbox *sb, const char *path, const char *user, bool recursive,
                 files_entry_cb *cb, void *arg, struct err *e);
int files_setattr(struct sandbox *sb, const char *path, const char *user, const uint32_t *mode,
                  const char *owner, const char *group, files_entry_cb *cb, void *arg,
                  struct err *e);
int files_symlink(struct sandbox *sb, const char *target, const char *path, const char *user,
                  files_entry_cb *cb, void *arg, struct err *e);

int files_stat_on(struct agent *a, const char *path, const char *user, files_entry_cb *cb,
                  void *arg, struct err *e);
int files_mkdir_on(struct agent *a, const char *path, const char *user, uint32_t mode, bool parents,
                   files_entry_cb *cb, void *arg, struct err *e);
int files_move_on(struct agent *a, const char *from, const char *to, const char *user,
                  files_entry_cb *cb, void *arg, struct err *e);
int files_remove_on(struct agent *a, const char *path, const char *user, bool recursive,
                    files_entry_cb *cb, void *arg, struct err *e);
int files_setattr_on(struct agent *a, const char *path, const char *user, const uint32_t *mode,
                     const char *owner, const char *group, files_entry_cb *cb, void *arg,
                     struct err *e);
int files_symlink_on(struct agent *a, const char *target, const char *path, const char *user,
                     files_entry_cb *cb, void *arg, struct err *e);

struct files_list_ops {
    void (*entries)(void *arg, const struct file_entry *en, size_t n); /* any number of times */
    void (*done)(void *arg, const struct err *e);
};
int files_list(struct sandbox *sb, const char *path, const char *user, unsigned depth,
               const struct files_list_ops *ops, void *arg, struct err *e);
int files_list_on(struct agent *a, const char *path, const char *user, unsigned depth,
                  const struct files_list_ops *ops, void *arg, struct err *e);

struct file_read;
struct file_read_ops {
    void (*opened)(void *arg, const struct file_entry *en);    /* before the first data */
    void (*data)(void *arg, const unsigned char *p, size_t n); /* answer with file_read_consumed */
    void (*done)(void *arg, const struct err *e, uint64_t sent); /* last */
};
struct file_read *file_read_start(struct sandbox *sb, const char *path, const char *user,
                                  uint64_t offset, uint64_t size /* UINT64_MAX: all */,
                                  const struct file_read_ops *ops, void *arg, struct err *e);
struct file_read *file_read_start_on(struct agent *a, const char *path, const char *user,
                                     uint64_t offset, uint64_t size,
                                     const struct file_read_ops *ops, void *arg, struct err *e);
void file_read_consumed(struct file_read *f, size_t n);
void file_read_cancel(struct file_read *f);

struct file_write;
struct file_write_ops {
    void (*room)(void *arg); /* file_write_room() grew */
    void (*done)(void *arg, const struct err *e,
                 const struct file_entry *en); /* last; may come before eof (disk full, …) */
};
struct file_write_spec {
    const char *path, *user;
    uint32_t mode;
    bool append, excl;
    const char *const *xattr;
    bool own;
    const char *
        xattr_clear; /* an existing file changes hands too; attributes beginning so are removed first */
    bool no_parents; /* a missing directory is an error */
};
struct file_write *file_write_start(struct sandbox *sb, const struct file_write_spec *spec,
                                    const struct file_write_ops *ops, void *arg, struct err *e);
struct file_write *file_write_start_on(struct agent *a, const struct file_write_spec *spec,
                                       const struct file_write_ops *ops, void *arg, struct err *e);
size_t file_write_room(const struct file_write *f);
size_t file_write_send(struct file_write *f, const void *p, size_t n);
void file_write_eof(struct file_write *f);
void file_write_cancel(struct file_write *f);

struct watch;
struct watch_ops {
    void (*ready)(void *arg);
    void (*change)(void *arg, char type /* c w d r a o */, const char *name, uint64_t seq,
                   const struct file_entry *en /* may be NULL */);
    void (*done)(void *arg, const struct err *e);
};
struct watch *watch_start(struct sandbox *sb, const char *path, const char *user, bool recursive,
                          bool entries, const struct watch_ops *ops, void *arg, struct err *e);
void watch_cancel(struct watch *w);
