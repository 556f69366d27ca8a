#include "core/catalog/snapshot.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/catalog/catalog_int.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/catalog/template.h"
#include "base/tree.h"
#include "loop/job.h"
#include "store/store.h"
#include "tier/tier.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct map *snapshots(const struct core *c) { return &c->catalog->snapshots; }
struct snapshot *snapshot_at(const struct core *c, const char *id)
{
    return map_get(&c->catalog->snapshots, id);
}

/* ---- sandboxes made of one --------------------------------------------------------------------------------------- */

const char *sandbox_base(const struct sandbox *sb) { return sb->kept.base; }
const char *sandbox_last_snapshot(const struct sandbox *sb) { return sb->kept.last; }

const char *snapshot_tenant(const struct snapshot *s) { return s->tenant ? s->tenant : ""; }

const char *snapshot_step(const struct snapshot *s) { return *s->step ? s->step : NULL; }

void sandbox_stands_on(struct sandbox *sb, const struct snapshot *s)
{
    kept_set(&sb->kept.base, s->id);
    /* a fork's has no place in the tree */
    kept_set(&sb->kept.last, s->deleted ? s->parent : s->id);
}

static int fixed(uint32_t *asked, uint32_t is, const char *what, struct err *e)
{
    if (*asked && *asked != is)
        return err_set(e, E_INVALID, "%s: a snapshot has a fixed size (%u); leave it out", what,
                       is);
    *asked = is;
    return 0;
}

int snapshot_fit(const struct snapshot *s, struct sandbox_spec *spec, struct err *e)
{
    if (s->path)
        return err_set(
            e, E_INVALID,
            "the snapshot is of a directory: create a sandbox, then put it into that (`hutch snapshot put`, POST …/restore)");
    if (spec->tier && spec->tier != s->tier)
        return err_set(e, E_INVALID, "isolation: the snapshot is of a %s", s->tier->name);
    if (fixed(&spec->cpu_millis, s->cpu_millis, "cpu", e) ||
        fixed(&spec->memory_mib, s->memory_mib, "memory_mib", e) ||
        fixed(&spec->disk_mib, s->disk_mib, "disk_mib", e))
        return -1;
    spec->tier = s->tier;
    spec->template = s->template_id;
    return 0;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static void snapshot_free(struct snapshot *s)
{
    free(s->name), free(s->template_name), free(s->path), free(s->tenant);
    kv_free(&s->env), kv_free(&s->dialect), kv_free(&s->volumes);
    free(s);
}

static void use_template(const struct snapshot *s, int by)
{
    struct template *t = s->path || snapshot_step(s) ? NULL : template_at(s->core, s->template_id);
    if (t)
        t->users = (unsigned)((int)t->users + by);
}

/* One order with sandboxes. */
static void stamp(struct core *c, struct snapshot *s)
{
    s->created_ns = clock_wall();
    if (s->created_ns <= c->last_created_ns)
        s->created_ns = c->last_created_ns + 1;
    c->last_created_ns = s->created_ns;
}

struct snapshot *snapshot_add(struct core *c, const struct snapshot *like)
{
    struct snapshot *s = xcalloc(1, sizeof *s);
    *s = *like;
    s->core = c;
    s->making = true;
    s->name = like->name ? xstrdup(like->name) : NULL;
    s->template_name = xstrdup(like->template_name);
    s->path = like->path ? xstrdup(like->path) : NULL;
    s->tenant = like->tenant ? xstrdup(like->tenant) : NULL;
    s->env = s->dialect = s->volumes = (struct kv){0};
    kv_copy(&s->env, &like->env);
    kv_copy(&s->dialect, &like->dialect);
    stamp(c, s);
    map_set(&c->catalog->snapshots, s->id, s);
    use_template(s, 1);
    return s;
}

int snapshot_name_free(struct core *c, const char *tenant, const char *name, struct err *e)
{
    struct map_entry *en;
    if (name && !name_ok(str_of(name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    for (size_t i = 0; name && (en = map_next(snapshots(c), &i));) {
        const struct snapshot *s = en->value;
        if (!s->deleted && ((s->name && !strcmp(s->name, name) &&
                             !strcmp(snapshot_tenant(s), tenant ? tenant : "")) ||
                            !strcmp(s->id, name)))
            return err_why(e, REASON_NAME_TAKEN, E_CONFLICT, "a snapshot named '%s' already exists",
                           name);
    }
    return 0;
}

struct snapshot *snapshot_new(struct sandbox *sb, const struct snapshot_spec *how)
{
    struct core *c = sb->core;
    struct snapshot *s = xcalloc(1, sizeof *s);
    const char *base = sandbox_base(sb), *last = sandbox_last_snapshot(sb);
    s->core = c;
    id_make('s', s->id);
    s->name = how->name ? xstrdup(how->name) : NULL;
    memcpy(s->sandbox, sb->id, sizeof s->sandbox);
    memcpy(s->template_id, sb->template_id, sizeof s->template_id);
    s->template_name = xstrdup(sb->template_name);
    s->path = how->path ? xstrdup(how->path) : NULL;
    if (base && tier_can(sb->tier, TIER_CHAINS) && !s->path)
        (void)snprintf(s->base, sizeof s->base, "%s", base);
    (void)snprintf(s->parent, sizeof s->parent, "%s", last ? last : "");
    s->tier = sb->tier;
    s->memory = !how->files_only;
    s->deleted = how->nameless;
    s->making = true;
    s->cpu_millis = sb->cpu_millis, s->memory_mib = sb->memory_mib, s->disk_mib = sb->disk_mib;
    s->generation = sb->generation;
    stamp(c, s);
    s->expires_ns = how->expires_s ? s->created_ns + (int64_t)how->expires_s * NS_PER_S : 0;
    kv_copy(&s->env, &sb->env);
    kv_copy(&s->dialect, &how->dialect);
    memcpy(s->step, how->step, sizeof s->step);
    s->tenant = sb->kept.tenant ? xstrdup(sb->kept.tenant) : NULL;
    if (s->memory)
        snapshot_note_volumes(s, sb);
    map_set(&c->catalog->snapshots, s->id, s);
    use_template(s, 1);
    return s;
}

void snapshot_forget(struct snapshot *s)
{
    use_template(s, -1);
    map_del(&s->core->catalog->snapshots, s->id);
    snapshot_free(s);
}

struct snapshot *snapshot_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                                   struct err *e)
{
    struct map_entry *en;
    struct pick p = {.who = who};
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        struct snapshot *s = en->value;
        if (s->deleted || s->making || snapshot_step(s))
            continue;
        if (!strcmp(s->id, id_or_name) && caller_sees(who, snapshot_tenant(s)))
            return s;
        if (s->name && !strcmp(s->name, id_or_name))
            pick_add(&p, snapshot_tenant(s), s);
    }
    struct snapshot *hit = pick_get(&p, false);
    if (hit)
        return hit;
    if (pick_several(&p))
        err_why(e, REASON_NAME_TAKEN, E_CONFLICT,
                "several tenants have a snapshot named '%.63s': use its id", id_or_name);
    else
        err_why(e, REASON_NO_SNAPSHOT, E_NOT_FOUND, "snapshot '%.64s' does not exist", id_or_name);
    return NULL;
}

static bool stands_on(const char *base, const struct snapshot *s)
{
    return base && !strcmp(base, s->id);
}

unsigned snapshot_users(const struct snapshot *s)
{
    struct map_entry *en;
    unsigned n = 0;
    for (size_t i = 0; (en = map_next(sandboxes(s->core),
                                      &i));) { /* a container needs it until it has its copy */
        const struct sandbox *sb = en->value;
        n += ((tier_can(s->tier, TIER_CHAINS) ? sb->state != SB_GONE : sb->state == SB_CREATING) &&
              stands_on(sandbox_base(sb), s)) ||
             stands_on(sb->coming_base, s);
    }
    for (size_t i = 0; (en = map_next(snapshots(s->core), &i));)
        n += stands_on(((struct snapshot *)en->value)->base, s);
    return n;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = (*(struct snapshot *const *)a)->created_ns,
            y = (*(struct snapshot *const *)b)->created_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

size_t snapshot_list(struct core *c, const struct snapshot_filter *f, struct snapshot **ret,
                     bool *ret_more, struct err *e)
{
    struct map_entry *en;
    int64_t before = INT64_MAX;
    size_t n = 0;
    if (f->cursor && *f->cursor && (!str_i64(str_of(f->cursor), &before) || before <= 0)) {
        err_set(e, E_INVALID, "cursor: not one that this list returned");
        return SIZE_MAX;
    }
    auto_free struct snapshot **all = xcalloc(snapshots(c)->n + 1, sizeof *all);
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        struct snapshot *s = en->value;
        if (s->deleted || s->making || snapshot_step(s) || s->created_ns >= before ||
            (f->who && !caller_sees(f->who, snapshot_tenant(s))) ||
            (f->sandbox && strcmp(s->sandbox, f->sandbox)) || (f->whole && s->path) ||
            (f->name && (!s->name || strcmp(s->name, f->name))) ||
            (f->match && !f->match(s, f->arg)))
            continue;
        all[n++] = s;
    }
    qsort(all, n, sizeof *all, newest_first);
    *ret_more = n > f->limit;
    n = n > f->limit ? f->limit : n;
    memcpy(ret, all, n * sizeof *all);
    return n;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

struct removal {
    struct core *core;
    char id[22];
    void (*done)(void *arg, const struct err *e);
    void *arg;
    int home;
    int rc;
    struct err err;
};

/* Away in one step, then piece by piece: what is left of it after a crash is not taken for a snapshot. */
static void remove_work(void *arg)
{
    struct removal *r = arg;
    char tmp[32];
    auto_fd dir = openat(r->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(tmp, sizeof tmp, ".%s.gone", r->id);
    if (dir < 0 || (renameat(dir, r->id, dir, tmp) && errno != ENOENT)) {
        r->rc = err_sys(&r->err, errno, "removing a snapshot");
        return;
    }
    fault("forget.moved");
    r->rc = tree_remove(dir, tmp, &r->err);
}

static void remove_done(void *arg)
{
    struct removal r = *(struct removal *)arg;
    free(arg);
    (void)close(r.home);
    fault("forget.removed");
    if (r.rc)
        log_warn("snapshot %s: %s", r.id, r.err.msg);
    if (r.done)
        r.done(r.arg, r.rc ? &r.err : NULL);
    snapshots_collect(r.core); /* what it stood on */
}

static void row_gone(void *arg, const struct err *e)
{
    struct removal *r = arg;
    if (e) {
        r->rc = -1, r->err = *e; /* the row is still there: so must be the files */
        remove_done(r);
        return;
    }
    fault("forget.stored");
    job_run(r->core->jobs, remove_work, remove_done, r);
}

static void snapshot_remove(struct snapshot *s, void (*done)(void *arg, const struct err *e),
                            void *arg)
{
    struct removal *r = xcalloc(1, sizeof *r);
    *r = (struct removal){.core = s->core,
                          .done = done,
                          .arg = arg,
                          .home = fcntl(s->core->home_fd, F_DUPFD_CLOEXEC, 0)};
    memcpy(r->id, s->id, sizeof r->id);
    snapshot_forget(s);
    store_del_snapshot(r->core->store, r->id, row_gone, r);
}

/* It is out of the list; its files wait for what stands on them. */
static void unlisted(void *arg, const struct err *e)
{
    struct removal r = *(struct removal *)arg;
    free(arg);
    fault("forget.unlisted");
    if (r.done)
        r.done(r.arg, e);
}

static void snapshot_unlist(struct snapshot *s, void (*done)(void *arg, const struct err *e),
                            void *arg)
{
    struct removal *r = xcalloc(1, sizeof *r);
    *r = (struct removal){.core = s->core, .done = done, .arg = arg, .home = -1};
    snapshot_store(s, unlisted, r);
}

int snapshot_delete(struct snapshot *s, void (*done)(void *arg, const struct err *e), void *arg,
                    struct err *e)
{
    if (s->making || s->deleted)
        return err_set(e, E_NOT_FOUND, "snapshot '%s' does not exist", s->id);
    s->deleted = true;
    free(s->name);
    s->name = NULL;
    if (!snapshot_step(s))
        event_emit(s->core, "snapshot.deleted", snapshot_tenant(s), s->sandbox, NULL);
    if (snapshot_users(s))
        snapshot_unlist(s, done, arg);
    else
        snapshot_remove(s, done, arg);
    return 0;
}

void snapshots_collect(struct core *c)
{
    struct map_entry *en;
    if (c->stopping && !c->keep)
        return; /* the next start does it */
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        struct snapshot *s = en->value;
        if (!s->deleted || s->making || s->bearing || snapshot_users(s))
            continue;
        snapshot_remove(s, NULL, NULL);
    }
    templates_collect(c);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void arm(struct core *c)
{
    struct map_entry *en;
    int64_t next = 0;
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        const struct snapshot *s = en->value;
        if (!s->deleted && !s->making && s->expires_ns && (!next || s->expires_ns < next))
            next = s->expires_ns;
    }
    timer_stop(&c->catalog->snapshot_expiry);
    if (next)
        timer_arm(&c->catalog->snapshot_expiry, next > clock_wall() ? next - clock_wall() : 0);
}

static void on_expiry(void *arg)
{
    struct core *c = arg;
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        struct snapshot *s = en->value;
        if (s->deleted || s->making || !s->expires_ns || s->expires_ns > clock_wall())
            continue;
        log_info("%s %s has expired", snapshot_step(s) ? "build cache: step" : "snapshot", s->id);
        (void)snapshot_delete(s, NULL, NULL, NULL); /* refused only if it is deleted already */
    }
    arm(c);
}

static bool same_path(const struct snapshot *a, const struct snapshot *b)
{
    return a->path && b->path ? !strcmp(a->path, b->path) : a->path == b->path;
}

void snapshot_made(struct snapshot *s, uint32_t keep_last)
{
    struct core *c = s->core;
    struct snapshot_filter f = {.sandbox = s->sandbox, .limit = snapshots(c)->n};
    bool more;
    uint32_t seen = 0;
    s->making = false;
    auto_free struct snapshot **all = xcalloc(snapshots(c)->n + 1, sizeof *all);
    size_t n = keep_last ? snapshot_list(c, &f, all, &more, NULL) : 0;
    for (size_t i = 0; i < n; i++)
        if (!all[i]->name && same_path(all[i], s) && seen++ >= keep_last)
            (void)snapshot_delete(all[i], NULL, NULL, NULL); /* it is in the list: not refused */
    arm(c);
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

struct loading {
    struct core *core;
    struct kv damaged; /* ids: nobody can use them, but they are not ours to delete */
};

static int load_row(void *arg, const struct snapshot_row *r)
{
    struct loading *l = arg;
    struct core *c = l->core;
    struct err e;
    if (!r->id || !id_ok(str_of(r->id)))
        return 0;
    struct snapshot *s = xcalloc(1, sizeof *s);
    s->core = c;
    memcpy(s->id, r->id, sizeof s->id);
    s->name = r->name ? xstrdup(r->name) : NULL;
    s->created_ns = r->created_wall_ns;
    if (snapshot_from_json(s, r->json ? r->json : "", &e)) {
        log_warn("snapshot %s: its stored row is damaged; ignoring it, its files are kept: %s",
                 r->id, e.msg);
        kv_set(&l->damaged, str_of(r->id), S(""));
        snapshot_free(s);
        return 0;
    }
    if (s->created_ns > c->last_created_ns)
        c->last_created_ns = s->created_ns;
    map_set(&c->catalog->snapshots, s->id, s);
    use_template(s, 1);
    return 0;
}

/* Nothing but what a row names. Blocks: at start. */
static void sweep(struct core *c, int dir, const struct kv *damaged)
{
    struct err e;
    int fd = dup(dir);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *de; d && (de = readdir(d));) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") || snapshot_at(c, de->d_name) ||
            kv_get(damaged, de->d_name))
            continue;
        if (tree_remove(dir, de->d_name, &e))
            log_warn("snapshots: %s", e.msg);
    }
    if (d)
        (void)closedir(d);
}

int snapshots_load(struct core *c, struct err *e)
{
    struct map_entry *en;
    struct loading l = {.core = c};
    timer_init(&c->catalog->snapshot_expiry, c->loop, on_expiry, c);
    auto_fd dir = openat(c->home_fd, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? err_sys(e, errno, "opening snapshots")
                     : store_load_snapshots(c->store, load_row, &l, e);
    if (rc) {
        kv_free(&l.damaged);
        return rc;
    }
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        struct snapshot *s = en->value;
        if (!faccessat(dir, s->id, F_OK, 0))
            continue;
        log_warn("snapshot %s: its files are missing", s->id);
        store_del_snapshot(c->store, s->id, NULL, NULL);
        snapshot_forget(s);
    }
    sweep(c, dir, &l.damaged);
    kv_free(&l.damaged);
    return 0;
}

void snapshots_recover(struct core *c)
{
    snapshots_collect(c);
    arm(c);
}

void snapshots_free(struct core *c)
{
    struct map_entry *en;
    timer_stop(&c->catalog->snapshot_expiry);
    for (size_t i = 0; (en = map_next(snapshots(c), &i));)
        snapshot_free(en->value);
    map_free(&c->catalog->snapshots);
}
