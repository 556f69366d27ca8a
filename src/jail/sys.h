/* The kernel calls the jail needs that a libc may not wrap (musl wraps none of
 * the new mount API), as raw system calls with the kernel's own names and
 * numbers. Neither <sys/mount.h> nor <linux/mount.h> is included anywhere in
 * jail/ or spawn/, because the two contradict each other in some versions. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif
#ifndef SYS_clone3
#define SYS_pidfd_open 434
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

/* clone flags */
#define NS_TIME   0x00000080u
#define NS_MOUNT  0x00020000u
#define NS_CGROUP 0x02000000u
#define NS_UTS    0x04000000u
#define NS_IPC    0x08000000u
#define NS_USER   0x10000000u
#define NS_PID    0x20000000u
#define NS_NET    0x40000000u
#define CLONE3_PIDFD         0x00001000ull
#define CLONE3_PARENT        0x00008000ull
#define CLONE3_CLEAR_SIGHAND 0x100000000ull
#define CLONE3_INTO_CGROUP   0x200000000ull
struct clone3_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup; };

/* mount API */
#define OPENTREE_CLONE        1u
#define OPENTREE_CLOEXEC      ((unsigned)O_CLOEXEC)
#define TREE_RECURSIVE        0x8000u /* AT_RECURSIVE */
#define TREE_EMPTY_PATH       0x1000u /* AT_EMPTY_PATH */
#define MOVE_F_EMPTY_PATH     0x4u
#define MOVE_T_EMPTY_PATH     0x40u
#define FSOPEN_CLOSEXEC       1u
#define FSMOUNT_CLOSEXEC      1u
#define FSC_SET_FLAG          0u
#define FSC_SET_STRING        1u
#define FSC_SET_FD            5u
#define FSC_CMD_CREATE        6u
#define MATTR_RDONLY          0x00000001ull
#define MATTR_NOSUID          0x00000002ull
#define MATTR_NODEV           0x00000004ull
#define MATTR_NOEXEC          0x00000008ull
#define MATTR_NOATIME         0x00000010ull
#define MATTR_ATIME_MASK      0x00000070ull
#define MATTR_IDMAP           0x00100000ull
#define MOUNT_REC             0x4000ul
#define MOUNT_PRIVATE         (1ul << 18)
#define MOUNT_SHARED          (1ul << 20)
#define MOUNT_BIND            0x1000ul
#define UMOUNT_DETACH         2
struct mattr { uint64_t set, clr, propagation, userns_fd; };
struct how2 { uint64_t flags, mode, resolve; };
#define RESOLVE_BENEATH_      0x08ull
#define RESOLVE_NO_SYMLINKS_  0x04ull

static inline int sys_open_tree(int dfd, const char *path, unsigned flags) { return (int)syscall(SYS_open_tree, dfd, path, flags); }
static inline int sys_move_mount(int ffd, const char *from, int tfd, const char *to, unsigned flags)
{
    return (int)syscall(SYS_move_mount, ffd, from, tfd, to, flags);
}
static inline int sys_fsopen(const char *type) { return (int)syscall(SYS_fsopen, type, FSOPEN_CLOSEXEC); }
static inline int sys_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
    return (int)syscall(SYS_fsconfig, fd, cmd, key, value, aux);
}
static inline int sys_fsmount(int fd, unsigned attr) { return (int)syscall(SYS_fsmount, fd, FSMOUNT_CLOSEXEC, attr); }
static inline int sys_mount_setattr(int dfd, const char *path, unsigned flags, const struct mattr *a)
{
    return (int)syscall(SYS_mount_setattr, dfd, path, flags, a, sizeof *a);
}
static inline int sys_mount(const char *src, const char *dst, const char *type, unsigned long flags, const char *data)
{
    return (int)syscall(SYS_mount, src, dst, type, flags, data);
}
static inline int sys_umount2(const char *path, int flags) { return (int)syscall(SYS_umount2, path, flags); }
static inline int sys_pivot_root(const char *new_root, const char *put_old) { return (int)syscall(SYS_pivot_root, new_root, put_old); }
static inline int sys_openat2(int dfd, const char *path, uint64_t flags, uint64_t resolve)
{
    struct how2 h = {.flags = flags | O_CLOEXEC, .resolve = resolve};
    return (int)syscall(SYS_openat2, dfd, path, &h, sizeof h);
}
static inline int sys_close_range(unsigned lo, unsigned hi) { return (int)syscall(SYS_close_range, lo, hi, 0u); }
static inline int sys_pidfd_signal(int pidfd, int sig) { return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, (void *)0, 0u); }
static inline int sys_unshare(unsigned flags) { return (int)syscall(SYS_unshare, (unsigned long)flags); }
static inline int sys_setns(int ns, unsigned kind) { return (int)syscall(SYS_setns, ns, kind); }
static inline int sys_execveat(int fd, const char *path, char *const *argv, char *const *envp, int flags)
{
    return (int)syscall(SYS_execveat, fd, path, argv, envp, flags);
}
