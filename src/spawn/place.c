#include "spawn/place.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/ours.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Whose a folder is. The daemon's group has one member: the daemon. */
enum whose { ROOTS, SHARED, DAEMONS };

static const struct {
    const char *name;
    enum whose whose;
    mode_t mode;
} folders[] = {
    {"templates", SHARED, 0771},
    {"snapshots", SHARED, 0771},
    {"boxes", SHARED, 01771}, /* sticky: a container's folder is root's and stays where it is */
    {"tmp", DAEMONS, 0711},
    {"cache", DAEMONS, 0711},
    {"log", ROOTS, 0711},
    {"fs", ROOTS, 0700},
    {"volumes", ROOTS, 0700},
    {"kernel", ROOTS, 0755},
    {PLACE_ROOT_CACHE, ROOTS, 0711}, /* apt fetches as a user of its own, who must get through */
};

static struct owner owner_of(const struct spawn_conf *c, enum whose w, mode_t mode)
{
    return (struct owner){w == DAEMONS ? c->allow_uid : 0, w == ROOTS ? 0 : (gid_t)c->allow_uid,
                          mode};
}

/* ---- what earlier versions had elsewhere ---- */

static bool roots_alone(int dir, struct stat *st)
{
    return dir >= 0 && !fstat(dir, st) && !st->st_uid && !(st->st_mode & 022);
}

/* Packages that root fetched lay in the daemon's folder. Those are good if the folder was root's all the time, which is looked at again
 * where the daemon cannot reach it any more. */
static int move_debs(int home, struct err *e)
{
    struct stat was, is;
    auto_fd cache = openat(home, "cache", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_fd old =
        cache < 0 ? -1 : openat(cache, "apt", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!roots_alone(old, &was) || !faccessat(home, PLACE_DEBS, F_OK, AT_SYMLINK_NOFOLLOW))
        return 0;
    if (renameat(cache, "apt", home, PLACE_DEBS))
        return errno == EXDEV ? 0 /* they are fetched again */
                              : err_sys(e, errno, "moving cache/apt to " PLACE_DEBS);
    auto_fd moved = openat(home, PLACE_DEBS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (roots_alone(moved, &is) && is.st_dev == was.st_dev && is.st_ino == was.st_ino)
        return 0;
    (void)renameat(home, PLACE_DEBS, cache, "apt");
    return err_set(e, E_CONFLICT, "cache/apt was replaced while it was moved: remove it");
}

/* Files of the daemon after HUTCH_UID was changed. Not those of root: an image that is mounted could have been given such a name. */
static int hand_over(int home, const char *name, uid_t uid, struct err *e)
{
    struct stat st;
    auto_fd fd = openat(home, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st))
        return err_sys(e, errno, "%s", name);
    if (st.st_uid == uid)
        return 0;
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || !st.st_uid)
        return err_set(
            e, E_DENIED,
            "%s belongs to uid %u and not to hutchd: give it to uid %u (chown), or remove it", name,
            (unsigned)st.st_uid, (unsigned)uid);
    return fchownat(fd, "", uid, (gid_t)uid, AT_EMPTY_PATH) ? err_sys(e, errno, "owning %s", name)
                                                            : 0;
}

/* Files of the daemon in a folder where it can make none. Only what is made here is given away. */
static int make_for(int dir, const char *name, uid_t uid, struct err *e)
{
    struct stat st;
    for (int i = 0; i < 2; i++) {
        auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fchown(fd, uid, (gid_t)uid) ? err_sys(e, errno, "owning %s", name) : 0;
        if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
            return err_sys(e, errno, "making %s", name);
        if (S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == uid)
            return 0;
        if (unlinkat(dir, name, 0))
            return err_sys(e, errno, "removing %s, which is not the daemon's", name);
    }
    return err_set(e, E_CONFLICT, "%s cannot be made", name);
}

static int make_logs(int home, uid_t uid, struct err *e)
{
    auto_fd log = openat(home, "log", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (log < 0)
        return err_sys(e, errno, "log");
    return make_for(log, "console.log", uid, e) || make_for(log, "console.log.1", uid, e) ? -1 : 0;
}

static int hand_over_files(int home, uid_t uid, struct err *e)
{
    static const char *const files[] = {"state.db", "state.db-wal", "state.db-shm", "admin.key",
                                        "secrets.key"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (hand_over(home, files[i], uid, e))
            return -1;
    return 0;
}

/* ---- all of them ---- */

static int take_home(const struct spawn_conf *c, struct err *e)
{
    struct owner top = owner_of(c, SHARED, 01771), debs = owner_of(c, ROOTS, 0700);
    struct owner gate = {(uid_t)c->egress_uid, (gid_t)c->allow_uid,
                         02750}; /* the set-group bit: the daemon reads what the gate writes */
    auto_fd home = ours_dir(AT_FDCWD, c->home, &top, c->allow_uid,
                            e); /* first: from now on root's entries stay */
    if (home < 0)
        return -1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct owner to = owner_of(c, folders[i].whose, folders[i].mode);
        auto_fd fd = ours_dir(home, folders[i].name, &to, c->allow_uid, e);
        if (fd < 0)
            return -1;
    }
    if (move_debs(home, e))
        return -1;
    auto_fd kept = ours_dir(home, PLACE_DEBS, &debs, 0, e);
    auto_fd egress = kept < 0 ? -1 : ours_dir(home, "log/egress", &gate, c->allow_uid, e);
    return egress < 0 || make_logs(home, c->allow_uid, e) ? -1
                                                          : hand_over_files(home, c->allow_uid, e);
}

int place_take(const struct spawn_conf *c, struct err *e)
{
    struct owner run = owner_of(c, SHARED, 01775), own = owner_of(c, ROOTS, 0700);
    if (take_home(c, e))
        return err_wrap(e, "HUTCH_HOME");
    auto_fd top = ours_dir(AT_FDCWD, c->run, &run, c->allow_uid, e);
    auto_fd spawn = top < 0 ? -1 : ours_dir(top, "spawn", &own, 0, e);
    return spawn < 0 ? err_wrap(e, "HUTCH_RUN") : 0;
}

int place_log(const char *home, const char *name, struct err *e)
{
    auto_fd top = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd log =
        top < 0 ? -1 : openat(top, "log", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return log < 0 ? err_sys(e, errno, "log") : ours_file(log, name, O_RDWR | O_APPEND, e);
}
