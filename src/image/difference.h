/* A difference: what a tree has become, told against a tree that is there
 * already. A stream of
 *
 *   tree <bytes>\n
 *   <entry>\0<entry>\0…            those bytes: everything that is there now
 *   a tar of what may differ
 *
 * with entries as find's "%y %m %U %G %s %T@ %P" prints them: type (f, d, l),
 * mode in octal, owner, group, size, time of change in seconds, path ("": the
 * root). Applied, the tree loses what is not listed, gets what the tar has, and
 * is then compared with the list entry by entry: whoever made the tar need not
 * be right about what differs. E_CONFLICT: he was wrong, and the whole tree is
 * needed. Sizes and times are compared for files and links, not for directories.
 *
 * Hostile input like any archive: see untar.h, whose limits hold. */
#pragma once
#include "image/untar.h"

#define DIFFERENCE_LIST_MAX (256u << 20)

int untar_onto(struct untar *u, int fd, struct err *e) __attribute__((warn_unused_result));
