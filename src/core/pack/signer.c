#include "core/pack/signer.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/host/keyfile.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_FILE  "pack.key"
#define TRUST_DIR "trust"
#define SUFFIX    ".pub"

int signer_secret(int home_fd, unsigned char ret[SIGN_SECRET], struct err *e)
{
    return keyfile_load(home_fd, KEY_FILE, ret, e);
}

static int own(int home_fd, struct signer *ret, struct err *e)
{
    unsigned char secret[SIGN_SECRET], public[SIGN_PUBLIC];
    if (signer_secret(home_fd, secret, e))
        return -1;
    sign_public(secret, public);
    explicit_bzero(secret, sizeof secret);
    *ret = (struct signer){.name = SIGNER_OWN};
    hex_encode(public, sizeof public, ret->key);
    return 0;
}
int signer_own(struct core *c, struct signer *ret, struct err *e)
{
    return own(c->home_fd, ret, e);
}

/* A file that is not named and written as we do it is nobody's key. */
static bool read_one(int dir, const char *file, struct signer *ret)
{
    size_t n = strlen(file), s = sizeof SUFFIX - 1;
    unsigned char key[SIGN_PUBLIC];
    if (n <= s || strcmp(file + n - s, SUFFIX) || !name_ok((struct str){file, n - s}))
        return false;
    auto_free char *text = fd_slurp_at(dir, file, 256, NULL);
    if (!text || keyfile_parse(text, "a key", key, NULL))
        return false;
    (void)snprintf(ret->name, sizeof ret->name, "%.*s", (int)(n - s), file);
    hex_encode(key, sizeof key, ret->key);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct signer *)a)->name, ((const struct signer *)b)->name);
}

static int list(int home_fd, struct signer *ret, size_t max, size_t *ret_n, struct err *e)
{
    int fd = openat(home_fd, TRUST_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *ret_n = 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "trusted keys");
    DIR *d = fdopendir(fd);
    if (!d) {
        (void)close(fd);
        return err_sys(e, errno, "trusted keys");
    }
    for (struct dirent *de; *ret_n < max && (de = readdir(d));)
        *ret_n += read_one(fd, de->d_name, &ret[*ret_n]);
    (void)closedir(d);
    qsort(ret, *ret_n, sizeof *ret, by_name);
    return 0;
}
int signer_list(struct core *c, struct signer *ret, size_t max, size_t *ret_n, struct err *e)
{
    return list(c->home_fd, ret, max, ret_n, e);
}

int signer_known(int home_fd, const unsigned char key[SIGN_PUBLIC], char ret[SIGNER_NAME],
                 struct err *e)
{
    auto_free struct signer *all = xcalloc(SIGNERS_MAX + 1, sizeof *all);
    char hex[2 * SIGN_PUBLIC + 1];
    size_t n;
    hex_encode(key, SIGN_PUBLIC, hex);
    if (own(home_fd, &all[0], e) || list(home_fd, all + 1, SIGNERS_MAX, &n, e))
        return -1;
    for (size_t i = 0; i <= n; i++)
        if (!strcmp(all[i].key, hex)) {
            memcpy(ret, all[i].name, SIGNER_NAME);
            return 0;
        }
    return err_set(
        e, E_DENIED,
        "the pack is signed by a key that is not trusted here: %s; `hutch snapshot trust NAME KEY` trusts it",
        hex);
}

int signer_trust(struct core *c, const char *name, const char *key, struct err *e)
{
    auto_free struct signer *all = xcalloc(SIGNERS_MAX, sizeof *all);
    unsigned char raw[SIGN_PUBLIC];
    char hex[2 * SIGN_PUBLIC + 1], file[SIGNER_NAME + 8], tmp[SIGNER_NAME + 16];
    size_t n;
    if (!name_ok(str_of(name)) || !strcmp(name, SIGNER_OWN))
        return err_set(e, E_INVALID,
                       "name: must match [a-z0-9][a-z0-9-]{0,62} and not be " SIGNER_OWN);
    if (keyfile_parse(key, "key", raw, e) || list(c->home_fd, all, SIGNERS_MAX, &n, e))
        return -1;
    hex_encode(raw, sizeof raw, hex);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(all[i].name, name))
            return strcmp(all[i].key, hex)
                       ? err_set(
                             e, E_CONFLICT,
                             "'%s' is already trusted with another key; `hutch snapshot distrust %s` first",
                             name, name)
                       : 0;
    if (n >= SIGNERS_MAX)
        return err_set(e, E_QUOTA, "%d keys are already trusted, the limit", SIGNERS_MAX);
    if (mkdirat(c->home_fd, TRUST_DIR, 0700) && errno != EEXIST)
        return err_sys(e, errno, "trusted keys");
    auto_fd dir = openat(c->home_fd, TRUST_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    (void)snprintf(file, sizeof file, "%s" SUFFIX, name);
    (void)snprintf(tmp, sizeof tmp, ".%s.new", name);
    auto_fd fd =
        dir < 0 ? -1
                : openat(dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || !fd_write_all(fd, hex, sizeof hex - 1) || !fd_write_all(fd, "\n", 1) ||
        fsync(fd) || renameat(dir, tmp, dir, file) || fsync(dir))
        return err_sys(e, errno, "trusting a key");
    return 0;
}

int signer_distrust(struct core *c, const char *name, struct err *e)
{
    char path[sizeof TRUST_DIR + SIGNER_NAME + 8];
    (void)snprintf(path, sizeof path, TRUST_DIR "/%.63s" SUFFIX, name);
    if (name_ok(str_of(name)) && !unlinkat(c->home_fd, path, 0))
        return 0;
    return err_set(e, E_NOT_FOUND, "no key is trusted under the name '%.63s'", name);
}
