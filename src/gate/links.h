/* The links of a web page, for an index that says where its files are (PEP 503):
 * the href of its <a> elements and nothing else. What package owners write
 * stands in the same page, in other attributes, text, comments: that must never
 * become a link, so this is a tokenizer after the HTML standard (13.2.5) and no
 * search for addresses. Where readers differ, the doubtful is not a link. Pure,
 * in one pass, with a bounded state. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define LINK_MAX 2048
#define LINK_NAME 32

struct links {
    int state;
    char quote, last[3];
    char tag[LINK_NAME], attr[LINK_NAME], raw[LINK_NAME]; /* of the tag, of its attribute; the element whose content is text alone */
    size_t ntag, nattr, nraw, nvalue;
    bool end, has_href, has_rel, long_value;
    char href[LINK_MAX], value[LINK_MAX];
};
/* A piece of the page, cut anywhere; fn with each link as soon as its tag ends. A link with a `rel` says what a package is about, not where its
 * files are: left out. `l` is all zero at first. */
void links_feed(struct links *l, const char *p, size_t n, void (*fn)(void *arg, const char *href), void *arg);
/* Is it a file of this project: pip-1.0.tar.gz, pip-1.0-py3-none-any.whl? */
bool links_file(const char *href, const char *project);
/* An absolute address of it, seen from the page at `base`: the host is what counts, the path may be missing. NULL: another scheme. The caller frees. */
char *links_resolve(const char *base, const char *href);
