#include "jail/loopdev.h"
#include "base/cleanup.h"
#include "jail/sys.h"
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define LOOP_MAJOR_ 7u
#define TRIES 64 /* GET_FREE only suggests: others on the host may take the device between the two calls */

static int node_open(long n, const char *scratch, char *path, size_t path_size)
{
    (void)snprintf(path, path_size, "/dev/loop%ld", n);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 || (errno != ENOENT && errno != ENXIO))
        return fd;
    (void)snprintf(path, path_size, "%s/loop%ld", scratch, n);
    if (mknod(path, S_IFBLK | 0600, makedev(LOOP_MAJOR_, (unsigned)n)) < 0 && errno != EEXIST)
        return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

int loopdev_attach(int image, bool read_only, const char *scratch, char *path, size_t path_size, struct err *e)
{
    auto_fd ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (ctl < 0)
        return err_sys(e, errno, "loop-control");
    struct loop_config c;
    memset(&c, 0, sizeof c);
    c.fd = (uint32_t)image;
    /* Buffered, not direct: attaching with direct I/O syncs the file first, and every later flush waits for the disk. The
     * cache of the backing file is charged to the box that writes. See docs/decisions/012-writable-layers.md. */
    c.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
    for (int i = 0; i < TRIES; i++) {
        long n = ioctl(ctl, LOOP_CTL_GET_FREE);
        if (n < 0)
            return err_sys(e, errno, "LOOP_CTL_GET_FREE");
        auto_fd dev = node_open(n, scratch, path, path_size);
        if (dev < 0)
            return err_sys(e, errno, "loop device %ld", n);
        if (!ioctl(dev, LOOP_CONFIGURE, &c))
            return take_fd(&dev);
        if (errno != EBUSY)
            return err_sys(e, errno, "LOOP_CONFIGURE");
    }
    return err_set(e, E_UNAVAILABLE, "no free loop device after %d tries", TRIES);
}
