/* Intrusive doubly linked list; an empty head points at itself. */
#pragma once
#include <stddef.h>
#include <stdbool.h>
struct list { struct list *next, *prev; };
#define LIST_INIT(h) {&(h), &(h)}
static inline void list_init(struct list *h) { h->next = h->prev = h; }
static inline bool list_empty(const struct list *h) { return !h->next || h->next == h; }
static inline void list_add_tail(struct list *h, struct list *n)
{
    n->prev = h->prev, n->next = h, h->prev->next = n, h->prev = n;
}
static inline void list_add(struct list *h, struct list *n)
{
    n->next = h->next, n->prev = h, h->next->prev = n, h->next = n;
}
static inline void list_del(struct list *n) /* safe on a node that is in no list */
{
    if (n->next)
        n->next->prev = n->prev, n->prev->next = n->next;
    n->next = n->prev = NULL;
}
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
/* it: pointer to the entry type; the body may delete the entry itself */
#define list_each(it, head, member)                                                                                    \
    for (struct list *_n_##it = (head)->next, *_m_##it = _n_##it->next;                                                \
         _n_##it != (head) && ((it) = container_of(_n_##it, __typeof__(*(it)), member), 1);                            \
         _n_##it = _m_##it, _m_##it = _n_##it->next)
