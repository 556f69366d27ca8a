/* SP_LAYER_SAVE, SP_LAYER_SEED: the writable layer of a container as a file of a
 * snapshot, and a new layer made of such a file.
 *
 * Saving freezes the layer's file system, so that nothing is half-written, for
 * as long as the copy takes; processes that write wait, others go on. Whoever
 * froze thaws: the child does it last and does not die with us, and if it was
 * killed we do it for it. The layer of a container that is paused on disk is not
 * mounted and only copied. An image that is not root's was not written here and
 * is not mounted. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/copy.h"
#include "jail/fds.h"
#include "jail/mount.h"
#include "spawn/server_child.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_SECONDS 600
#define FS_FREEZE    _IOWR('X', 119, int) /* FIFREEZE */
#define FS_THAW      _IOWR('X', 120, int) /* FITHAW */

struct copy { int from, to, fs; /* fs: to freeze meanwhile; -1: nothing */ bool keep; /* it is to outlive a power cut */ };

static int copy_layer(const struct copy *c, struct sp_saved *ret, struct err *e)
{
    struct stat st;
    if (c->fs >= 0 && syncfs(c->fs)) /* most of the writing, before anything stands still */
        return err_sys(e, errno, "writing the layer back");
    int64_t begun = clock_mono();
    if (c->fs >= 0 && ioctl(c->fs, FS_FREEZE, 0))
        return err_sys(e, errno, "freezing the layer");
    int rc = copy_sparse(c->from, c->to, e);
    if (c->fs >= 0 && ioctl(c->fs, FS_THAW, 0) && !rc)
        rc = err_sys(e, errno, "thawing the layer");
    ret->ns = (uint64_t)(clock_mono() - begun);
    if (rc)
        return -1;
    if ((c->keep && fdatasync(c->to)) || fstat(c->to, &st))
        return err_sys(e, errno, "copy of the layer");
    ret->bytes = (uint64_t)st.st_blocks * 512;
    return 0;
}

static void body(void *arg, int sock) __attribute__((noreturn));
static void body(void *arg, int sock)
{
    struct copy *c = arg;
    struct fd_keep k = {0};
    struct child_answer a = {0};
    int mine[] = {0, 1, 2, c->from, c->to, c->fs, sock};
    for (unsigned i = 0; i < sizeof mine / sizeof *mine; i++)
        fds_keep(&k, mine[i]);
    (void)prctl(PR_SET_NAME, "hutch-copy", 0, 0, 0);
    (void)alarm(COPY_SECONDS);
    a.rc = fds_close_others(&k, &a.err) || copy_layer(c, &a.saved, &a.err) ? -1 : 0;
    child_end(sock, &a);
}

static void copy_free(struct copy *c)
{
    cleanup_fd(&c->from);
    cleanup_fd(&c->to);
    cleanup_fd(&c->fs);
    free(c);
}

static void over(void *arg)
{
    struct copy *c = arg;
    if (c->fs >= 0)
        (void)ioctl(c->fs, FS_THAW, 0); /* refused unless the child was killed half-way */
    copy_free(c);
}

static int new_file(int dir, struct err *e)
{
    int fd = openat(dir, "upper.ext4", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(e, errno, "new layer") : fd;
}

static int open_layer(struct server *s, const char *folder, const char *id, int *ret, struct err *e)
{
    *ret = server_home_open(s, O_RDONLY, e, "%s/%s/upper.ext4", folder, id);
    return *ret < 0 || image_check(*ret, false, e) ? err_wrap(e, "layer of %s", id) : 0;
}

static int open_save(struct server *s, const struct sp_layer *q, struct copy *c, struct err *e)
{
    struct box *b = box_find(s, q->id);
    if (b && b->kind != SP_KIND_BOX)
        return err_set(e, E_NOT_FOUND, "no container %s", q->id);
    if (b && (b->state != BX_ALIVE || b->upper < 0))
        return err_set(e, E_GONE, "%s does not run", q->id);
    c->keep = true;
    auto_fd dir = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "snapshots/.%s.tmp", q->snapshot);
    if (dir < 0 || open_layer(s, "boxes", q->id, &c->from, e))
        return -1;
    if (b && (c->fs = openat(b->upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, errno, "layer");
    return (c->to = new_file(dir, e)) < 0 ? -1 : 0;
}

static int open_seed(struct server *s, const struct sp_layer *q, struct copy *c, struct err *e)
{
    if (box_find(s, q->id))
        return err_set(e, E_CONFLICT, "%s exists already", q->id);
    if (open_layer(s, "snapshots", q->snapshot, &c->from, e))
        return err_wrap(e, "snapshot %s", q->snapshot);
    auto_fd boxes = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "boxes");
    if (boxes < 0)
        return -1;
    if (mkdirat(boxes, q->id, 0700) < 0)
        return err_sys(e, errno, "box directory");
    auto_fd dir = openat(boxes, q->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? err_sys(e, errno, "box directory") : (c->to = new_file(dir, e)) < 0 ? -1 : 0;
}

int op_layer(struct server *s, struct request *r, struct err *e)
{
    const struct sp_layer *q = &r->q->u.layer;
    if (!sp_id_ok(q->id) || !sp_id_ok(q->snapshot))
        return err_set(e, E_INVALID, "not an id");
    struct copy *c = xcalloc(1, sizeof *c);
    *c = (struct copy){.from = -1, .to = -1, .fs = -1};
    struct child_work w = {body, over, c};
    if ((r->q->op == SP_LAYER_SAVE ? open_save(s, q, c, e) : open_seed(s, q, c, e)) || child_run(s, r, &w, e)) {
        copy_free(c);
        return -1;
    }
    return 0;
}
