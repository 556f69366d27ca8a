/* See oci.h. Lookups are strict about what is used and silent about the rest:
 * images carry annotations and history that are nobody's business here. */
#include "image/oci.h"
#include "base/str.h"
#include "image/untar.h"
#include "json/read.h"
#include "json/write.h"
#include <stdlib.h>
#include <string.h>

static bool hex64(struct str s)
{
    if (s.n != 64)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    return true;
}

static int read_digest(struct json *j, struct str d, char out[OCI_DIGEST_HEX], struct err *e)
{
    if (!str_starts(d, "sha256:") || !hex64((struct str){d.p + 7, d.n - 7}))
        return json_fail(j, e, "not a sha256 digest");
    memcpy(out, d.p + 7, 64);
    out[64] = 0;
    return 0;
}

/* Media types of image-spec v1 and of Docker's schema 2. A layer's compression
 * is found by looking at its bytes, so the suffix does not matter. */
static enum oci_media media_of(struct str t)
{
    static const struct { const char *name; enum oci_media media; } known[] = {
        {"application/vnd.oci.image.index.v1+json", OCI_INDEX},
        {"application/vnd.docker.distribution.manifest.list.v2+json", OCI_INDEX},
        {"application/vnd.oci.image.manifest.v1+json", OCI_MANIFEST},
        {"application/vnd.docker.distribution.manifest.v2+json", OCI_MANIFEST},
        {"application/vnd.oci.image.config.v1+json", OCI_CONFIG},
        {"application/vnd.docker.container.image.v1+json", OCI_CONFIG},
        {"application/vnd.oci.image.layer.v1.tar", OCI_LAYER},
        {"application/vnd.oci.image.layer.v1.tar+gzip", OCI_LAYER},
        {"application/vnd.oci.image.layer.v1.tar+zstd", OCI_LAYER},
        {"application/vnd.docker.image.rootfs.diff.tar", OCI_LAYER},
        {"application/vnd.docker.image.rootfs.diff.tar.gzip", OCI_LAYER},
        {"application/vnd.docker.image.rootfs.diff.tar.zstd", OCI_LAYER},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_eqz(t, known[i].name))
            return known[i].media;
    return 0;
}

static int read_desc(struct json *j, struct oci_desc *ret, struct err *e)
{
    struct str media, digest;
    int64_t size;
    if (json_kind(j) != JSON_OBJ)
        return json_fail(j, e, "not a descriptor");
    if (json_str(j, "mediaType", &media, true, e) < 0 || json_str(j, "digest", &digest, true, e) < 0 ||
        json_i64(j, "size", 0, INT64_MAX, -1, &size, e) < 0)
        return -1;
    if (size < 0)
        return json_fail(j, e, "size is missing");
    ret->media = media_of(media);
    ret->size = (uint64_t)size;
    return read_digest(j, digest, ret->sha256, e);
}

static int parse(const char *p, size_t n, struct json **ret, const char *what, struct err *e)
{
    if (n > OCI_JSON_MAX)
        return err_set(e, E_TOO_LARGE, "%s is larger than %u bytes", what, OCI_JSON_MAX);
    *ret = json_parse(p, n, e);
    return *ret ? 0 : err_wrap(e, "%s", what);
}

/* ---- OCI layout ------------------------------------------------------------------------------------------------- */

/* linux/amd64 named: 2; no platform given: 1; another one: 0. */
static int platform_rank(struct json *desc, struct err *e)
{
    struct json *pl = NULL;
    struct str os = S(""), arch = S("");
    if (json_obj(desc, "platform", &pl, false, e) < 0)
        return -1;
    if (!pl)
        return 1;
    if (json_str(pl, "os", &os, true, e) < 0 || json_str(pl, "architecture", &arch, true, e) < 0)
        return -1;
    return str_eqz(os, "linux") && str_eqz(arch, "amd64") ? 2 : 0;
}

int oci_index(const char *p, size_t n, struct oci_desc *ret, struct err *e)
{
    auto_json root = NULL;
    struct json *list;
    struct oci_desc best = {0};
    int best_rank = 0, same = 0;
    if (parse(p, n, &root, "index.json", e) < 0)
        return -1;
    if (json_kind(root) != JSON_OBJ)
        return err_set(e, E_INVALID, "index.json: not an object");
    if (json_arr(root, "manifests", &list, true, e) < 0)
        return err_wrap(e, "index.json");
    if (json_len(list) > OCI_INDEX_MAX)
        return err_set(e, E_TOO_LARGE, "index.json lists more than %d manifests", OCI_INDEX_MAX);
    for (size_t i = 0; i < json_len(list); i++) {
        struct oci_desc d;
        struct json *j = json_at(list, i);
        if (read_desc(j, &d, e) < 0)
            return err_wrap(e, "index.json");
        int rank = platform_rank(j, e);
        if (rank < 0)
            return err_wrap(e, "index.json");
        if (!rank || (d.media != OCI_MANIFEST && d.media != OCI_INDEX))
            continue;
        if (rank == best_rank && !strcmp(d.sha256, best.sha256))
            continue; /* one image under two names */
        if (rank > best_rank)
            best = d, best_rank = rank, same = 1;
        else
            same += rank == best_rank;
    }
    if (!best_rank)
        return err_set(e, E_UNSUPPORTED, "the archive has no image for linux/amd64");
    if (same > 1)
        return err_set(e, E_INVALID, "the archive has %d images; export just one", same);
    *ret = best;
    return 0;
}

int oci_manifest(const char *p, size_t n, struct oci_manifest *ret, struct err *e)
{
    auto_json root = NULL;
    struct json *config, *layers;
    int64_t version;
    if (parse(p, n, &root, "image manifest", e) < 0)
        return -1;
    if (json_kind(root) != JSON_OBJ)
        return err_set(e, E_INVALID, "image manifest: not an object");
    if (json_i64(root, "schemaVersion", 2, 2, 2, &version, e) < 0 || json_obj(root, "config", &config, true, e) < 0 ||
        json_arr(root, "layers", &layers, true, e) < 0 || read_desc(config, &ret->config, e) < 0)
        return err_wrap(e, "image manifest");
    if (ret->config.media != OCI_CONFIG)
        return err_set(e, E_UNSUPPORTED, "image manifest: this is an artifact, not a container image");
    if (json_len(layers) > OCI_LAYERS_MAX)
        return err_set(e, E_TOO_LARGE, "image has more than %d layers", OCI_LAYERS_MAX);
    ret->nlayers = 0;
    for (size_t i = 0; i < json_len(layers); i++) {
        struct oci_desc *d = &ret->layer[ret->nlayers++];
        if (read_desc(json_at(layers, i), d, e) < 0)
            return err_wrap(e, "image manifest");
        if (d->media != OCI_LAYER)
            return err_set(e, E_UNSUPPORTED, "image manifest: layer %zu is of an unknown kind", i + 1);
    }
    return 0;
}

/* ---- docker-archive --------------------------------------------------------------------------------------------- */

static int member_name(struct json *j, char **ret, struct err *e)
{
    struct str s;
    char clean[UNTAR_PATH_MAX];
    if (json_to_str(j, &s, e) < 0)
        return -1;
    if (untar_path(s.p, clean, e) < 0)
        return err_wrap(e, "manifest.json");
    if (!*clean)
        return json_fail(j, e, "empty name");
    *ret = xstrdup(clean);
    return 0;
}

void oci_docker_fini(struct oci_docker *d)
{
    free(d->config);
    for (size_t i = 0; i < d->nlayers; i++)
        free(d->layer[i]);
    memset(d, 0, sizeof *d);
}

int oci_docker(const char *p, size_t n, struct oci_docker *ret, struct err *e)
{
    auto_json root = NULL;
    struct json *layers;
    struct oci_docker d = {0};
    if (parse(p, n, &root, "manifest.json", e) < 0)
        return -1;
    if (json_kind(root) != JSON_ARR || json_len(root) < 1)
        return err_set(e, E_INVALID, "manifest.json: not a list of images");
    if (json_len(root) > 1)
        return err_set(e, E_INVALID, "the archive has %zu images; export just one", json_len(root));
    struct json *image = json_at(root, 0);
    if (json_kind(image) != JSON_OBJ)
        return err_set(e, E_INVALID, "manifest.json: not an image");
    if (json_arr(image, "Layers", &layers, true, e) < 0)
        return err_wrap(e, "manifest.json");
    if (json_len(layers) > OCI_LAYERS_MAX)
        return err_set(e, E_TOO_LARGE, "image has more than %d layers", OCI_LAYERS_MAX);
    struct json *config = json_get(image, "Config");
    if (!config)
        return err_set(e, E_INVALID, "manifest.json: Config is missing");
    if (member_name(config, &d.config, e) < 0)
        return -1;
    for (size_t i = 0; i < json_len(layers); i++) {
        if (member_name(json_at(layers, i), &d.layer[d.nlayers], e) < 0) {
            oci_docker_fini(&d);
            return -1;
        }
        d.nlayers++;
    }
    *ret = d;
    return 0;
}

/* ---- config ----------------------------------------------------------------------------------------------------- */

static void list_fini(struct oci_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct oci_list){0};
}

void oci_config_fini(struct oci_config *c)
{
    list_fini(&c->env);
    list_fini(&c->entrypoint);
    list_fini(&c->cmd);
    free(c->user);
    free(c->workdir);
    c->user = c->workdir = NULL;
}

static int read_string(struct json *obj, const char *key, char **ret, size_t *total, struct err *e)
{
    struct str s = S("");
    if (json_str(obj, key, &s, false, e) < 0)
        return -1;
    if (s.n > OCI_STRING_MAX)
        return err_set(e, E_TOO_LARGE, "image config: %s is too long", key);
    *total += s.n;
    *ret = xstrndup(s.p, s.n);
    return 0;
}

static int read_list(struct json *obj, const char *key, struct oci_list *ret, size_t *total, struct err *e)
{
    struct json *arr = NULL;
    if (json_arr(obj, key, &arr, false, e) < 0)
        return -1;
    size_t n = arr ? json_len(arr) : 0;
    if (n > OCI_LIST_MAX)
        return err_set(e, E_TOO_LARGE, "image config: %s has more than %d entries", key, OCI_LIST_MAX);
    ret->v = xcalloc(n, sizeof *ret->v);
    for (size_t i = 0; i < n; i++) {
        struct str s;
        if (json_to_str(json_at(arr, i), &s, e) < 0)
            return -1;
        if (s.n > OCI_STRING_MAX)
            return err_set(e, E_TOO_LARGE, "image config: %s[%zu] is too long", key, i);
        *total += s.n;
        ret->v[ret->n++] = xstrndup(s.p, s.n);
    }
    return 0;
}

static bool env_ok(const char *kv)
{
    const char *eq = strchr(kv, '=');
    if (!eq || eq == kv)
        return false;
    for (const char *c = kv; c < eq; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return false;
    return true;
}

/* The same five fields under Docker's names and under ours. */
struct config_keys { const char *env, *entrypoint, *cmd, *user, *workdir; };

static int read_runtime(struct json *obj, const struct config_keys *k, struct oci_config *c, struct err *e)
{
    size_t total = 0;
    if (read_list(obj, k->env, &c->env, &total, e) < 0 || read_list(obj, k->entrypoint, &c->entrypoint, &total, e) < 0 ||
        read_list(obj, k->cmd, &c->cmd, &total, e) < 0 || read_string(obj, k->user, &c->user, &total, e) < 0 ||
        read_string(obj, k->workdir, &c->workdir, &total, e) < 0)
        return err_wrap(e, "image config");
    if (total > OCI_CONFIG_MAX / 8) /* escaped as \u00XX in the worst case */
        return err_set(e, E_TOO_LARGE, "image config: environment and commands take more than %u bytes", OCI_CONFIG_MAX / 8);
    for (size_t i = 0; i < c->env.n; i++)
        if (!env_ok(c->env.v[i]))
            return err_set(e, E_INVALID, "image config: environment entry %zu is not NAME=value", i + 1);
    if (*c->workdir && *c->workdir != '/')
        return err_set(e, E_INVALID, "image config: the working directory is not absolute");
    return 0;
}

static int read_diff_ids(struct json *root, struct oci_config *c, struct err *e)
{
    struct json *rootfs, *ids;
    if (json_obj(root, "rootfs", &rootfs, true, e) < 0 || json_arr(rootfs, "diff_ids", &ids, true, e) < 0)
        return err_wrap(e, "image config");
    if (json_len(ids) > OCI_LAYERS_MAX)
        return err_set(e, E_TOO_LARGE, "image has more than %d layers", OCI_LAYERS_MAX);
    for (size_t i = 0; i < json_len(ids); i++) {
        struct str s;
        struct json *j = json_at(ids, i);
        if (json_to_str(j, &s, e) < 0 || read_digest(j, s, c->diff_id[i], e) < 0)
            return err_wrap(e, "image config");
        c->ndiff++;
    }
    return 0;
}

int oci_config(const char *p, size_t n, struct oci_config *ret, struct err *e)
{
    static const struct config_keys keys = {"Env", "Entrypoint", "Cmd", "User", "WorkingDir"};
    auto_json root = NULL;
    struct json *run = NULL;
    struct str os, arch;
    if (parse(p, n, &root, "image config", e) < 0)
        return -1;
    if (json_kind(root) != JSON_OBJ)
        return err_set(e, E_INVALID, "image config: not an object");
    if (json_str(root, "os", &os, true, e) < 0 || json_str(root, "architecture", &arch, true, e) < 0 ||
        json_obj(root, "config", &run, false, e) < 0)
        return err_wrap(e, "image config");
    if (!str_eqz(os, "linux") || !str_eqz(arch, "amd64"))
        return err_set(e, E_UNSUPPORTED, "the image is not for linux/amd64");
    memset(ret, 0, sizeof *ret);
    if (read_diff_ids(root, ret, e) < 0 || read_runtime(run, &keys, ret, e) < 0) {
        oci_config_fini(ret);
        return -1;
    }
    return 0;
}

static void write_list(struct jw *w, const char *key, const struct oci_list *l)
{
    jw_kv_arr(w, key);
    for (size_t i = 0; i < l->n; i++)
        jw_strz(w, l->v[i]);
    jw_end(w);
}

void oci_config_write(const struct oci_config *c, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    write_list(&w, "env", &c->env);
    write_list(&w, "entrypoint", &c->entrypoint);
    write_list(&w, "cmd", &c->cmd);
    jw_kv_str(&w, "user", c->user ? c->user : "");
    jw_kv_str(&w, "workdir", c->workdir ? c->workdir : "");
    jw_end(&w);
}

int oci_config_read(const char *p, size_t n, struct oci_config *ret, struct err *e)
{
    static const struct config_keys keys = {"env", "entrypoint", "cmd", "user", "workdir"};
    if (n > OCI_CONFIG_MAX)
        return err_set(e, E_TOO_LARGE, "image config is larger than %u bytes", OCI_CONFIG_MAX);
    auto_json root = json_parse_obj(p, n, e);
    if (!root || json_only(root, e, "env", "entrypoint", "cmd", "user", "workdir", NULL) < 0)
        return err_wrap(e, "image config");
    memset(ret, 0, sizeof *ret);
    if (read_runtime(root, &keys, ret, e) < 0) {
        oci_config_fini(ret);
        return -1;
    }
    return 0;
}
