#include "guest/group.h"
#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIDY_PER_TURN 32

struct name { char s[24]; };
static struct name name_of(uint64_t group)
{
    struct name n;
    (void)snprintf(n.s, sizeof n.s, "%llu", (unsigned long long)group);
    return n;
}

void groups_init(struct agent *a)
{
    list_init(&a->leaving), list_init(&a->stale);
    a->spare_fd = -1;
}

void groups_fini(struct agent *a) { cleanup_fd(&a->spare_fd); }

int group_join(struct agent *a, struct proc *p)
{
    if (a->spare_fd >= 0) {
        p->group = a->spare;
        return p->group_fd = take_fd(&a->spare_fd);
    }
    if (a->cg_user < 0)
        return -1;
    struct name n = name_of(a->groups + 1);
    if (mkdirat(a->cg_user, n.s, 0755))
        return -1;
    p->group = ++a->groups;
    return p->group_fd = openat(a->cg_user, n.s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool empty(const struct proc *p)
{
    char buf[128];
    auto_fd fd = openat(p->group_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
    if (n < 0)
        return false;
    buf[n] = 0;
    return strstr(buf, "populated 0");
}

/* false: somebody is still in it */
static bool part(struct agent *a, struct proc *p)
{
    if (a->spare_fd < 0 && p->group_fd >= 0 && !p->group_spent && empty(p)) {
        a->spare = p->group;
        a->spare_fd = take_fd(&p->group_fd);
    } else if (unlinkat(a->cg_user, name_of(p->group).s, AT_REMOVEDIR) && errno != ENOENT) {
        return false;
    }
    cleanup_fd(&p->group_fd);
    p->group_fd = -1;
    p->group = 0;
    return true;
}

void group_leave(struct agent *a, struct proc *p)
{
    if (p->group)
        list_add_tail(&a->leaving, &p->parting);
}

void group_drop(struct agent *a, struct proc *p)
{
    list_del(&p->parting);
    if (p->group && !part(a, p)) { /* nobody will know its name any more; it stays as long as the machine */
        cleanup_fd(&p->group_fd);
        p->group_fd = -1;
    }
}

bool group_kill(struct proc *p)
{
    if (!p->group)
        return false;
    p->group_spent = true;
    auto_fd fd = openat(p->group_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1;
}

void groups_tidy(struct agent *a)
{
    for (int i = 0; i < TIDY_PER_TURN && !list_empty(&a->leaving); i++) {
        struct proc *p = container_of(a->leaving.next, struct proc, parting);
        list_del(&p->parting);
        if (!part(a, p))
            list_add_tail(&a->stale, &p->parting);
    }
}

void groups_retry(struct agent *a)
{
    struct proc *p;
    list_each(p, &a->stale, parting) {
        list_del(&p->parting);
        list_add_tail(&a->leaving, &p->parting);
    }
}
