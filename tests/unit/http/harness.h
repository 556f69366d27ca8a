/* A real server on its own loop thread, and blocking client sockets. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "http/router.h"
#include "http/server.h"
#include "http/ws.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

struct harness { struct loop *loop; struct http_server *srv; pthread_t thread; int port; };

static void *harness_main(void *arg)
{
    struct harness *h = arg;
    loop_run(h->loop);
    http_server_free(h->srv);
    loop_free(h->loop);
    return NULL;
}
static inline void harness_start(struct harness *h, struct http_config *cfg)
{
    struct err e;
    signal(SIGPIPE, SIG_IGN);
    h->loop = loop_new();
    h->srv = http_server_new(h->loop, cfg);
    h->port = http_listen_tcp(h->srv, "127.0.0.1:0", &e);
    CHECK(h->port > 0);
    CHECK(!pthread_create(&h->thread, NULL, harness_main, h));
}
static void harness_quit(void *arg) { loop_stop(arg); }
static inline void harness_stop(struct harness *h)
{
    loop_post(h->loop, harness_quit, h->loop);
    pthread_join(h->thread, NULL);
}
static inline int harness_connect(struct harness *h)
{
    char addr[32];
    snprintf(addr, sizeof addr, "127.0.0.1:%d", h->port);
    int fd = sock_connect_tcp(addr, NULL);
    CHECK(fd >= 0);
    struct pollfd p = {fd, POLLOUT, 0};
    poll(&p, 1, 5000);
    CHECK_INT(sock_error(fd), 0);
    int fl = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, fl & ~O_NONBLOCK);
    return fd;
}
static inline void send_all(int fd, const void *p, size_t n)
{
    while (n) {
        ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
        CHECK(w > 0);
        p = (const char *)p + w, n -= (size_t)w;
    }
}
static inline void send_z(int fd, const char *z) { send_all(fd, z, strlen(z)); }
/* Reads until the peer closes or `until` has been seen; NUL-terminated. */
static inline void recv_until(int fd, struct buf *b, const char *until)
{
    char t[4096];
    while (!until || !b->p || !strstr(b->p, until)) {
        struct pollfd p = {fd, POLLIN, 0};
        CHECK(poll(&p, 1, 10000) == 1);
        ssize_t r = recv(fd, t, sizeof t, 0);
        if (r <= 0)
            break;
        buf_put(b, t, (size_t)r);
    }
    buf_reserve(b, 0);
    b->p[b->n] = 0;
}
static inline char *exchange(struct harness *h, const char *request) /* the caller frees */
{
    int fd = harness_connect(h);
    struct buf b = {0};
    send_z(fd, request);
    recv_until(fd, &b, NULL);
    close(fd);
    return buf_take(&b);
}
static inline bool wait_for(atomic_int *v, int at_least)
{
    for (int i = 0; i < 5000; i++) {
        if (atomic_load(v) >= at_least)
            return true;
        usleep(1000);
    }
    return false;
}
