/* After a start: bring the stored rows, the spawner's boxes and the files of
 * boxes/ to one truth. A row whose box lives is adopted; a row whose box is
 * gone says so; a box or folder that no row owns is removed. */
#include "tier/machine.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/box/box.h"
#include "core/core.h"
#include "core/life/life_int.h"
#include "spawn/client.h"
#include "store/store.h"
#include "core/catalog/template.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct recovery {
    struct core *core;
    struct map alive; /* box id -> (void*)1 */
    struct map kept;  /* likewise: files of paused ones */
    size_t waiting;   /* adoptions and removals under way */
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void finish(struct recovery *r, const struct err *e)
{
    r->done(r->arg, e);
    map_free(&r->alive);
    map_free(&r->kept);
    free(r);
}

static void one_less(struct recovery *r)
{
    if (!--r->waiting)
        finish(r, NULL);
}

static void release_id(struct recovery *r, const char *id);

/* ---- adoption ---- */
struct adoption { struct recovery *r; char sandbox[22]; };

static void adopted(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct recovery *r = a->r;
    struct sandbox *sb = sandbox_at(r->core, a->sandbox);
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

static void thawed(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct sandbox *sb = sandbox_at(a->r->core, a->sandbox);
    if (e)
        adopted(a, b, e);
    else
        sandbox_configure(sb, adopted, a);
}

static void attached(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct sandbox *sb = sandbox_at(a->r->core, a->sandbox);
    struct recovery *r = a->r;
    if (e) {
        free(a);
        sb->box = NULL;
        sandbox_lost(sb, END_HOST_FAULT, "its machine ended while the daemon was not running");
        one_less(r);
        return;
    }
    sb->box = b;
    b->owner = sb;
    if (tier_can(sb->tier, TIER_FREEZER)) /* it may have been on its way into standby, and the row may not know it yet */
        box_hold(b, false, thawed, a);
    else
        sandbox_configure(sb, adopted, a);
}

static void take_over(struct recovery *r, struct sandbox *sb, box_cb *then)
{
    struct adoption *a = xcalloc(1, sizeof *a);
    a->r = r;
    memcpy(a->sandbox, sb->id, sizeof a->sandbox);
    struct box_spec spec = sandbox_box_spec(sb);
    map_del(&r->alive, sb->box_id);
    r->waiting++;
    saved_drop(&r->core->tiers, sb->tier, sb->box_id);
    box_adopt(r->core, sb->box_id, &spec, then, a);
}

static void adopt(struct recovery *r, struct sandbox *sb)
{
    sb->state = SB_RUNNING; /* a pause that was under way did not happen: adoption thaws it */
    sb->life.paused = PAUSE_NONE;
    take_over(r, sb, attached);
}

/* Its machine is not there. Was it saved under the row's generation? Then the pause (or a resume that was never written
 * down) counts; anything else that lies there is of an earlier time. */
static bool is_saved(struct core *c, const struct sandbox *sb, struct saved *ret)
{
    struct err e;
    if (!tier_can(sb->tier, TIER_MEMORY) || !*sb->box_id)
        return false;
    if (saved_read(&c->tiers, sb->tier, sb->box_id, ret, &e)) {
        if (e.code != E_NOT_FOUND)
            log_warn("sandbox %s: %s", sb->id, e.msg);
        return e.code == E_CONFLICT && ret->generation == sb->generation; /* there, but of another emulator: it says so when resumed */
    }
    return ret->generation == sb->generation;
}

/* Its machine stands still, as the row says: taken over, not woken. If it was being woken, and nobody was told yet, it is stopped. */
static void standing(struct adoption *a, const struct err *e)
{
    struct adoption x = *a;
    struct sandbox *sb = sandbox_at(x.r->core, x.sandbox);
    free(a);
    if (e)
        sandbox_box_ended(sb, END_HOST_FAULT, "it was in standby and cannot be frozen again", true);
    else
        log_info("sandbox %s: in standby", sb->id);
    one_less(x.r);
}
static void standing_container(void *arg, struct box *b, const struct err *e)
{
    (void)b;
    standing(arg, e);
}
static void standing_vm(void *arg, struct machine *m, const struct err *e)
{
    struct adoption *a = arg;
    struct sandbox *sb = sandbox_at(a->r->core, a->sandbox);
    (void)m;
    if (sb->box)
        sb->box->restored = false; /* it has to be told to go on */
    standing(a, e);
}

static void standby_attached(void *arg, struct box *b, const struct err *e)
{
    struct adoption *a = arg;
    struct sandbox *sb = sandbox_at(a->r->core, a->sandbox);
    if (e) {
        struct recovery *r = a->r;
        free(a);
        sandbox_lost(sb, END_HOST_FAULT, "its machine ended while the daemon was not running");
        one_less(r);
        return;
    }
    sb->box = b;
    b->owner = sb;
    template_use(sb, 1);
    if (tier_can(sb->tier, TIER_FREEZER))
        box_hold(b, true, standing_container, a);
    else
        machine_hold(b->machine, true, standing_vm, a);
}

static void keep_paused(struct recovery *r, struct sandbox *sb)
{
    if (map_del(&r->alive, sb->box_id))
        release_id(r, sb->box_id); /* of a resume that was never written down, or of a pause that was not yet over */
    map_set(&r->kept, sb->box_id, r);
    template_use(sb, 1);
    log_info("sandbox %s: paused", sb->id);
}

static void settle_row(struct recovery *r, struct sandbox *sb)
{
    struct saved saved = {0};
    bool alive = *sb->box_id && map_get(&r->alive, sb->box_id), up = sb->state == SB_RUNNING || sb->state == SB_PAUSING;
    if (sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK) {
        keep_paused(r, sb);
    } else if (sb->state == SB_PAUSED && alive) {
        take_over(r, sb, standby_attached);
    } else if (up && alive) {
        adopt(r, sb);
    } else if ((up || sb->state == SB_PAUSED) && is_saved(r->core, sb, &saved)) {
        sb->state = SB_PAUSED;
        sb->life.paused = PAUSE_DISK;
        sb->life.memory = saved.memory;
        sb->life.bytes = saved.bytes;
        sb->life.paused_ns = saved.at_wall_ns;
        sandbox_store(sb, NULL, NULL);
        keep_paused(r, sb);
    } else if (sb->state == SB_PAUSING && !tier_can(sb->tier, TIER_MEMORY) && sb->life.paused == PAUSE_DISK && sandbox_has_files(sb)) {
        sb->state = SB_PAUSED; /* it was to be stopped, and it is */
        sb->life.paused_ns = clock_wall();
        sandbox_store(sb, NULL, NULL);
        keep_paused(r, sb);
    } else if (sb->state == SB_STOPPING) {
        sandbox_lost(sb, END_KILLED, "");
    } else {
        sandbox_lost(sb, END_HOST_FAULT, "the host or hutch-spawn was restarted, so its machine is gone");
    }
}

/* The disk of one that failed waits for somebody to recover it. */
static void keep_failed(struct recovery *r, struct sandbox *sb)
{
    if (!sb->life.kept || !sandbox_has_files(sb)) {
        sb->life.kept = false;
        return;
    }
    map_set(&r->kept, sb->box_id, r);
    template_use(sb, 1);
}

static void adopt_rows(struct recovery *r)
{
    struct map_entry *en;
    size_t i = 0;
    while ((en = map_next(sandboxes(r->core), &i))) {
        struct sandbox *sb = en->value;
        if (sb->state != SB_GONE && sb->state != SB_FAILED)
            settle_row(r, sb);
        if (sb->state == SB_FAILED)
            keep_failed(r, sb);
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

static void end_id(struct recovery *r, const char *id, uint32_t op)
{
    struct sp_req q = {.op = op};
    struct err e;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    r->waiting++;
    if (spawn_call(r->core->spawn, &q, NULL, 0, removed, r, &e)) {
        log_warn("leftover %s: %s", id, e.msg);
        r->waiting--;
    }
}
static void remove_id(struct recovery *r, const char *id) { end_id(r, id, SP_REMOVE); }
static void release_id(struct recovery *r, const char *id) { end_id(r, id, SP_RELEASE); }

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
        if (id_ok(str_of(de->d_name)) && !box_at(r->core, de->d_name) && !map_get(&r->alive, de->d_name) && !map_get(&r->kept, de->d_name))
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
            continue; /* not a sandbox's: core/network/egress.c finds it */
        if (l->item[i].alive)
            map_set(&r->alive, l->item[i].id, r);
        else
            release_id(r, l->item[i].id); /* its files are looked at with those of the others */
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

static void swept(void *arg, const struct err *e) { (void)arg, (void)e; }

/* A new spawner holds nothing, so whatever is in boxes/ is a paused or failed sandbox's, or nobody's. */
void recover_sweep(struct core *c)
{
    struct recovery *r = xcalloc(1, sizeof *r);
    struct map_entry *en;
    *r = (struct recovery){.core = c, .done = swept, .waiting = 1};
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));) {
        struct sandbox *sb = en->value;
        if (sb->state != SB_GONE && *sb->box_id)
            map_set(&r->kept, sb->box_id, r);
    }
    remove_leftovers(r);
    one_less(r);
}
