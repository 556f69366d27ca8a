#include "json/kv.h"
#include "base/buf.h"
#include "json/read.h"
#include "json/write.h"
#include <stdlib.h>

void kv_set(struct kv *m, struct str k, struct str v)
{
    for (size_t i = 0; i < m->n; i++)
        if (str_eqz(k, m->at[i].k)) {
            free(m->at[i].v);
            m->at[i].v = xstrndup(v.p, v.n);
            return;
        }
    m->at = xrealloc(m->at, (m->n + 1) * sizeof *m->at);
    m->at[m->n++] = (struct kv_pair){xstrndup(k.p, k.n), xstrndup(v.p, v.n)};
}
const char *kv_get(const struct kv *m, const char *k)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->at[i].k, k))
            return m->at[i].v;
    return NULL;
}
void kv_free(struct kv *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->at[i].k), free(m->at[i].v);
    free(m->at);
    *m = (struct kv){0};
}
void kv_copy(struct kv *dst, const struct kv *src)
{
    for (size_t i = 0; i < src->n; i++)
        kv_set(dst, str_of(src->at[i].k), str_of(src->at[i].v));
}
char *kv_to_json(const struct kv *m)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    for (size_t i = 0; i < m->n; i++)
        jw_kv_str(&w, m->at[i].k, m->at[i].v);
    jw_end(&w);
    return buf_take(&b);
}
int kv_from_object(struct kv *m, struct json *j, struct err *e)
{
    if (!j)
        return 0;
    if (json_kind(j) != JSON_OBJ)
        return err_set(e, E_INVALID, "not an object");
    for (void *it = json_first(j); it; it = json_next(j, it)) {
        struct str v;
        if (json_to_str(json_iter_value(j, it), &v, e))
            return -1;
        kv_set(m, json_iter_key(it), v);
    }
    return 0;
}
int kv_from_json(struct kv *m, const char *text, struct err *e)
{
    if (!text || !*text)
        return 0;
    auto_json j = json_parse_obj(text, strlen(text), e);
    return j ? kv_from_object(m, j, e) : -1;
}
char **kv_to_env(const struct kv *m)
{
    char **env = xcalloc(m->n + 1, sizeof *env);
    for (size_t i = 0; i < m->n; i++)
        env[i] = xasprintf("%s=%s", m->at[i].k, m->at[i].v);
    return env;
}
void env_free(char **env)
{
    for (char **p = env; p && *p; p++)
        free(*p);
    free(env);
}
