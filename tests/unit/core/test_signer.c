/* Keys of packs: made once, trusted by name, forgotten again. */
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "core/host/host.h"
#include "core/pack/signer.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

static struct core c;

static void home(char path[32])
{
    (void)snprintf(path, 32, "/tmp/hutch-sig-XXXXXX");
    CHECK(mkdtemp(path));
    c.home_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(c.home_fd >= 0);
}

static void drop(const char *path)
{
    char cmd[64];
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", path);
    CHECK(system(cmd) == 0);
    close(c.home_fd);
}

TEST(signer, a_home_has_one_key_and_trusts_it)
{
    char path[32], name[SIGNER_NAME];
    unsigned char secret[SIGN_SECRET], again[SIGN_SECRET], public[SIGN_PUBLIC];
    struct signer own;
    struct err e;
    struct stat st;
    home(path);
    CHECK(!signer_secret(c.home_fd, secret, &e) && !signer_secret(c.home_fd, again, &e));
    CHECK(!memcmp(secret, again, sizeof secret));
    CHECK(!fstatat(c.home_fd, "pack.key", &st, 0));
    CHECK_INT(st.st_mode & 0777, 0600);
    sign_public(secret, public);
    CHECK(!signer_own(&c, &own, &e) && !signer_known(c.home_fd, public, name, &e));
    CHECK_STR(name, SIGNER_OWN);
    int fd = openat(c.home_fd, "pack.key", O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && fd_write_all(fd, "half", 4)); /* damaged: an error, never a new key in its place */
    close(fd);
    CHECK_INT(signer_secret(c.home_fd, again, &e), -1);
    drop(path);
}

TEST(signer, others_by_name)
{
    char path[32], name[SIGNER_NAME], hex[65];
    unsigned char key[SIGN_PUBLIC] = {5};
    struct signer all[4];
    struct err e;
    size_t n;
    home(path);
    hex_encode(key, sizeof key, hex);
    CHECK(!signer_list(&c, all, 4, &n, &e) && !n);
    CHECK_INT(signer_known(c.home_fd, key, name, &e), -1);
    CHECK_INT(e.code, E_DENIED);
    CHECK(strstr(e.msg, hex) && strstr(e.msg, "hutch snapshot trust"));
    CHECK(!signer_trust(&c, "friend", hex, &e) && !signer_trust(&c, "friend", hex, &e) && !signer_known(c.home_fd, key, name, &e));
    CHECK_STR(name, "friend");
    hex[0] = 'f';
    CHECK_INT(signer_trust(&c, "friend", hex, &e), -1); /* a name keeps its key */
    CHECK_INT(e.code, E_CONFLICT);
    static const char *const bad[] = {"", "../x", "A", "this-home", "a/b", ".new"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(signer_trust(&c, bad[i], hex, &e), -1);
    CHECK_INT(signer_trust(&c, "short", "abcd", &e), -1);
    CHECK(!signer_list(&c, all, 4, &n, &e));
    CHECK_INT(n, 1);
    int fd = openat(c.home_fd, "trust/stray", O_WRONLY | O_CREAT, 0600); /* what is not ours is nobody's key */
    CHECK(fd >= 0 && fd_write_all(fd, hex, 64));
    close(fd);
    CHECK(!signer_list(&c, all, 4, &n, &e) && n == 1);
    CHECK_INT(signer_distrust(&c, "../pack.key", &e), -1);
    CHECK(!signer_distrust(&c, "friend", &e));
    CHECK_INT(signer_distrust(&c, "friend", &e), -1);
    CHECK_INT(signer_known(c.home_fd, key, name, &e), -1);
    drop(path);
}

TEST_MAIN
