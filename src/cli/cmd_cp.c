/* hutch cp: files by the files API, folders as tar streams through a command
 * inside. One side is ID:/path. "-" is standard input or output. As with cp, a
 * destination that is a folder takes the source inside it. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmds.h"
#include "cli/sandbox.h"
#include "cli/stream.h"
#include "cli/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SIZE_MIB \
    16384 /* without --max-size, --max-files: what a sandbox can put onto this disk by one copy */
#define MAX_FILES 1000000

struct place { char *id /* NULL: here */, *path; };

static struct place place_of(const char *s)
{
    const char *colon = strchr(s, ':');
    if (colon && colon != s && name_ok((struct str){s, (size_t)(colon - s)}) && colon[1])
        return (struct place){xstrndup(s, (size_t)(colon - s)), xstrdup(colon + 1)};
    return (struct place){NULL, xstrdup(s)};
}

static const char *base_name(char *path) /* cuts trailing slashes */
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = 0;
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* "file", "dir", …; "" if it does not exist; NULL with x->err. */
static const char *remote_type(struct cli *x, const char *id, const char *path, char out[16])
{
    auto_free char *t = url("/v1/sandboxes/{}/files/stat?path={}", id, path);
    auto_json j = NULL;
    out[0] = 0;
    if (api_call(x, "GET", t, NULL, &j) == 0) {
        (void)snprintf(out, 16, "%s", jget_str(j, "type", "other"));
        return out;
    }
    if (x->err.code != E_NOT_FOUND)
        return NULL;
    auto_free char *sb = url("/v1/sandboxes/{}", id); /* the file, or the sandbox? */
    return api_call(x, "GET", sb, NULL, NULL) ? NULL : (x->hint[0] = 0, out);
}

/* -- into a sandbox -- */

static int put_file(struct cli *x, const struct place *to, const char *path, int fd, int64_t len, unsigned mode, const char *user)
{
    char m[8];
    (void)snprintf(m, sizeof m, "%04o", mode & 0777);
    auto_free char *t = url("/v1/sandboxes/{}/files?path={}&mode={}", to->id, path, m);
    url_arg(&t, "user", user);
    auto_client c = api_open(x);
    return c ? api_send_fd(x, c, "PUT", t, "application/octet-stream", fd, len) : -1;
}

struct packer { int fd; const char *dir; struct err err; int rc; };
static void *pack_main(void *arg)
{
    struct packer *p = arg;
    p->rc = tar_write_dir(p->fd, p->dir, &p->err);
    (void)close(p->fd);
    return NULL;
}

static int put_dir(struct cli *x, const struct place *to, const char *path, const char *dir, const char *user)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC))
        return err_sys(&x->err, errno, "pipe");
    char script[] = "mkdir -p -- \"$1\" && exec tar -xf - -C \"$1\"";
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, script, (char[]){"sh"}, (char *)path};
    struct exec_req q = {.argv = argv, .argc = 5, .user = user, .keep_stdin = true};
    struct exec_run r = {
        .id = to->id, .stdin_fd = p[0], .out_fd = -1, .err_fd = STDERR_FILENO, .escape_err = true};
    struct packer pk = {.fd = p[1], .dir = dir};
    pthread_t t;
    int rc = pthread_create(&t, NULL, pack_main, &pk);
    if (rc) {
        (void)close(p[0]), (void)close(p[1]);
        return err_sys(&x->err, rc, "thread");
    }
    rc = exec_body(x, &q, &r.body) || exec_stream(x, &r) ? -1 : 0;
    buf_free(&r.body);
    (void)close(p[0]); /* whatever happened, the packer must not wait for a reader that left */
    pthread_join(t, NULL);
    if (pk.rc && pk.err.sys != EPIPE) { /* the cause; what the other end says is its echo */
        x->err = pk.err;
        return -1;
    }
    if (rc)
        return -1;
    return r.status ? err_set(&x->err, E_GUEST, "unpacking in the sandbox failed with status %d", r.status) : 0;
}

static int copy_in(struct cli *x, char *src, struct place *to, const char *user)
{
    char type[16];
    if (!strcmp(src, "-"))
        return put_file(x, to, to->path, STDIN_FILENO, -1, 0644, user);
    struct stat st;
    auto_fd fd = open(src, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return err_sys(&x->err, errno, "cannot open '%.100s'", src);
    bool slash = to->path[strlen(to->path) - 1] == '/';
    const char *kind = slash ? "dir" : remote_type(x, to->id, to->path, type);
    if (!kind)
        return -1;
    auto_free char *full = strcmp(src, "/") && !strcmp(kind, "dir") ? xasprintf("%s%s%s", to->path, slash ? "" : "/", base_name(src)) : xstrdup(to->path);
    if (S_ISDIR(st.st_mode))
        return put_dir(x, to, full, src, user);
    return put_file(x, to, full, fd, S_ISREG(st.st_mode) ? st.st_size : -1, S_ISREG(st.st_mode) ? st.st_mode : 0644, user);
}

/* -- out of a sandbox -- */

static int get_file(struct cli *x, const struct place *from, const char *dst,
                    const struct untar_may *may)
{
    auto_free char *t = url("/v1/sandboxes/{}/files?path={}", from->id, from->path);
    return api_download(x, t, dst, may->bytes);
}

struct unpacker {
    int fd /* its own */, root;
    const struct untar_may *may;
    struct err err;
    int rc;
    bool refused;
    int64_t skipped, left_out;
};
static void *unpack_main(void *arg)
{
    struct unpacker *p = arg;
    struct untar u;
    char data[65536];
    ssize_t n;
    untar_init(&u, p->root, p->may);
    while (!p->rc && ((n = read(p->fd, data, sizeof data)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0)
            p->rc = untar_push(&u, data, (size_t)n, &p->err);
    (void)close(
        p->fd); /* after an error: the stream ends, and with it the command. What comes may have no end */
    p->refused = p->rc != 0;
    p->skipped = u.skipped;
    p->left_out = u.left_out;
    if (untar_end(&u, p->rc ? NULL : &p->err))
        p->rc = -1;
    return NULL;
}

/* follow: the user named it, and may well mean what it leads to. Else a copy before this one may have made it. */
static int open_folder(struct cli *x, const char *dst, bool follow)
{
    int fd = open(dst, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0 && !follow && (errno == ELOOP || errno == ENOTDIR))
        return err_set(
            &x->err, E_CONFLICT,
            "'%.100s' is not a directory but a link or a file; it is not followed or replaced. Remove it, or name another destination",
            dst);
    return fd < 0 ? err_sys(&x->err, errno, "cannot open the directory '%.100s'", dst) : fd;
}

static void tell_left_out(const struct unpacker *up)
{
    if (up->skipped)
        (void)fprintf(stderr, "hutch: %lld hard links, devices or pipes were skipped\n",
                      (long long)up->skipped);
    if (up->left_out)
        (void)fprintf(
            stderr,
            "hutch: %lld links that lead out of the directory were left out; --links keeps them\n",
            (long long)up->left_out);
}

static int get_dir(struct cli *x, const struct place *from, const char *dst, bool follow,
                   const struct untar_may *may)
{
    if (mkdir(dst, 0755) && errno != EEXIST)
        return err_sys(&x->err, errno, "cannot create the directory '%.100s'", dst);
    auto_fd root = open_folder(x, dst, follow);
    int p[2], rc;
    if (root < 0)
        return -1;
    if (pipe2(p, O_CLOEXEC))
        return err_sys(&x->err, errno, "pipe");
    char *argv[] = {(char[]){"tar"}, (char[]){"-cf"}, (char[]){"-"}, (char[]){"-C"}, from->path, (char[]){"."}};
    struct exec_req q = {.argv = argv, .argc = 6};
    struct exec_run r = {.id = from->id,
                         .stdin_fd = -1,
                         .out_fd = p[1],
                         .err_fd = STDERR_FILENO,
                         .escape_err = true};
    struct unpacker up = {.fd = p[0], .root = root, .may = may};
    pthread_t t;
    if ((rc = pthread_create(&t, NULL, unpack_main, &up))) {
        (void)close(p[0]), (void)close(p[1]);
        return err_sys(&x->err, rc, "thread");
    }
    rc = exec_body(x, &q, &r.body) || exec_stream(x, &r) ? -1 : 0;
    buf_free(&r.body);
    (void)close(p[1]);
    pthread_join(t, NULL);
    tell_left_out(&up);
    if (up.refused) { /* the cause; what the stream says is its echo */
        x->err = up.err;
        return -1;
    }
    if (rc)
        return -1;
    if (r.status)
        return err_set(&x->err, E_GUEST, "packing in the sandbox failed with status %d", r.status);
    if (up.rc)
        x->err = up.err;
    return up.rc;
}

static int copy_out(struct cli *x, struct place *from, const char *dst, const struct untar_may *may)
{
    char type[16];
    const char *kind = remote_type(x, from->id, from->path, type);
    if (!kind)
        return -1;
    if (!*kind)
        return err_set(&x->err, E_NOT_FOUND, "'%.120s' does not exist in sandbox %.40s", from->path, from->id);
    struct stat st;
    bool into = strcmp(dst, "-") != 0 && stat(dst, &st) == 0 && S_ISDIR(st.st_mode);
    const char *base = base_name(from->path);
    auto_free char *full = into && strcmp(base, "/") ? xasprintf("%s/%s", dst, base) : xstrdup(dst);
    if (strcmp(kind, "dir") != 0)
        return get_file(x, from, full, may);
    if (!strcmp(dst, "-"))
        return err_set(&x->err, E_INVALID, "a directory cannot be copied to standard output; use hutch exec ID -- tar -cf - DIR");
    return get_dir(x, from, full, !into, may);
}

static int read_may(struct cli *x, struct args *a, struct untar_may *may)
{
    may->links_out = args_flag(a, "links");
    if (args_int(a, "max-size", 1, INT64_MAX >> 21, MAX_SIZE_MIB, &may->bytes, &x->err) || args_int(a, "max-files", 1, INT64_MAX, MAX_FILES, &may->entries, &x->err))
        return -1;
    may->bytes <<= 20;
    return 0;
}

static int exec_cp(struct cli *x, struct args *a)
{
    struct untar_may may = {0};
    if (read_may(x, a, &may))
        return cli_fail(x);
    struct place from = place_of(a->v[0]), to = place_of(a->v[1]);
    int rc;
    if (from.id && to.id)
        rc = err_set(&x->err, E_INVALID,
                     "cp: both sides are in sandboxes; copy to this machine first");
    else if (!from.id && !to.id)
        rc = err_set(&x->err, E_INVALID, "cp: one side must be ID:/path");
    else
        rc = to.id ? copy_in(x, from.path, &to, args_str(a, "user", NULL)) : copy_out(x, &from, to.path, &may);
    free(from.id), free(from.path), free(to.id), free(to.path);
    return rc ? cli_fail(x) : 0;
}

static const struct opt opts[] = {{"user", 'u', 's', "NAME", "owner of the copied files in the sandbox (user)", NULL},
                                  {"links", 0, 'f', NULL, "out of a sandbox: keep links that lead out of the directory", NULL},
                                  {"max-size", 0, 's', "MIB", "out of a sandbox: refuse more than this (16384)", NULL},
                                  {"max-files", 0, 's', "N", "out of a sandbox: refuse more files and directories (1000000)", NULL},
                                  OPT_END};
const struct cmd cmd_cp = {.name = "cp", .usage = "SRC DST (one of them ID:/path; - is standard input or output)", .help = "copy files and directories into and out of a sandbox",
                           .opts = opts, .min = 2, .max = 2, .words = "@place @file", .exec = exec_cp};
