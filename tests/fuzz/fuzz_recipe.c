/* Recipes: whatever parses must be within its bounds, expand, describe as one
 * line and hash the same twice. */
#include "base/buf.h"
#include "image/recipe.h"
#include <stdlib.h>
#include <string.h>

static const char *lookup(void *arg, const char *name, size_t n)
{
    (void)arg;
    return n % 3 == 0 ? NULL : n % 3 == 1 ? "" : name; /* to the end of the word: long, with $ and } in it */
}

static int content(void *arg, size_t step, unsigned char out[RECIPE_KEY], struct err *e)
{
    (void)arg, (void)e;
    memset(out, (int)step, RECIPE_KEY);
    return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    static const unsigned char base[RECIPE_KEY];
    static unsigned char k1[RECIPE_STEPS_MAX][RECIPE_KEY], k2[RECIPE_STEPS_MAX][RECIPE_KEY];
    struct recipe r;
    struct err e = {0};
    if (recipe_parse((const char *)data, n, &r, &e) < 0) {
        if (!e.code || !*e.msg)
            abort();
        return 0;
    }
    if (!r.from || r.nsteps > RECIPE_STEPS_MAX)
        abort();
    for (size_t i = 0; i < r.nsteps; i++) {
        struct recipe_step *s = &r.step[i];
        auto_buf out = {0};
        if (s->nwords > RECIPE_WORDS_MAX || s->line < 1 || (s->kind == RECIPE_RUN) != (s->cmd.argc > 0) || (s->kind == RECIPE_ENV && s->nwords % 2))
            abort();
        for (size_t k = 0; k < s->nwords; k++)
            if (recipe_expand(s->word[k], lookup, NULL, &out, &e) == 0 && out.n > RECIPE_LINE_MAX)
                abort();
        out.n = 0;
        recipe_describe(s, &out);
        if (memchr(out.p, '\n', out.n))
            abort();
    }
    if (recipe_keys(&r, base, content, NULL, k1, &e) < 0 || recipe_keys(&r, base, content, NULL, k2, &e) < 0 || memcmp(k1, k2, r.nsteps * RECIPE_KEY))
        abort();
    recipe_fini(&r);
    return 0;
}
