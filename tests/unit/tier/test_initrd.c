#include "tier/vm/initrd.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/hutch-initrd-XXXXXX";
static int dfd;

static void put(const char *name, const void *p, size_t n)
{
    auto_fd fd = openat(dfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fd_write_all(fd, p, n));
}
static void setup(void)
{
    CHECK(mkdtemp(dir));
    dfd = open(dir, O_DIRECTORY | O_CLOEXEC);
    CHECK(!mkdirat(dfd, "modules", 0700));
    put("modules.list", "b.ko\na_1.ko\n", 12);
    put("modules/b.ko", "module b!", 9);
    put("modules/a_1.ko", "one", 3);
    put("agent", "\177ELF agent", 10);
}
static int agent(void) { return openat(dfd, "agent", O_RDONLY | O_CLOEXEC); }
static void clean(void)
{
    char cmd[64];
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}

static unsigned hex8(const char *p)
{
    char b[9] = {0};
    memcpy(b, p, 8);
    return (unsigned)strtoul(b, NULL, 16);
}
/* An independent reading of the format: calls fn for every entry. */
struct entry {
    const char *name;
    unsigned mode, size;
    const char *data;
};
static int parse(const struct buf *b, struct entry *out, int max)
{
    size_t at = 0;
    int n = 0;
    for (;;) {
        CHECK(at + 110 <= b->n && at % 4 == 0 && !memcmp(b->p + at, "070701", 6));
        const char *h = b->p + at;
        unsigned size = hex8(h + 54), name = hex8(h + 94);
        const char *data = b->p + (at + 110 + name + 3) / 4 * 4;
        CHECK((size_t)(data - b->p) + size <= b->n && !h[110 + name - 1]);
        CHECK_INT(hex8(h + 22), 0); /* uid */
        CHECK_INT(hex8(h + 46), 0); /* mtime */
        if (!strcmp(h + 110, "TRAILER!!!"))
            return n;
        CHECK(n < max);
        out[n++] = (struct entry){h + 110, hex8(h + 14), size, data};
        at = ((size_t)(data - b->p) + size + 3) / 4 * 4;
    }
}

TEST(initrd, holds_agent_list_and_modules_in_order)
{
    setup();
    auto_buf b = {0};
    struct err e = {0};
    auto_fd a = agent();
    CHECK_INT(initrd_build(dfd, a, &b, &e), 0);
    CHECK(b.n % 512 == 0);
    struct entry x[32];
    int n = parse(&b, x, 32);
    const char *want[] = {"dev",         "proc", "sys",          "root",         "modules",
                          "dev/console", "init", "modules.list", "modules/b.ko", "modules/a_1.ko"};
    CHECK_INT(n, 10);
    for (int i = 0; i < n; i++)
        CHECK_STR(x[i].name, want[i]);
    CHECK_INT(x[6].mode, S_IFREG | 0755);
    CHECK(x[6].size == 10 && !memcmp(x[6].data, "\177ELF agent", 10));
    CHECK(x[7].size == 12 && !memcmp(x[7].data, "b.ko\na_1.ko\n", 12));
    CHECK(x[8].size == 9 && !memcmp(x[8].data, "module b!", 9));
    clean();
}

TEST(initrd, bytes_depend_on_contents_only)
{
    setup();
    auto_buf b1 = {0}, b2 = {0};
    struct err e = {0};
    auto_fd a = agent();
    CHECK_INT(initrd_build(dfd, a, &b1, &e), 0);
    put("agent", "\177ELF agent", 10); /* new times */
    CHECK_INT(initrd_build(dfd, a, &b2, &e), 0);
    CHECK(b1.n == b2.n && !memcmp(b1.p, b2.p, b1.n));
    clean();
}

TEST(initrd, is_what_cpio_reads)
{
    setup();
    auto_buf b = {0};
    struct err e = {0};
    auto_fd a = agent();
    CHECK_INT(initrd_build(dfd, a, &b, &e), 0);
    put("out.cpio", b.p, b.n);
    char cmd[256];
    (void)snprintf(
        cmd, sizeof cmd,
        "command -v cpio >/dev/null || exit 77; cd %s && [ \"$(cpio -t --quiet <out.cpio | wc -l)\" = 10 ]",
        dir);
    int rc = system(cmd);
    clean();
    if (WEXITSTATUS(rc) == 77)
        SKIP("cpio is not installed");
    CHECK_INT(rc, 0);
}

TEST(initrd, refuses_odd_names_and_missing_files)
{
    setup();
    auto_buf b = {0};
    struct err e = {0};
    auto_fd a = agent();
    static const char *const bad[] = {"../x.ko\n",   "a b.ko\n", "x\n",
                                      "/etc/x.ko\n", "X.ko\n",   "missing.ko\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("modules.list", bad[i], strlen(bad[i]));
        CHECK_INT(initrd_build(dfd, a, &b, &e), -1);
        CHECK_INT(b.n, 0);
    }
    put("modules.list", "b.ko", 4); /* no newline at the end is fine */
    CHECK_INT(initrd_build(dfd, a, &b, &e), 0);
    put("agent", "#!/bin/sh", 9);
    auto_fd script = agent();
    CHECK_INT(initrd_build(dfd, script, &b, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    clean();
}
TEST_MAIN
