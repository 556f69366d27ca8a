/* Hostile archives against image/untar: nothing leaves the root, budgets hold,
 * and what is legitimate arrives exactly. */
#include "image/untar.h"
#include "unit/image/tarmake.h"
#include <errno.h>
#include <sys/xattr.h>

static int unpack_with(struct place *p, struct buf *b, struct untar *u, struct err *e)
{
    int fd = tar_file(b);
    u->no_owner = geteuid() != 0;
    int rc = untar_fd(u, fd, e);
    untar_fini(u);
    close(fd);
    place_check(p);
    return rc;
}

static int unpack(struct place *p, struct buf *b, struct err *e)
{
    struct untar u;
    untar_init(&u, p->root);
    u.max_bytes = 1 << 20, u.max_files = 100;
    return unpack_with(p, b, &u, e);
}

/* The archive must be refused with this code and nothing may have escaped. */
static void refuse(struct buf *b, enum err_code want, const char *text)
{
    struct err e = {0};
    struct place p = place_new();
    CHECK_INT(unpack(&p, b, &e), -1);
    if (e.code != want || !strstr(e.msg, text)) {
        printf("# got %s: %s\n", err_name(e.code), e.msg);
        CHECK(0);
    }
    place_free(&p);
}

TEST(untar, makes_files_dirs_links)
{
    struct err e = {0};
    struct place p = place_new();
    struct stat st, st2;
    char text[256];
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "./", .type = '5', .mode = 0751});
    tar_add(&b, (struct member){.name = "./d/", .type = '5', .mode = 0555});
    tar_add(&b, (struct member){.name = "d/f", .data = "hello", .mode = 04755});
    tar_add(&b, (struct member){.name = "d/hard", .type = '1', .link = "d/f"});
    tar_add(&b, (struct member){.name = "sym", .type = '2', .link = "/d/f"});
    tar_add(&b, (struct member){.name = "a//b/./c", .data = "deep"});
    tar_add(&b, (struct member){.name = "dev", .type = '3'});
    tar_add(&b, (struct member){.name = "pipe", .type = '6'});
    tar_end(&b);
    struct untar u;
    untar_init(&u, p.root);
    u.max_bytes = 100, u.max_files = 100;
    CHECK_INT(unpack_with(&p, &b, &u, &e), 0);
    CHECK_INT(u.st.bytes, 9);
    CHECK_INT(u.st.skipped, 2);
    CHECK_INT(u.st.files, 10); /* two parents were made */
    CHECK(fstatat(p.root, ".", &st, 0) == 0 && (st.st_mode & 07777) == 0751 && st.st_mtime == 1000000000);
    CHECK(fstatat(p.root, "d", &st, 0) == 0 && (st.st_mode & 07777) == 0555 && st.st_mtime == 1000000000);
    CHECK(fstatat(p.root, "d/f", &st, 0) == 0 && (st.st_mode & 07777) == 04755 && st.st_nlink == 2 && st.st_mtime == 1000000000);
    CHECK(fstatat(p.root, "d/hard", &st2, 0) == 0 && st.st_ino == st2.st_ino);
    CHECK(readlinkat(p.root, "sym", text, sizeof text) == 4 && !memcmp(text, "/d/f", 4));
    CHECK_STR(place_read(p.root, "a/b/c", text), "deep");
    CHECK(faccessat(p.root, "dev", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && faccessat(p.root, "pipe", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
    place_free(&p);
}

TEST(untar, keeps_owners_and_set_id_bits)
{
    struct err e = {0};
    struct stat st;
    auto_buf b = {0};
    if (geteuid() != 0)
        SKIP("needs root");
    struct place p = place_new_as_is(); /* harmless members only */
    tar_add(&b, (struct member){.name = "d/", .type = '5', .uid = 1000, .mode = 02775});
    tar_add(&b, (struct member){.name = "d/f", .data = "x", .uid = 1001, .mode = 06755});
    tar_add(&b, (struct member){.name = "d/s", .type = '2', .link = "f", .uid = 1002});
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK(fstatat(p.root, "d", &st, 0) == 0 && st.st_uid == 1000 && st.st_gid == 1000 && (st.st_mode & 07777) == 02775);
    CHECK(fstatat(p.root, "d/f", &st, 0) == 0 && st.st_uid == 1001 && (st.st_mode & 07777) == 06755);
    CHECK(fstatat(p.root, "d/s", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == 1002);
    place_free(&p);
}

TEST(untar, refuses_dotdot)
{
    static const char *const bad[] = {"../x", "a/../../x", "..", "./..", "a/..", "x/../../secret"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_buf b = {0};
        tar_add(&b, (struct member){.name = bad[i], .data = "x"});
        tar_end(&b);
        refuse(&b, E_INVALID, "\"..\"");
    }
}

TEST(untar, refuses_absolute_names)
{
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "/tmp/x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "absolute");
    b.n = 0;
    tar_add(&b, (struct member){.name = "//x", .type = '5'});
    tar_end(&b);
    refuse(&b, E_INVALID, "absolute");
}

TEST(untar, refuses_overlong_and_deep_names)
{
    auto_buf b = {0}, name = {0};
    for (int i = 0; i < 256; i++)
        buf_putc(&name, 'a');
    tar_pax(&b, "path", name.p, name.n);
    tar_add(&b, (struct member){.name = "x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "too long");
    b.n = name.n = 0;
    for (int i = 0; i < UNTAR_DEPTH_MAX + 1; i++)
        buf_puts(&name, "a/");
    tar_pax(&b, "path", name.p, name.n);
    tar_add(&b, (struct member){.name = "x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "too deep");
    b.n = name.n = 0;
    for (int i = 0; i < 60; i++)
        buf_printf(&name, "%0100d/", i);
    tar_pax(&b, "path", name.p, name.n);
    tar_add(&b, (struct member){.name = "x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "too long");
}

TEST(untar, keeps_odd_bytes_in_names)
{
    static const char odd[] = "new\nline \xff\xfe caf\xc3\xa9";
    struct err e = {0};
    struct place p = place_new();
    char text[256];
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = odd, .data = "odd"});
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK_STR(place_read(p.root, odd, text), "odd");
    place_free(&p);
}

TEST(untar, nul_in_a_pax_name_stays_inside)
{
    struct err e = {0};
    struct place p = place_new();
    auto_buf b = {0};
    tar_pax(&b, "path", "ok\0/../../secret", 16);
    tar_add(&b, (struct member){.name = "x", .data = "x"});
    tar_end(&b);
    (void)unpack(&p, &b, &e);
    place_free(&p);
}

TEST(untar, symlinked_parents_stay_inside)
{
    static const char *const target[] = {"..", "/", "../..", "/../..", "../root/..", "/proc/self/root", "/proc/self/cwd/.."};
    for (size_t i = 0; i < sizeof target / sizeof *target; i++) {
        struct err e = {0};
        struct place p = place_new();
        auto_buf b = {0};
        tar_add(&b, (struct member){.name = "out", .type = '2', .link = target[i]});
        tar_add(&b, (struct member){.name = "out/secret", .data = "overwritten"});
        tar_end(&b);
        (void)unpack(&p, &b, &e); /* inside, or refused: never outside */
        place_free(&p);
    }
}

TEST(untar, absolute_link_resolves_in_the_root)
{
    struct err e = {0};
    struct place p = place_new();
    char text[256];
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "hutch-test/bin", .type = '5'});
    tar_add(&b, (struct member){.name = "bin", .type = '2', .link = "/hutch-test/bin"}); /* not on any host */
    tar_add(&b, (struct member){.name = "bin/sh", .data = "shell"});
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK_STR(place_read(p.root, "hutch-test/bin/sh", text), "shell");
    place_free(&p);
}

TEST(untar, does_not_write_through_a_link)
{
    struct err e = {0};
    struct place p = place_new();
    char text[256];
    struct stat st;
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "victim", .data = "old"});
    tar_add(&b, (struct member){.name = "l", .type = '2', .link = "victim"});
    tar_add(&b, (struct member){.name = "l", .data = "new"});
    tar_add(&b, (struct member){.name = "h", .type = '1', .link = "victim"});
    tar_add(&b, (struct member){.name = "h", .data = "newer"});
    tar_add(&b, (struct member){.name = "s", .type = '2', .link = "../secret"});
    tar_add(&b, (struct member){.name = "s", .data = "mine", .mode = 0666});
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK_STR(place_read(p.root, "victim", text), "old");
    CHECK_STR(place_read(p.root, "l", text), "new");
    CHECK_STR(place_read(p.root, "h", text), "newer");
    CHECK_STR(place_read(p.root, "s", text), "mine");
    CHECK(fstatat(p.root, "victim", &st, 0) == 0 && st.st_nlink == 1);
    place_free(&p);
}

TEST(untar, hard_links_stay_inside)
{
    static const char *const bad[] = {"../secret", "/etc/passwd", "out/secret", "nowhere", "d", ".", "l/x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        struct place p = place_new();
        auto_buf b = {0};
        tar_add(&b, (struct member){.name = "out", .type = '2', .link = ".."});
        tar_add(&b, (struct member){.name = "d", .type = '5'});
        tar_add(&b, (struct member){.name = "l", .type = '2', .link = "l"}); /* a loop */
        tar_add(&b, (struct member){.name = "h", .type = '1', .link = bad[i]});
        tar_end(&b);
        CHECK_INT(unpack(&p, &b, &e), -1);
        CHECK(strstr(e.msg, "hard link"));
        place_free(&p);
    }
}

TEST(untar, hard_link_to_a_symlink_links_the_symlink)
{
    struct err e = {0};
    struct place p = place_new();
    char text[256];
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "s", .type = '2', .link = "../secret"});
    tar_add(&b, (struct member){.name = "h", .type = '1', .link = "s"});
    tar_add(&b, (struct member){.name = "h", .type = '1', .link = "h"}); /* to itself: nothing to do */
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK(readlinkat(p.root, "h", text, sizeof text) == 9);
    place_free(&p);
}

TEST(untar, duplicate_names_the_last_one_counts)
{
    struct err e = {0};
    struct place p = place_new();
    struct stat st;
    char text[256];
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "x", .type = '5', .mode = 0700});
    tar_add(&b, (struct member){.name = "x/y/z", .data = "1"});
    tar_add(&b, (struct member){.name = "x/y", .type = '5', .mode = 0711});
    tar_add(&b, (struct member){.name = "x", .data = "file now"});
    tar_add(&b, (struct member){.name = "d", .type = '5', .mode = 0700});
    tar_add(&b, (struct member){.name = "d", .type = '5', .mode = 0750});
    tar_add(&b, (struct member){.name = "s", .type = '2', .link = "d"});
    tar_add(&b, (struct member){.name = "s", .type = '5', .mode = 0500}); /* a directory of its own, d keeps its mode */
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK_STR(place_read(p.root, "x", text), "file now");
    CHECK(fstatat(p.root, "d", &st, 0) == 0 && (st.st_mode & 07777) == 0750);
    CHECK(fstatat(p.root, "s", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0500);
    place_free(&p);
}

TEST(untar, refuses_dangling_and_file_parents)
{
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "l", .type = '2', .link = "/nowhere/at/all"});
    tar_add(&b, (struct member){.name = "l/x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "link to nowhere");
    b.n = 0;
    tar_add(&b, (struct member){.name = "f", .data = "x"});
    tar_add(&b, (struct member){.name = "f/x", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "f/x");
}

TEST(untar, refuses_huge_sizes)
{
    static const uint64_t size[] = {(1 << 20) + 1, 1ull << 40, 1ull << 62, (1ull << 63) - 1, 1ull << 63, UINT64_MAX};
    static const char type[] = {'0', '3', '5', '7'};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (size_t k = 0; k < sizeof type; k++) {
            struct err e = {0};
            struct place p = place_new();
            auto_buf b = {0};
            tar_add(&b, (struct member){.name = "f", .type = type[k], .data = "x", .size = size[i]});
            tar_end(&b);
            (void)unpack(&p, &b, &e);
            struct stat st;
            if (fstatat(p.root, "f", &st, 0) == 0)
                CHECK(S_ISDIR(st.st_mode) || st.st_size <= 1 << 20);
            CHECK(type[k] != '0' || e.code != E_OK);
            place_free(&p);
        }
}

TEST(untar, refuses_pax_sizes_that_lie)
{
    static const char *const size[] = {"9223372036854775807", "9223372036854775808", "18446744073709551616", "-1", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        struct err e = {0};
        struct place p = place_new();
        auto_buf b = {0};
        tar_pax(&b, "size", size[i], strlen(size[i]));
        tar_add(&b, (struct member){.name = "f", .data = "x"});
        tar_end(&b);
        (void)unpack(&p, &b, &e);
        struct stat st;
        CHECK(fstatat(p.root, "f", &st, 0) < 0 || st.st_size <= 1 << 20);
        place_free(&p);
    }
}

TEST(untar, holes_count_in_full)
{
    /* pax format 0.1: a 1 TiB file with one byte of data */
    struct err e = {0};
    struct place p;
    struct stat st;
    auto_buf b = {0}, rec = {0};
    tar_record(&rec, "GNU.sparse.size", "1099511627776", 13);
    tar_record(&rec, "GNU.sparse.numblocks", "1", 1);
    tar_record(&rec, "GNU.sparse.map", "0,1", 3);
    tar_add(&b, (struct member){.name = "pax", .type = 'x', .data = rec.p, .ndata = rec.n});
    tar_add(&b, (struct member){.name = "f", .data = "x"});
    tar_end(&b);
    refuse(&b, E_TOO_LARGE, "more than");
    /* old GNU format: header type S with its map and real size in the header */
    char h[512] = {0};
    b.n = 0;
    memcpy(h, "sparse", 6);
    tar_octal(h + 100, 8, 0644);
    tar_octal(h + 124, 12, 1);
    tar_octal(h + 136, 12, 1000000000);
    h[156] = 'S';
    memcpy(h + 257, "ustar  ", 8);
    tar_octal(h + 386, 12, 0), tar_octal(h + 398, 12, 1);
    tar_octal(h + 483, 12, 1ull << 42);
    tar_checksum(h);
    buf_put(&b, h, 512);
    buf_putc(&b, 'x');
    tar_pad(&b);
    tar_end(&b);
    refuse(&b, E_TOO_LARGE, "more than");
    /* the same within the budget works and is sparse */
    memset(h + 148, ' ', 8);
    tar_octal(h + 483, 12, 1 << 19);
    tar_checksum(h);
    memcpy(b.p, h, 512);
    p = place_new();
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK(fstatat(p.root, "sparse", &st, 0) == 0 && st.st_size == 1 << 19);
    place_free(&p);
}

TEST(untar, enforces_file_and_byte_budgets)
{
    auto_buf b = {0};
    for (int i = 0; i < 101; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        tar_add(&b, (struct member){.name = name, .type = i % 2 ? '6' : '0'});
    }
    tar_end(&b);
    refuse(&b, E_TOO_LARGE, "more than 100 files");
    b.n = 0;
    auto_buf big = {0};
    while (big.n < 600000)
        buf_puts(&big, "0123456789abcdef");
    tar_add(&b, (struct member){.name = "a", .data = big.p, .ndata = big.n});
    tar_add(&b, (struct member){.name = "a", .data = big.p, .ndata = big.n}); /* the same name again: counts again */
    tar_end(&b);
    refuse(&b, E_TOO_LARGE, "more than 1048576 bytes");
    b.n = 0;
    auto_buf deep = {0};
    for (int i = 0; i < 101; i++)
        buf_puts(&deep, "a/");
    tar_pax(&b, "path", deep.p, deep.n);
    tar_add(&b, (struct member){.name = "x", .data = "x"}); /* parents count */
    tar_end(&b);
    refuse(&b, E_TOO_LARGE, "files");
}

TEST(untar, refuses_damage)
{
    auto_buf b = {0};
    buf_puts(&b, "this is not a tar archive at all, just some text");
    refuse(&b, E_INVALID, "damaged");
    b.n = 0;
    tar_add(&b, (struct member){.name = "f", .data = "hello", .size = 4000}); /* ends in the middle */
    refuse(&b, E_INVALID, "damaged");
    b.n = 0;
    tar_add(&b, (struct member){.name = "ok", .data = "hello"});
    tar_add(&b, (struct member){.name = "bad", .data = "hello"});
    b.p[1024 + 1] ^= 1; /* second header: checksum */
    refuse(&b, E_INVALID, "damaged");
}

TEST(untar, refuses_impossible_owner)
{
    auto_buf b = {0};
    tar_pax(&b, "uid", "4294967295", 10);
    tar_add(&b, (struct member){.name = "f", .data = "x"});
    tar_end(&b);
    refuse(&b, E_INVALID, "owner");
    b.n = 0;
    tar_pax(&b, "gid", "-1", 2);
    tar_add(&b, (struct member){.name = "f", .data = "x"});
    tar_end(&b);
    struct err e = {0};
    struct place p = place_new();
    (void)unpack(&p, &b, &e);
    place_free(&p);
}

TEST(untar, takes_only_known_xattrs)
{
    struct err e = {0};
    struct place p = place_new();
    char v[64];
    auto_buf b = {0};
    tar_pax(&b, "SCHILY.xattr.trusted.overlay.opaque", "y", 1);
    tar_add(&b, (struct member){.name = "f", .data = "x"});
    tar_pax(&b, "SCHILY.xattr.user.note", "hi", 2);
    tar_add(&b, (struct member){.name = "g", .data = "x"});
    tar_end(&b);
    struct untar u;
    untar_init(&u, p.root);
    u.max_bytes = 100, u.max_files = 100;
    CHECK_INT(unpack_with(&p, &b, &u, &e), 0);
    CHECK(u.st.xattrs_skipped >= 1);
    int f = openat(p.root, "f", O_RDONLY), g = openat(p.root, "g", O_RDONLY);
    CHECK(fgetxattr(f, "trusted.overlay.opaque", v, sizeof v) < 0);
    ssize_t n = fgetxattr(g, "user.note", v, sizeof v);
    CHECK((n == 2 && !memcmp(v, "hi", 2)) || (n < 0 && u.st.xattrs_skipped == 2)); /* not every file system has user.* */
    close(f), close(g);
    place_free(&p);
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

static void layer(struct place *p, struct untar *u, struct buf *b)
{
    struct err e = {0};
    tar_end(b);
    int fd = tar_file(b);
    if (untar_fd(u, fd, &e) < 0) {
        printf("# %s\n", e.msg);
        CHECK(0);
    }
    close(fd);
    place_check(p);
    b->n = 0;
}

TEST(untar, obeys_whiteouts)
{
    struct place p = place_new();
    struct untar u;
    char text[256];
    auto_buf b = {0};
    untar_init(&u, p.root);
    u.max_bytes = 1 << 20, u.max_files = 1000, u.oci = true, u.no_owner = geteuid() != 0;
    tar_add(&b, (struct member){.name = "keep", .data = "1"});
    tar_add(&b, (struct member){.name = "gone", .data = "1"});
    tar_add(&b, (struct member){.name = "tree/a/b", .data = "1"});
    tar_add(&b, (struct member){.name = "opaque/low", .data = "1"});
    tar_add(&b, (struct member){.name = "opaque/sub/low", .data = "1"});
    layer(&p, &u, &b);
    tar_add(&b, (struct member){.name = ".wh.gone"});
    tar_add(&b, (struct member){.name = ".wh.tree"});
    tar_add(&b, (struct member){.name = ".wh.never-was"});
    tar_add(&b, (struct member){.name = "no/such/dir/.wh.x"});
    tar_add(&b, (struct member){.name = "opaque/high", .data = "2"});
    tar_add(&b, (struct member){.name = "opaque/sub/high", .data = "2"});
    tar_add(&b, (struct member){.name = "opaque/.wh..wh..opq"}); /* late: must keep this layer's own files */
    tar_add(&b, (struct member){.name = "both", .data = "2"});
    tar_add(&b, (struct member){.name = ".wh.both"}); /* only for the layers below */
    layer(&p, &u, &b);
    untar_fini(&u);
    CHECK_STR(place_read(p.root, "keep", text), "1");
    CHECK(!place_read(p.root, "gone", text) && faccessat(p.root, "tree", F_OK, 0) < 0 && faccessat(p.root, "no", F_OK, 0) < 0);
    CHECK(!place_read(p.root, "opaque/low", text) && !place_read(p.root, "opaque/sub/low", text));
    CHECK_STR(place_read(p.root, "opaque/high", text), "2");
    CHECK_STR(place_read(p.root, "opaque/sub/high", text), "2");
    CHECK_STR(place_read(p.root, "both", text), "2");
    CHECK(faccessat(p.root, ".wh.gone", F_OK, 0) < 0);
    place_free(&p);
}

TEST(untar, whiteouts_cannot_remove_outside)
{
    static const char *const name[] = {".wh..", ".wh...", "out/.wh.secret", "out/.wh..wh..opq", ".wh."};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct err e = {0};
        struct place p = place_new();
        struct untar u;
        auto_buf b = {0};
        untar_init(&u, p.root);
        u.max_bytes = 1 << 20, u.max_files = 1000, u.oci = true;
        tar_add(&b, (struct member){.name = "out", .type = '2', .link = ".."});
        tar_add(&b, (struct member){.name = name[i]});
        tar_end(&b);
        (void)unpack_with(&p, &b, &u, &e);
        place_free(&p);
    }
}

TEST(untar, whiteout_names_are_plain_files_without_oci)
{
    struct err e = {0};
    struct place p = place_new();
    auto_buf b = {0};
    tar_add(&b, (struct member){.name = "x", .data = "1"});
    tar_add(&b, (struct member){.name = ".wh.x", .data = "2"});
    tar_end(&b);
    CHECK_INT(unpack(&p, &b, &e), 0);
    CHECK(faccessat(p.root, "x", F_OK, 0) == 0 && faccessat(p.root, ".wh.x", F_OK, 0) == 0);
    place_free(&p);
}

TEST_MAIN
