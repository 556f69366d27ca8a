#include "crypto/seal.h"
#include "base/enc.h"
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONCE 12
#define TAG   16

/* Nothing here fails but for want of memory or of the algorithm itself, and then nothing can go on. */
static void must(int ok)
{
    if (ok != 1)
        abort();
}

void seal(const unsigned char key[SEAL_KEY], struct str about, struct str plain, struct buf *ret)
{
    size_t n = NONCE + plain.n + TAG;
    unsigned char *out = xmalloc(n);
    int got = 0;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    random_bytes(out, NONCE);
    must(c != NULL);
    must(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, out));
    must(EVP_EncryptUpdate(c, NULL, &got, (const unsigned char *)about.p, (int)about.n));
    must(EVP_EncryptUpdate(c, out + NONCE, &got, (const unsigned char *)plain.p, (int)plain.n));
    must(EVP_EncryptFinal_ex(c, out + NONCE + got, &got));
    must(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, out + NONCE + plain.n));
    EVP_CIPHER_CTX_free(c);
    base64_encode(out, n, ret);
    free(out);
}

int unseal(const unsigned char key[SEAL_KEY], struct str about, struct str base64, struct buf *ret, struct err *e)
{
    auto_buf in = {0};
    int got = 0;
    if (!base64_decode(base64.p, base64.n, &in) || in.n < NONCE + TAG)
        return err_set(e, E_DENIED, "a sealed value is damaged");
    const unsigned char *b = (const unsigned char *)in.p;
    size_t n = in.n - NONCE - TAG;
    unsigned char tag[TAG];
    memcpy(tag, b + NONCE + n, TAG);
    buf_reserve(ret, n + 1);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    must(c != NULL);
    must(EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, b));
    must(EVP_DecryptUpdate(c, NULL, &got, (const unsigned char *)about.p, (int)about.n));
    must(EVP_DecryptUpdate(c, (unsigned char *)ret->p + ret->n, &got, b + NONCE, (int)n));
    must(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, tag));
    int tail = 0;
    bool ok = EVP_DecryptFinal_ex(c, (unsigned char *)ret->p + ret->n + got, &tail) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!ok) {
        explicit_bzero(ret->p + ret->n, n);
        return err_set(e, E_DENIED, "a sealed value does not open with this key");
    }
    ret->n += n;
    ret->p[ret->n] = 0;
    return 0;
}
