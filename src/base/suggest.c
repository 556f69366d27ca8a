#include "base/suggest.h"
#include <string.h>

static int distance(const char *a, const char *b) /* Levenshtein, for short words */
{
    enum { MAX = 32 };
    int n = (int)strlen(a), m = (int)strlen(b), row[MAX + 1];
    if (n > MAX || m > MAX)
        return MAX;
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diag = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[m];
}

const char *suggest(const char *word, const char *(*at)(const void *arg, int i), const void *arg)
{
    const char *best = NULL, *c;
    int limit = strlen(word) <= 3 ? 1 : strlen(word) <= 6 ? 2 : 3, best_d = limit + 1;
    for (int i = 0; (c = at(arg, i)); i++) {
        size_t n = strlen(word);
        int d = n >= 2 && !strncmp(c, word, n) ? 1 : distance(word, c);
        if (d < best_d)
            best = c, best_d = d;
    }
    return best;
}
