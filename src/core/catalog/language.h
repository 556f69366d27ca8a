/* The languages of code contexts, and sets of them: the kernels that a template starts ahead. Pure. */
#pragma once
#include "base/err.h"
#include "base/str.h"

enum language {
    LANG_PYTHON,
    LANG_JAVASCRIPT,
    LANG_TYPESCRIPT,
    LANG_BASH,
    LANG_R,
    LANG_JAVA,
    LANG_COUNT
};
const char *language_name(enum language l);
int language_parse(
    struct str s,
    enum language *ret); /* any case, spaces around it, and js, ts, py, sh; -1 unknown */

#define KERNELS_TEXT 64
int kernels_parse(const char *text /* names and blanks, or "none" */, unsigned *ret, struct err *e);
void kernels_format(unsigned set, char out[KERNELS_TEXT]);
