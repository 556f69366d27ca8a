#include "base/quote.h"

void shell_quote(struct buf *b, const char *s)
{
    buf_putc(b, '\'');
    for (; *s; s++)
        if (*s == '\'')
            buf_puts(b, "'\\''");
        else
            buf_putc(b, *s);
    buf_putc(b, '\'');
}
