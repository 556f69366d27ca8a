#include "handlers.h"

TEST(server, answers_a_get) { check_get("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "Content-Length: 11\r\nConnection: close\r\n\r\n{\"ok\":true}"); }
TEST(server, answers_http_1_0_and_closes) { check_get("GET /chunks HTTP/1.0\r\n\r\n", "Connection: close\r\n\r\nhello world"); }
TEST(server, sends_chunks) { check_get("GET /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "X-One: 1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n"); }
TEST(server, answers_later) { check_get("GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "late"); }
TEST(server, refuses_a_bad_head_with_its_status) { check_get("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "HTTP/1.1 505 "); }
TEST(server, refuses_smuggling) { check_get("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400 "); }
TEST(server, refuses_a_body_over_the_cap) { check_get("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nConnection: close\r\n\r\n", "HTTP/1.1 413 "); }
TEST(server, refuses_a_chunked_body_over_the_cap)
{
    struct buf b = {0};
    buf_puts(&b, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n");
    for (int i = 0; i < 1024; i++)
        buf_putc(&b, 'x');
    buf_puts(&b, "\r\n0\r\n\r\n");
    check_get(b.p, "HTTP/1.1 413 ");
    buf_free(&b);
}
TEST(server, refuses_a_broken_chunk) { check_get("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 "); }
TEST(server, head_has_no_body)
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, "HEAD /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    HAS(r, "Content-Length: 11");
    CHECK(!strstr(r, "{\"ok"));
    free(r);
    stop(&h);
}
TEST(server, sends_continue_before_the_body)
{
    struct harness h;
    struct buf b = {0};
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    recv_until(fd, &b, "100 Continue\r\n\r\n");
    send_z(fd, "abc");
    recv_until(fd, &b, "\r\n\r\nabc");
    HAS(b.p, "HTTP/1.1 200 OK");
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, handles_pipelined_requests_in_order)
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /late HTTP/1.1\r\nHost: a\r\n\r\n"
                           "GET /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    char *a = strstr(r, "{\"ok"), *b = strstr(r, "\r\n\r\nabc"), *c = strstr(r, "late"), *d = strstr(r, "world");
    CHECK(a && b && c && d && a < b && b < c && c < d);
    free(r);
    stop(&h);
}
TEST(server, bounds_memory_for_a_pipeliner_that_does_not_read)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    struct buf b = {0};
    for (int i = 0; i < 200; i++)
        buf_puts(&b, "GET /pump HTTP/1.1\r\nHost: a\r\n\r\n");
    send_all(fd, b.p, b.n);
    usleep(200000);
    CHECK(peak_pending > 0 && peak_pending < (512 << 10));
    buf_free(&b);
    close(fd);
    CHECK(wait_for(&cancelled, 1));
    stop(&h);
}
TEST(server, skips_a_small_unread_body_and_keeps_the_connection)
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nxxxxxGET /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    HAS(r, "{\"ok");
    HAS(r, "world");
    free(r);
    stop(&h);
}
TEST(server, accepts_a_head_split_at_every_byte)
{
    struct harness h;
    static const char req[] = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n";
    start(&h, NULL);
    int fd = harness_connect(&h);
    struct buf b = {0};
    for (size_t cut = 1; cut < sizeof req - 1; cut++) {
        send_all(fd, req, cut);
        usleep(200);
        send_all(fd, req + cut, sizeof req - 1 - cut);
        buf_drop(&b, b.n);
        recv_until(fd, &b, "\r\n\r\nabcde");
        HAS(b.p, "200 OK");
    }
    for (size_t i = 0; i < sizeof req - 1; i++)
        send_all(fd, req + i, 1);
    buf_drop(&b, b.n);
    recv_until(fd, &b, "\r\n\r\nabcde");
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, tells_the_handler_that_the_client_left)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    usleep(20000);
    CHECK_INT(cancelled, 0);
    close(fd);
    CHECK(wait_for(&cancelled, 1));
    CHECK(wait_for(&done_count, 1));
    stop(&h);
    CHECK_INT(cancelled, 1);
    CHECK_INT(done_count, 1);
}
TEST(server, notices_a_leaving_client_behind_pipelined_bytes)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n\r\n");
    usleep(20000);
    close(fd);
    CHECK(wait_for(&cancelled, 1));
    stop(&h);
}
TEST(server, serves_a_half_closed_client_when_nobody_asked)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    shutdown(fd, SHUT_WR);
    struct buf b = {0};
    recv_until(fd, &b, NULL);
    HAS(b.p, "late");
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, cancels_what_is_in_flight_at_the_end)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    usleep(20000);
    stop(&h);
    CHECK_INT(cancelled, 1);
    close(fd);
}
TEST(server, aborts_mid_chunk) /* the head and what was written arrive, the last chunk does not */
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n");
    HAS(r, "4\r\npart\r\n");
    CHECK(!strstr(r, "0\r\n\r\n"));
    free(r);
    stop(&h);
}
TEST(server, cuts_a_reply_shorter_than_promised)
{
    struct harness h;
    start(&h, NULL);
    char *r = exchange(&h, "GET /short HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    HAS(r, "12345");
    CHECK(!strstr(r, "{\"ok"));
    free(r);
    stop(&h);
}
TEST(server, holds_a_source_back_for_a_slow_reader)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /pump HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    usleep(100000);
    static char t[1 << 16];
    uint64_t total = 0;
    int64_t t0 = clock_mono();
    for (ssize_t r; (r = recv(fd, t, sizeof t, 0)) > 0;) {
        if (total < (1 << 20))
            usleep(1000);
        total += (uint64_t)r;
    }
    printf("# 100 MiB down in %.0f ms\n", (double)(clock_mono() - t0) / 1e6);
    CHECK(total > (100u << 20) && total < (100u << 20) + 1000);
    CHECK(peak_pending < (512 << 10));
    close(fd);
    stop(&h);
}
static long rss_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long a = 0, b = 0;
    CHECK(f && fscanf(f, "%ld %ld", &a, &b) == 2);
    fclose(f);
    return b * 4;
}
TEST(server, streams_100_mb_upwards_without_growth)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    static char t[1 << 16];
    send_z(fd, "PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    long before = 0;
    int64_t t0 = clock_mono();
    for (int i = 0; i < 1600; i++) {
        send_all(fd, t, sizeof t);
        if (i == 100)
            before = rss_kib();
    }
    struct buf b = {0};
    recv_until(fd, &b, "104857600 1");
    printf("# 100 MiB up in %.0f ms\n", (double)(clock_mono() - t0) / 1e6);
    CHECK(rss_kib() - before < 4096);
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, stops_reading_while_the_body_is_paused)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "PUT /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    static char t[1 << 16];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    size_t total = 0;
    for (int idle = 0; idle < 50;) {
        ssize_t w = send(fd, t, sizeof t, MSG_NOSIGNAL);
        if (w > 0)
            total += (size_t)w, idle = 0;
        else
            idle++, usleep(2000);
    }
    CHECK(total < (16u << 20)); /* socket buffers, not ours */
    CHECK_INT(got_bytes, 0);
    close(fd);
    stop(&h);
}
TEST(server, times_out_a_slow_head)
{
    struct harness h;
    struct http_config c = {.head_ns = 50 * NS_PER_MS};
    start(&h, &c);
    int fd = harness_connect(&h);
    send_z(fd, "GET /hello HT");
    struct buf b = {0};
    recv_until(fd, &b, NULL);
    HAS(b.p, "HTTP/1.1 408 ");
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, times_out_a_stalled_body)
{
    struct harness h;
    struct http_config c = {.body_ns = 50 * NS_PER_MS};
    start(&h, &c);
    char *r = exchange(&h, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    HAS(r, "HTTP/1.1 408 ");
    free(r);
    stop(&h);
}
TEST(server, closes_idle_connections)
{
    struct harness h;
    struct http_config c = {.idle_ns = 50 * NS_PER_MS, .head_ns = 20 * NS_PER_S};
    start(&h, &c);
    char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    HAS(r, "{\"ok");
    free(r);
    stop(&h);
}
TEST(server, gives_up_on_a_peer_that_does_not_read)
{
    struct harness h;
    struct http_config c = {.write_ns = 100 * NS_PER_MS};
    start(&h, &c);
    int fd = harness_connect(&h);
    send_z(fd, "GET /pump HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(wait_for(&cancelled, 1));
    close(fd);
    stop(&h);
}
TEST(server, turns_away_over_the_cap)
{
    struct harness h;
    struct http_config c = {.max_conns = 1};
    start(&h, &c);
    int fd = harness_connect(&h);
    send_z(fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    struct buf b = {0};
    recv_until(fd, &b, "true}");
    char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    HAS(r, "HTTP/1.1 503 ");
    free(r);
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, tunnels_bytes_with_half_close)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly");
    struct buf b = {0};
    recv_until(fd, &b, "\r\n\r\nearly");
    HAS(b.p, "Upgrade: echo\r\nConnection: Upgrade\r\n");
    send_z(fd, "more");
    recv_until(fd, &b, "more");
    shutdown(fd, SHUT_WR);
    recv_until(fd, &b, NULL);
    HAS(b.p, "morebye");
    buf_free(&b);
    close(fd);
    stop(&h);
}
TEST(server, sends_events_and_keepalives)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    send_z(fd, "GET /sse HTTP/1.1\r\nHost: a\r\n\r\n");
    struct buf b = {0};
    recv_until(fd, &b, ": keepalive\n\n");
    HAS(b.p, "event: tick\ndata: a\ndata: b\n\n");
    HAS(b.p, "Content-Type: text/event-stream\r\n");
    buf_free(&b);
    close(fd);
    CHECK(wait_for(&cancelled, 1));
    stop(&h);
}
static atomic_int stopped_flag;
static void on_stopped(void *arg)
{
    (void)arg;
    stopped_flag++;
}
static void begin_stop(void *arg) { http_server_stop(arg, NS_PER_S / 5, on_stopped, NULL); }
TEST(server, stops_gracefully)
{
    struct harness h;
    start(&h, NULL);
    int idle = harness_connect(&h), busy = harness_connect(&h);
    send_z(busy, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    usleep(20000);
    loop_post(h.loop, begin_stop, h.srv);
    struct buf b = {0}, i = {0};
    recv_until(idle, &i, NULL); /* closed at once */
    CHECK_INT(i.n, 0);
    send_z(busy, "abc");
    recv_until(busy, &b, NULL);
    HAS(b.p, "Connection: close\r\n\r\nabc");
    close(busy);
    CHECK(wait_for(&stopped_flag, 1));
    buf_free(&b);
    buf_free(&i);
    close(idle);
    stop(&h);
}
static void free_on_stop(void *arg)
{
    struct harness *h = arg;
    http_server_free(h->srv);
    h->srv = NULL;
    stopped_flag++;
}
static void begin_stop_free(void *arg) { http_server_stop(((struct harness *)arg)->srv, NS_PER_S, free_on_stop, arg); }
TEST(server, may_be_freed_when_it_has_stopped)
{
    struct harness h;
    start(&h, NULL);
    int a = harness_connect(&h), b = harness_connect(&h);
    usleep(20000);
    loop_post(h.loop, begin_stop_free, &h);
    CHECK(wait_for(&stopped_flag, 1));
    close(a);
    close(b);
    stop(&h);
    CHECK_INT(stopped_flag, 1);
}
static uint64_t seen_id;
static atomic_int freed, found;
static void count_free(void *data)
{
    CHECK_STR(data, "slot");
    freed++;
}
static void h_id(struct http_stream *s, void *arg)
{
    (void)arg;
    if (seen_id)
        found += http_find(http_server_of(s), seen_id) != NULL;
    seen_id = http_id(s);
    CHECK(http_find(http_server_of(s), seen_id) == s);
    http_set_data(s, "slot");
    http_on_free(s, count_free);
    http_reply(s, 200, NULL, http_request_id(s), 21);
    CHECK(!http_find(http_server_of(s), seen_id));
    CHECK(http_write(s, "x", 1) < 0);
    http_reply(s, 500, NULL, "", 0); /* the first outcome stands */
}
TEST(server, forgets_ids_and_buries_streams)
{
    struct harness h;
    struct http_config cfg = {.handler = h_id};
    harness_start(&h, &cfg);
    char *r = exchange(&h, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    HAS(r, "X-Request-Id: r");
    CHECK(!strstr(r, " 500 "));
    free(r);
    harness_stop(&h);
    CHECK_INT(freed, 2);
    CHECK_INT(found, 0);
}
TEST(server, listens_on_a_unix_socket_and_knows_the_peer)
{
    struct harness h;
    struct err e;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hutch-test-%d.sock", (int)getpid());
    struct http_config cfg = {.handler = handler};
    router = router_new(routes, sizeof routes / sizeof *routes);
    h.loop = loop_new();
    h.srv = http_server_new(h.loop, &cfg);
    CHECK(!http_listen_unix(h.srv, path, 0600, &e));
    CHECK(!pthread_create(&h.thread, NULL, harness_main, &h));
    int fd = sock_connect_unix(path, &e);
    CHECK(fd >= 0);
    fcntl(fd, F_SETFL, 0);
    send_z(fd, "GET /who/a%20b/x?path=%2Ftmp+x HTTP/1.1\r\nHost: a\r\n\r\n");
    struct buf b = {0};
    recv_until(fd, &b, "a b|/tmp x|unix");
    buf_free(&b);
    close(fd);
    unlink(path);
    stop(&h);
}

/* Many clients that send parts of requests, read parts of replies and leave at any moment. */
static struct harness *rude_at;
static void *rude(void *arg)
{
    static const char *const req[] = {
        "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /pump HTTP/1.1\r\nHost: a\r\n\r\n",
        "PUT /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789",
        "PUT /stuck HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n0123",
        "GET /late HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\nxyz",
        "GET /sse HTTP/1.1\r\nHost: a\r\n\r\n",
        "BROKEN\r\n\r\n",
    };
    unsigned seed = (unsigned)(uintptr_t)arg;
    char t[4096];
    for (int i = 0; i < 400; i++) {
        int fd = harness_connect(rude_at);
        for (int k = 0; k < 4; k++) {
            const char *r = req[(unsigned)rand_r(&seed) % (sizeof req / sizeof *req)];
            size_t n = strlen(r);
            if (rand_r(&seed) % 3 == 0)
                n = (size_t)rand_r(&seed) % n;
            (void)!send(fd, r, n, MSG_NOSIGNAL);
            if (rand_r(&seed) % 2)
                (void)!recv(fd, t, sizeof t, MSG_DONTWAIT);
            if (rand_r(&seed) % 8 == 0)
                shutdown(fd, SHUT_WR);
        }
        if (rand_r(&seed) % 4 == 0) {
            struct linger lg = {1, 0}; /* reset instead of a proper end */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &lg, sizeof lg);
        }
        close(fd);
    }
    return NULL;
}
TEST(server, survives_rude_clients)
{
    struct harness h;
    pthread_t t[8];
    start(&h, NULL);
    rude_at = &h;
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(!pthread_create(&t[i], NULL, rude, (void *)(i + 1)));
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    HAS(r, "{\"ok");
    free(r);
    stop(&h);
}
static void count_conns(void *arg) { got_bytes = http_server_conns(arg); }
TEST(server, holds_idle_streams_cheaply)
{
    struct harness h;
    start(&h, NULL);
    enum { N = 400 };
    int fd[N];
    for (int i = 0; i < 50; i++) { /* warm up */
        char *r = exchange(&h, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        free(r);
    }
    long before = rss_kib();
    for (int i = 0; i < N; i++) {
        fd[i] = harness_connect(&h);
        send_z(fd[i], "GET /sse HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\nAccept: text/event-stream\r\n\r\n");
        struct buf b = {0};
        recv_until(fd[i], &b, "data: b");
        buf_free(&b);
    }
    loop_post(h.loop, count_conns, h.srv);
    CHECK(wait_for(&got_bytes, N));
    printf("# %.1f KiB per waiting stream\n", (double)(rss_kib() - before) / N);
#ifndef __SANITIZE_THREAD__ /* shadow memory counts */
    CHECK(rss_kib() - before < N * 16);
#endif
    for (int i = 0; i < N; i++)
        close(fd[i]);
    CHECK(wait_for(&cancelled, N));
    stop(&h);
}


TEST(server, answers_a_small_get_quickly)
{
    struct harness h;
    start(&h, NULL);
    int fd = harness_connect(&h);
    static const char req[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
    char t[4096];
    int64_t t0 = 0, n = 20000;
    for (int i = 0; i < n + 100; i++) {
        if (i == 100)
            t0 = clock_mono();
        send_all(fd, req, sizeof req - 1);
        CHECK(recv(fd, t, sizeof t, 0) > 100);
    }
    printf("# %.1f us per round trip\n", (double)(clock_mono() - t0) / 1000.0 / (double)n);
    close(fd);
    stop(&h);
}
TEST_MAIN
