/* Java's own key store format (JKS), as far as trust needs it: one certificate
 * put into a store without starting a Java machine, which takes seconds under
 * emulation. Pure; the store is foreign bytes.
 *
 *   store  0xfeedfeed, version 1 or 2, count, entries, SHA-1 of (password as UTF-16, "Mighty Aphrodite", all before it)
 *   entry  1: alias, date, key, chain of certificates; 2: alias, date, certificate
 *
 * Numbers are big-endian, strings have a length of two bytes, keys and
 * certificates one of four; version 2 has a type ("X.509") before each
 * certificate. The password is the one that every Java ships its store with. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define JKS_MAX 1048576 /* bytes of a store that is looked into; Debian's has 160 KiB */

/* `store` with `der` as a trusted certificate named `alias` (lower case), in place of what had that name. E_INVALID: not such a
 * store, or one with another password. */
int jks_trust(struct str store, const char *alias, struct str der, uint64_t now_ms, struct buf *ret, struct err *e) __attribute__((warn_unused_result));
