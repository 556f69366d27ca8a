/* Certificates of servers: making one, and looking at one. */
#include "crypto/x509_int.h"
#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

bool x509_is_address(const char *name)
{
    unsigned char raw[16];
    return inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
}
static bool label_ok(const char *p, size_t n)
{
    if (!n || n > 63 || *p == '-' || p[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", p[i]))
            return false;
    return true;
}
bool x509_name_ok(const char *name)
{
    if (x509_is_address(name))
        return true;
    if (strlen(name) > 253)
        return false;
    if (!strncmp(name, "*.", 2))
        name += 2;
    for (;; name++) {
        size_t n = strcspn(name, ".");
        if (!label_ok(name, n))
            return false;
        name += n;
        if (!*name)
            return true;
    }
}

/* -- making one -- */

static void alt_names(const char *const *names, int n, struct buf *out)
{
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s%s:%s", i ? "," : "", x509_is_address(names[i]) ? "IP" : "DNS",
                   names[i]);
}
static bool sign(X509 *x, X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *key, const char *const *names,
                 int n, int days)
{
    auto_buf san = {0};
    alt_names(names, n, &san);
    return X509_set_version(x, X509_VERSION_3) && x509_serial(x) &&
           X509_gmtime_adj(X509_getm_notBefore(x), -86400) &&
           X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL) &&
           X509_NAME_add_entry_by_txt(
               X509_get_subject_name(x), "CN", MBSTRING_ASC,
               (const unsigned char *)(strlen(names[0]) <= 64 ? names[0] : "hutch"), -1, -1, 0) &&
           X509_set_issuer_name(x, X509_get_subject_name(ca)) && X509_set_pubkey(x, key) &&
           x509_ext(x, ca, NID_subject_alt_name, san.p) &&
           x509_ext(x, ca, NID_basic_constraints, "critical,CA:FALSE") &&
           x509_ext(x, ca, NID_key_usage, "critical,digitalSignature") &&
           x509_ext(x, ca, NID_ext_key_usage, "serverAuth") &&
           x509_ext(x, ca, NID_subject_key_identifier, "hash") &&
           x509_ext(x, ca, NID_authority_key_identifier, "keyid") &&
           X509_sign(x, ca_key, EVP_sha256());
}
int x509_server_make(struct str ca_cert, struct str ca_key, const char *const *names, int n,
                     int days, struct buf *ret_cert, struct buf *ret_key, struct err *e)
{
    for (int i = 0; i < n; i++)
        if (!x509_name_ok(names[i]))
            return err_set(e, E_INVALID, "'%.100s' is not a host name or address", names[i]);
    if (x509_ca_check(ca_cert, ca_key, e))
        return -1;
    BIO *cb = BIO_new_mem_buf(ca_cert.p, (int)ca_cert.n),
        *kb = BIO_new_mem_buf(ca_key.p, (int)ca_key.n);
    X509 *ca = cb ? PEM_read_bio_X509(cb, NULL, NULL, NULL) : NULL, *x = X509_new();
    EVP_PKEY *ck = kb ? PEM_read_bio_PrivateKey(kb, NULL, NULL, NULL) : NULL,
             *key = EVP_EC_gen("P-256");
    int rc = ca && ck && key && x && n > 0 && sign(x, ca, ck, key, names, n, days)
                 ? x509_pem(x, key, ret_cert, ret_key, e)
                 : err_set(e, E_INTERNAL, "the certificate could not be signed");
    if (!rc)
        buf_put(ret_cert, ca_cert.p, ca_cert.n);
    ERR_clear_error();
    X509_free(x), X509_free(ca);
    EVP_PKEY_free(key), EVP_PKEY_free(ck);
    BIO_free(cb), BIO_free(kb);
    return rc;
}

/* -- looking at one -- */

static void name_text(X509_NAME *name, char *out, size_t cap)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *p;
    *out = 0;
    if (b && X509_NAME_print_ex(b, name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB) >= 0) {
        long n = BIO_get_mem_data(b, &p);
        (void)snprintf(out, cap, "%.*s", (int)n, p);
    }
    BIO_free(b);
}
static void add_name(struct x509_facts *f, const char *name)
{
    static const char more[] = ", …";
    size_t n = strlen(f->names);
    if (n + strlen(name) + sizeof more + 2 < sizeof f->names)
        (void)snprintf(f->names + n, sizeof f->names - n, "%s%s", n ? ", " : "", name);
    else if (n < sizeof more || strcmp(f->names + n - (sizeof more - 1), more) != 0)
        (void)snprintf(f->names + n, sizeof f->names - n, "%s", more);
}
static void alt_text(X509 *x, struct x509_facts *f)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(all, i);
        char text[256] = "";
        if (g->type == GEN_DNS) {
            const unsigned char *p = ASN1_STRING_get0_data(g->d.dNSName);
            int n = ASN1_STRING_length(g->d.dNSName);
            for (int k = 0; k < n && k < (int)sizeof text - 1; k++)
                text[k] = p[k] > ' ' && p[k] < 127 ? (char)p[k] : '?'; /* a peer wrote it */
        } else if (g->type == GEN_IPADD) {
            int n = ASN1_STRING_length(g->d.iPAddress);
            if (n == 4 || n == 16)
                (void)inet_ntop(n == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(g->d.iPAddress),
                                text, sizeof text);
        }
        if (*text)
            add_name(f, text);
    }
    GENERAL_NAMES_free(all);
}
static int64_t seconds(const ASN1_TIME *t, char *date, size_t cap)
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(t, &tm))
        return 0;
    (void)strftime(date, cap, "%Y-%m-%d", &tm);
    return timegm(&tm);
}
void x509_facts_of(X509 *x, struct x509_facts *f)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    *f = (struct x509_facts){0};
    name_text(X509_get_subject_name(x), f->subject, sizeof f->subject);
    name_text(X509_get_issuer_name(x), f->issuer, sizeof f->issuer);
    alt_text(x, f);
    f->from_s = seconds(X509_get0_notBefore(x), f->from, sizeof f->from);
    f->until_s = seconds(X509_get0_notAfter(x), f->to, sizeof f->to);
    if (X509_digest(x, EVP_sha256(), sum, &n))
        for (unsigned i = 0; i < n && i < 32; i++)
            (void)snprintf(f->sha256 + (size_t)2 * i, 3, "%02x", sum[i]);
}
int x509_look(struct str pem, struct x509_facts *ret, struct err *e)
{
    BIO *b = BIO_new_mem_buf(pem.p, (int)pem.n);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    BIO_free(b);
    ERR_clear_error();
    if (!x)
        return err_set(e, E_INVALID, "there is no PEM certificate");
    x509_facts_of(x, ret);
    X509_free(x);
    return 0;
}
