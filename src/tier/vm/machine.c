/* machine.json: what a box's machine stands on. See struct vm_machine. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "json/read.h"
#include "json/write.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MACHINE_FORMAT 1
#define MACHINE_MAX    (16u << 10)
#define FILE_NAME      "machine.json"
#define FILE_TMP       ".machine.json"

void machine_of_variant(const struct vm_variant *v, struct vm_machine *ret)
{
    *ret = (struct vm_machine){.spec = v->spec};
    memcpy(ret->key, v->key, sizeof ret->key);
    memcpy(ret->ram_sha256, v->file.ram_sha256, sizeof ret->ram_sha256);
    memcpy(ret->disk_sha256, v->file.disk_sha256, sizeof ret->disk_sha256);
}

void machine_top_name(uint32_t top, char out[24])
{
    if (top)
        (void)snprintf(out, 24, "disk-%u.qcow2", top);
    else
        (void)snprintf(out, 24, "disk.qcow2");
}

void machine_put(struct jw *w, const struct vm_machine *m)
{
    jw_kv_str(w, "template", m->spec.template_id);
    jw_kv_u64(w, "ram_mib", m->spec.ram_mib);
    jw_kv_u64(w, "vcpus", m->spec.vcpus);
    jw_kv_u64(w, "disk_mib", m->spec.disk_mib);
    jw_kv_str(w, "variant", m->key);
    jw_kv_str(w, "variant_ram", m->ram_sha256);
    jw_kv_str(w, "variant_disk", m->disk_sha256);
    jw_kv_str(w, "image", *m->image ? m->image : NULL);
    jw_kv_bool(w, "booted", m->booted);
    jw_kv_arr(w, "layers");
    for (int i = 0; i < m->layers.n; i++)
        jw_strz(w, m->layers.id[i]);
    jw_end(w);
    jw_kv_u64(w, "top", m->top);
}

static int text(struct json *j, const char *key, char *out, size_t size, struct err *e)
{
    struct str s = {0};
    if (json_str(j, key, &s, true, e))
        return -1;
    if (s.n + 1 != size || strspn(s.p, "0123456789abcdef") != s.n)
        return err_set(e, E_INVALID, "%s: not a hash", key);
    memcpy(out, s.p, size);
    return 0;
}

static int get_id(struct str s, char out[SP_ID], struct err *e)
{
    if (!id_ok(s))
        return err_set(e, E_INVALID, "not an id");
    memset(out, 0, SP_ID);
    memcpy(out, s.p, s.n);
    return 0;
}

static int get_layers(struct json *j, struct vm_layers *ret, struct err *e)
{
    struct json *a = NULL;
    if (json_arr(j, "layers", &a, true, e))
        return -1;
    if (json_len(a) > SP_LAYERS_MAX)
        return err_set(e, E_INVALID, "layers: too many");
    for (size_t i = 0; i < json_len(a); i++) {
        struct str s;
        if (json_to_str(json_at(a, i), &s, e) || get_id(s, ret->id[i], e))
            return -1;
    }
    ret->n = (int)json_len(a);
    return 0;
}

int machine_get(struct json *j, struct vm_machine *ret, struct err *e)
{
    struct vm_machine m = {0};
    struct str template = {0}, image = {0};
    int64_t ram, cpus, disk, top;
    if (json_str(j, "template", &template, true, e) || get_id(template, m.spec.template_id, e) ||
        json_i64(j, "ram_mib", SP_MEM_MIN, SP_MEM_MAX, 0, &ram, e) ||
        json_i64(j, "vcpus", 1, SP_CPU_MAX, 0, &cpus, e) ||
        json_i64(j, "disk_mib", 1, SP_DISK_MAX, 0, &disk, e) ||
        text(j, "variant", m.key, sizeof m.key, e) ||
        text(j, "variant_ram", m.ram_sha256, sizeof m.ram_sha256, e) ||
        text(j, "variant_disk", m.disk_sha256, sizeof m.disk_sha256, e) ||
        json_str(j, "image", &image, false, e) || (image.p && get_id(image, m.image, e)) ||
        json_bool(j, "booted", false, &m.booted, e) || get_layers(j, &m.layers, e) ||
        json_i64(j, "top", 0, 1000000, 0, &top, e))
        return -1;
    if (!ram || !cpus || !disk)
        return err_set(e, E_INVALID, "a size is missing");
    m.spec.ram_mib = (uint32_t)ram, m.spec.vcpus = (uint32_t)cpus, m.spec.disk_mib = (uint32_t)disk,
    m.top = (uint32_t)top;
    *ret = m;
    return 0;
}

static int box_dir(int home, const char *box_id, struct err *e)
{
    char path[8 + SP_ID];
    (void)snprintf(path, sizeof path, "boxes/%s", box_id);
    int fd = openat(home, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "sandbox directory") : fd;
}

int machine_write(int home, const char *box_id, const struct vm_machine *m, bool durable,
                  struct err *e)
{
    auto_fd dir = box_dir(home, box_id, e);
    if (dir < 0)
        return -1;
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_u64(&w, "format", MACHINE_FORMAT);
    machine_put(&w, m);
    jw_end(&w);
    auto_fd fd = openat(dir, FILE_TMP, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || !fd_write_all(fd, b.p, b.n) || (durable && fdatasync(fd)) ||
        renameat(dir, FILE_TMP, dir, FILE_NAME) || (durable && fsync(dir)))
        return err_sys(e, errno, "recording what a machine is based on");
    return 0;
}

int vm_machine_read(int home, const char *box_id, struct vm_machine *ret, struct err *e)
{
    auto_fd dir = box_dir(home, box_id, e);
    if (dir < 0)
        return -1;
    size_t n;
    auto_free char *p = fd_slurp_at(dir, FILE_NAME, MACHINE_MAX, &n);
    if (!p)
        return errno == ENOENT ? err_set(e, E_NOT_FOUND, "there is no record of its machine")
                               : err_sys(e, errno, "its machine");
    auto_json j = json_parse_obj(p, n, NULL);
    int64_t format = 0;
    struct err why;
    if (!j || json_i64(j, "format", 0, 1000, 0, &format, NULL) || format != MACHINE_FORMAT ||
        machine_get(j, ret, &why))
        return err_set(e, E_CONFLICT, "the record of its machine is damaged or of another version");
    return 0;
}
