/* Import of an image archive (OCI layout tar or docker-archive tar) from a
 * seekable descriptor: find the image for linux/amd64, check every blob that is
 * used against its sha256, apply the layers in order with whiteouts. Runs in
 * hutch-untar, inside the jail; the archive is hostile. */
#pragma once
#include "image/oci.h"
#include "image/untar.h"

#define IMPORT_MEMBERS_MAX 4096

/* u: root and budgets set, its `oci` flag is set here. ret: oci_config_fini. */
int import_image(struct untar *u, int fd, struct oci_config *ret, struct err *e) __attribute__((warn_unused_result));
