#include "core/host/keyfile.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/host/host.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int keyfile_parse(const char *text, const char *what, unsigned char ret[KEYFILE_BYTES],
                  struct err *e)
{
    struct str s = str_trim((struct str){text, strcspn(text, "\r\n")});
    if (s.n != 2 * KEYFILE_BYTES || !hex_decode(s.p, s.n, ret))
        return err_set(e, E_INVALID, "%s must be %d hex digits", what, 2 * KEYFILE_BYTES);
    return 0;
}

/* Under another name first: a crash half-way must not leave half a key. */
static int make(int home_fd, const char *name, const unsigned char key[KEYFILE_BYTES],
                struct err *e)
{
    char hex[2 * KEYFILE_BYTES + 2], tmp[64];
    (void)snprintf(tmp, sizeof tmp, ".%s.new", name);
    hex_encode(key, KEYFILE_BYTES, hex);
    (void)unlinkat(home_fd, tmp, 0); /* of one that was killed */
    auto_fd fd = openat(home_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fd_write_all(fd, hex, 2 * KEYFILE_BYTES) && fd_write_all(fd, "\n", 1) &&
              !fsync(fd) && !renameat(home_fd, tmp, home_fd, name) && !fsync(home_fd);
    explicit_bzero(hex, sizeof hex);
    return ok ? 0 : err_sys(e, errno, "%s", name);
}

int keyfile_load(int home_fd, const char *name, unsigned char ret[KEYFILE_BYTES], struct err *e)
{
    auto_free char *text = fd_slurp_at(home_fd, name, 256, NULL);
    if (text) {
        int rc = keyfile_parse(text, name, ret, e);
        explicit_bzero(text, strlen(text));
        return rc;
    }
    if (errno != ENOENT)
        return err_sys(e, errno, "%s", name);
    random_bytes(ret, KEYFILE_BYTES);
    return make(home_fd, name, ret, e);
}
