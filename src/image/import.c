/* Two kinds of passes over the outer tar. The first notes every member and keeps
 * the few JSON files at the top. Then one pass per blob: libarchive walks the
 * headers (seeking over the data when the outer tar is not compressed) to the
 * member wanted, and its bytes run through SHA-256 into the next parser. A
 * layer's digest is known only after it was unpacked: a mismatch fails the
 * import, and whoever called throws the tree away. */
#include "image/import.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "crypto/digest.h"
#include "json/read.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct import {
    struct untar *u;
    int fd;
    struct map member;  /* name -> (char *) target of a link, or self for a file */
    uint64_t inflated;  /* bytes decompressed from a compressed outer tar, all passes */
    char *layout, *index, *docker; /* the JSON at the top, if there */
    size_t nlayout, nindex, ndocker;
};

/* ---- walking the outer tar -------------------------------------------------------------------------------------- */

static int outer_fail(struct archive *a, struct err *e)
{
    const char *why = archive_error_string(a);
    return err_set(e, E_INVALID, "image archive is damaged: %s", why ? why : "unknown reason");
}

static struct archive *outer_open(struct import *im, struct err *e)
{
    if (lseek(im->fd, 0, SEEK_SET) < 0) {
        err_sys(e, errno, "image archive is not seekable");
        return NULL;
    }
    struct archive *a = archive_read_new();
    if (!a) {
        err_set(e, E_INTERNAL, "no memory for the archive reader");
        return NULL;
    }
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_format_tar(a);
    if (archive_read_open_fd(a, im->fd, 1 << 16) != ARCHIVE_OK) {
        outer_fail(a, e);
        archive_read_free(a);
        return NULL;
    }
    return a;
}

/* Next member with its clean name; 1, 0 at the end, -1. */
static int outer_next(struct import *im, struct archive *a, struct archive_entry **ae, char name[UNTAR_PATH_MAX], struct err *e)
{
    char shown[96];
    int rc = archive_read_next_header(a, ae);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return outer_fail(a, e);
    /* Every blob costs a pass; a compressed archive is inflated anew each time. */
    if (archive_filter_count(a) > 1 && archive_filter_bytes(a, 0) > 0 &&
        im->inflated + (uint64_t)archive_filter_bytes(a, 0) > 8 * (im->u->max_bytes + OCI_JSON_MAX))
        return err_set(e, E_TOO_LARGE, "compressed image archive is too large; decompress it first");
    const char *raw = archive_entry_pathname(*ae);
    if (!raw)
        return err_set(e, E_INVALID, "image archive: member without a name");
    if (untar_path(raw, name, e) < 0)
        return err_wrap(e, "image archive: %s", untar_show(raw, shown));
    if (archive_entry_size(*ae) < 0 || (uint64_t)archive_entry_size(*ae) > im->u->max_bytes + OCI_JSON_MAX)
        return err_set(e, E_TOO_LARGE, "image archive: %s is too large", untar_show(name, shown));
    return 1;
}

static void outer_close(struct import *im, struct archive *a)
{
    if (archive_filter_count(a) > 1 && archive_filter_bytes(a, 0) > 0)
        im->inflated += (uint64_t)archive_filter_bytes(a, 0);
    archive_read_free(a);
}

/* ---- blobs ------------------------------------------------------------------------------------------------------ */

/* The bytes of one member as a source for the next parser, hashed on the way. */
struct blob { struct archive *a; struct sha256 *hash; uint64_t size; };

static ssize_t blob_read(void *arg, const void **p, struct err *e)
{
    struct blob *b = arg;
    size_t n;
    int64_t at;
    int rc = archive_read_data_block(b->a, p, &n, &at);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return outer_fail(b->a, e);
    if ((uint64_t)at != b->size)
        return err_set(e, E_INVALID, "image archive: sparse blobs are refused");
    b->size += n;
    sha256_add(b->hash, *p, n);
    return n ? (ssize_t)n : blob_read(arg, p, e);
}

static ssize_t slurp(struct blob *b, struct buf *out, struct err *e)
{
    const void *p;
    ssize_t n;
    while ((n = blob_read(b, &p, e)) > 0) {
        if (out->n + (size_t)n > OCI_JSON_MAX)
            return err_set(e, E_TOO_LARGE, "image archive: a JSON file is larger than %u bytes", OCI_JSON_MAX);
        buf_put(out, p, (size_t)n);
    }
    return n;
}

/* Unpack (out == NULL) or slurp the blob, then read to its end so that the hash
 * covers every byte, also those after the end of a layer's tar. */
static int blob_use(struct import *im, struct blob *b, struct buf *out, struct err *e)
{
    const void *p;
    ssize_t n;
    if (out)
        return slurp(b, out, e) < 0 ? -1 : 0;
    if (untar_from(im->u, &(struct untar_source){blob_read, b}, e) < 0)
        return -1;
    while ((n = blob_read(b, &p, e)) > 0)
        ;
    return n < 0 ? -1 : 0;
}

/* Finds member `name` (a file, or a link of the outer tar to one) and uses it.
 * want: its sha256, or NULL; size: UINT64_MAX if not known. */
static int blob_take(struct import *im, const char *name, const char *want, uint64_t size, struct buf *out, struct err *e)
{
    char at[UNTAR_PATH_MAX], got[SHA256_HEX], shown[96];
    const char *real = map_get(&im->member, name);
    struct archive_entry *ae;
    if (real && strcmp(real, name) != 0) { /* one hop: docker-archive links equal layers */
        const char *next = map_get(&im->member, real);
        real = next && !strcmp(next, real) ? real : NULL;
    }
    if (!real)
        return err_set(e, E_INVALID, "image archive: %s is missing", untar_show(name, shown));
    struct archive *a = outer_open(im, e);
    if (!a)
        return -1;
    int rc;
    while ((rc = outer_next(im, a, &ae, at, e)) > 0 && strcmp(at, real) != 0)
        ;
    if (rc > 0) {
        struct blob b = {a, sha256_new(), 0};
        rc = size != UINT64_MAX && (uint64_t)archive_entry_size(ae) != size ? err_set(e, E_INVALID, "size is not the announced one")
                                                                             : blob_use(im, &b, out, e);
        sha256_end_hex(b.hash, got);
        if (rc == 0 && want && strcmp(got, want) != 0)
            rc = err_set(e, E_INVALID, "contents do not match the digest");
        if (rc < 0)
            err_wrap(e, "%s", untar_show(name, shown));
    } else if (rc == 0) {
        rc = err_set(e, E_INVALID, "image archive: %s is missing", untar_show(name, shown));
    }
    outer_close(im, a);
    return rc;
}

static int blob_by_digest(struct import *im, const struct oci_desc *d, struct buf *out, struct err *e)
{
    char name[16 + OCI_DIGEST_HEX];
    (void)snprintf(name, sizeof name, "blobs/sha256/%s", d->sha256);
    return blob_take(im, name, d->sha256, d->size, out, e);
}

/* ---- first pass ------------------------------------------------------------------------------------------------- */

/* Lexically: the directory of `from` plus a target that may start with "../". */
static char *link_target(const char *from, const char *target, bool hard)
{
    char dir[UNTAR_PATH_MAX], joined[2 * UNTAR_PATH_MAX], clean[UNTAR_PATH_MAX];
    const char *slash = strrchr(from, '/');
    size_t n = slash && !hard ? (size_t)(slash - from) : 0;
    memcpy(dir, from, n);
    dir[n] = 0;
    while (!hard && !strncmp(target, "../", 3)) {
        if (!*dir)
            return NULL;
        char *up = strrchr(dir, '/');
        *(up ? up : dir) = 0;
        target += 3;
    }
    if (*target == '/' || strlen(target) >= UNTAR_PATH_MAX)
        return NULL;
    (void)snprintf(joined, sizeof joined, "%s/%s", *dir ? dir : ".", target);
    return untar_path(joined, clean, NULL) < 0 ? NULL : xstrdup(clean);
}

static int keep_json(struct archive *a, char **ret, size_t *ret_n, struct err *e)
{
    struct blob b = {a, sha256_new(), 0};
    auto_buf text = {0};
    buf_reserve(&text, 1);
    ssize_t rc = slurp(&b, &text, e);
    sha256_free(b.hash);
    if (rc < 0)
        return -1;
    *ret_n = text.n;
    *ret = buf_take(&text);
    return 0;
}

static int note_member(struct import *im, struct archive *a, struct archive_entry *ae, const char *name, struct err *e)
{
    char shown[96];
    const char *hard = archive_entry_hardlink(ae), *soft = archive_entry_symlink(ae);
    if (archive_entry_filetype(ae) == AE_IFDIR || !*name)
        return 0;
    if (map_get(&im->member, name)) /* which of the two counts would depend on the reader */
        return err_set(e, E_INVALID, "image archive: %s occurs twice", untar_show(name, shown));
    if (im->member.n >= IMPORT_MEMBERS_MAX)
        return err_set(e, E_TOO_LARGE, "image archive has more than %d members", IMPORT_MEMBERS_MAX);
    if (hard || soft) {
        char *target = link_target(name, hard ? hard : soft, hard != NULL);
        if (target)
            map_set(&im->member, name, target);
        return 0;
    }
    if (archive_entry_filetype(ae) != AE_IFREG)
        return 0;
    map_set(&im->member, name, xstrdup(name));
    if (!strcmp(name, "oci-layout"))
        return keep_json(a, &im->layout, &im->nlayout, e);
    if (!strcmp(name, "index.json"))
        return keep_json(a, &im->index, &im->nindex, e);
    if (!strcmp(name, "manifest.json"))
        return keep_json(a, &im->docker, &im->ndocker, e);
    return 0;
}

static int survey(struct import *im, struct err *e)
{
    char name[UNTAR_PATH_MAX];
    struct archive_entry *ae;
    struct archive *a = outer_open(im, e);
    if (!a)
        return -1;
    int rc;
    while ((rc = outer_next(im, a, &ae, name, e)) > 0)
        if (note_member(im, a, ae, name, e) < 0) {
            rc = -1;
            break;
        }
    outer_close(im, a);
    return rc;
}

/* ---- the two layouts -------------------------------------------------------------------------------------------- */

static int apply_oci(struct import *im, struct oci_config *ret, struct err *e)
{
    struct oci_desc d;
    struct str version;
    auto_json layout = json_parse_obj(im->layout, im->nlayout, e);
    if (!layout || json_str(layout, "imageLayoutVersion", &version, true, e) < 0)
        return err_wrap(e, "oci-layout");
    if (!str_starts(version, "1."))
        return err_set(e, E_UNSUPPORTED, "oci-layout: unknown version");
    if (oci_index(im->index, im->nindex, &d, e) < 0)
        return -1;
    auto_buf text = {0};
    if (blob_by_digest(im, &d, &text, e) < 0)
        return -1;
    if (d.media == OCI_INDEX) {
        auto_buf inner = text;
        text = (struct buf){0};
        if (oci_index(inner.p ? inner.p : "", inner.n, &d, e) < 0)
            return -1;
        if (d.media != OCI_MANIFEST)
            return err_set(e, E_UNSUPPORTED, "index.json: indexes nested too deep");
        if (blob_by_digest(im, &d, &text, e) < 0)
            return -1;
    }
    auto_free struct oci_manifest *m = xcalloc(1, sizeof *m);
    auto_buf config = {0};
    if (oci_manifest(text.p ? text.p : "", text.n, m, e) < 0 || blob_by_digest(im, &m->config, &config, e) < 0 ||
        oci_config(config.p ? config.p : "", config.n, ret, e) < 0)
        return -1;
    int rc = ret->ndiff == m->nlayers ? 0 : err_set(e, E_INVALID, "image manifest and config differ in the number of layers");
    for (size_t i = 0; i < m->nlayers && rc == 0; i++)
        if ((rc = blob_by_digest(im, &m->layer[i], NULL, e)) < 0)
            err_wrap(e, "layer %zu", i + 1);
    if (rc < 0)
        oci_config_fini(ret);
    return rc;
}

/* Layers have no digest of their own here; the config's diff_ids are theirs,
 * and the config's name is its own digest. */
static int apply_docker(struct import *im, struct oci_config *ret, struct err *e)
{
    struct oci_docker d;
    auto_buf config = {0};
    char want[OCI_DIGEST_HEX] = "";
    if (oci_docker(im->docker, im->ndocker, &d, e) < 0)
        return -1;
    const char *base = strrchr(d.config, '/');
    base = base ? base + 1 : d.config;
    if (strspn(base, "0123456789abcdef") == 64 && (!base[64] || !strcmp(base + 64, ".json")))
        (void)snprintf(want, sizeof want, "%.64s", base);
    int rc = blob_take(im, d.config, *want ? want : NULL, UINT64_MAX, &config, e);
    if (rc == 0)
        rc = oci_config(config.p ? config.p : "", config.n, ret, e);
    if (rc < 0) {
        oci_docker_fini(&d);
        return -1;
    }
    if (ret->ndiff != d.nlayers)
        rc = err_set(e, E_INVALID, "manifest.json and config differ in the number of layers");
    for (size_t i = 0; i < d.nlayers && rc == 0; i++)
        if ((rc = blob_take(im, d.layer[i], ret->diff_id[i], UINT64_MAX, NULL, e)) < 0)
            err_wrap(e, "layer %zu", i + 1);
    oci_docker_fini(&d);
    if (rc < 0)
        oci_config_fini(ret);
    return rc;
}

int import_image(struct untar *u, int fd, struct oci_config *ret, struct err *e)
{
    struct import im = {.u = u, .fd = fd};
    u->oci = true;
    int rc = survey(&im, e);
    if (rc == 0) {
        if (im.layout && im.index)
            rc = apply_oci(&im, ret, e);
        else if (im.docker)
            rc = apply_docker(&im, ret, e);
        else
            rc = err_set(e, E_INVALID, "not an image archive: neither an OCI layout nor a docker-archive");
    }
    struct map_entry *m;
    for (size_t i = 0; (m = map_next(&im.member, &i));)
        free(m->value);
    map_free(&im.member);
    free(im.layout);
    free(im.index);
    free(im.docker);
    return rc;
}
