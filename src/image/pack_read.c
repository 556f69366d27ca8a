/* The stream of a pack: head, manifest, records. Hostile from the first byte. */
#include "base/cleanup.h"
#include "base/enc.h"
#include "image/pack.h"
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "HUTCHPK\1";
static const char domain[] = "hutch snapshot pack 1\n"; /* what is signed can be nothing else than a pack */

struct pack_reader {
    const struct pack_reader_ops *ops;
    void *arg;
    uint64_t max;
    enum { HEAD, MANIFEST, PARTS, OVER, BROKEN } state;
    struct buf in;         /* of what is not whole yet */
    size_t want;           /* bytes that make it whole */
    unsigned char key[SIGN_PUBLIC], sig[SIGN_BYTES];
    struct pack pack;
    unsigned part;
    uint64_t seen, next;   /* of the part: records; the least number that may follow */
    struct sha256 *sum;
};

void pack_sign(const unsigned char secret[SIGN_SECRET], struct str manifest, struct buf *ret)
{
    unsigned char le[4], key[SIGN_PUBLIC], sig[SIGN_BYTES];
    auto_buf text = {0};
    buf_puts(&text, domain);
    buf_put(&text, manifest.p, manifest.n);
    sign_public(secret, key);
    sign_make(secret, text.p, text.n, sig);
    put_le32(le, (uint32_t)manifest.n);
    buf_put(ret, magic, sizeof magic);
    buf_put(ret, le, sizeof le);
    buf_put(ret, key, sizeof key);
    buf_put(ret, sig, sizeof sig);
    buf_put(ret, manifest.p, manifest.n);
}

struct pack_reader *pack_reader_new(uint64_t max_bytes, const struct pack_reader_ops *ops, void *arg)
{
    struct pack_reader *r = xcalloc(1, sizeof *r);
    *r = (struct pack_reader){.ops = ops, .arg = arg, .max = max_bytes, .want = PACK_HEAD};
    return r;
}

void pack_reader_free(struct pack_reader *r)
{
    if (!r)
        return;
    sha256_free(r->sum);
    buf_free(&r->in);
    pack_fini(&r->pack);
    free(r);
}

static int take_head(struct pack_reader *r, struct err *e)
{
    const unsigned char *p = (const unsigned char *)r->in.p;
    if (memcmp(p, magic, sizeof magic))
        return err_set(e, E_INVALID, "not a snapshot pack");
    uint32_t n = get_le32(p + 8);
    if (!n || n > PACK_MANIFEST_MAX)
        return err_set(e, E_TOO_LARGE, "the pack's manifest has %u bytes; at most %u are read", n, PACK_MANIFEST_MAX);
    memcpy(r->key, p + 12, sizeof r->key);
    memcpy(r->sig, p + 12 + sizeof r->key, sizeof r->sig);
    r->state = MANIFEST, r->want = n;
    return r->ops->signer(r->arg, r->key, e);
}

/* Parts without a block have no bytes: they end where they begin. */
static int settle(struct pack_reader *r, struct err *e)
{
    while (r->part < r->pack.nparts) {
        struct pack_part *p = &r->pack.part[r->part];
        char hex[SHA256_HEX];
        if (!r->sum)
            r->sum = sha256_new();
        if (r->seen < p->blocks)
            return 0;
        sha256_end_hex(r->sum, hex);
        r->sum = NULL;
        if (strcmp(hex, p->sha256))
            return err_set(e, E_INVALID, "the pack is damaged or was changed: the checksum of its %s does not match the signed one", pack_role_name(p->role));
        if (r->ops->part(r->arg, r->part, e))
            return -1;
        r->part++;
        r->seen = r->next = 0;
    }
    r->state = OVER;
    return 0;
}

static int take_manifest(struct pack_reader *r, struct err *e)
{
    auto_buf text = {0};
    buf_puts(&text, domain);
    buf_put(&text, r->in.p, r->in.n);
    if (!sign_check(r->key, text.p, text.n, r->sig))
        return err_set(e, E_DENIED, "the pack's signature is invalid: it was changed after it was signed");
    if (pack_parse(r->in.p, r->in.n, &r->pack, e))
        return -1;
    uint64_t all = PACK_HEAD + r->want;
    for (unsigned i = 0; i < r->pack.nparts; i++) {
        if (all > r->max || r->pack.part[i].blocks > (r->max - all) / PACK_RECORD)
            return err_set(e, E_TOO_LARGE, "the pack is larger than the limit (HUTCH_PACK_MAX) of %llu MiB", (unsigned long long)(r->max >> 20));
        all += r->pack.part[i].blocks * PACK_RECORD;
    }
    r->state = PARTS, r->want = PACK_RECORD;
    return r->ops->manifest(r->arg, &r->pack, e) ? -1 : settle(r, e);
}

static bool zeros(const unsigned char *p, size_t n)
{
    while (n && !*p)
        p++, n--;
    return !n;
}

static int take_record(struct pack_reader *r, struct err *e)
{
    const struct pack_part *p = &r->pack.part[r->part];
    const unsigned char *rec = (const unsigned char *)r->in.p, *block = rec + 8;
    uint64_t number = get_le64(rec), count = (p->bytes + PACK_BLOCK - 1) / PACK_BLOCK;
    if (number < r->next || number >= count)
        return err_set(e, E_INVALID, "the pack is damaged: blocks of its %s are out of order or beyond its end", pack_role_name(p->role));
    size_t n = p->bytes - number * PACK_BLOCK < PACK_BLOCK ? (size_t)(p->bytes - number * PACK_BLOCK) : PACK_BLOCK;
    if (zeros(block, n) || !zeros(block + n, PACK_BLOCK - n))
        return err_set(e, E_INVALID, "the pack is damaged: a block of its %s is unexpected or runs past its end", pack_role_name(p->role));
    sha256_add(r->sum, rec, PACK_RECORD);
    r->next = number + 1;
    r->seen++;
    return r->ops->block(r->arg, r->part, number, block, n, e) ? -1 : settle(r, e);
}

static int take(struct pack_reader *r, struct err *e)
{
    switch (r->state) {
    case HEAD: return take_head(r, e);
    case MANIFEST: return take_manifest(r, e);
    case PARTS: return take_record(r, e);
    default: return err_set(e, E_INVALID, "there is data after the end of the pack");
    }
}

int pack_reader_push(struct pack_reader *r, const void *p, size_t n, struct err *e)
{
    const char *at = p;
    if (r->state == BROKEN)
        return err_set(e, E_INVALID, "the pack was already refused");
    while (n) {
        size_t k = r->state == OVER ? 0 : r->want - r->in.n;
        k = k < n ? k : n;
        buf_put(&r->in, at, k);
        at += k, n -= k;
        if (r->state != OVER && r->in.n < r->want)
            return 0;
        if (take(r, e)) {
            r->state = BROKEN;
            return -1;
        }
        r->in.n = 0;
    }
    return 0;
}

int pack_reader_end(struct pack_reader *r, struct err *e)
{
    if (r->state == OVER)
        return 0;
    return err_set(e, E_INVALID, "the pack is cut off%s%s", r->state == PARTS ? " in its " : "", r->state == PARTS ? pack_role_name(r->pack.part[r->part].role) : "");
}
