/* Reader for tests/vectors/http: "key value" lines, cases end at an empty line. */
#pragma once
#include "base/buf.h"
#include "test.h"
#include <stdbool.h>

struct vector { char name[128], kind[64], out[256]; struct buf in; };

static inline void unescape(const char *s, struct buf *b)
{
    for (; *s; s++) {
        if (*s != '\\') {
            buf_putc(b, *s);
            continue;
        }
        s++;
        if (*s == 'x') {
            char t[3] = {s[1], s[2], 0};
            buf_putc(b, (char)strtol(t, NULL, 16));
            s += 2;
        } else {
            buf_putc(b, *s == 'r' ? '\r' : *s == 'n' ? '\n' : *s == 't' ? '\t' : *s);
        }
    }
}
static inline int vectors_each(const char *path, void (*fn)(struct vector *v))
{
    FILE *f = fopen(path, "re");
    char line[8192];
    int n = 0;
    struct vector v = {0};
    CHECK(f);
    for (;;) {
        bool end = !fgets(line, sizeof line, f);
        size_t len = end ? 0 : strlen(line);
        if (len && line[len - 1] == '\n')
            line[--len] = 0;
        if (!len && v.name[0]) {
            fn(&v);
            n++;
            buf_free(&v.in);
            v = (struct vector){0};
        }
        if (end)
            break;
        if (!strncmp(line, "case ", 5))
            snprintf(v.name, sizeof v.name, "%.120s", line + 5);
        else if (!strncmp(line, "kind ", 5))
            snprintf(v.kind, sizeof v.kind, "%.60s", line + 5);
        else if (!strncmp(line, "in ", 3))
            unescape(line + 3, &v.in);
        else if (!strncmp(line, "out ", 4))
            snprintf(v.out, sizeof v.out, "%.250s", line + 4);
    }
    fclose(f);
    return n;
}
