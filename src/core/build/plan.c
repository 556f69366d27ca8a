#include "tier/tier.h"
#include "core/build/plan.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/network/network.h"
#include "crypto/digest.h"
#include "image/context.h"
#include "loop/job.h"
#include "wire/msg.h"
#include "core/host/ref.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(CONTEXT_KEY == RECIPE_KEY, "the files of a COPY are part of its cache key");

struct planning {
    struct ref *ref;
    void (*done)(struct build *b, struct plan *p);
    char *text, *network, *tenant;
    size_t ntext;
    char parent[22];
    const struct tier *tier;
    struct kv env; /* as the steps before have left it */
    int fd;        /* the context; -1: none */
    struct context *files;
    const struct recipe *recipe;
    size_t at;
    struct plan *plan;
};

void plan_free(struct plan *p)
{
    if (!p)
        return;
    free(p->content_key), free(p->key);
    free(p);
}

const char *plan_env(const struct kv *env, const char *name, size_t n)
{
    for (size_t i = 0; i < env->n; i++)
        if (strlen(env->at[i].k) == n && !memcmp(env->at[i].k, name, n))
            return env->at[i].v;
    return n == 4 && !memcmp(name, "PATH", n) ? AGENT_PATH : NULL;
}

static const char *lookup(void *arg, const char *name, size_t n)
{
    return plan_env(&((const struct planning *)arg)->env, name, n);
}

static int set_env(struct planning *p, const struct recipe_step *s, struct err *e)
{
    auto_buf v = {0};
    for (size_t i = 0; i + 1 < s->nwords; i += 2) {
        if (recipe_expand(s->word[i + 1], lookup, p, &v, e))
            return -1;
        kv_set(&p->env, str_of(s->word[i]), (struct str){v.p, v.n});
    }
    return 0;
}

/* The files of a COPY. Its words may name variables, so the ENV steps before it come first. */
static int content(void *arg, size_t step, unsigned char out[RECIPE_KEY], struct err *e)
{
    struct planning *p = arg;
    const struct recipe_step *s = &p->recipe->step[step];
    int rc = p->files ? 0 : err_set(e, E_INVALID, "there is no context");
    for (; !rc && p->at < step; p->at++)
        if (p->recipe->step[p->at].kind == RECIPE_ENV)
            rc = set_env(p, &p->recipe->step[p->at], e);
    char **src = xcalloc(s->nwords + 1, sizeof *src);
    for (size_t i = 0; !rc && i + 1 < s->nwords; i++) {
        struct buf b = {0};
        rc = recipe_expand(s->word[i], lookup, p, &b, e);
        src[i] = buf_take(&b);
    }
    if (!rc)
        context_key(p->files, src, s->nwords - 1, out);
    env_free(src);
    return rc;
}

/* Steps of another tier, tenant or network are other steps; so are those of plain Debian, which begin as root. */
static void base_key(const struct planning *p, bool debian, unsigned char out[RECIPE_KEY])
{
    char tier[16];
    struct sha256 *h = sha256_new();
    (void)snprintf(tier, sizeof tier, "%s", p->tier->name);
    for (const char *const *w =
             (const char *const[]){p->parent, tier, p->tenant ? p->tenant : "",
                                   p->network ? p->network : "", debian ? "debian" : NULL, NULL};
         *w; w++)
        sha256_add(h, *w, strlen(*w) + 1);
    sha256_end(h, out);
}

static void work(void *arg)
{
    struct planning *p = arg;
    struct recipe rec;
    struct err e;
    char hex[SHA256_HEX];
    unsigned char base[RECIPE_KEY];
    struct sha256 *h = sha256_new();
    sha256_add(h, p->parent, strlen(p->parent));
    sha256_add(h, p->text, p->ntext);
    if (p->network)
        sha256_add(h, p->network, strlen(p->network));
    if (p->fd >= 0)
        p->files = context_scan(p->fd, h);
    sha256_end_hex(h, hex);
    p->plan = xcalloc(1, sizeof *p->plan);
    p->plan->content_key = xstrdup(hex);
    if (recipe_parse(p->text, p->ntext, &rec, &e))
        return; /* it was parsed before */
    base_key(p, rec.debian, base);
    p->recipe = &rec;
    p->plan->key = xcalloc(rec.nsteps + 1, RECIPE_KEY);
    if (recipe_keys(&rec, base, content, p, p->plan->key, &e))
        free(take_ptr(&p->plan->key)); /* what is wrong with it the step will say */
    recipe_fini(&rec);
}

static void worked(void *arg)
{
    struct planning *p = arg;
    struct build *b = build_take(p->ref);
    if (b)
        p->done(b, p->plan);
    else
        plan_free(p->plan);
    if (p->fd >= 0)
        (void)close(p->fd);
    context_free(p->files);
    kv_free(&p->env);
    free(p->text), free(p->network), free(p->tenant);
    free(p);
}

void plan_make(struct build *b, const struct recipe_spec *s, const struct template *parent,
               int context_fd, void (*done)(struct build *b, struct plan *p))
{
    struct planning *p = xcalloc(1, sizeof *p);
    *p = (struct planning){.ref = ref_new(b->core, b->t->id),
                           .done = done,
                           .text = xstrndup(s->text.p, s->text.n),
                           .ntext = s->text.n,
                           .network = s->network ? xstrdup(s->network->text) : NULL,
                           .tenant = s->tenant ? xstrdup(s->tenant) : NULL,
                           .tier = b->core->cfg.default_tier,
                           .fd = context_fd < 0 ? -1 : fcntl(context_fd, F_DUPFD_CLOEXEC, 0)};
    memcpy(p->parent, parent->id, sizeof p->parent);
    kv_copy(&p->env, &parent->env);
    job_run(b->core->jobs, work, worked, p);
}
