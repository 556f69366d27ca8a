/* The asynchronous client against a small server of our own: no root needed. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "loop/loop.h"
#include "spawn/client.h"
#include "test.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

static char path[96];
static int listen_at(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(path, sizeof path, "/tmp/hutch-client-test-%d", (int)getpid());
    strcpy(a.sun_path, path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(!bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1));
    return fd;
}

static int served, exits, losts, kept = -1;
static struct loop *lp;
static void on_exit_event(void *ctx, const struct sp_exit *x) { (void)ctx, exits += !strcmp(x->id, "i00000000000000000001"); }
static void on_lost(void *ctx, const struct err *why) { (void)ctx, losts += why->code == E_UNAVAILABLE; }
static void on_done(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    int want = (int)(intptr_t)arg;
    CHECK_INT(rep->rc ? -(int)rep->err.code : (int)rep->u.hello.features, want);
    if (nfds == 2)
        kept = take_fd(&fds[1]);
    served++;
}

static void turn_until(int *what, int n)
{
    for (int i = 0; i < 1000 && *what < n; i++)
        loop_turn(lp, true);
    CHECK_INT(*what, n);
}

static void answer(int c, uint64_t seq, uint32_t v, const int *fds, int nfds)
{
    struct sp_rep r = {.seq = seq, .u.hello.features = v};
    if (!seq)
        strcpy(r.u.exit.id, "i00000000000000000001");
    CHECK(fd_send(c, &r, sizeof r, fds, nfds, 0) > 0);
}

TEST(client, answers_out_of_order_with_descriptors_and_events)
{
    struct err e;
    int l = listen_at();
    lp = loop_new();
    struct spawn_client *c = spawn_client_new(lp, path, on_exit_event, on_lost, NULL, &e);
    CHECK(c);
    int s = accept(l, NULL, NULL);
    struct sp_req q = {.op = SP_HELLO}, got[2];
    CHECK_INT(spawn_call(c, &q, NULL, 0, on_done, (void *)11, &e), 0);
    CHECK_INT(spawn_call(c, &q, (int[]){0}, 1, on_done, (void *)22, &e), 0);
    CHECK_INT(spawn_call(c, &q, NULL, 0, NULL, NULL, &e), 0); /* nobody waits */
    int fds[4], n = 4;
    CHECK(fd_recv(s, &got[0], sizeof q, NULL, NULL, 0) == sizeof q && fd_recv(s, &got[1], sizeof q, fds, &n, 0) == sizeof q);
    CHECK_INT(n, 1);
    CHECK_INT(got[0].version, SP_VERSION);
    CHECK(got[0].seq && got[1].seq > got[0].seq);
    int p[2];
    CHECK(!pipe(p));
    answer(s, got[1].seq, 22, p, 2);
    answer(s, 0, 0, NULL, 0);
    answer(s, got[0].seq, 11, NULL, 0);
    turn_until(&served, 2);
    CHECK_INT(exits, 1);
    CHECK(kept >= 0 && fcntl(kept, F_GETFD) == FD_CLOEXEC);
    close(kept);
    /* a lost spawner fails what is in flight, once */
    CHECK_INT(spawn_call(c, &q, NULL, 0, on_done, (void *)(intptr_t)-E_UNAVAILABLE, &e), 0);
    close(s);
    turn_until(&losts, 1);
    CHECK_INT(served, 3);
    CHECK_INT(spawn_call(c, &q, NULL, 0, on_done, NULL, &e), -1);
    CHECK_INT(e.code, E_UNAVAILABLE);
    spawn_client_free(c);
    loop_free(lp);
    close(l), close(fds[0]), close(p[0]), close(p[1]);
    unlink(path);
}

/* A spawner that does not read: calls queue, and all arrive later in order. */
TEST(client, queues_behind_a_slow_spawner)
{
    struct err e;
    int l = listen_at();
    lp = loop_new();
    struct spawn_client *c = spawn_client_new(lp, path, on_exit_event, on_lost, NULL, &e);
    CHECK(c);
    int s = accept(l, NULL, NULL);
    struct sp_req q = {.op = SP_HELLO};
    enum { N = 3000 };
    for (int i = 0; i < N; i++)
        CHECK_INT(spawn_call(c, &q, NULL, 0, on_done, (void *)(intptr_t)(i + 1), &e), 0);
    fd_nonblock(s);
    for (int got = 0; got < N;) {
        struct sp_req r;
        if (fd_recv(s, &r, sizeof r, NULL, NULL, 0) != sizeof r) {
            loop_turn(lp, false);
            continue;
        }
        CHECK_INT(r.seq, got + 1);
        got++;
        struct sp_rep rep = {.seq = r.seq, .u.hello.features = (uint32_t)got};
        while (fd_send(s, &rep, sizeof rep, NULL, 0, MSG_DONTWAIT) < 0)
            loop_turn(lp, false);
    }
    turn_until(&served, N);
    spawn_client_free(c);
    spawn_client_free(NULL);
    loop_free(lp);
    close(s), close(l);
    unlink(path);
}

TEST(client, nobody_listens)
{
    struct err e;
    CHECK(!spawn_client_new(NULL, "/nonexistent/spawn.sock", NULL, NULL, NULL, &e));
    CHECK_INT(e.code, E_NOT_FOUND);
}

TEST_MAIN
