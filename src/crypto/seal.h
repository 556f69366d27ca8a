/* Authenticated encryption for what lies in the database: AES-256-GCM with a
 * random nonce per value. `about` (the row's name) is bound to the value, so a
 * value cannot be moved to another row. Any thread. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define SEAL_KEY 32
void seal(const unsigned char key[SEAL_KEY], struct str about, struct str plain, struct buf *ret_base64);
/* E_DENIED: wrong key, another row, or changed bytes. The plain text is the caller's to wipe. */
int unseal(const unsigned char key[SEAL_KEY], struct str about, struct str base64, struct buf *ret_plain, struct err *e) __attribute__((warn_unused_result));
