#include "core/sandbox/kept.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "json/read.h"
#include "json/write.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Stored as a member of the same name; `old` is what the map of schema 5 called it. */
static const struct text {
    const char *name, *old;
    size_t at;
} texts[] = {
    {"tenant", "tenant", offsetof(struct kept, tenant)},
    {"preview_token", "preview_token", offsetof(struct kept, preview_token)},
    {"preview_mask_host", "preview_mask_host", offsetof(struct kept, preview_mask_host)},
    {"base", "snapshot.base", offsetof(struct kept, base)},
    {"last", "snapshot.last", offsetof(struct kept, last)},
    {"policy", "network", offsetof(struct kept, policy)},
    {"ca_cert", "network.ca", offsetof(struct kept, ca_cert)},
    {"ca_key", "network.ca_key", offsetof(struct kept, ca_key)},
};
static const struct map_member {
    const char *name, *old;
    size_t at;
} maps[] = {
    {"inside_env", "env:", offsetof(struct kept, inside_env)},
    {"inside_files", "file:", offsetof(struct kept, inside_files)},
    {"dialect", NULL, offsetof(struct kept, dialect)},
};
#define NTEXTS (sizeof texts / sizeof *texts)
#define NMAPS  (sizeof maps / sizeof *maps)

static char **text_of(const struct kept *k, const struct text *t)
{
    return (char **)((char *)(uintptr_t)k + t->at);
}
static struct kv *map_of(const struct kept *k, const struct map_member *m)
{
    return (struct kv *)((char *)(uintptr_t)k + m->at);
}

void kept_set(char **member, const char *value)
{
    char *old = *member;
    *member = value && *value ? xstrdup(value) : NULL;
    free(old);
}

void kept_free(struct kept *k)
{
    for (size_t i = 0; i < NTEXTS; i++)
        free(*text_of(k, &texts[i]));
    for (size_t i = 0; i < NMAPS; i++)
        kv_free(map_of(k, &maps[i]));
    *k = (struct kept){0};
}

void kept_copy(struct kept *dst, const struct kept *src)
{
    kept_set(&dst->preview_token, src->preview_token);
    kept_set(&dst->preview_mask_host, src->preview_mask_host);
    for (size_t i = 0; i < NMAPS; i++)
        kv_copy(map_of(dst, &maps[i]), map_of(src, &maps[i]));
}

static bool said_once(const char *key)
{
    size_t n = strlen(key);
    return n > 5 && !strcmp(key + n - 5, "_once");
}

void kept_fork(struct kept *dst, const struct kept *src)
{
    struct kept mine = *src; /* borrows all of it but the token and the dialect's map */
    unsigned char fresh[20];
    char token[41];
    random_bytes(fresh, sizeof fresh);
    hex_encode(fresh, sizeof fresh, token);
    mine.preview_token = src->preview_token ? token : NULL;
    mine.dialect = (struct kv){0};
    for (size_t i = 0; i < src->dialect.n; i++)
        if (!said_once(src->dialect.at[i].k))
            kv_set(&mine.dialect, str_of(src->dialect.at[i].k), str_of(src->dialect.at[i].v));
    kept_copy(dst, &mine);
    kv_free(&mine.dialect);
}

/* ---- stored ---- */
char *kept_to_json(const struct kept *k)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    for (size_t i = 0; i < NTEXTS; i++)
        if (*text_of(k, &texts[i]))
            jw_kv_str(&w, texts[i].name, *text_of(k, &texts[i]));
    if (k->network_due)
        jw_kv_bool(&w, "network_due", true);
    for (size_t i = 0; i < NMAPS; i++) {
        auto_free char *map = kv_to_json(map_of(k, &maps[i]));
        if (map_of(k, &maps[i])->n)
            jw_kv_raw(&w, maps[i].name, str_of(map));
    }
    jw_end(&w);
    return buf_take(&b);
}

int kept_from_json(struct kept *k, const char *text, struct err *e)
{
    auto_json j = json_parse_obj(text, strlen(text), e);
    struct str v;
    if (!j || json_bool(j, "network_due", false, &k->network_due, e))
        return -1;
    for (size_t i = 0; i < NTEXTS; i++) {
        v = (struct str){0};
        if (json_str(j, texts[i].name, &v, false, e))
            return -1;
        kept_set(text_of(k, &texts[i]), v.p);
    }
    for (size_t i = 0; i < NMAPS; i++)
        if (kv_from_object(map_of(k, &maps[i]), json_get(j, maps[i].name), e))
            return -1;
    return 0;
}

/* Version 0.1.0 named these after the dialect that set them: DIALECT.traffic_token. */
static bool ends(const char *key, const char *end)
{
    const char *dot = strchr(key, '.');
    return dot && !strcmp(dot, end);
}

static void from_option(struct kept *k, const char *key, const char *value)
{
    for (size_t i = 0; i < NTEXTS; i++)
        if (!strcmp(key, texts[i].old)) {
            kept_set(text_of(k, &texts[i]), value);
            return;
        }
    for (size_t i = 0; i < NMAPS; i++)
        if (maps[i].old && !strncmp(key, maps[i].old, strlen(maps[i].old))) {
            kv_set(map_of(k, &maps[i]), str_of(key + strlen(maps[i].old)), str_of(value));
            return;
        }
    if (!strcmp(key, "network.due"))
        k->network_due = *value;
    else if (ends(key, ".traffic_token"))
        kept_set(&k->preview_token, value);
    else if (ends(key, ".mask_host"))
        kept_set(&k->preview_mask_host, value);
    else
        kv_set(&k->dialect, str_of(key), str_of(value));
}

int kept_from_options(struct kept *k, const char *text, struct err *e)
{
    struct kv old = {0};
    int rc = kv_from_json(&old, text, e);
    for (size_t i = 0; !rc && i < old.n; i++)
        from_option(k, old.at[i].k, old.at[i].v);
    kv_free(&old);
    return rc;
}
