#include "core/catalog/template.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/box/box.h"
#include "core/catalog/catalog_int.h"
#include "core/host/event.h"
#include "core/host/rights.h"
#include "core/catalog/language.h"
#include "base/tree.h"
#include "image/manifest.h"
#include "spawn/client.h"
#include "core/sandbox/object.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KERNELS_MIB 256 /* a sandbox with less starts kernels when they are wanted */

void template_free(struct template *t)
{
    if (!t)
        return;
    free(t->name), free(t->tenant), free(t->source), free(t->parent), free(t->user),
        free(t->workdir), free(t->start), free(t->ready), free(t->content_key);
    kv_free(&t->env);
    free(t);
}

void catalog_init(struct core *c)
{
    c->catalog = xcalloc(1, sizeof *c->catalog);
    c->catalog->templates_fd = -1;
}
void catalog_free(struct core *c)
{
    free(c->catalog);
    c->catalog = NULL;
}
const struct map *templates(const struct core *c) { return &c->catalog->templates; }
struct template *template_at(const struct core *c, const char *id)
{
    return map_get(&c->catalog->templates, id);
}
void template_enter(struct core *c, struct template *t)
{
    map_set(&c->catalog->templates, t->id, t);
}
int templates_fd(const struct core *c) { return c->catalog->templates_fd; }

/* One that came in a pack has no name and nobody starts from it but through its snapshot. */
static bool usable(const struct caller *who, const struct template *t)
{
    return caller_sees(who, t->tenant) || (!*t->tenant && !t->packed && who->role >= ROLE_VIEWER);
}

struct template *template_find_for(struct core *c, const struct caller *who, const char *name_or_id,
                                   struct err *e)
{
    struct template *t = template_at(c, name_or_id), *it;
    struct pick p = {.who = who};
    struct map_entry *en;
    if (t && !usable(who, t))
        t = NULL;
    for (size_t i = 0; !t && (en = map_next(templates(c), &i));) {
        it = en->value;
        if (!strcmp(it->name, name_or_id) && !it->retired && !it->building && usable(who, it))
            pick_add(&p, it->tenant, it);
    }
    if (!t)
        t = pick_get(&p, true);
    if (!t && pick_several(&p))
        err_why(e, REASON_NAME_TAKEN, E_CONFLICT,
                "several tenants have a template named '%.63s': use its id", name_or_id);
    else if (!t)
        err_why(e, REASON_NO_TEMPLATE, E_NOT_FOUND, "template '%.64s' does not exist", name_or_id);
    return t;
}

struct template *template_named(struct core *c, const char *tenant, const char *name)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(templates(c), &i));) {
        struct template *t = en->value;
        if (!strcmp(t->name, name) && !strcmp(t->tenant, tenant) && !t->retired && !t->building)
            return t;
    }
    return NULL;
}

struct template *template_find(struct core *c, const char *name_or_id, struct err *e)
{
    struct template *t = template_at(c, name_or_id);
    if (!t)
        t = template_named(c, "", name_or_id);
    if (!t)
        err_why(e, REASON_NO_TEMPLATE, E_NOT_FOUND, "template '%.64s' does not exist", name_or_id);
    return t;
}

unsigned template_kernels(const struct template *t, uint32_t memory_mib)
{
    return t && memory_mib >= KERNELS_MIB ? t->kernels : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct template *const *)a)->name, (*(struct template *const *)b)->name);
}

size_t template_list(struct core *c, const struct caller *who, struct template **ret, size_t max)
{
    struct map_entry *en;
    size_t n = 0;
    for (size_t i = 0; n < max && (en = map_next(templates(c), &i));) {
        struct template *t = en->value;
        if (!t->retired && !t->building && usable(who, t))
            ret[n++] = t;
    }
    qsort(ret, n, sizeof *ret, by_name);
    return n;
}

/* Unpublished by a rename, so that a crash half-way leaves only what the next start sweeps. Worker. */
int template_unlink(struct core *c, const char *id, struct err *e)
{
    char tmp[32];
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", id);
    if (renameat(c->catalog->templates_fd, id, c->catalog->templates_fd, tmp) && errno != ENOENT)
        return err_sys(e, errno, "removing the template");
    return tree_remove(c->catalog->templates_fd, tmp, e);
}

/* ---- removal: what was made of it first, then the spawner's mount, then the files ---- */
struct removal {
    struct core *core;
    char id[22];
    void (*done)(void *arg, const struct err *e);
    void *arg;
    struct err err;
    bool failed;
};

static void remove_end(void *arg)
{
    struct removal *r = arg;
    if (r->done)
        r->done(r->arg, r->failed ? &r->err : NULL);
    free(r);
}
static void remove_files(void *arg)
{
    struct removal *r = arg;
    r->failed = template_unlink(r->core, r->id, &r->err) != 0;
}
static void mount_dropped(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    struct removal *r = arg;
    if (rep->rc)
        log_warn("template %s: %s", r->id, rep->err.msg);
    job_run(r->core->jobs, remove_files, remove_end, r);
}
static void users_dropped(void *arg)
{
    struct removal *r = arg;
    struct sp_req q = {.op = SP_TEMPLATE_DROP};
    struct err e;
    memcpy(q.u.id.id, r->id, sizeof r->id);
    if (spawn_call(r->core->spawn, &q, NULL, 0, mount_dropped, r, &e))
        job_run(r->core->jobs, remove_files, remove_end, r);
}

int template_remove(struct core *c, struct template *t,
                    void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
    if (t->building)
        return err_set(e, E_CONFLICT,
                       "template '%s' is still being built; cancel its build instead", t->name);
    if (t->users)
        return err_why(e, REASON_TEMPLATE_USED, E_CONFLICT,
                       "template '%s' is in use by %u sandbox(es)", t->name, t->users);
    struct removal *r = xcalloc(1, sizeof *r);
    *r = (struct removal){.core = c, .done = done, .arg = arg};
    memcpy(r->id, t->id, sizeof r->id);
    map_del(&c->catalog->templates, t->id);
    event_emit(c, "template.removed", t->tenant, NULL, NULL);
    c->on->template_gone(c, r->id, users_dropped, r);
    template_free(t);
    return 0;
}

void template_use(struct sandbox *sb, int by)
{
    struct template *t = template_at(sb->core, sb->template_id);
    if (!t || sb->uses_template == (by > 0))
        return;
    sb->uses_template = by > 0;
    t->users = (unsigned)((int)t->users + by);
}

/* ---- the catalogue on disk ---- */
static char *text_or_null(const char *s) { return s && *s ? xstrdup(s) : NULL; }

static struct template *from_manifest(const struct manifest *m)
{
    struct template *t = xcalloc(1, sizeof *t);
    memcpy(t->id, m->id, sizeof t->id);
    t->name = xstrdup(m->name);
    t->tenant = xstrdup(m->tenant ? m->tenant : "");
    t->created_ns = clock_parse_rfc3339(m->created);
    t->source = xstrdup(manifest_source_name(m->source));
    t->parent = text_or_null(m->parent);
    t->size_bytes = m->size_bytes;
    t->disk_min_mib = m->disk_min_mib;
    t->user = text_or_null(m->user), t->workdir = text_or_null(m->workdir);
    t->start = text_or_null(m->start), t->ready = text_or_null(m->ready);
    t->content_key = text_or_null(m->content_key);
    t->packed = t->retired = m->source == MANIFEST_PACK;
    struct err e;
    if (kernels_parse(m->kernels, &t->kernels, &e))
        log_warn("template %s: %s", t->id, e.msg);
    for (size_t i = 0; i < m->nenv; i++) {
        const char *eq = strchr(m->env[i], '=');
        if (eq)
            kv_set(&t->env, (struct str){m->env[i], (size_t)(eq - m->env[i])}, str_of(eq + 1));
    }
    t->warm_container = true;
    return t;
}

static int load_one(void *arg, const char *tid, const struct manifest *m, const struct err *why)
{
    struct core *c = arg;
    if (!m) {
        log_warn("template %s is damaged; ignoring it: %s", tid, why->msg);
        return 0;
    }
    struct template *t = from_manifest(m),
                    *old = t->packed ? NULL : template_named(c, t->tenant, t->name);
    template_enter(c, t);
    if (old && old->created_ns > t->created_ns)
        t->retired = true;
    else if (old)
        old->retired = true;
    return 0;
}

struct template *template_adopt(struct core *c, const struct manifest *m)
{
    struct template *t = from_manifest(m);
    template_enter(c, t);
    return t;
}

void templates_collect(struct core *c)
{
    struct map_entry *en;
    struct err e;
    for (size_t i = 0; (en = map_next(templates(c), &i));) {
        struct template *t = en->value;
        if (t->packed && !t->users && !t->building && template_remove(c, t, NULL, NULL, &e))
            log_warn("template %s: %s", t->id, e.msg);
    }
}

int templates_load(struct core *c, struct err *e)
{
    c->catalog->templates_fd = openat(c->home_fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->catalog->templates_fd < 0)
        return err_sys(e, errno, "opening templates");
    if (manifest_gc(c->catalog->templates_fd, 0, NULL, NULL, e) < 0)
        log_warn("unfinished templates: %s", e->msg);
    return manifest_scan(c->catalog->templates_fd, load_one, c, e);
}

void templates_free(struct core *c)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(templates(c), &i));)
        template_free(en->value);
    map_free(&c->catalog->templates);
    if (c->catalog->templates_fd >= 0)
        (void)close(c->catalog->templates_fd);
}
