/* Built-in templates: tools of the spawner fetch the guest kernel and put a root
 * file system together from packages; its tar goes to the packer. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "tier/variant.h"
#include "core/build/build_int.h"
#include "core/code/kernels.h"
#include "core/catalog/language.h"
#include "core/ahead/pool.h"
#include "core/ahead/variant.h"
#include "crypto/digest.h"
#include "spawn/client.h"
#include "core/host/ref.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- the guest kernel ---- */
/* Guest kernels of earlier versions lack modules that are needed by now; kernel.sh notes what it was asked for. */
static bool kernel_outdated(struct core *c)
{
    auto_free char *wanted = fd_slurp_at(c->home_fd, "kernel/wanted", 4096, NULL);
    bool old = !wanted || !strstr(wanted, "fuse");
    for (size_t i = 0; tiers[i]; i++)
        if (tier_can(tiers[i], TIER_KERNEL) && tier_here(&c->tiers, tiers[i]) &&
            (old || !tier_ready(&c->tiers, tiers[i])))
            return true;
    return false;
}

/* Machines with the kernel before are not handed out any more. */
static void kernel_changed(struct core *c)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(templates(c), &i));) {
        struct template *t = en->value;
        variant_drop(c, t->id);
        pool_drop_template(c, t->id, NULL, NULL);
    }
    variants_sweep(&c->tiers);
    struct template *base = template_find(c, "base", NULL);
    if (base)
        pool_want_template(c, base);
}

/* ---- tools ---- */
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

static void tool_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct build *b = build_take(arg);
    struct err e;
    if (!b)
        return;
    if (rep->rc || nfds < 2) {
        b->tool_running = false;
        err_set(&e, E_INTERNAL, "hutch-spawn did not start the tool");
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

/* The template of that name is as good as a new one would be. */
static void already_there(void *arg)
{
    struct build *b = arg;
    build_succeed(b, template_find(b->core, b->t->name, NULL)); /* a built-in one is for all */
}

void build_tool_ended(struct build *b, const struct sp_exit *ex)
{
    struct err e;
    b->tool_running = false;
    if (ex->signaled || ex->code) {
        err_set(&e, E_UNAVAILABLE, "%s failed (%s %d): %s",
                b->kernel_stage ? "fetching the guest kernel" : "building the root file system",
                ex->signaled ? "signal" : "status", ex->code,
                *b->last_line ? b->last_line : "it printed nothing");
        build_fail(b, &e);
        return;
    }
    if (!b->kernel_stage) {
        build_stage(b, 76, 82);
        build_packed(b);
        return;
    }
    if (variants_load_kernel(b->core, &e)) {
        build_fail(b, &e);
        return;
    }
    kernel_changed(b->core);
    if (b->kernel_only)
        already_there(b);
    else
        bootstrap(b);
}

/* ---- the way in ---- */
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
static bool current(const struct template *there, const char *key)
{
    return there && (!there->content_key || !strcmp(there->content_key, key));
}

struct build *build_builtin(struct core *c, const char *name, const char *builtin, bool force,
                            const struct build_ops *ops, void *arg, struct err *e)
{
    if (strcmp(builtin, "base") && strcmp(builtin, "code-interpreter") &&
        strcmp(builtin, "isolate")) {
        err_set(e, E_NOT_FOUND,
                "unknown built-in recipe '%.40s'; there are base, code-interpreter and isolate",
                builtin);
        return NULL;
    }
    struct build *b = build_new(c, NULL, name, "bootstrap", ops, arg, e);
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
            build_cancel(b);
            return NULL;
        }
    } else {
        bootstrap(b);
    }
    return b;
}
