/* The VM host: guest kernel, initrd, and the identity that keys are made of. */
#include "tier/vm/initrd.h"
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* Must say what the spawner passes to -cpu (src/spawn): it is part of every key. */
#define CPU_TCG "max,erms=off,la57=off"
#define CPU_KVM "host"

struct vm_host *vm_host_new(const struct vm_host_conf *conf)
{
    struct vm_host *h = xcalloc(1, sizeof *h);
    h->conf = *conf;
    if (!h->conf.boot_timeout_ns)
        h->conf.boot_timeout_ns = 60 * NS_PER_S;
    if (!h->conf.qmp_timeout_ns)
        h->conf.qmp_timeout_ns = 20 * NS_PER_S;
    h->kernel_fd = h->initrd_fd = -1;
    list_init(&h->variants);
    list_init(&h->launches);
    list_init(&h->images);
    list_init(&h->builds);
    h->refs = 1;
    h->ident.accel = conf->accel;
    h->ident.tsc_khz = conf->accel == SP_ACCEL_TCG ? conf->tsc_khz : 0;
    memcpy(h->ident.qemu, conf->qemu_version, sizeof h->ident.qemu);
    h->ident.qemu[sizeof h->ident.qemu - 1] = '\0';
    return h;
}

struct vm_host *host_ref(struct vm_host *h)
{
    h->refs++;
    return h;
}

void host_unref(struct vm_host *h)
{
    if (--h->refs)
        return;
    cleanup_fd(&h->kernel_fd);
    cleanup_fd(&h->initrd_fd);
    free(h);
}

/* End of the turn: the spawn client is gone and calls nobody back. */
static void host_bury(void *arg)
{
    struct vm_host *h = arg;
    launches_drop(h);
    builds_drop(h);
    host_unref(h);
}

void vm_host_free(struct vm_host *h)
{
    if (!h)
        return;
    h->closed = true;
    struct vm_variant *v;
    list_each(v, &h->variants, node)
        list_del(&v->node); /* their users unref them, maybe later than now */
    loop_defer(h->conf.loop, host_bury, h);
}

bool vm_host_ready(const struct vm_host *h) { return h->ready; }

/* Under KVM the guest sees the real CPU, so a snapshot is bound to it: model and flags of the first processor. */
static void cpu_identity(uint32_t accel, char *out, size_t cap)
{
    if (accel != SP_ACCEL_KVM) {
        (void)snprintf(out, cap, "%s", CPU_TCG);
        return;
    }
    size_t n;
    auto_free char *info = fd_slurp_at(AT_FDCWD, "/proc/cpuinfo", 4u << 20, &n);
    auto_buf facts = {0};
    char *save = NULL;
    for (char *line = info ? strtok_r(info, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        if (!strncmp(line, "processor", 9) && facts.n)
            break;
        if (!strncmp(line, "vendor_id", 9) || !strncmp(line, "model name", 10) ||
            !strncmp(line, "stepping", 8) || !strncmp(line, "flags", 5) ||
            !strncmp(line, "microcode", 9))
            buf_puts(&facts, line);
    }
    char hex[SHA256_HEX];
    sha256_hex(facts.p ? facts.p : "", facts.n, hex);
    (void)snprintf(out, cap, "%s %s", CPU_KVM, hex);
}

static int memfd_of(const char *name, const struct buf *b, struct err *e)
{
    auto_fd fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || !fd_write_all(fd, b->p, b->n) || lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return err_sys(e, errno, "building the initrd");
    return take_fd(&fd);
}

int vm_host_load(struct vm_host *h, int kernel_dir_fd, int agent_fd, struct err *e)
{
    struct vm_identity id = h->ident;
    size_t nsums, nversion, nagent;
    auto_free char *sums = fd_slurp_at(kernel_dir_fd, "SHA256SUMS", 1u << 20, &nsums);
    auto_free char *version =
        fd_slurp_at(kernel_dir_fd, "version", sizeof id.kernel - 1, &nversion);
    if (!sums || !version)
        return err_sys(e, errno, "guest kernel");
    auto_fd kernel = openat(kernel_dir_fd, "vmlinux", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (kernel < 0)
        return err_sys(e, errno, "guest kernel");
    auto_buf cpio = {0};
    if (initrd_build(kernel_dir_fd, agent_fd, &cpio, e))
        return -1;
    auto_fd initrd = memfd_of("hutch-initrd", &cpio, e);
    if (initrd < 0)
        return -1;
    if (lseek(agent_fd, 0, SEEK_SET) < 0)
        return err_sys(e, errno, "agent binary");
    auto_free char *agent = fd_slurp(agent_fd, 32u << 20, &nagent);
    if (!agent)
        return err_sys(e, errno, "agent binary");

    sha256_hex(sums, nsums, id.kernel_sums); /* the sums name every byte of kernel and modules */
    sha256_hex(agent, nagent, id.agent);
    for (size_t i = 0; i < nversion; i++)
        if (version[i] == '\n')
            version[i] = i + 1 < nversion ? ' ' : '\0';
    (void)snprintf(id.kernel, sizeof id.kernel, "%s", version);
    cpu_identity(id.accel, id.cpu, sizeof id.cpu);

    cleanup_fd(&h->kernel_fd);
    cleanup_fd(&h->initrd_fd);
    h->kernel_fd = take_fd(&kernel);
    h->initrd_fd = take_fd(&initrd);
    h->ident = id;
    h->ready = true;
    return 0;
}

int vm_qemu_version(const char *binary, char out[64], struct err *e)
{
    size_t n;
    auto_free char *bin = fd_slurp_at(AT_FDCWD, binary, 256u << 20, &n);
    if (!bin)
        return err_sys(e, errno, "the emulator");
    char hex[SHA256_HEX];
    sha256_hex(bin, n, hex);
    (void)snprintf(out, 64, "qemu %.40s", hex);
    return 0;
}

void vm_key(const struct vm_host *h, const struct vm_spec *spec, char out[VM_KEY_SIZE])
{
    const struct vm_identity *id = &h->ident;
    auto_buf b = {0};
    /* The TSC rate is not in here: two measurements never agree to the last digit. The manifest holds it, with a tolerance. */
    buf_printf(&b, "hutch-vm %d %d\n%s\n%u %u %u\n%u\n%s\n%s\n%s\n%s\n%s\n", VM_FORMAT, SP_VERSION,
               spec->template_id, spec->ram_mib, spec->vcpus, spec->disk_mib, id->accel, id->cpu,
               id->qemu, id->kernel, id->kernel_sums, id->agent);
    if (*spec->prepared)
        buf_printf(&b, "%s\n", spec->prepared);
    char hex[SHA256_HEX];
    sha256_hex(b.p, b.n, hex);
    memcpy(out, hex, VM_KEY_SIZE - 1);
    out[VM_KEY_SIZE - 1] = '\0';
}
