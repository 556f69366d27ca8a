/* The names a FUSE kernel knows of: node id -> parent and name, counted by its
 * lookups. A node whose name is gone (removed, replaced, or found to be
 * another file) stays until it is forgotten, without a path. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_ROOT 1u

struct node {
    struct node *next_id, *next_name; /* chains of the two tables */
    uint64_t id, lookups, ino;
    struct node *parent;              /* NULL: the root, or nameless */
    unsigned children;                /* nodes that name this as parent */
    char *name;
};

struct nodes {
    struct node **by_id, **by_name;   /* same size, a power of two */
    size_t size, n;
    uint64_t next;
    struct node root;
};

void nodes_init(struct nodes *t);
void nodes_fini(struct nodes *t);
struct node *nodes_find(struct nodes *t, uint64_t id);
/* The node of that name, made or found, with one lookup more. A name that held another file loses it first. */
struct node *nodes_enter(struct nodes *t, struct node *parent, const char *name, uint64_t ino);
void nodes_forget(struct nodes *t, uint64_t id, uint64_t lookups);
void nodes_unname(struct nodes *t, struct node *parent, const char *name);  /* it was removed */
void nodes_rename(struct nodes *t, struct node *from, const char *name, struct node *to, const char *new_name);
void nodes_exchange(struct nodes *t, struct node *a, const char *a_name, struct node *b, const char *b_name);
/* Path from the top, without a slash in front, then "/name" if name is given. -1: nameless, or longer than cap. */
int nodes_path(const struct node *n, const char *name, char *out, size_t cap);
