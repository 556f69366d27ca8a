/* Loop devices: an image file as a block device that lets go of itself when
 * its last user (a mount) is gone. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
/* Attaches `image` and returns the open device; its path is in `path`. Keep the descriptor until the mount has opened the
 * device itself, then close it. scratch: directory for a device node when the host's /dev lacks one. */
int loopdev_attach(int image, bool read_only, const char *scratch, char *path, size_t path_size, struct err *e)
    __attribute__((warn_unused_result));
