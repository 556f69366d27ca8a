/* The JSON of manifest.json; see manifest.h. */
#include "image/manifest.h"
#include "json/read.h"
#include "json/write.h"
#include <stdlib.h>
#include <string.h>

static const char *const source_name[] = {[MANIFEST_BOOTSTRAP] = "bootstrap", [MANIFEST_RECIPE] = "recipe", [MANIFEST_IMPORT] = "import", [MANIFEST_PACK] = "pack"};

const char *manifest_source_name(enum manifest_source s)
{
    return s >= MANIFEST_BOOTSTRAP && s <= MANIFEST_PACK ? source_name[s] : "unknown";
}

void manifest_fini(struct manifest *m)
{
    for (size_t i = 0; i < m->nenv; i++)
        free(m->env[i]);
    free(m->env);
    free(m->user);
    free(m->workdir);
    free(m->start);
    free(m->ready);
    free(m->kernels);
    free(m->content_key), free(m->tenant);
    free(m->packages);
    memset(m, 0, sizeof *m);
}

void manifest_add_env(struct manifest *m, const char *kv)
{
    m->env = xrealloc(m->env, (m->nenv + 1) * sizeof *m->env);
    m->env[m->nenv++] = xstrdup(kv);
}

void manifest_set(char **field, const char *value)
{
    char *copy = xstrdup(value ? value : "");
    free(*field);
    *field = copy;
}

/* ---- out -------------------------------------------------------------------------------------------------------- */

void manifest_format(const struct manifest *m, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_i64(&w, "version", 1);
    jw_kv_str(&w, "id", m->id);
    jw_kv_str(&w, "name", m->name);
    jw_kv_str(&w, "created", m->created);
    jw_kv_str(&w, "source", manifest_source_name(m->source));
    jw_kv_str(&w, "parent", m->parent);
    jw_kv_u64(&w, "size_bytes", m->size_bytes);
    jw_kv_str(&w, "rootfs_sha256", m->rootfs_sha256);
    jw_kv_u64(&w, "disk_min_mib", m->disk_min_mib);
    jw_kv_arr(&w, "env");
    for (size_t i = 0; i < m->nenv; i++)
        jw_strz(&w, m->env[i]);
    jw_end(&w);
    jw_kv_str(&w, "user", m->user ? m->user : "");
    jw_kv_str(&w, "workdir", m->workdir ? m->workdir : "");
    jw_kv_str(&w, "start", m->start ? m->start : "");
    jw_kv_str(&w, "ready", m->ready ? m->ready : "");
    jw_kv_str(&w, "kernels", m->kernels ? m->kernels : "");
    jw_kv_str(&w, "content_key", m->content_key ? m->content_key : "");
    if (m->tenant && *m->tenant)
        jw_kv_str(&w, "tenant", m->tenant);
    jw_kv_str(&w, "packages", m->packages ? m->packages : "");
    jw_end(&w);
    buf_putc(out, '\n');
}

/* ---- in --------------------------------------------------------------------------------------------------------- */

static int fixed(struct json *j, const char *key, char *out, size_t cap, struct err *e)
{
    struct str s;
    if (json_str(j, key, &s, true, e) < 0)
        return -1;
    if (s.n >= cap)
        return err_set(e, E_INVALID, "%s: too long", key);
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return 0;
}

static int text(struct json *j, const char *key, bool need, char **out, struct err *e)
{
    struct str s = S("");
    if (json_str(j, key, &s, need, e) < 0)
        return -1;
    if (s.n > MANIFEST_TEXT_MAX)
        return err_set(e, E_INVALID, "%s: too long", key);
    *out = xstrndup(s.p, s.n);
    return 0;
}

static bool digits_at(const char *s, const char *pattern)
{
    for (; *pattern; pattern++, s++)
        if (*pattern == '0' ? *s < '0' || *s > '9' : *s != *pattern)
            return false;
    return !*s;
}

static bool sha256_ok(const char *s) { return !*s || (strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64); }

static int parse_env(struct json *root, struct manifest *m, struct err *e)
{
    struct json *env;
    if (json_arr(root, "env", &env, true, e) < 0)
        return -1;
    if (json_len(env) > MANIFEST_ENV_MAX)
        return err_set(e, E_INVALID, "env: more than %d entries", MANIFEST_ENV_MAX);
    for (size_t i = 0; i < json_len(env); i++) {
        struct str s;
        struct json *j = json_at(env, i);
        if (json_to_str(j, &s, e) < 0)
            return -1;
        const char *eq = memchr(s.p, '=', s.n);
        if (!eq || eq == s.p || s.n > MANIFEST_TEXT_MAX)
            return json_fail(j, e, "not NAME=value");
        manifest_add_env(m, s.p);
    }
    return 0;
}

static int parse_fields(struct json *root, struct manifest *m, struct err *e)
{
    char source[16];
    int64_t version, size, disk;
    if (json_only(root, e, "version", "id", "name", "created", "source", "parent", "size_bytes", "rootfs_sha256", "disk_min_mib", "env", "user",
                  "workdir", "start", "ready", "kernels", "content_key", "tenant", "packages", NULL) < 0 ||
        json_need(root, e, "version", "size_bytes", "disk_min_mib", NULL) < 0 || json_i64(root, "version", 1, 1, 0, &version, e) < 0 ||
        fixed(root, "id", m->id, sizeof m->id, e) < 0 || fixed(root, "name", m->name, sizeof m->name, e) < 0 ||
        fixed(root, "created", m->created, sizeof m->created, e) < 0 || fixed(root, "source", source, sizeof source, e) < 0 ||
        fixed(root, "parent", m->parent, sizeof m->parent, e) < 0 || json_i64(root, "size_bytes", 1, INT64_MAX, 0, &size, e) < 0 ||
        fixed(root, "rootfs_sha256", m->rootfs_sha256, sizeof m->rootfs_sha256, e) < 0 ||
        json_i64(root, "disk_min_mib", 0, UINT32_MAX, 0, &disk, e) < 0 || parse_env(root, m, e) < 0 || text(root, "user", true, &m->user, e) < 0 ||
        text(root, "workdir", true, &m->workdir, e) < 0 || text(root, "start", true, &m->start, e) < 0 || text(root, "ready", true, &m->ready, e) < 0 ||
        text(root, "kernels", false, &m->kernels, e) < 0 || text(root, "tenant", false, &m->tenant, e) < 0 || text(root, "content_key", true, &m->content_key, e) < 0 || text(root, "packages", true, &m->packages, e) < 0)
        return -1;
    m->size_bytes = (uint64_t)size;
    m->disk_min_mib = (uint32_t)disk;
    for (int i = MANIFEST_BOOTSTRAP; i <= MANIFEST_PACK; i++)
        if (!strcmp(source, source_name[i]))
            m->source = (enum manifest_source)i;
    if (!m->source)
        return err_set(e, E_INVALID, "source: unknown");
    if (!id_ok(str_of(m->id)) || (*m->parent && !id_ok(str_of(m->parent))))
        return err_set(e, E_INVALID, "id: not an id");
    if (!name_ok(str_of(m->name)))
        return err_set(e, E_INVALID, "name: not a name");
    if (!digits_at(m->created, "0000-00-00T00:00:00.000Z"))
        return err_set(e, E_INVALID, "created: not a time");
    if (!sha256_ok(m->rootfs_sha256))
        return err_set(e, E_INVALID, "rootfs_sha256: not a digest");
    return 0;
}

int manifest_parse(const char *p, size_t n, struct manifest *ret, struct err *e)
{
    struct manifest m = {0};
    if (n > MANIFEST_BYTES_MAX)
        return err_set(e, E_TOO_LARGE, "manifest is larger than %u bytes", MANIFEST_BYTES_MAX);
    auto_json root = json_parse_obj(p, n, e);
    if (!root)
        return err_wrap(e, "manifest");
    if (parse_fields(root, &m, e) < 0) {
        manifest_fini(&m);
        return err_wrap(e, "manifest");
    }
    *ret = m;
    return 0;
}
