/* A page's links: the same whatever pieces the page comes in, and each of them stands in it after "href". */
#include "gate/links.h"
#include "base/buf.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct seen { struct buf all; const char *page; size_t n; };

static void on_link(void *arg, const char *href)
{
    struct seen *s = arg;
    size_t n = strlen(href);
    if (!n || n >= LINK_MAX || !memmem(s->page, s->n, href, n))
        abort();
    char *to = links_resolve("https://index.test/", href);
    if (to && strncmp(to, "http", 4))
        abort();
    free(to);
    (void)links_file(href, "pip");
    buf_puts(&s->all, href);
    buf_putc(&s->all, '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct links *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    struct seen whole = {.page = (const char *)p, .n = n}, parts = whole;
    size_t step = n ? 1 + p[0] % 7 : 1;
    links_feed(a, (const char *)p, n, on_link, &whole);
    for (size_t i = 0; i < n; i += step)
        links_feed(b, (const char *)p + i, i + step < n ? step : n - i, on_link, &parts);
    if (whole.all.n != parts.all.n || (whole.all.n && memcmp(whole.all.p, parts.all.p, whole.all.n)))
        abort();
    buf_free(&whole.all), buf_free(&parts.all);
    free(a), free(b);
    return 0;
}
