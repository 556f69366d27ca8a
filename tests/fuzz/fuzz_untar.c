/* Extraction into a directory on tmpfs. Even first byte: the rest is an archive
 * as it is. Odd: the rest is a list of members in a small language of colliding
 * names, written out as a well-formed tar, so that the fuzzer spends its time in
 * our code and not on checksums. Bit 1 turns whiteouts on, bit 2 makes it an
 * image import. Nothing beside the root may ever change. */
#include "base/buf.h"
#include "image/import.h"
#include "image/untar.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/dev/shm/hutch-fuzz-XXXXXX";
static int outside = -1;

static void wipe(int at, const char *name)
{
    struct dirent *de;
    if (unlinkat(at, name, 0) == 0)
        return;
    (void)fchmodat(at, name, 0700, 0); /* a directory: unlinkat refused it */
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    while (d && (de = readdir(d)))
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
            wipe(fd, de->d_name);
    if (d)
        closedir(d);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}
static void clean(void) { wipe(AT_FDCWD, dir); }

static void setup(void)
{
    /* A hole that this finds must not be one in the machine. */
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
        abort();
    if (!mkdtemp(dir))
        abort();
    (void)atexit(clean);
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    umask(0);
    outside = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(outside, "secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (outside < 0 || fd < 0 || write(fd, "secret", 6) != 6)
        abort();
    close(fd);
}

static void check_outside(void)
{
    char text[16];
    struct stat st;
    int fd = openat(outside, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC), names = 0;
    if (fd < 0 || read(fd, text, sizeof text) != 6 || memcmp(text, "secret", 6) || fstat(fd, &st) < 0 || st.st_nlink != 1 || (st.st_mode & 07777) != 0600)
        abort();
    close(fd);
    DIR *d = opendir(dir);
    while (readdir(d))
        names++;
    closedir(d);
    if (names != 4) /* . .. root secret */
        abort();
}

/* ---- the small language ----------------------------------------------------------------------------------------- */

static const char *const word[16] = {"a", "b", "c", "d/", "a/b", "..", ".", "/", "secret", "../secret", ".wh.a", ".wh..wh..opq", ".wh.", "root", "a/a/a", "../.."};

static void name_from(const unsigned char *p, char out[100])
{
    (void)snprintf(out, 100, "%s%s%s%s%s", word[p[0] & 15], p[0] & 16 ? "/" : "", p[0] & 16 ? word[p[1] & 15] : "", p[1] & 16 ? "/" : "", p[1] & 16 ? word[p[1] >> 5] : "");
}

static void header(struct buf *b, const unsigned char *p)
{
    static const char types[8] = {'0', '0', '1', '2', '2', '5', '5', '6'};
    char h[512] = {0}, link[100];
    unsigned sum = 0, size = p[4] & 8 ? 5 : 0;
    name_from(p, h);
    h[99] = 0;
    h[156] = types[p[4] & 7];
    if (h[156] != '0')
        size = 0;
    (void)snprintf(h + 100, 8, "%07o", (unsigned)p[5] << 1 & 07777);
    (void)snprintf(h + 108, 8, "%07o", 0);
    (void)snprintf(h + 116, 8, "%07o", 0);
    (void)snprintf(h + 124, 12, "%011o", size);
    (void)snprintf(h + 136, 12, "%011o", 1000000000);
    name_from(p + 2, link);
    memcpy(h + 157, link, strlen(link));
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", sum & 0777777);
    h[155] = ' ';
    buf_put(b, h, 512);
    if (size) {
        memset(h, 'x', 512);
        buf_put(b, h, 512);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    static struct oci_config config;
    auto_buf tar = {0};
    struct untar u;
    struct err e = {0};
    char root_path[64];
    if (!n)
        return 0;
    if (outside < 0)
        setup();
    unsigned flags = data[0];
    if (flags & 1) {
        char zero[1024] = {0};
        for (size_t i = 1; i + 6 <= n && i < 6 * 64; i += 6)
            header(&tar, data + i);
        buf_put(&tar, zero, sizeof zero);
    } else {
        buf_put(&tar, data + 1, n - 1);
    }
    (void)snprintf(root_path, sizeof root_path, "%s/root", dir);
    if (mkdir(root_path, 0755) < 0)
        abort();
    int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (root < 0 || fd < 0 || write(fd, tar.p, tar.n) != (ssize_t)tar.n || lseek(fd, 0, SEEK_SET))
        abort();
    untar_init(&u, root);
    u.max_bytes = 1 << 20, u.max_files = 200, u.oci = flags & 2, u.no_owner = geteuid() != 0;
    int rc = flags & 4 ? import_image(&u, fd, &config, &e) : untar_fd(&u, fd, &e);
    if (rc == 0 && flags & 4)
        oci_config_fini(&config);
    if ((rc < 0 && (!e.code || !*e.msg)) || u.st.bytes > u.max_bytes || (rc == 0 && u.st.files > u.max_files))
        abort();
    untar_fini(&u);
    close(fd);
    close(root);
    check_outside();
    wipe(outside, "root");
    return 0;
}
