/* Which sandboxes there are: filters, order, pages. */
#include "base/buf.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include <stdlib.h>
#include <string.h>

static int newest_first(const void *a, const void *b)
{
    const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
    return x->created_ns < y->created_ns   ? 1
           : x->created_ns > y->created_ns ? -1
                                           : strcmp(x->id, y->id);
}

static bool matches(const struct sandbox *sb, const struct sandbox_filter *f)
{
    if (f->who && !caller_sees(f->who, sandbox_tenant(sb)))
        return false;
    if (f->states ? !(f->states & 1u << sb->state) : sb->state == SB_GONE)
        return false;
    if (f->name && (!sb->name || strcmp(sb->name, f->name)))
        return false;
    if (f->template && strcmp(sb->template_name, f->template) &&
        strcmp(sb->template_id, f->template))
        return false;
    for (size_t i = 0; i < f->meta.n; i++) {
        const char *v = kv_get(&sb->metadata, f->meta.at[i].k);
        if (!v || strcmp(v, f->meta.at[i].v))
            return false;
    }
    return true;
}

size_t sandbox_list(struct core *c, const struct sandbox_filter *f, struct sandbox **ret,
                    size_t max, bool *ret_more, struct err *e)
{
    int64_t before = INT64_MAX;
    *ret_more = false;
    if (f->cursor && *f->cursor && !str_i64(str_of(f->cursor), &before)) {
        err_set(e, E_INVALID, "cursor: not one that this list returned");
        return SIZE_MAX;
    }
    struct sandbox **all = xcalloc(sandboxes(c)->n + 1, sizeof *all);
    struct map_entry *en;
    size_t i = 0, n = 0;
    while ((en = map_next(sandboxes(c), &i))) {
        struct sandbox *sb = en->value;
        if (sb->created_ns < before && matches(sb, f))
            all[n++] = sb;
    }
    qsort(all, n, sizeof *all, newest_first);
    size_t limit = f->limit && f->limit < max ? f->limit : max;
    *ret_more = n > limit;
    if (n > limit)
        n = limit;
    memcpy(ret, all, n * sizeof *all);
    free(all);
    return n;
}
