#include "core/pack/stage.h"
#include "tier/vm/vm.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/tree.h"
#include "core/host/host.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SPARE   (64ull << 20) /* what a disk must have left afterwards */
#define CONTENT "pack:" /* content key of a template that came in a pack: the sum of its image */

static const char *own_id(const struct pack_stage *s) { return s->id[s->n - 1]; }

/* ---- where things go --------------------------------------------------------------------------------------------- */

/* Path of a part below the staging directory; false: it is not written. */
static bool place(const struct pack_stage *s, unsigned part, char *out, size_t cap)
{
    enum pack_role r = s->pack->part[part].role;
    unsigned disk = 0;
    for (unsigned i = 0; i < part; i++)
        disk += s->pack->part[i].role == PACK_DISK;
    switch (r) {
    case PACK_IMAGE: (void)snprintf(out, cap, "t/rootfs.ext4"); break;
    case PACK_RAM: (void)snprintf(out, cap, "t/vm/%s/ram", vm_unpack_key(s->vm)); break;
    case PACK_DEVICES: (void)snprintf(out, cap, "t/vm/%s/state", vm_unpack_key(s->vm)); break;
    case PACK_BOOT: (void)snprintf(out, cap, "t/vm/%s/disk.qcow2", vm_unpack_key(s->vm)); break;
    case PACK_DISK: (void)snprintf(out, cap, "%u/disk.qcow2", disk); break;
    case PACK_STATE: (void)snprintf(out, cap, "%u/state", s->n - 1); break;
    case PACK_PAGES: (void)snprintf(out, cap, "%u/pages.idx", s->n - 1); break;
    case PACK_TREE: return false;
    }
    return r >= PACK_DISK || !s->reuse;
}

static int make_dirs(struct pack_stage *s, struct err *e)
{
    char name[64];
    (void)snprintf(name, sizeof name, "snapshots/.%s.tmp", own_id(s));
    if (mkdirat(s->home, name, 0700) ||
        (s->dir = openat(s->home, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return err_sys(e, errno, "directory of a pack");
    for (unsigned i = 0; i < s->n; i++) {
        (void)snprintf(name, sizeof name, "%u", i);
        if (mkdirat(s->dir, name, 0700))
            return err_sys(e, errno, "directory of a pack");
    }
    if (!s->pack->vm || s->reuse)
        return 0;
    (void)snprintf(name, sizeof name, "t/vm/%s", vm_unpack_key(s->vm));
    return mkdirat(s->dir, "t", 0755) || mkdirat(s->dir, "t/vm", 0755) ||
                   mkdirat(s->dir, name, 0700)
               ? err_sys(e, errno, "directory of a pack")
               : 0;
}

/* ---- the template, if it is here already --------------------------------------------------------------------------- */

/* Either of them: the very template, or what an earlier pack brought along. Both by content; ids and names prove nothing. */
static int look_at(void *arg, const char *tid, const struct manifest *m, const struct err *why)
{
    struct pack_stage *s = arg;
    const struct pack_part *image = &s->pack->part[0];
    (void)why;
    if (!m || !vm_unpack_same(s->vm, s->home, tid))
        return 0;
    bool same = m->source == MANIFEST_PACK && str_starts(str_of(m->content_key), CONTENT) &&
                !strcmp(m->content_key + sizeof CONTENT - 1, image->sha256);
    if (!same && !strcmp(tid, s->pack->template.id)) {
        char path[64];
        struct pack_part here = {0};
        struct stat st;
        (void)snprintf(path, sizeof path, "%s/rootfs.ext4", tid);
        auto_fd fd = openat(s->templates, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        same = fd >= 0 && !fstat(fd, &st) && (uint64_t)st.st_size == image->bytes &&
               !pack_measure(fd, &here, NULL) && !strcmp(here.sha256, image->sha256);
    }
    if (same)
        (void)snprintf(s->template_id, sizeof s->template_id, "%s", tid);
    return same;
}

static int find_template(struct pack_stage *s, struct err *e)
{
    int rc = manifest_scan(s->templates, look_at, s, e);
    if (rc < 0)
        return -1;
    s->reuse = rc > 0;
    if (!s->reuse)
        id_make('t', s->template_id);
    return 0;
}

/* ---- as it comes -------------------------------------------------------------------------------------------------- */

static int on_signer(void *arg, const unsigned char key[SIGN_PUBLIC], struct err *e)
{
    struct pack_stage *s = arg;
    return signer_known(s->home, key, s->signer, e);
}

static int room_for(struct pack_stage *s, struct err *e)
{
    struct statvfs v;
    uint64_t need = pack_bytes(s->pack);
    if (fstatvfs(s->home, &v))
        return err_sys(e, errno, "room for a pack");
    if (need + SPARE > (uint64_t)v.f_bavail * v.f_frsize)
        return err_set(
            e, E_QUOTA,
            "the pack needs %llu MiB and the disk of HUTCH_HOME does not have that much left",
            (unsigned long long)((need + SPARE) >> 20));
    return 0;
}

static int begin_vm(struct pack_stage *s, struct err *e)
{
    const struct pack *p = s->pack;
    struct vm_spec spec = {.ram_mib = p->memory_mib, .disk_mib = p->disk_mib};
    if (!s->vm)
        return err_why(e, REASON_HOST_CANNOT, E_UNSUPPORTED,
                       "the pack is of a VM and this host cannot run VMs");
    memcpy(spec.template_id, p->template.id, sizeof p->template.id);
    return vm_unpack_fit(s->vm, &spec, p->memory, p->variant, p->machine, p->nmachines, e) ||
                   find_template(s, e)
               ? -1
               : 0;
}

static int on_manifest(void *arg, const struct pack *p, struct err *e)
{
    struct pack_stage *s = arg;
    s->pack = p;
    if (room_for(s, e) || (p->vm && begin_vm(s, e)))
        return -1;
    s->n = p->vm ? p->nmachines : 1;
    for (unsigned i = 0; i < s->n; i++)
        id_make('s', s->id[i]);
    if (make_dirs(s, e))
        return -1;
    s->tree = p->vm ? -1 : openat(s->home, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return !p->vm && s->tree < 0 ? err_sys(e, errno, "creating a temporary file") : 0;
}

static int file_for(struct pack_stage *s, unsigned part, struct err *e)
{
    char path[64 + VM_KEY_SIZE];
    if (s->pack->vm && s->fd < 0 && place(s, part, path, sizeof path))
        s->fd = openat(s->dir, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    else
        return 0;
    return s->fd < 0 || ftruncate(s->fd, (off_t)s->pack->part[part].bytes)
               ? err_sys(e, errno, "a file of a pack")
               : 0;
}

static int on_block(void *arg, unsigned part, uint64_t number, const unsigned char *p, size_t n,
                    struct err *e)
{
    struct pack_stage *s = arg;
    if (file_for(s, part, e))
        return -1;
    int fd = s->pack->vm ? s->fd : s->tree;
    if (fd >= 0 && pwrite(fd, p, n, (off_t)(number * PACK_BLOCK)) != (ssize_t)n)
        return err_set(e, errno == ENOSPC || errno == EDQUOT ? E_QUOTA : E_INTERNAL,
                       "the pack could not be stored; is the disk full?");
    return 0;
}

static int on_part(void *arg, unsigned part, struct err *e)
{
    struct pack_stage *s = arg;
    if (file_for(s, part, e)) /* one without a block is a file all the same */
        return -1;
    if (!s->pack->vm && ftruncate(s->tree, (off_t)s->pack->part[part].bytes))
        return err_sys(e, errno, "a file of a pack");
    if (s->fd >= 0 && fdatasync(s->fd))
        return err_sys(e, errno, "a file of a pack");
    cleanup_fd(&s->fd);
    s->fd = -1;
    return 0;
}

void pack_stage_init(struct pack_stage *s, int home_fd, int templates_fd, uint64_t max_bytes,
                     struct vm_unpack *vm)
{
    static const struct pack_reader_ops ops = {on_signer, on_manifest, on_block, on_part};
    *s = (struct pack_stage){.max_bytes = max_bytes,
                             .vm = vm,
                             .dir = -1,
                             .fd = -1,
                             .tree = -1,
                             .home = fcntl(home_fd, F_DUPFD_CLOEXEC, 0),
                             .templates = fcntl(templates_fd, F_DUPFD_CLOEXEC, 0)};
    s->reader = pack_reader_new(max_bytes, &ops, s);
}

int pack_stage_push(struct pack_stage *s, const char *p, size_t n, struct err *e)
{
    return pack_reader_push(s->reader, p, n, e);
}

/* ---- in place ----------------------------------------------------------------------------------------------------- */

static int sub(const struct pack_stage *s, const char *path, struct err *e)
{
    int fd = openat(s->dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "directory of a pack") : fd;
}

static int write_file(int dir, const char *name, const struct buf *b, struct err *e)
{
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 || !fd_write_all(fd, b->p, b->n) || fdatasync(fd) || fsync(dir)
               ? err_sys(e, errno, "a file of a pack")
               : 0;
}

/* The template as its own home described it, under an id of ours and marked as what it is. */
static int settle_template(struct pack_stage *s, struct err *e)
{
    char path[16 + VM_KEY_SIZE];
    auto_buf text = {0}, back = {0};
    auto_fd t = sub(s, "t", e);
    (void)snprintf(path, sizeof path, "t/vm/%s", vm_unpack_key(s->vm));
    auto_fd var = sub(s, path, e),
            image = t < 0 ? -1 : openat(t, "rootfs.ext4", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (t < 0 || var < 0)
        return -1;
    if (image < 0)
        return err_sys(e, errno, "image of a pack");
    if (vm_unpack_variant(s->vm, var, image, s->template_id, e))
        return -1;
    if (fsync(image) || fsync(var))
        return err_sys(e, errno, "image of a pack");
    manifest_format(&s->pack->template, &text);
    if (manifest_parse(text.p, text.n, &s->template, e))
        return -1;
    struct manifest *m = &s->template;
    memcpy(m->id, s->template_id, sizeof m->id);
    m->source = MANIFEST_PACK;
    m->parent[0] = 0; /* an id of another home */
    m->size_bytes = s->pack->part[0].blocks * PACK_BLOCK;
    auto_buf key = {0};
    buf_printf(&key, CONTENT "%s", s->pack->part[0].sha256);
    manifest_set(&m->content_key, key.p);
    manifest_format(m, &back);
    return write_file(t, "manifest.json", &back, e);
}

static int settle_machines(struct pack_stage *s, struct err *e)
{
    for (unsigned i = 0; i < s->n; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        auto_fd dir = sub(s, name, e);
        if (dir < 0 ||
            vm_unpack_machine(s->vm, i, dir, s->template_id, (const char(*)[22])s->id, e))
            return -1;
        if (fsync(dir))
            return err_sys(e, errno, "directory of a pack");
    }
    return 0;
}

static int settle_container(struct pack_stage *s, struct err *e)
{
    auto_fd dir = sub(s, "0", e);
    auto_buf b = {0};
    buf_puts(&b, "{\"format\":1,\"tier\":\"container\",\"bare\":true}\n");
    return dir < 0 ? -1 : write_file(dir, "manifest.json", &b, e);
}

/* Template, then those below, then itself: whatever a crash leaves of it has no row, or nobody who stands on it, and is swept. */
static int rename_all(struct pack_stage *s, struct err *e)
{
    auto_fd snapshots = openat(s->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (snapshots < 0)
        return err_sys(e, errno, "snapshots");
    if (s->pack->vm && !s->reuse &&
        (renameat2(s->dir, "t", s->templates, s->template_id, RENAME_NOREPLACE) ||
         fsync(s->templates)))
        return err_sys(e, errno, "putting a template in place");
    s->published = true;
    fault("import.template");
    for (unsigned i = 0; i < s->n; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        if (renameat2(s->dir, name, snapshots, s->id[i], RENAME_NOREPLACE))
            return err_sys(e, errno, "putting a snapshot in place");
    }
    char tmp[32];
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", own_id(s));
    if (!unlinkat(snapshots, tmp, AT_REMOVEDIR)) /* it is empty now */
        cleanup_fd(&s->dir), s->dir = -1;
    return fsync(snapshots) ? err_sys(e, errno, "putting a snapshot in place") : 0;
}

int pack_stage_publish(struct pack_stage *s, struct err *e)
{
    if (pack_reader_end(s->reader, e))
        return -1;
    fault("import.whole");
    if (s->pack->vm && ((!s->reuse && settle_template(s, e)) || settle_machines(s, e)))
        return -1;
    if (!s->pack->vm && settle_container(s, e))
        return -1;
    return rename_all(s, e);
}

void pack_stage_drop(struct pack_stage *s)
{
    auto_fd snapshots = openat(s->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[32];
    struct err e;
    (void)snprintf(name, sizeof name, ".%s.tmp", s->n ? own_id(s) : "");
    if (s->dir >= 0 && snapshots >= 0 && tree_remove(snapshots, name, &e))
        log_warn("pack: %s", e.msg); /* the next start sweeps it */
    for (unsigned i = 0; snapshots >= 0 && s->published && !s->kept && i < s->n; i++)
        if (tree_remove(snapshots, s->id[i], &e))
            log_warn("pack: %s", e.msg);
    cleanup_fd(&s->dir), cleanup_fd(&s->fd), cleanup_fd(&s->tree), cleanup_fd(&s->home),
        cleanup_fd(&s->templates);
    pack_reader_free(s->reader);
    vm_unpack_free(s->vm);
    manifest_fini(&s->template);
}
