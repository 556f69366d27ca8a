/* A machine on disk: boxes/<bid>/saved, or snapshots/<sid>. Everything here
 * blocks and runs on workers.
 *
 *   state          QEMU migration stream: pages (spawn/pages.h), devices, end mark; absent if only files were kept
 *   pages.idx      which pages, and a checksum of each
 *   manifest.json  what it is, what it needs; without it a directory is nothing
 *
 * It is written under another name and renamed when all of it is on the disk. */
#include "tier/vm/qcow2.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/crc.h"
#include "base/enc.h"
#include "base/fd.h"
#include "json/read.h"
#include "json/write.h"
#include "spawn/pages.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SAVED_FORMAT      1
#define DEVICES_MAX       (64u << 20)
#define MANIFEST_MAX      (64u << 10)
#define TSC_TOLERANCE_PPM 200
#define VERIFY_PAGES      256u

static const char *const saved_files[] = {"state", "pages.idx", "manifest.json", "disk.qcow2"};

void savedtmp_init(struct savedtmp *t)
{
    *t = (struct savedtmp){.parent = -1,
                           .dir = -1,
                           .state_fd = -1,
                           .index_fd = -1,
                           .dev_fd = -1,
                           .from_fd = -1,
                           .disk_fd = -1};
}

static void remove_saved_dir(int parent, const char *name)
{
    auto_fd dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; dir >= 0 && i < sizeof saved_files / sizeof *saved_files; i++)
        (void)unlinkat(dir, saved_files[i], 0); /* absent is fine */
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

void savedtmp_drop(struct savedtmp *t)
{
    if (t->parent >= 0 && t->tmp[0])
        remove_saved_dir(t->parent, t->tmp);
    cleanup_fd(&t->parent);
    cleanup_fd(&t->dir);
    cleanup_fd(&t->state_fd);
    cleanup_fd(&t->index_fd);
    cleanup_fd(&t->dev_fd);
    cleanup_fd(&t->from_fd);
    cleanup_fd(&t->disk_fd);
    savedtmp_init(t);
}

static int parent_open(int home, const char *box_id, const char *snapshot_id, struct err *e)
{
    char path[8 + SP_ID] = "snapshots";
    if (!snapshot_id)
        (void)snprintf(path, sizeof path, "boxes/%s", box_id);
    int fd = openat(home, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "directory of a saved machine") : fd;
}

int saved_dir_open(int home, const char *box_id, const char *snapshot_id, struct err *e)
{
    auto_fd parent = parent_open(home, box_id, snapshot_id, e);
    if (parent < 0)
        return -1;
    int fd = openat(parent, snapshot_id ? snapshot_id : "saved",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(e, E_NOT_FOUND, "it was not saved");
    return fd < 0 ? err_sys(e, errno, "directory of a saved machine") : fd;
}

void saved_remove(int home, const char *box_id)
{
    auto_fd parent = parent_open(home, box_id, NULL, NULL);
    if (parent < 0)
        return;
    /* the manifest first: a crash on the way leaves something that nobody takes for a machine */
    (void)unlinkat(parent, "saved/manifest.json", 0);
    remove_saved_dir(parent, "saved");
}

int savedtmp_open(struct savedtmp *t, int home, const char *box_id, const char *snapshot_id,
                  bool memory, struct err *e)
{
    t->memory = memory;
    t->parent = parent_open(home, box_id, snapshot_id, e);
    if (t->parent < 0)
        return -1;
    (void)snprintf(t->name, sizeof t->name, "%s", snapshot_id ? snapshot_id : "saved");
    (void)snprintf(t->tmp, sizeof t->tmp, ".%s.tmp", t->name);
    remove_saved_dir(t->parent, t->tmp); /* of a daemon that was killed */
    if (mkdirat(t->parent, t->tmp, 0700)) {
        t->tmp[0] = '\0';
        return err_sys(e, errno, "directory of a saved machine");
    }
    t->dir = openat(t->parent, t->tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->dir < 0)
        return err_sys(e, errno, "directory of a saved machine");
    if (!memory)
        return 0;
    t->state_fd = openat(t->dir, "state", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    t->index_fd = openat(t->dir, "pages.idx", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    t->dev_fd = memfd_create("hutch-devices", MFD_CLOEXEC);
    if (t->state_fd < 0 || t->index_fd < 0 || t->dev_fd < 0)
        return err_sys(e, errno, "files of a saved machine");
    return 0;
}

int savedtmp_open_disk(struct savedtmp *t, int home, const char *box_id, uint32_t top,
                       struct err *e)
{
    char path[48 + SP_ID], name[24];
    machine_top_name(top, name);
    (void)snprintf(path, sizeof path, "boxes/%s/%s", box_id, name);
    t->from_fd = openat(home, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    t->disk_fd = openat(t->dir, "disk.qcow2", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return t->from_fd < 0 || t->disk_fd < 0 ? err_sys(e, errno, "disk of a snapshot") : 0;
}

int savedtmp_copy_disk(struct savedtmp *t, struct err *e)
{
    uint64_t size;
    return copy_sparse(t->from_fd, t->disk_fd, e) || qcow2_check_overlay(t->disk_fd, &size, e) ? -1
                                                                                               : 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *accel_name(uint32_t accel) { return accel == SP_ACCEL_KVM ? "kvm" : "tcg"; }

/* What QEMU wrote goes behind the pages, without its own head. */
static int append_devices(struct savedtmp *t, struct saved_parts *f, struct err *e)
{
    struct stat st, pages;
    if (fstat(t->dev_fd, &st) || fstat(t->state_fd, &pages))
        return err_sys(e, errno, "device state");
    if (st.st_size <= (off_t)QEVM_HEAD || st.st_size > (off_t)DEVICES_MAX)
        return err_set(e, E_GUEST, "the emulator wrote an invalid device state");
    size_t n = (size_t)st.st_size;
    auto_free unsigned char *p = xmalloc(n);
    if (pread(t->dev_fd, p, n, 0) != (ssize_t)n)
        return err_sys(e, errno, "device state");
    if (memcmp(p, "QEVM\0\0\0\3", QEVM_HEAD))
        return err_set(e, E_GUEST, "the emulator wrote an invalid device state");
    if (lseek(t->state_fd, 0, SEEK_END) < 0 ||
        !fd_write_all(t->state_fd, p + QEVM_HEAD, n - QEVM_HEAD))
        return err_sys(e, errno, "device state");
    f->pages_bytes = (uint64_t)pages.st_size;
    f->devices_bytes = n - QEVM_HEAD;
    sha256_hex(p + QEVM_HEAD, n - QEVM_HEAD, f->devices_sha256);
    return 0;
}

static int count_pages(struct savedtmp *t, const struct vm_machine *m, const struct saved_parts *f,
                       struct vm_saved *facts, struct err *e)
{
    unsigned char head[PAGES_INDEX];
    struct stat st;
    if (pread(t->index_fd, head, sizeof head, 0) != (ssize_t)sizeof head || fstat(t->index_fd, &st))
        return err_sys(e, errno, "index of saved memory");
    facts->pages = get_le32(head + 12);
    if (facts->pages > m->spec.ram_mib * (1048576u / PAGE_BYTES) ||
        f->pages_bytes != pages_size(facts->pages))
        return err_set(e, E_INTERNAL, "the saved memory is not complete");
    facts->bytes = f->pages_bytes + f->devices_bytes + (uint64_t)st.st_size;
    return 0;
}

static void put_manifest(struct buf *out, const struct vm_machine *m, const struct vm_identity *id,
                         const struct vm_saved *s, const struct saved_parts *f)
{
    char at[32];
    struct jw w;
    clock_rfc3339(s->at_wall_ns, at);
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_u64(&w, "format", SAVED_FORMAT);
    jw_kv_u64(&w, "generation", s->generation);
    jw_kv_bool(&w, "memory", s->memory);
    jw_kv_str(&w, "created", at);
    jw_kv_i64(&w, "created_ns", s->at_wall_ns);
    jw_kv_u64(&w, "disk_bytes", s->disk_bytes);
    jw_kv_obj(&w, "machine");
    machine_put(&w, m);
    jw_end(&w);
    if (s->memory) {
        jw_kv_obj(&w, "emulator");
        jw_kv_u64(&w, "format", VM_FORMAT);
        jw_kv_str(&w, "accel", accel_name(id->accel));
        jw_kv_str(&w, "cpu", id->cpu);
        jw_kv_str(&w, "qemu", id->qemu);
        jw_kv_u64(&w, "tsc_khz", id->tsc_khz);
        jw_end(&w);
        jw_kv_u64(&w, "pages", s->pages);
        jw_kv_u64(&w, "bytes", s->bytes);
        jw_kv_u64(&w, "pages_bytes", f->pages_bytes);
        jw_kv_u64(&w, "devices_bytes", f->devices_bytes);
        jw_kv_str(&w, "devices_sha256", f->devices_sha256);
    }
    jw_end(&w);
    buf_putc(out, '\n');
}

int savedtmp_publish(struct savedtmp *t, const struct vm_machine *m, const struct vm_identity *id,
                     struct vm_saved *facts, struct err *e)
{
    facts->memory = t->memory;
    facts->at_wall_ns = clock_wall();
    if (t->memory && !t->whole &&
        (append_devices(t, &t->parts, e) || count_pages(t, m, &t->parts, facts, e)))
        return -1;
    struct stat disk;
    if (t->disk_fd >= 0 && (fdatasync(t->disk_fd) || fstat(t->disk_fd, &disk)))
        return err_sys(e, errno, "disk of a snapshot");
    facts->disk_bytes = t->disk_fd >= 0 ? (uint64_t)disk.st_blocks * 512 : 0;
    auto_buf text = {0};
    put_manifest(&text, m, id, facts, &t->parts);
    auto_fd man = openat(t->dir, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (man < 0 || !fd_write_all(man, text.p, text.n))
        return err_sys(e, errno, "manifest of a saved machine");
    if ((t->memory && !t->whole && (fdatasync(t->state_fd) || fdatasync(t->index_fd))) ||
        fdatasync(man) || fsync(t->dir))
        return err_sys(e, errno, "writing a saved machine to the disk");
    if (renameat2(t->parent, t->tmp, t->parent, t->name, RENAME_NOREPLACE)) {
        if (errno != EEXIST || renameat2(t->parent, t->tmp, t->parent, t->name, RENAME_EXCHANGE))
            return err_sys(e, errno, "publishing a saved machine");
        remove_saved_dir(t->parent, t->tmp); /* an earlier one that was resumed since */
    }
    t->tmp[0] = '\0';
    return fsync(t->parent) ? err_sys(e, errno, "publishing a saved machine") : 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void savedfile_close(struct savedfile *f)
{
    cleanup_fd(&f->state_fd);
    cleanup_fd(&f->index_fd);
    *f = (struct savedfile){.state_fd = -1, .index_fd = -1};
}

static int damaged(struct err *e)
{
    return err_set(
        e, E_CONFLICT,
        "the saved machine is damaged; its files are kept (resume with \"memory\": false boots it from them)");
}

static int differs(struct err *e, const char *what)
{
    return err_set(
        e, E_CONFLICT,
        "it was saved with another %s, so its memory cannot be used; its files are kept (resume with \"memory\": false boots it from them)",
        what);
}

static int check_emulator(struct json *j, const struct vm_identity *id, struct err *e)
{
    struct str accel = {0}, cpu = {0}, qemu = {0};
    int64_t format = 0, tsc = 0;
    if (json_i64(j, "format", 0, UINT32_MAX, 0, &format, NULL) ||
        json_str(j, "accel", &accel, true, NULL) || json_str(j, "cpu", &cpu, true, NULL) ||
        json_str(j, "qemu", &qemu, true, NULL) ||
        json_i64(j, "tsc_khz", 0, UINT32_MAX, 0, &tsc, NULL))
        return damaged(e);
    if (format != VM_FORMAT)
        return differs(e, "version of hutch's machine");
    if (!str_eqz(accel, accel_name(id->accel)))
        return differs(e, "accelerator");
    if (!str_eqz(cpu, id->cpu))
        return differs(e, "processor model");
    if (!str_eqz(qemu, id->qemu))
        return differs(e, "version of QEMU");
    int64_t diff = tsc > id->tsc_khz ? tsc - id->tsc_khz : id->tsc_khz - tsc;
    if (id->accel == SP_ACCEL_TCG && diff * 1000000 > (int64_t)id->tsc_khz * TSC_TOLERANCE_PPM)
        return differs(e, "clock rate of the processor");
    return 0;
}

static int check_devices(int fd, int64_t at, int64_t n, struct str want, struct err *e)
{
    char hex[SHA256_HEX];
    struct stat st;
    if (n <= 0 || n > (int64_t)DEVICES_MAX || fstat(fd, &st) || st.st_size != at + n)
        return damaged(e);
    auto_free char *p = xmalloc((size_t)n);
    if (pread(fd, p, (size_t)n, at) != n)
        return damaged(e);
    sha256_hex(p, (size_t)n, hex);
    return str_eqz(want, hex) ? 0 : damaged(e);
}

static struct json *read_manifest(struct savedfile *f, int dir, struct err *e)
{
    size_t n;
    auto_free char *text = fd_slurp_at(dir, "manifest.json", MANIFEST_MAX, &n);
    auto_json j = text ? json_parse_obj(text, n, NULL) : NULL;
    int64_t format = 0, generation = 0, disk = 0;
    struct err why;
    if (!j || json_i64(j, "format", 0, 1000, 0, &format, NULL) || format != SAVED_FORMAT ||
        json_i64(j, "generation", 0, INT64_MAX, 0, &generation, NULL) ||
        json_bool(j, "memory", false, &f->facts.memory, NULL) ||
        json_i64(j, "created_ns", 0, INT64_MAX, 0, &f->facts.at_wall_ns, NULL) ||
        json_i64(j, "disk_bytes", 0, INT64_MAX, 0, &disk, NULL) ||
        machine_get(json_get(j, "machine"), &f->machine, &why)) {
        (void)damaged(e);
        return NULL;
    }
    f->facts.generation = (uint64_t)generation;
    f->facts.disk_bytes = (uint64_t)disk;
    return take_ptr(&j);
}

int savedfile_machine(struct savedfile *f, int dir, struct err *e)
{
    auto_json j = read_manifest(f, dir, e);
    return j ? 0 : -1;
}

int savedfile_open(struct savedfile *f, int dir, const struct vm_identity *id, struct err *e)
{
    auto_json j = read_manifest(f, dir, e);
    int64_t pages = 0, bytes = 0, pages_bytes = 0, devices = 0;
    struct str sha = {0};
    if (!j)
        return -1;
    if (!f->facts.memory)
        return 0;
    if (check_emulator(json_get(j, "emulator"), id, e))
        return -1;
    if (json_i64(j, "pages", 0, f->machine.spec.ram_mib * 256ll, 0, &pages, NULL) ||
        json_i64(j, "bytes", 0, INT64_MAX, 0, &bytes, NULL) ||
        json_i64(j, "pages_bytes", 0, INT64_MAX, 0, &pages_bytes, NULL) ||
        json_i64(j, "devices_bytes", 0, INT64_MAX, 0, &devices, NULL) ||
        json_str(j, "devices_sha256", &sha, true, NULL) ||
        (uint64_t)pages_bytes != pages_size((uint32_t)pages))
        return damaged(e);
    f->facts.pages = (uint32_t)pages;
    f->facts.bytes = (uint64_t)bytes;
    f->parts.pages_bytes = (uint64_t)pages_bytes;
    f->parts.devices_bytes = (uint64_t)devices;
    (void)snprintf(f->parts.devices_sha256, sizeof f->parts.devices_sha256, "%.*s", (int)sha.n,
                   sha.p);
    f->state_fd = openat(dir, "state", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    f->index_fd = openat(dir, "pages.idx", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (f->state_fd < 0 || f->index_fd < 0)
        return damaged(e);
    return check_devices(f->state_fd, pages_bytes, devices, sha, e);
}

/* Every byte before the devices is known: head, marks and tail follow from the index, contents from the checksums. */
static int check_pages(const struct savedfile *f, int ram_fd /* -1: only looked at */,
                       struct err *e)
{
    struct stat st;
    uint32_t count = 0, ram_pages = f->machine.spec.ram_mib * (1048576u / PAGE_BYTES);
    unsigned char head[PAGES_HEAD], tail[PAGES_TAIL], mark[13], got[PAGES_HEAD + PAGES_TAIL];
    if (fstat(f->index_fd, &st) || st.st_size < PAGES_INDEX ||
        st.st_size > (off_t)PAGES_INDEX + (off_t)ram_pages * 8)
        return damaged(e);
    auto_free unsigned char *index = xmalloc((size_t)st.st_size);
    if (pread(f->index_fd, index, (size_t)st.st_size, 0) != st.st_size ||
        pages_index_check(index, (size_t)st.st_size, ram_pages, &count, NULL) ||
        count != f->facts.pages)
        return damaged(e);
    pages_head(head, ram_pages);
    pages_tail(tail);
    if (pread(f->state_fd, got, PAGES_HEAD, 0) != PAGES_HEAD || memcmp(got, head, PAGES_HEAD) ||
        pread(f->state_fd, got, PAGES_TAIL, (off_t)(pages_size(count) - PAGES_TAIL)) !=
            PAGES_TAIL ||
        memcmp(got, tail, PAGES_TAIL))
        return damaged(e);
    size_t cap = 13 + (size_t)VERIFY_PAGES * PAGES_RECORD;
    auto_free unsigned char *chunk = xmalloc(cap);
    for (uint32_t i = 0; i < count;) {
        uint32_t n = count - i < VERIFY_PAGES ? count - i : VERIFY_PAGES;
        uint64_t from = i ? pages_at(i) - 8 : PAGES_HEAD, to = pages_at(i + n - 1) + PAGE_BYTES;
        if (pread(f->state_fd, chunk, to - from, (off_t)from) != (ssize_t)(to - from))
            return damaged(e);
        for (uint32_t k = 0; k < n; k++, i++) {
            struct page_entry en = pages_entry_get(index + PAGES_INDEX + (size_t)i * 8);
            const unsigned char *page = chunk + (pages_at(i) - from);
            size_t len = pages_mark(mark, en.page, !i);
            if (memcmp(page - len, mark, len) || crc32c(0, page, PAGE_BYTES) != en.crc)
                return damaged(e);
            if (ram_fd >= 0 && pwrite(ram_fd, page, PAGE_BYTES, (off_t)en.page * PAGE_BYTES) !=
                                   (ssize_t)PAGE_BYTES)
                return err_sys(e, errno, "memory of a snapshot");
        }
    }
    return 0;
}
int savedfile_verify(const struct savedfile *f, struct err *e) { return check_pages(f, -1, e); }
int savedfile_apply(const struct savedfile *f, int ram_fd, struct err *e)
{
    return check_pages(f, ram_fd, e);
}

/* ---- from one to the other --------------------------------------------------------------------------------------- */

int savedtmp_link_memory(struct savedtmp *t, int home, const char *box_id,
                         const struct vm_identity *id, struct vm_machine *m, struct vm_saved *facts,
                         struct err *e)
{
    static const char *const names[] = {"state", "pages.idx"};
    struct savedfile f = {.state_fd = -1, .index_fd = -1};
    auto_fd dir = saved_dir_open(home, box_id, NULL, e);
    int rc = dir < 0 || savedfile_open(&f, dir, id, e) ? -1
             : f.facts.memory                          ? savedfile_verify(&f, e)
                              : err_set(e, E_NOT_FOUND, "it was saved without its memory");
    for (unsigned i = 0; !rc && i < sizeof names / sizeof *names; i++)
        if (linkat(dir, names[i], t->dir, names[i], 0))
            rc = err_sys(e, errno, "memory of a snapshot");
    if (!rc) {
        t->memory = t->whole = true;
        t->parts = f.parts;
        *m = f.machine;
        facts->pages = f.facts.pages;
        facts->bytes = f.facts.bytes;
    }
    savedfile_close(&f);
    return rc;
}
