/* SP_ISOLATE_START: an interpreter of a template and its warden, jailed. The
 * root is the template's image itself, read-only; nothing in it can be written
 * by anybody. What hutch adds lies in a small file system of its own at /run:
 * the fork server, the language's driver, and the filter of the calls. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TOOL_MAX (1u << 20) /* bytes of one file there */

static const struct { const char *name, *driver; } languages[SP_LANG_MAX] = {
    [SP_LANG_PYTHON] = {"python", "driver.py"},
    [SP_LANG_JS] = {"js", "driver.js"},
    [SP_LANG_PHP] = {"php", "driver.php"},
    [SP_LANG_RUBY] = {"ruby", "driver.rb"},
};

static int check(const struct sp_isolate *q, struct err *e)
{
    if (!sp_id_ok(q->id) || !sp_id_ok(q->template_id))
        return err_set(e, E_INVALID, "not an id");
    if (q->language >= SP_LANG_MAX || !languages[q->language].name)
        return err_set(e, E_INVALID, "unknown language");
    return sp_limit_ok(&q->limit, e);
}

static int put_file(int dir, const char *name, const void *p, size_t n, struct err *e)
{
    auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || !fd_write_all(fd, p, n))
        return err_sys(e, errno, "isolate: %s", name);
    return 0;
}

static int put_copy(int dir, const char *name, const char *from_dir, const char *from, struct err *e)
{
    char path[PATH_LEN];
    size_t n;
    (void)snprintf(path, sizeof path, "%s/%s", from_dir, from);
    auto_free char *text = fd_slurp_at(AT_FDCWD, path, TOOL_MAX, &n);
    return text ? put_file(dir, name, text, n, e) : err_sys(e, errno, "isolate: %s", from);
}

/* Made anew for every start: it is small, and what is installed now is what runs. */
static int make_tools(struct server *s, enum sp_language lang, struct err *e)
{
    char share[PATH_LEN];
    (void)snprintf(share, sizeof share, "%s/isolate", s->share);
    auto_fd m = mount_tmpfs("4m", "0755", e);
    if (m < 0)
        return -1;
    auto_fd dir = openat(m, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, errno, "isolate: tools");
    if (put_copy(dir, "zygote.so", s->bin, "hutch-zygote.so", e) || put_copy(dir, "driver", share, languages[lang].driver, e) ||
        put_file(dir, "call.bpf", s->f_call.insn, s->f_call.n * sizeof(struct sock_filter), e))
        return -1;
    (void)close(take_fd(&dir));
    if (mount_attr(m, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV, false, e))
        return -1;
    return take_fd(&m);
}

static int start(struct server *s, struct box *b, const struct sp_isolate *q, struct err *e)
{
    int lower = disk_template(s, q->template_id, e);
    if (lower < 0)
        return -1;
    int agent = server_program(s, "hutch-agent", &s->agent, s->agent_id, e);
    struct cgroup_limit limit = {.memory_bytes = (uint64_t)q->limit.memory_mib << 20, .cpu_millis = q->limit.cpu_millis, .pids_max = q->limit.pids_max};
    if (agent < 0 || box_cage(b, &limit, e))
        return -1;
    auto_fd inner = -1, err_end = -1;
    if (box_channel(&b->chan, &inner, e) || box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;
    auto_fd root = shelf_clone(&s->shelf, lower, e);
    auto_fd dev = mount_clone(s->dev_mnt, "", false, e);
    auto_fd tools = make_tools(s, (enum sp_language)q->language, e);
    if (root < 0 || dev < 0 || tools < 0 || mount_attr(root, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV, false, e) ||
        mount_attr(dev, MATTR_RDONLY | MATTR_NOSUID | MATTR_NOEXEC, false, e))
        return -1;

    char *argv[] = {"hutch-agent", "--isolate", (char *)(uintptr_t)languages[q->language].name, "--fd", "3", NULL};
    char *envp[] = {"PATH=/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8", NULL};
    struct jail j = {.kind = JAIL_ISOLATE,
                     .hostname = "isolate",
                     .filter = &s->f_isolate,
                     .place = {{err_end, 2}, {inner, 3}},
                     .nplace = 2,
                     .exec_fd = agent,
                     .argv = argv,
                     .envp = envp};
    struct jailed child;
    return box_jail(b, &j, &child, NULL, e) ? -1 : jail_go(child.sync, root, dev, tools, e);
}

int op_isolate_start(struct server *s, struct request *r, struct err *e)
{
    const struct sp_isolate *q = &r->q->u.isolate;
    if (check(q, e))
        return -1;
    struct box *b = box_begin(s, r, q->id, SP_KIND_ISOLATE, e);
    return b ? box_begun(b, start(s, b, q, e)) : -1;
}
