/* Seccomp filters: a text profile (share/seccomp/<name>.profile) compiled at
 * start-up into BPF in the form of a search tree over system call numbers, so
 * a call costs about seven comparisons whatever the list's length. Installed
 * as raw bytes in the child; no library.
 *
 * Profile, one rule per line, `#` comments:
 *
 *     default errno EPERM                     what no rule matches
 *     allow read write openat
 *     errno ENOSYS clone3
 *     allow clone if a0 & 0x7e020000 == 0     an argument, masked or not, == or !=
 *     allow personality if a0 == 0
 *     kill reboot
 *     trap openat                             SIGSYS, for a process that wants to say what it died of
 *
 * A name the kernel headers of the build did not know is an error, except in
 * lines that begin with `maybe` ("maybe allow futex_wake"). For one call the
 * first matching rule wins; after them the default. Other architectures and
 * the x32 table are killed, always. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seccomp_prog { void *insn; unsigned n; }; /* struct sock_filter[n] */

int seccomp_compile(const char *text, size_t n, struct seccomp_prog *ret, struct err *e) __attribute__((warn_unused_result));
int seccomp_load(const char *path, struct seccomp_prog *ret, struct err *e) __attribute__((warn_unused_result));
void seccomp_free(struct seccomp_prog *p);
/* In the child. Needs no_new_privs or CAP_SYS_ADMIN in its user namespace. */
int seccomp_install(const struct seccomp_prog *p, struct err *e) __attribute__((warn_unused_result));

/* For tests: what the program answers. */
uint32_t seccomp_eval(const struct seccomp_prog *p, uint32_t arch, uint32_t nr, const uint64_t args[6]);
