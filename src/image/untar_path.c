/* Names of archive members: what is allowed, and how they are shown. Pure, so
 * that the daemon can check image metadata without linking an archive reader. */
#include "image/untar.h"
#include <string.h>

const char *untar_show(const char *name, char out[96])
{
    size_t n = 0;
    for (; *name && n < 92; name++)
        out[n++] = *name > 0x20 && *name < 0x7f ? *name : '?';
    if (*name) {
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n] = 0;
    return out;
}

int untar_path(const char *name, char out[UNTAR_PATH_MAX], struct err *e)
{
    size_t n = 0;
    int depth = 0;
    if (*name == '/')
        return err_set(e, E_INVALID, "absolute names are refused");
    for (const char *c = name; *c;) {
        size_t len = (size_t)(strchrnul(c, '/') - c);
        if (len == 2 && !memcmp(c, "..", 2))
            return err_set(e, E_INVALID, "names with \"..\" are refused");
        if (len && !(len == 1 && *c == '.')) {
            if (len > 255 || n + len + 2 > UNTAR_PATH_MAX)
                return err_set(e, E_INVALID, "name is too long");
            if (++depth > UNTAR_DEPTH_MAX)
                return err_set(e, E_INVALID, "name is nested too deep");
            if (n)
                out[n++] = '/';
            memcpy(out + n, c, len);
            n += len;
        }
        c += len;
        c += *c == '/';
    }
    out[n] = 0;
    return 0;
}
