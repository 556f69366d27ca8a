/* Recipe builds: the steps run inside a sandbox started from the parent
 * template, never on the host; then what differs from the parent goes to the
 * packer (image/difference.h), or a tar of its whole root where that cannot be
 * told: tools are missing inside, or the packer found that the result is not
 * what the guest says it is. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/build_int.h"
#include "core/build_plan.h"
#include "core/exec.h"
#include "core/kernels.h"
#include "core/network.h"
#include "core/snapshot.h"
#include "core/spool.h"
#include "core/step_cache.h"
#include "core/trust.h"
#include "image/recipe.h"
#include "spawn/op.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTEXT    "/.hutch-context"
#define STEP_MS    (30 * 60 * 1000)
#define CHUNK      32768
#define BUILD_S    (3 * 3600)

struct recipe_run {
    struct build *build;
    struct recipe recipe;
    bool parsed;
    int context_fd;      /* -1: none */
    struct plan *plan;
    struct network_spec network; /* text NULL: none */
    char *tenant;
    bool force;
    int cached_line;     /* up to here steps may come from the cache */
    size_t cached;       /* so many do */
    char from[22];       /* the snapshot they are in */
    char sandbox[22];
    char *user, *cwd;    /* of the next step */
    struct kv env;
    size_t at;           /* next step */
    struct exec *x;
    bool failed_exit, sent_eof;
    int status;
    char tail[200];      /* last output line, for the error */
    struct buf partial;  /* output not yet ended by a newline */
    /* export */
    int pipe_w;
    struct io pipe_io;
    struct buf queue;
    size_t queue_at;
    bool exporting, export_ended, finished;
    bool whole;          /* the tree, not a difference */
    bool again;          /* the difference was of no use; the rest of the attempt is awaited */
    int64_t since_ns;    /* what changed later than this may differ from the parent; wall */
};

bool recipe_run_finished(const struct recipe_run *r) { return r->finished; }

static struct sandbox *box(struct recipe_run *r) { return *r->sandbox ? sandbox_find(r->build->core, r->sandbox, NULL) : NULL; }

void recipe_run_free(struct recipe_run *r)
{
    if (!r)
        return;
    struct sandbox *sb = box(r);
    if (r->x)
        exec_detach(r->x);
    if (sb)
        (void)sandbox_kill(sb, END_KILLED, "the build is over", NULL, NULL, NULL); /* refused only when it is ending */
    if (r->pipe_w >= 0) {
        io_stop(&r->pipe_io);
        (void)close(r->pipe_w);
    }
    if (r->context_fd >= 0)
        (void)close(r->context_fd);
    if (r->parsed)
        recipe_fini(&r->recipe);
    plan_free(r->plan);
    network_spec_free(&r->network);
    kv_free(&r->env);
    free(r->tenant);
    buf_free(&r->partial), buf_free(&r->queue);
    free(r->user), free(r->cwd);
    loop_defer(r->build->core->loop, free, r);
}

static void fail(struct recipe_run *r, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct recipe_run *r, enum err_code code, const char *fmt, ...)
{
    struct err e;
    va_list ap;
    va_start(ap, fmt);
    err_vset(&e, code, fmt, ap);
    va_end(ap);
    build_fail(r->build, &e);
}

/* ---- running one command ---- */
static void next_step(struct recipe_run *r);
static void step_end(struct recipe_run *r);
static void export_start(struct recipe_run *r);

static void log_output(struct recipe_run *r, const unsigned char *p, size_t n)
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
    log_output(r, p, n);
    exec_consumed(r->x, n);
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
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
        log_output(r, (const unsigned char *)"\n", 1);
    if (e) {
        build_fail(r->build, e);
        return;
    }
    if (r->failed_exit) {
        if (r->at)
            fail(r, E_GUEST, "line %d: %s failed with status %d%s%.120s", r->recipe.step[r->at - 1].line,
                 recipe_kind_name(r->recipe.step[r->at - 1].kind), r->status, *r->tail ? ": " : "", r->tail);
        else
            fail(r, E_GUEST, "unpacking the build context failed with status %d: %.120s", r->status, r->tail);
        return;
    }
    step_end(r);
}

static void on_room(void *arg);

static int run(struct recipe_run *r, char *const *argv, const char *user, const char *cwd, bool in)
{
    static const struct exec_ops ops = {.output = on_output, .exited = on_exited, .done = step_done, .room = on_room};
    struct sandbox *sb = box(r);
    struct err e;
    if (!sb) {
        fail(r, E_GONE, "the build's sandbox is gone");
        return -1;
    }
    char **env = kv_to_env(&r->env);
    struct exec_spec s = {.argv = argv, .env = env, .user = user, .cwd = cwd, .timeout_ms = STEP_MS, .stdin_pipe = in};
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
static void shell_quote(struct buf *b, const char *s)
{
    buf_putc(b, '\'');
    for (; *s; s++)
        if (*s == '\'')
            buf_puts(b, "'\\''");
        else
            buf_putc(b, *s);
    buf_putc(b, '\'');
}

static const char *lookup(void *arg, const char *name, size_t n)
{
    struct recipe_run *r = arg;
    for (size_t i = 0; i < r->env.n; i++)
        if (strlen(r->env.at[i].k) == n && !memcmp(r->env.at[i].k, name, n))
            return r->env.at[i].v;
    return NULL;
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
static void copy_script(struct recipe_run *r, const struct recipe_step *s, char **word, struct buf *b)
{
    const char *dst = word[s->nwords - 1];
    bool into = s->nwords > 2 || (*dst && dst[strlen(dst) - 1] == '/');
    buf_puts(b, "set -e; cd " CONTEXT "; n=0; dst=");
    if (*dst != '/') {
        shell_quote(b, r->cwd);
        buf_putc(b, '/');
    }
    shell_quote(b, dst);
    buf_printf(b, "; into=%d; put() { case \"/$1/\" in */../*) echo \"COPY: $1 leaves the context\" >&2; exit 1;; esac; "
                  "[ -e \"$1\" ] || [ -L \"$1\" ] || { echo \"COPY: $1: not in the build context\" >&2; exit 1; }; n=$((n+1)); "
                  "if [ -d \"$1\" ] && ! [ -L \"$1\" ]; then mkdir -p -- \"$dst\"; cp -a -- \"$1/.\" \"$dst/\"; own \"$dst\"; "
                  "elif [ $into = 1 ] || [ -d \"$dst\" ]; then mkdir -p -- \"$dst\"; cp -a -- \"$1\" \"$dst/\"; own \"$dst/${1##*/}\"; "
                  "else mkdir -p -- \"$(dirname -- \"$dst\")\"; cp -a -- \"$1\" \"$dst\"; own \"$dst\"; fi; }; own() { chown -R -- ", into);
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
        fail(r, E_INVALID, "line %d: COPY needs a build context", s->line);
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
    case RECIPE_RUN: case RECIPE_COPY: break;
    }
    return 0;
}

/* ---- steps that are kept (core/step_cache.h) ---- */
static bool lasting(const struct recipe_step *s) { return s->kind == RECIPE_RUN || s->kind == RECIPE_COPY; }

static void step_kept(void *arg, const struct err *e)
{
    struct build *b = build_take(arg);
    if (!b || b->done || !b->recipe)
        return;
    if (e) {
        auto_free char *line = xasprintf("this step is not kept for later builds: %s", e->msg);
        build_log(b, line);
    }
    next_step(b->recipe);
}

static void step_end(struct recipe_run *r)
{
    struct sandbox *sb = box(r);
    struct err e;
    if (!r->at || !r->plan->key || !lasting(&r->recipe.step[r->at - 1]) || !sb) {
        next_step(r);
        return;
    }
    struct ref *ref = ref_new(r->build->core, r->build->t->id);
    if (step_keep(sb, r->plan->key[r->at - 1], step_kept, ref, &e)) {
        (void)ref_take(ref);
        next_step(r);
    }
}

static struct snapshot *find_kept(struct recipe_run *r)
{
    struct snapshot *s = NULL;
    r->cached = 0;
    for (size_t i = r->plan->key ? r->recipe.nsteps : 0; !s && i; i--)
        if (lasting(&r->recipe.step[i - 1]) && r->recipe.step[i - 1].line <= r->cached_line && (s = step_find(r->build->core, r->plan->key[i - 1]))) {
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
        case RECIPE_COPY:
            run_copy(r, s);
            return;
        case RECIPE_WORKDIR:
            run_workdir(r);
            return;
        case RECIPE_USER:
            run_user(r);
            return;
        case RECIPE_ENV:
            break;
        }
    }
    if (!r->exporting)
        export_start(r);
}

/* ---- export: tar inside -> pipe -> packer ---- */
static void pipe_close(struct recipe_run *r)
{
    if (r->pipe_w < 0)
        return;
    io_stop(&r->pipe_io);
    (void)close(r->pipe_w);
    r->pipe_w = -1;
}

static void pipe_flush(struct recipe_run *r)
{
    while (r->queue_at < r->queue.n && r->pipe_w >= 0) {
        ssize_t n = write(r->pipe_w, r->queue.p + r->queue_at, r->queue.n - r->queue_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* the packer ended; its exit says why */
            r->queue_at = r->queue.n;
            break;
        }
        r->queue_at += (size_t)n;
        if (r->x)
            exec_consumed(r->x, (size_t)n);
    }
    if (r->queue_at == r->queue.n) {
        r->queue.n = r->queue_at = 0;
        if (r->export_ended)
            pipe_close(r);
    }
    if (r->pipe_w >= 0)
        io_want(&r->pipe_io, r->queue.n ? IO_WRITE : 0);
}

static void on_pipe(void *arg, int events)
{
    (void)events;
    pipe_flush(arg);
}

static void export_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct recipe_run *r = arg;
    if (chan != CH_STDOUT) {
        log_output(r, p, n);
        exec_consumed(r->x, n);
        return;
    }
    buf_put(&r->queue, p, n); /* bounded by the stream's credit */
    pipe_flush(r);
}

static void export_done(void *arg, const struct err *e)
{
    struct recipe_run *r = arg;
    r->x = NULL;
    if (r->build->done)
        return;
    if (e) {
        build_fail(r->build, e);
        return;
    }
    if (r->again || (r->failed_exit && !r->whole)) {
        r->export_ended = true;
        pipe_flush(r);
        (void)recipe_again(r);
        return;
    }
    if (r->failed_exit && r->status != 1) { /* 1: a file changed while it was read, which is no error here */
        fail(r, E_GUEST, "reading the built file system failed with status %d: %.120s", r->status, r->tail);
        return;
    }
    r->export_ended = r->finished = true;
    pipe_flush(r);
    build_packed(r->build); /* waits for the packer if that is not through yet */
}

bool recipe_again(struct recipe_run *r)
{
    if (!r->exporting || r->whole)
        return false;
    r->again = true;
    if (!r->x && !r->build->pack_running) /* else whichever of the two is left comes here too */
        build_clear(r->build);
    return true;
}

void recipe_whole(struct recipe_run *r)
{
    pipe_close(r);
    r->queue.n = r->queue_at = 0;
    r->again = r->export_ended = false;
    r->whole = true;
    r->build->err = (struct err){0};
    build_log(r->build, "the whole file system is packed, not what changed in it");
    export_start(r);
}

static void export_start(struct recipe_run *r)
{
    static const struct exec_ops ops = {.output = export_output, .exited = on_exited, .done = export_done};
    /* needs GNU's find and tar; status 1 of tar (a file changed) is for the packer to judge */
    static const char changed[] = "cd /; find --version 2>/dev/null | grep -q GNU && tar --version 2>/dev/null | grep -q GNU || exit 3; "
                           "t=$(mktemp -d /run/hutch-XXXXXX) || exit 3; printf '.\\0' >$t/changed; "
                           "find . -xdev \\( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \\) -prune -o \\( -type f -o -type d -o -type l \\) "
                           "-fprintf $t/tree '%%y %%m %%U %%G %%s %%T@ %%P\\0' -newerct @%lld.%09lld -fprint0 $t/more || exit 3; cat $t/more >>$t/changed; "
                           "printf 'tree %%s\\n' $(stat -c %%s $t/tree); cat $t/tree; "
                           "tar --null --no-recursion --numeric-owner --xattrs --xattrs-include='*' -cf - -T $t/changed; s=$?; rm -rf $t; [ $s -le 1 ]";
    auto_free char *how = r->whole ? xstrdup(spool_root) : xasprintf(changed, (long long)(r->since_ns / NS_PER_S), (long long)(r->since_ns % NS_PER_S));
    auto_free char *all = xasprintf("%srm -rf " CONTEXT "; %s", trust_undo, how);
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, all, NULL};
    struct exec_spec s = {.argv = argv, .user = "root", .cwd = "/", .timeout_ms = STEP_MS};
    struct sandbox *sb = box(r);
    struct err e;
    int p[2];
    r->exporting = true;
    if (!sb || pipe2(p, O_CLOEXEC)) {
        fail(r, E_INTERNAL, "the build's sandbox is gone");
        return;
    }
    (void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
    r->pipe_w = p[1];
    (void)fd_nonblock(p[1]);
    io_init(&r->pipe_io, r->build->core->loop, p[1], on_pipe, r);
    build_stage(r->build, 60, 80);
    build_progress(r->build, 0, "packing the file system");
    int rc = build_pack(r->build, p[0], r->whole ? SP_PACK_TAR : SP_PACK_ONTO, r->build->t->parent, &e);
    (void)close(p[0]);
    r->failed_exit = false;
    if (rc || !(r->x = exec_start(sb, &s, &ops, r, &e)))
        build_fail(r->build, &e);
}

/* ---- begin ---- */
static void start(struct recipe_run *r);

static void created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct build *b = build_take(arg);
    if (!b || !b->recipe) {
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the build is over", NULL, NULL, NULL);
        return;
    }
    struct recipe_run *r = b->recipe;
    struct err no;
    if (e && r->cached && e->code != E_QUOTA && e->code != E_UNAVAILABLE) { /* of a machine that is not the one we have now, or damaged: without it */
        struct snapshot *s = map_get(&b->core->snapshots, r->from);
        log_info("build cache: %s is of no use: %s", r->from, e->msg);
        if (s)
            step_drop(s);
        start(r);
        return;
    }
    if (e) {
        build_fail(b, e);
        return;
    }
    memcpy(r->sandbox, sb->id, sizeof r->sandbox);
    if (skip_kept(r, &no)) {
        build_fail(b, &no);
        return;
    }
    if (r->context_fd >= 0 && r->at < r->recipe.nsteps) {
        char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"rm -rf " CONTEXT " && mkdir -p " CONTEXT " && tar -C " CONTEXT " --no-same-owner -xf -"}, NULL};
        build_progress(b, 0, "sending the build context");
        run(r, argv, "root", "/", true);
        return;
    }
    next_step(r);
}

static void already_there(void *arg)
{
    struct build *b = arg;
    struct template *t = template_find(b->core, b->t->name, NULL);
    b->done = true;
    b->ops.done(b->arg, t, NULL);
    build_cancel(b);
}

static char *cmd_text(const struct recipe_cmd *c)
{
    if (!c->argc)
        return NULL;
    if (c->shell)
        return xstrdup(c->argv[0]);
    struct buf b = {0};
    for (size_t i = 0; i < c->argc; i++) {
        if (i)
            buf_putc(&b, ' ');
        shell_quote(&b, c->argv[i]);
    }
    return buf_take(&b);
}

static void start(struct recipe_run *r)
{
    struct build *b = r->build;
    struct core *c = b->core;
    struct err e;
    struct sandbox_spec spec = {.template = b->t->parent, .network = r->network.text ? &r->network : NULL, .tenant = r->tenant,
                                .timeout_s = BUILD_S < c->cfg.max_timeout_s ? BUILD_S : c->cfg.max_timeout_s};
    spec.from = find_kept(r);
    kv_set(&spec.metadata, S("hutch.build"), str_of(b->t->name));
    struct ref *ref = ref_new(c, b->t->id);
    int rc = sandbox_create(c, &spec, created, ref, &e);
    kv_free(&spec.metadata);
    if (!rc)
        return;
    created(ref, NULL, &e);
}

static void planned(struct build *b, struct plan *p)
{
    struct recipe_run *r = b->recipe;
    const struct template *same = template_find(b->core, b->t->name, NULL);
    r->plan = p;
    b->t->content_key = xstrdup(p->content_key);
    if (!r->force && same && same->content_key && !strcmp(same->content_key, p->content_key)) {
        already_there(b);
        return;
    }
    start(r);
}

struct build *build_recipe(struct core *c, const struct recipe_spec *s, const struct build_ops *ops, void *arg, struct err *e)
{
    auto_fd ctx = s->context_fd;
    struct recipe rec;
    unsigned kernels = 0;
    if (recipe_parse(s->text.p, s->text.n, &rec, e))
        return NULL;
    const struct template *parent = template_find(c, rec.debian ? "base" : rec.from, e);
    struct build *b = parent && (!rec.kernels || !kernels_parse(rec.kernels, &kernels, e)) ? build_new(c, s->name, "recipe", ops, arg, e) : NULL;
    if (!b) {
        recipe_fini(&rec);
        return NULL;
    }
    struct recipe_run *r = b->recipe = xcalloc(1, sizeof *r);
    *r = (struct recipe_run){.build = b, .recipe = rec, .parsed = true, .context_fd = take_fd(&ctx), .pipe_w = -1};
    b->t->parent = xstrdup(parent->id);
    r->since_ns = parent->created_ns < clock_wall() ? parent->created_ns : clock_wall(); /* its image was complete before */
    b->t->user = parent->user ? xstrdup(parent->user) : NULL;
    b->t->workdir = parent->workdir ? xstrdup(parent->workdir) : NULL;
    b->t->start = cmd_text(&rec.start), b->t->ready = cmd_text(&rec.ready);
    b->t->kernels = rec.kernels ? kernels : parent->kernels;
    kv_copy(&b->t->env, &parent->env);
    kv_copy(&r->env, &parent->env);
    r->user = xstrdup(parent->user ? parent->user : "root"), r->cwd = xstrdup(parent->workdir ? parent->workdir : "/");
    if (r->context_fd >= 0)
        (void)lseek(r->context_fd, 0, SEEK_SET);
    if (s->network) {
        r->network.text = xstrdup(s->network->text);
        kv_copy(&r->network.values, &s->network->values);
    }
    r->tenant = s->tenant ? xstrdup(s->tenant) : NULL;
    r->force = s->force, r->cached_line = s->cached_line;
    build_stage(b, 2, 60);
    plan_make(b, s, parent, r->context_fd, planned);
    return b;
}
