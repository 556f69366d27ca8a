/* The manifest of a pack, and files as the blocks a pack holds. */
#include "image/pack.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "json/read.h"
#include "json/write.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT    1
#define MIB_MAX   (16u << 20)
#define ENV_BYTES 65536

static const char *const role_name[] = {"tree", "image", "ram", "devices", "boot", "disk", "state", "pages"};
const char *pack_role_name(enum pack_role r) { return role_name[r]; }

void pack_fini(struct pack *p)
{
    free(p->env), free(p->variant);
    for (unsigned i = 0; i < p->nmachines; i++)
        free(p->machine[i]);
    manifest_fini(&p->template);
    *p = (struct pack){0};
}

void pack_roles(struct pack *p)
{
    p->nparts = 0;
    if (!p->vm) {
        p->part[p->nparts++].role = PACK_TREE;
        return;
    }
    for (enum pack_role r = PACK_IMAGE; r <= PACK_BOOT; r++)
        p->part[p->nparts++].role = r;
    for (unsigned i = 0; i < p->nmachines; i++)
        p->part[p->nparts++].role = PACK_DISK;
    if (p->memory) {
        p->part[p->nparts++].role = PACK_STATE;
        p->part[p->nparts++].role = PACK_PAGES;
    }
}

uint64_t pack_bytes(const struct pack *p)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < p->nparts; i++)
        n += p->part[i].blocks * PACK_RECORD;
    return n;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

void pack_format(const struct pack *p, struct buf *ret)
{
    auto_buf template = {0};
    struct jw w;
    manifest_format(&p->template, &template);
    jw_init(&w, ret);
    jw_obj(&w);
    jw_kv_u64(&w, "format", FORMAT);
    jw_kv_str(&w, "tier", p->tier);
    jw_kv_bool(&w, "memory", p->memory);
    jw_kv_str(&w, "name", p->name);
    jw_kv_str(&w, "created", p->created);
    jw_kv_u64(&w, "cpu_millis", p->cpu_millis);
    jw_kv_u64(&w, "memory_mib", p->memory_mib);
    jw_kv_u64(&w, "disk_mib", p->disk_mib);
    jw_kv_u64(&w, "generation", p->generation);
    jw_kv_raw(&w, "env", str_of(p->env));
    jw_kv_raw(&w, "template", str_trim((struct str){template.p, template.n - 1}));
    if (p->vm) {
        jw_kv_raw(&w, "variant", str_of(p->variant));
        jw_kv_arr(&w, "machines");
        for (unsigned i = 0; i < p->nmachines; i++)
            jw_raw(&w, str_of(p->machine[i]));
        jw_end(&w);
    }
    jw_kv_arr(&w, "parts");
    for (unsigned i = 0; i < p->nparts; i++) {
        jw_obj(&w);
        jw_kv_str(&w, "role", role_name[p->part[i].role]);
        jw_kv_u64(&w, "bytes", p->part[i].bytes);
        jw_kv_u64(&w, "blocks", p->part[i].blocks);
        jw_kv_str(&w, "sha256", p->part[i].sha256);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static int fixed(struct json *j, const char *key, char *out, size_t cap, struct err *e)
{
    struct str s;
    if (json_str(j, key, &s, true, e))
        return -1;
    if (s.n >= cap)
        return err_set(e, E_INVALID, "%s: longer than %zu", key, cap - 1);
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return 0;
}

static int u64(struct json *j, const char *key, int64_t min, int64_t max, uint64_t *ret, struct err *e)
{
    int64_t v;
    if (json_need(j, e, key, NULL) || json_i64(j, key, min, max, 0, &v, e))
        return -1;
    *ret = (uint64_t)v;
    return 0;
}

static int u32(struct json *j, const char *key, int64_t max, uint32_t *ret, struct err *e)
{
    uint64_t v;
    if (u64(j, key, 1, max, &v, e))
        return -1;
    *ret = (uint32_t)v;
    return 0;
}

/* The text of a member that is an object: others know how to read it. */
static int object(struct json *j, char **ret, struct err *e)
{
    struct buf b = {0};
    if (json_kind(j) != JSON_OBJ)
        return err_set(e, E_INVALID, "env, template, variant and machines must be objects");
    json_dump(j, &b);
    *ret = buf_take(&b);
    return 0;
}

static int parse_env(struct json *root, struct pack *p, struct err *e)
{
    struct json *env = NULL;
    size_t n = 0;
    if (json_obj(root, "env", &env, true, e))
        return -1;
    for (void *it = json_first(env); it; it = json_next(env, it)) {
        struct str v;
        if (json_to_str(json_iter_value(env, it), &v, e))
            return -1;
        n += v.n + json_iter_key(it).n;
        if (!json_iter_key(it).n || memchr(json_iter_key(it).p, '=', json_iter_key(it).n))
            return err_set(e, E_INVALID, "env: an invalid name");
    }
    if (json_len(env) > MANIFEST_ENV_MAX || n > ENV_BYTES)
        return err_set(e, E_TOO_LARGE, "env: more than %d entries or %d bytes", MANIFEST_ENV_MAX, ENV_BYTES);
    return object(env, &p->env, e);
}

static int parse_template(struct json *root, struct pack *p, struct err *e)
{
    auto_free char *text = NULL;
    return object(json_get(root, "template"), &text, e) || manifest_parse(text, strlen(text), &p->template, e) ? -1 : 0;
}

static int parse_machines(struct json *root, struct pack *p, struct err *e)
{
    struct json *a = NULL;
    if (!p->vm)
        return json_has(root, "variant") || json_has(root, "machines") ? err_set(e, E_INVALID, "a container has no machines") : 0;
    if (json_arr(root, "machines", &a, true, e) || object(json_get(root, "variant"), &p->variant, e))
        return -1;
    if (!json_len(a) || json_len(a) > PACK_MACHINES_MAX)
        return err_set(e, E_INVALID, "machines: 1 to %d", PACK_MACHINES_MAX);
    for (size_t i = 0; i < json_len(a); i++) {
        if (object(json_at(a, i), &p->machine[i], e))
            return -1;
        p->nmachines++;
    }
    return 0;
}

/* What a part may be at most, so that nobody's disk is filled by a lie about a size. */
static uint64_t part_max(const struct pack *p, enum pack_role r)
{
    uint64_t ram = (uint64_t)p->memory_mib << 20, disk = (uint64_t)p->disk_mib << 20;
    switch (r) {
    case PACK_TREE: return PACK_TREE_MAX;
    case PACK_IMAGE: return disk;
    case PACK_RAM: return ram;
    case PACK_DEVICES: return PACK_DEVICES_MAX;
    case PACK_BOOT:
    case PACK_DISK: return disk + disk / 256 + (64u << 20); /* qcow2 around it */
    case PACK_STATE: return ram + ram / 256 + PACK_DEVICES_MAX + 4096;
    case PACK_PAGES: return ram / 512 + 4096;
    }
    return 0;
}

static int parse_parts(struct json *root, struct pack *p, struct err *e)
{
    struct json *a = NULL;
    if (json_arr(root, "parts", &a, true, e))
        return -1;
    pack_roles(p);
    if (json_len(a) != p->nparts)
        return err_set(e, E_INVALID, "parts: such a pack has %u", p->nparts);
    for (unsigned i = 0; i < p->nparts; i++) {
        struct json *j = json_at(a, i);
        struct pack_part *part = &p->part[i];
        uint64_t max = part_max(p, part->role);
        struct str role;
        if (json_only(j, e, "role", "bytes", "blocks", "sha256", NULL) || json_str(j, "role", &role, true, e) ||
            u64(j, "bytes", 1, INT64_MAX, &part->bytes, e) || u64(j, "blocks", 0, INT64_MAX, &part->blocks, e) ||
            fixed(j, "sha256", part->sha256, sizeof part->sha256, e))
            return -1;
        if (!str_eqz(role, role_name[part->role]))
            return err_set(e, E_INVALID, "parts[%u]: must be the %s", i, role_name[part->role]);
        if (part->bytes > max)
            return err_set(e, E_TOO_LARGE, "parts[%u]: the %s has %llu bytes; at most %llu are possible", i, role_name[part->role],
                           (unsigned long long)part->bytes, (unsigned long long)max);
        if (part->blocks > (part->bytes + PACK_BLOCK - 1) / PACK_BLOCK)
            return err_set(e, E_INVALID, "parts[%u]: more blocks than bytes", i);
        if (strlen(part->sha256) != SHA256_HEX - 1 || strspn(part->sha256, "0123456789abcdef") != SHA256_HEX - 1)
            return err_set(e, E_INVALID, "parts[%u]: sha256: not a digest", i);
    }
    return 0;
}

static int parse(struct json *j, struct pack *p, struct err *e)
{
    uint64_t format;
    if (json_only(j, e, "format", "tier", "memory", "name", "created", "cpu_millis", "memory_mib", "disk_mib", "generation", "env", "template", "variant", "machines", "parts", NULL) ||
        u64(j, "format", 1, INT64_MAX, &format, e))
        return -1;
    if (format != FORMAT)
        return err_set(e, E_UNSUPPORTED, "a pack of format %llu; this hutch reads format %d", (unsigned long long)format, FORMAT);
    if (fixed(j, "tier", p->tier, sizeof p->tier, e) || json_need(j, e, "memory", NULL) || json_bool(j, "memory", false, &p->memory, e) ||
        fixed(j, "name", p->name, sizeof p->name, e) || fixed(j, "created", p->created, sizeof p->created, e) ||
        u32(j, "cpu_millis", 64000, &p->cpu_millis, e) || u32(j, "memory_mib", 1 << 20, &p->memory_mib, e) || u32(j, "disk_mib", MIB_MAX, &p->disk_mib, e) ||
        u64(j, "generation", 0, INT64_MAX / 2, &p->generation, e))
        return -1;
    p->vm = !strcmp(p->tier, "vm");
    if (!p->vm && ((strcmp(p->tier, "container") && strcmp(p->tier, "gvisor")) || p->memory))
        return err_set(e, E_INVALID, "tier: vm, or container or gvisor without memory");
    if (*p->name && !name_ok(str_of(p->name)))
        return err_set(e, E_INVALID, "name: not a name");
    return parse_env(j, p, e) || parse_template(j, p, e) || parse_machines(j, p, e) || parse_parts(j, p, e) ? -1 : 0;
}

int pack_parse(const char *text, size_t n, struct pack *ret, struct err *e)
{
    struct pack p = {0};
    if (n > PACK_MANIFEST_MAX)
        return err_set(e, E_TOO_LARGE, "the pack's manifest is larger than %u bytes", PACK_MANIFEST_MAX);
    auto_json j = json_parse_obj(text, n, e);
    if (!j || parse(j, &p, e)) {
        pack_fini(&p);
        return err_wrap(e, "the pack's manifest");
    }
    *ret = p;
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool is_zero(const unsigned char *p) { return !p[0] && !memcmp(p, p + 1, PACK_BLOCK - 1); }

/* The block at or after *at where data begins; 1: none. */
static int skip_hole(int fd, uint64_t bytes, uint64_t *at, struct err *e)
{
    off_t data = lseek(fd, (off_t)*at, SEEK_DATA);
    if (data < 0 && errno == ENXIO)
        return 1;
    if (data < 0)
        return err_sys(e, errno, "reading a file of the snapshot");
    *at = (uint64_t)data / PACK_BLOCK * PACK_BLOCK;
    return *at >= bytes;
}

int pack_scan(int fd, uint64_t bytes, uint64_t *at, size_t max, void (*fn)(void *arg, uint64_t number, const unsigned char *block), void *arg, struct err *e)
{
    int rc = skip_hole(fd, bytes, at, e);
    if (rc)
        return rc;
    size_t want = max / PACK_BLOCK * PACK_BLOCK, got = 0;
    auto_free unsigned char *p = xcalloc(1, want);
    if (bytes - *at < want)
        want = (size_t)(bytes - *at);
    while (got < want) {
        ssize_t n = pread(fd, p + got, want - got, (off_t)(*at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(e, n ? errno : EIO, "reading a file of the snapshot");
        got += (size_t)n;
    }
    for (size_t i = 0; i < want; i += PACK_BLOCK)
        if (!is_zero(p + i))
            fn(arg, (*at + i) / PACK_BLOCK, p + i);
    *at += want;
    return *at >= bytes;
}

void pack_sum_block(struct sha256 *sum, uint64_t number, const unsigned char *block)
{
    unsigned char le[8];
    put_le64(le, number);
    sha256_add(sum, le, sizeof le);
    sha256_add(sum, block, PACK_BLOCK);
}

struct measure { struct sha256 *h; uint64_t blocks; };
static void add_block(void *arg, uint64_t number, const unsigned char *block)
{
    struct measure *m = arg;
    pack_sum_block(m->h, number, block);
    m->blocks++;
}

int pack_measure(int fd, struct pack_part *ret, struct err *e)
{
    struct measure m = {.h = sha256_new()};
    struct stat st;
    uint64_t at = 0;
    int rc = fstat(fd, &st) ? err_sys(e, errno, "reading a file of the snapshot") : 0;
    while (!rc)
        rc = pack_scan(fd, (uint64_t)st.st_size, &at, 1u << 20, add_block, &m, e);
    if (rc < 0) {
        sha256_free(m.h);
        return -1;
    }
    ret->bytes = (uint64_t)st.st_size;
    ret->blocks = m.blocks;
    sha256_end_hex(m.h, ret->sha256);
    return 0;
}

void pack_put_record(struct buf *b, uint64_t number, const unsigned char *block)
{
    unsigned char le[8];
    put_le64(le, number);
    buf_put(b, le, sizeof le);
    buf_put(b, block, PACK_BLOCK);
}
