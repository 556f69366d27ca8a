#include "spawn/server_child.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/ns.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_PIDFD 3 /* P_PIDFD */

struct child { struct watch w; uint64_t gen, seq; int pidfd; void (*over)(void *arg); void *arg; };

static void on_answer(struct server *s, struct watch *w)
{
    struct child *c = w->arg;
    struct child_answer a;
    siginfo_t si;
    ssize_t n = fd_read_all(w->fd, &a, sizeof a); /* one write of the child's, or its end */
    int sock = w->fd;
    server_unwatch(s, w);
    (void)close(sock);
    while (waitid((idtype_t)WAIT_PIDFD, (id_t)c->pidfd, &si, WEXITED) < 0 && errno == EINTR)
        ;
    (void)close(c->pidfd);
    if (n != (ssize_t)sizeof a) {
        a.rc = -1;
        (void)err_set(&a.err, E_INTERNAL, "the worker exited without an answer");
    }
    if (c->over)
        c->over(c->arg);
    if (a.rc) {
        server_fail(s, c->gen, c->seq, &a.err);
    } else {
        struct sp_rep rep = {.u.saved = a.saved};
        server_reply(s, c->gen, c->seq, &rep, NULL, 0);
    }
    free(c); /* no other event of this turn can name it: its descriptor was its own */
}

int child_run(struct server *s, struct request *r, const struct child_work *w, struct err *e)
{
    int sv[2], pidfd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "socket pair");
    auto_fd mine = sv[0], theirs = sv[1];
    pid_t pid = ns_clone(&(struct ns_birth){.cgroup = -1}, &pidfd, e);
    if (pid < 0)
        return -1;
    if (!pid) {
        w->body(w->arg, theirs);
        _exit(1); /* not reached */
    }
    struct child *c = xcalloc(1, sizeof *c);
    *c = (struct child){.gen = r->gen, .seq = r->q->seq, .pidfd = pidfd, .over = w->over, .arg = w->arg};
    if (server_watch(s, &c->w, take_fd(&mine), on_answer, c) < 0)
        abort(); /* as for a box: deaf is worse than dead */
    return 0;
}

void child_end(int sock, const struct child_answer *a) { _exit(fd_write_all(sock, a, sizeof *a) ? 0 : 1); }
