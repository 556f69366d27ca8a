/* hutch-untar: one archive from descriptor 0 into the current directory. The
 * spawner starts it inside the jail with the new file system as its directory.
 *
 *   hutch-untar [--max-bytes N] [--max-files N] [--no-owner] [--oci | --image | --onto]
 *
 *   --oci     a single layer: obey whiteouts
 *   --image   descriptor 0 is a seekable image archive (OCI layout or
 *             docker-archive): apply all its layers
 *   --onto    descriptor 0 is a difference (image/difference.h), the directory
 *             holds the tree it is told against
 *
 * stdout, one line each:
 *   progress <bytes> <files>              at most ten a second, and at the end
 *   skipped <entries> <xattrs>            if any
 *   config <json>                         --image: see image/oci.h
 *   error <code> <message>                then exit status 1
 *
 * The lines carry text from a hostile archive: control bytes are replaced. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "image/difference.h"
#include "image/import.h"
#include "image/untar.h"
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_MAX_BYTES (16ull << 30)
#define DEFAULT_MAX_FILES (2ull << 20)
#define LIMIT_MAX         (1ull << 50)
#define TAIL_MAX          (1u << 20) /* padding after the end of the archive */

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < b.n; i++)
        if ((unsigned char)b.p[i] < ' ' || b.p[i] == 0x7f)
            b.p[i] = '?';
    buf_putc(&b, '\n');
    (void)fd_write_all(STDOUT_FILENO, b.p, b.n); /* nobody listening: the work goes on */
}

static int fail(const struct err *e)
{
    say("error %s %s", err_name(e->code), e->msg);
    return 1;
}

static void on_progress(void *arg, const struct untar_stats *st)
{
    int64_t *next = arg, now = clock_mono();
    if (now < *next)
        return;
    *next = now + NS_PER_S / 10;
    say("progress %llu %llu", (unsigned long long)st->bytes, (unsigned long long)st->files);
}

static int number(const char *text, uint64_t *ret, struct err *e)
{
    if (!text || !str_u64(str_of(text), ret) || *ret > LIMIT_MAX)
        return err_set(e, E_INVALID, "a limit is not a number");
    return 0;
}

/* The writer of a pipe may still have padding to send; do not break its pipe. */
static void drain(int fd)
{
    char buf[4096];
    for (size_t total = 0; total < TAIL_MAX;) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n <= 0)
            return;
        total += (size_t)n;
    }
}

static int run(int argc, char **argv, struct err *e)
{
    struct untar u;
    struct oci_config config;
    bool image = false, onto = false;
    int64_t next = 0;
    int root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_set(e, E_INTERNAL, "no directory to unpack into");
    untar_init(&u, root);
    u.max_bytes = DEFAULT_MAX_BYTES, u.max_files = DEFAULT_MAX_FILES;
    u.on_progress = on_progress, u.arg = &next;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--max-bytes") || !strcmp(a, "--max-files")) {
            if (number(argv[i + 1], a[6] == 'b' ? &u.max_bytes : &u.max_files, e) < 0)
                return -1;
            i++;
        } else if (!strcmp(a, "--no-owner")) {
            u.no_owner = true;
        } else if (!strcmp(a, "--oci")) {
            u.oci = true;
        } else if (!strcmp(a, "--image")) {
            image = true;
        } else if (!strcmp(a, "--onto")) {
            onto = true;
        } else {
            return err_set(e, E_INVALID, "unknown option");
        }
    }
    int rc = image ? import_image(&u, STDIN_FILENO, &config, e) : onto ? untar_onto(&u, STDIN_FILENO, e) : untar_fd(&u, STDIN_FILENO, e);
    if (rc == 0 && !u.st.files)
        rc = err_set(e, E_INVALID, "the archive is empty");
    untar_fini(&u);
    if (rc < 0)
        return -1;
    if (!image)
        drain(STDIN_FILENO);
    say("progress %llu %llu", (unsigned long long)u.st.bytes, (unsigned long long)u.st.files);
    if (u.st.skipped || u.st.xattrs_skipped)
        say("skipped %llu %llu", (unsigned long long)u.st.skipped, (unsigned long long)u.st.xattrs_skipped);
    if (image) {
        auto_buf line = {0};
        oci_config_write(&config, &line);
        oci_config_fini(&config);
        say("config %s", line.p);
    }
    (void)close(root);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    /* libarchive converts names from the pax header's UTF-8 to the locale; this one is built into libc. */
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        (void)setlocale(LC_CTYPE, "C");
    umask(0);
    return run(argc, argv, &e) < 0 ? fail(&e) : 0;
}
