/* A volume's files over messages: client and server of wire/share.h in one
 * process, under this machine's own FUSE. As root. The server can be replaced
 * at any time by one that knows nothing (SIGUSR1), with or without losing the
 * answers that are under way (SIGUSR2). */
#define TEST_SECONDS 60
#include "guest/fuse.h"
#include "guest/serve.h"
#include "test.h"
#include "wire/share.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static char top[64], vol[96], mnt[96];
static pid_t pump;
static volatile sig_atomic_t replace, lose;
static void on_usr1(int s) { (void)s, replace = 1; }
static void on_usr2(int s) { (void)s, lose = 1; }

static int to_kernel(void *arg, const void *p, size_t n) { return write(*(int *)arg, p, n) < 0 ? errno : 0; }

static bool changes(const struct buf *msg)
{
    struct share_head h;
    struct fuse_in_header in;
    memcpy(&h, msg->p, sizeof h);
    memcpy(&in, msg->p + sizeof h + h.path_n + h.path2_n, sizeof in);
    return in.opcode != FUSE_LOOKUP && in.opcode != FUSE_GETATTR;
}

static void serve_forever(int dev, bool ro)
{
    static unsigned char buf[FUSE_READ_SIZE];
    struct fuse f;
    struct serve s;
    struct sigaction a1 = {.sa_handler = on_usr1}, a2 = {.sa_handler = on_usr2};
    sigaction(SIGUSR1, &a1, NULL), sigaction(SIGUSR2, &a2, NULL);
    int root = open(vol, O_RDONLY | O_DIRECTORY);
    fuse_init(&f, to_kernel, &dev);
    serve_init(&s, root, ro);
    fuse_connected(&f);
    for (;;) {
        ssize_t n = read(dev, buf, sizeof buf);
        if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            n = 0;
        if (n < 0)
            break; /* unmounted */
        if (n > 0 && fuse_request(&f, buf, (size_t)n))
            _exit(3);
        for (;;) {
            size_t k;
            const unsigned char *m = fuse_next(&f, &k);
            if (!m)
                break;
            auto_buf msg = {0}, out = {0};
            buf_put(&msg, m, k);
            fuse_sent(&f, k);
            if (serve_message(&s, msg.p, msg.n, &out))
                _exit(4);
            if (lose && changes(&msg)) { /* it was done, but nobody hears of it */
                lose = 0, replace = 1;
                break;
            }
            if (fuse_reply(&f, out.p, out.n))
                _exit(5);
        }
        if (replace) {
            replace = 0;
            serve_fini(&s);
            fuse_disconnected(&f);
            serve_init(&s, root, ro);
            fuse_connected(&f);
            for (size_t k; fuse_next(&f, &k);) {
                auto_buf out = {0};
                auto_buf msg = {0};
                buf_put(&msg, fuse_next(&f, &k), k);
                fuse_sent(&f, k);
                if (serve_message(&s, msg.p, msg.n, &out) || fuse_reply(&f, out.p, out.n))
                    _exit(6);
            }
        }
    }
    size_t left = f.nodes.n;
    fuse_fini(&f);
    serve_fini(&s);
    _exit(left > 100000 ? 7 : 0);
}

static void begin(bool ro)
{
    char opts[128];
    if (getuid() || access("/dev/fuse", R_OK | W_OK))
        SKIP("needs root and FUSE");
    CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    strcpy(top, "/tmp/hutch-share-XXXXXX");
    CHECK(mkdtemp(top));
    chmod(top, 0755);
    snprintf(vol, sizeof vol, "%s/vol", top), snprintf(mnt, sizeof mnt, "%s/mnt", top);
    CHECK(!mkdir(vol, 0777) && !mkdir(mnt, 0755));
    chmod(vol, 0777);
    int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    CHECK(dev >= 0);
    snprintf(opts, sizeof opts, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=%u", dev, SHARE_IO_MAX);
    pump = fork();
    if (!pump) {
        alarm(0);
        usleep(20000); /* the mount comes first */
        serve_forever(dev, ro);
    }
    if (mount("test", mnt, "fuse.hutch", MS_NOSUID | MS_NODEV, opts))
        SKIP("FUSE cannot be mounted here");
    close(dev);
}

static void end(void)
{
    int st;
    char cmd[128];
    CHECK(!umount2(mnt, MNT_DETACH));
    CHECK(waitpid(pump, &st, 0) == pump);
    CHECK_INT(st, 0);
    snprintf(cmd, sizeof cmd, "rm -rf %s", top);
    CHECK(!system(cmd));
}

static char *at(const char *name)
{
    static char p[4][256];
    static int i;
    char *r = p[i++ % 4];
    snprintf(r, 256, "%s/%s", mnt, name);
    return r;
}
static char *under(const char *name)
{
    static char p[256];
    snprintf(p, sizeof p, "%s/%s", vol, name);
    return p;
}
static void put(const char *name, const char *text)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd));
}
static const char *get(const char *path)
{
    static char b[4096];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return strerror(errno);
    ssize_t n = read(fd, b, sizeof b - 1);
    close(fd);
    b[n > 0 ? n : 0] = 0;
    return b;
}

TEST(share, files_come_and_go)
{
    struct stat st;
    begin(false);
    put("a", "hello");
    CHECK_STR(get(under("a")), "hello");
    CHECK_STR(get(at("a")), "hello");
    CHECK(!mkdir(at("d"), 0750) && !stat(under("d"), &st) && (st.st_mode & 07777) == 0750);
    CHECK(!rename(at("a"), at("d/b")) && access(under("a"), F_OK) < 0);
    CHECK_STR(get(at("d/b")), "hello");
    CHECK(!symlink("d/b", at("l")));
    CHECK_STR(get(at("l")), "hello");
    CHECK(!link(at("d/b"), at("hard")) && !stat(at("hard"), &st) && st.st_nlink == 2);
    CHECK(mkdir(at("d"), 0755) < 0 && errno == EEXIST);
    CHECK(rmdir(at("d")) < 0 && errno == ENOTEMPTY);
    CHECK(unlink(at("nothing")) < 0 && errno == ENOENT);
    CHECK(!rename(at("d"), at("e")));
    CHECK_STR(get(at("e/b")), "hello");
    CHECK(!unlink(at("e/b")) && !rmdir(at("e")) && !unlink(at("l")) && !unlink(at("hard")));
    CHECK(!mkfifo(at("pipe"), 0600) && !stat(under("pipe"), &st) && S_ISFIFO(st.st_mode));
    CHECK(mknod(at("dev"), S_IFCHR | 0600, 0x103) < 0 && errno == EPERM);
    end();
}

TEST(share, contents)
{
    begin(false);
    enum { N = 3 << 20 };
    char *a = malloc(N), *b = malloc(N);
    for (int i = 0; i < N; i++)
        a[i] = (char)(i * 7 + i / 4096);
    int fd = open(at("big"), O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    for (int i = 0; i < N;) {
        ssize_t n = write(fd, a + i, N - i < 777777 ? (size_t)(N - i) : 777777);
        CHECK(n > 0);
        i += (int)n;
    }
    CHECK(pread(fd, b, 100, 1 << 20) == 100 && !memcmp(b, a + (1 << 20), 100));
    CHECK(!fsync(fd) && !close(fd));
    fd = open(at("big"), O_RDWR);
    for (int i = 0; i < N;) {
        ssize_t n = read(fd, b + i, N - (size_t)i);
        CHECK(n > 0);
        i += (int)n;
    }
    CHECK(!memcmp(a, b, N));
    char *m = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED && !memcmp(a, m, N));
    memcpy(m + 5000, "mapped", 6);
    CHECK(!msync(m, N, MS_SYNC) && !munmap(m, N));
    CHECK(!ftruncate(fd, 6000) && pread(fd, b, 6, 5000) == 6 && !memcmp(b, "mapped", 6));
    CHECK(lseek(fd, 0, SEEK_END) == 6000 && !close(fd));
    fd = open(at("big"), O_WRONLY | O_APPEND);
    CHECK(write(fd, "end", 3) == 3 && !close(fd));
    struct stat st;
    CHECK(!stat(under("big"), &st) && st.st_size == 6003);
    fd = open(at("big"), O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && !fstat(fd, &st) && st.st_size == 0 && !close(fd));
    CHECK(!truncate(at("big"), 1 << 20) && !stat(under("big"), &st) && st.st_size == 1 << 20);
    free(a), free(b);
    end();
}

TEST(share, a_removed_file_lives_while_it_is_open)
{
    char b[8] = "";
    struct stat st;
    begin(false);
    put("f", "alive");
    int fd = open(at("f"), O_RDWR);
    CHECK(fd >= 0 && !unlink(at("f")));
    CHECK(pread(fd, b, 5, 0) == 5 && !strcmp(b, "alive"));
    CHECK(pwrite(fd, "A", 1, 0) == 1 && !fstat(fd, &st) && st.st_size == 5 && !ftruncate(fd, 2));
    put("f", "new");
    CHECK_STR(get(at("f")), "new");
    CHECK(pread(fd, b, 8, 0) == 2 && !close(fd));
    end();
}

TEST(share, directories_of_any_length)
{
    char name[64];
    begin(false);
    CHECK(!mkdir(at("many"), 0755));
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof name, "many/file-with-a-longish-name-%04d", i);
        int fd = open(under(name), O_WRONLY | O_CREAT, 0644);
        CHECK(fd >= 0 && !close(fd));
    }
    static bool seen[1500];
    DIR *d = opendir(at("many"));
    int n = 0;
    for (struct dirent *de; (de = readdir(d)); n++)
        if (de->d_name[0] != '.') {
            int i = atoi(strrchr(de->d_name, '-') + 1);
            CHECK(!seen[i]);
            seen[i] = true;
            if (n == 700) /* another server goes on where the first stopped */
                kill(pump, SIGUSR1);
        }
    CHECK_INT(n, 1502);
    closedir(d);
    end();
}

TEST(share, attributes_and_owners)
{
    struct stat st;
    begin(false);
    umask(0);
    int fd = open(at("f"), O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && !close(fd) && !stat(under("f"), &st) && (st.st_mode & 07777) == 0666);
    CHECK(!chmod(at("f"), 0640) && !chown(at("f"), 1234, 55));
    CHECK(!stat(under("f"), &st) && (st.st_mode & 07777) == 0640 && st.st_uid == 1234 && st.st_gid == 55);
    struct timespec t[2] = {{1000, 5}, {2000, 7}};
    CHECK(!utimensat(AT_FDCWD, at("f"), t, 0) && !stat(under("f"), &st) && st.st_mtim.tv_sec == 2000 && st.st_mtim.tv_nsec == 7);
    pid_t p = fork();
    if (!p) { /* permissions are judged here, by the kernel of the client; new things belong to their maker */
        if (setgid(777) || setuid(888))
            _exit(1);
        if (open(at("f"), O_RDONLY) >= 0 || errno != EACCES)
            _exit(2);
        if (mkdir(at("mine"), 0700) || open(at("mine/x"), O_CREAT | O_WRONLY, 0600) < 0)
            _exit(3);
        _exit(0);
    }
    int w;
    CHECK(waitpid(p, &w, 0) == p && w == 0);
    CHECK(!stat(under("mine/x"), &st) && st.st_uid == 888 && st.st_gid == 777);
    struct statvfs v, u;
    CHECK(!statvfs(mnt, &v) && !statvfs(vol, &u) && v.f_blocks == u.f_blocks);
    char b[64];
    if (!setxattr(under("f"), "user.probe", "1", 1, 0)) { /* tmpfs may have none */
        CHECK(!setxattr(at("f"), "user.a", "value", 5, 0) && getxattr(at("f"), "user.a", b, sizeof b) == 5 && !memcmp(b, "value", 5));
        CHECK(getxattr(at("f"), "user.a", NULL, 0) == 5);
        CHECK(listxattr(at("f"), b, sizeof b) == 18);
        CHECK(!removexattr(at("f"), "user.a") && getxattr(at("f"), "user.a", b, sizeof b) < 0 && errno == ENODATA);
    }
    CHECK(setxattr(at("f"), "trusted.a", "x", 1, 0) < 0 && errno == EOPNOTSUPP);
    end();
}

TEST(share, read_only_is_the_servers_word)
{
    begin(true); /* the mount itself is writable: the server must refuse */
    int fd = open(under("f"), O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && write(fd, "fixed", 5) == 5 && !close(fd));
    CHECK_STR(get(at("f")), "fixed");
    CHECK(open(at("f"), O_RDWR) < 0 && errno == EROFS);
    CHECK(open(at("f"), O_RDONLY | O_TRUNC) < 0 && errno == EROFS);
    CHECK(open(at("new"), O_WRONLY | O_CREAT, 0600) < 0 && errno == EROFS);
    CHECK(mkdir(at("d"), 0755) < 0 && errno == EROFS);
    CHECK(unlink(at("f")) < 0 && errno == EROFS);
    CHECK(rename(at("f"), at("g")) < 0 && errno == EROFS);
    CHECK(chmod(at("f"), 0777) < 0 && errno == EROFS);
    CHECK(truncate(at("f"), 0) < 0 && errno == EROFS);
    CHECK(symlink("x", at("l")) < 0 && errno == EROFS);
    CHECK(link(at("f"), at("h")) < 0 && errno == EROFS);
    CHECK_STR(get(under("f")), "fixed");
    end();
}

TEST(share, another_server_takes_over)
{
    char b[16] = "";
    begin(false);
    CHECK(!mkdir(at("d"), 0755));
    put("d/f", "before");
    int fd = open(at("d/f"), O_RDWR), gone = open(at("d/f"), O_RDONLY);
    put("d/x", "x");
    int x = open(at("d/x"), O_RDONLY);
    CHECK(fd >= 0 && gone >= 0 && x >= 0 && !unlink(at("d/x")));
    kill(pump, SIGUSR1);
    usleep(50000);
    CHECK(pread(fd, b, 6, 0) == 6 && !strcmp(b, "before"));
    CHECK(pwrite(fd, "BE", 2, 0) == 2);
    CHECK(!rename(at("d"), at("e")));
    kill(pump, SIGUSR1);
    usleep(50000);
    CHECK(pwrite(fd, "af", 2, 0) == 2 && !close(fd) && !close(gone));
    CHECK_STR(get(under("e/f")), "affore");
    CHECK(pread(x, b, 1, 0) < 0 || b[0] == 'x'); /* what was removed while open is gone with the old server, unless it is still cached */
    close(x);
    end();
}

TEST(share, nothing_is_done_twice)
{
    struct stat st;
    begin(false);
    static const char *const names[] = {"mkdir", "create", "unlink", "rename", "symlink", "link", "rmdir"};
    put("old", "x"), put("u", "x"), put("from", "moved");
    CHECK(!mkdir(at("rm"), 0755));
    for (int i = 0; i < 7; i++) {
        int rc = -1;
        (void)stat(at("old"), &st);
        kill(pump, SIGUSR2); /* the answer of the next thing that is done is lost */
        usleep(20000);
        switch (i) {
        case 0: rc = mkdir(at("m"), 0755); break;
        case 1: rc = open(at("c"), O_CREAT | O_EXCL | O_WRONLY, 0644); rc = rc < 0 ? -1 : close(rc); break;
        case 2: rc = unlink(at("u")); break;
        case 3: rc = rename(at("from"), at("to")); break;
        case 4: rc = symlink("target", at("s")); break;
        case 5: rc = link(at("old"), at("h")); break;
        case 6: rc = rmdir(at("rm")); break;
        }
        if (rc)
            printf("# %s: %s\n", names[i], strerror(errno));
        CHECK_INT(rc, 0);
    }
    CHECK_STR(get(under("to")), "moved");
    CHECK(!stat(under("old"), &st) && st.st_nlink == 2);
    CHECK(mkdir(at("m"), 0755) < 0 && errno == EEXIST); /* asked for the first time: an error as ever */
    end();
}

TEST(share, what_others_change_is_seen)
{
    begin(false);
    put("f", "one");
    CHECK_STR(get(at("f")), "one");
    int fd = open(under("f"), O_WRONLY | O_TRUNC); /* as another VM would, through its own server */
    CHECK(fd >= 0 && write(fd, "another", 7) == 7 && !close(fd));
    CHECK_STR(get(at("f")), "another"); /* at the next open, longer or not */
    char to[256];
    snprintf(to, sizeof to, "%s", under("g"));
    CHECK(!rename(under("f"), to));
    usleep(1200000); /* names are believed for a second */
    CHECK(access(at("f"), F_OK) < 0 && errno == ENOENT);
    CHECK_STR(get(at("g")), "another");
    end();
}

/* ---- the server against nonsense; no FUSE needed ---- */
static int say(struct serve *s, uint32_t op, const char *path, const void *body, size_t n, uint64_t fh, struct buf *out)
{
    auto_buf m = {0};
    struct fuse_in_header in = {.len = (uint32_t)(sizeof in + n), .opcode = op, .unique = 7};
    struct share_head h = {.path_n = (uint16_t)strlen(path), .fh = fh};
    h.length = (uint32_t)(sizeof h + h.path_n + in.len);
    buf_put(&m, &h, sizeof h), buf_put(&m, path, h.path_n), buf_put(&m, &in, sizeof in), buf_put(&m, body, n);
    out->n = 0;
    if (serve_message(s, m.p, m.n, out))
        return -1;
    struct fuse_out_header o;
    memcpy(&o, out->p, sizeof o);
    CHECK(o.len == out->n && o.unique == 7 && o.error <= 0);
    return -o.error;
}

TEST(serve, stays_below_its_root)
{
    struct serve s;
    auto_buf out = {0};
    strcpy(top, "/tmp/hutch-serve-XXXXXX");
    CHECK(mkdtemp(top));
    snprintf(vol, sizeof vol, "%s/vol", top);
    CHECK(!mkdir(vol, 0755) && !symlink("/etc", under("abs")) && !symlink("../..", under("up")) && !symlink("/etc/passwd", under("pw")));
    int root = open(vol, O_RDONLY | O_DIRECTORY);
    serve_init(&s, root, false);
    static const char *const bad[] = {"..", "../x", "a/../..", "/etc", "/", "a//b", ".", "a/.", "./a", "a/", "abs/passwd", "up/etc/passwd", "abs/.."};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        int rc = say(&s, FUSE_LOOKUP, bad[i], "x", 2, 0, &out);
        CHECK(rc == EINVAL || rc == ELOOP || rc == ENOENT || rc == EXDEV);
        struct fuse_open_in o = {.flags = O_RDONLY};
        CHECK(say(&s, FUSE_OPEN, bad[i], &o, sizeof o, 1, &out) > 0);
        CHECK(say(&s, FUSE_UNLINK, bad[i], "x", 2, 0, &out) > 0);
    }
    CHECK_INT(say(&s, FUSE_LOOKUP, "pw", "pw", 3, 0, &out), 0); /* the link itself */
    struct fuse_open_in o = {.flags = O_RDONLY};
    CHECK_INT(say(&s, FUSE_OPEN, "pw", &o, sizeof o, 1, &out), ELOOP);
    struct fuse_setattr_in sa = {.valid = FATTR_SIZE};
    CHECK(say(&s, FUSE_SETATTR, "pw", &sa, sizeof sa, 0, &out) > 0);
    CHECK_INT(say(&s, FUSE_RMDIR, "", "", 1, 0, &out), EBUSY);
    serve_fini(&s);
    close(root);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", top);
    CHECK(!system(cmd));
}

TEST(serve, who_may_only_read_changes_no_mode)
{
    struct serve s;
    auto_buf out = {0};
    struct stat st;
    strcpy(vol, "/tmp/hutch-serve-XXXXXX");
    CHECK(mkdtemp(vol));
    int root = open(vol, O_RDONLY | O_DIRECTORY), fd = open(under("f"), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    CHECK(root >= 0 && fd >= 0 && !fchmod(fd, 04755) && !close(fd));
    for (int writable = 0; writable < 2; writable++) {
        struct fuse_open_in o = {.flags = writable ? O_RDWR : O_RDONLY, .open_flags = FUSE_OPEN_KILL_SUIDGID};
        serve_init(&s, root, !writable);
        CHECK_INT(say(&s, FUSE_OPEN, "f", &o, sizeof o, 1, &out), 0);
        CHECK(!stat(under("f"), &st));
        CHECK_INT(st.st_mode & 07777, writable ? 0755 : 04755);
        serve_fini(&s);
    }
    close(root);
    CHECK(!unlink(under("f")) && !rmdir(vol));
}

TEST(serve, malformed_messages)
{
    struct serve s;
    auto_buf out = {0};
    strcpy(top, "/tmp/hutch-serve-XXXXXX");
    CHECK(mkdtemp(top));
    int root = open(top, O_RDONLY | O_DIRECTORY);
    serve_init(&s, root, false);
    struct { struct share_head h; struct fuse_in_header in; } m = {.h = {.length = sizeof m}, .in = {.len = sizeof m.in, .opcode = FUSE_STATFS}};
    CHECK(!serve_message(&s, &m, sizeof m, &out));
    CHECK(serve_message(&s, &m, sizeof m - 1, &out) < 0);
    m.h.length--;
    CHECK(serve_message(&s, &m, sizeof m, &out) < 0);
    m.h.length++, m.h.path_n = 1;
    CHECK(serve_message(&s, &m, sizeof m, &out) < 0);
    m.h.path_n = UINT16_MAX;
    CHECK(serve_message(&s, &m, sizeof m, &out) < 0);
    m.h.path_n = 0, m.in.len = 1;
    CHECK(serve_message(&s, &m, sizeof m, &out) < 0);
    /* every operation with every length of body, all zero and all ones */
    unsigned char body[160];
    for (int fill = 0; fill < 256; fill += 255) {
        memset(body, fill, sizeof body);
        for (uint32_t op = 0; op < 60; op++)
            for (size_t n = 0; n < sizeof body; n++)
                CHECK(say(&s, op, "f", body, n, UINT64_MAX, &out) >= 0);
    }
    for (uint64_t i = 0; i < SERVE_HANDLES_MAX + 5; i++) {
        struct fuse_open_in o = {0};
        int rc = say(&s, FUSE_OPENDIR, "", &o, sizeof o, 1000 + i, &out);
        CHECK(rc == 0 || rc == ENFILE || rc == EMFILE);
        if (rc)
            break;
    }
    serve_fini(&s);
    close(root);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", top);
    CHECK(!system(cmd));
}

TEST_MAIN
