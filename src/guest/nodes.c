#include "guest/nodes.h"
#include "base/buf.h"
#include <string.h>

#define SIZE_MIN 256u

static size_t hash_id(uint64_t id) { return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20); }

static size_t hash_name(const struct node *parent, const char *name)
{
    uint64_t h = 0xcbf29ce484222325ull ^ parent->id;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
    return (size_t)(h ^ h >> 29);
}

static struct node **id_slot(struct nodes *t, uint64_t id)
{
    struct node **p = &t->by_id[hash_id(id) & (t->size - 1)];
    while (*p && (*p)->id != id)
        p = &(*p)->next_id;
    return p;
}

static struct node **name_slot(struct nodes *t, const struct node *parent, const char *name)
{
    struct node **p = &t->by_name[hash_name(parent, name) & (t->size - 1)];
    while (*p && ((*p)->parent != parent || strcmp((*p)->name, name) != 0))
        p = &(*p)->next_name;
    return p;
}

static void grow(struct nodes *t)
{
    size_t size = t->size * 2;
    struct node **ids = xcalloc(size, sizeof *ids), **names = xcalloc(size, sizeof *names);
    for (size_t i = 0; i < t->size; i++)
        for (struct node *n = t->by_id[i], *next; n; n = next) {
            next = n->next_id;
            size_t k = hash_id(n->id) & (size - 1);
            n->next_id = ids[k], ids[k] = n;
            if (!n->parent)
                continue;
            k = hash_name(n->parent, n->name) & (size - 1);
            n->next_name = names[k], names[k] = n;
        }
    free(t->by_id), free(t->by_name);
    t->by_id = ids, t->by_name = names, t->size = size;
}

void nodes_init(struct nodes *t)
{
    *t = (struct nodes){.size = SIZE_MIN, .next = NODE_ROOT + 1};
    t->by_id = xcalloc(t->size, sizeof(struct node *));
    t->by_name = xcalloc(t->size, sizeof(struct node *));
    t->root.id = NODE_ROOT;
    t->by_id[hash_id(NODE_ROOT) & (t->size - 1)] = &t->root;
}

void nodes_fini(struct nodes *t)
{
    for (size_t i = 0; i < t->size; i++)
        for (struct node *n = t->by_id[i], *next; n; n = next) {
            next = n->next_id;
            free(n->name);
            if (n != &t->root)
                free(n);
        }
    free(t->by_id), free(t->by_name);
    *t = (struct nodes){0};
}

struct node *nodes_find(struct nodes *t, uint64_t id) { return *id_slot(t, id); }

/* Without lookups and children a node is of no use to anybody; its parent may then be the same. */
static void release(struct nodes *t, struct node *n)
{
    while (n && n != &t->root && !n->lookups && !n->children) {
        struct node *parent = n->parent;
        if (parent) {
            struct node **p = name_slot(t, parent, n->name);
            *p = n->next_name;
            parent->children--;
        }
        struct node **p = id_slot(t, n->id);
        *p = n->next_id;
        free(n->name);
        free(n);
        t->n--;
        n = parent;
    }
}

static void take_name(struct nodes *t, struct node **slot)
{
    struct node *n = *slot, *parent = n->parent;
    *slot = n->next_name;
    n->next_name = NULL;
    n->parent = NULL;
    parent->children--;
    release(t, n);
    release(t, parent);
}

static void put_name(struct nodes *t, struct node *n, struct node *parent, const char *name)
{
    char *copy = xstrdup(name); /* may be its own old one */
    free(n->name);
    n->name = copy;
    n->parent = parent;
    parent->children++;
    size_t k = hash_name(parent, copy) & (t->size - 1);
    n->next_name = t->by_name[k], t->by_name[k] = n;
}

void nodes_unname(struct nodes *t, struct node *parent, const char *name)
{
    struct node **p = name_slot(t, parent, name);
    if (*p)
        take_name(t, p);
}

struct node *nodes_enter(struct nodes *t, struct node *parent, const char *name, uint64_t ino)
{
    struct node **p = name_slot(t, parent, name);
    if (*p && (*p)->ino == ino) {
        (*p)->lookups++;
        return *p;
    }
    parent->lookups++; /* the kernel holds it, but the count may be at its last */
    if (*p)
        take_name(t, p);
    parent->lookups--;
    if (t->n >= t->size)
        grow(t);
    struct node *n = xcalloc(1, sizeof *n);
    n->id = t->next++;
    n->lookups = 1;
    n->ino = ino;
    size_t k = hash_id(n->id) & (t->size - 1);
    n->next_id = t->by_id[k], t->by_id[k] = n;
    t->n++;
    put_name(t, n, parent, name);
    return n;
}

void nodes_forget(struct nodes *t, uint64_t id, uint64_t lookups)
{
    struct node *n = nodes_find(t, id);
    if (!n || n == &t->root)
        return;
    n->lookups -= lookups < n->lookups ? lookups : n->lookups;
    release(t, n);
}

void nodes_rename(struct nodes *t, struct node *from, const char *name, struct node *to, const char *new_name)
{
    struct node **p = name_slot(t, from, name), *n = *p;
    from->lookups++, to->lookups++;
    if (n) { /* out of the table first: the target may be the same chain */
        n->lookups++;
        take_name(t, p);
    }
    nodes_unname(t, to, new_name);
    if (n) {
        put_name(t, n, to, new_name);
        n->lookups--;
        release(t, n);
    }
    from->lookups--, to->lookups--;
    release(t, from);
    release(t, to);
}

void nodes_exchange(struct nodes *t, struct node *a, const char *a_name, struct node *b, const char *b_name)
{
    struct node *x = *name_slot(t, a, a_name), *y = *name_slot(t, b, b_name);
    if (x == y)
        return;
    a->lookups++, b->lookups++;
    if (x)
        x->lookups++, take_name(t, name_slot(t, a, a_name));
    if (y)
        y->lookups++, take_name(t, name_slot(t, b, b_name));
    if (x)
        put_name(t, x, b, b_name);
    if (y)
        put_name(t, y, a, a_name);
    if (x)
        x->lookups--, release(t, x);
    if (y)
        y->lookups--, release(t, y);
    a->lookups--, b->lookups--;
    release(t, a);
    release(t, b);
}

int nodes_path(const struct node *n, const char *name, char *out, size_t cap)
{
    size_t at = cap - 1;
    out[at] = 0;
    if (name) {
        size_t k = strlen(name);
        if (k > at)
            return -1;
        at -= k;
        memcpy(out + at, name, k);
    }
    for (; n->id != NODE_ROOT; n = n->parent) {
        if (!n->parent)
            return -1;
        size_t k = strlen(n->name);
        if (out[at]) {
            if (!at)
                return -1;
            out[--at] = '/';
        }
        if (k > at)
            return -1;
        at -= k;
        memcpy(out + at, n->name, k);
    }
    memmove(out, out + at, cap - at);
    return 0;
}
