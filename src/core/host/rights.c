#include "core/host/rights.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "gate/policy.h"
#include "tier/tier.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */
static const char *const roles[] = {
    [ROLE_NONE] = "",         [ROLE_METRICS] = "metrics",   [ROLE_VIEWER] = "viewer",
    [ROLE_MEMBER] = "member", [ROLE_OPERATOR] = "operator", [ROLE_ADMIN] = "admin",
};
const char *role_name(enum role r) { return roles[r]; }
enum role role_parse(const char *s)
{
    for (size_t i = ROLE_METRICS; s && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(roles[i], s))
            return (enum role)i;
    return ROLE_NONE;
}

bool tenant_name_ok(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && (!i || !strchr("_.-", c)))
            return false;
    }
    return n && n <= TENANT_NAME_MAX;
}

/* ---- scopes ---- */
static int read_words(struct json *obj, const char *key, char **at, size_t max, size_t *n,
                      struct err *e)
{
    struct json *arr = NULL;
    struct str s;
    if (json_arr(obj, key, &arr, false, e))
        return -1;
    if (json_len(arr) > max)
        return json_fail(arr, e, "too many");
    for (size_t i = 0; i < json_len(arr); i++) {
        if (json_to_str(json_at(arr, i), &s, e))
            return -1;
        if (!s.n || s.n > 128)
            return json_fail(json_at(arr, i), e, "1 to 128 bytes");
        at[(*n)++] = xstrndup(s.p, s.n);
    }
    return 0;
}

static int check_tiers(struct json *obj, const struct scope *s, struct err *e)
{
    for (size_t i = 0; i < s->ntiers; i++)
        if (!tier_find(s->tiers[i]))
            return json_fail(json_at(json_get(obj, "isolation"), i), e, "there is no such tier");
    return 0;
}

/* Like the ceiling of a tenant: it cannot open closed addresses. */
static int read_network(struct json *obj, struct scope *s, struct err *e)
{
    struct json *p = NULL;
    struct buf text = {0};
    if (json_obj(obj, "network", &p, false, e) || !p)
        return p                                                                             ? -1
               : json_has(obj, "network") && json_kind(json_get(obj, "network")) != JSON_NIL ? -1
                                                                                             : 0;
    if (json_len(json_get(p, "private")))
        return json_fail(json_get(p, "private"), e,
                         "closed addresses can only be opened for the whole host");
    struct policy *parsed = policy_from_json(p, POLICY_CEILING, e);
    if (!parsed)
        return -1;
    policy_unref(parsed);
    json_dump(p, &text);
    s->network = buf_take(&text);
    return 0;
}

int scope_parse(struct json *obj, struct scope *ret, struct err *e)
{
    int64_t cpu, memory, disk;
    *ret = (struct scope){0};
    if (!obj)
        return 0;
    if (json_kind(obj) != JSON_OBJ)
        return json_fail(obj, e, "not an object");
    if (json_only(obj, e, "templates", "isolation", "network", "cpu_millis", "memory_mib",
                  "disk_mib", "keys", NULL) ||
        read_words(obj, "templates", ret->templates, SCOPE_TEMPLATES, &ret->ntemplates, e) ||
        read_words(obj, "isolation", ret->tiers, SCOPE_TIERS, &ret->ntiers, e) ||
        check_tiers(obj, ret, e) || read_network(obj, ret, e) ||
        json_i64(obj, "cpu_millis", 0, 1000000, 0, &cpu, e) ||
        json_i64(obj, "memory_mib", 0, UINT32_MAX, 0, &memory, e) ||
        json_i64(obj, "disk_mib", 0, UINT32_MAX, 0, &disk, e) ||
        json_bool(obj, "keys", false, &ret->keys, e)) {
        scope_free(ret);
        return -1;
    }
    ret->cpu_millis = (uint32_t)cpu;
    ret->memory_mib = (uint32_t)memory, ret->disk_mib = (uint32_t)disk;
    return 0;
}

int scope_parse_text(const char *text, struct scope *ret, struct err *e)
{
    *ret = (struct scope){0};
    if (!text || !*text)
        return 0;
    auto_json obj = json_parse_obj(text, strlen(text), e);
    return obj ? scope_parse(obj, ret, e) : -1;
}

static void put_words(struct jw *w, const char *key, char *const *at, size_t n)
{
    if (!n)
        return;
    jw_kv_arr(w, key);
    for (size_t i = 0; i < n; i++)
        jw_strz(w, at[i]);
    jw_end(w);
}

void scope_put(struct jw *w, const struct scope *s)
{
    if (!scope_any(s)) {
        jw_null(w);
        return;
    }
    jw_obj(w);
    put_words(w, "templates", s->templates, s->ntemplates);
    put_words(w, "isolation", s->tiers, s->ntiers);
    if (s->network)
        jw_kv_raw(w, "network", str_of(s->network));
    if (s->cpu_millis)
        jw_kv_u64(w, "cpu_millis", s->cpu_millis);
    if (s->memory_mib)
        jw_kv_u64(w, "memory_mib", s->memory_mib);
    if (s->disk_mib)
        jw_kv_u64(w, "disk_mib", s->disk_mib);
    if (s->keys)
        jw_kv_bool(w, "keys", true);
    jw_end(w);
}

bool scope_limits(const struct scope *s)
{
    return s && (s->ntemplates || s->ntiers || s->network || s->cpu_millis || s->memory_mib ||
                 s->disk_mib);
}
bool scope_any(const struct scope *s) { return s && (scope_limits(s) || s->keys); }

void scope_free(struct scope *s)
{
    for (size_t i = 0; i < s->ntemplates; i++)
        free(s->templates[i]);
    for (size_t i = 0; i < s->ntiers; i++)
        free(s->tiers[i]);
    free(s->network);
    *s = (struct scope){0};
}

/* ---- callers ---- */
const struct caller caller_daemon = {.role = ROLE_ADMIN, .tenant = ""};

struct caller caller_of_tenant(const char *tenant)
{
    return tenant && *tenant ? (struct caller){.role = ROLE_MEMBER, .tenant = tenant}
                             : caller_daemon;
}

bool caller_all(const struct caller *who)
{
    return who->role == ROLE_ADMIN || who->role == ROLE_OPERATOR;
}

static bool is_own(const struct caller *who, const char *tenant)
{
    return *who->tenant && !strcmp(who->tenant, tenant);
}

bool caller_sees(const struct caller *who, const char *tenant)
{
    if (caller_all(who))
        return true;
    return (who->role == ROLE_MEMBER || who->role == ROLE_VIEWER) && is_own(who, tenant);
}

bool caller_changes(const struct caller *who, const char *tenant)
{
    if (who->role == ROLE_ADMIN)
        return true;
    return (who->role == ROLE_MEMBER || who->role == ROLE_OPERATOR) && is_own(who, tenant);
}

bool caller_makes(const struct caller *who)
{
    return who->role == ROLE_ADMIN ||
           ((who->role == ROLE_MEMBER || who->role == ROLE_OPERATOR) && *who->tenant);
}

int caller_forbid(const struct caller *who, const char *needs, struct err *e)
{
    return err_why(e, REASON_ROLE, E_FORBIDDEN, "this needs a key with role %s; this one is %s%s",
                   needs, who->role ? role_name(who->role) : "of no role",
                   who->role == ROLE_OPERATOR && !*who->tenant ? " and has no tenant" : "");
}

static bool has_word(char *const *at, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (word && !strcmp(at[i], word))
            return true;
    return false;
}

static int too_large(const char *what, uint32_t asked, uint32_t most, struct err *e)
{
    return err_why(
        e, REASON_SCOPE, E_FORBIDDEN,
        "%s: %u is more than the scope of this key allows (%u); an admin makes keys with another scope",
        what, asked, most);
}

int caller_may_start(const struct caller *who, const char *template_name, const char *template_id,
                     const char *tier, uint32_t cpu_millis, uint32_t memory_mib, uint32_t disk_mib,
                     struct err *e)
{
    const struct scope *s = who->scope;
    if (!scope_limits(s))
        return 0;
    if (s->ntemplates && !has_word(s->templates, s->ntemplates, template_name) &&
        !has_word(s->templates, s->ntemplates, template_id))
        return err_why(e, REASON_SCOPE, E_FORBIDDEN,
                       "template '%.64s' is not in the scope of this key", template_name);
    if (s->ntiers && !has_word(s->tiers, s->ntiers, tier))
        return err_why(e, REASON_SCOPE, E_FORBIDDEN,
                       "isolation '%s' is not in the scope of this key", tier);
    if (s->cpu_millis && cpu_millis > s->cpu_millis)
        return too_large("cpu in thousandths", cpu_millis, s->cpu_millis, e);
    if (s->memory_mib && memory_mib > s->memory_mib)
        return too_large("memory_mib", memory_mib, s->memory_mib, e);
    if (s->disk_mib && disk_mib > s->disk_mib)
        return too_large("disk_mib", disk_mib, s->disk_mib, e);
    return 0;
}

/* ---- names ---- */
const char *full_name(const char *tenant, const char *name, char out[FULL_NAME])
{
    (void)snprintf(out, FULL_NAME, "%s%s%s", name, tenant && *tenant ? "@" : "",
                   tenant ? tenant : "");
    return out;
}
const char *full_name_tenant(const char *full)
{
    const char *at = strchr(full, '@');
    return at ? at + 1 : "";
}
size_t full_name_len(const char *full) { return strcspn(full, "@"); }

void pick_add(struct pick *p, const char *tenant, void *thing)
{
    if (!strcmp(p->who->tenant, tenant) && (caller_all(p->who) || *tenant))
        p->own = thing;
    else if (!*tenant)
        p->shared = thing;
    if (strcmp(p->who->tenant, tenant) && *tenant && caller_all(p->who))
        p->other = thing, p->others++;
}
bool pick_several(const struct pick *p) { return !p->own && !p->shared && p->others > 1; }
void *pick_get(const struct pick *p, bool with_shared)
{
    if (p->own)
        return p->own;
    if (p->shared && (with_shared || caller_all(p->who)))
        return p->shared;
    return p->others == 1 ? p->other : NULL;
}
