/* Private to crypto/: what certificates of either kind are made with. OpenSSL's
 * own headers stay in the .c files. */
#pragma once
#include "crypto/x509.h"
#include <stdbool.h>

struct x509_st;                      /* X509 */
struct evp_pkey_st;                  /* EVP_PKEY */
bool x509_serial(struct x509_st *x); /* a random one */
bool x509_ext(struct x509_st *x, struct x509_st *issuer, int nid, const char *value);
void x509_facts_of(struct x509_st *x, struct x509_facts *ret);
int x509_pem(struct x509_st *x, struct evp_pkey_st *key, struct buf *ret_cert, struct buf *ret_key,
             struct err *e); /* appends */
