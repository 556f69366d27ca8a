#include "core/host/config.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/host/settings.h"
#include "core/host/tenant.h"
#include "gate/policy.h"
#include "tier/tier.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENANTS_MAX (4u << 20)

static int text(char *out, size_t cap, const char *var, const char *def, struct err *e)
{
    const char *v = getenv(var);
    if (!v || !*v)
        v = def;
    if (strlen(v) >= cap)
        return err_set(e, E_INVALID, "%s is longer than %zu characters", var, cap - 1);
    memcpy(out, v, strlen(v) + 1);
    return 0;
}
static int dir(char *out, size_t cap, const char *var, const char *def, struct err *e)
{
    if (text(out, cap, var, def, e))
        return -1;
    if (*out != '/')
        return err_set(e, E_INVALID, "%s must be an absolute path", var);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = 0;
    return 0;
}
static int number(uint32_t *out, const struct setting *s, struct err *e)
{
    const char *v = getenv(s->name);
    uint64_t n = s->num;
    if (v && *v && (!str_u64(str_of(v), &n) || n < s->min || n > s->max))
        return err_set(e, E_INVALID, "%s must be a number from %u to %u", s->name, s->min, s->max);
    *out = (uint32_t)n;
    return 0;
}
static int word(char *out, const struct setting *s, struct err *e)
{
    if (text(out, s->cap, s->name, s->def, e))
        return e->code == E_INVALID
                   ? err_set(e, E_INVALID, "%s must be one of %s", s->name, s->words)
                   : -1;
    size_t n = strlen(out);
    for (const char *w = s->words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
        if (strcspn(w, "|") == n && !strncmp(w, out, n))
            return 0;
    return err_set(e, E_INVALID, "%s must be one of %s", s->name, s->words);
}
static int tier(const struct tier **out, const struct setting *s, struct err *e)
{
    const char *v = getenv(s->name);
    if (!(*out = tier_find(v && *v && strcmp(v, "auto") ? v : s->def)))
        return err_set(e, E_INVALID, "%s must be vm, gvisor, container or isolate", s->name);
    return 0;
}

static int load(struct config *c, const struct setting *s, struct err *e)
{
    char *at = (char *)c + s->at;
    uint32_t n;
    switch (s->kind) {
    case SET_TEXT: return text(at, s->cap, s->name, s->def, e);
    case SET_DIR: return dir(at, s->cap, s->name, s->def, e);
    case SET_WORD: return word(at, s, e);
    case SET_NUMBER: return number((uint32_t *)(void *)at, s, e);
    case SET_TIER: return tier((const struct tier **)(void *)at, s, e);
    case SET_SWITCH:
        if (number(&n, s, e))
            return -1;
        *(bool *)at = n;
        return 0;
    case SET_GROUP:
    case SET_ELSEWHERE: break;
    }
    return 0;
}

/* Our other programs are beside this one (source tree) or in ../libexec/hutch (installed); share/ likewise is ../share or ../share/hutch. */
static int places(struct config *c, struct err *e)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return err_set(e, E_INTERNAL, "cannot find out where hutchd is installed");
    self[n] = 0;
    *strrchr(self, '/') = 0;
    char guess[PATH_MAX + 32];
    (void)snprintf(guess, sizeof guess, "%s/hutch-spawn", self);
    bool beside = !access(guess, X_OK);
    (void)snprintf(guess, sizeof guess, "%s/../libexec/hutch", self);
    char *libexec = beside ? NULL : realpath(guess, NULL);
    int rc = dir(c->bin, sizeof c->bin, "HUTCH_BIN", libexec ? libexec : self, e);
    free(libexec);
    if (rc)
        return -1;
    (void)snprintf(guess, sizeof guess, "%s/../share/hutch", self);
    if (access(guess, R_OK))
        (void)snprintf(guess, sizeof guess, "%s/../share", self);
    char full[PATH_MAX];
    if (!realpath(guess, full))
        full[0] = 0;
    return dir(c->share, sizeof c->share, "HUTCH_SHARE", *full ? full : "/usr/share/hutch", e);
}

/* "…" itself, or the content of the file "@/path"; NULL if the variable is not set. */
static int text_or_file(char **out, const char *var, size_t max, struct err *e)
{
    const char *v = getenv(var);
    if (!v || !*v)
        return 0;
    *out = *v == '@' ? fd_slurp_at(AT_FDCWD, v + 1, max, NULL) : xstrdup(v);
    return *out ? 0 : err_sys(e, errno, "%s: %s", var, v + 1);
}

int config_tenants(char **ret, struct err *e)
{
    return text_or_file(ret, "HUTCH_TENANTS", TENANTS_MAX, e);
}

/* As curl, apt and pip read it: lower case first; "none" of our own variable switches the rest off. */
static int proxy(struct config *c, struct err *e)
{
    static const char *const vars[] = {"HUTCH_NETWORK_PROXY", "https_proxy", "HTTPS_PROXY",
                                       "http_proxy",          "all_proxy",   "ALL_PROXY"};
    const char *url = NULL, *var = "", *skip = getenv("no_proxy");
    for (size_t i = 0; i < sizeof vars / sizeof *vars && (!url || !*url); i++)
        url = getenv(var = vars[i]);
    if (text(c->no_proxy, sizeof c->no_proxy, "HUTCH_NETWORK_NO_PROXY", skip ? skip : "", e))
        return -1;
    return url && strcmp(url, "none") && upstream_parse(url, &c->proxy, e) ? err_wrap(e, "%s", var)
                                                                           : 0;
}

static int network(struct config *c, struct err *e)
{
    const char *key = getenv("HUTCH_SECRETS_KEY");
    if (text_or_file(&c->ceiling, "HUTCH_NETWORK_CEILING", POLICY_TEXT_MAX, e) ||
        config_tenants(&c->tenants, e))
        return -1;
    if (proxy(c, e))
        return -1;
    struct policy *p =
        c->ceiling ? policy_parse(c->ceiling, strlen(c->ceiling), POLICY_CEILING, e) : NULL;
    if (c->ceiling && !p)
        return err_wrap(e, "HUTCH_NETWORK_CEILING");
    policy_unref(p);
    struct tenants t;
    if (tenants_parse(c->tenants, &t, e))
        return -1;
    tenants_free(&t);
    if (!key || !*key)
        return 0;
    auto_free char *hex = fd_slurp_at(AT_FDCWD, key, sizeof c->secrets_key - 1, NULL);
    if (!hex)
        return err_sys(e, errno, "HUTCH_SECRETS_KEY: %s", key);
    (void)snprintf(c->secrets_key, sizeof c->secrets_key, "%s", hex);
    explicit_bzero(hex, strlen(hex));
    return 0;
}

static int tls(const struct config *c, struct err *e)
{
    if (!*c->tls_cert != !*c->tls_key)
        return err_set(e, E_INVALID, "%s is set, %s is not: TLS needs both",
                       *c->tls_cert ? "HUTCH_TLS_CERT" : "HUTCH_TLS_KEY",
                       *c->tls_cert ? "HUTCH_TLS_KEY" : "HUTCH_TLS_CERT");
    if (*c->tls_cert && (*c->tls_cert != '/' || *c->tls_key != '/'))
        return err_set(e, E_INVALID, "HUTCH_TLS_CERT and HUTCH_TLS_KEY must be absolute paths");
    return 0;
}

int config_load(struct config *c, struct err *e)
{
    *c = (struct config){0};
    for (size_t i = 0; i < nsettings; i++)
        if (load(c, &settings[i], e))
            return -1;
    if (tls(c, e) || network(c, e))
        return -1;
    if (!tier_can(c->default_tier, TIER_SANDBOX))
        return err_set(
            e, E_INVALID,
            "HUTCH_DEFAULT_ISOLATION must be vm, gvisor or container: an isolate is not a sandbox");
    return places(c, e);
}

void config_fini(struct config *c)
{
    free(c->ceiling), free(c->tenants);
    upstream_free(&c->proxy);
    explicit_bzero(c->secrets_key, sizeof c->secrets_key);
}
