/* Scope-bound ownership: `auto_*` releases at the end of the scope, `take_*`
 * moves ownership out so that the transfer is visible in the expression. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *p) { free(*(void **)p); }
static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* nothing useful can be done about a failed close here */
}
static inline void cleanup_file(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

#define auto_free __attribute__((cleanup(cleanup_free)))
#define auto_fd   __attribute__((cleanup(cleanup_fd))) int
#define auto_file __attribute__((cleanup(cleanup_file))) FILE *

static inline int take_fd(int *fd)
{
    int v = *fd;
    *fd = -1;
    return v;
}
static inline void *take_ptr_(void **p)
{
    void *v = *p;
    *p = NULL;
    return v;
}
#define take_ptr(pp) ((__typeof__(*(pp)))take_ptr_((void **)(pp)))
