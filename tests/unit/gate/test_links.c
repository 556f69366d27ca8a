#include "gate/links.h"
#include "base/buf.h"
#include "test.h"

static void on_link(void *arg, const char *href)
{
    buf_puts(arg, href);
    buf_putc(arg, '\n');
}
/* The links of a page, and the same whatever pieces it comes in. */
static const char *links(const char *page)
{
    static char first[4096];
    for (size_t step = 0; step < 4; step++) {
        struct links *l = xcalloc(1, sizeof *l);
        struct buf b = {0};
        size_t n = strlen(page), piece = step ? step : n;
        buf_puts(&b, "");
        for (size_t i = 0; i < n; i += piece)
            links_feed(l, page + i, i + piece < n ? piece : n - i, on_link, &b);
        if (!step)
            snprintf(first, sizeof first, "%s", b.p ? b.p : "");
        CHECK_STR(b.p ? b.p : "", first);
        buf_free(&b);
        free(l);
    }
    return first;
}

TEST(links, of_an_index)
{
    CHECK_STR(links("<!DOCTYPE html>\n<html><body><h1>Links for pip</h1>\n"
                    "<a href=\"https://files.example.org/pip-1.0.tar.gz#sha256=00\" data-requires-python=\"&gt;=3\">pip-1.0.tar.gz</a><br/>\n"
                    "<A HREF='../../x/pip-1.1-py3-none-any.whl' >pip</A>\n<a\thref = pip-1.2.zip>x</a><a href=\"/pip-1.3.zip\"/>"
                    "<a rel=\"internal\" href=/pip-1.4.zip>x</a>"),
              "https://files.example.org/pip-1.0.tar.gz#sha256=00\n../../x/pip-1.1-py3-none-any.whl\npip-1.2.zip\n/pip-1.3.zip\n/pip-1.4.zip\n");
}

/* Everything a package's owner may write into such a page, and nothing of it is a link. */
TEST(links, nothing_else_is_one)
{
    static const char *const page[] = {
        "https://evil.test/pip-1.0.whl",
        "<p>see https://evil.test/pip-1.0.whl and href=\"https://evil.test/pip-1.0.whl\"</p>",
        "<a data-yanked=\"See https://evil.test/pip-1.0.whl\">x</a>",
        "<a title='href=\"https://evil.test/\"' data-href=https://evil.test/ xhref=https://evil.test/ href-x=https://evil.test/>x</a>",
        "<a data-yanked=\"><a href='https://evil.test/pip-1.0.whl'>\">x</a>",
        "<a data-yanked='\"><a href=\"https://evil.test/pip-1.0.whl\">'>x</a>",
        "<!-- <a href=\"https://evil.test/pip-1.0.whl\">x</a> -->",
        "<!-- a -- > - -> --!x <a href=\"https://evil.test/\">x</a> -->",
        "<!-- a --!><a data-yanked=\"--><a href='https://evil.test/pip-1.0.whl'>\">x</a>",
        "<!--!><a href=\"https://evil.test/pip-1.0.whl\">-->", "<!---!><a href=\"https://evil.test/pip-1.0.whl\">-->",
        "<script><!--<script></script><a href=\"https://evil.test/pip-1.0.whl\">--></script>",
        "<plaintext></plaintext><a href=\"https://evil.test/pip-1.0.whl\">",
        "<svg><a data-yanked=\"</svg><a href='https://evil.test/pip-1.0.whl'>\">x</a></svg><a href=https://evil.test/>",
        "<!x --> <a href=https://evil.test/", /* never ends */
        "<? <a href=https://evil.test/ ?>",
        "<![CDATA[ <a href=https://evil.test/",
        "<script>'<a href=\"https://evil.test/pip-1.0.whl\">'</script>",
        "<style><a href=\"https://evil.test/pip-1.0.whl\"></style>",
        "<title><a href=\"https://evil.test/pip-1.0.whl\"></title>",
        "<textarea></textare><a href=\"https://evil.test/pip-1.0.whl\"></textarea >",
        "<noscript><a href=\"https://evil.test/pip-1.0.whl\"></noscript>",
        "<template><a href=\"https://evil.test/pip-1.0.whl\"></template>",
        "<SCRIPT></scriptx><a href=\"https://evil.test/pip-1.0.whl\"></SCRIPT>",
        "<abbr href=https://evil.test/>", "<link href=https://evil.test/>", "<base href=https://evil.test/>", "<area href=https://evil.test/>",
        "</a href=https://evil.test/>", "< a href=https://evil.test/>", "&lt;a href=https://evil.test/&gt;",
        "<a href>", "<a href=>", "<a href=\"\">", "<a rel=homepage href=https://evil.test/pip-1.0.zip>", "<a href=https://evil.test/pip-1.0.zip rel=\"download\">",
        "<a =href=https://evil.test/>", "<a href\"=https://evil.test/>", "<a href=\"https://evil.test/>",
    };
    for (size_t i = 0; i < sizeof page / sizeof *page; i++) {
        if (strcmp(links(page[i]), ""))
            printf("# %s\n", page[i]);
        CHECK_STR(links(page[i]), "");
    }
    CHECK_STR(links("<a href=\"first\" href=\"https://evil.test/\">"), "first\n");
}

TEST(links, goes_on_after_what_it_leaves_out)
{
    CHECK_STR(links("<!--><a href=1><!---><a href=2><!----><a href=3><!-- a --!><a href=4><!----!><a href=5>"), "1\n2\n3\n4\n5\n");
    CHECK_STR(links("<!-- a -- b --><a href=1><script> a<b </script\n><a href=2></x><a href=3 data-yanked=\"a > b\"><a href=4><<a href=5></><a href=6>"), "1\n2\n3\n4\n5\n6\n");
}

TEST(links, long_ones_are_dropped)
{
    struct buf b = {0};
    buf_puts(&b, "<a href=\"https://x.test/");
    for (int i = 0; i < 5000; i++)
        buf_putc(&b, 'x');
    buf_puts(&b, "\"><a href=next>");
    CHECK_STR(links(b.p), "next\n");
    buf_free(&b);
}

TEST(links, files_of_a_project)
{
    static const char *const yes[] = {"pip-1.0.tar.gz", "https://x.test/a/pip-1.0-py3-none-any.whl#sha256=1", "../pip-1.0.zip?x=/y", "//x.test/PIP-1.tar.bz2", "/pip-1.tgz"};
    static const char *const no[] = {"", "https://x.test/", "https://x.test/pip/", "https://x.test/pip-1.0", "https://x.test/notpip-1.0.zip", "https://x.test/pip-1.0.zip/", "https://x.test/?pip-1.0.zip",
                                     "https://x.test/#pip-1.0.zip", "https://pip-1.0.zip/x", "https://pip-1.0.zip", "//pip-1.0.zip", "https://pip-1.0.zip?/", "pip-.whl2", "pip.zip", "pipx-1.0.zip"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        CHECK(links_file(yes[i], "pip"));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK(!links_file(no[i], "pip"));
}

TEST(links, seen_from_their_page)
{
    static const struct { const char *href, *to; } t[] = {
        {"HTTPS://x.test/a", "https://x.test/a"}, {" http://x.test/a", "http://x.test/a"}, {"//x.test/a", "https://x.test/a"}, {"../a", "https://index.test/simple/pip/"},
        {"/a", "https://index.test/simple/pip/"}, {"a/b:c", "https://index.test/simple/pip/"}, {"ftp://x.test/a", NULL}, {"javascript:pip-1.zip", NULL}, {"https:x", NULL}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char *got = links_resolve("https://index.test/simple/pip/", t[i].href);
        if (t[i].to)
            CHECK_STR(got ? got : "none", t[i].to);
        else
            CHECK(!got);
        free(got);
    }
}
TEST_MAIN
