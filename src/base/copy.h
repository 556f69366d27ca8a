/* Copies of large files. */
#pragma once
#include "base/err.h"

/* What `from` holds into `to`, an empty file open for writing; holes stay holes. Where the file system can, nothing is
 * copied but shared until one of the two is written. Blocks. */
int copy_sparse(int from, int to, struct err *e) __attribute__((warn_unused_result));
