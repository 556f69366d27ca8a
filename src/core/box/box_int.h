/* Private to the box files of core/: box.c, box_start.c, box_configure.c. */
#pragma once
#include "core/box/box.h"
#include "core/host/ref.h"

/* -- box.c -- */
void box_enter(struct box *b); /* among boxes(c), under its id */
void box_remove_now(
    struct box *b); /* the rest of box_remove: nothing of it is under way any more */
void box_finish(struct box *b,
                const struct err *e); /* the operation in flight ends: exactly one callback */
void box_ended(struct box *b, enum end_reason why, const char *message,
               bool host_fault); /* by itself; who has it hears */
/* Waits that no object of ours can cancel: the box may be gone when they end. */
struct ref *box_ref(const struct box *b);
struct box *box_of(const struct ref *r); /* NULL: it is gone, or going */
struct box *box_take(void *ref);         /* likewise; frees the reference */

/* -- box_configure.c -- */
void box_overdue(void *arg); /* its deadline has passed */
