#include "gate/mask.h"
#include <stdlib.h>
#include <string.h>

void mask_add(struct mask *m, const char *p, size_t n)
{
    if (n < MASK_MIN || m->n == MASK_MAX)
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
/* Looked for in `p`, hidden in `out`, a copy of it: what one secret hides must not hide another. Returns the end of the last. */
static size_t hide(const struct mask *m, const char *p, size_t n, char *out)
{
    size_t end = 0;
    for (int i = 0; i < m->n; i++) {
        struct str what = m->what[i];
        for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), what.p, what.n)); at++) {
            size_t to = (size_t)(at - p) + what.n;
            memset(out + (at - p), '*', what.n);
            end = to > end ? to : end;
        }
    }
    return end;
}
void mask_all(const struct mask *m, char *p, size_t n)
{
    if (!m->n || !n)
        return;
    char *copy = xmalloc(n);
    memcpy(copy, p, n);
    (void)hide(m, copy, n, p);
    explicit_bzero(copy, n);
    free(copy);
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
    if (!m->tail.n)
        return;
    size_t from = out->n, keep = end ? 0 : pending(m, m->tail.p, m->tail.n),
           give = m->tail.n - keep;
    buf_put(out, m->tail.p, m->tail.n);
    memset(out->p + from, '*', m->hidden);
    size_t covered = hide(m, m->tail.p, m->tail.n, out->p + from);
    covered = covered > m->hidden ? covered : m->hidden;
    m->hidden = covered > give ? covered - give : 0;
    out->n = from + give;
    buf_drop(&m->tail, give);
}
