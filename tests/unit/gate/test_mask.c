/* Secrets in what comes back: whole, in pieces, overlapping. */
#include "gate/mask.h"
#include "test.h"

static const char *const secrets[] = {"abcdef", "abcd", "cdefgh", "zzzz"};

static void masked(const char *text, const char *want)
{
    size_t n = strlen(text);
    struct mask m = {0};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        mask_add(&m, secrets[i], strlen(secrets[i]));
    char whole[64];
    (void)snprintf(whole, sizeof whole, "%s", text);
    mask_all(&m, whole, n);
    CHECK_STR(whole, want);
    /* in two pieces, cut anywhere; then byte by byte */
    for (size_t cut = 0; cut <= n; cut++) {
        struct buf out = {0};
        mask_push(&m, text, cut, false, &out);
        mask_push(&m, text + cut, n - cut, true, &out);
        CHECK_INT(out.n, n);
        CHECK(!n || !memcmp(out.p, want, n));
        buf_free(&out);
    }
    struct buf out = {0};
    for (size_t i = 0; i < n; i++)
        mask_push(&m, text + i, 1, false, &out);
    mask_push(&m, NULL, 0, true, &out);
    CHECK(out.n == n && (!n || !memcmp(out.p, want, n)));
    buf_free(&out);
    mask_clear(&m);
}

TEST(mask, hides_secrets_that_contain_or_overlap_each_other)
{
    masked("", "");
    masked("x abcdef x", "x ****** x");
    masked("abcd", "****");
    masked("abcdx", "****x");
    masked("abcdefgh", "********"); /* the one that begins in another */
    masked("zzzzz", "*****");       /* the one that begins in itself */
    masked("ababcdef", "ab******");
    masked("abcde", "****e");
    masked("abc", "abc"); /* the beginning of one is not one */
    masked("zzz", "zzz");
}

TEST(mask, has_room_for_every_secret_of_a_policy)
{
    struct mask m = {0};
    char text[16];
    for (int i = 0; i < MASK_MAX; i++) {
        (void)snprintf(text, sizeof text, "secret-%02d", i);
        mask_add(&m, text, strlen(text));
    }
    mask_all(&m, text, strlen(text));
    CHECK_STR(text, "*********");
    mask_add(&m, "abc", 3); /* too short to be looked for */
    CHECK_INT(m.n, MASK_MAX);
    mask_clear(&m);
}

TEST_MAIN
