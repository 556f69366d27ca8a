/* Files of builds: where an archive is to be sent, its upload, and the context
 * that a build is given of those it names. Archives are kept in HOME/cache by
 * the hash the SDK gives them. That hash is over names and contents on the
 * client's disk and cannot be made from the archive: it is the client's word, and
 * counts for one template of one tenant only (its shelf). */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/params.h"
#include "core/catalog/template.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "crypto/digest.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define UPLOAD_MAX    (2ull << 30)
#define URL_NS        (3600 * NS_PER_S)
#define FILES_KEPT_NS (7 * 24 * 3600 * NS_PER_S)
#define FILE_PATH     320

static bool hash_ok(struct str h)
{
    for (size_t i = 0; i < h.n; i++)
        if (!((h.p[i] >= '0' && h.p[i] <= '9') || (h.p[i] >= 'a' && h.p[i] <= 'f')))
            return false;
    return h.n == 64;
}

void e2b_build_shelf(const char *tenant, const struct e2b_template *t, char out[E2B_SHELF])
{
    auto_buf text = {0};
    char hex[SHA256_HEX];
    buf_printf(&text, "%s %s", t->id, tenant); /* an id has no space */
    sha256_hex(text.p, text.n, hex);
    (void)snprintf(out, E2B_SHELF, "%.*s", E2B_SHELF - 1, hex);
}

static void file_path(struct api *a, const char *shelf, const char *hash, char out[FILE_PATH])
{
    (void)snprintf(out, FILE_PATH, "%s/cache/e2b-%s-%s.tgz", core_config(api_core(a))->home, shelf,
                   hash);
}

/* Archives of a week ago are not going to be asked for; if they are, the SDK sends them again. */
static void sweep_files(struct api *a)
{
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/cache", core_config(api_core(a))->home);
    DIR *d = opendir(path);
    if (!d)
        return;
    for (const struct dirent *de; (de = readdir(d));)
        if (!strncmp(de->d_name, "e2b-", 4) &&
            !fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            (int64_t)st.st_mtime * NS_PER_S < clock_wall() - FILES_KEPT_NS)
            (void)unlinkat(dirfd(d), de->d_name, 0); /* the next sweep tries again */
    closedir(d);
}

static void sign(struct e2b *x, const char *shelf, const char *hash, long long until, char hex[65])
{
    unsigned char mac[SHA256_BYTES];
    char text[160];
    (void)snprintf(text, sizeof text, "%s %s %lld", shelf, hash, until);
    hmac_sha256(x->secret, sizeof x->secret, text, strlen(text), mac);
    hex_encode(mac, sizeof mac, hex);
}

void e2b_build_file(struct http_stream *s, void *a)
{
    struct str hash = http_param(s, "hash"), host = http_head(s)->host;
    struct e2b_template *t = e2b_find_template(s, a);
    if (!t)
        return;
    if (!hash_ok(hash)) {
        e2b_problem(s, 400, "the hash must have 64 hexadecimal digits");
        return;
    }
    char path[FILE_PATH], mac[65], shelf[E2B_SHELF];
    long long until = (clock_wall() + URL_NS) / NS_PER_S;
    e2b_build_shelf(api_caller(a, s).tenant, t, shelf);
    file_path(a, shelf, hash.p, path);
    sign(e2b_of(a), shelf, hash.p, until, mac);
    auto_buf url = {0};
    buf_printf(&url, "%s://%.*s/templates/%s/files/%s?shelf=%s&until=%lld&signature=%s",
               str_ieqz(http_req_header(s, "X-Forwarded-Proto"), "https") ? "https" : "http",
               (int)host.n, host.p, t->id, hash.p, shelf, until, mac);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_bool(w, "present",
               !utimensat(AT_FDCWD, path, NULL, 0)); /* and so kept for a while more */
    jw_kv_str(w, "url", url.p);
    jw_end(w);
    reply_send(s, 201);
}

struct upload {
    struct req r;
    int fd;
    uint64_t got;
    char shelf[E2B_SHELF], hash[65], tmp[FILE_PATH + 16];
};

static void upload_fini(void *arg)
{
    struct upload *u = arg;
    if (u->fd >= 0) {
        (void)close(u->fd);
        (void)unlink(u->tmp); /* unfinished */
    }
}

static void on_upload(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct upload *u = arg;
    struct err e;
    (void)s;
    if (u->r.over)
        return;
    u->got += n;
    if (u->got > UPLOAD_MAX)
        err_set(&e, E_TOO_LARGE, "the archive is over the limit of %llu MiB", UPLOAD_MAX >> 20);
    else if (fd_write_all(u->fd, p, n))
        return;
    else
        err_set(&e, errno == ENOSPC || errno == EDQUOT ? E_QUOTA : E_INTERNAL,
                "the upload could not be stored; is the disk full?");
    req_fail(&u->r, &e, ABOUT_REQUEST);
}

static void on_uploaded(struct http_stream *s, void *arg)
{
    struct upload *u = arg;
    char path[FILE_PATH];
    if (u->r.over)
        return;
    file_path(u->r.api, u->shelf, u->hash, path);
    (void)close(take_fd(&u->fd));
    if (rename(u->tmp, path)) {
        (void)unlink(u->tmp);
        e2b_problem(s, 500, "the upload could not be stored");
    } else
        http_reply(s, 200, NULL, "", 0);
    req_end(&u->r);
    sweep_files(u->r.api);
}

void e2b_build_upload(struct http_stream *s, void *a)
{
    auto_buf until = {0}, sig = {0}, place = {0};
    const char *u = param_str(s, "until", &until), *got = param_str(s, "signature", &sig),
               *shelf = param_str(s, "shelf", &place);
    struct str hash = http_param(s, "hash");
    char want[65] = "";
    int64_t t = 0;
    if (u && shelf && strlen(shelf) == E2B_SHELF - 1 && hash_ok(hash) && str_i64(str_of(u), &t))
        sign(e2b_of(a), shelf, hash.p, t, want);
    if (!*want || !got || strlen(got) != 64 || !mem_eq_ct(got, want, 64) ||
        t < clock_wall() / NS_PER_S) {
        e2b_problem(s, 403, "this upload URL is not valid, or not any more");
        return;
    }
    struct upload *up = req_new(a, s, sizeof *up, upload_fini);
    char nonce[9], path[FILE_PATH];
    token_make("", 4, nonce);
    memcpy(up->hash, hash.p, 65);
    memcpy(up->shelf, shelf, E2B_SHELF);
    file_path(a, up->shelf, up->hash, path);
    (void)snprintf(up->tmp, sizeof up->tmp, "%s.%s", path, nonce);
    up->fd = open(up->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (up->fd < 0) {
        e2b_problem(s, 500, "the upload could not be stored");
        req_end(&up->r);
        return;
    }
    req_watch(&up->r);
    http_body_stream(s, on_upload, on_uploaded, up);
}

/* One ustar member; the size is known. */
static bool put_member(int fd, const char *name, int from, uint64_t size)
{
    char h[512] = {0}, chunk[65536];
    unsigned sum = 0;
    (void)snprintf(h, 100, "%s", name);
    (void)snprintf(h + 100, 8, "%07o", 0600);
    (void)snprintf(h + 108, 8, "%07o", 0);
    (void)snprintf(h + 116, 8, "%07o", 0);
    (void)snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
    (void)snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", sum);
    if (!fd_write_all(fd, h, sizeof h))
        return false;
    for (uint64_t left = size; left;) {
        ssize_t n = read(from, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (n <= 0 || !fd_write_all(fd, chunk, (size_t)n))
            return false;
        left -= (uint64_t)n;
    }
    memset(chunk, 0, 512);
    return !(size % 512) || fd_write_all(fd, chunk, 512 - size % 512);
}

int e2b_build_context(struct api *a, const char *shelf, const struct kv *files, struct err *e)
{
    static const char end[1024];
    auto_fd fd = build_tempfile(api_core(a), e);
    if (fd < 0)
        return -1;
    for (size_t i = 0; i < files->n; i++) {
        char path[FILE_PATH], name[80];
        struct stat st;
        file_path(a, shelf, files->at[i].k, path);
        (void)snprintf(name, sizeof name, "%s.tgz", files->at[i].k);
        auto_fd from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (from < 0 || fstat(from, &st))
            return err_set(e, E_INVALID, "the files with hash %.16s… were not uploaded",
                           files->at[i].k);
        if (!put_member(fd, name, from, (uint64_t)st.st_size))
            return err_set(e, E_QUOTA, "the build context could not be stored; is the disk full?");
    }
    if (!fd_write_all(fd, end, sizeof end) || lseek(fd, 0, SEEK_SET))
        return err_set(e, E_QUOTA, "the build context could not be stored; is the disk full?");
    return take_fd(&fd);
}
