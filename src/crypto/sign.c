#include "crypto/sign.h"
#include <openssl/evp.h>
#include <stdlib.h>

/* As in seal.c: what fails here fails for want of memory or of the algorithm, and nothing can go on. */
static void must(int ok)
{
    if (ok != 1)
        abort();
}

static EVP_PKEY *secret_key(const unsigned char secret[SIGN_SECRET])
{
    EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, SIGN_SECRET);
    must(k != NULL);
    return k;
}

void sign_public(const unsigned char secret[SIGN_SECRET], unsigned char ret[SIGN_PUBLIC])
{
    EVP_PKEY *k = secret_key(secret);
    size_t n = SIGN_PUBLIC;
    must(EVP_PKEY_get_raw_public_key(k, ret, &n));
    EVP_PKEY_free(k);
}

void sign_make(const unsigned char secret[SIGN_SECRET], const void *p, size_t n, unsigned char ret[SIGN_BYTES])
{
    EVP_PKEY *k = secret_key(secret);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    size_t got = SIGN_BYTES;
    must(c != NULL);
    must(EVP_DigestSignInit(c, NULL, NULL, NULL, k));
    must(EVP_DigestSign(c, ret, &got, p, n));
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(k);
}

bool sign_check(const unsigned char public[SIGN_PUBLIC], const void *p, size_t n, const unsigned char sig[SIGN_BYTES])
{
    EVP_PKEY *k = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public, SIGN_PUBLIC);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    must(k != NULL && c != NULL);
    bool ok = EVP_DigestVerifyInit(c, NULL, NULL, NULL, k) == 1 && EVP_DigestVerify(c, sig, SIGN_BYTES, p, n) == 1;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(k);
    return ok;
}
