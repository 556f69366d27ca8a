/* A certificate and its key as files: read at the start, read again when they
 * change. A new pair that is no good leaves the old one in force; the log says
 * why. Loop thread. */
#pragma once
#include "base/err.h"
#include "crypto/tls.h"
#include "crypto/x509.h"
#include "loop/loop.h"

#define TLS_SOON_DAYS 21 /* a certificate that ends sooner is worth a warning */

struct tls_files;
struct tls_files *tls_files_new(const char *cert, const char *key, struct err *e);
void tls_files_free(struct tls_files *f);
void tls_files_watch(
    struct tls_files *f,
    struct loop *l); /* looks every few seconds, and warns once a day of an end that is near */
void tls_files_look(struct tls_files *f); /* looks now */
struct tls_pair *tls_files_pair(
    struct tls_files *f); /* the one in force; valid until the next turn of the loop */

int tls_files_facts(const char *cert, struct x509_facts *ret,
                    struct err *e);            /* of a file, for whoever shows it */
int tls_days_left(const struct x509_facts *f); /* negative: it has ended */
