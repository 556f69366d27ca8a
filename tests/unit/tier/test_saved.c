/* The files of a saved machine, without any VM: the test plays QEMU and the spawner. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/crc.h"
#include "base/fd.h"
#include "spawn/pages.h"
#include "test.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BID "baaaaaaaaaaaaaaaaaaaa"
#define SID "saaaaaaaaaaaaaaaaaaaa"
#define TID "taaaaaaaaaaaaaaaaaaaa"

static char home[] = "/tmp/hutch-saved-XXXXXX";
static int home_fd;
static const struct vm_identity ident = {.accel = SP_ACCEL_TCG,
                                         .tsc_khz = 2300000,
                                         .cpu = "max",
                                         .qemu = "q",
                                         .kernel = "6.1",
                                         .kernel_sums = "s",
                                         .agent = "a"};
static struct vm_machine machine = {
    .spec = {.template_id = TID, .ram_mib = 64, .vcpus = 2, .disk_mib = 512},
    .key = "0123456789abcdef0123456789abcdef",
    .layers = {.id = {SID}, .n = 1},
    .top = 3};

static void teardown(void)
{
    char cmd[64];
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", home);
    (void)!system(cmd);
}
static void setup(void)
{
    char cmd[160];
    CHECK(mkdtemp(home));
    atexit(teardown);
    (void)snprintf(cmd, sizeof cmd, "mkdir -p %s/boxes/" BID " %s/snapshots", home, home);
    CHECK_INT(system(cmd), 0);
    home_fd = open(home, O_DIRECTORY | O_CLOEXEC);
    memset(machine.ram_sha256, 'a', 64);
    memset(machine.disk_sha256, 'b', 64);
}

static const uint32_t page_no[] = {4, 5, 900};

/* As op_save.c would. */
static void play_spawner(int out, int index)
{
    unsigned char head[PAGES_HEAD], tail[PAGES_TAIL], mark[13], page[4096], entries[24],
        ih[PAGES_INDEX];
    pages_head(head, 64 * 256);
    CHECK(fd_write_all(out, head, sizeof head));
    for (uint32_t i = 0; i < 3; i++) {
        memset(page, 'A' + (int)i, sizeof page);
        CHECK(fd_write_all(out, mark, pages_mark(mark, page_no[i], !i)));
        CHECK(fd_write_all(out, page, sizeof page));
        pages_entry_put(entries + i * 8,
                        (struct page_entry){page_no[i], crc32c(0, page, sizeof page)});
    }
    pages_tail(tail);
    CHECK(fd_write_all(out, tail, sizeof tail));
    pages_index_head(ih, entries, 3, 64 * 256);
    CHECK(fd_write_all(index, ih, sizeof ih) && fd_write_all(index, entries, sizeof entries));
}

static int publish(const char *snapshot, uint64_t generation, struct vm_saved *facts, struct err *e)
{
    struct savedtmp t;
    savedtmp_init(&t);
    CHECK_INT(savedtmp_open(&t, home_fd, BID, snapshot, true, e), 0);
    play_spawner(t.state_fd, t.index_fd);
    CHECK(fd_write_all(t.dev_fd, "QEVM\0\0\0\3device sections", 23));
    *facts = (struct vm_saved){.generation = generation};
    int rc = savedtmp_publish(&t, &machine, &ident, facts, e);
    savedtmp_drop(&t);
    return rc;
}

static int load(const char *snapshot, const struct vm_identity *id, struct savedfile *f,
                struct err *e)
{
    *f = (struct savedfile){.state_fd = -1, .index_fd = -1};
    auto_fd dir = saved_dir_open(home_fd, BID, snapshot, e);
    return dir < 0 ? -1 : savedfile_open(f, dir, id, e);
}

TEST(saved, comes_back_whole)
{
    struct err e = {0};
    struct vm_saved facts;
    struct savedfile f;
    setup();
    CHECK_INT(load(NULL, &ident, &f, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    CHECK_INT(publish(NULL, 7, &facts, &e), 0);
    CHECK_INT(facts.pages, 3);
    CHECK_INT(load(NULL, &ident, &f, &e), 0);
    CHECK_INT(f.facts.generation, 7);
    CHECK(f.facts.memory);
    CHECK_INT(f.facts.pages, 3);
    CHECK_INT(f.facts.bytes, facts.bytes);
    CHECK_STR(f.machine.layers.id[0], SID);
    CHECK_INT(f.machine.top, 3);
    CHECK_INT(f.machine.spec.vcpus, 2);
    CHECK_INT(savedfile_verify(&f, &e), 0);
    char tail[32] = "";
    CHECK_INT(pread(f.state_fd, tail, sizeof tail, (off_t)pages_size(3)), 15);
    CHECK_STR(tail, "device sections");
    savedfile_close(&f);
    CHECK_INT(publish(NULL, 8, &facts, &e), 0); /* replaces */
    CHECK_INT(load(NULL, &ident, &f, &e), 0);
    CHECK_INT(f.facts.generation, 8);
    savedfile_close(&f);
    saved_remove(home_fd, BID);
    CHECK_INT(load(NULL, &ident, &f, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    CHECK_INT(publish(SID, 1, &facts, &e), 0); /* a snapshot lies elsewhere */
    CHECK_INT(load(SID, &ident, &f, &e), 0);
    savedfile_close(&f);
}

TEST(image, is_the_variant_with_the_pages_over_it)
{
    struct err e = {0};
    struct vm_saved facts;
    struct savedfile f;
    int ram = -1, devices = -1;
    char got[64] = "";
    unsigned char page[4096];
    setup();
    CHECK_INT(publish(SID, 1, &facts, &e), 0);
    CHECK_INT(load(SID, &ident, &f, &e), 0);
    auto_fd variant = memfd_create("variant", MFD_CLOEXEC);
    CHECK_INT(ftruncate(variant, 64 << 20), 0);
    CHECK_INT(pwrite(variant, "below", 5, 3 * 4096), 5);
    CHECK_INT(pwrite(variant, "hidden", 6, 5 * 4096), 6);
    CHECK_INT(image_compose(variant, &f, &ram, &devices, &e), 0);
    CHECK_INT(pread(ram, got, 5, 3 * 4096), 5);
    CHECK_STR(got, "below");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(pread(ram, page, sizeof page, (off_t)page_no[i] * 4096), 4096);
        CHECK(page[0] == 'A' + i && !memcmp(page, page + 1, 4095));
    }
    struct stat st;
    CHECK_INT(fstat(ram, &st), 0);
    CHECK_INT(st.st_size, 64 << 20);
    CHECK(st.st_blocks * 512 < 1 << 20);   /* holes stay holes */
    CHECK_INT(pwrite(ram, "x", 1, 0), -1); /* nobody changes what others map */
    CHECK_INT(pread(devices, got, sizeof got, 0), 23);
    CHECK(!memcmp(got, "QEVM\0\0\0\3device sections", 23));
    (void)close(ram), (void)close(devices);
    /* of one that booted: over nothing */
    CHECK_INT(image_compose(-1, &f, &ram, &devices, &e), 0);
    CHECK_INT(pread(ram, page, sizeof page, 3 * 4096), 4096);
    CHECK(!page[0]);
    CHECK_INT(pread(ram, page, sizeof page, 900 * 4096), 4096);
    CHECK_INT(page[17], 'C');
    (void)close(ram), (void)close(devices);
    /* damage is found before anybody runs on it */
    auto_fd dir = saved_dir_open(home_fd, BID, SID, &e);
    auto_fd state = openat(dir, "state", O_WRONLY);
    CHECK_INT(pwrite(state, "!", 1, (off_t)pages_at(1) + 7), 1);
    CHECK_INT(image_compose(variant, &f, &ram, &devices, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    savedfile_close(&f);
}

TEST(image, is_made_when_it_pays)
{
    struct vm_image m = {.refs = 1, .ram_fd = -1};
    CHECK(!image_pays(&m, 1, 100 << 20, 2560));  /* 10 MiB against 110 */
    CHECK(!image_pays(&m, 11, 100 << 20, 2560)); /* as much */
    CHECK(image_pays(&m, 12, 100 << 20, 2560));
    m.refs = 12; /* eleven run already */
    CHECK(image_pays(&m, 1, 100 << 20, 2560));
    CHECK(!image_pays(&m, 1, 0, 0));
    m.failed = true;
    CHECK(!image_pays(&m, 100, 100 << 20, 2560));
    m = (struct vm_image){.refs = 2, .ram_fd = 7};
    CHECK(image_pays(&m, 1, 100 << 20, 2560)); /* there it is */
}

TEST(saved, what_is_not_published_is_nothing)
{
    struct savedtmp t;
    struct err e = {0};
    struct savedfile f;
    setup();
    savedtmp_init(&t);
    CHECK_INT(savedtmp_open(&t, home_fd, BID, NULL, true, &e), 0);
    play_spawner(t.state_fd, t.index_fd);
    CHECK_INT(load(NULL, &ident, &f, &e), -1);
    savedtmp_drop(&t);
    char path[96];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/boxes/" BID, home);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(rmdir(path), 0); /* empty */
}

TEST(saved, devices_that_cannot_be_right_are_refused)
{
    struct savedtmp t;
    struct err e = {0};
    struct vm_saved facts = {0};
    setup();
    savedtmp_init(&t);
    CHECK_INT(savedtmp_open(&t, home_fd, BID, NULL, true, &e), 0);
    play_spawner(t.state_fd, t.index_fd);
    CHECK(fd_write_all(t.dev_fd, "not a state of QEMU", 19));
    CHECK_INT(savedtmp_publish(&t, &machine, &ident, &facts, &e), -1);
    CHECK_INT(e.code, E_GUEST);
    savedtmp_drop(&t);
}

TEST(saved, another_emulator_is_refused)
{
    struct err e = {0};
    struct vm_saved facts;
    struct savedfile f;
    setup();
    CHECK_INT(publish(NULL, 1, &facts, &e), 0);
    struct vm_identity other = ident;
    (void)snprintf(other.qemu, sizeof other.qemu, "q2");
    CHECK_INT(load(NULL, &other, &f, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    CHECK(strstr(e.msg, "QEMU"));
    other = ident;
    other.tsc_khz = 2400000;
    CHECK_INT(load(NULL, &other, &f, &e), -1);
    other = ident;
    other.agent[0] = 'z'; /* what runs inside does not matter */
    other.tsc_khz = 2300100;
    CHECK_INT(load(NULL, &other, &f, &e), 0);
    savedfile_close(&f);
}

TEST(saved, any_damage_is_found)
{
    struct err e = {0};
    struct vm_saved facts;
    struct savedfile f;
    setup();
    CHECK_INT(publish(NULL, 1, &facts, &e), 0);
    static const char *const files[] = {"state", "pages.idx"};
    for (int k = 0; k < 2; k++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/boxes/" BID "/saved/%s", home, files[k]);
        auto_fd fd = open(path, O_RDWR | O_CLOEXEC);
        off_t size = lseek(fd, 0, SEEK_END);
        for (off_t at = 0; at < size; at += k ? 1 : 61) {
            char c;
            CHECK_INT(pread(fd, &c, 1, at), 1);
            c ^= 1;
            CHECK_INT(pwrite(fd, &c, 1, at), 1);
            int bad = load(NULL, &ident, &f, &e) || savedfile_verify(&f, &e);
            savedfile_close(&f);
            CHECK(bad);
            CHECK_INT(e.code, E_CONFLICT);
            c ^= 1;
            CHECK_INT(pwrite(fd, &c, 1, at), 1);
        }
        CHECK_INT(ftruncate(fd, size - 1), 0);
        CHECK(load(NULL, &ident, &f, &e) || savedfile_verify(&f, &e));
        savedfile_close(&f);
        CHECK_INT(publish(NULL, 1, &facts, &e), 0);
    }
}

TEST(saved, becomes_a_snapshot_that_needs_it_no_more)
{
    struct err e = {0};
    struct vm_saved facts, copy = {.generation = 7};
    struct vm_machine m;
    struct savedfile f;
    struct savedtmp t;
    char path[96];
    setup();
    CHECK_INT(publish(NULL, 7, &facts, &e), 0);
    savedtmp_init(&t);
    CHECK_INT(savedtmp_open(&t, home_fd, BID, SID, false, &e), 0);
    CHECK_INT(savedtmp_link_memory(&t, home_fd, BID, &ident, &m, &copy, &e), 0);
    CHECK_INT(m.top, 3);
    CHECK_INT(savedtmp_publish(&t, &m, &ident, &copy, &e), 0);
    savedtmp_drop(&t);
    CHECK_INT(copy.bytes, facts.bytes);
    saved_remove(home_fd, BID); /* it was resumed */
    CHECK_INT(load(SID, &ident, &f, &e), 0);
    CHECK_INT(f.facts.generation, 7);
    CHECK_INT(f.facts.pages, 3);
    CHECK(f.facts.memory);
    CHECK_INT(savedfile_verify(&f, &e), 0);
    savedfile_close(&f);
    /* what is damaged, or is not there, is not handed on */
    savedtmp_init(&t);
    CHECK_INT(savedtmp_open(&t, home_fd, BID, TID, false, &e), 0);
    CHECK_INT(savedtmp_link_memory(&t, home_fd, BID, &ident, &m, &copy, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    CHECK_INT(publish(NULL, 8, &facts, &e), 0);
    (void)snprintf(path, sizeof path, "%s/boxes/" BID "/saved/state", home);
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK_INT(pwrite(fd, "x", 1, (off_t)pages_at(1)), 1);
    CHECK_INT(savedtmp_link_memory(&t, home_fd, BID, &ident, &m, &copy, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    savedtmp_drop(&t);
    CHECK_INT(load(TID, &ident, &f, &e), -1);
}

TEST(machine, record_round_trip)
{
    struct err e = {0};
    struct vm_machine m;
    setup();
    CHECK_INT(vm_machine_read(home_fd, BID, &m, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    struct vm_machine in = machine;
    in.booted = true;
    (void)snprintf(in.image, sizeof in.image, SID);
    CHECK_INT(machine_write(home_fd, BID, &in, true, &e), 0);
    CHECK_INT(vm_machine_read(home_fd, BID, &m, &e), 0);
    CHECK(m.booted);
    CHECK_STR(m.image, SID);
    CHECK_STR(m.key, in.key);
    CHECK_INT(m.layers.n, 1);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/boxes/" BID "/machine.json", home);
    auto_fd fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd_write_all(fd, "{\"format\":1,\"template\":\"../../etc\"}", 34));
    CHECK_INT(vm_machine_read(home_fd, BID, &m, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
}
TEST_MAIN
