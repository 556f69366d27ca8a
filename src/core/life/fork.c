#include "core/life/fork.h"
#include "base/buf.h"
#include "base/enc.h"
#include "base/fault.h"
#include "core/life/life_int.h"
#include "core/network/network.h"
#include "core/volume/volume.h"
#include <stdlib.h>
#include <string.h>

struct forking {
    struct core *core;
    char sandbox[22], snapshot[22];
    struct fork_spec how;
    unsigned waiting;
    fork_cb *done;
    void *arg;
    struct fork_child child[];
};
struct birth {
    struct forking *f;
    unsigned nth;
};

/* All children are there, or will not be. */
static void over(struct forking *f)
{
    struct snapshot *s = snapshot_at(f->core, f->snapshot); /* there: we hold it */
    s->bearing--;
    f->done(f->arg, s, f->child, f->how.count,
            NULL); /* whoever called us collects it if nobody stands on it */
    free(f);
}

static void born(void *arg, struct sandbox *sb, const struct err *e)
{
    struct birth b = *(struct birth *)arg;
    struct fork_child *c = &b.f->child[b.nth];
    free(arg);
    fault("fork.born");
    if (sb)
        memcpy(c->id, sb->id, sizeof c->id);
    else
        c->err = *e;
    if (!--b.f->waiting)
        over(b.f);
}

static size_t list_volumes(const struct sandbox *sb, struct volume_mount *ret)
{
    struct attachment *a;
    size_t n = 0;
    list_each(a, (struct list *)(uintptr_t)&sb->attachments, of_sandbox)
        ret[n++] = (struct volume_mount){
            .volume = a->volume->id, .path = a->path, .read_only = a->read_only};
    return n;
}

static void bear(struct forking *f, const struct sandbox *sb, struct snapshot *s)
{
    struct volume_mount volumes[VOLUMES_PER_SANDBOX];
    struct sandbox_spec spec = {.from = s,
                                .copies = f->how.count,
                                .timeout_s = f->how.timeout_s ? f->how.timeout_s : sb->timeout_s,
                                .on_timeout = sb->on_timeout,
                                .auto_resume = sb->life.auto_resume,
                                .files_only = sb->life.files_only,
                                .idle_s = sb->life.idle_s,
                                .on_idle = sb->life.on_idle,
                                .lifetime_s = sb->life.lifetime_s,
                                .tenant = sb->kept.tenant,
                                .metadata = sb->metadata,
                                .volumes = volumes};
    spec.nvolumes = list_volumes(sb, volumes);
    f->waiting = f->how.count;
    for (unsigned i = 0; i < f->how.count; i++) {
        struct network_spec net = {0};
        struct birth *b = xcalloc(1, sizeof *b);
        struct err e;
        *b = (struct birth){f, i};
        network_copy(sb, &net);
        kept_fork(&spec.kept, &sb->kept); /* for each: tokens are its own */
        spec.network = &net;
        if (sandbox_create(f->core, &spec, born, b, &e)) {
            f->child[i].err = e;
            free(b);
            f->waiting--;
        }
        network_spec_free(&net);
        kept_free(&spec.kept);
        spec.network = NULL;
    }
}

static void taken(void *arg, struct snapshot *s, const struct err *e)
{
    struct forking *f = arg;
    struct sandbox *sb = sandbox_at(f->core, f->sandbox);
    struct err gone;
    if (s && !sb)
        err_set(&gone, E_GONE, "sandbox %s ended in the meantime", f->sandbox);
    if (!s || !sb) {
        f->done(f->arg, NULL, NULL, 0, s ? &gone : e);
        free(f);
        return;
    }
    fault("fork.taken");
    memcpy(f->snapshot, s->id, sizeof f->snapshot);
    s->bearing++;
    bear(f, sb, s);
    if (!f->waiting) /* not one of them */
        over(f);
}

int sandbox_fork(struct sandbox *sb, const struct fork_spec *how, fork_cb *done, void *arg,
                 struct err *e)
{
    struct snapshot_spec spec = {
        .nameless = true, .files_only = how->files_only, .memory_wanted = how->memory_wanted};
    if (!how->count || how->count > FORK_MAX)
        return err_set(e, E_INVALID, "count: 1 to %d", FORK_MAX);
    if (how->timeout_s > sb->core->cfg.max_timeout_s)
        return err_set(e, E_INVALID, "timeout_s: at most %u", sb->core->cfg.max_timeout_s);
    if (how->by && caller_may_start(how->by, sb->template_name, sb->template_id, sb->tier->name,
                                    sb->cpu_millis, sb->memory_mib, sb->disk_mib, e))
        return -1;
    struct forking *f = xcalloc(1, sizeof *f + how->count * sizeof *f->child);
    *f = (struct forking){.core = sb->core, .how = *how, .done = done, .arg = arg};
    f->how.by = NULL;
    memcpy(f->sandbox, sb->id, sizeof f->sandbox);
    if (!snapshot_take(sb, &spec, taken, f, e))
        return 0;
    free(f);
    return -1;
}

void fork_undo(struct core *c, const struct fork_child *child, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct sandbox *sb = *child[i].id ? sandbox_find(c, child[i].id, NULL) : NULL;
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the client disconnected before it was created",
                               NULL, NULL, NULL); /* refused only when it is ending */
    }
}
