#include "core/language.h"

static const struct { const char *name, *alias; } languages[LANG_COUNT] = {
    [LANG_PYTHON] = {"python", "py"}, [LANG_JAVASCRIPT] = {"javascript", "js"}, [LANG_TYPESCRIPT] = {"typescript", "ts"},
    [LANG_BASH] = {"bash", "sh"},     [LANG_R] = {"r", "r"},                    [LANG_JAVA] = {"java", "java"},
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
