/* SP_BOX_START: a container from nothing. The parent's half of jail/jail.h. */
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SHM_MIN_MIB 16u

static int check(const struct sp_box *q, struct err *e)
{
    if (!sp_id_ok(q->id) || !sp_id_ok(q->template_id))
        return err_set(e, E_INVALID, "not an id");
    if (!memchr(q->hostname, 0, sizeof q->hostname) || (q->hostname[0] && !name_ok(str_of(q->hostname))))
        return err_set(e, E_INVALID, "not a host name");
    if (q->disk_mib < 64 || q->disk_mib > SP_DISK_MAX)
        return err_set(e, E_INVALID, "disk must be 64 to %u MiB", SP_DISK_MAX);
    if (q->inodes && (q->inodes < 1024 || q->inodes > 1u << 28))
        return err_set(e, E_INVALID, "inodes must be at least 1024");
    return sp_limit_ok(&q->limit, e);
}

static void make_boot_id(char out[38])
{
    unsigned char r[16];
    char h[33];
    random_bytes(r, sizeof r);
    r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
    r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
    hex_encode(r, 16, h);
    (void)snprintf(out, 38, "%.8s-%.4s-%.4s-%.4s-%.12s\n", h, h + 8, h + 12, h + 16, h + 20);
}

/* The mounts that need the child's user namespace; -> overlay and /dev, owned. */
static int make_mounts(struct server *s, struct box *b, int userns, int lower_tree, int *ret_root, int *ret_dev, struct err *e)
{
    auto_fd lower = mount_clone(lower_tree, "", false, e);
    if (lower < 0 || mount_idmap(lower, userns, e) || mount_idmap(b->upper, userns, e))
        return -1;
    auto_fd root = mount_overlay(lower, b->upper, box_uid(b), box_uid(b), e);
    if (root < 0)
        return -1;
    auto_fd dev = mount_clone(s->dev_mnt, "", false, e);
    if (dev < 0)
        return -1;
    int looks = mount_idmap(dev, userns, NULL); /* so that owners read "root"; tmpfs cannot before 6.3: then they do not */
    (void)looks;
    if (mount_attr(dev, MATTR_RDONLY | MATTR_NOSUID | MATTR_NOEXEC, false, e))
        return -1;
    *ret_root = take_fd(&root);
    *ret_dev = take_fd(&dev);
    return 0;
}

static int start(struct server *s, struct box *b, const struct sp_box *q, struct err *e)
{
    int lower = disk_template(s, q->template_id, e);
    if (lower < 0)
        return -1;
    int agent = server_program(s, "hutch-agent", &s->agent, s->agent_id, e);
    struct cgroup_limit limit = {(uint64_t)q->limit.memory_mib << 20, q->limit.cpu_millis, q->limit.pids_max, false};
    if (agent < 0 || box_cage(b, &limit, e))
        return -1;
    b->has_dir = !disk_upper_exists(s, b->id); /* a paused one's layer must survive a start that fails */
    b->upper = disk_upper(s, b->id, q->disk_mib, q->inodes, e);
    if (b->upper < 0)
        return -1;
    auto_fd inner = -1, err_end = -1;
    if (box_channel(&b->chan, &inner, e) || box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;

    char boot_id[38], shm[24];
    char *argv[] = {"hutch-agent", "--container", "--fd", "3", NULL};
    char *envp[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", NULL};
    make_boot_id(boot_id);
    (void)snprintf(shm, sizeof shm, "%um", q->limit.memory_mib / 2 > SHM_MIN_MIB ? q->limit.memory_mib / 2 : SHM_MIN_MIB);
    struct jail j = {.kind = JAIL_BOX,
                     .hostname = q->hostname[0] ? q->hostname : "hutch",
                     .boot_id = boot_id,
                     .run_size = "64m",
                     .shm_size = shm,
                     .filter = &s->f_box,
                     .place = {{err_end, 2}, {inner, 3}},
                     .nplace = 2,
                     .exec_fd = agent,
                     .argv = argv,
                     .envp = envp};
    struct jailed child;
    auto_fd userns = -1, root = -1, dev = -1;
    if (box_jail(b, &j, &child, &userns, e) || make_mounts(s, b, userns, lower, &root, &dev, e))
        return -1;
    /* The child goes on meanwhile: a network that is not furnished yet, or never, leads nowhere, and the start is only
     * answered when both are through. */
    int none = -1;
    return jail_go(child.sync, root, dev, -1, e) || net_furnish(&s->net, NET_BOX, child.pidfd, &none, e) ? -1 : 0;
}

int op_box_start(struct server *s, struct request *r, struct err *e)
{
    const struct sp_box *q = &r->q->u.box;
    if (check(q, e))
        return -1;
    struct box *b = box_begin(s, r, q->id, SP_KIND_BOX, e);
    return b ? box_begun(b, start(s, b, q, e)) : -1;
}
