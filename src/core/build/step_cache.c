#include "core/build/step_cache.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include <stdlib.h>
#include <string.h>

#define KEPT_S (7 * 24 * 3600)

static struct snapshot *next_step(struct core *c, size_t *at)
{
    struct map_entry *en;
    while ((en = map_next(snapshots(c), at))) {
        struct snapshot *s = en->value;
        if (snapshot_step(s) && !s->deleted && !s->making)
            return s;
    }
    return NULL;
}

void step_drop(struct snapshot *s)
{
    (void)snapshot_delete(s, NULL, NULL, NULL); /* refused only if it is deleted already */
}

static int64_t last_used(const struct snapshot *s)
{
    return s->used_ns ? s->used_ns : s->created_ns;
}

/* One at a time: its files may stay a while if something stands on them, but it does not count any more. */
static void trim(struct core *c)
{
    uint64_t cap = (uint64_t)c->cfg.build_cache_mib << 20, sum;
    struct snapshot *s, *oldest;
    do {
        sum = 0, oldest = NULL;
        for (size_t i = 0; (s = next_step(c, &i));) {
            sum += s->memory_bytes + s->disk_bytes;
            if (!oldest || last_used(s) < last_used(oldest))
                oldest = s;
        }
        if (sum > cap && oldest) {
            log_debug("build cache: removing %s, %llu MiB over the limit", oldest->id,
                      (unsigned long long)((sum - cap) >> 20));
            step_drop(oldest);
        }
    } while (sum > cap && oldest);
}

struct snapshot *step_find(struct core *c, const unsigned char key[RECIPE_KEY])
{
    char hex[2 * RECIPE_KEY + 1];
    struct snapshot *s;
    hex_encode(key, RECIPE_KEY, hex);
    for (size_t i = 0; (s = next_step(c, &i));)
        if (!strcmp(snapshot_step(s), hex)) {
            s->used_ns = clock_wall();
            return s;
        }
    return NULL;
}

struct keeping {
    void (*done)(void *arg, const struct err *e);
    void *arg;
};

static void kept(void *arg, struct snapshot *s, const struct err *e)
{
    struct keeping k = *(struct keeping *)arg;
    struct snapshot *other;
    free(arg);
    for (size_t i = 0;
         s && (other = next_step(
                   s->core, &i));) /* an older one of the same, of a build that used no cache */
        if (other != s && !strcmp(snapshot_step(other), snapshot_step(s)))
            step_drop(other);
    if (s)
        trim(s->core);
    k.done(k.arg, e);
}

int step_keep(struct sandbox *sb, const unsigned char key[RECIPE_KEY],
              void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
    struct core *c = sb->core;
    struct keeping *k = xcalloc(1, sizeof *k);
    struct snapshot_spec how = {.expires_s = KEPT_S};
    _Static_assert(sizeof how.step == 2 * RECIPE_KEY + 1, "a key in hex");
    hex_encode(key, RECIPE_KEY, how.step);
    *k = (struct keeping){done, arg};
    int rc = c->cfg.build_cache_mib
                 ? snapshot_take(sb, &how, kept, k, e)
                 : err_set(e, E_UNSUPPORTED, "the build cache is off (HUTCH_BUILD_CACHE)");
    if (rc)
        free(k);
    return rc;
}

void steps_drop(struct core *c, const char *template_id)
{
    struct snapshot *s;
    for (size_t i = 0; (s = next_step(c, &i));)
        if (!strcmp(s->template_id, template_id))
            step_drop(s);
}

void steps_recover(struct core *c)
{
    struct snapshot *s;
    for (size_t i = 0; (s = next_step(c, &i));)
        if (!template_at(c, s->template_id))
            step_drop(s);
    trim(c);
}
