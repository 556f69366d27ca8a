/* Arguments of a tool, held against the schema that its definition shows to clients: the limits are
 * written down once, in tools.json. Knows as much of JSON Schema as those schemas use. */
#pragma once
#include "json/read.h"

/* -1 + e: E_INVALID, a sentence that names the offender. args NULL: none were sent. */
int args_check(struct json *schema, struct json *args, struct err *e);

/* Members after the check; absent: the schema's default, else the one given. */
struct str args_str(struct json *schema, struct json *args,
                    const char *key); /* p == NULL: absent */
double args_num(struct json *schema, struct json *args, const char *key, double otherwise);
bool args_bool(struct json *schema, struct json *args, const char *key);
