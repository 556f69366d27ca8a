#include "gate/bind.h"
#include "base/buf.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

#define SLOTS 1024

struct binding { struct binding *next; struct ip ip; int64_t until; char name[]; };

static size_t slot_of(const struct ip *a)
{
    uint64_t h = 1469598103934665603u; /* addresses come from resolvers, not from guests: no need to hide the seed */
    for (int i = 0; i < (a->v6 ? 16 : 4); i++)
        h = (h ^ a->b[i]) * 1099511628211u;
    return (size_t)(h >> 20) % SLOTS;
}

/* Drops what has ended; if nothing had, the one that ends first. */
static void make_room(struct binds *b, int64_t now)
{
    struct binding **first = NULL;
    size_t before = b->n;
    for (size_t i = 0; i < SLOTS; i++)
        for (struct binding **p = &b->slot[i]; *p;) {
            struct binding *x = *p;
            if (x->until <= now) {
                *p = x->next;
                free(x);
                b->n--;
                continue;
            }
            if (!first || x->until < (*first)->until)
                first = p;
            p = &x->next;
        }
    if (b->n == before && first) {
        struct binding *x = *first;
        *first = x->next;
        free(x);
        b->n--;
    }
}

void binds_add(struct binds *b, const struct ip *a, const char *name, uint32_t ttl_s, int64_t now)
{
    if (!b->slot)
        b->slot = xcalloc(SLOTS, sizeof *b->slot);
    int64_t until = now + ((int64_t)(ttl_s > 7 * 86400 ? 7 * 86400 : ttl_s) + BIND_GRACE_S) * NS_PER_S;
    for (struct binding *x = b->slot[slot_of(a)]; x; x = x->next)
        if (ip_eq(&x->ip, a) && !strcmp(x->name, name)) {
            if (until > x->until)
                x->until = until;
            return;
        }
    if (b->n >= BIND_MAX)
        make_room(b, now);
    size_t n = strlen(name) + 1;
    struct binding *x = xmalloc(sizeof *x + n);
    x->ip = *a;
    x->until = until;
    memcpy(x->name, name, n);
    struct binding **slot = &b->slot[slot_of(a)];
    x->next = *slot;
    *slot = x;
    b->n++;
}

bool binds_has(struct binds *b, const struct ip *a, const char *name, int64_t now)
{
    for (struct binding *x = b->slot ? b->slot[slot_of(a)] : NULL; x; x = x->next)
        if (x->until > now && ip_eq(&x->ip, a) && !strcmp(x->name, name))
            return true;
    return false;
}
size_t binds_names(struct binds *b, const struct ip *a, int64_t now, const char **out, size_t cap)
{
    size_t n = 0;
    for (struct binding *x = b->slot ? b->slot[slot_of(a)] : NULL; x && n < cap; x = x->next)
        if (x->until > now && ip_eq(&x->ip, a))
            out[n++] = x->name;
    return n;
}
void binds_free(struct binds *b)
{
    for (size_t i = 0; b->slot && i < SLOTS; i++)
        for (struct binding *x = b->slot[i], *next; x; x = next) {
            next = x->next;
            free(x);
        }
    free(b->slot);
    *b = (struct binds){0};
}
