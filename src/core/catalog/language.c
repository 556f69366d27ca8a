#include "core/catalog/language.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *alias;
} languages[LANG_COUNT] = {
    [LANG_PYTHON] = {"python", "py"},
    [LANG_JAVASCRIPT] = {"javascript", "js"},
    [LANG_TYPESCRIPT] = {"typescript", "ts"},
    [LANG_BASH] = {"bash", "sh"},
    [LANG_R] = {"r", "r"},
    [LANG_JAVA] = {"java", "java"},
};

const char *language_name(enum language l) { return languages[l].name; }

int language_parse(struct str s, enum language *ret)
{
    s = str_trim(s);
    for (size_t i = 0; i < LANG_COUNT; i++)
        if (str_ieqz(s, languages[i].name) || str_ieqz(s, languages[i].alias)) {
            *ret = (enum language)i;
            return 0;
        }
    return -1;
}

/* ---- sets of them ---- */
int kernels_parse(const char *text, unsigned *ret, struct err *e)
{
    unsigned set = 0;
    enum language l;
    for (const char *p = text; strcmp(text, "none") && *(p += strspn(p, " \t"));
         p += strcspn(p, " \t")) {
        struct str word = {p, strcspn(p, " \t")};
        if (language_parse(word, &l))
            return err_set(
                e, E_INVALID,
                "kernels: '%.*s' is not a language; python, javascript, typescript, r, java and bash are",
                (int)(word.n > 40 ? 40 : word.n), word.p);
        set |= 1u << l;
    }
    *ret = set;
    return 0;
}

void kernels_format(unsigned set, char out[KERNELS_TEXT])
{
    size_t at = 0;
    *out = 0;
    for (int l = 0; l < LANG_COUNT; l++)
        if (set & 1u << l)
            at += (size_t)snprintf(out + at, KERNELS_TEXT - at, "%s%s", at ? " " : "",
                                   language_name((enum language)l));
}
