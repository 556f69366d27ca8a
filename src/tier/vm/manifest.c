/* manifest.json of a variant: what it was made of, and the hashes of its
 * files. Device state is only meaningful to the very same emulator, machine
 * and kernel, so a difference anywhere is a refusal. */
#include "tier/vm/vm_int.h"
#include "base/clock.h"
#include "json/read.h"
#include "json/write.h"

#define TSC_TOLERANCE_PPM 200 /* two measurements of one machine differ by about 2 */

static void put_file(struct jw *w, const char *name, const struct manifest_file *f)
{
    jw_kv_obj(w, name);
    jw_kv_u64(w, "bytes", f->bytes);
    jw_kv_str(w, "sha256", f->sha256);
    jw_end(w);
}

void varmanifest_write(struct buf *out, const struct vm_spec *spec, const struct vm_identity *id,
                       const char *key, const struct manifest *m)
{
    char now[32];
    clock_rfc3339(clock_wall(), now);
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_u64(&w, "format", VM_FORMAT);
    jw_kv_str(&w, "key", key);
    jw_kv_str(&w, "template", spec->template_id);
    jw_kv_u64(&w, "ram_mib", spec->ram_mib);
    jw_kv_u64(&w, "vcpus", spec->vcpus);
    jw_kv_u64(&w, "disk_mib", spec->disk_mib);
    jw_kv_str(&w, "accel", id->accel == SP_ACCEL_KVM ? "kvm" : "tcg");
    jw_kv_str(&w, "cpu", id->cpu);
    jw_kv_str(&w, "qemu", id->qemu);
    jw_kv_str(&w, "kernel", id->kernel);
    jw_kv_str(&w, "kernel_sums", id->kernel_sums);
    jw_kv_str(&w, "agent", id->agent);
    jw_kv_u64(&w, "tsc_khz", id->tsc_khz);
    jw_kv_u64(&w, "base_bytes", m->base_bytes);
    jw_kv_i64(&w, "base_mtime_ns", m->base_mtime_ns);
    jw_kv_str(&w, "created", now);
    jw_kv_obj(&w, "files");
    put_file(&w, "state", &m->state);
    put_file(&w, "disk", &m->disk);
    put_file(&w, "ram", &m->ram);
    jw_end(&w);
    jw_end(&w);
    buf_putc(out, '\n');
}

static int other(struct err *e, const char *what)
{
    return err_set(e, E_CONFLICT,
                   "the VM snapshot of this template has another %s; it must be rebuilt", what);
}

static int same_str(struct json *j, const char *key, const char *want, struct err *e)
{
    struct str s = {0};
    return json_str(j, key, &s, true, NULL) || !str_eqz(s, want) ? other(e, key) : 0;
}
static int same_num(struct json *j, const char *key, uint32_t want, struct err *e)
{
    int64_t v = -1;
    return json_i64(j, key, 0, UINT32_MAX, -1, &v, NULL) || v != (int64_t)want ? other(e, key) : 0;
}
static int get_file(struct json *files, const char *name, struct manifest_file *ret, struct err *e)
{
    struct json *f = json_get(files, name);
    struct str s = {0};
    int64_t bytes = -1;
    if (!f || json_i64(f, "bytes", 0, INT64_MAX, -1, &bytes, NULL) || bytes < 0 ||
        json_str(f, "sha256", &s, true, NULL) || s.n != SHA256_HEX - 1)
        return err_set(e, E_CONFLICT, "the VM snapshot's manifest is damaged");
    ret->bytes = (uint64_t)bytes;
    memcpy(ret->sha256, s.p, SHA256_HEX);
    return 0;
}

int varmanifest_read(const char *p, size_t n, const struct vm_spec *spec,
                     const struct vm_identity *id, const char *key, struct manifest *ret,
                     struct err *e)
{
    auto_json j = json_parse_obj(p, n, NULL);
    if (!j)
        return err_set(e, E_CONFLICT, "the VM snapshot's manifest is damaged");
    if (same_str(j, "key", key, e) || same_str(j, "template", spec->template_id, e) ||
        same_num(j, "ram_mib", spec->ram_mib, e) || same_num(j, "vcpus", spec->vcpus, e) ||
        same_num(j, "disk_mib", spec->disk_mib, e))
        return -1;
    if (id && (same_num(j, "format", VM_FORMAT, e) ||
               same_str(j, "accel", id->accel == SP_ACCEL_KVM ? "kvm" : "tcg", e) ||
               same_str(j, "cpu", id->cpu, e) || same_str(j, "qemu", id->qemu, e)))
        return -1;
    if (id && *id->agent &&
        (same_str(j, "kernel", id->kernel, e) || same_str(j, "kernel_sums", id->kernel_sums, e) ||
         same_str(j, "agent", id->agent, e)))
        return -1;
    int64_t tsc = 0;
    if (json_i64(j, "tsc_khz", 0, UINT32_MAX, 0, &tsc, NULL))
        return other(e, "tsc_khz");
    if (id && id->accel == SP_ACCEL_TCG) { /* the guest's idea of time was set at boot */
        int64_t diff = tsc > id->tsc_khz ? tsc - id->tsc_khz : id->tsc_khz - tsc;
        if (diff * 1000000 > (int64_t)id->tsc_khz * TSC_TOLERANCE_PPM)
            return other(e, "tsc_khz");
    }
    struct manifest m = {0};
    int64_t base = -1;
    struct json *files = json_get(j, "files");
    if (json_i64(j, "base_bytes", 0, INT64_MAX, -1, &base, NULL) || base < 0 ||
        json_i64(j, "base_mtime_ns", INT64_MIN, INT64_MAX, 0, &m.base_mtime_ns, NULL))
        return err_set(e, E_CONFLICT, "the VM snapshot's manifest is damaged");
    m.base_bytes = (uint64_t)base;
    if (get_file(files, "state", &m.state, e) || get_file(files, "disk", &m.disk, e) ||
        get_file(files, "ram", &m.ram, e))
        return -1;
    *ret = m;
    return 0;
}
