#include "base/fd.h"
#include "gate/log.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define SB "iaaaaaaaaaaaaaaaaaaaa"
static char dir[64];
static int open_dir(void)
{
    strcpy(dir, "/tmp/hutch-log-XXXXXX");
    CHECK(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}
static void wipe(int fd)
{
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK(!system(cmd));
    close(fd);
}
static void put(struct egress_log *l, const char *name)
{
    struct gate_record r = {.box = "bx", .sandbox = SB, .kind = GATE_K_DNS, .name = name, .type = "A", .rule = "mode none", .reason = "no \"net\"\n"};
    egress_log_put(l, &r);
}

TEST(log, lines_are_json_and_chained)
{
    int d = open_dir();
    struct err e = {0};
    struct egress_log *l = egress_log_open(d, SB, 1 << 20, 3, &e);
    CHECK(l);
    put(l, "a.example"), put(l, "b.example");
    CHECK_INT(egress_log_seq(l), 2);
    uint64_t n;
    CHECK(!egress_log_verify(d, SB, NULL, &n, &e));
    CHECK_INT(n, 2);
    struct buf b = {0};
    CHECK_INT(egress_log_read(d, SB, 1, 10, &b, &e), 1);
    CHECK(strstr(b.p, "\"name\":\"b.example\"") && strstr(b.p, "\"reason\":\"no \\\"net\\\"\\n\"") && !strstr(b.p, "a.example"));
    CHECK(strstr(b.p, egress_log_hash(l)));
    egress_log_close(l);
    /* goes on where it was */
    l = egress_log_open(d, SB, 1 << 20, 3, &e);
    put(l, "c.example");
    CHECK_INT(egress_log_seq(l), 3);
    CHECK(!egress_log_verify(d, SB, NULL, &n, &e) && n == 3);
    egress_log_close(l);
    buf_free(&b);
    CHECK_INT(egress_log_read(d, "ibbbbbbbbbbbbbbbbbbbb", 0, 10, &b, &e), 0);
    CHECK(!egress_log_open(d, "../../etc/passwd", 1 << 20, 3, &e));
    wipe(d);
}

static char *slurp(int d, const char *name, size_t *n)
{
    char *p = fd_slurp_at(d, name, 1 << 20, n);
    CHECK(p);
    return p;
}
static void spill(int d, const char *name, const char *p, size_t n)
{
    int fd = openat(d, name, O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && fd_write_all(fd, p, n));
    close(fd);
}

TEST(log, a_changed_removed_or_inserted_line_is_found)
{
    int d = open_dir();
    struct err e = {0};
    struct egress_log *l = egress_log_open(d, SB, 1 << 20, 3, &e);
    for (int i = 0; i < 5; i++)
        put(l, "a.example");
    struct egress_last last = {.seq = egress_log_seq(l)};
    memcpy(last.hash, egress_log_hash(l), sizeof last.hash);
    egress_log_close(l);
    size_t n;
    uint64_t lines;
    char *whole = slurp(d, SB ".log", &n);
    for (size_t i = 0; i < n; i += 7) { /* any byte */
        whole[i] ^= 1;
        if (whole[i] != '\n' && (whole[i] ^ 1) != '\n') {
            spill(d, SB ".log", whole, n);
            bool last_hash = i > n - 70; /* of the last hash a change shows as well */
            if (!egress_log_verify(d, SB, NULL, &lines, &e))
                printf("# byte %zu (%d)\n", i, last_hash);
            CHECK(egress_log_verify(d, SB, NULL, &lines, &e));
        }
        whole[i] ^= 1;
    }
    char *second = strchr(whole, '\n') + 1, *third = strchr(second, '\n') + 1;
    char *cut = malloc(n);
    size_t a = (size_t)(second - whole), b = (size_t)(third - second);
    memcpy(cut, whole, a), memcpy(cut + a, third, n - a - b);
    spill(d, SB ".log", cut, n - b);
    CHECK(egress_log_verify(d, SB, NULL, &lines, &e) && strstr(e.msg, "number 1"));
    spill(d, SB ".log", whole, n);
    CHECK(!egress_log_verify(d, SB, NULL, &lines, &e) && lines == 5);
    CHECK(!egress_log_verify(d, SB, &last, &lines, &e) && lines == 5);
    last.seq = 4; /* as if the end had been written anew */
    CHECK(egress_log_verify(d, SB, &last, &lines, &e) && strstr(e.msg, "line 4"));
    last.seq = 5;
    spill(d, SB ".log", whole, a); /* all but the first is gone: the chain cannot tell, its writer can */
    CHECK(!egress_log_verify(d, SB, NULL, &lines, &e) && lines == 1);
    CHECK(egress_log_verify(d, SB, &last, &lines, &e) && strstr(e.msg, "lines up to 5"));
    free(cut), free(whole);
    wipe(d);
}

TEST(log, a_torn_line_is_cut_off)
{
    int d = open_dir();
    struct err e = {0};
    struct egress_log *l = egress_log_open(d, SB, 1 << 20, 3, &e);
    put(l, "a.example"), put(l, "b.example");
    egress_log_close(l);
    size_t n;
    uint64_t lines;
    char *whole = slurp(d, SB ".log", &n);
    spill(d, SB ".log", whole, n - 10);
    l = egress_log_open(d, SB, 1 << 20, 3, &e);
    CHECK(l && egress_log_seq(l) == 1);
    put(l, "c.example");
    CHECK(!egress_log_verify(d, SB, NULL, &lines, &e) && lines == 2);
    egress_log_close(l);
    free(whole);
    wipe(d);
}

TEST(log, parts_rotate_and_the_chain_goes_on)
{
    int d = open_dir();
    struct err e = {0};
    struct egress_log *l = egress_log_open(d, SB, 0 /* the smallest: 16 KiB */, 2, &e);
    for (int i = 0; i < 500; i++)
        put(l, "a.example");
    uint64_t lines;
    struct stat st;
    CHECK(!egress_log_verify(d, SB, NULL, &lines, &e));
    CHECK(lines < 500 && lines > 60);
    CHECK(!fstatat(d, SB ".log.2", &st, 0) && fstatat(d, SB ".log.3", &st, 0));
    struct buf b = {0};
    CHECK_INT(egress_log_read(d, SB, 490, 100, &b, &e), 10);
    buf_free(&b);
    egress_log_close(l);
    l = egress_log_open(d, SB, 0, 2, &e);
    CHECK_INT(egress_log_seq(l), 500);
    egress_log_close(l);
    wipe(d);
}
static bool a_is_used(void *arg, struct str sandbox)
{
    (void)arg;
    return str_eqz(sandbox, SB);
}

TEST(log, what_is_old_goes)
{
    static const struct { const char *name; int64_t age_s; bool stays; } t[] = {
        {SB ".log", 1000, true}, /* in use */
        {SB ".log.1", 1000, false},
        {SB ".log.2", 10, true},
        {"ibbbbbbbbbbbbbbbbbbbb.log", 1000, false},
        {"iccccccccccccccccccccc.log", 1000, true}, /* not a name of ours */
        {"ibbbbbbbbbbbbbbbbbbbb.log.x", 1000, true},
        {"idddddddddddddddddddd.log", 10, true},
        {SB ".count", 1000, true}, /* in use */
        {"ibbbbbbbbbbbbbbbbbbbb.count", 1000, false},
        {"idddddddddddddddddddd.count", 10, true},
        {"ibbbbbbbbbbbbbbbbbbbb.county", 1000, true},
        {".group-0123.count", 1000, false},
        {".group-4567.count", 10, true},
        {"notes", 1000, true},
    };
    int d = open_dir();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct timespec at[2] = {{.tv_sec = now.tv_sec - t[i].age_s}, {.tv_sec = now.tv_sec - t[i].age_s}};
        int fd = openat(d, t[i].name, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
        CHECK(fd >= 0 && !futimens(fd, at));
        close(fd);
    }
    egress_logs_sweep(d, (now.tv_sec - 100) * 1000000000LL, a_is_used, NULL);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        CHECK_INT(faccessat(d, t[i].name, F_OK, 0) == 0, t[i].stays);
    wipe(d);
}
TEST(log, keeps_the_latest_logs_of_sandboxes_that_are_gone)
{
    static const struct {
        const char *name;
        int age_s;
        bool stays;
    } t[] = {
        {SB ".log", 1000, true}, /* in use */
        {"ibbbbbbbbbbbbbbbbbbbb.log", 900, false},
        {"ibbbbbbbbbbbbbbbbbbbb.log.1", 950, false},
        {"ibbbbbbbbbbbbbbbbbbbb.count", 900, true}, /* a budget may go on */
        {"icccccccccccccccccccc.log", 800, false},
        {"idddddddddddddddddddd.log", 20, true},
        {"idddddddddddddddddddd.log.1", 990, true}, /* by the newest of its parts */
        {"ieeeeeeeeeeeeeeeeeeee.log", 10, true},
        {".group-0123.count", 1000, true},
        {"notes", 1000, true},
    };
    int d = open_dir();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct timespec at[2] = {{.tv_sec = now.tv_sec - t[i].age_s},
                                 {.tv_sec = now.tv_sec - t[i].age_s}};
        int fd = openat(d, t[i].name, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
        CHECK(fd >= 0 && !futimens(fd, at));
        close(fd);
    }
    egress_logs_trim(d, 4, a_is_used, NULL);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        CHECK(!faccessat(d, t[i].name, F_OK, 0)); /* there are no more than that */
    egress_logs_trim(d, 2, a_is_used, NULL);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        CHECK_INT(faccessat(d, t[i].name, F_OK, 0) == 0, t[i].stays);
    wipe(d);
}
TEST_MAIN
