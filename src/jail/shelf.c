#include "jail/shelf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOWER "lower"
#define UPPER "upper"

static bool used(const struct shelf *s) { return s->ns >= 0; }

static int enter(const struct shelf *s, struct err *e)
{
    return used(s) && sys_setns(s->ns, NS_MOUNT) < 0 ? err_sys(e, errno, "the shelf's mount namespace") : 0;
}

/* Whoever stays on the shelf finds none of its files: better to end, and be started again, than to go on like that. */
static void return_to(int back, int root)
{
    /* a namespace is entered at its own root, which is not ours if we were started in a chroot */
    if (sys_setns(back, NS_MOUNT) < 0 || fchdir(root) < 0 || chroot(".") < 0) {
        log_error("cannot return from the shelf's mount namespace: %s", strerror(errno));
        abort();
    }
}

static void leave(const struct shelf *s)
{
    if (used(s))
        return_to(s->back, s->root);
}

static void place_of(const char *name, char out[SHELF_NAME + 2]) { (void)snprintf(out, SHELF_NAME + 2, "/%s", name); }

/* On the shelf. */
static int hang(int mnt, const char *name, struct err *e)
{
    char at[SHELF_NAME + 2];
    place_of(name, at);
    if (mkdir(at, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "place on the shelf");
    return mount_move(mnt, AT_FDCWD, at, e);
}

static void unhang(const char *name)
{
    char at[SHELF_NAME + 2];
    place_of(name, at);
    if (sys_umount2(at, UMOUNT_DETACH) < 0 || rmdir(at) < 0)
        log_warn("shelf: %s: %s", name, strerror(errno));
}

int shelf_keep(const struct shelf *s, int mnt, const char *name, struct err *e)
{
    if (!used(s))
        return 0;
    if (strlen(name) > SHELF_NAME)
        return err_set(e, E_INTERNAL, "shelf: the name '%s' is too long", name);
    if (enter(s, e))
        return -1;
    int rc = hang(mnt, name, e);
    leave(s);
    return rc;
}

void shelf_drop(const struct shelf *s, const char *name)
{
    struct err e;
    if (!used(s))
        return;
    if (enter(s, &e)) {
        log_warn("%s", e.msg);
        return;
    }
    unhang(name);
    leave(s);
}

int shelf_clone(const struct shelf *s, int mnt, struct err *e)
{
    if (enter(s, e))
        return -1;
    int m = mount_clone(mnt, "", false, e);
    leave(s);
    return m;
}

/* On the shelf: the layers hang for as long as the kernel looks at them; the overlay holds its own. */
static int overlay_of_hung(int lower, int upper, uid_t uid, gid_t gid, struct err *e)
{
    if (hang(lower, LOWER, e))
        return -1;
    int m = -1;
    if (!hang(upper, UPPER, e)) {
        m = mount_overlay_at("/" LOWER, "/" UPPER, uid, gid, e);
        unhang(UPPER);
    }
    unhang(LOWER);
    return m;
}

int shelf_overlay(const struct shelf *s, int lower, int upper, uid_t uid, gid_t gid, struct err *e)
{
    if (!used(s))
        return mount_overlay(lower, upper, uid, gid, e);
    if (enter(s, e))
        return -1;
    int m = overlay_of_hung(lower, upper, uid, gid, e);
    leave(s);
    return m;
}

/* ---- is one needed? ---- */

static int layer_dirs(int mnt, struct err *e)
{
    return mkdirat(mnt, "upper", 0755) < 0 || mkdirat(mnt, "work", 0755) < 0 ? err_sys(e, errno, "layer") : 0;
}

int shelf_try(const struct shelf *s, struct err *e)
{
    auto_fd lower = mount_tmpfs("64k", "0755", e);
    auto_fd upper = lower < 0 ? -1 : mount_tmpfs("64k", "0755", e);
    if (upper < 0 || layer_dirs(upper, e) || shelf_keep(s, lower, "try", e))
        return -1;
    auto_fd clone = shelf_clone(s, lower, e);
    auto_fd m = clone < 0 ? -1 : shelf_overlay(s, clone, upper, 0, 0, e);
    shelf_drop(s, "try");
    if (m < 0)
        return -1;
    return mkdirat(m, "written", 0755) < 0 || faccessat(upper, "upper/written", F_OK, 0) < 0 ? err_sys(e, errno, "writing to an overlay") : 0;
}

/* ---- the namespace ---- */

/* In the new namespace, which begins as a copy: nothing of the copy stays. */
static int clear_out(struct err *e)
{
    static const char *const o[] = {"size", "1m", "nr_inodes", "65536", "mode", "0755", "source", "shelf", NULL};
    if (sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_PRIVATE, NULL) < 0)
        return err_sys(e, errno, "private mounts");
    auto_fd top = mount_fs("tmpfs", o, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    return top < 0 || mount_pivot(top, "/", e) ? -1 : 0;
}

static int make(struct shelf *s, struct err *e)
{
    static const char path[] = "/proc/self/ns/mnt";
    auto_fd back = open(path, O_RDONLY | O_CLOEXEC), root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (back < 0 || root < 0 || sys_unshare(NS_MOUNT) < 0)
        return err_sys(e, errno, "a mount namespace for the shelf");
    auto_fd ns = open(path, O_RDONLY | O_CLOEXEC); /* now: /proc goes with the rest */
    int rc = ns < 0 ? err_sys(e, errno, "the shelf's mount namespace") : clear_out(e);
    return_to(back, root);
    if (rc)
        return -1;
    *s = (struct shelf){take_fd(&ns), take_fd(&back), take_fd(&root)};
    return 0;
}

int shelf_open(struct shelf *s, bool always, struct err *e)
{
    *s = SHELF_NONE;
    if (!always && !shelf_try(s, NULL))
        return 0;
    return make(s, e);
}

void shelf_close(struct shelf *s)
{
    cleanup_fd(&s->ns);
    cleanup_fd(&s->back);
    cleanup_fd(&s->root);
    *s = SHELF_NONE;
}
