#include "crypto/x509.h"
#include "crypto/x509_int.h"
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <string.h>

static int fail(struct err *e, const char *what) { return err_set(e, E_INTERNAL, "certificate authority: %s failed", what); }

bool x509_ext(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    bool ok = ext && X509_add_ext(x, ext, -1);
    X509_EXTENSION_free(ext);
    return ok;
}

bool x509_serial(X509 *x)
{
    unsigned char raw[16];
    if (RAND_bytes(raw, sizeof raw) != 1)
        return false;
    raw[0] &= 0x7f, raw[0] |= 0x40; /* positive, and never short */
    BIGNUM *n = BN_bin2bn(raw, sizeof raw, NULL);
    bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return ok;
}

static bool fill(X509 *x, EVP_PKEY *key, const char *cn, int days)
{
    X509_NAME *name = X509_get_subject_name(x);
    return X509_set_version(x, X509_VERSION_3) && x509_serial(x) && X509_gmtime_adj(X509_getm_notBefore(x), -86400) &&
           X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL) &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1, 0) &&
           X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8, (const unsigned char *)"hutch", -1, -1, 0) && X509_set_issuer_name(x, name) &&
           X509_set_pubkey(x, key) && x509_ext(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           x509_ext(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") && x509_ext(x, x, NID_subject_key_identifier, "hash") &&
           X509_sign(x, key, EVP_sha256());
}

static bool take_bio(BIO *b, struct buf *out)
{
    char *p;
    long n = BIO_get_mem_data(b, &p);
    if (n <= 0)
        return false;
    buf_put(out, p, (size_t)n);
    return true;
}

int x509_pem(X509 *x, EVP_PKEY *key, struct buf *ret_cert, struct buf *ret_key, struct err *e)
{
    BIO *cb = BIO_new(BIO_s_mem()), *kb = BIO_new(BIO_s_secmem());
    bool ok = cb && kb && PEM_write_bio_X509(cb, x) &&
              PEM_write_bio_PrivateKey(kb, key, NULL, NULL, 0, NULL, NULL) &&
              take_bio(cb, ret_cert) && take_bio(kb, ret_key);
    BIO_free(cb), BIO_free(kb);
    return ok ? 0 : fail(e, "encoding");
}

int x509_ca_make(const char *common_name, int days, struct buf *ret_cert, struct buf *ret_key, struct err *e)
{
    struct buf cert = {0}, key = {0};
    EVP_PKEY *pk = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    int rc = !pk || !x                         ? fail(e, "making a key")
             : !fill(x, pk, common_name, days) ? fail(e, "signing")
                                               : x509_pem(x, pk, &cert, &key, e);
    if (!rc) {
        *ret_cert = cert, *ret_key = key;
        cert = key = (struct buf){0};
    }
    buf_free(&cert), buf_free(&key);
    X509_free(x);
    EVP_PKEY_free(pk);
    return rc;
}

int x509_ca_check(struct str cert, struct str key, struct err *e)
{
    BIO *cb = BIO_new_mem_buf(cert.p, (int)cert.n), *kb = BIO_new_mem_buf(key.p, (int)key.n);
    X509 *x = cb ? PEM_read_bio_X509(cb, NULL, NULL, NULL) : NULL;
    EVP_PKEY *pk = kb ? PEM_read_bio_PrivateKey(kb, NULL, NULL, NULL) : NULL;
    int rc = 0;
    if (!x || !pk)
        rc = err_set(e, E_INVALID, "the certificate authority is not PEM");
    else if (!X509_check_private_key(x, pk))
        rc = err_set(e, E_INVALID, "certificate and key of the certificate authority do not belong together");
    else if (!X509_check_ca(x))
        rc = err_set(e, E_INVALID, "the certificate is not that of a certificate authority");
    X509_free(x);
    EVP_PKEY_free(pk);
    BIO_free(cb), BIO_free(kb);
    return rc;
}
