/* Packs: what is written can be read, and nothing else can. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "image/pack.h"
#include "test.h"
#include <sys/mman.h>

static const unsigned char secret[SIGN_SECRET] = {7};

static struct pack sample(bool vm)
{
    struct pack p = {.vm = vm, .memory = vm, .cpu_millis = 1000, .memory_mib = 128, .disk_mib = 256, .generation = 3};
    (void)snprintf(p.tier, sizeof p.tier, "%s", vm ? "vm" : "gvisor");
    (void)snprintf(p.name, sizeof p.name, "moment");
    clock_rfc3339(1700000000 * NS_PER_S, p.created);
    p.env = xstrdup("{\"A\":\"b\"}");
    p.template = (struct manifest){.source = MANIFEST_RECIPE, .size_bytes = 1 << 20, .disk_min_mib = 64};
    id_make('t', p.template.id);
    (void)snprintf(p.template.name, sizeof p.template.name, "base");
    clock_rfc3339(1700000000 * NS_PER_S, p.template.created);
    if (vm) {
        p.variant = xstrdup("{\"key\":\"x\"}");
        p.machine[0] = xstrdup("{\"n\":0}"), p.machine[1] = xstrdup("{\"n\":1}");
        p.nmachines = 2;
    }
    pack_roles(&p);
    for (unsigned i = 0; i < p.nparts; i++) {
        p.part[i].bytes = PACK_BLOCK;
        memset(p.part[i].sha256, 'a', 64);
    }
    return p;
}

/* ---- the manifest ---- */
TEST(pack, manifest_round_trip)
{
    for (int vm = 0; vm < 2; vm++) {
        struct pack p = sample(vm), back;
        struct err e;
        auto_buf text = {0}, again = {0};
        CHECK_INT(p.nparts, vm ? 8 : 1);
        pack_format(&p, &text);
        CHECK_INT(pack_parse(text.p, text.n, &back, &e), 0);
        CHECK_STR(back.name, "moment");
        CHECK_STR(back.tier, vm ? "vm" : "gvisor");
        CHECK_STR(back.template.id, p.template.id);
        CHECK_INT(back.nmachines, p.nmachines);
        pack_format(&back, &again);
        CHECK_STR(again.p, text.p);
        pack_fini(&p), pack_fini(&back);
    }
}

static void refused(const char *text, const char *from, const char *to, enum err_code code)
{
    const char *at = strstr(text, from);
    struct pack p;
    struct err e = {0};
    auto_buf b = {0};
    CHECK(at);
    buf_put(&b, text, (size_t)(at - text));
    buf_puts(&b, to);
    buf_puts(&b, at + strlen(from));
    CHECK_INT(pack_parse(b.p, b.n, &p, &e), -1);
    if (e.code != code)
        printf("# %s -> %s: %s\n", from, to, e.msg);
    CHECK_INT(e.code, code);
}

TEST(pack, manifest_is_read_strictly)
{
    struct pack p = sample(true);
    auto_buf text = {0};
    pack_format(&p, &text);
    refused(text.p, "\"format\":1", "\"format\":2", E_UNSUPPORTED);
    refused(text.p, "\"format\":1", "\"format\":1,\"format\":1", E_INVALID);
    refused(text.p, "\"format\":1", "\"format\":1,\"path\":\"/etc\"", E_INVALID);
    refused(text.p, "\"tier\":\"vm\"", "\"tier\":\"isolate\"", E_INVALID);
    refused(text.p, "\"name\":\"moment\"", "\"name\":\"../moment\"", E_INVALID);
    refused(text.p, "\"memory_mib\":128", "\"memory_mib\":0", E_INVALID);
    refused(text.p, "\"memory_mib\":128", "\"memory_mib\":99999999", E_INVALID);
    refused(text.p, "\"role\":\"ram\"", "\"role\":\"image\"", E_INVALID); /* twice */
    refused(text.p, "\"role\":\"pages\"", "\"role\":\"../../x\"", E_INVALID);
    refused(text.p, "\"bytes\":4096", "\"bytes\":268435457", E_TOO_LARGE); /* an image larger than the disk */
    refused(text.p, "\"blocks\":0", "\"blocks\":2", E_INVALID);
    refused(text.p, "aaaa", "AAAA", E_INVALID);
    refused(text.p, "\"A\":\"b\"", "\"A=\":\"b\"", E_INVALID);
    refused(text.p, "\"A\":\"b\"", "\"A\":1", E_INVALID);
    refused(text.p, "{\"n\":0},", "", E_INVALID); /* one disk too many */
    refused(text.p, "{\"n\":0}", "7", E_INVALID);
    refused(text.p, p.template.id, "../../../../../../..", E_INVALID);
    for (size_t i = 0; i < text.n; i++) {
        struct pack back;
        CHECK_INT(pack_parse(text.p, i, &back, NULL), -1);
        char old = text.p[i];
        text.p[i] = (char)(old ^ 0x15);
        if (!pack_parse(text.p, text.n, &back, NULL)) /* whatever it says now, it is within the limits */
            pack_fini(&back);
        text.p[i] = old;
    }
    pack_fini(&p);
}

/* ---- files ---- */
static int file(uint64_t size)
{
    int fd = memfd_create("part", MFD_CLOEXEC);
    CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
    return fd;
}

TEST(pack, holes_and_zeros_are_the_same)
{
    auto_fd a = file(10ull << 30), b = file(10ull << 30);
    auto_free char *zeros = xcalloc(1, 1 << 20);
    struct pack_part pa = {0}, pb = {0};
    struct err e;
    CHECK(pwrite(a, "x", 1, 5ll << 30) == 1 && pwrite(b, zeros, 1 << 20, 5ll << 30) == 1 << 20 && pwrite(b, "x", 1, 5ll << 30) == 1);
    CHECK(!pack_measure(a, &pa, &e) && !pack_measure(b, &pb, &e));
    CHECK_INT(pa.bytes, 10ll << 30);
    CHECK_INT(pa.blocks, 1);
    CHECK_INT(pb.blocks, 1);
    CHECK_STR(pa.sha256, pb.sha256);
    CHECK(pwrite(b, "x", 1, (5ll << 30) + 1) == 1 && !pack_measure(b, &pb, &e));
    CHECK(strcmp(pa.sha256, pb.sha256));
}

/* ---- the stream ---- */
struct seen { int signer, manifest, parts; struct buf data; bool distrust; };

static int on_signer(void *arg, const unsigned char key[SIGN_PUBLIC], struct err *e)
{
    struct seen *s = arg;
    unsigned char mine[SIGN_PUBLIC];
    sign_public(secret, mine);
    s->signer++;
    return s->distrust || memcmp(mine, key, sizeof mine) ? err_set(e, E_DENIED, "who?") : 0;
}
static int on_manifest(void *arg, const struct pack *p, struct err *e)
{
    (void)p, (void)e;
    ((struct seen *)arg)->manifest++;
    return 0;
}
static int on_block(void *arg, unsigned part, uint64_t number, const unsigned char *p, size_t n, struct err *e)
{
    struct seen *s = arg;
    (void)part, (void)e;
    buf_printf(&s->data, "[%u %llu %zu %.8s]", part, (unsigned long long)number, n, (const char *)p);
    return 0;
}
static int on_part(void *arg, unsigned part, struct err *e)
{
    struct seen *s = arg;
    (void)part, (void)e;
    s->parts++;
    return 0;
}
static const struct pack_reader_ops ops = {on_signer, on_manifest, on_block, on_part};

static void put_block(void *arg, uint64_t number, const unsigned char *block) { pack_put_record(arg, number, block); }

/* A container's pack with a file of 3 blocks and a bit, of which one is empty. */
static void make(struct buf *out)
{
    struct pack p = sample(false);
    struct err e;
    auto_buf text = {0};
    auto_fd fd = file(3 * PACK_BLOCK + 10);
    uint64_t at = 0;
    CHECK(pwrite(fd, "first", 5, 0) == 5 && pwrite(fd, "third", 5, 2 * PACK_BLOCK) == 5 && pwrite(fd, "tail", 4, 3 * PACK_BLOCK) == 4);
    CHECK(!pack_measure(fd, &p.part[0], &e));
    CHECK_INT(p.part[0].blocks, 3);
    pack_format(&p, &text);
    pack_sign(secret, (struct str){text.p, text.n}, out);
    CHECK_INT(pack_scan(fd, p.part[0].bytes, &at, 1 << 20, put_block, out, &e), 1);
    CHECK_INT(pack_bytes(&p), 3 * PACK_RECORD);
    pack_fini(&p);
}

static int read_all(const struct buf *b, size_t step, struct seen *s, struct err *e)
{
    struct pack_reader *r = pack_reader_new(1 << 20, &ops, s);
    int rc = 0;
    for (size_t i = 0; i < b->n && !rc; i += step)
        rc = pack_reader_push(r, b->p + i, b->n - i < step ? b->n - i : step, e);
    if (!rc)
        rc = pack_reader_end(r, e);
    pack_reader_free(r);
    return rc;
}

TEST(pack, stream_in_pieces_of_any_size)
{
    size_t step[] = {1, 7, 4096, 1 << 20};
    auto_buf b = {0};
    make(&b);
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        struct seen s = {0};
        struct err e = {0};
        CHECK_INT(read_all(&b, step[i], &s, &e), 0);
        CHECK_STR(s.data.p, "[0 0 4096 first][0 2 4096 third][0 3 10 tail]");
        CHECK_INT(s.signer * 100 + s.manifest * 10 + s.parts, 111);
        buf_free(&s.data);
    }
}

static void broken(const struct buf *b, enum err_code code, const char *word)
{
    struct seen s = {0};
    struct err e = {0};
    CHECK_INT(read_all(b, 4096, &s, &e), -1);
    if (e.code != code || !strstr(e.msg, word))
        printf("# %s\n", e.msg);
    CHECK_INT(e.code, code);
    CHECK(strstr(e.msg, word));
    CHECK_INT(s.parts, 0);
    buf_free(&s.data);
}

TEST(pack, stream_refuses_what_was_changed)
{
    auto_buf b = {0};
    make(&b);
    size_t manifest = get_le32((unsigned char *)b.p + 8), data = PACK_HEAD + manifest;
    struct seen s = {.distrust = true};
    struct err e = {0};
    CHECK_INT(read_all(&b, 1 << 20, &s, &e), -1);
    CHECK_STR(e.msg, "who?");
    CHECK_INT(s.manifest, 0);
    b.p[3] ^= 1, broken(&b, E_INVALID, "not a snapshot pack"), b.p[3] ^= 1;
    b.p[11] = 127, broken(&b, E_TOO_LARGE, "manifest"), b.p[11] = 0;
    b.p[20] ^= 1, broken(&b, E_DENIED, "who?"), b.p[20] ^= 1;
    b.p[60] ^= 1, broken(&b, E_DENIED, "signature"), b.p[60] ^= 1;
    b.p[PACK_HEAD + 30] ^= 1, broken(&b, E_DENIED, "signature"), b.p[PACK_HEAD + 30] ^= 1;
    b.p[data + 20] ^= 1, broken(&b, E_INVALID, "sum of its tree"), b.p[data + 20] ^= 1;
    b.p[data] = 9, broken(&b, E_INVALID, "beyond its end"), b.p[data] = 0;
    b.p[data + PACK_RECORD] = 0, broken(&b, E_INVALID, "out of order"), b.p[data + PACK_RECORD] = 2;
    memset(b.p + data + 8, 0, 5), broken(&b, E_INVALID, "is unexpected"), memcpy(b.p + data + 8, "first", 5);
    b.p[b.n - 1] = 1, broken(&b, E_INVALID, "runs past its end"), b.p[b.n - 1] = 0;
    for (size_t n = 0; n < b.n; n += n < data ? 1 : 97) {
        struct buf cut = {b.p, n, n};
        broken(&cut, E_INVALID, "cut off");
    }
    buf_putc(&b, 0);
    s = (struct seen){0};
    CHECK_INT(read_all(&b, 1 << 20, &s, &e), -1);
    CHECK(strstr(e.msg, "after the end"));
    buf_free(&s.data);
}

TEST(pack, stream_has_a_limit)
{
    auto_buf b = {0};
    struct seen s = {0};
    struct err e = {0};
    make(&b);
    struct pack_reader *r = pack_reader_new(8192, &ops, &s);
    CHECK_INT(pack_reader_push(r, b.p, b.n, &e), -1);
    CHECK_INT(e.code, E_TOO_LARGE);
    CHECK(strstr(e.msg, "HUTCH_PACK_MAX"));
    CHECK_INT(s.manifest, 0);
    CHECK_INT(pack_reader_push(r, b.p, b.n, &e), -1);
    pack_reader_free(r);
}

TEST_MAIN
