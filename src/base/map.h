/* String -> pointer hash map with open addressing; keys are copied, values
 * borrowed. The seed is random per process, so clients cannot aim collisions. */
#pragma once
#include <stddef.h>
#include <stdint.h>
struct map_entry { char *key; void *value; };
struct map { struct map_entry *slot; size_t cap, n, used; uint64_t seed; };
void *map_get(const struct map *m, const char *key);
void *map_get_n(const struct map *m, const char *key, size_t n);
void *map_set(struct map *m, const char *key, void *value); /* returns the earlier value or NULL */
void *map_del(struct map *m, const char *key);              /* returns the removed value or NULL */
void map_free(struct map *m);
/* Iterate: size_t i = 0; while ((e = map_next(&m, &i))) … ; do not insert meanwhile, deleting is fine. */
struct map_entry *map_next(const struct map *m, size_t *i);
