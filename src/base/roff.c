#include "base/roff.h"
#include <stdbool.h>

void roff_text(struct buf *out, const char *s)
{
    for (; *s; s++) {
        bool first = !out->n || out->p[out->n - 1] == '\n';
        if (first && (*s == '.' || *s == '\''))
            buf_puts(out, "\\&");
        switch (*s) {
        case '\\': buf_puts(out, "\\e"); break;
        case '-': buf_puts(out, "\\-"); break;
        case '\'': buf_puts(out, "\\(aq"); break;
        case '`': buf_puts(out, "\\(ga"); break;
        case '^': buf_puts(out, "\\(ha"); break;
        case '~': buf_puts(out, "\\(ti"); break;
        default: buf_putc(out, *s);
        }
    }
}
