/* Requests that are answered at once from what the spawner knows. */
#include "base/cleanup.h"
#include "base/log.h"
#include "jail/cgroup.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int sp_limit_ok(const struct sp_limit *l, struct err *e)
{
    if (l->memory_mib < SP_MEM_MIN || l->memory_mib > SP_MEM_MAX)
        return err_set(e, E_INVALID, "memory must be %u to %u MiB", SP_MEM_MIN, SP_MEM_MAX);
    if (!l->cpu_millis || l->cpu_millis < 10 || l->cpu_millis > SP_CPU_MAX * 1000)
        return err_set(e, E_INVALID, "cpu must be 10 to %u thousandths of a core", SP_CPU_MAX * 1000);
    if (l->pids_max < 8 || l->pids_max > 1u << 20)
        return err_set(e, E_INVALID, "pids must be 8 to %u", 1u << 20);
    return 0;
}

static int hello(struct server *s, struct request *r)
{
    struct sp_rep rep = {.u.hello = {.version = SP_VERSION, .cgroup = s->cg.version == 1 ? SP_CG_V1 : SP_CG_V2, .uid_base = s->uid_base}};
    if (s->cg.v2 >= 0)
        rep.u.hello.features |= SP_FEAT_CGROUP2_KILL;
    if (!access("/dev/kvm", F_OK))
        rep.u.hello.features |= SP_FEAT_KVM_NODE;
    struct err why;
    bool bad = shelf_try(&s->shelf, &why);
    rep.u.hello.features |= bad ? SP_FEAT_MOUNTS_BAD : SP_FEAT_MOUNTS_OK;
    if (s->shelf.ns >= 0)
        rep.u.hello.features |= SP_FEAT_SHELF;
    (void)snprintf(rep.u.hello.note, sizeof rep.u.hello.note, "%s", bad ? why.msg : s->note);
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}

static int by_id(const void *a, const void *b) { return strcmp(((const struct sp_info *)a)->id, ((const struct sp_info *)b)->id); }

static int list(struct server *s, struct request *r, struct err *e)
{
    const char *after = r->q->u.page.after;
    if (!memchr(after, 0, SP_ID))
        return err_set(e, E_INVALID, "page: not terminated");
    struct sp_rep rep = {0};
    struct sp_listing *l = &rep.u.listing;
    size_t i = 0;
    /* the SP_LIST_MAX smallest ids after `after`: a full table is sorted down each time it overflows by one */
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        struct sp_info info;
        const struct box *b = m->value;
        if (strcmp(m->key, after) <= 0 || b->files_leaving)
            continue;
        box_info(b, &info);
        if (l->n < SP_LIST_MAX) {
            l->item[l->n++] = info;
            if (l->n == SP_LIST_MAX)
                qsort(l->item, l->n, sizeof *l->item, by_id);
            continue;
        }
        l->more = 1;
        if (strcmp(info.id, l->item[l->n - 1].id) < 0) {
            l->item[l->n - 1] = info;
            qsort(l->item, l->n, sizeof *l->item, by_id);
        }
    }
    if (l->n < SP_LIST_MAX)
        qsort(l->item, l->n, sizeof *l->item, by_id);
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}

static int attach(struct server *s, struct request *r, struct box *b, struct err *e)
{
    struct sp_rep rep = {0};
    int fds[3];
    if (b->state == BX_DEAD) {
        rep.rc = -1;
        (void)err_set(&rep.err, E_GONE, "%s ended with %s %d", b->id, b->exit.signaled ? "signal" : "status", b->exit.code);
        rep.u.exit = b->exit;
        server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
        return 0;
    }
    if (b->state == BX_STARTING)
        return err_set(e, E_CONFLICT, "%s is still starting", b->id);
    box_info(b, &rep.u.info);
    server_reply(s, r->gen, r->q->seq, &rep, fds, b->kind == SP_KIND_BOX || b->kind == SP_KIND_VM || b->kind == SP_KIND_ISOLATE ? box_fds(b, fds) : 0);
    return 0;
}

static int stat_box(struct server *s, struct request *r, struct box *b)
{
    struct sp_rep rep = {0};
    struct cgroup_usage u = b->last;
    if (b->state != BX_DEAD)
        cgroup_usage(&s->cg, &b->cg, &u);
    rep.u.stat = (struct sp_stat){.cpu_ns = u.cpu_ns, .mem_bytes = u.mem_bytes, .mem_cache = u.mem_cache, .mem_peak = u.mem_peak,
                                  .oom_kills = u.oom_kills, .nproc = u.nproc};
    struct statvfs v;
    struct stat st;
    if (b->upper >= 0 && !fstatvfs(b->upper, &v)) {
        rep.u.stat.disk_bytes = (uint64_t)v.f_blocks * v.f_frsize;
        rep.u.stat.disk_used = (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
    }
    if (b->disk >= 0 && !fstat(b->disk, &st)) {
        rep.u.stat.disk_used = (uint64_t)st.st_blocks * 512;
        rep.u.stat.disk_bytes = (uint64_t)st.st_size;
    }
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}

/* What the files in a directory take; one level below it too (saved/). */
static uint64_t dir_bytes(int fd, int depth)
{
    uint64_t n = 0;
    struct stat st;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *de; d && (de = readdir(d));) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") || fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        n += S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * 512 : 0;
        if (S_ISDIR(st.st_mode) && depth)
            n += dir_bytes(openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), depth - 1);
    }
    if (d)
        (void)closedir(d);
    else if (fd >= 0)
        (void)close(fd);
    return n;
}

static int stat_released(struct server *s, struct request *r, struct err *e)
{
    struct sp_rep rep = {0};
    int fd = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "boxes/%s", r->q->u.id.id);
    if (fd < 0)
        return err_set(e, E_NOT_FOUND, "no box %s", r->q->u.id.id);
    rep.u.stat.disk_used = dir_bytes(fd, 1);
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}

static int limits(struct server *s, struct request *r, struct box *b, struct err *e)
{
    const struct sp_limits *q = &r->q->u.limits;
    if (sp_limit_ok(&q->limit, e))
        return -1;
    struct cgroup_limit l = b->limit;
    uint64_t extra = b->kind == SP_KIND_VM ? SP_VM_OVERHEAD_MIB
                     : b->gvisor           ? SP_GVISOR_OVERHEAD_MIB
                                           : 0;
    l.memory_bytes = (q->limit.memory_mib + extra) << 20;
    l.cpu_millis = q->limit.cpu_millis;
    l.pids_max = b->kind == SP_KIND_VM ? b->limit.pids_max : q->limit.pids_max;
    if (q->raise_priority)
        l.low_priority = false;
    if (cgroup_set(&s->cg, &b->cg, &l, e))
        return -1;
    b->limit = l;
    server_ok(s, r->gen, r->q->seq);
    return 0;
}

static int console(struct server *s, struct request *r, struct box *b, struct err *e)
{
    struct sp_rep rep = {0};
    auto_fd fd = console_open(b, e);
    if (fd < 0)
        return -1;
    box_info(b, &rep.u.info);
    server_reply(s, r->gen, r->q->seq, &rep, &fd, 1);
    return 0;
}

static int on_box(struct server *s, struct request *r, struct err *e)
{
    const char *id = r->q->u.id.id; /* every one of these requests begins with it */
    if (!sp_id_ok(id))
        return err_set(e, E_INVALID, "not an id");
    struct box *b = box_find(s, id);
    if (r->q->op == SP_REMOVE && !b) {
        (void)box_remove_dir(s, id); /* logged there */
        server_ok(s, r->gen, r->q->seq);
        return 0;
    }
    if (r->q->op == SP_RELEASE && !b) {
        server_ok(s, r->gen, r->q->seq);
        return 0;
    }
    if (r->q->op == SP_STAT && !b)
        return stat_released(s, r, e);
    if (!b || (b->files_leaving && r->q->op != SP_REMOVE))
        return err_set(e, E_NOT_FOUND, "no box %s", id);
    switch (r->q->op) {
    case SP_ATTACH:
        return attach(s, r, b, e);
    case SP_STAT:
        return stat_box(s, r, b);
    case SP_CONSOLE:
        return console(s, r, b, e);
    case SP_REMOVE:
    case SP_RELEASE:
        box_remove(b, r->q->op == SP_RELEASE, r->gen, r->q->seq);
        return 0;
    case SP_KILL:
        box_kill(b);
        break;
    default:
        if (b->state == BX_DEAD)
            return err_set(e, E_GONE, "%s has ended", id);
        if (r->q->op == SP_LIMITS)
            return limits(s, r, b, e);
        if (cgroup_freeze(&b->cg, r->q->op == SP_FREEZE, e))
            return -1;
    }
    server_ok(s, r->gen, r->q->seq);
    return 0;
}

int op_control(struct server *s, struct request *r, struct err *e)
{
    switch (r->q->op) {
    case SP_HELLO:
        return hello(s, r);
    case SP_LIST:
        return list(s, r, e);
    case SP_ATTACH:
    case SP_STAT:
    case SP_CONSOLE:
    case SP_REMOVE:
    case SP_RELEASE:
    case SP_KILL:
    case SP_FREEZE:
    case SP_THAW:
    case SP_LIMITS:
        return on_box(s, r, e);
    case SP_TEMPLATE_DROP:
        if (!sp_id_ok(r->q->u.id.id))
            return err_set(e, E_INVALID, "not an id");
        disk_template_drop(s, r->q->u.id.id);
        server_ok(s, r->gen, r->q->seq);
        return 0;
    case SP_SHUTDOWN:
        server_unlisten(s); /* first: whoever starts next must not mistake us for one that stays */
        server_ok(s, r->gen, r->q->seq);
        s->stop = true;
        return 0;
    default:
        return err_set(e, E_UNSUPPORTED, "unknown request %u", r->q->op);
    }
}
