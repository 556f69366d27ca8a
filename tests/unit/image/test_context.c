/* Fingerprints of what a COPY brings in: what changes them, what does not, and
 * archives that are taken as one. */
#include "image/context.h"
#include "crypto/digest.h"
#include "unit/image/tarmake.h"
#include <unistd.h>

static void key_of(struct buf *b, const char *src, unsigned char out[CONTEXT_KEY])
{
    char *word = xstrdup(src);
    int fd = tar_file(b);
    struct context *c = context_scan(fd, NULL);
    context_key(c, &word, 1, out);
    context_free(c);
    close(fd);
    free(word);
}

static bool same(struct buf *a, struct buf *b, const char *src)
{
    unsigned char x[CONTEXT_KEY], y[CONTEXT_KEY];
    key_of(a, src, x), key_of(b, src, y);
    return !memcmp(x, y, sizeof x);
}

/* a, dir/x, dir/sub/y; the member `odd` (if any) comes first. */
static void archive(struct buf *b, const char *a, const char *x, const char *y, const struct member *odd)
{
    b->n = 0;
    if (odd)
        tar_add(b, *odd);
    tar_add(b, (struct member){.name = "./a", .data = a});
    tar_add(b, (struct member){.name = "dir/", .type = '5'});
    tar_add(b, (struct member){.name = "dir/x", .data = x});
    tar_add(b, (struct member){.name = "dir/sub/y", .data = y});
    tar_end(b);
}

TEST(context, only_what_is_named_counts)
{
    auto_buf one = {0}, two = {0};
    archive(&one, "A", "X", "Y", NULL), archive(&two, "A", "X", "changed", NULL);
    for (const char *const *s = (const char *const[]){"a", "/a", "./a", "dir/x", "*/x", "[ab]", NULL}; *s; s++)
        CHECK(same(&one, &two, *s));
    for (const char *const *s = (const char *const[]){".", "dir", "dir/", "dir/sub", "dir/*", "*", "d?r/*/y", "../dir", NULL}; *s; s++)
        CHECK(!same(&one, &two, *s));
}

TEST(context, modes_and_links_count_times_owners_and_order_do_not)
{
    auto_buf one = {0}, two = {0};
    tar_add(&one, (struct member){.name = "a", .data = "1"}), tar_add(&one, (struct member){.name = "b", .data = "2"}), tar_end(&one);
    tar_add(&two, (struct member){.name = "b", .data = "2", .uid = 7}), tar_add(&two, (struct member){.name = "a", .data = "1"}), tar_end(&two);
    CHECK(same(&one, &two, "."));
    two.n = 0;
    tar_add(&two, (struct member){.name = "a", .data = "1", .mode = 0755}), tar_add(&two, (struct member){.name = "b", .data = "2"}), tar_end(&two);
    CHECK(!same(&one, &two, "a") && same(&one, &two, "b"));
    one.n = two.n = 0;
    tar_add(&one, (struct member){.name = "l", .type = '2', .link = "x"}), tar_end(&one);
    tar_add(&two, (struct member){.name = "l", .type = '2', .link = "y"}), tar_end(&two);
    CHECK(!same(&one, &two, "l"));
}

TEST(context, long_names_are_read)
{
    auto_buf one = {0}, two = {0};
    char name[200];
    memset(name, 'n', sizeof name - 1), name[sizeof name - 1] = 0;
    for (int i = 0; i < 2; i++) {
        struct buf *b = i ? &two : &one;
        tar_add(b, (struct member){.name = "././@LongLink", .type = 'L', .data = name, .ndata = sizeof name});
        tar_add(b, (struct member){.name = "nnn", .data = i ? "2" : "1"});
        tar_add(b, (struct member){.name = "other", .data = "o"});
        tar_end(b);
    }
    CHECK(!same(&one, &two, name) && same(&one, &two, "other") && same(&one, &two, "nnn"));
}

/* What cannot be told member by member: any change counts for every source. */
TEST(context, odd_archives_are_one_thing)
{
    static const struct member odd[] = {
        {.name = "hard", .type = '1', .link = "a"}, {.name = "pax", .type = 'x', .data = "18 path=other/name\n"}, {.name = "dev", .type = '3'},
        {.name = "../up", .data = "x"}, {.name = "a", .data = "twice"}, {.name = "d", .type = '5', .size = 512},
    };
    auto_buf one = {0}, two = {0};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        archive(&one, "A", "X", "Y", &odd[i]), archive(&two, "A", "X", "changed", &odd[i]);
        CHECK(same(&one, &one, "a") && !same(&one, &two, "a"));
    }
    static const struct member link = {.name = "way", .type = '2', .link = "dir"};
    archive(&one, "A", "X", "Y", &link), archive(&two, "A", "changed", "Y", &link);
    CHECK(!same(&one, &two, "way/x") && same(&one, &two, "way") && same(&one, &two, "a")); /* through a link: the files are elsewhere */
    archive(&one, "A", "X", "Y", NULL), archive(&two, "A", "X", "changed", NULL);
    one.n -= 1600, two.n -= 1600; /* cut off */
    CHECK(!same(&one, &two, "a"));
    archive(&one, "A", "X", "Y", NULL), archive(&two, "A", "X", "changed", NULL);
    one.p[0] ^= 1, two.p[0] ^= 1; /* a sum that does not fit */
    CHECK(same(&one, &one, "dir/x") && !same(&one, &two, "dir/x"));
}

TEST(context, all_bytes_go_to_the_callers_hash)
{
    auto_buf b = {0};
    archive(&b, "A", "X", "Y", NULL);
    buf_puts(&b, "behind the end");
    unsigned char want[CONTEXT_KEY], got[CONTEXT_KEY];
    struct sha256 *h = sha256_new();
    int fd = tar_file(&b);
    context_free(context_scan(fd, h));
    sha256_end(h, got);
    sha256(b.p, b.n, want);
    CHECK(!memcmp(want, got, sizeof got));
    close(fd);
}

TEST_MAIN
