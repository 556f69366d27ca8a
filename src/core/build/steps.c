/* The steps of a recipe, one after the other, inside its sandbox; each is kept
 * for later builds (core/build/step_cache.h). */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/quote.h"
#include "core/build/recipe_int.h"
#include "core/catalog/snapshot.h"
#include "core/build/step_cache.h"
#include "core/host/ref.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 32768

/* ---- running one command ---- */
static void next_step(struct recipe_run *r);
static void step_end(struct recipe_run *r);

void recipe_log(struct recipe_run *r, const unsigned char *p, size_t n)
{
    buf_put(&r->partial, p, n);
    char *nl;
    while ((nl = memchr(r->partial.p, '\n', r->partial.n)) || r->partial.n > 4096) {
        size_t k = nl ? (size_t)(nl - r->partial.p) : 4096;
        char *line = xstrndup(r->partial.p, k);
        buf_drop(&r->partial, k + (nl != NULL));
        if (*line)
            (void)snprintf(r->tail, sizeof r->tail, "%.199s", line);
        build_log(r->build, line);
        free(line);
    }
}

static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct recipe_run *r = arg;
    (void)chan;
    recipe_log(r, p, n);
    exec_consumed(r->x, n);
}

void recipe_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct recipe_run *r = arg;
    (void)offset;
    r->failed_exit = x->kind != EXIT_CODE || x->code;
    r->status = x->code;
}

static void step_done(void *arg, const struct err *e)
{
    struct recipe_run *r = arg;
    r->x = NULL;
    if (r->build->done)
        return;
    if (r->partial.n)
        recipe_log(r, (const unsigned char *)"\n", 1);
    if (e) {
        build_fail(r->build, e);
        return;
    }
    if (r->failed_exit) {
        if (!r->unpacking)
            recipe_step_failed(r, r->recipe.step[r->at - 1].line,
                               recipe_kind_name(r->recipe.step[r->at - 1].kind));
        else
            recipe_fail(r, E_GUEST, "unpacking the build context failed with status %d: %.120s",
                        r->status, r->tail);
        return;
    }
    if (!r->unpacking) {
        step_end(r);
        return;
    }
    r->unpacking = false;
    next_step(r);
}

static void on_room(void *arg);

static int run(struct recipe_run *r, char *const *argv, const char *user, const char *cwd, bool in)
{
    static const struct exec_ops ops = {
        .output = on_output, .exited = recipe_exited, .done = step_done, .room = on_room};
    struct sandbox *sb = recipe_box(r);
    struct err e;
    if (!sb) {
        recipe_fail(r, E_GONE, "the build's sandbox is gone");
        return -1;
    }
    char **env = kv_to_env(&r->env);
    struct exec_spec s = {.argv = argv,
                          .env = env,
                          .user = user,
                          .cwd = cwd,
                          .timeout_ms = BUILD_STEP_MS,
                          .stdin_pipe = in};
    r->failed_exit = false;
    *r->tail = 0;
    r->x = exec_start(sb, &s, &ops, r, &e);
    env_free(env);
    if (!r->x) {
        build_fail(r->build, &e);
        return -1;
    }
    return 0;
}

static int run_sh(struct recipe_run *r, const char *script, const char *user, const char *cwd)
{
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    return run(r, argv, user, cwd, false);
}

/* ---- the context: fed to tar inside ---- */
static void on_room(void *arg)
{
    struct recipe_run *r = arg;
    char chunk[CHUNK];
    if (r->context_fd < 0 || !r->x || r->sent_eof)
        return;
    while (exec_input_room(r->x)) {
        size_t want = exec_input_room(r->x) < sizeof chunk ? exec_input_room(r->x) : sizeof chunk;
        ssize_t n = read(r->context_fd, chunk, want);
        if (n <= 0) {
            exec_input_eof(r->x);
            r->sent_eof = true;
            return;
        }
        (void)exec_input(r->x, chunk, (size_t)n); /* at most the room: all of it is taken */
    }
}

/* ---- steps ---- */
static const char *lookup(void *arg, const char *name, size_t n)
{
    return plan_env(&((const struct recipe_run *)arg)->env, name, n);
}

static char *expand(struct recipe_run *r, const char *word, struct err *e)
{
    struct buf b = {0};
    if (recipe_expand(word, lookup, r, &b, e)) {
        buf_free(&b);
        return NULL;
    }
    return buf_take(&b);
}

/* Directories merge their contents into the destination, files go to or into it: as Docker's COPY. Sources stay in the context. */
static void copy_script(struct recipe_run *r, const struct recipe_step *s, char **word,
                        struct buf *b)
{
    const char *dst = word[s->nwords - 1];
    bool into = s->nwords > 2 || (*dst && dst[strlen(dst) - 1] == '/');
    buf_puts(b, "set -e; cd " BUILD_CONTEXT "; n=0; dst=");
    if (*dst != '/') {
        shell_quote(b, r->cwd);
        buf_putc(b, '/');
    }
    shell_quote(b, dst);
    buf_printf(
        b,
        "; into=%d; put() { case \"/$1/\" in */../*) echo \"COPY: $1 is outside of the build context\" >&2; exit 1;; esac; "
        "[ -e \"$1\" ] || [ -L \"$1\" ] || { echo \"COPY: $1: not in the build context\" >&2; exit 1; }; n=$((n+1)); "
        "if [ -d \"$1\" ] && ! [ -L \"$1\" ]; then mkdir -p -- \"$dst\"; cp -a -- \"$1/.\" \"$dst/\"; own \"$dst\"; "
        "elif [ $into = 1 ] || [ -d \"$dst\" ]; then mkdir -p -- \"$dst\"; cp -a -- \"$1\" \"$dst/\"; own \"$dst/${1##*/}\"; "
        "else mkdir -p -- \"$(dirname -- \"$dst\")\"; cp -a -- \"$1\" \"$dst\"; own \"$dst\"; fi; }; own() { chown -R -- ",
        into);
    shell_quote(b, s->chown ? s->chown : "root:root");
    buf_puts(b, " \"$1\"; ");
    if (s->chmod >= 0)
        buf_printf(b, "chmod -R %o -- \"$1\"; ", (unsigned)s->chmod);
    buf_puts(b, "}; ");
    for (size_t i = 0; i + 1 < s->nwords; i++) {
        buf_puts(b, "for f in ");
        /* globs work, everything else is literal */
        const char *p = word[i];
        while (*p == '/' || (p[0] == '.' && p[1] == '/'))
            p += *p == '/' ? 1 : 2;
        if (!*p)
            p = ".";
        for (; *p; p++) {
            if (*p == '*' || *p == '?' || *p == '[' || *p == ']')
                buf_putc(b, *p);
            else {
                char one[2] = {*p, 0};
                shell_quote(b, one);
            }
        }
        buf_puts(b, "; do put \"$f\"; done; ");
    }
}

static void run_copy(struct recipe_run *r, const struct recipe_step *s)
{
    struct err e;
    if (r->context_fd < 0) {
        recipe_fail(r, E_INVALID, "line %d: COPY needs a build context", s->line);
        return;
    }
    char **word = xcalloc(s->nwords + 1, sizeof *word);
    bool bad = false;
    for (size_t i = 0; i < s->nwords && !bad; i++)
        bad = !(word[i] = expand(r, s->word[i], &e));
    auto_buf b = {0};
    if (!bad)
        copy_script(r, s, word, &b);
    env_free(word);
    if (bad)
        build_fail(r->build, &e);
    else
        run_sh(r, b.p, "root", "/");
}

static int set_env(struct recipe_run *r, const struct recipe_step *s, struct err *e)
{
    for (size_t i = 0; i + 1 < s->nwords; i += 2) {
        auto_free char *v = expand(r, s->word[i + 1], e);
        if (!v)
            return -1;
        kv_set(&r->env, str_of(s->word[i]), str_of(v));
        kv_set(&r->build->t->env, str_of(s->word[i]), str_of(v));
    }
    return 0;
}

static int set_workdir(struct recipe_run *r, const struct recipe_step *s, struct err *e)
{
    auto_free char *w = expand(r, s->word[0], e);
    if (!w)
        return -1;
    char *full = *w == '/' ? xstrdup(w) : xasprintf("%s%s%s", r->cwd, r->cwd[1] ? "/" : "", w);
    free(r->cwd), r->cwd = full;
    free(r->build->t->workdir), r->build->t->workdir = xstrdup(full);
    return 0;
}

static void run_workdir(struct recipe_run *r)
{
    auto_buf b = {0};
    buf_puts(&b, "mkdir -p -- ");
    shell_quote(&b, r->cwd);
    if (r->user && strcmp(r->user, "root")) {
        buf_puts(&b, " && chown -- ");
        shell_quote(&b, r->user);
        buf_putc(&b, ' ');
        shell_quote(&b, r->cwd);
    }
    run_sh(r, b.p, "root", "/");
}

static int set_user(struct recipe_run *r, const struct recipe_step *s, struct err *e)
{
    char *u = expand(r, s->word[0], e);
    if (!u)
        return -1;
    u[strcspn(u, ":")] = 0;
    free(r->user), r->user = u;
    free(r->build->t->user), r->build->t->user = xstrdup(u);
    return 0;
}

static void run_user(struct recipe_run *r)
{
    auto_buf b = {0};
    buf_puts(&b, "id -u -- ");
    shell_quote(&b, r->user);
    buf_puts(&b, " >/dev/null");
    run_sh(r, b.p, "root", "/");
}

/* What a step means for those after it, whether it runs or its result is there already. */
static int apply(struct recipe_run *r, const struct recipe_step *s, struct err *e)
{
    switch (s->kind) {
    case RECIPE_ENV: return set_env(r, s, e);
    case RECIPE_WORKDIR: return set_workdir(r, s, e);
    case RECIPE_USER: return set_user(r, s, e);
    case RECIPE_RUN:
    case RECIPE_COPY: break;
    }
    return 0;
}

/* ---- steps that are kept (core/build/step_cache.h) ---- */
static bool lasting(const struct recipe_step *s)
{
    return s->kind == RECIPE_RUN || s->kind == RECIPE_COPY;
}

static void step_kept(void *arg, const struct err *e)
{
    struct build *b = build_take(arg);
    if (!b || b->done || !b->recipe)
        return;
    if (e) {
        auto_free char *line = xasprintf("this step is not cached for later builds: %s", e->msg);
        build_log(b, line);
    }
    next_step(b->recipe);
}

static void step_end(struct recipe_run *r)
{
    struct sandbox *sb = recipe_box(r);
    struct err e;
    if (!r->plan->key || !lasting(&r->recipe.step[r->at - 1]) || !sb) {
        next_step(r);
        return;
    }
    struct ref *ref = ref_new(r->build->core, r->build->t->id);
    if (step_keep(sb, r->plan->key[r->at - 1], step_kept, ref, &e)) {
        (void)ref_take(ref);
        next_step(r);
    }
}

struct snapshot *recipe_find_kept(struct recipe_run *r)
{
    struct snapshot *s = NULL;
    r->cached = 0;
    for (size_t i = r->plan->key ? r->recipe.nsteps : 0; !s && i; i--)
        if (lasting(&r->recipe.step[i - 1]) && r->recipe.step[i - 1].line <= r->cached_line &&
            (s = step_find(r->build->core, r->plan->key[i - 1]))) {
            r->cached = i;
            memcpy(r->from, s->id, sizeof r->from);
        }
    return s;
}

static int skip_kept(struct recipe_run *r, struct err *e)
{
    for (; r->at < r->cached; r->at++) {
        auto_buf text = {0};
        buf_puts(&text, "CACHED ");
        recipe_describe(&r->recipe.step[r->at], &text);
        build_progress(r->build, (int)(r->at * 100 / (r->recipe.nsteps + 1)), text.p);
        if (apply(r, &r->recipe.step[r->at], e))
            return -1;
    }
    return 0;
}

static void next_step(struct recipe_run *r)
{
    struct err e;
    while (r->at < r->recipe.nsteps) {
        const struct recipe_step *s = &r->recipe.step[r->at++];
        auto_buf text = {0};
        recipe_describe(s, &text);
        build_progress(r->build, (int)(r->at * 100 / (r->recipe.nsteps + 1)), text.p);
        if (apply(r, s, &e)) {
            build_fail(r->build, &e);
            return;
        }
        switch (s->kind) {
        case RECIPE_RUN:
            if (s->cmd.shell)
                run_sh(r, s->cmd.argv[0], r->user, r->cwd);
            else
                run(r, s->cmd.argv, r->user, r->cwd, false);
            return;
        case RECIPE_COPY: run_copy(r, s); return;
        case RECIPE_WORKDIR: run_workdir(r); return;
        case RECIPE_USER: run_user(r); return;
        case RECIPE_ENV: break;
        }
    }
    if (!r->exporting)
        recipe_export(r);
}

void recipe_begin(struct recipe_run *r)
{
    struct err no;
    if (skip_kept(r, &no)) {
        build_fail(r->build, &no);
        return;
    }
    if (r->context_fd >= 0 && r->at < r->recipe.nsteps) {
        char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"},
                        (char[]){"rm -rf " BUILD_CONTEXT " && mkdir -p " BUILD_CONTEXT
                                 " && tar -C " BUILD_CONTEXT " --no-same-owner -xf -"},
                        NULL};
        build_progress(r->build, 0, "sending the build context");
        r->unpacking = true;
        run(r, argv, "root", "/", true);
        return;
    }
    next_step(r);
}
