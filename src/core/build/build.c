/* One template build: how it begins, reports and ends, and its packer, which
 * turns a tar or an image archive into a root file system in its jail. What comes
 * before the packer is in build_builtin.c and build_recipe.c, what comes after it
 * in build_publish.c. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/build/build_int.h"
#include "core/sandbox/exec.h"
#include "core/code/kernels.h"
#include "image/manifest.h"
#include "image/oci.h"
#include "spawn/client.h"
#include "core/host/ref.h"
#include "core/sandbox/object.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

static void ignore(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)arg, (void)rep, (void)fds, (void)nfds;
}

static void kill_id(struct build *b, const char *id)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", id);
    if (spawn_call(b->core->spawn, &q, NULL, 0, ignore, NULL, &e))
        log_warn("build: %s", e.msg);
}

struct unmake {
    struct core *core;
    char id[22];
};
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
        (void)sandbox_kill(sb, END_KILLED, "the build ended", NULL, NULL,
                           NULL); /* refused only when it is ending */
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

void build_succeed(struct build *b, const struct template *t)
{
    b->done = true;
    b->ops.done(b->arg, t, NULL);
    build_free(b);
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

struct builds {
    struct list all;
};

void builds_init(struct core *c)
{
    c->builds = xcalloc(1, sizeof *c->builds);
    list_init(&c->builds->all);
}
void builds_free(struct core *c)
{
    free(c->builds);
    c->builds = NULL;
}

void builds_cancel(struct core *c, enum err_code code, const char *why)
{
    struct err e;
    err_set(&e, code, "%s", why);
    while (!list_empty(&c->builds->all))
        build_fail(container_of(c->builds->all.next, struct build, link), &e);
}

struct build *build_new(struct core *c, const char *tenant, const char *name, const char *source,
                        const struct build_ops *ops, void *arg, struct err *e)
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
    list_each(it, &c->builds->all, link)
        if (!strcmp(it->t->name, name) && !strcmp(it->t->tenant, tenant ? tenant : "") &&
            strcmp(source, "pack")) {
            err_set(e, E_CONFLICT, "template '%s' is being built already", name);
            return NULL;
        }
    struct build *b = xcalloc(1, sizeof *b);
    b->core = c, b->ops = *ops, b->arg = arg;
    b->t = xcalloc(1, sizeof *b->t);
    id_make('t', b->t->id);
    b->t->tenant = xstrdup(tenant ? tenant : "");
    b->t->name = xstrdup(name), b->t->source = xstrdup(source);
    list_add_tail(&c->builds->all, &b->link);
    return b;
}

int build_tempfile(struct core *c, struct err *e)
{
    int fd = openat(c->home_fd, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(e, errno, "creating a temporary file") : fd;
}

struct build *build_find(struct core *c, const char *id)
{
    struct build *it;
    list_each(it, &c->builds->all, link)
        if (!strcmp(it->t->id, id))
            return it;
    return NULL;
}
struct build *build_take(void *ref)
{
    struct ref r = ref_take(ref);
    return build_find(r.core, r.id);
}

/* ---- the packer ---- */
/* The image's own settings, told by the packer, which read hostile input: strict again here. */
static void take_config(struct build *b, const char *text)
{
    struct err e;
    struct oci_config oc;
    if (oci_config_read(text, strlen(text), &oc, &e)) {
        build_log(b, "the image's configuration cannot be read and is ignored");
        return;
    }
    for (size_t i = 0; i < oc.env.n; i++) {
        const char *kv = oc.env.v[i], *eq = strchr(kv, '=');
        if (eq && eq != kv)
            kv_set(&b->t->env, (struct str){kv, (size_t)(eq - kv)}, str_of(eq + 1));
    }
    free(b->t->workdir), b->t->workdir = xstrdup(*oc.workdir == '/' ? oc.workdir : "/");
    free(b->t->user), b->t->user = xstrndup(*oc.user ? oc.user : "root",
                                            strcspn(*oc.user ? oc.user : "root", ":"));
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
        /* sandboxes have devices of their own */
        (void)snprintf(text, sizeof text,
                       "skipped: %llu device nodes, pipes and sockets; %llu extended attributes",
                       files, bytes);
        build_log(b, text);
    } else if (strcmp(line, "step done")) { /* for people there is more to come */
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
        return err_sys(e, errno, "creating the template's directory");
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
        err_set(&e, E_INTERNAL, "packing the image failed (%s %d)",
                ex->signaled ? "signal" : "status", ex->code);
    build_fail(b, &e);
}

struct exit_later {
    struct core *core;
    struct sp_exit ex;
    struct timer t;
};

/* The exit may overtake the last lines in the pipe by a moment: let the loop read them first. */
static void exit_settled(void *arg)
{
    struct exit_later *x = arg;
    struct build *b = NULL, *it;
    list_each(it, &x->core->builds->all, link)
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
        build_tool_ended(b, &x->ex);
    free(x);
}

void template_tool_exit(struct core *c, const struct sp_exit *ex)
{
    struct build *it;
    bool ours = false;
    list_each(it, &c->builds->all, link)
        ours = ours || !strcmp(it->t->id, ex->id) || (*it->tool_id && !strcmp(it->tool_id, ex->id));
    if (!ours)
        return;
    struct exit_later *x = xcalloc(1, sizeof *x);
    x->core = c, x->ex = *ex;
    timer_init(&x->t, c->loop, exit_settled, x);
    timer_arm(&x->t, 1 * NS_PER_MS);
}

/* ---- what is an archive already ---- */
struct build *build_import(struct core *c, const char *tenant, const char *name, int image_fd,
                           const struct build_ops *ops, void *arg, struct err *e)
{
    auto_fd fd = image_fd;
    struct build *b = build_new(c, tenant, name, "import", ops, arg, e);
    if (!b)
        return NULL;
    build_stage(b, 5, 80);
    if (lseek(fd, 0, SEEK_SET) < 0 || build_pack(b, fd, SP_PACK_IMAGE, NULL, e)) {
        build_cancel(b);
        return NULL;
    }
    return b;
}

struct build *build_tree(struct core *c, const struct manifest *m, int tar_fd,
                         const struct build_ops *ops, void *arg, struct err *e)
{
    auto_fd fd = tar_fd;
    struct build *b = build_new(c, NULL, m->name, "pack", ops, arg, e);
    if (!b)
        return NULL;
    struct template *t = b->t;
    t->packed = t->retired = true;
    t->user = *m->user ? xstrdup(m->user) : NULL,
    t->workdir = *m->workdir ? xstrdup(m->workdir) : NULL;
    t->start = *m->start ? xstrdup(m->start) : NULL,
    t->ready = *m->ready ? xstrdup(m->ready) : NULL;
    for (size_t i = 0; i < m->nenv; i++) {
        const char *eq = strchr(m->env[i], '=');
        kv_set(&t->env, (struct str){m->env[i], (size_t)(eq - m->env[i])}, str_of(eq + 1));
    }
    if (kernels_parse(m->kernels, &t->kernels, e) || lseek(fd, 0, SEEK_SET) < 0 ||
        build_pack(b, fd, SP_PACK_TAR, NULL, e)) {
        build_cancel(b);
        return NULL;
    }
    return b;
}
