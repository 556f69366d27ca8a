/* Certificates: for interception (a CA per sandbox, made by hutchd; hutch-egress
 * signs with it, crypto/tls.h), and for a daemon that has none from elsewhere
 * (`hutch tls self-signed`). What we make is P-256. OpenSSL stays behind this
 * file. Any thread. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

/* A new self-signed CA, valid from a day ago for `days`, with a critical path length of 0; PEM. The key is the caller's to wipe. */
int x509_ca_make(const char *common_name, int days, struct buf *ret_cert, struct buf *ret_key, struct err *e);
/* Do certificate and key parse, belong together and make a CA? */
int x509_ca_check(struct str cert, struct str key, struct err *e);

/* A certificate for a server, signed by that CA, valid from a day ago for `days`; PEM, the CA's own behind it. names: host names, "*." before
 * one, or addresses; the first is also the subject. */
int x509_server_make(struct str ca_cert, struct str ca_key, const char *const *names, int n,
                     int days, struct buf *ret_cert, struct buf *ret_key, struct err *e);
bool x509_name_ok(const char *name); /* can such a name be in a certificate? */
bool x509_is_address(const char *name);

struct x509_facts {
    char subject[128], issuer[128];
    char names[512];         /* "a.example, *.a.example, 127.0.0.1"; cut with … */
    int64_t from_s, until_s; /* seconds since 1970 */
    char from[24], to[24];   /* the same as dates */
    char sha256[65];         /* of the certificate, hex */
};
/* Of the first certificate in a PEM text. */
int x509_look(struct str pem, struct x509_facts *ret, struct err *e);
