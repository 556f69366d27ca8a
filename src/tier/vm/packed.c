/* What a snapshot of a VM takes along to another home, and how such a thing
 * comes in. The texts are the manifests of variant and snapshots as they lie on
 * disk; only ids are put in anew. Everything here blocks and runs on workers,
 * but for vm_unpack_new. */
#include "tier/vm/qcow2.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "json/read.h"
#include "json/write.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_MAX (60u << 10) /* a manifest, with room for ids */

struct vm_unpack {
    struct vm_identity ident;
    struct vm_machine machine; /* of the snapshot itself, as the pack has it */
    char *variant, *text[SP_LAYERS_MAX + 1];
    unsigned n;
    bool memory;
};

/* ---- out --------------------------------------------------------------------------------------------------------- */

void vm_pack_close(struct vm_pack *p)
{
    int *fds[] = {&p->image, &p->ram, &p->devices, &p->boot, &p->state, &p->pages};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        cleanup_fd(fds[i]);
    for (unsigned i = 0; i < p->n; i++) {
        cleanup_fd(&p->disk[i]);
        free(p->text[i]);
    }
    free(p->variant);
    *p = (struct vm_pack){
        .image = -1, .ram = -1, .devices = -1, .boot = -1, .state = -1, .pages = -1};
}

static int open_at(int dir, const char *name, int *ret, struct err *e)
{
    *ret = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? err_sys(e, errno, "a file of the snapshot") : 0;
}

static int read_text(int dir, char **ret, struct err *e)
{
    size_t n;
    *ret = fd_slurp_at(dir, "manifest.json", TEXT_MAX, &n);
    if (!*ret)
        return err_sys(e, errno, "manifest of a snapshot");
    while (n && (*ret)[n - 1] == '\n')
        (*ret)[--n] = 0;
    return 0;
}

static int open_machine(struct vm_pack *p, int home, const char *id, struct savedfile *ret,
                        struct err *e)
{
    auto_fd dir = saved_dir_open(home, NULL, id, e);
    unsigned i = p->n;
    if (dir < 0 || savedfile_machine(ret, dir, e))
        return -1;
    p->disk[i] = -1;
    p->n++;
    if (read_text(dir, &p->text[i], e) || open_at(dir, "disk.qcow2", &p->disk[i], e))
        return -1;
    return 0;
}

int vm_pack_open(int home, const char *snapshot_id, struct vm_pack *p, struct err *e)
{
    struct savedfile top = {.state_fd = -1, .index_fd = -1}, below = top;
    char path[32 + SP_ID + VM_KEY_SIZE];
    *p = (struct vm_pack){
        .image = -1, .ram = -1, .devices = -1, .boot = -1, .state = -1, .pages = -1};
    auto_fd dir = saved_dir_open(home, NULL, snapshot_id, e);
    if (dir < 0 || savedfile_machine(&top, dir, e))
        return -1;
    for (int i = 0; i < top.machine.layers.n; i++)
        if (open_machine(p, home, top.machine.layers.id[i], &below, e))
            return -1;
    if (open_machine(p, home, snapshot_id, &below, e))
        return -1;
    if (top.facts.memory &&
        (open_at(dir, "state", &p->state, e) || open_at(dir, "pages.idx", &p->pages, e)))
        return -1;
    (void)snprintf(path, sizeof path, "templates/%s/rootfs.ext4", top.machine.spec.template_id);
    if (open_at(home, path, &p->image, e))
        return -1;
    (void)snprintf(path, sizeof path, "templates/%s/vm/%s", top.machine.spec.template_id,
                   top.machine.key);
    auto_fd var = openat(home, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (var < 0)
        return err_set(e, E_CONFLICT,
                       "the template's VM snapshot that it is based on no longer exists");
    return read_text(var, &p->variant, e) || open_at(var, "ram", &p->ram, e) ||
                   open_at(var, "state", &p->devices, e) || open_at(var, "disk.qcow2", &p->boot, e)
               ? -1
               : 0;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

struct vm_unpack *vm_unpack_new(const struct vm_host *h)
{
    struct vm_unpack *u = xcalloc(1, sizeof *u);
    u->ident = h->ident;
    return u;
}

void vm_unpack_free(struct vm_unpack *u)
{
    if (!u)
        return;
    for (unsigned i = 0; i < u->n; i++)
        free(u->text[i]);
    free(u->variant);
    free(u);
}

const char *vm_unpack_key(const struct vm_unpack *u) { return u->machine.key; }

static int damaged(struct err *e)
{
    return err_set(e, E_INVALID, "the pack describes an impossible machine");
}

static int same(struct json *j, const char *key, const char *what, const char *want, struct err *e)
{
    struct str s = {0};
    if (json_str(j, key, &s, true, NULL))
        return damaged(e);
    return str_eqz(s, want)
               ? 0
               : err_set(
                     e, E_CONFLICT,
                     "the pack was made with another %s than this host has; it can only be used where they are the same",
                     what);
}

/* With memory everything that runs in it counts, too. */
static int check_host(struct vm_unpack *u, struct json *j, struct err *e)
{
    const struct vm_identity *id = &u->ident;
    int64_t format = 0;
    if (json_i64(j, "format", 0, UINT32_MAX, 0, &format, NULL))
        return damaged(e);
    if (format != VM_FORMAT)
        return err_set(e, E_CONFLICT, "the pack's machine is of format %lld, this hutch has %d",
                       (long long)format, VM_FORMAT);
    if (same(j, "accel", "accelerator", id->accel == SP_ACCEL_KVM ? "kvm" : "tcg", e) ||
        same(j, "cpu", "processor model", id->cpu, e) || same(j, "qemu", "QEMU", id->qemu, e))
        return -1;
    if (u->memory && (same(j, "kernel", "guest kernel", id->kernel, e) ||
                      same(j, "kernel_sums", "guest kernel", id->kernel_sums, e) ||
                      same(j, "agent", "version of hutch's agent", id->agent, e)))
        return -1;
    return 0;
}

static int read_machine(struct vm_unpack *u, unsigned i, struct vm_machine *ret, struct err *e)
{
    auto_json j = json_parse_obj(u->text[i], strlen(u->text[i]), NULL);
    bool memory = false;
    if (!j || machine_get(json_get(j, "machine"), ret, NULL) ||
        json_bool(j, "memory", false, &memory, NULL))
        return damaged(e);
    return i + 1 == u->n && memory != u->memory ? damaged(e) : 0;
}

static int check_machines(struct vm_unpack *u, const struct vm_spec *spec, struct err *e)
{
    for (unsigned i = 0; i < u->n; i++) {
        struct vm_machine m;
        if (read_machine(u, i, &m, e))
            return -1;
        if (!i)
            u->machine = m;
        if (strcmp(m.spec.template_id, spec->template_id) || m.spec.ram_mib != spec->ram_mib ||
            m.spec.disk_mib != spec->disk_mib || m.spec.vcpus != u->machine.spec.vcpus ||
            strcmp(m.key, u->machine.key) || strcmp(m.ram_sha256, u->machine.ram_sha256) ||
            strcmp(m.disk_sha256, u->machine.disk_sha256) || m.layers.n != (int)i)
            return damaged(e);
    }
    return 0;
}

int vm_unpack_fit(struct vm_unpack *u, const struct vm_spec *spec, bool memory, const char *variant,
                  char *const *machine, unsigned n, struct err *e)
{
    struct vm_identity id = u->ident;
    struct manifest m;
    if (!n || n > SP_LAYERS_MAX || strlen(variant) > TEXT_MAX)
        return damaged(e);
    u->memory = memory;
    u->variant = xstrdup(variant);
    for (; u->n < n; u->n++) {
        if (strlen(machine[u->n]) > TEXT_MAX)
            return damaged(e);
        u->text[u->n] = xstrdup(machine[u->n]);
    }
    auto_json j = json_parse_obj(variant, strlen(variant), NULL);
    if (!j)
        return damaged(e);
    if (check_host(u, j, e) || check_machines(u, spec, e))
        return -1;
    id.agent[0] = 0; /* compared above */
    struct vm_spec full = *spec;
    full.vcpus = u->machine.spec.vcpus;
    if (varmanifest_read(variant, strlen(variant), &full, &id, u->machine.key, &m, e))
        return err_wrap(e, "the pack");
    if (strcmp(m.ram.sha256, u->machine.ram_sha256) ||
        strcmp(m.disk.sha256, u->machine.disk_sha256))
        return damaged(e);
    return 0;
}

bool vm_unpack_same(const struct vm_unpack *u, int home, const char *template_id)
{
    char path[48 + SP_ID + VM_KEY_SIZE];
    struct str a[3] = {{0}}, b[3] = {{0}};
    static const char *const file[] = {"ram", "state", "disk"};
    (void)snprintf(path, sizeof path, "templates/%s/vm/%s/manifest.json", template_id,
                   u->machine.key);
    auto_free char *here = fd_slurp_at(home, path, 64u << 10, NULL);
    auto_json j = here ? json_parse_obj(here, strlen(here), NULL) : NULL;
    auto_json k = json_parse_obj(u->variant, strlen(u->variant), NULL);
    for (int i = 0; j && k && i < 3; i++)
        if (json_str(json_get(json_get(j, "files"), file[i]), "sha256", &a[i], true, NULL) ||
            json_str(json_get(json_get(k, "files"), file[i]), "sha256", &b[i], true, NULL) ||
            !str_eq(a[i], b[i]))
            return false;
    return j && k;
}

/* The object with one member put in anew. */
static int put_text(int dir, const char *text, const char *key, struct str value, struct err *e)
{
    auto_json j = json_parse_obj(text, strlen(text), e);
    auto_buf out = {0};
    struct jw w;
    if (!j)
        return -1;
    jw_init(&w, &out);
    jw_obj(&w);
    for (void *it = json_first(j); it; it = json_next(j, it)) {
        auto_buf v = {0};
        json_dump(json_iter_value(j, it), &v);
        jw_key_str(&w, json_iter_key(it));
        jw_raw(&w, str_eqz(json_iter_key(it), key) ? value : (struct str){v.p, v.n});
    }
    jw_end(&w);
    buf_putc(&out, '\n');
    (void)unlinkat(dir, "manifest.json", 0); /* absent the first time */
    auto_fd fd =
        openat(dir, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 || !fd_write_all(fd, out.p, out.n) || fdatasync(fd)
               ? err_sys(e, errno, "manifest of a snapshot")
               : 0;
}

static int check_disk(int dir, uint32_t disk_mib, struct err *e)
{
    uint64_t size;
    auto_fd fd = openat(dir, "disk.qcow2", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || qcow2_check_overlay(fd, &size, e))
        return fd < 0 ? err_sys(e, errno, "disk of the pack") : err_wrap(e, "disk of the pack");
    return size == (uint64_t)disk_mib << 20 ? 0 : damaged(e);
}

int vm_unpack_variant(struct vm_unpack *u, int dir, int image, const char *template_id,
                      struct err *e)
{
    struct manifest m;
    struct stat st;
    struct vm_spec spec = u->machine.spec;
    struct vm_identity id = u->ident;
    auto_buf tid = {0};
    id.agent[0] = 0;
    if (varmanifest_read(u->variant, strlen(u->variant), &spec, &id, u->machine.key, &m, e) ||
        fstat(image, &st))
        return damaged(e);
    if ((uint64_t)st.st_size != m.base_bytes)
        return damaged(e);
    /* a variant belongs to an image of that very time */
    struct timespec at[2] = {{.tv_nsec = UTIME_OMIT},
                             {m.base_mtime_ns / 1000000000, m.base_mtime_ns % 1000000000}};
    if (m.base_mtime_ns < 0 || futimens(image, at))
        return err_sys(e, EINVAL, "image of the pack");
    buf_printf(&tid, "\"%s\"", template_id);
    return check_disk(dir, spec.disk_mib, e) ||
                   put_text(dir, u->variant, "template", (struct str){tid.p, tid.n}, e)
               ? -1
               : 0;
}

int vm_unpack_machine(struct vm_unpack *u, unsigned i, int dir, const char *template_id,
                      const char (*ids)[22], struct err *e)
{
    struct savedfile f = {.state_fd = -1, .index_fd = -1};
    struct vm_machine m;
    auto_buf text = {0};
    struct jw w;
    if (check_disk(dir, u->machine.spec.disk_mib, e) || read_machine(u, i, &m, e))
        return -1;
    (void)snprintf(m.spec.template_id, sizeof m.spec.template_id, "%s", template_id);
    m.image[0] = 0; /* saved pages are relative to the variant */
    for (unsigned k = 0; k < i; k++)
        (void)snprintf(m.layers.id[k], sizeof m.layers.id[k], "%s", ids[k]);
    jw_init(&w, &text);
    jw_obj(&w);
    machine_put(&w, &m);
    jw_end(&w);
    if (put_text(dir, u->text[i], "machine", (struct str){text.p, text.n}, e))
        return -1;
    /* Read back as everyone will. A snapshot below needs its disk only: its memory did not come along. */
    int rc = i + 1 == u->n ? savedfile_open(&f, dir, &u->ident, e) : savedfile_machine(&f, dir, e);
    if (!rc && f.facts.memory && i + 1 == u->n)
        rc = savedfile_verify(&f, e);
    savedfile_close(&f);
    return rc ? err_wrap(e, "the pack") : 0;
}
