/* Which descriptors a jailed process has. Everything else is closed first,
 * before any other step: an inherited descriptor is a hole in every wall. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#define FDS_KEEP_MAX 40
struct fd_keep { int n; int fd[FDS_KEEP_MAX]; };
void fds_keep(struct fd_keep *k, int fd); /* negative and repeated ones are ignored */
int fds_close_others(const struct fd_keep *k, struct err *e) __attribute__((warn_unused_result));
int fds_place(int from, int to, struct err *e) __attribute__((warn_unused_result)); /* dup to a number, without CLOEXEC */
int fds_inherit(int fd, struct err *e) __attribute__((warn_unused_result));         /* keep its number over exec */
