#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/filesystem.h"
#include "base/clock.h"
#include <stdio.h>

void fs_permissions(char type, uint32_t mode, char out[11])
{
    static const char rwx[] = "rwxrwxrwx";
    out[0] = type == 'd' ? 'd' : type == 'l' ? 'L' : '-';
    for (int i = 0; i < 9; i++)
        out[i + 1] = mode & (0400u >> i) ? rwx[i] : '-';
    out[10] = 0;
}

void put_fs_metadata(struct jw *w, const char *const *xattr)
{
    bool any = false;
    for (const char *const *x = xattr; x && *x; x++) {
        const char *eq = strchr(*x, '=');
        size_t skip = sizeof E2B_XATTR - 1;
        if (strncmp(*x, E2B_XATTR, skip) || !eq || eq == *x + skip)
            continue;
        if (!any)
            jw_kv_obj(w, "metadata");
        any = true;
        jw_key_str(w, (struct str){*x + skip, (size_t)(eq - *x) - skip});
        jw_strz(w, eq + 1);
    }
    if (any)
        jw_end(w);
}

static void put_name(struct jw *w, const char *key, const char *name, uint32_t id)
{
    char num[16];
    (void)snprintf(num, sizeof num, "%u", id);
    jw_kv_str(w, key, name && *name ? name : num);
}

static const char *type_word(char type)
{
    return type == 'f'   ? "FILE_TYPE_FILE"
           : type == 'd' ? "FILE_TYPE_DIRECTORY"
           : type == 'l' ? "FILE_TYPE_SYMLINK"
                         : "FILE_TYPE_UNSPECIFIED";
}

/* RFC 3339 with all nine decimals: two writes within a millisecond must differ. */
static void put_mtime(struct jw *w, int64_t ns)
{
    char text[48];
    struct tm tm;
    time_t s = (time_t)(ns / NS_PER_S);
    gmtime_r(&s, &tm);
    (void)snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%09lldZ",
                   (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                   tm.tm_sec, (long long)(ns % NS_PER_S));
    jw_kv_str(w, "modifiedTime", text);
}

void put_fs_entry(struct jw *w, const struct file_entry *en)
{
    char perm[11], size[24];
    bool link = en->type == 'l', dangling = link && !en->target_type;
    uint32_t mode = link ? en->target_mode : en->mode;
    fs_permissions(en->type, en->mode, perm);
    (void)snprintf(size, sizeof size, "%llu",
                   (unsigned long long)(en->type == 'd' && !en->size ? 4096 : en->size));
    jw_obj(w);
    jw_kv_str(w, "name", en->name);
    jw_kv_str(w, "type", type_word(link ? en->target_type : en->type));
    jw_kv_str(w, "path", en->path);
    jw_kv_str(w, "size", size);
    jw_kv_u64(w, "mode", mode & 0777u);
    jw_kv_str(w, "permissions", perm);
    put_name(w, "owner", en->owner, en->uid);
    put_name(w, "group", en->group, en->gid);
    put_mtime(w, en->mtime_ns > 0 ? en->mtime_ns : 0);
    if (link) /* one that leads nowhere is its own target, as with E2B */
        jw_kv_str(w, "symlinkTarget", dangling || !en->target ? en->path : en->target);
    put_fs_metadata(w, en->xattr);
    jw_end(w);
}
