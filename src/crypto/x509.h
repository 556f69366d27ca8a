/* Certificates for interception: a CA per sandbox, made by hutchd, and leaf
 * certificates signed with it in hutch-egress. P-256 throughout. OpenSSL stays
 * behind this file. Any thread. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/* A new self-signed CA, valid from a day ago for `days`, with a critical path length of 0; PEM. The key is the caller's to wipe. */
int x509_ca_make(const char *common_name, int days, struct buf *ret_cert, struct buf *ret_key, struct err *e);
/* Do certificate and key parse, belong together and make a CA? */
int x509_ca_check(struct str cert, struct str key, struct err *e);
