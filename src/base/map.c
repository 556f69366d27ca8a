#include "base/map.h"
#include "base/buf.h"
#include "base/enc.h"
#include <string.h>
#include <stdlib.h>

static char tomb[1]; /* the key of a deleted slot: probing goes on past it */

static uint64_t hash(uint64_t seed, const char *k, size_t n)
{
    uint64_t h = seed ^ 0x9e3779b97f4a7c15ULL;
    for (size_t i = 0; i < n; i++) {
        h ^= (unsigned char)k[i];
        h *= 0x100000001b3ULL;
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

static struct map_entry *find(const struct map *m, const char *k, size_t n, struct map_entry **free_slot)
{
    if (free_slot)
        *free_slot = NULL;
    if (!m->cap)
        return NULL;
    for (size_t i = hash(m->seed, k, n) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_entry *e = &m->slot[i];
        if (!e->key) {
            if (free_slot && !*free_slot)
                *free_slot = e;
            return NULL;
        }
        if (e->key == tomb) {
            if (free_slot && !*free_slot)
                *free_slot = e;
        } else if (!strncmp(e->key, k, n) && !e->key[n]) {
            return e;
        }
    }
}

static void grow(struct map *m)
{
    struct map old = *m;
    if (!m->seed)
        random_bytes(&m->seed, sizeof m->seed);
    m->cap = old.n * 4 < 16 ? 16 : old.cap;
    while (m->cap < old.n * 4)
        m->cap *= 2;
    m->slot = xcalloc(m->cap, sizeof *m->slot);
    m->used = m->n;
    for (size_t i = 0; i < old.cap; i++) {
        struct map_entry *e = &old.slot[i], *dst;
        if (!e->key || e->key == tomb)
            continue;
        (void)find(m, e->key, strlen(e->key), &dst);
        *dst = *e;
    }
    free(old.slot);
}

void *map_get_n(const struct map *m, const char *key, size_t n)
{
    struct map_entry *e = find(m, key, n, NULL);
    return e ? e->value : NULL;
}
void *map_get(const struct map *m, const char *key) { return map_get_n(m, key, strlen(key)); }

void *map_set(struct map *m, const char *key, void *value)
{
    if (m->used * 2 >= m->cap)
        grow(m);
    struct map_entry *dst, *e = find(m, key, strlen(key), &dst);
    if (e) {
        void *was = e->value;
        e->value = value;
        return was;
    }
    if (!dst->key)
        m->used++;
    dst->key = xstrdup(key);
    dst->value = value;
    m->n++;
    return NULL;
}

void *map_del(struct map *m, const char *key)
{
    struct map_entry *e = find(m, key, strlen(key), NULL);
    if (!e)
        return NULL;
    free(e->key);
    e->key = tomb;
    m->n--;
    return e->value;
}

struct map_entry *map_next(const struct map *m, size_t *i)
{
    while (*i < m->cap) {
        struct map_entry *e = &m->slot[(*i)++];
        if (e->key && e->key != tomb)
            return e;
    }
    return NULL;
}

void map_free(struct map *m)
{
    size_t i = 0;
    for (struct map_entry *e; (e = map_next(m, &i));)
        free(e->key);
    free(m->slot);
    *m = (struct map){0};
}
