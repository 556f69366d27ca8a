/* Private to crypto/: what certificates of either kind are made with. OpenSSL's
 * own headers stay in the .c files. */
#pragma once
#include <stdbool.h>

struct x509_st; /* X509 */
bool x509_serial(struct x509_st *x); /* a random one */
bool x509_ext(struct x509_st *x, struct x509_st *issuer, int nid, const char *value);
