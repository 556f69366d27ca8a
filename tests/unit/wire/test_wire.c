#include "base/enc.h"
#include "base/err.h"
#include "test.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rec.h"

static enum frame_result next(struct frame_reader *r, struct buf *b, struct frame *f)
{
    size_t used;
    enum frame_result x = frame_next(r, (unsigned char *)b->p, b->n, &used, f);
    CHECK(used <= b->n);
    if (x != FRAME_GOT)
        buf_drop(b, used);
    return x;
}

TEST(frame, layout_is_as_documented)
{
    struct buf b = {0};
    frame_put(&b, 0x04030201, FR_DATA, CH_PTY, 0x0d0c0b0a, "xyz", 3);
    static const unsigned char want[] = {3, 0, 0, 0, 4, 3, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d, 'x', 'y', 'z', 1, 2, 3, 4};
    CHECK_INT(b.n, sizeof want);
    CHECK(!memcmp(b.p, want, sizeof want));
    buf_free(&b);
    frame_put_sync(&b, 0x11223344, false, false);
    static const unsigned char sync[] = {255, 255, 255, 255, 'H', 'U', 'T', 'S', 1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11};
    CHECK(b.n == sizeof sync && !memcmp(b.p, sync, sizeof sync));
    buf_free(&b);
}

TEST(frame, split_at_every_byte)
{
    struct buf all = {0};
    frame_put_sync(&all, 7, false, false);
    frame_put(&all, 7, FR_REQ, 0, 1, "abc", 3);
    frame_put(&all, 7, FR_EOF, CH_FILE, 2, NULL, 0);
    for (size_t cut = 0; cut <= all.n; cut++) {
        struct frame_reader r = {0};
        struct buf in = {0};
        struct frame f;
        int got = 0, syncs = 0;
        for (int half = 0; half < 2; half++) {
            buf_put(&in, all.p + (half ? cut : 0), half ? all.n - cut : cut);
            for (enum frame_result x; (x = next(&r, &in, &f)) != FRAME_MORE;) {
                CHECK(x != FRAME_BAD);
                if (x == FRAME_SYNC)
                    syncs++;
                else {
                    got++;
                    CHECK_INT(f.stream, got);
                    CHECK_INT(f.n, got == 1 ? 3 : 0);
                    buf_drop(&in, FRAME_HEAD + f.n + FRAME_TAIL);
                }
            }
        }
        CHECK_INT(got, 2);
        CHECK_INT(syncs, 1);
        buf_free(&in);
    }
    buf_free(&all);
}

TEST(frame, takeover_after_any_tear_finds_only_the_real_sync)
{
    struct buf whole = {0}, fake = {0};
    frame_put_sync(&fake, 666, false, false); /* a user's data imitates a takeover */
    frame_put(&fake, 666, FR_REQ, 0, 1, "x", 1);
    frame_put(&whole, 5, FR_DATA, CH_FILE, 9, fake.p, fake.n);
    for (size_t cut = 0; cut < whole.n; cut++) {
        struct frame_reader r = {.epoch = 5};
        struct buf in = {0};
        struct frame f;
        bool synced = false;
        buf_put(&in, whole.p, cut);
        frame_put_sync(&in, 1000, false, true);
        frame_put(&in, 1000, FR_REQ, 0, 3, "y", 1);
        for (enum frame_result x; (x = next(&r, &in, &f)) != FRAME_MORE;) {
            if (x == FRAME_SYNC) {
                CHECK_INT(r.epoch, 1000);
                synced = true;
            }
            if (x == FRAME_GOT) {
                /* before the sync only the torn frame itself, and only when just zero bytes were missing */
                CHECK(synced ? f.stream == 3 : f.stream == 9 && cut >= whole.n - 3);
                buf_drop(&in, FRAME_HEAD + f.n + FRAME_TAIL);
            }
        }
        CHECK(synced);
        CHECK_INT(in.n, 0);
        buf_free(&in);
    }
    buf_free(&whole), buf_free(&fake);
}

TEST(frame, bad_heads_start_the_hunt)
{
    static const unsigned char heads[][12] = {
        {1, 0, 4, 0, FR_REQ},              /* longer than FRAME_MAX */
        {0, 0, 0, 0, 0},                   /* no type */
        {0, 0, 0, 0, FR_TYPE_MAX},
        {0, 0, 0, 0, FR_DATA, CH_MAX},
        {0, 0, 0, 0, FR_DATA, 0, 1, 0},    /* reserved bytes */
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct frame_reader r = {.epoch = 5};
        struct frame f;
        size_t used;
        CHECK_INT(frame_next(&r, heads[i], sizeof heads[i], &used, &f), FRAME_BAD);
        CHECK_INT(r.epoch, 0);
    }
}

TEST(frame, a_host_takes_only_its_own_ack)
{
    struct buf b = {0};
    struct frame_reader r = {.want_ack = true, .want_epoch = 8};
    struct frame f;
    frame_put_sync(&b, 8, false, false); /* an echo of the sync is not an ack */
    frame_put_sync(&b, 7, true, false);
    frame_put_sync(&b, 0, true, false);
    buf_puts(&b, "noise\xff\xff\xff");
    frame_put_sync(&b, 8, true, false);
    CHECK_INT(next(&r, &b, &f), FRAME_SYNC);
    CHECK_INT(b.n, 0);
    CHECK_INT(r.peer_version, WIRE_VERSION);
    buf_free(&b);
}

TEST(frame, hunting_keeps_only_what_may_become_a_sync)
{
    struct frame_reader r = {0};
    struct frame f;
    unsigned char z[4096] = {0};
    size_t used;
    CHECK_INT(frame_next(&r, z, sizeof z, &used, &f), FRAME_MORE);
    CHECK_INT(used, sizeof z - SYNC_SIZE + 1);
    CHECK_INT(frame_next(&r, z, 3, &used, &f), FRAME_MORE);
    CHECK_INT(used, 0);
}

TEST(rec, numbers_text_lists_and_nesting)
{
    struct buf b = {0};
    rec_put_u64(&b, T_PID, 1ull << 40);
    rec_put_str(&b, T_ARG, "a");
    rec_put_str(&b, T_ARG, "");
    rec_put_str(&b, T_TAG, NULL);
    size_t m = rec_open(&b, T_ENTRY);
    rec_put_str(&b, T_NAME, "n");
    rec_close(&b, m);
    struct rec r = {(unsigned char *)b.p, b.n};
    struct field f;
    struct str s;
    CHECK(rec_ok(r));
    CHECK_INT(rec_u64_or(r, T_PID, 0), 1ll << 40);
    CHECK_INT(rec_u64_or(r, T_UID, 42), 42);
    CHECK(!rec_get(r, T_TAG, &s));
    CHECK(rec_get(r, T_ENTRY, &s) && rec_get((struct rec){(const unsigned char *)s.p, s.n}, T_NAME, &s) && str_eqz(s, "n"));
    int args = 0;
    for (struct rec at = r; rec_next(&at, &f);)
        args += f.tag == T_ARG;
    CHECK_INT(args, 2);
    CHECK_INT(rec_u64_or(r, T_ARG, 9), 9); /* text is not a number */
    buf_free(&b);
}

TEST(rec, malformed_is_noticed_and_never_read_past)
{
    struct buf b = {0};
    rec_put_str(&b, T_ARG, "hello");
    for (size_t n = 1; n < b.n; n++) {
        unsigned char *exact = malloc(n); /* the sanitizer watches its end */
        memcpy(exact, b.p, n);
        CHECK(!rec_ok((struct rec){exact, n}));
        free(exact);
    }
    put_le32((unsigned char *)b.p + 1, 0xffffffff);
    CHECK(!rec_ok((struct rec){(unsigned char *)b.p, b.n}));
    CHECK(rec_ok((struct rec){NULL, 0}));
    CHECK(rec_dup((struct rec){NULL, 0}, T_ARG) == NULL);
    buf_free(&b);
    rec_put(&b, T_ARG, "a\0b", 3);
    CHECK(rec_dup((struct rec){(unsigned char *)b.p, b.n}, T_ARG) == NULL);
    buf_free(&b);
}

TEST(msg, numbers_on_the_wire_do_not_move)
{
    CHECK_INT(OP_CONFIGURE, 1);
    CHECK_INT(OP_START, 3);
    CHECK_INT(OP_STAT, 10);
    CHECK_INT(OP_WATCH, 19);
    CHECK_INT(OP_SHUTDOWN, 27);
    CHECK_INT(T_PORT, 54);
    CHECK_INT(FR_CANCEL, 7);
    CHECK_INT(EV_LOST, 5);
    CHECK_INT(EXIT_TIMEOUT, 4);
    CHECK_INT(E_INTERNAL, 15);
}
TEST_MAIN
