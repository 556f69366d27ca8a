#include "tier/vm/qcow2.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/hutch-qcow2-XXXXXX";
static char path[64];

static int fresh(void)
{
    CHECK(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/o.qcow2", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    return fd;
}
static void clean(void)
{
    (void)unlink(path);
    (void)rmdir(dir);
}
/* Runs a command with the image as $1. */
static int sh(const char *script)
{
    pid_t pid = fork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", script, "sh", path, NULL);
        _exit(127);
    }
    int st = -1;
    CHECK(pid > 0 && waitpid(pid, &st, 0) == pid);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static void make_and_check(uint64_t size)
{
    struct err e = {0};
    auto_fd fd = fresh();
    CHECK_INT(qcow2_create_overlay(fd, size, &e), 0);
    uint64_t got = 0;
    CHECK_INT(qcow2_check_overlay(fd, &got, &e), 0);
    CHECK(got == size);
    struct stat st;
    CHECK(!fstat(fd, &st) && st.st_blocks * 512 <= 64 << 10);
    int rc =
        sh("command -v qemu-img >/dev/null 2>&1 || exit 77; qemu-img check -q -f qcow2 \"$1\"");
    clean();
    if (rc == 77)
        SKIP("qemu-img is not installed");
    CHECK_INT(rc, 0);
}

TEST(qcow2, small_image_is_clean) { make_and_check(1 << 20); }
TEST(qcow2, default_image_is_clean) { make_and_check(4ULL << 30); }
TEST(qcow2, odd_image_is_clean) { make_and_check((5ULL << 30) + 512); }
TEST(qcow2, largest_image_is_clean) { make_and_check(QCOW2_MAX_SIZE); }

TEST(qcow2, takes_writes_like_any_image)
{
    struct err e = {0};
    auto_fd fd = fresh();
    CHECK_INT(qcow2_create_overlay(fd, 64 << 20, &e), 0);
    int rc = sh(
        "command -v qemu-io >/dev/null 2>&1 || exit 77; qemu-io -f qcow2 -c 'write -P 7 1M 1M' -c 'read -P 7 1M 1M' -c 'read -P 0 8M 1M' \"$1\" >/dev/null");
    int check = sh("qemu-img check -q -f qcow2 \"$1\"");
    clean();
    if (rc == 77)
        SKIP("qemu-io is not installed");
    CHECK_INT(rc, 0);
    CHECK_INT(check, 0);
}

TEST(qcow2, refuses_impossible_sizes)
{
    struct err e = {0};
    auto_fd fd = fresh();
    CHECK_INT(qcow2_create_overlay(fd, 0, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    CHECK_INT(qcow2_create_overlay(fd, 1000, &e), -1);
    CHECK_INT(qcow2_create_overlay(fd, QCOW2_MAX_SIZE + 512, &e), -1);
    clean();
}

TEST(qcow2, does_not_overwrite_a_file)
{
    struct err e = {0};
    auto_fd fd = fresh();
    CHECK(fd_write_all(fd, "data", 4));
    CHECK_INT(qcow2_create_overlay(fd, 1 << 20, &e), -1);
    clean();
}

/* An image that was in a compromised QEMU may claim anything. */
TEST(qcow2, check_refuses_a_backing_file_and_features)
{
    struct err e = {0};
    uint64_t size;
    auto_fd fd = fresh();
    CHECK_INT(qcow2_create_overlay(fd, 1 << 20, &e), 0);
    static const struct {
        int at;
        unsigned char byte;
    } poke[] = {{15, 200} /* backing offset */,
                {19, 9} /* its length */,
                {79, 4} /* external data file */,
                {35, 1} /* encryption */,
                {63, 1} /* snapshots */,
                {7, 2} /* version */,
                {0, 'X'},
                {24, 0xff} /* size */};
    for (size_t i = 0; i < sizeof poke / sizeof *poke; i++) {
        unsigned char old;
        CHECK(pread(fd, &old, 1, poke[i].at) == 1 && pwrite(fd, &poke[i].byte, 1, poke[i].at) == 1);
        CHECK_INT(qcow2_check_overlay(fd, &size, &e), -1);
        CHECK_INT(e.code, E_CONFLICT);
        CHECK(pwrite(fd, &old, 1, poke[i].at) == 1);
    }
    CHECK_INT(qcow2_check_overlay(fd, &size, &e), 0);
    CHECK(!ftruncate(fd, 50));
    CHECK_INT(qcow2_check_overlay(fd, &size, &e), -1);
    clean();
}
TEST_MAIN
