/* Builds tar archives byte by byte, also impossible ones, for the tests of
 * image/. Ustar headers; pax records, GNU base-256 sizes and sparse maps by hand. */
#pragma once
#include "base/buf.h"
#include "test.h"
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct member {
    const char *name;
    char type; /* '0' file, '1' hard, '2' sym, '3' chr, '5' dir, '6' fifo, 'x' pax, 'L' long name, 'S' sparse */
    const char *link, *data;
    size_t ndata;     /* of data; 0: strlen */
    unsigned mode;    /* 0: 0644, directories 0755 */
    uint64_t size;    /* announced; 0: that of the data */
    unsigned uid;
};

static inline void tar_octal(char *at, size_t n, uint64_t v)
{
    if (v >> (3 * (n - 1)) || n == 12) { /* base-256 when it does not fit; always for sizes >= 8 GiB */
        if (v < (1ull << 33) || n != 12) {
            (void)snprintf(at, n, "%0*llo", (int)n - 1, (unsigned long long)v);
            return;
        }
        memset(at, 0, n);
        at[0] = (char)0x80;
        for (size_t i = 0; i < 8; i++)
            at[n - 1 - i] = (char)(v >> (8 * i));
        return;
    }
    (void)snprintf(at, n, "%0*llo", (int)n - 1, (unsigned long long)v);
}

static inline void tar_checksum(char h[512])
{
    unsigned sum = 0;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", sum);
    h[155] = ' ';
}

static inline void tar_pad(struct buf *b)
{
    while (b->n % 512)
        buf_putc(b, 0);
}

static inline void tar_add(struct buf *b, struct member m)
{
    char h[512] = {0};
    size_t n = m.data ? (m.ndata ? m.ndata : strlen(m.data)) : 0;
    CHECK(strlen(m.name) <= 100);
    memcpy(h, m.name, strlen(m.name));
    tar_octal(h + 100, 8, m.mode ? m.mode : m.type == '5' ? 0755 : 0644);
    tar_octal(h + 108, 8, m.uid);
    tar_octal(h + 116, 8, m.uid);
    tar_octal(h + 124, 12, m.size ? m.size : n);
    tar_octal(h + 136, 12, 1000000000);
    h[156] = m.type ? m.type : '0';
    if (m.link)
        memcpy(h + 157, m.link, strlen(m.link) < 100 ? strlen(m.link) : 100);
    memcpy(h + 257, "ustar\00000", 8);
    tar_checksum(h);
    buf_put(b, h, 512);
    if (n)
        buf_put(b, m.data, n);
    tar_pad(b);
}

/* One pax record: "<len> key=value\n". */
static inline void tar_record(struct buf *rec, const char *key, const char *value, size_t nvalue)
{
    size_t body = strlen(key) + nvalue + 3, len = body + 1;
    char num[24];
    while ((size_t)snprintf(num, sizeof num, "%zu", len) + body != len)
        len++;
    buf_printf(rec, "%zu %s=", len, key);
    buf_put(rec, value, nvalue);
    buf_putc(rec, '\n');
}

/* A pax header of one record for the member that follows. */
static inline void tar_pax(struct buf *b, const char *key, const char *value, size_t nvalue)
{
    auto_buf rec = {0};
    tar_record(&rec, key, value, nvalue);
    tar_add(b, (struct member){.name = "pax", .type = 'x', .data = rec.p, .ndata = rec.n});
}

static inline void tar_end(struct buf *b)
{
    char zero[1024] = {0};
    buf_put(b, zero, sizeof zero);
}

/* The bytes as a file to read from the start. */
static inline int tar_file(const struct buf *b)
{
    int fd = memfd_create("tar", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(write(fd, b->p, b->n) == (ssize_t)b->n);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

/* A directory with root/ inside it and a file "secret" beside it. */
struct place { char dir[64]; int outside, root; };

/* These archives attack the file system, and the code under test may be broken:
 * as root that would be the machine's. Each test is a process of its own. */
static inline void place_drop_root(void)
{
    if (geteuid() == 0)
        CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
}

static inline struct place place_new_as_is(void)
{
    struct place p;
    (void)snprintf(p.dir, sizeof p.dir, "/tmp/hutch-untar-XXXXXX");
    CHECK(mkdtemp(p.dir));
    p.outside = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(p.outside >= 0 && mkdirat(p.outside, "root", 0755) == 0);
    p.root = openat(p.outside, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(p.outside, "secret", O_WRONLY | O_CREAT, 0600);
    CHECK(p.root >= 0 && fd >= 0 && write(fd, "secret", 6) == 6);
    close(fd);
    return p;
}

static inline struct place place_new(void)
{
    place_drop_root();
    return place_new_as_is();
}

static inline char *place_read(int dirfd, const char *path, char out[256])
{
    int fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, 255);
    if (fd >= 0)
        close(fd);
    out[n < 0 ? 0 : n] = 0;
    return n < 0 ? NULL : out;
}

/* Nothing outside root/ changed: same two names, same secret, one link to it. */
static inline void place_check(struct place *p)
{
    char text[256], cmd[160];
    struct stat st;
    CHECK_STR(place_read(p->outside, "secret", text), "secret");
    CHECK(fstatat(p->outside, "secret", &st, 0) == 0 && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
    (void)snprintf(cmd, sizeof cmd, "test \"$(ls -A %s | tr '\\n' ' ')\" = 'root secret '", p->dir);
    CHECK(system(cmd) == 0);
}

static inline void place_free(struct place *p)
{
    char cmd[160];
    place_check(p);
    (void)snprintf(cmd, sizeof cmd, "chmod -R u+rwx %s; rm -rf %s", p->dir, p->dir);
    CHECK(system(cmd) == 0);
    close(p->root);
    close(p->outside);
}
