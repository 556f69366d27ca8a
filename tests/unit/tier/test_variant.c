/* The files of a variant, without any VM: the test plays QEMU and fills memory
 * and state by hand. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TID "taaaaaaaaaaaaaaaaaaaa"
#define KEY "0123456789abcdef0123456789abcdef"

static char home[] = "/tmp/hutch-variant-XXXXXX";
static int home_fd;
static const struct vm_spec spec = {.template_id = TID, .ram_mib = 64, .vcpus = 1, .disk_mib = 32};
static const struct vm_identity ident = {.accel = SP_ACCEL_TCG,
                                         .tsc_khz = 2300000,
                                         .cpu = "max",
                                         .qemu = "q",
                                         .kernel = "6.1",
                                         .kernel_sums = "s",
                                         .agent = "a"};

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char cmd[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(cmd, sizeof cmd, fmt, ap);
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
    run("mkdir -p %s/templates/" TID " && truncate -s 8M %s/templates/" TID "/rootfs.ext4", home,
        home);
    home_fd = open(home, O_DIRECTORY | O_CLOEXEC);
}
static int entries(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/templates/" TID "/vm", home);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *de; d && (de = readdir(d));)
        n += strcmp(de->d_name, ".") && strcmp(de->d_name, "..");
    if (d)
        (void)closedir(d);
    return n;
}

/* Pages 3 and 4 and the last one hold something; page 100 was touched and is zero again. */
static void play_qemu(struct vartmp *t, char mark)
{
    size_t size = (size_t)spec.ram_mib << 20;
    char *ram = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, t->ram_fd, 0);
    CHECK(ram != MAP_FAILED);
    ram[3 * VM_PAGE] = mark;
    ram[4 * VM_PAGE + 17] = 'b';
    ram[100 * VM_PAGE] = 'x';
    ram[100 * VM_PAGE] = 0;
    ram[size - 1] = 'z';
    CHECK(!munmap(ram, size));
    CHECK(fd_write_all(t->state_fd, "device state", 12));
}
static void publish(char mark)
{
    struct vartmp t;
    struct err e = {0};
    vartmp_init(&t);
    CHECK_INT(vartmp_open(&t, home_fd, &spec, KEY, &e), 0);
    CHECK_INT(entries(), mark == '1' ? 1 : 2);
    play_qemu(&t, mark);
    CHECK_INT(vartmp_publish(&t, &spec, &ident, KEY, &e), 0);
    vartmp_drop(&t);
    CHECK_INT(entries(), 1);
}
static enum err_code load_as(const struct vm_identity *id)
{
    struct varfile f;
    struct err e = {0};
    varfile_init(&f);
    int rc = varfile_open(&f, home_fd, &spec, id, KEY, &e);
    varfile_close(&f);
    CHECK((rc == 0) == (e.code == E_OK));
    return e.code;
}

TEST(variant, what_is_published_is_loaded_and_sealed)
{
    setup();
    CHECK_INT(load_as(&ident), E_NOT_FOUND);
    publish('1');
    struct varfile f;
    struct err e = {0};
    varfile_init(&f);
    CHECK_INT(varfile_open(&f, home_fd, &spec, &ident, KEY, &e), 0);
    CHECK_INT(f.ram_bytes, 3 * VM_PAGE);
    struct stat st;
    CHECK(!fstat(f.ram_fd, &st) && st.st_size == 64 << 20 && st.st_blocks * 512 <= 16 * VM_PAGE);
    char c;
    CHECK(pread(f.ram_fd, &c, 1, 3 * VM_PAGE) == 1 && c == '1');
    CHECK(pread(f.ram_fd, &c, 1, (64 << 20) - 1) == 1 && c == 'z');
    CHECK(pread(f.state_fd, &c, 1, 11) == 1 && c == 'e');
    /* Nobody who gets the descriptor can change the template, not even by opening it again. */
    CHECK(pwrite(f.ram_fd, "X", 1, 0) < 0);
    CHECK(ftruncate(f.ram_fd, 0) < 0);
    CHECK(fallocate(f.ram_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, VM_PAGE) < 0);
    auto_fd again = fd_reopen(f.ram_fd, O_RDWR);
    CHECK(again >= 0 && pwrite(again, "X", 1, 0) < 0);
    CHECK(mmap(NULL, VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    CHECK(fcntl(f.state_fd, F_GETFL) % 4 == O_RDONLY && fcntl(f.disk_fd, F_GETFL) % 4 == O_RDONLY);
    varfile_close(&f);
}

TEST(variant, publishing_again_replaces)
{
    setup();
    publish('1');
    publish('2');
    struct varfile f;
    struct err e = {0};
    varfile_init(&f);
    CHECK_INT(varfile_open(&f, home_fd, &spec, &ident, KEY, &e), 0);
    char c;
    CHECK(pread(f.ram_fd, &c, 1, 3 * VM_PAGE) == 1 && c == '2');
    varfile_close(&f);
}

TEST(variant, damage_is_refused)
{
    static const char *const damage[] = {"printf X | dd of=ram bs=1 seek=12288 conv=notrunc",
                                         "printf X | dd of=ram bs=1 seek=40960000 conv=notrunc",
                                         "truncate -s 63M ram",
                                         "rm ram",
                                         "printf x >>state",
                                         "rm state",
                                         "printf X | dd of=disk.qcow2 bs=1 seek=15 conv=notrunc",
                                         "rm disk.qcow2",
                                         "rm manifest.json",
                                         "printf '{' >manifest.json",
                                         "sed -i 's/\"ram_mib\":64/\"ram_mib\":65/' manifest.json",
                                         "sed -i 's/\"format\":[0-9]*/\"format\":0/' manifest.json",
                                         "ln -sf /etc/passwd state",
                                         "touch -d yesterday ../../rootfs.ext4"};
    setup();
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        run("rm -rf %s/templates/" TID "/vm", home);
        publish('1');
        CHECK_INT(load_as(&ident), E_OK);
        run("cd %s/templates/" TID "/vm/" KEY " && (%s) 2>/dev/null", home, damage[i]);
        enum err_code code = load_as(&ident);
        if (code != E_CONFLICT)
            printf("# after: %s\n", damage[i]);
        CHECK_INT(code, E_CONFLICT);
    }
}

TEST(variant, any_other_version_is_refused)
{
    setup();
    publish('1');
    struct vm_identity id = ident;
    id.qemu[0]++;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.kernel[0]++;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.kernel_sums[0]++;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.agent[0]++;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.cpu[0]++;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.accel = SP_ACCEL_KVM;
    CHECK_INT(load_as(&id), E_CONFLICT);
    id = ident, id.tsc_khz += 10; /* another measurement of the same machine */
    CHECK_INT(load_as(&id), E_OK);
    id = ident, id.tsc_khz = 2500000;
    CHECK_INT(load_as(&id), E_CONFLICT);
}

TEST(variant, a_build_given_up_leaves_nothing)
{
    setup();
    struct vartmp t;
    struct err e = {0};
    vartmp_init(&t);
    CHECK_INT(vartmp_open(&t, home_fd, &spec, KEY, &e), 0);
    play_qemu(&t, '1');
    vartmp_drop(&t);
    CHECK_INT(entries(), 0);
    run("mkdir -p %s/templates/" TID "/vm/." KEY ".old && touch %s/templates/" TID "/vm/." KEY
        ".old/ram && touch -d '2 hours ago' %s/templates/" TID "/vm/." KEY ".old",
        home, home, home);
    publish('1'); /* sweeps what a killed daemon left; checks the count itself */
}

TEST(variant, an_empty_state_is_not_published)
{
    setup();
    struct vartmp t;
    struct err e = {0};
    vartmp_init(&t);
    CHECK_INT(vartmp_open(&t, home_fd, &spec, KEY, &e), 0);
    CHECK_INT(vartmp_publish(&t, &spec, &ident, KEY, &e), -1);
    CHECK_INT(e.code, E_GUEST);
    vartmp_drop(&t);
    CHECK_INT(entries(), 0);
}
TEST_MAIN
