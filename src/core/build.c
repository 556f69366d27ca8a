/* Template builds: tools of the spawner make a tar, the packer turns it into
 * an image in its jail, the manifest publishes it by rename, and a sandbox
 * started from it has to run a command before anyone is told "done". */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "backend/vm/vm.h"
#include "core/build_int.h"
#include "core/box.h"
#include "core/exec.h"
#include "core/kernels.h"
#include "core/pool.h"
#include "core/variant.h"
#include "crypto/digest.h"
#include "image/manifest.h"
#include "image/oci.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACK_MIB  (32u << 10) /* the scratch image; sparse, shrunk afterwards */
#define SLACK_MIB 256u

/* ---- reporting ---- */
void build_stage(struct build *b, int low, int high) { b->low = low, b->high = high; }

void build_progress(struct build *b, int within, const char *step)
{
    if (within < 0)
        within = 0;
    if (within > 100)
        within = 100;
    int p = b->low + (b->high - b->low) * within / 100;
    if (p < b->percent)
        p = b->percent; /* a bar does not go backwards */
    b->percent = p;
    if (!b->done && b->ops.progress)
        b->ops.progress(b->arg, p, step);
}

void build_log(struct build *b, const char *line)
{
    if (!b->done && b->ops.log)
        b->ops.log(b->arg, line);
}

/* ---- the end ---- */
static void bury(void *arg) { free(arg); }

static void ignore(void *arg, const struct sp_rep *rep, int *fds, int nfds) { (void)arg, (void)rep, (void)fds, (void)nfds; }

static void kill_id(struct build *b, const char *id)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    if (spawn_call(b->core->spawn, &q, NULL, 0, ignore, NULL, &e))
        log_warn("build: %s", e.msg);
}

struct unmake { struct core *core; char id[22]; };
static void unmake_work(void *arg)
{
    struct unmake *u = arg;
    struct err e;
    if (template_unlink(u->core, u->id, &e))
        log_warn("build %s: %s", u->id, e.msg);
    free(u);
}

static void build_free(struct build *b)
{
    lines_stop(&b->tool_lines), lines_stop(&b->pack_lines);
    recipe_run_free(b->recipe);
    b->recipe = NULL;
    if (b->verify)
        exec_detach(b->verify);
    b->verify = NULL;
    if (b->tool_running)
        kill_id(b, b->tool_id);
    if (b->pack_running)
        kill_id(b, b->t->id);
    struct sandbox *sb = *b->verify_id ? sandbox_find(b->core, b->verify_id, NULL) : NULL;
    if (sb)
        (void)sandbox_kill(sb, END_KILLED, "the build ended", NULL, NULL, NULL); /* refused only when it is ending */
    if (!b->published) {
        struct unmake *u = xcalloc(1, sizeof *u);
        u->core = b->core;
        memcpy(u->id, b->t->id, sizeof u->id);
        job_run(b->core->jobs, unmake_work, NULL, u);
        template_free(b->t);
    }
    list_del(&b->link);
    loop_defer(b->core->loop, bury, b);
}

static void unpublish(struct build *b)
{
    struct err e;
    b->published = true; /* its files go by template_remove */
    b->t->building = false;
    b->t->users = 0;
    if (template_remove(b->core, b->t, NULL, NULL, &e))
        log_warn("build: %s", e.msg);
}

void build_fail(struct build *b, const struct err *e)
{
    struct err copy = *e;
    if (b->done)
        return;
    b->done = true;
    if (b->published)
        unpublish(b);
    b->ops.done(b->arg, NULL, &copy);
    build_free(b);
}

void build_cancel(struct build *b)
{
    b->done = true;
    if (b->published)
        unpublish(b);
    build_free(b);
}

void builds_cancel(struct core *c, enum err_code code, const char *why)
{
    struct err e;
    err_set(&e, code, "%s", why);
    while (!list_empty(&c->builds))
        build_fail(container_of(c->builds.next, struct build, link), &e);
}

struct build *build_new(struct core *c, const char *name, const char *source, const struct build_ops *ops, void *arg, struct err *e)
{
    struct build *it;
    if (!name_ok(str_of(name))) {
        err_set(e, E_INVALID, "template name: must match [a-z0-9][a-z0-9-]{0,62}");
        return NULL;
    }
    if (c->spawn_lost || c->stopping) {
        err_set(e, E_UNAVAILABLE, "the daemon cannot build now");
        return NULL;
    }
    list_each(it, &c->builds, link)
        if (!strcmp(it->t->name, name) && strcmp(source, "pack")) {
            err_set(e, E_CONFLICT, "template '%s' is being built already", name);
            return NULL;
        }
    struct build *b = xcalloc(1, sizeof *b);
    b->core = c, b->ops = *ops, b->arg = arg;
    b->t = xcalloc(1, sizeof *b->t);
    id_make('t', b->t->id);
    b->t->name = xstrdup(name), b->t->source = xstrdup(source);
    list_add_tail(&c->builds, &b->link);
    return b;
}

int build_tempfile(struct core *c, struct err *e)
{
    int fd = openat(c->home_fd, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(e, errno, "making a temporary file") : fd;
}

static struct build *build_of(const struct ref *r)
{
    struct build *it;
    list_each(it, &r->core->builds, link)
        if (!strcmp(it->t->id, r->id))
            return it;
    return NULL;
}
struct build *build_take(void *ref)
{
    struct ref r = ref_take(ref);
    return build_of(&r);
}

/* ---- proof: a sandbox from it runs a command ---- */
static void finished(struct build *b)
{
    struct template *t = b->t;
    struct map_entry *en;
    *b->verify_id = 0;
    for (size_t i = 0; !t->packed && (en = map_next(&b->core->templates, &i));) {
        struct template *old = en->value;
        if (old != t && !strcmp(old->name, t->name) && !old->retired) {
            old->retired = true;
            struct err e;
            if (!old->users && template_remove(b->core, old, NULL, NULL, &e))
                log_warn("template %s: %s", old->id, e.msg);
        }
    }
    t->building = false;
    b->done = true;
    build_stage(b, 100, 100);
    if (!t->packed)
        event_emit(b->core, "template.built", NULL, NULL);
    if (!strcmp(t->name, "base") && !t->packed)
        template_warm(b->core, t);
    b->ops.done(b->arg, t, NULL);
    build_free(b);
}

static void verify_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    (void)offset;
    struct build *b = arg;
    if (x->kind != EXIT_CODE || x->code)
        err_set(&b->err, E_GUEST, "a sandbox of the new template could not run /bin/sh -c true (status %d)", x->code);
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
    struct build *b = build_of(arg);
    if (b)
        build_progress(b, percent, what);
}
static void snapshot_done(void *arg, struct vm_variant *v, const struct err *e)
{
    struct build *b = build_take(arg);
    vm_variant_unref(v);
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
    if (c->cfg.default_tier != TIER_VM || !c->vmh || !vm_host_ready(c->vmh)) {
        verify(b);
        return;
    }
    uint32_t disk = c->cfg.def_disk_mib > b->t->disk_min_mib ? c->cfg.def_disk_mib : b->t->disk_min_mib;
    struct vm_spec s = {.ram_mib = c->cfg.def_memory_mib, .vcpus = 1, .disk_mib = disk};
    memcpy(s.template_id, b->t->id, sizeof b->t->id);
    build_stage(b, 82, 98);
    build_progress(b, 0, "booting once to take the warm snapshot");
    struct ref *r = ref_new(b->core, b->t->id);
    variant_get(c, &s, snapshot_progress, r, snapshot_done, r);
}

/* ---- publish ---- */
struct publish { struct core *core; struct manifest m; struct err err; bool failed; };

static void publish_work(void *arg)
{
    struct publish *p = arg;
    char path[80];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s.tmp/rootfs.ext4", p->m.id);
    if (fstatat(p->core->templates_fd, path, &st, AT_SYMLINK_NOFOLLOW)) {
        p->failed = err_sys(&p->err, errno, "the packed image") != 0;
        return;
    }
    p->m.size_bytes = (uint64_t)st.st_blocks * 512;
    p->m.disk_min_mib = (uint32_t)(((uint64_t)st.st_size + (1u << 20) - 1) >> 20);
    p->failed = manifest_write(p->core->templates_fd, &p->m, &p->err) || manifest_publish(p->core->templates_fd, p->m.id, &p->err);
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
    struct build *b = NULL, *it;
    list_each(it, &p->core->builds, link)
        if (!strcmp(it->t->id, p->m.id))
            b = it;
    if (b && p->failed) {
        build_fail(b, &p->err);
    } else if (b) {
        b->t->size_bytes = p->m.size_bytes;
        b->t->disk_min_mib = p->m.disk_min_mib;
        b->t->warm_container = true;
        b->published = b->t->building = true;
        map_set(&b->core->templates, b->t->id, b->t);
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
    m->source = !strcmp(t->source, "bootstrap") ? MANIFEST_BOOTSTRAP : !strcmp(t->source, "recipe") ? MANIFEST_RECIPE : t->packed ? MANIFEST_PACK : MANIFEST_IMPORT;
    manifest_set(&m->user, t->user), manifest_set(&m->workdir, t->workdir);
    manifest_set(&m->start, t->start), manifest_set(&m->ready, t->ready);
    char kernels[KERNELS_TEXT];
    kernels_format(t->kernels, kernels);
    manifest_set(&m->kernels, kernels);
    manifest_set(&m->content_key, t->content_key), manifest_set(&m->packages, NULL);
    char **env = kv_to_env(&t->env);
    for (char **v = env; *v; v++)
        manifest_add_env(m, *v);
    env_free(env);
    job_run(b->core->jobs, publish_work, publish_done, p);
}

/* ---- tools and packer ---- */
static void on_tool_line(void *arg, char *line)
{
    struct build *b = arg;
    int percent, at = 0;
    if (sscanf(line, "progress %d %n", &percent, &at) == 1 && at)
        build_progress(b, percent, line + at);
    else {
        (void)snprintf(b->last_line, sizeof b->last_line, "%.199s", line);
        build_log(b, line);
    }
}

/* The image's own settings, told by the packer, which read hostile input: strict again here. */
static void take_config(struct build *b, const char *text)
{
    struct err e;
    struct oci_config oc;
    if (oci_config_read(text, strlen(text), &oc, &e)) {
        build_log(b, "the image's configuration is not readable and ignored");
        return;
    }
    for (size_t i = 0; i < oc.env.n; i++) {
        const char *kv = oc.env.v[i], *eq = strchr(kv, '=');
        if (eq && eq != kv)
            kv_set(&b->t->env, (struct str){kv, (size_t)(eq - kv)}, str_of(eq + 1));
    }
    free(b->t->workdir), b->t->workdir = xstrdup(*oc.workdir == '/' ? oc.workdir : "/");
    free(b->t->user), b->t->user = xstrndup(*oc.user ? oc.user : "root", strcspn(*oc.user ? oc.user : "root", ":"));
    oci_config_fini(&oc);
}

static void on_pack_line(void *arg, char *line)
{
    struct build *b = arg;
    unsigned long long bytes, files;
    char code[32], text[96];
    int at = 0;
    if (sscanf(line, "progress %llu %llu", &bytes, &files) == 2) {
        (void)snprintf(text, sizeof text, "unpacking: %llu MiB, %llu files", bytes >> 20, files);
        build_progress(b, b->tool_running ? -1 : 50, text);
    } else if (sscanf(line, "error %31s %n", code, &at) == 1 && at) {
        err_set(&b->err, err_from_name(code), "%.200s", line + at);
    } else if (!strncmp(line, "config ", 7)) {
        take_config(b, line + 7);
    } else if (sscanf(line, "skipped %llu %llu", &files, &bytes) == 2) {
        (void)snprintf(text, sizeof text, "not taken over: %llu devices, pipes and sockets, %llu attributes", files, bytes);
        build_log(b, text);
    } else {
        build_log(b, !strncmp(line, "step ", 5) ? line + 5 : line);
    }
}

static void pack_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct build *b = build_take(arg);
    if (!b)
        return;
    if (rep->rc) {
        b->pack_running = false;
        if (!b->recipe || !recipe_again(b->recipe))
            build_fail(b, &rep->err);
        return;
    }
    if (nfds >= 1)
        lines_start(&b->pack_lines, b->core->loop, take_fd(&fds[0]), on_pack_line, NULL, b);
}

int build_pack(struct build *b, int fd, unsigned mode, const char *base, struct err *e)
{
    struct sp_req q = {.op = SP_PACK};
    char dir[80];
    (void)snprintf(dir, sizeof dir, "templates/%s.tmp", b->t->id);
    if (mkdirat(b->core->home_fd, dir, 0755) && errno != EEXIST) /* there: a second try */
        return err_sys(e, errno, "making the template's folder");
    memcpy(q.u.pack.template_id, b->t->id, sizeof b->t->id);
    q.u.pack.size_mib = PACK_MIB, q.u.pack.slack_mib = SLACK_MIB, q.u.pack.mode = mode;
    (void)snprintf(q.u.pack.base_id, sizeof q.u.pack.base_id, "%s", base ? base : "");
    struct ref *r = ref_new(b->core, b->t->id);
    if (spawn_call(b->core->spawn, &q, &fd, 1, pack_started, r, e)) {
        (void)ref_take(r);
        return -1;
    }
    b->pack_running = true;
    return 0;
}

static void cleared(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct build *b = build_take(arg);
    (void)fds, (void)nfds;
    if (b && rep->rc)
        build_fail(b, &rep->err);
    else if (b && b->recipe)
        recipe_whole(b->recipe);
}

void build_clear(struct build *b)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    memcpy(q.u.id.id, b->t->id, sizeof b->t->id);
    struct ref *r = ref_new(b->core, b->t->id);
    if (!spawn_call(b->core->spawn, &q, NULL, 0, cleared, r, &e))
        return;
    (void)ref_take(r);
    build_fail(b, &e);
}

static void tool_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct build *b = build_take(arg);
    struct err e;
    if (!b)
        return;
    if (rep->rc || nfds < 2) {
        b->tool_running = false;
        err_set(&e, E_INTERNAL, "the spawner started no tool");
        build_fail(b, rep->rc ? &rep->err : &e);
        return;
    }
    lines_start(&b->tool_lines, b->core->loop, take_fd(&fds[1]), on_tool_line, NULL, b);
    if (!b->kernel_stage && build_pack(b, fds[0], SP_PACK_TAR, NULL, &e))
        build_fail(b, &e);
}

static int run_tool(struct build *b, enum sp_tool_kind kind, const char *variant, struct err *e)
{
    struct sp_req q = {.op = SP_TOOL};
    id_make('x', b->tool_id);
    memcpy(q.u.tool.id, b->tool_id, sizeof b->tool_id);
    q.u.tool.kind = kind;
    (void)snprintf(q.u.tool.variant, sizeof q.u.tool.variant, "%s", variant);
    struct ref *r = ref_new(b->core, b->t->id);
    if (spawn_call(b->core->spawn, &q, NULL, 0, tool_started, r, e)) {
        (void)ref_take(r);
        return -1;
    }
    b->tool_running = true;
    b->kernel_stage = kind == SP_TOOL_KERNEL;
    return 0;
}

static void bootstrap(struct build *b)
{
    struct err e;
    build_stage(b, 10, 76);
    if (run_tool(b, SP_TOOL_BOOTSTRAP, b->builtin, &e))
        build_fail(b, &e);
}

static void already_there(void *arg);

/* Guest kernels of earlier versions lack modules that are needed by now; kernel.sh notes what it was asked for. */
static bool kernel_outdated(struct core *c)
{
    auto_free char *wanted = fd_slurp_at(c->home_fd, "kernel/wanted", 4096, NULL);
    return c->vmh && (!vm_host_ready(c->vmh) || !wanted || !strstr(wanted, "fuse"));
}

/* Machines with the kernel before are not handed out any more. */
static void kernel_changed(struct core *c)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->templates, &i));) {
        struct template *t = en->value;
        variant_drop(c, t->id);
        pool_drop_template(c, t->id, NULL, NULL);
    }
    vm_variants_sweep(c->vmh);
    struct template *base = template_find(c, "base", NULL);
    if (base)
        template_warm(c, base);
}

static void tool_ended(struct build *b, const struct sp_exit *ex)
{
    struct err e;
    b->tool_running = false;
    if (ex->signaled || ex->code) {
        err_set(&e, E_UNAVAILABLE, "%s failed (%s %d): %s", b->kernel_stage ? "fetching the guest kernel" : "building the root file system",
                ex->signaled ? "signal" : "status", ex->code, *b->last_line ? b->last_line : "it said nothing");
        build_fail(b, &e);
        return;
    }
    if (!b->kernel_stage) {
        build_stage(b, 76, 82);
        build_packed(b);
        return;
    }
    if (core_load_kernel(b->core, &e)) {
        build_fail(b, &e);
        return;
    }
    kernel_changed(b->core);
    if (b->kernel_only)
        already_there(b);
    else
        bootstrap(b);
}

static void pack_ended(struct build *b, const struct sp_exit *ex)
{
    struct err e;
    b->pack_running = false;
    if (!ex->signaled && !ex->code) {
        build_packed(b);
        return;
    }
    lines_stop(&b->pack_lines);
    if (b->recipe && recipe_again(b->recipe))
        return;
    if (b->err.code)
        e = b->err;
    else
        err_set(&e, E_INTERNAL, "packing the image failed (%s %d)", ex->signaled ? "signal" : "status", ex->code);
    build_fail(b, &e);
}

struct exit_later { struct core *core; struct sp_exit ex; struct timer t; };

/* The exit may overtake the last lines in the pipe by a moment: let the loop read them first. */
static void exit_settled(void *arg)
{
    struct exit_later *x = arg;
    struct build *b = NULL, *it;
    list_each(it, &x->core->builds, link)
        if (!strcmp(it->t->id, x->ex.id) || (*it->tool_id && !strcmp(it->tool_id, x->ex.id)))
            b = it;
    struct lines *l = b ? (!strcmp(b->t->id, x->ex.id) ? &b->pack_lines : &b->tool_lines) : NULL;
    if (l && l->io.loop && x->t.armed == false && x->ex.kind != 0) {
        x->ex.kind = 0; /* once more, then go on whatever the pipe says */
        timer_arm(&x->t, 50 * NS_PER_MS);
        return;
    }
    if (b && !strcmp(b->t->id, x->ex.id))
        pack_ended(b, &x->ex);
    else if (b)
        tool_ended(b, &x->ex);
    free(x);
}

void template_tool_exit(struct core *c, const struct sp_exit *ex)
{
    struct build *it;
    bool ours = false;
    list_each(it, &c->builds, link)
        ours = ours || !strcmp(it->t->id, ex->id) || (*it->tool_id && !strcmp(it->tool_id, ex->id));
    if (!ours)
        return;
    struct exit_later *x = xcalloc(1, sizeof *x);
    x->core = c, x->ex = *ex;
    timer_init(&x->t, c->loop, exit_settled, x);
    timer_arm(&x->t, 1 * NS_PER_MS);
}

/* ---- the ways in ---- */
static void already_there(void *arg)
{
    struct build *b = arg;
    struct template *t = template_find(b->core, b->t->name, NULL);
    b->done = true;
    b->ops.done(b->arg, t, NULL);
    build_free(b);
}

/* What a built-in template is made of: the package lists, the program that puts them together, the code kernels. */
static char *builtin_key(struct core *c, const char *builtin)
{
    static const char *const parts[] = {"recipes/base.packages", NULL, "tools/bootstrap.sh"};
    struct sha256 *h = sha256_new();
    char hex[SHA256_HEX], own[96];
    (void)snprintf(own, sizeof own, "recipes/%s.packages", builtin);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char path[320];
        size_t n = 0;
        (void)snprintf(path, sizeof path, "%s/%s", c->cfg.share, parts[i] ? parts[i] : own);
        auto_free char *text = fd_slurp_at(AT_FDCWD, path, 1 << 20, &n);
        sha256_add(h, path + strlen(c->cfg.share), strlen(path) - strlen(c->cfg.share) + 1);
        if (text)
            sha256_add(h, text, n);
    }
    const char *kernels = kernels_version(c);
    sha256_add(h, kernels, strlen(kernels));
    sha256_end_hex(h, hex);
    return xstrdup(hex);
}

/* One without a key is of a version that noted none: it stays until somebody forces another. */
static bool current(const struct template *there, const char *key) { return there && (!there->content_key || !strcmp(there->content_key, key)); }

struct build *build_builtin(struct core *c, const char *name, const char *builtin, bool force, const struct build_ops *ops, void *arg, struct err *e)
{
    if (strcmp(builtin, "base") && strcmp(builtin, "code-interpreter") && strcmp(builtin, "isolate")) {
        err_set(e, E_NOT_FOUND, "there is no built-in recipe '%.40s'; base, code-interpreter and isolate exist", builtin);
        return NULL;
    }
    struct build *b = build_new(c, name, "bootstrap", ops, arg, e);
    if (!b)
        return NULL;
    (void)snprintf(b->builtin, sizeof b->builtin, "%s", builtin);
    b->t->user = xstrdup("user");
    if (!strcmp(builtin, "code-interpreter"))
        b->t->kernels = 1u << LANG_PYTHON | 1u << LANG_JAVASCRIPT;
    b->t->content_key = builtin_key(c, builtin);
    b->kernel_only = current(template_find(c, name, NULL), b->t->content_key) && !force;
    if (b->kernel_only && !kernel_outdated(c)) {
        loop_defer(c->loop, already_there, b);
        return b;
    }
    build_stage(b, 0, 10);
    if (kernel_outdated(c)) {
        if (run_tool(b, SP_TOOL_KERNEL, "kernel", e)) {
            b->done = true;
            build_free(b);
            return NULL;
        }
    } else {
        bootstrap(b);
    }
    return b;
}

struct build *build_import(struct core *c, const char *name, int image_fd, const struct build_ops *ops, void *arg, struct err *e)
{
    auto_fd fd = image_fd;
    struct build *b = build_new(c, name, "import", ops, arg, e);
    if (!b)
        return NULL;
    build_stage(b, 5, 80);
    if (lseek(fd, 0, SEEK_SET) < 0 || build_pack(b, fd, SP_PACK_IMAGE, NULL, e)) {
        b->done = true;
        build_free(b);
        return NULL;
    }
    return b;
}

struct build *build_tree(struct core *c, const struct manifest *m, int tar_fd, const struct build_ops *ops, void *arg, struct err *e)
{
    auto_fd fd = tar_fd;
    struct build *b = build_new(c, m->name, "pack", ops, arg, e);
    if (!b)
        return NULL;
    struct template *t = b->t;
    t->packed = t->retired = true;
    t->user = *m->user ? xstrdup(m->user) : NULL, t->workdir = *m->workdir ? xstrdup(m->workdir) : NULL;
    t->start = *m->start ? xstrdup(m->start) : NULL, t->ready = *m->ready ? xstrdup(m->ready) : NULL;
    for (size_t i = 0; i < m->nenv; i++) {
        const char *eq = strchr(m->env[i], '=');
        kv_set(&t->env, (struct str){m->env[i], (size_t)(eq - m->env[i])}, str_of(eq + 1));
    }
    if (kernels_parse(m->kernels, &t->kernels, e) || lseek(fd, 0, SEEK_SET) < 0 || build_pack(b, fd, SP_PACK_TAR, NULL, e)) {
        b->done = true;
        build_free(b);
        return NULL;
    }
    return b;
}
