/* What the starts of all jailed processes have in common. An op begins a box,
 * fills it (ids and control group, channels, log pipe), lets it be born in its
 * jail and says how that went; whatever failed on the way, box_begun() leaves
 * nothing behind. */
#include "jail/ns.h"
#include "spawn/server.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct box *box_begin(struct server *s, const struct request *r, const char *id, enum sp_kind kind, struct err *e)
{
    struct box *b = box_new(s, id, kind, e);
    if (b) {
        b->start_seq = r->q->seq;
        b->start_gen = r->gen;
    }
    return b;
}

int box_begun(struct box *b, int rc)
{
    if (!rc)
        return 0;
    b->start_seq = 0; /* the caller answers with the error */
    box_discard(b);
    return -1;
}

int box_cage(struct box *b, const struct cgroup_limit *limit, struct err *e)
{
    b->limit = *limit;
    return box_take_slot(b, e) || cgroup_make(&b->srv->cg, b->id, &b->limit, &b->cg, e) ? -1 : 0;
}

int box_channel(int *ret_ours, int *ret_inner, struct err *e)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "channel");
    *ret_ours = sv[0];
    *ret_inner = sv[1];
    return 0;
}

int box_jail(struct box *b, struct jail *j, struct jailed *ret, int *ret_userns, struct err *e)
{
    j->attach_at = b->srv->attach_at;
    j->cgroup2 = b->cg.v2;
    j->owner = box_uid(b);
    if ((j->njoin = cgroup_join_fds(&b->cg, j->join, e)) < 0)
        return -1;
    int rc = jail_spawn(j, ret, e);
    for (int i = 0; i < j->njoin; i++)
        (void)close(j->join[i]);
    if (rc)
        return -1;
    box_started(b, ret);
    return ns_map_ids(ret->pid, jail_first_id(j->kind), j->owner, jail_id_count(j->kind), ret_userns, NULL, e);
}
