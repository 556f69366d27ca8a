#include "gate/mask.h"
#include <stdlib.h>
#include <string.h>

void mask_add(struct mask *m, const char *p, size_t n)
{
    if (n < 4 || m->n == MASK_MAX)
        return;
    for (int i = 0; i < m->n; i++)
        if (str_eq(m->what[i], (struct str){p, n}))
            return;
    m->what[m->n++] = (struct str){xstrndup(p, n), n};
}
void mask_clear(struct mask *m)
{
    for (int i = 0; i < m->n; i++) {
        explicit_bzero((char *)(uintptr_t)m->what[i].p, m->what[i].n);
        free((char *)(uintptr_t)m->what[i].p);
    }
    buf_free(&m->tail);
    *m = (struct mask){0};
}
void mask_all(const struct mask *m, char *p, size_t n)
{
    for (int i = 0; i < m->n; i++)
        for (char *at = p; (at = memmem(at, n - (size_t)(at - p), m->what[i].p, m->what[i].n)); at += m->what[i].n)
            memset(at, '*', m->what[i].n);
}
/* How many bytes at the end could be the beginning of a secret? */
static size_t pending(const struct mask *m, const char *p, size_t n)
{
    size_t most = 0;
    for (int i = 0; i < m->n; i++) {
        size_t k = m->what[i].n - 1 < n ? m->what[i].n - 1 : n;
        for (; k > most; k--)
            if (!memcmp(p + n - k, m->what[i].p, k)) {
                most = k;
                break;
            }
    }
    return most;
}
void mask_push(struct mask *m, const char *p, size_t n, bool end, struct buf *out)
{
    if (!m->n) {
        buf_put(out, p, n);
        return;
    }
    buf_put(&m->tail, p, n);
    mask_all(m, m->tail.p, m->tail.n);
    size_t keep = end ? 0 : pending(m, m->tail.p, m->tail.n), give = m->tail.n - keep;
    buf_put(out, m->tail.p, give);
    buf_drop(&m->tail, give);
}
