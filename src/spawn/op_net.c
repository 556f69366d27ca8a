/* SP_NET: the gate's sockets inside a box's network namespace. SP_EGRESS: the
 * gate itself. The spawner keeps none of the sockets: whoever serves the box
 * asks again when it has to begin anew. */
#include "base/cleanup.h"
#include "base/log.h"
#include "jail/sys.h"
#include "spawn/place.h"
#include "spawn/server.h"
#include "spawn/server_task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EGRESS_PIDS 64u
#define EGRESS_MIB  1024u

int op_net(struct server *s, struct request *r, struct err *e)
{
    const char *id = r->q->u.id.id;
    int fds[NET_SOCK_MAX], n = 0;
    if (!sp_id_ok(id))
        return err_set(e, E_INVALID, "not an id");
    struct box *b = box_find(s, id);
    if (!b || (b->kind != SP_KIND_BOX && b->kind != SP_KIND_VM))
        return err_set(e, E_NOT_FOUND, "no box %s", id);
    if (b->state != BX_ALIVE)
        return err_set(e, b->state == BX_DEAD ? E_GONE : E_CONFLICT, "%s does not run", id);
    if (net_open_socks(&s->net, b->kind == SP_KIND_VM ? NET_VM : NET_BOX, b->pidfd, fds, &n, e))
        return -1;
    struct sp_rep rep = {.u.net = {.n = (uint32_t)n}};
    server_reply(s, r->gen, r->q->seq, &rep, fds, n);
    while (n)
        (void)close(fds[--n]);
    return 0;
}

_Static_assert(NET_SOCK_MAX <= OUT_FDS, "a reply must take all sockets");

/* ---- hutch-egress ------------------------------------------------------------------------------------------------ */

struct egress {
    const char *argv[16], *home;
    char bin[PATH_LEN], uid[16], allow[16];
};

static int body(void *arg, struct err *e)
{
    struct egress *g = arg;
    static const char *const envp[] = {"PATH=/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8", NULL};
    auto_fd null = open("/dev/null", O_RDWR);
    auto_fd out = place_log(g->home, "egress.log", e);
    if (out < 0)
        return err_wrap(e, "hutch-egress");
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        return err_sys(e, errno, "hutch-egress: its log");
    (void)sys_close_range(3, ~0u);
    (void)execve(g->argv[0], (char *const *)(uintptr_t)g->argv, (char *const *)(uintptr_t)envp);
    return err_sys(e, errno, "hutch-egress");
}

static struct box *running(struct server *s)
{
    size_t i = 0;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        struct box *b = m->value;
        if (b->kind == SP_KIND_EGRESS && b->state != BX_DEAD)
            return b;
    }
    return NULL;
}

static int start(struct server *s, struct box *b, struct err *e)
{
    static struct egress g; /* one thread; the child has its own copy */
    static char logs[PATH_LEN];
    int n = 0;
    memset(&g, 0, sizeof g);
    (void)snprintf(g.bin, sizeof g.bin, "%s/hutch-egress", s->bin);
    g.home = s->home;
    (void)snprintf(logs, sizeof logs, "%s/log/egress", s->home);
    (void)snprintf(g.uid, sizeof g.uid, "%u", s->egress_uid);
    (void)snprintf(g.allow, sizeof g.allow, "%u", s->allow_uid);
    if (access(g.bin, X_OK) < 0)
        return err_sys(e, errno, "hutch-egress");
    const char *argv[] = {g.bin, "--run", s->run, "--log", logs, "--share", s->share, "--uid", g.uid, "--allow-uid", g.allow};
    for (unsigned i = 0; i < sizeof argv / sizeof *argv; i++)
        g.argv[n++] = argv[i];
    const char *ca = getenv("SSL_CERT_FILE"); /* the operator's, from the environment the daemon was started in */
    if (ca && *ca == '/' && !access(ca, R_OK)) {
        g.argv[n++] = "--ca-file";
        g.argv[n++] = ca;
    }
    b->limit = (struct cgroup_limit){
        .memory_bytes = (uint64_t)EGRESS_MIB << 20, .pids_max = EGRESS_PIDS, .all_sockets = true};
    if (cgroup_make(&s->cg, b->id, &b->limit, &b->cg, e))
        return -1;
    struct fd_keep keep = {0};
    return task_start(b, &keep, body, &g, e);
}

int op_egress(struct server *s, struct request *r, struct err *e)
{
    const char *id = r->q->u.id.id;
    if (!sp_id_ok(id))
        return err_set(e, E_INVALID, "not an id");
    struct box *b = running(s);
    if (!b) {
        if (!(b = box_new(s, id, SP_KIND_EGRESS, e)))
            return -1;
        if (start(s, b, e)) {
            box_discard(b);
            return -1;
        }
        log_info("hutch-egress started: pid %d", (int)b->pid);
    }
    struct sp_rep rep = {0};
    box_info(b, &rep.u.info);
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}
