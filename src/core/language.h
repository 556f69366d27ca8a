/* The languages of code contexts. Pure. */
#pragma once
#include "base/str.h"

enum language { LANG_PYTHON, LANG_JAVASCRIPT, LANG_TYPESCRIPT, LANG_BASH, LANG_R, LANG_JAVA, LANG_COUNT };
const char *language_name(enum language l);
int language_parse(struct str s, enum language *ret); /* any case, spaces around it, and js, ts, py, sh; -1 unknown */
