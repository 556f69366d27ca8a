/* Differences onto a tree: what is listed is what is there, or it is refused. */
#include "image/difference.h"
#include "unit/image/tarmake.h"

#define MTIME "1000000000.5000000000"

static void list(struct buf *b, const char *entry)
{
    buf_puts(b, entry);
    buf_put(b, "", 1);
}

static int apply(struct place *p, const struct buf *tree, const struct buf *tar, struct err *e)
{
    struct untar u;
    auto_buf b = {0};
    buf_printf(&b, "tree %zu\n", tree->n);
    buf_put(&b, tree->p, tree->n);
    buf_put(&b, tar->p, tar->n);
    int fd = tar_file(&b);
    untar_init(&u, p->root);
    u.max_bytes = 1 << 20, u.max_files = 100, u.no_owner = geteuid() != 0;
    int rc = untar_onto(&u, fd, e);
    untar_fini(&u);
    close(fd);
    place_check(p);
    return rc;
}

/* d/f "old", d/g "keep", gone/x, l -> d/f */
static struct place before(void)
{
    struct place p = place_new();
    struct untar u;
    struct err e;
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "./", .type = '5'});
    tar_add(&b, (struct member){.name = "d/", .type = '5'});
    tar_add(&b, (struct member){.name = "d/f", .data = "old"});
    tar_add(&b, (struct member){.name = "d/g", .data = "keep"});
    tar_add(&b, (struct member){.name = "gone/x", .data = "1"});
    tar_add(&b, (struct member){.name = "l", .type = '2', .link = "d/f"});
    tar_end(&b);
    int fd = tar_file(&b);
    untar_init(&u, p.root);
    u.max_bytes = 1 << 20, u.max_files = 100, u.no_owner = geteuid() != 0;
    CHECK_INT(untar_fd(&u, fd, &e), 0);
    untar_fini(&u);
    close(fd);
    return p;
}

TEST(difference, takes_away_brings_and_leaves)
{
    struct place p = before();
    struct err e = {0};
    char text[256];
    auto_buf tree = {0}, tar = {0};
    list(&tree, "d 755 0 0 4096 " MTIME " ");
    list(&tree, "d 755 0 0 4096 1 d");
    list(&tree, "f 644 0 0 5 " MTIME " d/f");
    list(&tree, "f 644 0 0 4 " MTIME " d/g");
    list(&tree, "f 600 0 0 1 " MTIME " new file");
    list(&tree, "l 777 0 0 3 " MTIME " l");
    tar_add(&tar, (struct member){.name = "./", .type = '5'});
    tar_add(&tar, (struct member){.name = "./d/f", .data = "newer"});
    tar_add(&tar, (struct member){.name = "./new file", .data = "n", .mode = 0600});
    tar_end(&tar);
    if (apply(&p, &tree, &tar, &e)) {
        printf("# %s\n", e.msg);
        CHECK(0);
    }
    CHECK_STR(place_read(p.root, "d/f", text), "newer");
    CHECK_STR(place_read(p.root, "d/g", text), "keep");
    CHECK_STR(place_read(p.root, "new file", text), "n");
    CHECK(faccessat(p.root, "gone", F_OK, 0) < 0);
    place_free(&p);
}

TEST(difference, finds_what_was_not_told)
{
    static const char *const wrong[] = {
        "f 644 0 0 4 " MTIME " d/f",   /* another size: it changed, and the tar has it not */
        "f 644 0 0 3 999999999 d/f",   /* another time */
        "f 600 0 0 3 " MTIME " d/f",   /* another mode */
        "d 755 0 0 3 " MTIME " d/f",   /* another type */
        "f 644 0 0 3 " MTIME " d/new", /* came from elsewhere */
        "f 644 0 0 3 " MTIME " d/f/x", /* below a file */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct place p = before();
        struct err e = {0};
        auto_buf tree = {0}, tar = {0};
        list(&tree, "d 755 0 0 4096 1 d");
        list(&tree, wrong[i]);
        tar_add(&tar, (struct member){.name = "./", .type = '5'});
        tar_end(&tar);
        CHECK_INT(apply(&p, &tree, &tar, &e), -1);
        CHECK_INT(e.code, E_CONFLICT);
        place_free(&p);
    }
}

TEST(difference, refuses_lists_that_are_none)
{
    static const char *const bad[] = {"f 644 0 0 3 1 ../secret", "f 644 0 0 3 1 /etc", "f 644 0 0 3 1 d//f", "f 644 0 0 3", "x 644 0 0 3 1 d", "f 9x 0 0 3 1 d", "f 644 -1 0 3 1 d", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct place p = before();
        struct err e = {0};
        auto_buf tree = {0}, tar = {0};
        list(&tree, bad[i]);
        tar_end(&tar);
        CHECK_INT(apply(&p, &tree, &tar, &e), -1);
        CHECK_INT(e.code, E_INVALID);
        CHECK(faccessat(p.root, "d/f", F_OK, 0) == 0); /* before anything was touched */
        place_free(&p);
    }
    static const char *const heads[] = {"", "tree\n", "tree x\n", "tree 5\nab", "tree 99999999999\n", "tree 0\n", "tree 1\nx", "TREE 1\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct place p = before();
        struct untar u;
        struct err e = {0};
        auto_buf b = {0};
        buf_puts(&b, heads[i]);
        int fd = tar_file(&b);
        untar_init(&u, p.root);
        u.max_bytes = 1 << 20, u.max_files = 100;
        CHECK_INT(untar_onto(&u, fd, &e), -1);
        CHECK(e.code == E_INVALID || e.code == E_TOO_LARGE);
        untar_fini(&u);
        close(fd);
        place_free(&p);
    }
}

TEST(difference, a_link_in_the_tree_leads_nowhere)
{
    struct place p = before();
    struct err e = {0};
    auto_buf tree = {0}, tar = {0};
    CHECK(symlinkat("..", p.root, "up") == 0);
    list(&tree, "l 777 0 0 2 1 up"); /* its time is wrong */
    list(&tree, "f 644 0 0 6 1 up/secret");
    tar_add(&tar, (struct member){.name = "./", .type = '5'});
    tar_end(&tar);
    CHECK_INT(apply(&p, &tree, &tar, &e), -1); /* place_check: secret is still what it was */
    CHECK_INT(e.code, E_CONFLICT);
    place_free(&p);
}

TEST_MAIN
