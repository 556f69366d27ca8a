/* What to type next: the CLI's own words for the reasons of base/err.h. */
#pragma once
#include "base/err.h"
#include <stddef.h>

/* NULL: the server's hint is as good. "": none. "{}" stands for what the request was about. */
const char *cli_hint(enum err_why why);
/* target: "/v1/sandboxes/NAME/…": NAME goes into the hint, "ID" if there is none. */
void cli_hint_fill(const char *hint, const char *target, char *out, size_t cap);
/* The status a shell would give, if the error is about the program to run; 0 otherwise. */
int cli_exit_of(enum err_why why);
