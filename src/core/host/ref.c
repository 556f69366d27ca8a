#include "core/host/ref.h"
#include "base/buf.h"
#include "core/host/host.h"
#include <stdio.h>

struct ref *ref_new(struct core *c, const char *id)
{
    struct ref *r = xcalloc(1, sizeof *r);
    r->core = c;
    (void)snprintf(r->id, sizeof r->id, "%s", id);
    list_add_tail(&c->refs, &r->link);
    return r;
}

struct ref ref_take(void *ref)
{
    struct ref r = *(struct ref *)ref;
    list_del(&((struct ref *)ref)->link);
    free(ref);
    return r;
}

void refs_free(struct core *c)
{
    struct ref *r;
    list_each(r, &c->refs, link)
        (void)ref_take(r);
}
