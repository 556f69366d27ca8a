/* SP_VM_SAVE and SP_RELEASE on a real slot: the test writes into QEMU's RAM and expects to find exactly that. */
#include "fixture.h"
#include "base/crc.h"
#include "spawn/pages.h"
#include <sys/mman.h>
#include <sys/uio.h>

#define MIB 64u

static int open_at(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fx.dir, name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    return fd;
}

static int ram_fd;
static char id[22];
static int pid;

static void slot(void)
{
    if (access("/usr/bin/qemu-system-x86_64", X_OK) || system("command -v qemu-img >/dev/null"))
        SKIP("needs qemu-system-x86 and qemu-utils");
    CHECK_INT(sh("cd %s && truncate -s 16M base.raw && for i in mid top l0 l1; do qemu-img create -q -f qcow2 $i.qcow2 16M; done", fx.dir), 0);
    ram_fd = memfd_create("hutch-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ram_fd >= 0 && !ftruncate(ram_fd, MIB << 20));
    CHECK(pwrite(ram_fd, "template", 8, 7 * 4096) == 8);
    CHECK(!fcntl(ram_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW));
    struct sp_req q = {.op = SP_VM_START, .u.vm = {.limit = {.memory_mib = MIB, .cpu_millis = 1000, .pids_max = 64}, .ram_mib = MIB, .vcpus = 1,
                                                   .accel = SP_ACCEL_TCG, .incoming = 1}};
    id_make('i', id);
    memcpy(q.u.vm.id, id, sizeof id);
    q.u.vm.have = 1u << SPF_RAM | 1u << SPF_DISK_TOP | 1u << SPF_DISK_MID | 1u << SPF_DISK_BASE | 3u << SPF_LAYER;
    int in[] = {ram_fd, open_at("top.qcow2", O_RDWR), open_at("mid.qcow2", O_RDONLY), open_at("base.raw", O_RDONLY), open_at("l0.qcow2", O_RDONLY), open_at("l1.qcow2", O_RDONLY)};
    int fds[3], n = 3;
    struct sp_rep rep;
    struct err e;
    if (spawn_call_sync(fx.fd, &q, in, 6, &rep, fds, &n, &fx.ev, 20000, &e)) {
        printf("# %s\n", e.msg);
        fx_log();
        CHECK(!"starts");
    }
    pid = rep.u.info.pid;
    char hello[512];
    struct pollfd p = {.fd = fds[2], .events = POLLIN};
    CHECK(poll(&p, 1, 20000) == 1 && read(fds[2], hello, sizeof hello) > 0); /* QMP greets: the RAM is mapped */
}

static uint64_t ram_at(void)
{
    char path[64], line[512];
    unsigned long long from = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "hutch-ram") && sscanf(line, "%llx-", &from) == 1)
            break;
    if (f)
        fclose(f);
    CHECK(from);
    return from;
}

static void poke(uint32_t page, const char *text)
{
    struct iovec l = {(void *)(uintptr_t)text, strlen(text)}, r = {(void *)(uintptr_t)(ram_at() + (uint64_t)page * 4096), strlen(text)};
    CHECK(process_vm_writev(pid, &l, 1, &r, 1, 0) == (ssize_t)l.iov_len);
}

static int save(int also, int skip_zero, int *pages, int *index, struct sp_rep *rep, struct err *e)
{
    struct sp_req q = {.op = SP_VM_SAVE, .u.save = {.ram_mib = MIB, .skip_zero = (uint32_t)skip_zero}};
    memcpy(q.u.save.id, id, sizeof id);
    *pages = open_at("pages", O_RDWR | O_CREAT | O_TRUNC), *index = open_at("index", O_RDWR | O_CREAT | O_TRUNC);
    int in[] = {*pages, *index, also};
    return spawn_call_sync(fx.fd, &q, in, also >= 0 ? 3 : 2, rep, NULL, NULL, &fx.ev, 20000, e);
}

TEST(save, exactly_the_pages_the_clone_made_its_own)
{
    struct sp_rep rep;
    struct err e = {0};
    int pages, index;
    unsigned char buf[4096], entries[PAGES_INDEX + 64];
    fx_start();
    slot();
    poke(3, "hello");
    poke(7, "mine, not the "); /* over the template's bytes */
    poke(MIB * 256 - 1, "last");
    if (save(-1, 0, &pages, &index, &rep, &e)) {
        printf("# %s\n", e.msg);
        fx_log();
        CHECK(!"saves");
    }
    CHECK_INT(rep.u.saved.pages, 3);
    uint32_t n;
    ssize_t got = pread(index, entries, sizeof entries, 0);
    CHECK_INT(pages_index_check(entries, (size_t)got, MIB * 256, &n, &e), 0);
    CHECK_INT(n, 3);
    static const uint32_t want[] = {3, 7, MIB * 256 - 1};
    static const char *const text[] = {"hello", "mine, not the ", "last"};
    for (uint32_t i = 0; i < 3; i++) {
        struct page_entry en = pages_entry_get(entries + PAGES_INDEX + i * 8);
        CHECK_INT(en.page, want[i]);
        CHECK_INT(pread(pages, buf, 4096, (off_t)pages_at(i)), 4096);
        CHECK(!memcmp(buf, text[i], strlen(text[i])));
        CHECK_INT(crc32c(0, buf, 4096), en.crc);
    }
    CHECK_INT(lseek(pages, 0, SEEK_END), pages_size(3));
    /* with pages that must come along, although they are the template's */
    unsigned char also[PAGES_INDEX + 16];
    pages_entry_put(also + PAGES_INDEX, (struct page_entry){5, 0});
    pages_entry_put(also + PAGES_INDEX + 8, (struct page_entry){7, 0});
    pages_index_head(also, also + PAGES_INDEX, 2, MIB * 256);
    int fd = open_at("also", O_RDWR | O_CREAT | O_TRUNC);
    CHECK(fd_write_all(fd, also, sizeof also));
    CHECK_INT(save(fd, 0, &pages, &index, &rep, &e), 0);
    CHECK_INT(rep.u.saved.pages, 4);
    /* a RAM that began empty: zeros are not saved */
    CHECK_INT(save(fd, 1, &pages, &index, &rep, &e), 0);
    CHECK_INT(rep.u.saved.pages, 3);
    CHECK_INT(lseek(pages, 0, SEEK_END), pages_size(3));
    also[PAGES_INDEX] = 99; /* a damaged list is refused */
    CHECK(pwrite(fd, also, sizeof also, 0) == (ssize_t)sizeof also);
    CHECK_INT(save(fd, 0, &pages, &index, &rep, &e), -1);
    fx_stop();
}

TEST(save, refuses_what_is_not_right)
{
    struct sp_rep rep;
    struct err e = {0};
    fx_start();
    slot();
    struct sp_req q = {.op = SP_VM_SAVE, .u.save = {.ram_mib = MIB}};
    memcpy(q.u.save.id, id, sizeof id);
    int empty = open_at("a", O_RDWR | O_CREAT), other = open_at("b", O_RDWR | O_CREAT), full = open_at("base.raw", O_RDWR), wo = open_at("c", O_WRONLY | O_CREAT);
    int one[] = {empty}, used[] = {full, other}, write_only[] = {wo, other}, good[] = {empty, other};
    CHECK_INT(spawn_call_sync(fx.fd, &q, one, 1, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    CHECK_INT(spawn_call_sync(fx.fd, &q, used, 2, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    CHECK_INT(spawn_call_sync(fx.fd, &q, write_only, 2, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q.u.save.ram_mib = MIB * 2; /* not what is mapped */
    CHECK_INT(spawn_call_sync(fx.fd, &q, good, 2, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_GUEST);
    id_make('i', q.u.save.id);
    CHECK_INT(spawn_call_sync(fx.fd, &q, good, 2, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    fx_stop();
}

TEST(save, release_keeps_the_files)
{
    struct sp_rep rep;
    struct err e = {0};
    fx_start();
    slot();
    CHECK_INT(sh("mkdir -p %s/home/boxes/%s && echo x > %s/home/boxes/%s/disk.qcow2", fx.dir, id, fx.dir, id), 0);
    CHECK_INT(call(SP_RELEASE, id, &rep, NULL, NULL, &e), 0);
    CHECK_INT(kill(pid, 0), -1);
    CHECK_INT(sh("test -f %s/home/boxes/%s/disk.qcow2", fx.dir, id), 0);
    CHECK_INT(call(SP_RELEASE, id, &rep, NULL, NULL, &e), 0); /* again: nothing to do */
    CHECK_INT(sh("test -f %s/home/boxes/%s/disk.qcow2", fx.dir, id), 0);
    CHECK_INT(call(SP_REMOVE, id, &rep, NULL, NULL, &e), 0);
    CHECK_INT(sh("! test -e %s/home/boxes/%s", fx.dir, id), 0);
    fx_stop();
}
TEST_MAIN
