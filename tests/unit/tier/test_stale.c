/* Which variants go: those of another version that nothing stands on. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "test.h"
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#define TID "taaaaaaaaaaaaaaaaaaaa"
static char home[] = "/tmp/hutch-stale-XXXXXX";
static int home_fd;
static const struct vm_identity now = {.accel = SP_ACCEL_TCG,
                                       .tsc_khz = 2300000,
                                       .cpu = "max",
                                       .qemu = "q",
                                       .kernel = "6.1",
                                       .kernel_sums = "s",
                                       .agent = "a"};

static void sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void sh(const char *fmt, ...)
{
    char cmd[512];
    va_list ap;
    int n = snprintf(cmd, sizeof cmd, "cd %s && ", home);
    va_start(ap, fmt);
    (void)vsnprintf(cmd + n, sizeof cmd - (size_t)n, fmt, ap);
    va_end(ap);
    CHECK_INT(system(cmd), 0);
}
static void teardown(void)
{
    char cmd[64];
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", home);
    (void)!system(cmd);
}
static void setup(void)
{
    CHECK(mkdtemp(home));
    atexit(teardown);
    home_fd = open(home, O_DIRECTORY | O_CLOEXEC);
    sh("mkdir -p templates/" TID "/vm templates/none boxes/b1/saved snapshots/%s", "s1");
}

static void key_of(char out[VM_KEY_SIZE], char c)
{
    memset(out, c, VM_KEY_SIZE - 1);
    out[VM_KEY_SIZE - 1] = 0;
}

static void variant(char c, const struct vm_identity *id)
{
    char key[VM_KEY_SIZE], path[128];
    struct vm_spec spec = {.template_id = TID, .ram_mib = 64, .vcpus = 1, .disk_mib = 512};
    struct manifest m = {0};
    auto_buf text = {0};
    key_of(key, c);
    sh("mkdir templates/" TID "/vm/%s", key);
    varmanifest_write(&text, &spec, id, key, &m);
    (void)snprintf(path, sizeof path, "templates/" TID "/vm/%s/manifest.json", key);
    auto_fd fd = openat(home_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd_write_all(fd, text.p, text.n));
    sh("touch templates/" TID "/vm/%s/ram", key);
}

static bool there(char c)
{
    char key[VM_KEY_SIZE], path[128];
    key_of(key, c);
    (void)snprintf(path, sizeof path, "templates/" TID "/vm/%s", key);
    return !faccessat(home_fd, path, F_OK, 0);
}

TEST(stale, only_of_another_version_and_unused)
{
    struct vm_identity agent = now, kernel = now, qemu = now, kvm = now;
    char key[VM_KEY_SIZE];
    setup();
    agent.agent[0] = 'x', kernel.kernel_sums[0] = 'x', qemu.qemu[0] = 'x', kvm.accel = SP_ACCEL_KVM;
    variant('0', &now), variant('1', &agent), variant('2', &kernel), variant('3', &qemu);
    variant('4', &kvm); /* switched back, it is right again */
    variant('5', &agent), variant('6', &agent), variant('7', &agent); /* stood on */
    key_of(key, '5');
    sh("echo '{\"key\": \"%s\"}' > boxes/b1/machine.json", key);
    key_of(key, '6');
    sh("echo '{\"machine\": {\"key\": \"%s\"}}' > boxes/b1/saved/manifest.json", key);
    key_of(key, '7');
    sh("echo '{\"key\": \"%s\"}' > snapshots/s1/machine.json", key);
    variant('8', &now);
    key_of(key, '8');
    sh("echo damaged > templates/" TID "/vm/%s/manifest.json",
       key); /* rebuilt in place when wanted */
    sh("mkdir templates/" TID "/vm/.%s", "being-built");
    CHECK_INT(varfile_sweep_stale(home_fd, &now), 3);
    for (const char *p = "045678"; *p; p++)
        CHECK(there(*p));
    CHECK(!there('1') && !there('2') && !there('3'));
    sh("rm -r boxes/b1 snapshots/s1 && test -d templates/" TID "/vm/.%s", "being-built");
    CHECK_INT(varfile_sweep_stale(home_fd, &now), 3);
    CHECK(there('0') && there('4') && there('8') && !there('5'));
}

TEST_MAIN
