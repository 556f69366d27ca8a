/* Files of a variant. Everything here blocks and runs on workers.
 *
 *   ram            sparse; pages that are all zero are holes. Its hash covers, for each page that is not zero, the page
 *                  number (u64 le) and the page, so holes may be laid out differently after a copy.
 *   state          device state, as QEMU wrote it
 *   disk.qcow2     overlay over the template's rootfs.ext4 as the boot left it; never written again
 *   manifest.json  see manifest.c; without it a directory is no variant */
#include "tier/vm/qcow2.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define STATE_MAX     (64u << 20)
#define MANIFEST_MAX  (64u << 10)
#define RUN_PAGES     256u /* pages written in one go */
#define STALE_SECONDS 3600
#define SEALS         (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const char *const var_files[] = {"state", "ram", "disk.qcow2", "manifest.json"};

void varfile_init(struct varfile *f)
{
    *f = (struct varfile){.ram_fd = -1, .state_fd = -1, .disk_fd = -1, .base_fd = -1};
}
void varfile_close(struct varfile *f)
{
    cleanup_fd(&f->ram_fd);
    cleanup_fd(&f->state_fd);
    cleanup_fd(&f->disk_fd);
    cleanup_fd(&f->base_fd);
    varfile_init(f);
}

int fd_reopen(int fd, int flags)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

static int open_template(int home, const char *tid, struct err *e)
{
    char path[16 + SP_ID];
    (void)snprintf(path, sizeof path, "templates/%s", tid);
    int fd = openat(home, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "template %s", tid) : fd;
}

static int base_facts(int base, struct manifest *m, struct err *e)
{
    struct stat st;
    if (fstat(base, &st))
        return err_sys(e, errno, "template image");
    if (!S_ISREG(st.st_mode) || !st.st_size || st.st_size % 512)
        return err_set(e, E_INVALID, "the template's image is not a disk image");
    m->base_bytes = (uint64_t)st.st_size;
    m->base_mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static int hash_file(int fd, struct manifest_file *ret, struct err *e)
{
    auto_free char *chunk = xmalloc(1 << 18);
    struct sha256 *h = sha256_new();
    uint64_t off = 0;
    for (;;) {
        ssize_t r = pread(fd, chunk, 1 << 18, (off_t)off);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            sha256_free(h);
            return err_sys(e, errno, "reading a VM snapshot");
        }
        if (!r)
            break;
        sha256_add(h, chunk, (size_t)r);
        off += (uint64_t)r;
    }
    ret->bytes = off;
    sha256_end_hex(h, ret->sha256);
    return 0;
}

/* ---- RAM --------------------------------------------------------------------------------------------------------- */

static bool page_is_zero(const unsigned char *p) { return !p[0] && !memcmp(p, p + 1, VM_PAGE - 1); }
static void hash_page(struct sha256 *h, uint64_t index, const unsigned char *p)
{
    unsigned char le[8];
    put_le64(le, index);
    sha256_add(h, le, sizeof le);
    sha256_add(h, p, VM_PAGE);
}

static int write_at(int fd, const unsigned char *p, size_t n, uint64_t off, struct err *e)
{
    while (n) {
        ssize_t w = pwrite(fd, p, n, (off_t)off);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(e, w < 0 ? errno : ENOSPC, "writing a VM snapshot");
        p += w, n -= (size_t)w, off += (uint64_t)w;
    }
    return 0;
}

/* Pages of [from, to) that are not zero go to `out`, runs in one write. */
static int save_extent(const unsigned char *ram, uint64_t from, uint64_t to, int out,
                       struct sha256 *h, uint64_t *bytes, struct err *e)
{
    for (uint64_t at = from; at < to;) {
        if (page_is_zero(ram + at)) {
            at += VM_PAGE;
            continue;
        }
        uint64_t end = at;
        do {
            hash_page(h, end / VM_PAGE, ram + end);
            end += VM_PAGE;
        } while (end < to && end - at < RUN_PAGES * VM_PAGE && !page_is_zero(ram + end));
        if (write_at(out, ram + at, end - at, at, e))
            return -1;
        *bytes += end - at;
        at = end;
    }
    return 0;
}

/* Next run of data at or after *from in a file of `size` bytes, page aligned. 0: one, 1: none, -1. */
static int next_data(int fd, uint64_t size, uint64_t *from, uint64_t *to, struct err *e)
{
    off_t a = lseek(fd, (off_t)*from, SEEK_DATA);
    if (a < 0 && errno == ENXIO)
        return 1;
    off_t b = a < 0 ? -1 : lseek(fd, a, SEEK_HOLE);
    if (b < 0)
        return err_sys(e, errno, "reading guest memory");
    *from = (uint64_t)a / VM_PAGE * VM_PAGE;
    *to = ((uint64_t)b + VM_PAGE - 1) / VM_PAGE * VM_PAGE;
    if (*to > size)
        *to = size;
    return *from >= size ? 1 : 0;
}

static int save_ram(int memfd, uint64_t size, int out, struct manifest_file *ret, struct err *e)
{
    if (ftruncate(out, (off_t)size))
        return err_sys(e, errno, "writing a VM snapshot");
    unsigned char *ram = mmap(NULL, size, PROT_READ, MAP_SHARED, memfd, 0);
    if (ram == MAP_FAILED)
        return err_sys(e, errno, "mapping guest memory");
    struct sha256 *h = sha256_new();
    uint64_t from = 0, to = 0, bytes = 0;
    int rc;
    while (!(rc = next_data(memfd, size, &from, &to, e))) {
        if ((rc = save_extent(ram, from, to, out, h, &bytes, e)))
            break;
        from = to;
    }
    (void)munmap(ram, size);
    if (rc < 0) {
        sha256_free(h);
        return -1;
    }
    ret->bytes = bytes;
    sha256_end_hex(h, ret->sha256);
    return 0;
}

/* The file's data into a fresh memfd, hashed on the way, then sealed: QEMU opens its RAM read-write even for a private
 * mapping, and a guest that owns its QEMU must not be able to change what the others map. */
static int load_ram(int in, uint64_t size, const struct manifest_file *want, struct err *e)
{
    struct stat st;
    if (fstat(in, &st) || (uint64_t)st.st_size != size)
        return err_set(e, E_CONFLICT,
                       "the VM snapshot's memory has the wrong size; it must be rebuilt");
    auto_fd fd = memfd_create("hutch-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size))
        return err_sys(e, errno, "guest memory");
    unsigned char *ram = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ram == MAP_FAILED)
        return err_sys(e, errno, "mapping guest memory");
    struct sha256 *h = sha256_new();
    uint64_t from = 0, to = 0, bytes = 0;
    int rc;
    while (!(rc = next_data(in, size, &from, &to, e))) {
        for (uint64_t at = from; at < to;) {
            size_t step = to - at < (4u << 20) ? to - at : 4u << 20;
            ssize_t r = pread(in, ram + at, step, (off_t)at);
            if (r < 0 && errno == EINTR)
                continue;
            if (r <= 0 || r % VM_PAGE) {
                rc = err_sys(e, r < 0 ? errno : EIO, "reading guest memory");
                break;
            }
            for (uint64_t p = at; p < at + (uint64_t)r; p += VM_PAGE) {
                if (page_is_zero(ram + p))
                    continue;
                hash_page(h, p / VM_PAGE, ram + p);
                bytes += VM_PAGE;
            }
            at += (uint64_t)r;
        }
        if (rc)
            break;
        from = to;
    }
    (void)munmap(ram, size); /* sealing needs it gone */
    char hex[SHA256_HEX];
    sha256_end_hex(h, hex);
    if (rc < 0)
        return -1;
    if (bytes != want->bytes || strcmp(hex, want->sha256))
        return err_set(e, E_CONFLICT, "the VM snapshot's memory is damaged; it must be rebuilt");
    if (fcntl(fd, F_ADD_SEALS, SEALS))
        return err_sys(e, errno, "sealing guest memory");
    return take_fd(&fd);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

void vartmp_init(struct vartmp *t)
{
    *t = (struct vartmp){
        .vm_dir = -1, .dir = -1, .ram_fd = -1, .disk_fd = -1, .base_fd = -1, .state_fd = -1};
}

void varfile_remove(int parent, const char *name)
{
    auto_fd dir = openat(parent, name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; dir >= 0 && i < sizeof var_files / sizeof *var_files; i++)
        (void)unlinkat(dir, var_files[i], 0); /* absent is fine */
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

void vartmp_drop(struct vartmp *t)
{
    if (t->vm_dir >= 0 && t->name[0])
        varfile_remove(t->vm_dir, t->name);
    cleanup_fd(&t->dir);
    cleanup_fd(&t->vm_dir);
    cleanup_fd(&t->ram_fd);
    cleanup_fd(&t->disk_fd);
    cleanup_fd(&t->base_fd);
    cleanup_fd(&t->state_fd);
    vartmp_init(t);
}

/* What a killed daemon left: temporary directories no build can still be using. */
static void sweep(int vm_dir)
{
    int fd = openat(vm_dir, ".", O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        cleanup_fd(&fd);
        return;
    }
    for (struct dirent *de; (de = readdir(d));) {
        struct stat st;
        if (de->d_name[0] == '.' && strlen(de->d_name) > VM_KEY_SIZE &&
            !fstatat(vm_dir, de->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode) &&
            st.st_mtim.tv_sec < time(NULL) - STALE_SECONDS)
            varfile_remove(vm_dir, de->d_name);
    }
    (void)closedir(d);
}

int vartmp_open(struct vartmp *t, int home, const struct vm_spec *spec, const char *key,
                struct err *e)
{
    auto_fd tdir = open_template(home, spec->template_id, e);
    if (tdir < 0)
        return -1;
    t->base_fd = openat(tdir, "rootfs.ext4", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (t->base_fd < 0)
        return err_sys(e, errno, "template %s: image", spec->template_id);
    struct manifest m = {0};
    if (base_facts(t->base_fd, &m, e))
        return -1;
    uint64_t disk = (uint64_t)spec->disk_mib << 20;
    if (disk < m.base_bytes)
        return err_set(e, E_INVALID, "disk_mib %u is smaller than the template's image (%llu MiB)",
                       spec->disk_mib, (unsigned long long)((m.base_bytes + (1 << 20) - 1) >> 20));
    if (mkdirat(tdir, "vm", 0700) && errno != EEXIST)
        return err_sys(e, errno, "template %s", spec->template_id);
    t->vm_dir = openat(tdir, "vm", O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->vm_dir < 0)
        return err_sys(e, errno, "template %s", spec->template_id);
    sweep(t->vm_dir);
    unsigned char rnd[6];
    char hex[13];
    random_bytes(rnd, sizeof rnd);
    hex_encode(rnd, sizeof rnd, hex);
    char name[sizeof t->name];
    (void)snprintf(name, sizeof name, ".%s.%s", key, hex);
    if (mkdirat(t->vm_dir, name, 0700))
        return err_sys(e, errno, "template %s", spec->template_id);
    memcpy(t->name, name, sizeof name);
    t->dir = openat(t->vm_dir, name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->dir < 0)
        return err_sys(e, errno, "template %s", spec->template_id);
    t->disk_fd = openat(t->dir, "disk.qcow2", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    t->state_fd = openat(t->dir, "state", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->disk_fd < 0 || t->state_fd < 0)
        return err_sys(e, errno, "template %s", spec->template_id);
    if (qcow2_create_overlay(t->disk_fd, disk, e))
        return -1;
    t->ram_fd = memfd_create("hutch-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (t->ram_fd < 0 || ftruncate(t->ram_fd, (off_t)spec->ram_mib << 20))
        return err_sys(e, errno, "guest memory");
    return 0;
}

int vartmp_publish(struct vartmp *t, const struct vm_spec *spec, const struct vm_identity *id,
                   const char *key, struct err *e)
{
    struct manifest m = {0};
    auto_fd ram = openat(t->dir, "ram", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    auto_fd state = openat(t->dir, "state", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_fd man = openat(t->dir, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (ram < 0 || state < 0 || man < 0)
        return err_sys(e, errno, "writing a VM snapshot");
    uint64_t size;
    if (save_ram(t->ram_fd, (uint64_t)spec->ram_mib << 20, ram, &m.ram, e) ||
        hash_file(state, &m.state, e) || hash_file(t->disk_fd, &m.disk, e) ||
        base_facts(t->base_fd, &m, e) || qcow2_check_overlay(t->disk_fd, &size, e))
        return -1;
    if (!m.state.bytes || m.state.bytes > STATE_MAX || size != (uint64_t)spec->disk_mib << 20)
        return err_set(e, E_GUEST, "the emulator wrote an invalid snapshot");
    auto_buf text = {0};
    varmanifest_write(&text, spec, id, key, &m);
    if (!fd_write_all(man, text.p, text.n))
        return err_sys(e, errno, "writing a VM snapshot");
    if (fdatasync(ram) || fdatasync(state) || fdatasync(t->disk_fd) || fdatasync(man) ||
        fsync(t->dir))
        return err_sys(e, errno, "writing a VM snapshot");
    /* An old one of this key takes our temporary name and goes; who has it loaded has its files open. */
    if (renameat2(t->vm_dir, t->name, t->vm_dir, key, RENAME_NOREPLACE)) {
        if (errno != EEXIST || renameat2(t->vm_dir, t->name, t->vm_dir, key, RENAME_EXCHANGE))
            return err_sys(e, errno, "publishing a VM snapshot");
        varfile_remove(t->vm_dir, t->name);
    }
    t->name[0] = '\0';
    (void)fsync(t->vm_dir); /* published already; a crash now at worst means another build */
    return 0;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static int open_checked(int dir, const char *name, const struct manifest_file *want, struct err *e)
{
    auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, E_CONFLICT, "the VM snapshot lacks a file; it must be rebuilt");
    struct manifest_file got;
    if (hash_file(fd, &got, e))
        return -1;
    if (got.bytes != want->bytes || strcmp(got.sha256, want->sha256))
        return err_set(e, E_CONFLICT, "the VM snapshot is damaged (%s); it must be rebuilt", name);
    return take_fd(&fd);
}

/* Its manifest and its two disks; the directory is the caller's to close. */
static int open_base(struct varfile *f, int home, const struct vm_spec *spec,
                     const struct vm_identity *id, const char *key, struct manifest *m,
                     struct err *e)
{
    auto_fd tdir = open_template(home, spec->template_id, e);
    if (tdir < 0)
        return -1;
    char path[8 + VM_KEY_SIZE];
    (void)snprintf(path, sizeof path, "vm/%s", key);
    auto_fd dir = openat(tdir, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 && errno == ENOENT)
        return err_set(e, E_NOT_FOUND, "template %s has no VM snapshot of this size yet",
                       spec->template_id);
    if (dir < 0)
        return err_sys(e, errno, "VM snapshot");
    size_t n;
    auto_free char *text = fd_slurp_at(dir, "manifest.json", MANIFEST_MAX, &n);
    if (!text)
        return err_set(e, E_CONFLICT, "the VM snapshot has no manifest; it must be rebuilt");
    struct manifest base = {0};
    if (varmanifest_read(text, n, spec, id, key, m, e))
        return -1;
    f->base_fd = openat(tdir, "rootfs.ext4", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (f->base_fd < 0)
        return err_sys(e, errno, "template %s: image", spec->template_id);
    if (base_facts(f->base_fd, &base, e))
        return -1;
    if (base.base_bytes != m->base_bytes || base.base_mtime_ns != m->base_mtime_ns)
        return err_set(
            e, E_CONFLICT,
            "the template's image changed after its VM snapshot was made; it must be rebuilt");
    f->disk_fd = open_checked(dir, "disk.qcow2", &m->disk, e);
    if (f->disk_fd < 0)
        return -1;
    memcpy(f->disk_sha256, m->disk.sha256, sizeof f->disk_sha256);
    return take_fd(&dir);
}

int varfile_open_disks(struct varfile *f, int home, const struct vm_spec *spec, const char *key,
                       struct err *e)
{
    struct manifest m;
    auto_fd dir = open_base(f, home, spec, NULL, key, &m, e);
    return dir < 0 ? -1 : 0;
}

int varfile_open(struct varfile *f, int home, const struct vm_spec *spec,
                 const struct vm_identity *id, const char *key, struct err *e)
{
    struct manifest m;
    auto_fd dir = open_base(f, home, spec, id, key, &m, e);
    if (dir < 0)
        return -1;
    f->state_fd = open_checked(dir, "state", &m.state, e);
    if (f->state_fd < 0)
        return -1;
    auto_fd ram = openat(dir, "ram", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (ram < 0)
        return err_set(e, E_CONFLICT, "the VM snapshot lacks a file; it must be rebuilt");
    f->ram_fd = load_ram(ram, (uint64_t)spec->ram_mib << 20, &m.ram, e);
    f->ram_bytes = m.ram.bytes;
    memcpy(f->ram_sha256, m.ram.sha256, sizeof f->ram_sha256);
    return f->ram_fd < 0 ? -1 : 0;
}
