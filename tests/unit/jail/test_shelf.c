/* Mounts that hang nowhere, and the shelf they hang on where the kernel is too
 * old for that. Both ways run on every kernel that can do the newer one. */
#include "base/cleanup.h"
#include "jail/mount.h"
#include "jail/shelf.h"
#include "jail/sys.h"
#include "test.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Entering a namespace is for the whole process: each case in one of its own. Without root nothing here can be tried, so that is a failure. */
static int apart(int (*body)(bool always), bool always)
{
    int st = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(sys_unshare(NS_MOUNT) < 0 || sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_PRIVATE, NULL) < 0 ? 99 : body(always));
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st));
    return WEXITSTATUS(st);
}

#define NEED(cond) do { if (!(cond)) { printf("# line %d: %s; %s\n", __LINE__, #cond, e.msg); fflush(stdout); return 1; } } while (0)

static int mounts_of_ours(void)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen("/proc/self/mountinfo", "r");
    while (f && fgets(line, sizeof line, f))
        n++;
    if (f)
        fclose(f);
    return n;
}

static int try_it(bool always)
{
    struct err e = {0};
    struct shelf s;
    int before = mounts_of_ours();
    NEED(!shelf_open(&s, always, &e));
    NEED(!always || s.ns >= 0);
    for (int i = 0; i < 3; i++)
        NEED(!shelf_try(&s, &e));
    NEED(mounts_of_ours() == before); /* nothing hangs where jails would copy it */
    shelf_close(&s);
    return 0;
}

TEST(shelf, clones_and_overlays_work_both_ways)
{
    CHECK_INT(apart(try_it, false), 0);
    CHECK_INT(apart(try_it, true), 0);
}

static int put(int mnt, const char *name)
{
    auto_fd fd = openat(mnt, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : 0;
}

static int keep_and_drop(bool always)
{
    struct err e = {0};
    struct shelf s;
    NEED(!shelf_open(&s, always, &e));
    auto_fd m = mount_tmpfs("64k", "0755", &e);
    NEED(m >= 0 && !shelf_keep(&s, m, "one", &e) && !put(m, "file"));
    auto_fd a = shelf_clone(&s, m, &e), b = shelf_clone(&s, m, &e);
    NEED(a >= 0 && b >= 0);
    NEED(!mount_attr(b, MATTR_RDONLY, false, &e));
    shelf_drop(&s, "one");
    NEED(!faccessat(a, "file", F_OK, 0) && !faccessat(b, "file", F_OK, 0)); /* clones outlive what they are of */
    NEED(!put(a, "more") && put(b, "not"));
    auto_fd n = mount_tmpfs("64k", "0755", &e);
    NEED(n >= 0 && !shelf_keep(&s, n, "one", &e)); /* the name is free again */
    shelf_drop(&s, "one");
    char cwd[16];
    NEED(!always || (getcwd(cwd, sizeof cwd) && !strcmp(cwd, "/"))); /* as shelf.h says */
    NEED(!access("/proc/self/status", F_OK));                         /* we are back */
    shelf_close(&s);
    return 0;
}

TEST(shelf, clones_outlive_what_was_kept)
{
    CHECK_INT(apart(keep_and_drop, false), 0);
    CHECK_INT(apart(keep_and_drop, true), 0);
}

/* A root that is a mount point but not its namespace's: what a chroot is. */
static int in_a_chroot(bool always)
{
    struct err e = {0};
    struct shelf s;
    char dir[] = "/tmp/hutch-shelf-XXXXXX";
    NEED(mkdtemp(dir));
    auto_fd root = mount_tmpfs("64k", "0755", &e);
    NEED(root >= 0 && !put(root, "mark") && !mkdirat(root, "proc", 0755) && !mount_move(root, AT_FDCWD, dir, &e));
    auto_fd proc = mount_fs("proc", NULL, 0, &e);
    NEED(proc >= 0 && !mount_move(proc, root, "proc", &e) && !fchdir(root) && !chroot("."));
    NEED(!shelf_open(&s, always, &e) && !shelf_try(&s, &e));
    NEED(!access("/mark", F_OK)); /* not the host's root */
    shelf_close(&s);
    return 0;
}

TEST(shelf, stays_in_a_chroot)
{
    CHECK_INT(apart(in_a_chroot, false), 0);
    CHECK_INT(apart(in_a_chroot, true), 0);
    CHECK_INT(system("rmdir /tmp/hutch-shelf-??????"), 0);
}

static int bad_layers(bool always)
{
    struct err e = {0};
    struct shelf s;
    NEED(!shelf_open(&s, always, &e));
    auto_fd lower = mount_tmpfs("64k", "0755", &e), upper = mount_tmpfs("64k", "0755", &e);
    NEED(lower >= 0 && upper >= 0);
    NEED(shelf_overlay(&s, lower, upper, 0, 0, &e) < 0 && strstr(e.msg, "writable layer")); /* has no directories "upper" and "work" */
    NEED(!access("/proc/self/status", F_OK));
    NEED(!shelf_try(&s, &e)); /* and left nothing in the way */
    shelf_close(&s);
    return 0;
}

TEST(shelf, a_failed_overlay_leaves_nothing)
{
    CHECK_INT(apart(bad_layers, false), 0);
    CHECK_INT(apart(bad_layers, true), 0);
}

TEST_MAIN
