/* Images of volumes: volumes/<id>.ext4, made, mounted and deleted here and by
 * nobody else. Two rules keep the host's kernel safe from their content and
 * their content safe from two mounts:
 *
 * The directory and the images belong to root and to nobody else, so an image
 * was only ever written by this host's own ext4. No guest and no daemon writes
 * one at block level.
 *
 * An image is locked (flock) before it is attached, by the very open file
 * description that the loop device then keeps. The lock therefore lives
 * exactly as long as the loop device, whoever still uses the mount and
 * whatever became of the spawner that made it: a second mount of the same
 * image is refused by the kernel, not by our bookkeeping. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define OWNER       1000 /* of a new volume's top directory: the default user of sandboxes */
#define BUSY_TRIES  400
#define BUSY_NS     (5 * 1000 * 1000)
#define WAITS       ((int)(sizeof ((struct server *)0)->volume_wait / sizeof *((struct server *)0)->volume_wait))

static bool empty_dir(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return d && n <= 2;
}

/* Made at the start (spawn/place.h). Of an earlier version, or a home that was copied, it may be another's. */
static int open_dir(struct server *s, struct err *e)
{
    struct stat st;
    if (mkdirat(s->home_fd, "volumes", 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "volumes");
    auto_fd dir = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "volumes");
    if (dir < 0)
        return -1;
    if (fstat(dir, &st) < 0)
        return err_sys(e, errno, "volumes");
    if (st.st_uid == 0 && !(st.st_mode & 022))
        return take_fd(&dir);
    if (!empty_dir(dir))
        return err_set(e, E_DENIED, "the volumes directory is not owned by root alone, so its images are not trusted (if they are yours: chown root, chmod 700)");
    if (fchown(dir, 0, 0) < 0 || fchmod(dir, 0700) < 0 || !empty_dir(dir))
        return err_sys(e, errno, "volumes");
    return take_fd(&dir);
}

static void shelf_name(const char *id, char out[SHELF_NAME]) { (void)snprintf(out, SHELF_NAME, "volume-%s", id); }

static void let_go(const struct server *s, const struct volume *v)
{
    char name[SHELF_NAME];
    shelf_name(v->id, name);
    (void)close(v->mnt);
    shelf_drop(&s->shelf, name);
}

static void image_name(const char *id, char out[SP_ID + 8]) { (void)snprintf(out, SP_ID + 8, "%s.ext4", id); }

/* Opened and locked; E_UNAVAILABLE while a loop device has it. */
static int image_open(struct server *s, const char *id, struct err *e)
{
    char name[SP_ID + 8];
    image_name(id, name);
    auto_fd dir = open_dir(s, e);
    if (dir < 0)
        return -1;
    auto_fd fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(e, E_NOT_FOUND, "volume %s has no image", id);
    if (fd < 0)
        return err_sys(e, errno, "volume image");
    if (image_check(fd, false, e))
        return err_wrap(e, "volume %s", id);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, E_UNAVAILABLE, "volume %s is still being unmounted", id);
    return take_fd(&fd);
}

/* ---- mounts ---- */

int volume_find(struct server *s, const char *id)
{
    for (int i = 0; i < s->nvolume; i++)
        if (!strcmp(s->volume[i].id, id))
            return s->volume[i].mnt;
    return -1;
}

int volume_open(struct server *s, const char *id, struct err *e)
{
    int have = volume_find(s, id);
    if (have >= 0)
        return have;
    auto_fd image = image_open(s, id, e);
    if (image < 0)
        return -1;
    char name[SHELF_NAME];
    shelf_name(id, name);
    auto_fd m = mount_volume(image, s->scratch, e);
    if (m < 0 || shelf_keep(&s->shelf, m, name, e))
        return err_wrap(e, "volume %s", id);
    s->volume = xrealloc(s->volume, sizeof *s->volume * (size_t)(s->nvolume + 1));
    struct volume *v = &s->volume[s->nvolume++];
    memset(v, 0, sizeof *v);
    memcpy(v->id, id, strlen(id) + 1);
    log_info("volume %s mounted", id);
    return v->mnt = take_fd(&m);
}

void volume_close(struct server *s, const char *id)
{
    for (int i = 0; i < s->nvolume; i++)
        if (!strcmp(s->volume[i].id, id)) {
            let_go(s, &s->volume[i]);
            memmove(s->volume + i, s->volume + i + 1, sizeof *s->volume * (size_t)(--s->nvolume - i));
            log_info("volume %s released", id);
            return;
        }
}

void volumes_fini(struct server *s)
{
    while (s->nvolume)
        let_go(s, &s->volume[--s->nvolume]);
    free(s->volume);
    s->volume = NULL;
}

int volume_usage(struct server *s, const char *id, uint64_t *ret_bytes, uint64_t *ret_used, struct err *e)
{
    char name[SP_ID + 8];
    struct stat st;
    image_name(id, name);
    auto_fd dir = open_dir(s, e);
    if (dir < 0)
        return -1;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(e, E_NOT_FOUND, "volume %s has no image", id);
    *ret_bytes = (uint64_t)st.st_size;
    *ret_used = (uint64_t)st.st_blocks * 512;
    return 0;
}

/* ---- making and deleting: in the disk worker ---- */

/* Formatting leaves lost+found, which is nobody's file. After the unmount the image must be free again: wait for it. */
static int tidy(struct server *s, int image, struct err *e)
{
    auto_fd m = mount_volume(image, s->scratch, e);
    if (m < 0)
        return -1;
    auto_fd top = openat(m, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || (unlinkat(top, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT) || syncfs(top) < 0)
        return err_sys(e, errno, "new volume");
    return 0;
}

static int wait_free(int dir, const char *name, struct err *e)
{
    auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < BUSY_TRIES; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB))
            return 0;
        (void)nanosleep(&(struct timespec){0, BUSY_NS}, NULL);
    }
    return err_set(e, E_UNAVAILABLE, "the new volume stays busy");
}

static int make_image(struct server *s, int dir, const char *tmp, uint32_t mib, uint32_t inodes, struct err *e)
{
    auto_fd image = openat(dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (image < 0)
        return err_sys(e, errno, "volume image");
    if (disk_mkfs_for(image, mib, inodes, OWNER, e))
        return err_wrap(e, "volume of %u MiB", mib);
    if (flock(image, LOCK_EX | LOCK_NB) < 0)
        return err_sys(e, errno, "volume image");
    if (tidy(s, image, e))
        return -1;
    return fsync(image) < 0 ? err_sys(e, errno, "volume image") : 0;
}

int volume_make(struct server *s, const char *id, uint32_t mib, uint32_t inodes, struct err *e)
{
    char name[SP_ID + 8], tmp[SP_ID + 16];
    image_name(id, name);
    (void)snprintf(tmp, sizeof tmp, ".%s.new", id);
    auto_fd dir = open_dir(s, e);
    if (dir < 0)
        return -1;
    if (!faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW))
        return err_set(e, E_CONFLICT, "volume %s already has an image", id);
    (void)unlinkat(dir, tmp, 0);
    if (make_image(s, dir, tmp, mib, inodes, e) || wait_free(dir, tmp, e)) {
        (void)unlinkat(dir, tmp, 0);
        return -1;
    }
    if (renameat(dir, tmp, dir, name) < 0 || fsync(dir) < 0)
        return err_sys(e, errno, "volume image");
    return 0;
}

int volume_delete(struct server *s, const char *id, struct err *e)
{
    char name[SP_ID + 8], tmp[SP_ID + 16];
    image_name(id, name);
    (void)snprintf(tmp, sizeof tmp, ".%s.new", id);
    auto_fd dir = open_dir(s, e);
    if (dir < 0)
        return -1;
    (void)unlinkat(dir, tmp, 0); /* of a making that was cut short */
    for (int i = 0; i < BUSY_TRIES; i++) {
        auto_fd image = image_open(s, id, e); /* unlinking under a mount would be harmless, but its end would be out of sight */
        if (image < 0 && e->code == E_NOT_FOUND)
            return 0;
        if (image >= 0)
            return unlinkat(dir, name, 0) < 0 || fsync(dir) < 0 ? err_sys(e, errno, "volume image") : 0;
        if (e->code != E_UNAVAILABLE)
            return -1;
        (void)nanosleep(&(struct timespec){0, BUSY_NS}, NULL);
    }
    return -1;
}

/* ---- answers that the worker owes ---- */

int volume_wait_slot(struct server *s, uint64_t gen, uint64_t seq)
{
    for (int i = 0; i < WAITS; i++)
        if (!s->volume_wait[i].seq) {
            s->volume_wait[i].gen = gen, s->volume_wait[i].seq = seq;
            return i;
        }
    return -1;
}

void volume_wait_done(struct server *s, int slot, int rc, const struct err *e)
{
    if (slot < 0 || slot >= WAITS || !s->volume_wait[slot].seq)
        return;
    uint64_t gen = s->volume_wait[slot].gen, seq = s->volume_wait[slot].seq;
    s->volume_wait[slot].seq = 0;
    if (rc)
        server_fail(s, gen, seq, e);
    else
        server_ok(s, gen, seq);
}

void volume_worker_lost(struct server *s)
{
    struct err e;
    (void)err_set(&e, E_UNAVAILABLE, "the disk worker exited in the middle; try again");
    for (int i = 0; i < WAITS; i++)
        volume_wait_done(s, i, -1, &e);
}
