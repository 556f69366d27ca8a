/* What was packed becomes a template: the manifest publishes it by rename, a VM
 * boots once for the warm snapshot, and a sandbox started from it has to run a
 * command before anyone is told "done". */
#include "base/clock.h"
#include "base/log.h"
#include "core/build/build_int.h"
#include "core/sandbox/exec.h"
#include "core/code/kernels.h"
#include "core/ahead/variant.h"
#include "image/manifest.h"
#include "core/host/ref.h"
#include "core/sandbox/object.h"
#include "core/host/event.h"
#include "core/ahead/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- proof: a sandbox from it runs a command ---- */
static void finished(struct build *b)
{
    struct template *t = b->t;
    struct map_entry *en;
    *b->verify_id = 0;
    for (size_t i = 0; !t->packed && (en = map_next(templates(b->core), &i));) {
        struct template *old = en->value;
        if (old != t && !strcmp(old->name, t->name) && !strcmp(old->tenant, t->tenant) &&
            !old->retired) {
            old->retired = true;
            struct err e;
            if (!old->users && template_remove(b->core, old, NULL, NULL, &e))
                log_warn("template %s: %s", old->id, e.msg);
        }
    }
    t->building = false;
    build_stage(b, 100, 100);
    if (!t->packed)
        event_emit(b->core, "template.built", t->tenant, NULL, NULL);
    if (!strcmp(t->name, "base") && !*t->tenant && !t->packed)
        pool_want_template(b->core, t);
    build_succeed(b, t);
}

static void verify_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    (void)offset;
    struct build *b = arg;
    if (x->kind != EXIT_CODE || x->code)
        err_why(&b->err, REASON_GUEST_BOOT, E_GUEST,
                "a sandbox of the new template could not run /bin/sh -c true (status %d)", x->code);
}
/* Whoever hears that it is done may remove it at once: nothing of ours uses it any more. */
static void verify_gone(void *arg, struct sandbox *sb, const struct err *e)
{
    struct build *b = build_take(arg);
    (void)sb, (void)e;
    if (b)
        finished(b);
}
static void verify_done(void *arg, const struct err *e)
{
    struct build *b = arg;
    b->verify = NULL;
    if (e || b->err.code) {
        build_fail(b, e ? e : &b->err);
        return;
    }
    struct sandbox *sb = sandbox_find(b->core, b->verify_id, NULL);
    struct ref *r = ref_new(b->core, b->t->id);
    if (!sb || sandbox_kill(sb, END_KILLED, "the build's check is over", verify_gone, r, NULL))
        verify_gone(r, NULL, NULL);
}
static void verify_created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct build *b = build_take(arg);
    if (!b) {
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the build ended", NULL, NULL, NULL);
        return;
    }
    if (e) {
        build_fail(b, e);
        return;
    }
    static const struct exec_ops ops = {.exited = verify_exited, .done = verify_done};
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"true"}, NULL};
    struct exec_spec spec = {.argv = argv, .timeout_ms = 60000};
    struct err no;
    memcpy(b->verify_id, sb->id, sizeof b->verify_id);
    if (!(b->verify = exec_start(sb, &spec, &ops, b, &no)))
        build_fail(b, &no);
}

static void verify(struct build *b)
{
    struct sandbox_spec spec = {.template = b->t->id, .timeout_s = 300};
    struct err e;
    build_progress(b, 100, "starting a sandbox from it");
    struct ref *r = ref_new(b->core, b->t->id);
    if (sandbox_create(b->core, &spec, verify_created, r, &e)) {
        (void)ref_take(r);
        build_fail(b, &e);
    }
}

/* variant_get answers after the build may be gone: both callbacks find it by id */
static void snapshot_progress(void *arg, int percent, const char *what)
{
    const struct ref *r = arg;
    struct build *b = build_find(r->core, r->id);
    if (b)
        build_progress(b, percent, what);
}
static void snapshot_done(void *arg, struct variant *v, const struct err *e)
{
    struct build *b = build_take(arg);
    variant_unref(v);
    if (!b)
        return;
    if (e)
        build_fail(b, e);
    else
        verify(b);
}

static void make_snapshot(struct build *b)
{
    struct core *c = b->core;
    const struct tier *tier = c->cfg.default_tier;
    if (!tier_can(tier, TIER_VARIANTS) || !tier_ready(&c->tiers, tier)) {
        verify(b);
        return;
    }
    uint32_t disk =
        c->cfg.def_disk_mib > b->t->disk_min_mib ? c->cfg.def_disk_mib : b->t->disk_min_mib;
    struct variant_spec s = {
        .tier = tier, .memory_mib = c->cfg.def_memory_mib, .vcpus = 1, .disk_mib = disk};
    memcpy(s.template_id, b->t->id, sizeof b->t->id);
    build_stage(b, 82, 98);
    build_progress(b, 0, "booting once to take the warm snapshot");
    struct ref *r = ref_new(b->core, b->t->id);
    variant_get(c, &s, snapshot_progress, r, snapshot_done, r);
}

/* ---- publish ---- */
struct publish {
    struct core *core;
    struct manifest m;
    struct err err;
    bool failed;
};

static void publish_work(void *arg)
{
    struct publish *p = arg;
    char path[80];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s.tmp/rootfs.ext4", p->m.id);
    if (fstatat(templates_fd(p->core), path, &st, AT_SYMLINK_NOFOLLOW)) {
        p->failed = err_sys(&p->err, errno, "the packed image") != 0;
        return;
    }
    p->m.size_bytes = (uint64_t)st.st_blocks * 512;
    p->m.disk_min_mib = (uint32_t)(((uint64_t)st.st_size + (1u << 20) - 1) >> 20);
    p->failed = manifest_write(templates_fd(p->core), &p->m, &p->err) ||
                manifest_publish(templates_fd(p->core), p->m.id, &p->err);
}

static void unpublish_work(void *arg)
{
    struct publish *p = arg;
    if (template_unlink(p->core, p->m.id, &p->err))
        log_warn("template %s: %s", p->m.id, p->err.msg);
    manifest_fini(&p->m);
    free(p);
}

static void publish_done(void *arg)
{
    struct publish *p = arg;
    struct build *b = build_find(p->core, p->m.id);
    if (b && p->failed) {
        build_fail(b, &p->err);
    } else if (b) {
        b->t->size_bytes = p->m.size_bytes;
        b->t->disk_min_mib = p->m.disk_min_mib;
        b->t->warm_container = true;
        b->published = b->t->building = true;
        template_enter(b->core, b->t);
        if (b->t->packed)
            finished(b); /* it ran elsewhere */
        else
            make_snapshot(b);
    } else if (!p->failed) {
        job_run(p->core->jobs, unpublish_work, NULL, p);
        return;
    }
    manifest_fini(&p->m);
    free(p);
}

void build_packed(struct build *b)
{
    if (b->tool_running || b->pack_running || (b->recipe && !recipe_run_finished(b->recipe)))
        return;
    recipe_run_free(b->recipe);
    b->recipe = NULL;
    b->t->created_ns = clock_wall();
    struct publish *p = xcalloc(1, sizeof *p);
    const struct template *t = b->t;
    p->core = b->core;
    struct manifest *m = &p->m;
    memcpy(m->id, t->id, sizeof m->id);
    (void)snprintf(m->name, sizeof m->name, "%s", t->name);
    (void)snprintf(m->parent, sizeof m->parent, "%s", t->parent ? t->parent : "");
    clock_rfc3339(t->created_ns, m->created);
    m->source = !strcmp(t->source, "bootstrap") ? MANIFEST_BOOTSTRAP
                : !strcmp(t->source, "recipe")  ? MANIFEST_RECIPE
                : t->packed                     ? MANIFEST_PACK
                                                : MANIFEST_IMPORT;
    manifest_set(&m->user, t->user), manifest_set(&m->workdir, t->workdir);
    manifest_set(&m->start, t->start), manifest_set(&m->ready, t->ready);
    char kernels[KERNELS_TEXT];
    kernels_format(t->kernels, kernels);
    manifest_set(&m->kernels, kernels);
    manifest_set(&m->content_key, t->content_key), manifest_set(&m->tenant, t->tenant);
    manifest_set(&m->packages, NULL);
    char **env = kv_to_env(&t->env);
    for (char **v = env; *v; v++)
        manifest_add_env(m, *v);
    env_free(env);
    job_run(b->core->jobs, publish_work, publish_done, p);
}
