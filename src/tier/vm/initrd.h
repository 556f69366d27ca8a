/* The guest's first file system: an uncompressed cpio archive in "newc" format
 * (kernel: Documentation/driver-api/early-userspace/buffer-format.rst) with
 *   /init            the agent, 0755
 *   /modules/NAME    the modules
 *   /modules.list    their names in load order, one a line
 *   /dev /dev/console /proc /sys /root (empty directories, the console node)
 * The bytes depend on the contents only: no times, no owners, no inode numbers
 * of the host, so the same kernel and agent give the same template key. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

/* One entry; path without a leading slash. mode: S_IFREG, S_IFDIR or S_IFCHR and permissions. */
void cpio_put(struct buf *out, uint32_t ino, const char *path, uint32_t mode, uint32_t rdev_major,
              uint32_t rdev_minor, const void *p, uint32_t n);
void cpio_end(struct buf *out); /* the trailer */

/* kernel_dir: output of share/tools/kernel.sh. Both fds stay the caller's; the agent is read from offset 0. Blocks.
 * Missing or outsized files and odd names are refused. */
int initrd_build(int kernel_dir, int agent_fd, struct buf *out, struct err *e)
    __attribute__((warn_unused_result));
