#define TEST_SECONDS 120
#include "driver.h"
#include <sys/xattr.h>

static void path_req(struct buf *b, const char *path) { rec_put_str(b, T_PATH, path); }

static void call_path(struct host *h, uint8_t op, const char *path, uint64_t flags, struct result *r)
{
    struct buf b = {0};
    path_req(&b, path);
    if (flags)
        rec_put_u64(&b, T_FLAGS, flags);
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    host_call(h, op, &b, r);
}

static void put(struct host *h, const char *path, const void *p, size_t n, uint64_t flags, struct result *r)
{
    struct buf b = {0};
    path_req(&b, path);
    rec_put_u64(&b, T_FLAGS, flags);
    uint32_t id = host_req(h, OP_WRITE, &b);
    uint64_t credit = CREDIT_INITIAL, seen = 0;
    for (size_t at = 0; at < n && !r->over;) {
        size_t k = n - at < 60000 ? n - at : 60000;
        if (k > credit) {
            CHECK(host_step(h, id, r, 10000));
            credit += r->granted - seen, seen = r->granted;
            continue;
        }
        host_send(h, FR_DATA, CH_FILE, id, (const char *)p + at, k);
        at += k, credit -= k;
    }
    host_send(h, FR_EOF, CH_FILE, id, NULL, 0);
    host_wait(h, id, r);
}

static struct rec res(struct result *r) { return (struct rec){(unsigned char *)r->res.p, r->res.n}; }
static struct rec entry(struct result *r)
{
    struct str s;
    CHECK(rec_get(res(r), T_ENTRY, &s));
    return (struct rec){(const unsigned char *)s.p, s.n};
}
static bool field_is(struct rec r, uint8_t tag, const char *want)
{
    struct str s;
    return rec_get(r, tag, &s) && str_eqz(s, want);
}

TEST(files, small_write_and_read_back)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    put(&h, "dir/new.txt", "hello", 5, FILE_PARENTS, &r);
    CHECK_INT(r.code, 0);
    CHECK(field_is(entry(&r), T_NAME, "new.txt") && field_is(entry(&r), T_PATH, "/tmp/home/dir/new.txt"));
    CHECK(field_is(entry(&r), T_OWNER, "user") && field_is(entry(&r), T_GROUP, "user"));
    CHECK_INT(rec_u64_or(entry(&r), T_SIZE, 0), 5);
    CHECK_INT(rec_u64_or(entry(&r), T_MODE, 0), 0644);
    CHECK_INT(rec_u64_or(entry(&r), T_TYPE, 0), 'f');
    result_free(&r);
    call_path(&h, OP_READ, "~/dir//./new.txt", 0, &r);
    CHECK_INT(r.code, 0);
    CHECK_STR(r.file.p, "hello");
    CHECK_INT(rec_u64_or(res(&r), T_SIZE, 0), 5);
    result_free(&r);
    put(&h, "dir/new.txt", " world", 6, FILE_APPEND, &r);
    result_free(&r);
    struct buf b = {0};
    path_req(&b, "dir/new.txt");
    rec_put_u64(&b, T_OFFSET, 3);
    rec_put_u64(&b, T_SIZE, 5);
    rec_put_u64(&b, T_CREDIT, 100);
    host_call(&h, OP_READ, &b, &r);
    CHECK_STR(r.file.p, "lo wo");
    result_free(&r);
    put(&h, "dir/new.txt", "", 0, FILE_EXCL, &r);
    CHECK_INT(r.code, E_CONFLICT);
    CHECK_STR(r.msg, "path '/tmp/home/dir/new.txt' already exists");
    result_free(&r);
    call_path(&h, OP_STAT, "dir", 0, &r);
    CHECK(field_is(entry(&r), T_OWNER, "user"));
    result_free(&r);
    host_stop(&h);
}

TEST(files, hundred_megabytes_round_trip)
{
    struct host h;
    struct result r = {0};
    size_t n = 100u << 20;
    host_start(&h);
    unsigned char *p = malloc(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    int64_t t = clock_mono();
    put(&h, "big", p, n, 0, &r);
    CHECK_INT(r.code, 0);
    CHECK_INT(rec_u64_or(entry(&r), T_SIZE, 0), n);
    int64_t up = clock_mono() - t;
    result_free(&r);
    t = clock_mono();
    call_path(&h, OP_READ, "big", 0, &r);
    CHECK_INT(r.file.n, n);
    CHECK(!memcmp(r.file.p, p, n));
    printf("# 100 MiB: write %.2f s, read %.2f s, agent RSS %" PRIu64 " KiB\n", (double)up / 1e9, (double)(clock_mono() - t) / 1e9, agent_rss_kib(&h));
    result_free(&r);
    free(p);
    host_stop(&h);
}

static void fails(struct host *h, uint8_t op, const char *path, uint64_t flags, int code, const char *msg)
{
    struct result r = {0};
    call_path(h, op, path, flags, &r);
    CHECK_STR(r.msg, msg);
    CHECK_INT(r.code, code);
    result_free(&r);
}

TEST(files, errors_name_the_path)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    fails(&h, OP_READ, "/x", 0, E_NOT_FOUND, "path '/x' does not exist");
    fails(&h, OP_STAT, "/x/y", 0, E_NOT_FOUND, "path '/x/y' does not exist");
    fails(&h, OP_READ, "/etc", 0, E_INVALID, "path '/etc' is a directory");
    fails(&h, OP_WRITE, "/etc", 0, E_INVALID, "path '/etc' is a directory");
    fails(&h, OP_LIST, "/etc/passwd", 0, E_INVALID, "path '/etc/passwd' is not a directory");
    fails(&h, OP_READ, "/etc/passwd/x", 0, E_INVALID, "path '/etc/passwd/x' is not a directory");
    fails(&h, OP_READ, "/dev/zero", 0, E_INVALID, "path '/dev/zero' is a device, not a regular file");
    fails(&h, OP_WRITE, "/dev/null", 0, E_INVALID, "path '/dev/null' is a device, not a regular file");
    fails(&h, OP_REMOVE, "/", FILE_RECURSIVE, E_INVALID, "path '/' cannot be removed or replaced");
    fails(&h, OP_REMOVE, "/tmp/..", FILE_RECURSIVE, E_INVALID, "path '/' cannot be removed or replaced");
    fails(&h, OP_MKDIR, "/etc", 0, E_CONFLICT, "path '/etc' already exists");
    fails(&h, OP_STAT, "", 0, E_INVALID, "no path given");
    host_sh(&h, "mkfifo fifo; mkdir full; touch full/x", &r);
    CHECK_INT(r.status, 0);
    result_free(&r);
    fails(&h, OP_READ, "fifo", 0, E_INVALID, "path '/tmp/home/fifo' is a FIFO, not a regular file");
    fails(&h, OP_WRITE, "fifo", 0, E_INVALID, "path '/tmp/home/fifo' is not a regular file");
    fails(&h, OP_REMOVE, "full", 0, E_CONFLICT, "directory '/tmp/home/full' is not empty");
    struct buf b = {0};
    rec_put(&b, T_PATH, "/a\0b", 4);
    host_call(&h, OP_STAT, &b, &r);
    CHECK_INT(r.code, E_INVALID);
    result_free(&r);
    char longer[5000];
    memset(longer, 'a', sizeof longer);
    longer[0] = '/';
    rec_put(&b, T_PATH, longer, sizeof longer);
    host_call(&h, OP_STAT, &b, &r);
    CHECK_INT(r.code, E_INVALID);
    result_free(&r);
    call_path(&h, OP_READ, "/proc/self/status", 0, &r); /* size 0, yet readable */
    CHECK(r.code == 0 && strstr(r.file.p, "Pid:"));
    result_free(&r);
    static const char *const own[] = {"/proc/self/mem", "/proc/thread-self/mem",
                                      "/proc/self/task/../mem", "/proc/self/environ",
                                      "/proc/self/maps"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        call_path(&h, OP_READ, own[i], 0, &r);
        CHECK(r.code == E_DENIED && strstr(r.msg, "belongs to the agent"));
        result_free(&r);
    }
    fails(&h, OP_WRITE, "/proc/self/comm", 0, E_DENIED,
          "path '/proc/self/comm' belongs to the agent's own process");
    char other[64];
    host_sh(&h, "sleep 60 >/dev/null 2>&1 & echo $!", &r);
    (void)snprintf(other, sizeof other, "/proc/%d/mem", atoi(r.out.p)); /* nothing is at 0 */
    result_free(&r);
    call_path(&h, OP_READ, other, 0, &r);
    CHECK_INT(r.code, E_INVALID);
    CHECK_STR(r.msg, "read: Input/output error");
    result_free(&r);
    call_path(&h, OP_READ, "/proc/self/fd/0", 0, &r); /* a magic link */
    CHECK(r.code != 0);
    result_free(&r);
    host_stop(&h);
}

TEST(files, no_space_is_a_quota_error)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    char junk[200000] = {0};
    put(&h, "/tmp/small/x", junk, sizeof junk, 0, &r);
    CHECK_INT(r.code, E_QUOTA);
    CHECK_STR(r.msg, "no space left on device");
    result_free(&r);
    host_stop(&h);
}

TEST(files, mkdir_move_symlink_setattr)
{
    struct host h;
    struct result r = {0};
    struct buf b = {0};
    host_start(&h);
    call_path(&h, OP_MKDIR, "a/b/c", FILE_PARENTS, &r);
    CHECK_INT(r.code, 0);
    CHECK(field_is(entry(&r), T_OWNER, "user"));
    result_free(&r);
    call_path(&h, OP_MKDIR, "a/b/c", FILE_PARENTS, &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    call_path(&h, OP_MKDIR, "a/b/c", FILE_PARENTS | FILE_EXCL, &r);
    CHECK_INT(r.code, E_CONFLICT);
    result_free(&r);
    path_req(&b, "a/b/c");
    rec_put_str(&b, T_DEST, "x/y/z");
    rec_put_u64(&b, T_FLAGS, FILE_PARENTS);
    host_call(&h, OP_MOVE, &b, &r);
    CHECK_INT(r.code, 0);
    CHECK(field_is(entry(&r), T_PATH, "/tmp/home/x/y/z"));
    result_free(&r);
    path_req(&b, "nope");
    rec_put_str(&b, T_DEST, "q/y/z");
    rec_put_u64(&b, T_FLAGS, FILE_PARENTS);
    host_call(&h, OP_MOVE, &b, &r);
    CHECK_INT(r.code, E_NOT_FOUND);
    result_free(&r);
    path_req(&b, "x");
    rec_put_str(&b, T_DEST, "/proc/x");
    host_call(&h, OP_MOVE, &b, &r);
    CHECK_INT(r.code, E_INVALID);
    CHECK_STR(r.msg, "path '/proc/x' is on another file system; copy it instead");
    result_free(&r);
    path_req(&b, "link");
    rec_put_str(&b, T_TARGET, "x/y");
    host_call(&h, OP_SYMLINK, &b, &r);
    CHECK_INT(r.code, 0);
    CHECK_INT(rec_u64_or(entry(&r), T_TYPE, 0), 'l');
    CHECK(field_is(entry(&r), T_TARGET, "/tmp/home/x/y"));
    CHECK_INT(rec_u64_or(entry(&r), T_TARGET_TYPE, 0), 'd');
    result_free(&r);
    path_req(&b, "x");
    rec_put_u64(&b, T_MODE, 02750);
    rec_put_str(&b, T_OWNER, "root");
    rec_put_str(&b, T_GROUP, "extra");
    host_call(&h, OP_SETATTR, &b, &r);
    CHECK_INT(r.code, 0);
    CHECK_INT(rec_u64_or(entry(&r), T_MODE, 0), 02750);
    CHECK(field_is(entry(&r), T_OWNER, "root") && field_is(entry(&r), T_GROUP, "extra"));
    result_free(&r);
    host_stop(&h);
}

static uint64_t announced(struct result *r)
{
    struct str s;
    CHECK(rec_get((struct rec){(unsigned char *)r->events.p, r->events.n}, T_ENTRY, &s));
    return rec_u64_or((struct rec){(const unsigned char *)s.p, s.n}, T_SIZE, 0);
}

/* The announced size is that of the very file that is read: through a link, and while a program appends to it. */
TEST(files, a_read_announces_what_it_sends)
{
    struct host h;
    struct result r = {0}, x = {0};
    host_start(&h);
    host_sh(&h, "echo 0123456789 >to; ln -s to link; echo x >grow", &r);
    result_free(&r);
    call_path(&h, OP_READ, "link", 0, &r);
    CHECK_INT(r.file.n, 11);
    CHECK_INT(announced(&r), 11);
    result_free(&r);
    struct buf b = sh("perl -e 'open F, q(>>), q(grow); $| = 1; select F; $| = 1; print q(0123456789abcdef) x 8 for 1..200000'");
    uint32_t id = host_req(&h, OP_START, &b);
    for (int i = 0; i < 300; i++) {
        struct buf c = {0};
        path_req(&c, "grow");
        rec_put_u64(&c, T_CREDIT, 1 << 30);
        uint32_t rid = host_req(&h, OP_READ, &c);
        while (!r.over) {
            struct frame f;
            CHECK(host_frame(&h, &f, 10000));
            take_frame(&h, f.stream == rid ? &r : &x, &f);
        }
        CHECK_INT(r.file.n, announced(&r));
        result_free(&r);
        if (x.over)
            break;
    }
    if (!x.over)
        host_wait(&h, id, &x);
    result_free(&x);
    host_stop(&h);
}

TEST(files, listing_is_depth_first_in_byte_order)
{
    struct host h;
    struct result r = {0};
    struct buf b = {0}, got = {0};
    struct field f;
    host_start(&h);
    host_sh(&h, "mkdir -p t/b/d t/B; touch t/a t/b/c t/b/d/e t/c t/.h; ln -s / t/root", &r);
    result_free(&r);
    path_req(&b, "t");
    rec_put_u64(&b, T_DEPTH, 2);
    host_call(&h, OP_LIST, &b, &r);
    CHECK_INT(r.code, 0);
    for (struct rec at = {(unsigned char *)r.events.p, r.events.n}; rec_next(&at, &f);) {
        struct str s;
        CHECK(rec_get(field_rec(f), T_PATH, &s));
        buf_put(&got, s.p + 12, s.n - 12);
        buf_putc(&got, ' ');
    }
    CHECK_STR(got.p, ".h B a b b/c b/d c root ");
    buf_free(&got), result_free(&r);
    host_sh(&h, "mkdir many; cd many; seq 1 20000 | xargs touch", &r);
    result_free(&r);
    int64_t t = clock_mono();
    call_path(&h, OP_LIST, "many", 0, &r);
    int n = 0;
    for (struct rec at = {(unsigned char *)r.events.p, r.events.n}; rec_next(&at, &f);)
        n++;
    CHECK_INT(n, 20000);
    printf("# list of 20000: %lld ms\n", (long long)(clock_mono() - t) / 1000000);
    result_free(&r);
    host_stop(&h);
}

TEST(files, remove_is_deep_safe_and_does_not_follow)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    host_sh(&h, "mkdir keep; touch keep/x; mkdir -p d/e; ln -s ../keep d/link; touch d/e/f; mkdir d/many; cd d/many; seq 1 5000 | xargs touch", &r);
    result_free(&r);
    /* 5000 levels: longer than any path may be */
    host_sh(&h, "perl -e 'mkdir q(d/deep); chdir q(d/deep); for (1..5000) { mkdir q(abcdefghij) or die; chdir q(abcdefghij) }'", &r);
    CHECK_INT(r.status, 0);
    result_free(&r);
    int64_t t = clock_mono();
    call_path(&h, OP_REMOVE, "d", FILE_RECURSIVE, &r);
    CHECK_STR(r.msg, "");
    CHECK_INT(r.code, 0);
    printf("# remove of 10000 entries, 5000 deep: %lld ms\n", (long long)(clock_mono() - t) / 1000000);
    result_free(&r);
    host_sh(&h, "ls; ls keep", &r);
    CHECK_STR(r.out.p, "keep\nx\n");
    result_free(&r);
    host_stop(&h);
}

TEST(files, remove_against_a_racing_process_never_leaves_the_tree)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("mkdir -p out; touch out/precious; mkdir -p r/a r/b; "
                      "perl -e 'for (1..20000) { mkdir qq(r/a/$_); rename q(r/a/).$_, q(r/b/).$_; symlink q(../../out), qq(r/a/l$_); "
                      "rename q(r/b), q(r/bb); symlink q(../out), q(r/b); mkdir q(r); mkdir q(r/a); mkdir q(r/b) }'");
    rec_put_str(&b, T_TAG, "racer");
    uint32_t id = host_req(&h, OP_START, &b);
    for (int i = 0; i < 50; i++) {
        struct result x = {0};
        struct buf c = {0};
        path_req(&c, "r");
        rec_put_u64(&c, T_FLAGS, FILE_RECURSIVE);
        uint32_t rid = host_req(&h, OP_REMOVE, &c);
        while (!x.over) {
            struct frame f;
            CHECK(host_frame(&h, &f, 10000));
            if (f.stream == rid)
                take_frame(&h, &x, &f);
            else if (f.stream == id)
                take_frame(&h, &r, &f);
        }
        result_free(&x);
    }
    host_wait(&h, id, &r);
    result_free(&r);
    host_sh(&h, "ls out/precious", &r);
    CHECK_STR(r.out.p, "out/precious\n");
    result_free(&r);
    host_stop(&h);
}
TEST_MAIN
