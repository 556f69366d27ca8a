/* One EVP_MD and one EVP_MAC for the process, fetched under pthread_once; a
 * context per call. Failures of libcrypto here mean a broken installation or no
 * memory, so they abort instead of travelling up as errors nobody can handle. */
#include "crypto/digest.h"
#include "base/enc.h"
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static EVP_MD *md;
static EVP_MAC *mac;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void die(const char *what)
{
    (void)fprintf(stderr, "libcrypto: %s failed\n", what);
    abort();
}

static void fetch(void)
{
    md = EVP_MD_fetch(NULL, "SHA256", NULL);
    mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (!md || !mac)
        die("fetch");
}

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
    pthread_once(&once, fetch);
    if (EVP_Digest(p ? p : "", n, out, NULL, md, NULL) != 1)
        die("sha256");
}

void sha256_hex(const void *p, size_t n, char out[SHA256_HEX])
{
    unsigned char d[SHA256_BYTES];
    sha256(p, n, d);
    hex_encode(d, sizeof d, out);
}

/* struct sha256 is never defined: it is an EVP_MD_CTX by another name. */
struct sha256 *sha256_new(void)
{
    pthread_once(&once, fetch);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c || EVP_DigestInit_ex2(c, md, NULL) != 1)
        die("sha256");
    return (struct sha256 *)(void *)c;
}

void sha256_add(struct sha256 *h, const void *p, size_t n)
{
    if (n && EVP_DigestUpdate((EVP_MD_CTX *)(void *)h, p, n) != 1)
        die("sha256");
}

void sha256_end(struct sha256 *h, unsigned char out[SHA256_BYTES])
{
    if (EVP_DigestFinal_ex((EVP_MD_CTX *)(void *)h, out, NULL) != 1)
        die("sha256");
    sha256_free(h);
}

void sha256_end_hex(struct sha256 *h, char out[SHA256_HEX])
{
    unsigned char d[SHA256_BYTES];
    sha256_end(h, d);
    hex_encode(d, sizeof d, out);
}

void sha256_free(struct sha256 *h) { EVP_MD_CTX_free((EVP_MD_CTX *)(void *)h); }

void hmac_sha256(const void *key, size_t nkey, const void *p, size_t n, unsigned char out[SHA256_BYTES])
{
    pthread_once(&once, fetch);
    char name[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0), OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *c = EVP_MAC_CTX_new(mac);
    size_t got = 0;
    if (!c || EVP_MAC_init(c, nkey ? key : (const void *)"", nkey, params) != 1 || (n && EVP_MAC_update(c, p, n) != 1) ||
        EVP_MAC_final(c, out, &got, SHA256_BYTES) != 1 || got != SHA256_BYTES)
        die("hmac");
    EVP_MAC_CTX_free(c);
}

bool mem_eq_ct(const void *a, const void *b, size_t n) { return CRYPTO_memcmp(a, b, n) == 0; }

void token_make(const char *prefix, size_t nbytes, char *out)
{
    unsigned char raw[64];
    if (nbytes > sizeof raw)
        die("token of that size");
    random_bytes(raw, nbytes);
    size_t k = strlen(prefix);
    memcpy(out, prefix, k);
    hex_encode(raw, nbytes, out + k);
    OPENSSL_cleanse(raw, sizeof raw);
}
