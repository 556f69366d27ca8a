#include "driver.h"
#include <arpa/inet.h>
#include <netinet/in.h>

TEST(chan, refuses_everything_until_configured)
{
    struct host h;
    struct result r = {0};
    host_start_raw(&h);
    host_sync(&h, 99, false);
    host_call(&h, OP_PING, NULL, &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    host_sh(&h, "true", &r);
    CHECK_INT(r.code, E_UNAVAILABLE);
    result_free(&r);
    host_configure(&h);
    host_sh(&h, "true", &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    host_stop(&h);
}

static void put_hook(struct buf *b, const char *name, const char *script)
{
    char path[100];
    snprintf(path, sizeof path, "/etc/hutch/post-restore.d/%s", name);
    size_t m = rec_open(b, T_FILE);
    rec_put_str(b, T_PATH, path);
    rec_put_u64(b, T_MODE, 0755);
    rec_put_str(b, T_BYTES, script);
    rec_close(b, m);
}

TEST(chan, configure_writes_files_and_runs_hooks_in_order)
{
    struct host h;
    struct result r = {0};
    struct buf b = {0};
    host_start(&h);
    put_hook(&b, "10-first", "#!/bin/sh\necho first $HUTCH_GENERATION $HUTCH_SANDBOX_ID >> /tmp/hooks\n");
    put_hook(&b, "2-later", "#!/bin/sh\necho later >> /tmp/hooks\n");
    rec_put_u64(&b, T_GENERATION, 12);
    rec_put_str(&b, T_SANDBOX, "ibox");
    host_call(&h, OP_CONFIGURE, &b, &r);
    CHECK_STR(r.msg, "");
    CHECK_INT(rec_u64_or((struct rec){(unsigned char *)r.res.p, r.res.n}, T_GENERATION, 0), 12);
    result_free(&r);
    host_sh(&h, "cat /tmp/hooks", &r);
    CHECK_STR(r.out.p, "first 12 ibox\nlater\n");
    result_free(&r);
    put_hook(&b, "3-bad", "#!/bin/sh\nexit 9\n");
    host_call(&h, OP_CONFIGURE, &b, &r);
    CHECK_INT(r.code, E_GUEST);
    CHECK_STR(r.msg, "configure: post-restore hook: /etc/hutch/post-restore.d/3-bad failed with status 9");
    result_free(&r);
    host_sh(&h, "true", &r);
    CHECK_INT(r.code, E_UNAVAILABLE); /* a failed configuration is none */
    result_free(&r);
    put_hook(&b, "3-bad", "#!/bin/sh\nsleep 100\n");
    int64_t t = clock_mono();
    host_call(&h, OP_CONFIGURE, &b, &r);
    CHECK_INT(r.code, E_TIMEOUT);
    CHECK(clock_mono() - t < 7 * NS_PER_S);
    result_free(&r);
    rec_put_str(&b, T_HOSTNAME, "not a name");
    host_call(&h, OP_CONFIGURE, &b, &r);
    CHECK_STR(r.msg, "configure: hostname: not a host name");
    result_free(&r);
    host_stop(&h);
}

TEST(chan, takeover_in_the_middle_of_a_frame_keeps_processes)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("echo first; sleep 0.3; echo second; read x; echo $x");
    rec_put_str(&b, T_TAG, "p");
    rec_put_u64(&b, T_STDIN, 1);
    uint32_t id = host_req(&h, OP_START, &b);
    while (r.out.n < 6)
        CHECK(host_step(&h, id, &r, 5000));
    result_free(&r);
    /* torn: the head of a large DATA frame and a little of its payload, which pretends to be a takeover itself */
    struct buf torn = {0}, fake = {0};
    frame_put_sync(&fake, 0x666, false, false);
    buf_reserve(&fake, 60000);
    memset(fake.p + fake.n, 'x', 60000), fake.n += 60000;
    frame_put(&torn, h.rd.epoch, FR_DATA, CH_STDIN, id, fake.p, fake.n);
    host_write(&h, torn.p, 1000);
    buf_free(&torn), buf_free(&fake);
    host_sync(&h, 0xabcdef, true);
    host_sh(&h, "true", &r);
    CHECK_INT(r.code, E_UNAVAILABLE); /* CONFIGURE is needed again */
    result_free(&r);
    host_configure(&h);
    rec_put_str(&b, T_TAG, "p");
    rec_put_u64(&b, T_OFFSET, 0);
    rec_put_u64(&b, T_CREDIT, 1000);
    id = host_req(&h, OP_ATTACH, &b);
    while (r.out.n < 13)
        CHECK(host_step(&h, id, &r, 5000));
    CHECK_STR(r.out.p, "first\nsecond\n");
    host_send(&h, FR_DATA, CH_STDIN, id, "again\n", 6);
    host_wait(&h, id, &r);
    CHECK_STR(r.out.p, "first\nsecond\nagain\n");
    CHECK_INT(r.status, 0);
    result_free(&r);
    host_stop(&h);
}

TEST(chan, takeover_while_output_is_stuck)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    struct buf b = sh("yes");
    uint32_t id = host_req(&h, OP_START, &b);
    host_credit(&h, id, 1u << 30);
    struct timespec ts = {.tv_nsec = 200 * NS_PER_MS};
    nanosleep(&ts, NULL); /* socket and queue are full now */
    host_sync(&h, 5, true);
    host_configure(&h);
    host_sh(&h, "echo fine", &r);
    CHECK_STR(r.out.p, "fine\n");
    result_free(&r);
    host_stop(&h);
}

TEST(chan, one_slow_stream_does_not_stall_others)
{
    struct host h;
    struct result r = {0}, x = {0};
    host_start(&h);
    struct buf b = sh_credit("yes", 1); /* one byte of credit, then none */
    uint32_t id = host_req(&h, OP_START, &b);
    r.no_credit = 1;
    while (!r.out.n)
        CHECK(host_step(&h, id, &r, 5000));
    for (int i = 0; i < 20; i++) {
        host_sh(&h, "seq 1 10000", &x);
        CHECK_INT(x.out.n, 48894);
        result_free(&x);
    }
    CHECK_INT(r.out.n, 1);
    result_free(&r);
    host_stop(&h);
}

TEST(chan, credit_overrun_fails_the_stream_only)
{
    struct host h;
    struct result r = {0};
    char junk[60000] = {0};
    host_start(&h);
    struct buf b = sh("exec sleep 100");
    rec_put_u64(&b, T_STDIN, 1);
    uint32_t id = host_req(&h, OP_START, &b);
    while (!r.started)
        CHECK(host_step(&h, id, &r, 5000));
    for (int i = 0; i < 6; i++) /* 64 KiB in the pipe, then the window of 128 KiB */
        host_send(&h, FR_DATA, CH_STDIN, id, junk, sizeof junk);
    host_wait(&h, id, &r);
    CHECK_INT(r.code, E_INVALID);
    CHECK_STR(r.msg, "more data than the credit granted");
    result_free(&r);
    rec_put_str(&b, T_PATH, "/etc/passwd");
    rec_put_u64(&b, T_CREDIT, 0);
    id = host_req(&h, OP_READ, &b);
    host_send(&h, FR_DATA, CH_FILE, id, junk, 1);
    host_wait(&h, id, &r);
    CHECK_STR(r.msg, "this stream accepts no data");
    result_free(&r);
    host_sh(&h, "echo ok", &r);
    CHECK_STR(r.out.p, "ok\n");
    result_free(&r);
    host_stop(&h);
}

TEST(chan, hostile_bytes_are_survived)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    unsigned seed = 1;
    for (int round = 0; round < 300; round++) {
        unsigned char junk[3000];
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (unsigned char)(rand_r(&seed) >> 7);
        if (round % 3 == 0) { /* well framed, nonsense inside */
            unsigned n = (unsigned)rand_r(&seed) % 200;
            junk[0] = (unsigned char)(round % 40); /* every op with a random record */
            if (junk[0] == OP_SHUTDOWN || junk[0] == OP_REMOVE)
                junk[0] = OP_STAT;
            host_send(&h, (enum frame_type)(1 + rand_r(&seed) % 7), (uint8_t)(rand_r(&seed) % CH_MAX), (uint32_t)rand_r(&seed) % 20, junk, n);
        } else if (round % 3 == 1)
            host_write(&h, junk, (size_t)rand_r(&seed) % sizeof junk);
        host_sync(&h, 1000 + (uint32_t)round, true);
    }
    host_configure(&h);
    host_sh(&h, "echo alive", &r);
    CHECK_STR(r.out.p, "alive\n");
    result_free(&r);
    host_stop(&h);
}

TEST(chan, unknown_ops_and_reused_ids)
{
    struct host h;
    struct result r = {0};
    host_start(&h);
    host_call(&h, 200, NULL, &r);
    CHECK_INT(r.code, E_UNSUPPORTED);
    result_free(&r);
    host_call(&h, OP_FREEZE, NULL, &r);
    CHECK_INT(r.code, E_UNSUPPORTED);
    result_free(&r);
    struct buf b = {0};
    buf_puts(&b, "not a record");
    host_call(&h, OP_STAT, &b, &r);
    CHECK_INT(r.code, E_INVALID);
    result_free(&r);
    b = sh("sleep 100");
    uint32_t id = host_req(&h, OP_START, &b);
    char op = OP_PING;
    host_send(&h, FR_REQ, 0, id, &op, 1);
    host_wait(&h, id, &r);
    CHECK_STR(r.msg, "the stream id is in use");
    result_free(&r);
    host_stop(&h);
}

TEST(chan, requests_wait_while_the_host_does_not_read)
{
    struct host h;
    host_start(&h);
    uint32_t first = h.next_id;
    int sent = 0;
    int fl = fcntl(h.fd, F_GETFL);
    struct buf b = {0};
    char op[6] = {OP_PROCS};
    frame_put(&b, h.rd.epoch, FR_REQ, 0, 0, op, 1);
    fcntl(h.fd, F_SETFL, fl | O_NONBLOCK);
    size_t part = 0;
    for (; sent < 200000; sent++) {
        put_le32((unsigned char *)b.p + 8, first + (uint32_t)sent);
        ssize_t n = write(h.fd, b.p, b.n);
        if (n != (ssize_t)b.n) {
            struct timespec ts = {.tv_nsec = 50 * NS_PER_MS};
            nanosleep(&ts, NULL);
            if (n < 0 && write(h.fd, b.p, b.n) < 0)
                break;
            part = n > 0 ? (size_t)n : 0;
            if (n > 0)
                break;
        }
    }
    CHECK(!MEMORY_COUNTS || agent_rss_kib(&h) < 20000);
    fcntl(h.fd, F_SETFL, fl);
    struct frame f;
    if (part)
        host_sync(&h, 77, true);
    else
        for (int got = 0; got < sent; got++)
            CHECK(host_frame(&h, &f, 5000) && f.type == FR_RES);
    printf("# %d requests unread\n", sent);
    buf_free(&b);
    host_configure(&h);
    host_stop(&h);
}

static void *echo_server(int *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(s, (void *)&a, sizeof a) && !listen(s, 5) && !getsockname(s, (void *)&a, &n));
    *ret_port = ntohs(a.sin_port);
    if (!fork()) {
        int c = accept(s, NULL, NULL);
        char buf[65536];
        for (ssize_t k; (k = read(c, buf, sizeof buf)) > 0;)
            fd_write_all(c, buf, (size_t)k);
        fd_write_all(c, "end", 3);
        _exit(0);
    }
    close(s);
    return NULL;
}

TEST(chan, tunnel_carries_both_ways_and_half_closes)
{
    struct host h;
    struct result r = {0};
    int port;
    host_start(&h);
    echo_server(&port);
    struct buf b = {0};
    host_call(&h, OP_PORTS, NULL, &r);
    bool seen = false;
    struct field f;
    uint64_t v;
    for (struct rec at = {(unsigned char *)r.res.p, r.res.n}; rec_next(&at, &f);)
        seen |= f.tag == T_PORT && field_u64(f, &v) && v == (uint64_t)port;
    CHECK(seen);
    result_free(&r);
    rec_put_u64(&b, T_PORT, (uint64_t)port);
    rec_put_u64(&b, T_CREDIT, 1 << 20);
    uint32_t id = host_req(&h, OP_CONNECT, &b);
    host_send(&h, FR_DATA, CH_TUNNEL, id, "early ", 6);
    char blob[50000];
    memset(blob, 'x', sizeof blob);
    size_t total = 6;
    uint64_t credit = CREDIT_INITIAL - 6, granted = 0;
    while (total < 2000000) {
        if (credit < sizeof blob) {
            CHECK(host_step(&h, id, &r, 5000));
            credit += r.granted - granted, granted = r.granted;
            continue;
        }
        host_send(&h, FR_DATA, CH_TUNNEL, id, blob, sizeof blob);
        credit -= sizeof blob, total += sizeof blob;
    }
    host_send(&h, FR_EOF, CH_TUNNEL, id, NULL, 0);
    host_wait(&h, id, &r);
    CHECK_INT(r.code, 0);
    CHECK(r.started && r.tunnel_eof);
    CHECK_INT(r.tunnel.n, total + 3);
    CHECK(!memcmp(r.tunnel.p + total, "end", 3));
    result_free(&r);
    rec_put_u64(&b, T_PORT, 1);
    host_call(&h, OP_CONNECT, &b, &r);
    CHECK_INT(r.code, E_UNAVAILABLE);
    CHECK_STR(r.msg, "nothing listens on port 1");
    result_free(&r);
    host_call(&h, OP_METRICS, NULL, &r);
    CHECK(rec_u64((struct rec){(unsigned char *)r.res.p, r.res.n}, T_DISK_BYTES, &v) && v);
    result_free(&r);
    host_stop(&h);
}
TEST_MAIN
