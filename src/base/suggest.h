/* "Did you mean": the closest of some words to one that is not known. */
#pragma once
/* at(arg, i) gives the candidates one after the other, NULL at the end. Returns NULL if none is close. */
const char *suggest(const char *word, const char *(*at)(const void *arg, int i), const void *arg);
