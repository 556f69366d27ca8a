/* Small ordered string map (environment, metadata) and its JSON text form for the store. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stddef.h>

struct json;
struct kv_pair {
    char *k, *v;
};
struct kv {
    struct kv_pair *at;
    size_t n;
};
void kv_set(struct kv *m, struct str k, struct str v); /* replaces */
const char *kv_get(const struct kv *m, const char *k);
void kv_free(struct kv *m);
void kv_copy(struct kv *dst, const struct kv *src); /* dst must be empty */
char *kv_to_json(const struct kv *m);
int kv_from_json(struct kv *m, const char *text, struct err *e);
int kv_from_object(struct kv *m, struct json *j /* NULL: none */, struct err *e);
char **kv_to_env(const struct kv *m); /* NULL-terminated "K=V"; free with env_free */
void env_free(char **env);
