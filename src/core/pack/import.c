/* A pack comes in: pieces to a worker, one after the other, while the sender is
 * held back; then its files in place, then its rows. A container's tree goes
 * through the packer first and becomes a template of its own (decision 004). */
#include "tier/vm/vm.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/pack/pack.h"
#include "core/pack/stage.h"
#include "core/catalog/template.h"
#include "core/life/usage.h"
#include "loop/job.h"
#include "core/build/build.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pack_import {
    struct core *core;
    struct pack_import_ops ops;
    void *arg;
    char *name, *tenant;
    struct pack_stage stage;
    struct buf in, work; /* what came; what the worker has */
    bool busy, full, ended, dead, measured;
    struct build *build; /* a container's */
    unsigned rows;       /* being stored */
    int rc;
    struct err err;
};

/* ---- the end ------------------------------------------------------------------------------------------------------ */

static void drop_work(void *arg) { pack_stage_drop(&((struct pack_import *)arg)->stage); }

static void bury(void *arg)
{
    struct pack_import *im = arg;
    buf_free(&im->in), buf_free(&im->work);
    free(im->name), free(im->tenant);
    free(im);
}

static void drop(struct pack_import *im)
{
    im->dead = true;
    job_run(im->core->jobs, drop_work, bury, im);
}

static void over(struct pack_import *im, struct snapshot *s, const struct err *e)
{
    struct err copy = e ? *e : (struct err){0};
    if (!im->dead)
        im->ops.done(im->arg, s, e ? &copy : NULL);
    drop(im);
}

void pack_import_cancel(struct pack_import *im)
{
    im->dead = true;
    if (im->build)
        build_cancel(im->build);
    im->build = NULL;
    if (!im->busy && !im->rows)
        drop(im);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

/* It was not to be: what lies in place goes as deleted snapshots do, and the template with them. */
static void unmake(struct pack_import *im)
{
    for (unsigned i = 0; i < im->stage.n; i++) {
        struct snapshot *s = snapshot_at(im->core, im->stage.id[i]);
        if (s)
            s->deleted = true, s->making = false;
    }
    snapshots_collect(im->core);
}

static void row_stored(void *arg, const struct err *e)
{
    struct pack_import *im = arg;
    struct pack_stage *st = &im->stage;
    if (e && !im->rc)
        im->rc = -1, im->err = *e;
    if (--im->rows)
        return;
    fault("import.stored");
    struct snapshot *s = snapshot_at(im->core, st->id[st->n - 1]);
    if (im->rc || im->dead) {
        unmake(im);
        over(im, NULL, &im->err);
        return;
    }
    for (unsigned i = 0; i + 1 < st->n; i++)
        snapshot_made(snapshot_at(im->core, st->id[i]), 0);
    snapshot_made(s, 0);
    st->kept = true;
    event_emit(im->core, "snapshot.imported", im->tenant, NULL, NULL);
    log_info("snapshot %s was imported from a pack signed by %s", s->id, s->signer);
    over(im, s, NULL);
}

static void add_row(struct pack_import *im, unsigned i, const char *template_id)
{
    const struct pack_stage *st = &im->stage;
    const struct pack *p = st->pack;
    bool own = i + 1 == st->n;
    struct snapshot like = {.name = own && im->name && *im->name ? im->name : NULL,
                            .template_name = (char *)(uintptr_t)p->template.name,
                            .tier = tier_find(p->tier),
                            .memory = own && p->memory,
                            .deleted = !own,
                            .bare = !p->vm,
                            .cpu_millis = p->cpu_millis,
                            .memory_mib = p->memory_mib,
                            .disk_mib = p->disk_mib,
                            .generation = p->generation};
    unsigned disk = 0;
    memcpy(like.id, st->id[i], sizeof like.id);
    if (i)
        memcpy(like.base, st->id[i - 1], sizeof like.base);
    (void)snprintf(like.template_id, sizeof like.template_id, "%s", template_id);
    memcpy(like.signer, st->signer, sizeof like.signer);
    for (unsigned k = 0; k < p->nparts; k++) {
        uint64_t bytes = p->part[k].blocks * PACK_BLOCK;
        if (p->part[k].role == PACK_DISK && disk++ == i)
            like.disk_bytes = bytes;
        else if (own && (p->part[k].role == PACK_STATE || p->part[k].role == PACK_PAGES))
            like.memory_bytes += bytes;
    }
    if (own && kv_from_json(&like.env, p->env, &im->err))
        log_warn("snapshot %s: %s", like.id, im->err.msg); /* the manifest was checked */
    like.tenant = *im->tenant ? im->tenant : NULL;
    snapshot_store(snapshot_add(im->core, &like), row_stored, im);
    kv_free(&like.env);
}

static void add_rows(struct pack_import *im, const char *template_id)
{
    im->rows = im->stage.n;
    for (unsigned i = 0; i < im->stage.n; i++)
        add_row(im, i, template_id);
}

/* ---- in place ----------------------------------------------------------------------------------------------------- */

static void tree_built(void *arg, const struct template *t, const struct err *e)
{
    struct pack_import *im = arg;
    im->build = NULL;
    if (e) {
        struct err why = *e;
        (void)err_wrap(&why, "the files of the pack");
        over(im, NULL, &why);
        return;
    }
    fault("import.built");
    (void)snprintf(im->stage.template_id, sizeof im->stage.template_id, "%s", t->id);
    add_rows(im, t->id); /* the template's builder lets go of it in this turn */
}

static void published(void *arg)
{
    struct pack_import *im = arg;
    struct pack_stage *st = &im->stage;
    static const struct build_ops ops = {.done = tree_built};
    struct core *c = im->core;
    struct err e = im->err;
    im->busy = false;
    fault("import.placed");
    bool made = st->published && st->pack->vm && !st->reuse;
    if (made)
        (void)template_adopt(c,
                             &st->template); /* goes again below, if nobody comes to stand on it */
    if (!im->rc && im->dead)
        im->rc = err_set(&e, E_CANCELED, "the import was abandoned");
    if (!im->rc && im->name && *im->name && snapshot_name_free(c, im->tenant, im->name, &e))
        im->rc = -1;
    if (!im->rc && st->reuse && !template_at(c, st->template_id))
        im->rc = err_set(
            &e, E_CONFLICT,
            "the template that the pack is based on was removed in the meantime; import it again");
    if (!im->rc && !st->pack->vm &&
        !(im->build = build_tree(c, &st->pack->template, take_fd(&st->tree), &ops, im, &e)))
        im->rc = -1;
    if (im->rc) {
        over(im, NULL, &e);
        templates_collect(c);
        return;
    }
    if (st->pack->vm)
        add_rows(im, st->template_id);
}

static void publish_work(void *arg)
{
    struct pack_import *im = arg;
    im->rc = pack_stage_publish(&im->stage, &im->err);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

static void next(struct pack_import *im);

static void push_work(void *arg)
{
    struct pack_import *im = arg;
    im->rc = pack_stage_push(&im->stage, im->work.p, im->work.n, &im->err);
}

static void push_done(void *arg)
{
    struct pack_import *im = arg;
    im->busy = false;
    if (im->dead) {
        drop(im);
        return;
    }
    if (im->rc) {
        over(im, NULL, &im->err);
        return;
    }
    /* known only now; refused before the rest of it is sent */
    if (im->stage.pack && !im->measured) {
        im->measured = true;
        if (usage_check(im->core, im->tenant, pack_bytes(im->stage.pack), &im->err)) {
            over(im, NULL, &im->err);
            return;
        }
    }
    if (im->stage.pack && !im->name) {
        im->name = xstrdup(im->stage.pack->name);
        if (*im->name && snapshot_name_free(im->core, im->tenant, im->name, &im->err)) {
            (void)err_why(
                &im->err, REASON_NAME_TAKEN, E_CONFLICT,
                "a snapshot named '%s' already exists; import this one under another name",
                im->name);
            over(im, NULL, &im->err);
            return;
        }
    }
    next(im);
}

static void next(struct pack_import *im)
{
    if (im->busy || im->dead)
        return;
    if (im->in.n) {
        struct buf b = im->work;
        im->work = im->in;
        b.n = 0;
        im->in = b;
        im->busy = true;
        job_run(im->core->jobs, push_work, push_done, im);
        if (im->full) {
            im->full = false;
            im->ops.room(im->arg);
        }
    } else if (im->ended) {
        im->busy = true;
        job_run(im->core->jobs, publish_work, published, im);
    }
}

bool pack_import_push(struct pack_import *im, const void *p, size_t n)
{
    if (im->dead)
        return false;
    buf_put(&im->in, p, n);
    next(im);
    im->full = im->in.n >= PACK_CHUNK;
    return im->full;
}

void pack_import_end(struct pack_import *im)
{
    if (im->dead)
        return;
    im->ended = true;
    next(im);
}

struct pack_import *pack_import_start(struct core *c, const char *name, const char *tenant,
                                      const struct pack_import_ops *ops, void *arg, struct err *e)
{
    if (snapshot_name_free(c, tenant, name, e) || usage_check(c, tenant, 0, e))
        return NULL;
    if (c->stopping || c->spawn_lost) {
        err_set(e, E_UNAVAILABLE, "the daemon is stopping");
        return NULL;
    }
    struct pack_import *im = xcalloc(1, sizeof *im);
    *im = (struct pack_import){.core = c,
                               .ops = *ops,
                               .arg = arg,
                               .name = name ? xstrdup(name) : NULL,
                               .tenant = xstrdup(tenant)};
    pack_stage_init(&im->stage, c->home_fd, templates_fd(c), (uint64_t)c->cfg.pack_max_mib << 20,
                    c->tiers.vm && vm_host_ready(c->tiers.vm) ? vm_unpack_new(c->tiers.vm) : NULL);
    return im;
}
