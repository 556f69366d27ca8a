#define TEST_SECONDS 120
#include "driver.h"

TEST(proc, echo_and_environment)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    host_sh(&h, "echo out; echo err >&2; echo $FROM_CONFIG $USER $HOME $LOGNAME $PWD; id -u; id -G; hostname; cat /etc/machine-id; exit 3", &r);
    CHECK_INT(r.code, 0);
    CHECK(r.started && r.exited && r.pid > 1);
    CHECK_INT(r.kind, EXIT_CODE);
    CHECK_INT(r.status, 3);
    CHECK_STR(r.out.p, "out\nyes user /tmp/home user /tmp/home\n1000\n1000 1234\nbox-one\n0123456789abcdef0123456789abcdef\n");
    CHECK_STR(r.err.p, "err\n");
    CHECK_INT(r.total, r.out.n + r.err.n);
    result_free(&r);
    host_sh(&h, "grep CapBnd /proc/self/status", &r);
    unsigned long long bnd = strtoull(strchr(r.out.p, '\t'), NULL, 16);
    CHECK(bnd && !(bnd & (1ull << 21 | 1ull << 19 | 1ull << 12 | 1ull << 25 | 1ull << 39))); /* SYS_ADMIN, PTRACE, NET_ADMIN, TIME, BPF */
    CHECK(bnd & 1ull << 6 && bnd & 1ull << 7);                                               /* SETGID, SETUID: sudo works */
    result_free(&r);
    host_sh(&h, "cat /etc/hosts | head -1; grep -c 'box-one' /etc/hosts; umask; ulimit -c; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l", &r);
    CHECK_STR(r.out.p, "127.0.0.1 localhost box-one\n1\n0022\n0\n100\n4\n");
    result_free(&r);
    host_stop(&h);
}

TEST(proc, request_environment_wins_and_order_is_kept)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("echo $FROM_CONFIG $A $PATH; for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done");
    rec_put_str(&b, T_ENV, "A=1");
    rec_put_str(&b, T_ENV, "A=2");
    rec_put_str(&b, T_ENV, "FROM_CONFIG=no");
    rec_put_str(&b, T_USER, "root");
    rec_put_str(&b, T_CWD, "/");
    host_call(&h, OP_START, &b, &r);
    CHECK(!strncmp(r.out.p, "no 2 /usr/local/sbin:/usr/local/bin:", 30));
    CHECK_STR(r.err.p, "e1\ne2\ne3\ne4\ne5\n");
    result_free(&r);
    host_stop(&h);
}

static void expect_fail(struct host *h, struct buf *b, int code, const char *msg)
{
    struct result r = {0};
    host_call(h, OP_START, b, &r);
    CHECK(!r.started);
    CHECK_STR(r.msg, msg);
    CHECK_INT(r.code, code);
    result_free(&r);
}

TEST(proc, start_failures_are_typed)
{
    struct host h;
    host_start(&h);
    struct buf b = sh("true");
    rec_put_str(&b, T_USER, "nobody-here");
    expect_fail(&h, &b, E_NOT_FOUND, "user 'nobody-here' does not exist");
    b = sh("true");
    rec_put_str(&b, T_CWD, "/not/here");
    expect_fail(&h, &b, E_NOT_FOUND, "cwd '/not/here' does not exist");
    rec_put_str(&b, T_ARG, "no-such-program");
    expect_fail(&h, &b, E_NOT_FOUND, "exec 'no-such-program': not found");
    rec_put_str(&b, T_ARG, "/etc/passwd");
    expect_fail(&h, &b, E_DENIED, "exec '/etc/passwd': permission denied");
    expect_fail(&h, &b, E_INVALID, "no command given");
    rec_put(&b, T_ARG, "a\0b", 3);
    expect_fail(&h, &b, E_INVALID, "argument contains a NUL byte");
    b = sh("true");
    rec_put_str(&b, T_ENV, "=x");
    expect_fail(&h, &b, E_INVALID, "environment entry '=x' is not NAME=value");
    host_stop(&h);
}

TEST(proc, stdin_by_data_eof_and_input_op)
{
    struct host h;
    struct result r = {0}, r2 = {0};
    host_start(&h);
    struct buf b = sh("cat; echo done");
    rec_put_u64(&b, T_STDIN, 1);
    uint32_t id = host_req(&h, OP_START, &b);
    host_send(&h, FR_DATA, CH_STDIN, id, "one ", 4); /* the initial credit needs no grant */
    while (!r.started)
        CHECK(host_step(&h, id, &r, 5000));
    rec_put_u64(&b, T_PID, r.pid);
    rec_put_str(&b, T_BYTES, "two ");
    uint32_t in = host_req(&h, OP_INPUT, &b);
    host_send(&h, FR_DATA, CH_STDIN, id, "three\n", 6);
    host_send(&h, FR_EOF, CH_STDIN, id, NULL, 0);
    bool answered = false;
    while (!r.over) {
        struct frame f;
        CHECK(host_frame(&h, &f, 5000));
        if (f.stream == in)
            take_frame(&h, &r2, &f), answered = r2.over && !r2.code;
        else
            take_frame(&h, &r, &f);
    }
    CHECK(answered);
    CHECK_STR(r.out.p, "one two three\ndone\n");
    CHECK(r.granted >= 65536);
    result_free(&r), result_free(&r2);
    host_stop(&h);
}

TEST(proc, input_of_a_deaf_process_is_bounded)
{
    struct host h;
    struct result r = {0};
    char chunk[32768] = {0};
    host_start(&h);
    struct buf b = sh("exec sleep 100");
    rec_put_u64(&b, T_STDIN, 1);
    rec_put_str(&b, T_TAG, "deaf");
    uint32_t id = host_req(&h, OP_START, &b);
    while (!r.started)
        CHECK(host_step(&h, id, &r, 5000));
    int code = 0, n = 0;
    for (; n < 100 && !code; n++) {
        struct result x = {0};
        rec_put_str(&b, T_TAG, "deaf");
        rec_put(&b, T_BYTES, chunk, sizeof chunk);
        host_call(&h, OP_INPUT, &b, &x);
        code = x.code;
        result_free(&x);
    }
    CHECK_INT(code, E_QUOTA);
    CHECK(n > 30 && n < 40);
    result_free(&r);
    host_stop(&h);
}

TEST(proc, two_hundred_megabytes_arrive_whole_and_memory_stays_small)
{
    struct host h;
    struct result r = {0};
    uint64_t want = 200u << 20, got = 0, sum = 0, expect = 0;
    host_start(&h);
    struct buf b = sh("head -c 209715200 /dev/zero | tr '\\0' 'ab'; ");
    uint32_t id = host_req(&h, OP_START, &b);
    int64_t t = clock_mono();
    uint64_t rss = 0;
    while (!r.over) {
        CHECK(host_step(&h, id, &r, 20000));
        for (size_t i = 0; i < r.out.n; i += 997)
            sum += (unsigned char)r.out.p[i];
        expect += r.out.n ? (r.out.n + 996) / 997 * 'a' : 0;
        got += r.out.n;
        r.out.n = 0;
        if (got % (8 << 20) < 40000 && agent_rss_kib(&h) > rss)
            rss = agent_rss_kib(&h);
    }
    CHECK_INT(r.status, 0);
    CHECK_INT(got, want);
    CHECK_INT(sum, expect);
    printf("# 200 MB in %.2f s, agent RSS at most %" PRIu64 " KiB\n", (double)(clock_mono() - t) / 1e9, rss);
    CHECK(!MEMORY_COUNTS || rss < 8 << 10);
    result_free(&r);
    host_stop(&h);
}

TEST(proc, signals_and_the_end_without_waiting_for_grandchildren)
{
    struct host h;
    struct result r = {0}, x = {0};
    host_start(&h);
    host_sh(&h, "kill -SEGV $$", &r);
    CHECK_INT(r.kind, EXIT_SIGNAL);
    CHECK_INT(r.status, SIGSEGV);
    result_free(&r);
    struct buf b = sh("setsid sleep 1000 & echo up; exec sleep 1000");
    rec_put_str(&b, T_TAG, "t");
    uint32_t id = host_req(&h, OP_START, &b);
    while (r.out.n < 3)
        CHECK(host_step(&h, id, &r, 5000));
    rec_put_str(&b, T_TAG, "t");
    rec_put_u64(&b, T_SIGNAL, SIGTERM);
    uint32_t sid = host_req(&h, OP_SIGNAL, &b);
    while (!r.over || !x.over) {
        struct frame f;
        CHECK(host_frame(&h, &f, 5000));
        take_frame(&h, f.stream == sid ? &x : &r, &f);
    }
    CHECK_INT(x.code, 0);
    CHECK_INT(r.kind, EXIT_SIGNAL);
    CHECK_INT(r.status, SIGTERM);
    CHECK_STR(r.out.p, "up\n");
    result_free(&r), result_free(&x);
    rec_put_u64(&b, T_PID, 99999);
    rec_put_u64(&b, T_SIGNAL, SIGTERM);
    host_call(&h, OP_SIGNAL, &b, &x);
    CHECK_INT(x.code, E_NOT_FOUND);
    result_free(&x);
    host_stop(&h);
}

TEST(proc, timeout_kills_the_whole_tree)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("setsid sh -c 'sleep 1111 & sleep 1112' & (setsid sleep 1113 &) ; echo up; sleep 1114");
    rec_put_u64(&b, T_TIMEOUT_MS, 300);
    int64_t t = clock_mono();
    host_call(&h, OP_START, &b, &r);
    CHECK(clock_mono() - t < 2 * NS_PER_S);
    CHECK_INT(r.kind, EXIT_TIMEOUT);
    CHECK_STR(r.out.p, "up\n");
    result_free(&r);
    host_sh(&h, "sleep 0.2; pgrep -c sleep", &r); /* its own sleep has ended */
    CHECK_STR(r.out.p, "0\n");
    result_free(&r);
    host_stop(&h);
}

/* Two forks, a session of its own, no environment, nothing open: no trace is left of where it came from. The other command's
 * looks the same and stays. */
TEST(proc, timeout_finds_a_daemon_that_left_no_trace)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("exec env -i setsid sleep 1116");
    (void)host_req(&h, OP_START, &b);
    b = sh(
        "(setsid sh -c 'exec env -i sleep 1117 </dev/null >/dev/null 2>&1 &' &) ; sleep 0.5; pgrep -c sleep; sleep 1118");
    rec_put_u64(&b, T_TIMEOUT_MS, 1500);
    host_call(&h, OP_START, &b, &r);
    CHECK_INT(r.kind, EXIT_TIMEOUT);
    CHECK_STR(r.out.p, "2\n");
    result_free(&r);
    host_sh(&h, "sleep 0.2; pgrep -a sleep", &r);
    CHECK(strstr(r.out.p, "sleep 1116") && !strstr(r.out.p, "sleep 1117"));
    result_free(&r);
    host_stop(&h);
}

TEST(proc, timeout_also_ends_output_held_by_what_was_left_behind)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("sleep 1115 & echo left; exit 4");
    rec_put_u64(&b, T_TIMEOUT_MS, 300);
    host_call(&h, OP_START, &b, &r);
    CHECK_INT(r.kind, EXIT_TIMEOUT);
    CHECK_STR(r.out.p, "left\n");
    result_free(&r);
    host_sh(&h, "sleep 0.2; pgrep -c sleep", &r);
    CHECK_STR(r.out.p, "0\n");
    result_free(&r);
    host_stop(&h);
}

TEST(proc, terminal_with_resize)
{
    struct host h;
    struct result r = {0}, x = {0};
    host_start(&h);
    struct buf b = {0};
    rec_put_str(&b, T_ARG, "bash");
    rec_put_str(&b, T_ARG, "--norc");
    rec_put_u64(&b, T_COLS, 91);
    rec_put_u64(&b, T_ROWS, 33);
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    uint32_t id = host_req(&h, OP_START, &b);
    while (!r.started)
        CHECK(host_step(&h, id, &r, 5000));
    const char *cmd = "stty size; tty; echo $TERM\n";
    host_send(&h, FR_DATA, CH_PTY, id, cmd, strlen(cmd));
    while (!r.pty.p || !strstr(r.pty.p, "33 91") || !strstr(r.pty.p, "/dev/pts/") || !strstr(r.pty.p, "xterm-256color"))
        CHECK(host_step(&h, id, &r, 5000));
    rec_put_u64(&b, T_PID, r.pid);
    rec_put_u64(&b, T_COLS, 120);
    rec_put_u64(&b, T_ROWS, 40);
    uint32_t rid = host_req(&h, OP_RESIZE, &b);
    while (!x.over) {
        struct frame f;
        CHECK(host_frame(&h, &f, 5000));
        take_frame(&h, f.stream == rid ? &x : &r, &f);
    }
    CHECK_INT(x.code, 0);
    cmd = "stty size; exit 5\n";
    host_send(&h, FR_DATA, CH_PTY, id, cmd, strlen(cmd));
    host_wait(&h, id, &r);
    CHECK(strstr(r.pty.p, "40 120"));
    CHECK_INT(r.status, 5);
    result_free(&r), result_free(&x);
    host_stop(&h);
}

TEST(proc, background_attach_by_offset_and_lost_bytes)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh_credit("echo hello; read x; seq 1 100000; read y; echo bye", 0); /* detached */
    rec_put_str(&b, T_TAG, "bg");
    rec_put_u64(&b, T_STDIN, 1);
    uint32_t id = host_req(&h, OP_START, &b);
    while (!r.started)
        CHECK(host_step(&h, id, &r, 5000));
    host_send(&h, FR_CANCEL, 0, id, NULL, 0);
    host_wait(&h, id, &r);
    CHECK_INT(r.code, E_CANCELED);
    result_free(&r);
    rec_put_str(&b, T_TAG, "bg");
    rec_put_u64(&b, T_OFFSET, 0);
    rec_put_u64(&b, T_CREDIT, 3);
    id = host_req(&h, OP_ATTACH, &b);
    r.no_credit = 1;
    while (r.out.n < 3)
        CHECK(host_step(&h, id, &r, 5000));
    CHECK_INT(r.offset, 0);
    CHECK_STR(r.out.p, "hel");
    CHECK(!host_step(&h, id, &r, 100)); /* no credit, no data */
    host_credit(&h, id, 100);
    while (r.out.n < 6)
        CHECK(host_step(&h, id, &r, 5000));
    CHECK_STR(r.out.p, "hello\n");
    host_send(&h, FR_CANCEL, 0, id, NULL, 0);
    host_wait(&h, id, &r);
    result_free(&r);
    /* 588895 bytes with nobody listening: the oldest are overwritten */
    struct result x = {0};
    rec_put_str(&b, T_TAG, "bg");
    rec_put_str(&b, T_BYTES, "\n");
    host_call(&h, OP_INPUT, &b, &x);
    CHECK_INT(x.code, 0);
    for (uint64_t total = 0; total < 588901;) {
        result_free(&x);
        host_call(&h, OP_PROCS, NULL, &x);
        struct str p;
        CHECK(rec_get((struct rec){(unsigned char *)x.res.p, x.res.n}, T_PROC, &p));
        total = rec_u64_or((struct rec){(const unsigned char *)p.p, p.n}, T_OFFSET, 0);
    }
    result_free(&x);
    rec_put_str(&b, T_TAG, "bg");
    rec_put_u64(&b, T_OFFSET, 6);
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    id = host_req(&h, OP_ATTACH, &b);
    while (!r.out.p || !strstr(r.out.p, "\n100000\n"))
        CHECK(host_step(&h, id, &r, 5000));
    CHECK_INT(r.offset, 588901 - (256 << 10));
    CHECK_INT(r.lost, r.offset - 6);
    CHECK_INT(r.out.n, 256 << 10);
    host_send(&h, FR_DATA, CH_STDIN, id, "\n", 1);
    host_wait(&h, id, &r);
    CHECK(r.exited && !r.status);
    CHECK_STR(r.out.p + (256 << 10), "bye\n");
    result_free(&r);
    /* it has ended and can still be read */
    rec_put_str(&b, T_TAG, "bg");
    rec_put_u64(&b, T_OFFSET, 588901);
    rec_put_u64(&b, T_CREDIT, 100);
    host_call(&h, OP_ATTACH, &b, &r);
    CHECK(r.exited && !r.status);
    CHECK_STR(r.out.p, "bye\n");
    result_free(&r);
    host_stop(&h);
}

TEST(proc, a_listener_without_credit_holds_the_process_back)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh_credit("seq 1 200000", 10);
    uint32_t id = host_req(&h, OP_START, &b);
    r.no_credit = 1;
    while (r.out.n < 10)
        CHECK(host_step(&h, id, &r, 5000));
    struct timespec ts = {.tv_nsec = 200 * NS_PER_MS};
    nanosleep(&ts, NULL);
    host_credit(&h, id, 1 << 20);
    host_credit(&h, id, 1 << 20);
    host_wait(&h, id, &r);
    CHECK_INT(r.out.n, 1288895);
    CHECK_INT(r.lost, 0);
    CHECK_INT(r.status, 0);
    result_free(&r);
    host_stop(&h);
}

TEST(proc, ten_thousand_orphans_are_reaped)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    /* each (true &) leaves a child to PID 1 */
    struct buf b = {0};
    rec_put_str(&b, T_ARG, "perl");
    rec_put_str(&b, T_ARG, "-e");
    rec_put_str(&b, T_ARG, "for (1..10000) { my $p = fork; if (!defined $p) { select(undef,undef,undef,.001); redo } if (!$p) { fork or exit 0; exit 0 } waitpid $p, 0 } print qq(ok\\n)");
    rec_put_u64(&b, T_CREDIT, 1000);
    int64_t t = clock_mono();
    host_call(&h, OP_START, &b, &r);
    CHECK_STR(r.out.p, "ok\n");
    printf("# 10000 orphans: %.2f s\n", (double)(clock_mono() - t) / 1e9);
    result_free(&r);
    host_sh(&h, "sleep 0.1; ps -A -o stat | grep -c Z", &r);
    CHECK_STR(r.out.p, "0\n");
    result_free(&r);
    host_stop(&h);
}

TEST(proc, many_at_once_and_sixty_four_kept)
{
    struct host h;
    struct result x = {0};
    host_start(&h);
    uint32_t first = h.next_id;
    for (int i = 0; i < 100; i++) {
        struct buf b = sh("echo $$");
        host_req(&h, OP_START, &b);
    }
    struct result r[100] = {0};
    for (int over = 0; over < 100;) {
        struct frame f;
        CHECK(host_frame(&h, &f, 10000));
        struct result *one = &r[f.stream - first];
        take_frame(&h, one, &f);
        over += one->over;
    }
    for (int i = 0; i < 100; i++) {
        CHECK(r[i].exited && !r[i].status && atoi(r[i].out.p) == (int)r[i].pid);
        result_free(&r[i]);
    }
    host_call(&h, OP_PROCS, NULL, &x);
    int n = 0;
    struct field f;
    for (struct rec at = {(unsigned char *)x.res.p, x.res.n}; rec_next(&at, &f);)
        n += f.tag == T_PROC;
    CHECK_INT(n, 64);
    result_free(&x);
    host_stop(&h);
}

TEST(proc, round_trip_time)
{
    struct host h;
    host_start(&h);
    int64_t t = clock_mono();
    for (int i = 0; i < 1000; i++) {
        struct result r = {0};
        host_call(&h, OP_PING, NULL, &r);
        result_free(&r);
    }
    int64_t ping = (clock_mono() - t) / 1000;
    t = clock_mono();
    for (int i = 0; i < 200; i++) {
        struct result r = {0};
        struct buf b = {0};
        rec_put_str(&b, T_ARG, "/bin/true");
        rec_put_u64(&b, T_CREDIT, 1);
        host_call(&h, OP_START, &b, &r);
        result_free(&r);
    }
    int64_t run = (clock_mono() - t) / 200;
    t = clock_mono();
    for (int i = 0; i < 200; i++)
        host_configure(&h);
    printf("# ping %lld us, /bin/true %lld us, configure %lld us\n", (long long)ping / 1000, (long long)run / 1000, (long long)(clock_mono() - t) / 200000);
    host_stop(&h);
}
TEST_MAIN
