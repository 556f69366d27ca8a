#include "jail/mount.h"
#include "base/cleanup.h"
#include "base/copy.h"
#include "base/fd.h"
#include "jail/loopdev.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* The kernel's own sentence about a failed fsconfig, if it left one in the context ("e overlay: …"). */
static int fs_err(struct err *e, int fsfd, const char *what)
{
    int sys = errno;
    char why[160];
    ssize_t n = read(fsfd, why, sizeof why - 1);
    if (n > 2) {
        why[n] = 0;
        why[strcspn(why, "\n")] = 0;
        return err_sys(e, sys, "%s (%s)", what, why + 2);
    }
    return err_sys(e, sys, "%s", what);
}

static int opt(int fs, const char *key, const char *value)
{
    return value ? sys_fsconfig(fs, FSC_SET_STRING, key, value, 0) : sys_fsconfig(fs, FSC_SET_FLAG, key, NULL, 0);
}

int mount_fs(const char *type, const char *const *options, uint64_t attr, struct err *e)
{
    auto_fd fs = sys_fsopen(type);
    if (fs < 0)
        return err_sys(e, errno, "fsopen %s", type);
    for (; options && *options; options += 2)
        if (opt(fs, options[0], options[1]) < 0)
            return fs_err(e, fs, options[0]);
    if (sys_fsconfig(fs, FSC_CMD_CREATE, NULL, NULL, 0) < 0)
        return fs_err(e, fs, type);
    int m = sys_fsmount(fs, (unsigned)attr);
    return m < 0 ? fs_err(e, fs, type) : m;
}

static bool links_are_safe(void)
{
    auto_free char *v = fd_slurp_at(AT_FDCWD, "/proc/sys/fs/protected_hardlinks", 16, NULL);
    return v && *v == '1';
}

int image_check(int image, bool read_only, struct err *e)
{
    struct stat st;
    if (fstat(image, &st) < 0)
        return err_sys(e, errno, "image");
    if (!S_ISREG(st.st_mode) || st.st_uid || st.st_mode & 022)
        return err_set(e, E_DENIED, "the image was not written by root of this host");
    if (st.st_nlink != 1 && !(read_only && links_are_safe()))
        return err_set(
            e, E_DENIED, "the image has a second name%s",
            read_only ? ", and on this host (fs.protected_hardlinks) anybody could have made that"
                      : "");
    return 0;
}

int image_lock(int image, bool read_only, struct err *e)
{
    /* byte 0: QEMU has its own marks further on */
    struct flock l = {
        .l_type = read_only ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(image, F_OFD_SETLK, &l) ? err_set(e, E_CONFLICT, "the image is in use") : 0;
}

/* from: what the image is a copy of, -1: it is whole. Copied after it was attached: attaching syncs a file (Linux 6.15), and what
 * was not in it by then stays in memory, where most layers end their lives without ever having been on a disk. Whoever read the
 * empty device meanwhile (udev does) has left nothing behind: what it read is forgotten before the mount reads. */
static int mount_ext4(int image, int from, bool read_only, const char *const *options, uint64_t attr, const char *scratch, struct err *e)
{
    char dev[256];
    struct stat st;
    if (image_check(image, read_only, e) || (from >= 0 && image_check(from, true, e)) ||
        image_lock(image, read_only, e))
        return -1;
    if (from >= 0 && (fstat(from, &st) < 0 || ftruncate(image, st.st_size) < 0))
        return err_sys(e, errno, "size of the copy");
    auto_fd loop = loopdev_attach(image, read_only, scratch, dev, sizeof dev, e);
    if (loop < 0 || (from >= 0 && copy_sparse(from, image, e)))
        return -1;
    if (from >= 0 && ioctl(loop, BLKFLSBUF, 0) < 0)
        return err_sys(e, errno, "loop device");
    auto_fd fs = sys_fsopen("ext4");
    if (fs < 0)
        return err_sys(e, errno, "fsopen ext4");
    if (opt(fs, "source", dev) < 0)
        return fs_err(e, fs, "source");
    for (; *options; options += 2)
        if (opt(fs, options[0], options[1]) < 0)
            return fs_err(e, fs, options[0]);
    if (sys_fsconfig(fs, FSC_CMD_CREATE, NULL, NULL, 0) < 0)
        return fs_err(e, fs, "ext4 image");
    int m = sys_fsmount(fs, (unsigned)attr);
    return m < 0 ? fs_err(e, fs, "ext4 image") : m;
}

/* noinit_itable: no kernel thread zeroing inode tables of every new box; nobarrier: a box's layer is not promised to survive
 * a crash of the host, its snapshots are synced by whoever takes them. */
static const char *const layer[] = {"noinit_itable", NULL, "nobarrier", NULL, "nodiscard", NULL, NULL};

int mount_image(int image, bool read_only, const char *scratch, struct err *e)
{
    static const char *const ro[] = {"ro", NULL, NULL};
    return mount_ext4(image, -1, read_only, read_only ? ro : layer, MATTR_NODEV | (read_only ? MATTR_RDONLY : 0), scratch, e);
}

int mount_image_copy(int image, int from, const char *scratch, struct err *e) { return mount_ext4(image, from, false, layer, MATTR_NODEV, scratch, e); }

int mount_volume(int image, const char *scratch, struct err *e)
{
    static const char *const o[] = {"noinit_itable", NULL, "discard", NULL, "errors", "remount-ro", NULL};
    return mount_ext4(image, -1, false, o, MATTR_NODEV | MATTR_NOSUID, scratch, e);
}

int mount_tmpfs(const char *size, const char *mode, struct err *e)
{
    const char *const o[] = {"size", size, "mode", mode, "source", "none", NULL};
    return mount_fs("tmpfs", o, 0, e);
}

int mount_clone(int dirfd, const char *path, bool recursive, struct err *e)
{
    int m = sys_open_tree(dirfd, path, OPENTREE_CLONE | OPENTREE_CLOEXEC | TREE_EMPTY_PATH | (recursive ? TREE_RECURSIVE : 0));
    return m < 0 ? err_sys(e, errno, "open_tree") : m;
}

int mount_attr(int mnt, uint64_t set, bool recursive, struct err *e)
{
    struct mattr a = {.set = set};
    if (sys_mount_setattr(mnt, "", TREE_EMPTY_PATH | (recursive ? TREE_RECURSIVE : 0), &a) < 0)
        return err_sys(e, errno, "mount_setattr");
    return 0;
}

int mount_idmap(int mnt, int userns, struct err *e)
{
    struct mattr a = {.set = MATTR_IDMAP, .userns_fd = (uint64_t)userns};
    if (sys_mount_setattr(mnt, "", TREE_EMPTY_PATH, &a) < 0)
        return err_sys(e, errno, "idmapped mount");
    return 0;
}

/* The layers of an overlay: by descriptor, or by the names under which they hang. */
struct layers { int lower, up, work; const char *lower_at, *up_at, *work_at; };

static int put_layer(int fs, const char *by_fd, const char *by_name, int fd, const char *at, struct err *e)
{
    int rc = at ? sys_fsconfig(fs, FSC_SET_STRING, by_name, at, 0) : sys_fsconfig(fs, FSC_SET_FD, by_fd, NULL, fd);
    return rc < 0 ? fs_err(e, fs, by_name) : 0;
}

static int overlay_open(const struct layers *l, struct err *e)
{
    auto_fd fs = sys_fsopen("overlay");
    if (fs < 0)
        return err_sys(e, errno, "fsopen overlay");
    if (opt(fs, "source", "none") < 0)
        return fs_err(e, fs, "source");
    if (put_layer(fs, "lowerdir+", "lowerdir", l->lower, l->lower_at, e) || put_layer(fs, "upperdir", "upperdir", l->up, l->up_at, e) ||
        put_layer(fs, "workdir", "workdir", l->work, l->work_at, e))
        return -1;
    /* whiteouts and renames of directories must not depend on the host's module parameters */
    if (opt(fs, "volatile", NULL) < 0 || opt(fs, "redirect_dir", "on") < 0 || opt(fs, "index", "off") < 0 || opt(fs, "metacopy", "off") < 0)
        return fs_err(e, fs, "overlay options");
    if (sys_fsconfig(fs, FSC_CMD_CREATE, NULL, NULL, 0) < 0)
        return fs_err(e, fs, "overlay");
    int m = sys_fsmount(fs, 0);
    return m < 0 ? fs_err(e, fs, "overlay") : m;
}

/* l says how the kernel is told of the layers; upper is the writable one's mount all the same. */
static int overlay(struct layers *l, int upper, uid_t uid, gid_t gid, struct err *e)
{
    auto_fd up = openat(upper, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_fd work = openat(upper, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct err back;
    if (up < 0 || work < 0)
        return err_sys(e, errno, "writable layer");
    l->up = up, l->work = work;
    /* The mounter's ids must be mapped in the idmapped layers, else the overlay comes up read-only, silently. */
    if (privs_fs_as(uid, gid, e))
        return -1;
    /* A layer that was mounted volatile before carries this mark and would be refused. Our layers are only reused
     * after a clean stop, or are known to be as lost as the host crash that made them so. */
    (void)unlinkat(work, "work/incompat/volatile/dirty", 0);
    if (!unlinkat(work, "work/incompat/volatile", AT_REMOVEDIR))
        (void)unlinkat(work, "work/incompat", AT_REMOVEDIR);
    auto_fd m = overlay_open(l, e);
    if (privs_fs_as(0, 0, &back))
        return err_set(e, E_INTERNAL, "cannot return to root's file ids: %s", back.msg);
    struct statvfs v;
    if (m < 0)
        return -1;
    if (fstatvfs(m, &v) < 0)
        return err_sys(e, errno, "overlay");
    if (v.f_flag & ST_RDONLY)
        return err_set(e, E_INTERNAL, "the overlay came up read-only");
    return take_fd(&m);
}

int mount_overlay(int lower, int upper, uid_t uid, gid_t gid, struct err *e)
{
    struct layers l = {.lower = lower};
    return overlay(&l, upper, uid, gid, e);
}

int mount_overlay_at(const char *lower, const char *upper, uid_t uid, gid_t gid, struct err *e)
{
    char up[96], work[96];
    auto_fd top = open(upper, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(e, errno, "writable layer");
    (void)snprintf(up, sizeof up, "%s/upper", upper);
    (void)snprintf(work, sizeof work, "%s/work", upper);
    struct layers l = {.lower_at = lower, .up_at = up, .work_at = work};
    return overlay(&l, top, uid, gid, e);
}

int mount_move(int mnt, int dirfd, const char *path, struct err *e)
{
    if (sys_move_mount(mnt, "", dirfd, path, MOVE_F_EMPTY_PATH | (*path ? 0 : MOVE_T_EMPTY_PATH)) < 0)
        return err_sys(e, errno, "move_mount");
    return 0;
}

int mount_enter(int root, struct err *e)
{
    if (fchdir(root) < 0)
        return err_sys(e, errno, "new root");
    if (sys_pivot_root(".", ".") < 0)
        return err_sys(e, errno, "pivot_root");
    if (sys_umount2(".", UMOUNT_DETACH) < 0) /* the old root lies on top of the new one */
        return err_sys(e, errno, "old root");
    return chdir("/") < 0 ? err_sys(e, errno, "chdir") : 0;
}

int mount_pivot(int root, const char *at, struct err *e) { return mount_move(root, AT_FDCWD, at, e) || mount_enter(root, e) ? -1 : 0; }

static int open_beneath(int top, const char *path, uint64_t flags)
{
    return sys_openat2(top, path, flags | O_PATH, RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_);
}

int mount_put(int mnt, int top, const char *dir, struct err *e)
{
    auto_fd slash = top == AT_FDCWD ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (top == AT_FDCWD)
        top = slash;
    auto_fd to = open_beneath(top, dir, O_DIRECTORY);
    if (to < 0 && errno == ENOENT) {
        if (mkdirat(top, dir, 0755) < 0)
            return err_sys(e, errno, "make /%s", dir);
        to = open_beneath(top, dir, O_DIRECTORY);
    }
    if (to < 0)
        return err_sys(e, errno, "/%s of the template is not a plain directory", dir);
    return mount_move(mnt, to, "", e) ? err_wrap(e, "/%s", dir) : 0;
}

int mount_mask(const char *path, const char *null_dir, struct err *e)
{
    if (!sys_mount(null_dir, path, NULL, MOUNT_BIND, NULL) || errno == ENOENT || (errno == ENOTDIR && !sys_mount("/dev/null", path, NULL, MOUNT_BIND, NULL)))
        return 0;
    return err_sys(e, errno, "%s", path);
}

int mount_ro(int top, const char *path, struct err *e)
{
    auto_fd to = open_beneath(top, path, O_DIRECTORY);
    if (to < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "/%s", path);
    auto_fd m = mount_clone(to, "", true, e);
    if (m < 0 || mount_attr(m, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, true, e) || mount_move(m, to, "", e))
        return err_wrap(e, "/%s", path);
    return 0;
}
