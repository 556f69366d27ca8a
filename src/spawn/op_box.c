/* SP_BOX_START: a jail (server_ready.c) becomes a container. */
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

int box_check(const struct sp_box *q, struct err *e)
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

static void make_boot_id(char out[40])
{
    unsigned char r[16];
    char h[33];
    random_bytes(r, sizeof r);
    r[6] = (unsigned char)((r[6] & 0x0f) | 0x40);
    r[8] = (unsigned char)((r[8] & 0x3f) | 0x80);
    hex_encode(r, 16, h);
    (void)snprintf(out, 40, "%.8s-%.4s-%.4s-%.4s-%.12s\n", h, h + 8, h + 12, h + 16, h + 20);
}

uint32_t box_shm_mib(const struct sp_limit *l) { return l->memory_mib / 2 > SHM_MIN_MIB ? l->memory_mib / 2 : SHM_MIN_MIB; }

int box_disk(struct box *b, const struct sp_box *q, struct err *e)
{
    b->has_dir = !disk_upper_exists(b->srv, b->id); /* a paused one's layer must survive a start that fails */
    b->upper = disk_upper(b->srv, b->id, q->disk_mib, q->inodes, e);
    return b->upper < 0 ? -1 : 0;
}

int box_root(struct box *b, int userns, int template, int *ret_lower, struct err *e)
{
    const struct shelf *shelf = &b->srv->shelf;
    int lower = *ret_lower = shelf_clone(shelf, template, e);
    if (lower < 0 || mount_idmap(lower, userns, e) || mount_idmap(b->upper, userns, e))
        return -1;
    return shelf_overlay(shelf, lower, b->upper, box_uid(b), box_uid(b), e);
}

static int start(struct server *s, struct box *b, const struct sp_box *q, struct err *e)
{
    int template = disk_template(s, q->template_id, e);
    if (template < 0)
        return -1;
    int agent = server_program(s, "hutch-agent", &s->agent, s->agent_id, e);
    struct jailed child;
    auto_fd userns = -1, inner = -1, err_end = -1, lower = -1;
    if (agent < 0 || ready_take(b, &child, &userns, e))
        return -1;
    b->limit = (struct cgroup_limit){.memory_bytes = (uint64_t)q->limit.memory_mib << 20, .cpu_millis = q->limit.cpu_millis, .pids_max = q->limit.pids_max};
    if (cgroup_finish(&s->cg, b->id, &b->limit, &b->cg, e))
        return -1;
    if (box_disk(b, q, e) || box_channel(&b->chan, &inner, e) || box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;
    auto_fd root = box_root(b, userns, template, &lower, e);
    if (root < 0)
        return -1;
    struct jail_box box = {0};
    (void)snprintf(box.hostname, sizeof box.hostname, "%s", q->hostname[0] ? q->hostname : "hutch");
    make_boot_id(box.boot_id);
    (void)snprintf(box.shm_size, sizeof box.shm_size, "%um", box_shm_mib(&q->limit));
    return jail_box_go(child.sync, &box, (const int[]){[JAIL_BOX_ROOT] = root, [JAIL_BOX_EXEC] = agent, [JAIL_BOX_STDERR] = err_end, [JAIL_BOX_CHANNEL] = inner}, e);
}

int op_box_start(struct server *s, struct request *r, struct err *e)
{
    const struct sp_box *q = &r->q->u.box;
    if (box_check(q, e))
        return -1;
    struct box *b = box_begin(s, r, q->id, SP_KIND_BOX, e);
    return b ? box_begun(b, start(s, b, q, e)) : -1;
}
