#include "base/copy.h"
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLONE_FILE _IOW(0x94, 9, int) /* FICLONE */

int copy_sparse(int from, int to, struct err *e)
{
    struct stat st;
    if (!ioctl(to, CLONE_FILE, from))
        return 0;
    if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
        return err_sys(e, errno, "sparse copy");
    for (off_t at = 0; at < st.st_size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break; /* only a hole is left */
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE), out = data;
        if (hole < 0)
            return err_sys(e, errno, "sparse copy");
        for (off_t in = data; in < hole;) {
            ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(hole - in), 0);
            if (n <= 0)
                return err_sys(e, n ? errno : EIO, "sparse copy");
        }
        at = hole;
    }
    return 0;
}
