/* apidoc FILE: writes the reference part of docs/api.md, all below the marker, from the tables of the API.
 * apidoc --check FILE: says whether the page is as it would be written.
 * apidoc --openapi: prints the OpenAPI document, with the limits of a daemon that has no settings. */
#include "api/apidoc.h"
#include "api/native/native.h"
#include "api/openapi.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKER \
    "<!-- made by `make docs` from the tables in src/api/native: do not edit below this line -->\n"
#define PAGE_MAX (4u << 20)

int main(int argc, char **argv)
{
    bool check = argc == 3 && !strcmp(argv[1], "--check");
    const char *file = argc > 1 ? argv[argc - 1] : NULL;
    if (argc == 2 && !strcmp(argv[1], "--openapi")) {
        auto_buf doc = {0};
        openapi_write(&doc, &native_table, NULL);
        return fwrite(doc.p, 1, doc.n, stdout) != doc.n || fflush(stdout);
    }
    if (argc != 2 && !check) {
        (void)fprintf(stderr, "usage: apidoc [--check] docs/api.md, or apidoc --openapi\n");
        return 2;
    }
    auto_free char *old = fd_slurp_at(AT_FDCWD, file, PAGE_MAX, NULL);
    char *at = old ? strstr(old, MARKER) : NULL;
    if (!at) {
        (void)fprintf(stderr, "apidoc: %s cannot be read, or has no line\n%s", file, MARKER);
        return 1;
    }
    auto_buf page = {0};
    buf_put(&page, old, (size_t)(at - old) + strlen(MARKER));
    apidoc_write(&page, &native_table);
    bool same = page.n == strlen(old) && !memcmp(page.p, old, page.n);
    if (check) {
        if (!same)
            (void)fprintf(stderr, "%s is not what the tables say: run `make docs`\n", file);
        return same ? 0 : 1;
    }
    FILE *f = same ? NULL : fopen(file, "w");
    if (!same && (!f || fwrite(page.p, 1, page.n, f) != page.n || fclose(f))) {
        perror(file);
        return 1;
    }
    return 0;
}
