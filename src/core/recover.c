/* After a start: bring the stored rows, the spawner's boxes and the files of
 * boxes/ to one truth. A row whose box lives is adopted; a row whose box is
 * gone says so; a box or folder that no row owns is removed. */
#include "base/buf.h"
#include "base/log.h"
#include "core/box.h"
#include "core/internal.h"
#include "spawn/client.h"
#include "store/store.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct recovery {
    struct core *core;
    struct map alive; /* box id -> (void*)1 */
    size_t waiting;   /* adoptions and removals under way */
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void finish(struct recovery *r, const struct err *e)
{
    r->done(r->arg, e);
    map_free(&r->alive);
    free(r);
}

static void one_less(struct recovery *r)
{
    if (!--r->waiting)
        finish(r, NULL);
}

/* ---- adoption ---- */
struct adoption { struct recovery *r; char sandbox[22]; };

static void adopted(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct recovery *r = a->r;
    struct sandbox *sb = map_get(&r->core->sandboxes, a->sandbox);
    free(a);
    if (e) {
        log_warn("sandbox %s: not adopted: %s", sb->id, e->msg);
        sandbox_box_ended(sb, END_HOST_FAULT, "its agent did not answer after the daemon's restart", true);
    } else {
        (void)b;
        sandbox_resumed(sb);
        log_info("sandbox %s: adopted", sb->id);
    }
    one_less(r);
}

static void attached(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct sandbox *sb = map_get(&a->r->core->sandboxes, a->sandbox);
    struct recovery *r = a->r;
    if (e) {
        free(a);
        sb->box = NULL;
        sandbox_lost(sb, END_HOST_FAULT, "its machine ended while the daemon was away");
        one_less(r);
        return;
    }
    sb->box = b;
    b->owner = sb;
    sandbox_configure(sb, adopted, a);
}

static void adopt_rows(struct recovery *r)
{
    struct core *c = r->core;
    struct map_entry *en;
    size_t i = 0;
    while ((en = map_next(&c->sandboxes, &i))) {
        struct sandbox *sb = en->value;
        if (sb->state == SB_GONE || sb->state == SB_FAILED)
            continue;
        bool alive = *sb->box_id && map_get(&r->alive, sb->box_id);
        if (sb->state == SB_RUNNING && alive) {
            struct adoption *a = xcalloc(1, sizeof *a);
            a->r = r;
            memcpy(a->sandbox, sb->id, sizeof a->sandbox);
            struct box_spec spec = {.tier = sb->tier, .cpu_millis = sb->cpu_millis, .memory_mib = sb->memory_mib, .disk_mib = sb->disk_mib};
            memcpy(spec.template_id, sb->template_id, sizeof spec.template_id);
            map_del(&r->alive, sb->box_id);
            r->waiting++;
            box_adopt(c, sb->box_id, &spec, attached, a);
            continue;
        }
        if (sb->state == SB_STOPPING)
            sandbox_lost(sb, END_KILLED, "");
        else
            sandbox_lost(sb, END_HOST_FAULT, "the host or the spawner was restarted, its machine is gone");
    }
}

/* ---- leftovers ---- */
static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("leftover: %s", rep->err.msg);
    one_less(arg);
}

static void remove_id(struct recovery *r, const char *id)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    r->waiting++;
    if (spawn_call(r->core->spawn, &q, NULL, 0, removed, r, &e)) {
        log_warn("leftover %s: %s", id, e.msg);
        r->waiting--;
    }
}

static void remove_leftovers(struct recovery *r)
{
    struct map_entry *en;
    size_t i = 0;
    while ((en = map_next(&r->alive, &i)))
        remove_id(r, en->key);
    int fd = openat(r->core->home_fd, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (struct dirent *de; (de = readdir(d));)
        if (id_ok(str_of(de->d_name)) && !map_get(&r->core->boxes, de->d_name) && !map_get(&r->alive, de->d_name))
            remove_id(r, de->d_name);
    (void)closedir(d);
}

static void page(struct recovery *r, const char *after);

static void listed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct recovery *r = arg;
    if (rep->rc) {
        finish(r, &rep->err);
        return;
    }
    const struct sp_listing *l = &rep->u.listing;
    for (uint32_t i = 0; i < l->n && i < SP_LIST_MAX; i++) {
        if (l->item[i].kind == SP_KIND_EGRESS)
            continue; /* not a sandbox's: core/egress.c finds it */
        if (l->item[i].alive)
            map_set(&r->alive, l->item[i].id, r);
        else
            remove_id(r, l->item[i].id);
    }
    if (l->more && l->n) {
        page(r, l->item[l->n - 1].id);
        return;
    }
    r->waiting++;
    adopt_rows(r);
    remove_leftovers(r);
    one_less(r);
}

static void page(struct recovery *r, const char *after)
{
    struct sp_req q = {.op = SP_LIST};
    struct err e;
    (void)snprintf(q.u.page.after, sizeof q.u.page.after, "%s", after);
    if (spawn_call(r->core->spawn, &q, NULL, 0, listed, r, &e))
        finish(r, &e);
}

void recover_start(struct core *c, void (*done)(void *arg, const struct err *e), void *arg)
{
    struct recovery *r = xcalloc(1, sizeof *r);
    *r = (struct recovery){.core = c, .done = done, .arg = arg};
    page(r, "");
}
