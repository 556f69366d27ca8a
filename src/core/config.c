#include "core/config.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "gate/policy.h"
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
static int number(uint32_t *out, const char *var, uint32_t def, uint32_t min, uint32_t max, struct err *e)
{
    const char *v = getenv(var);
    uint64_t n = def;
    if (v && *v && (!str_u64(str_of(v), &n) || n < min || n > max))
        return err_set(e, E_INVALID, "%s must be a number from %u to %u", var, min, max);
    *out = (uint32_t)n;
    return 0;
}
static int tier(int *out, const char *var, int def, struct err *e)
{
    const char *v = getenv(var);
    enum tier t;
    *out = def;
    if (!v || !*v || !strcmp(v, "auto"))
        return 0;
    if (tier_parse(v, &t))
        return err_set(e, E_INVALID, "%s must be vm, container or isolate", var);
    *out = (int)t;
    return 0;
}

/* Our other programs stand beside this one; share/ beside them (source tree) or under ../share/hutch (installed). */
static int places(struct config *c, struct err *e)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return err_set(e, E_INTERNAL, "cannot tell where hutchd is installed");
    self[n] = 0;
    *strrchr(self, '/') = 0;
    if (dir(c->bin, sizeof c->bin, "HUTCH_BIN", self, e))
        return -1;
    char guess[PATH_MAX + 32];
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

int config_tenants(char **ret, struct err *e) { return text_or_file(ret, "HUTCH_TENANTS", TENANTS_MAX, e); }

/* As curl, apt and pip read it: lower case first; "none" of our own variable switches the rest off. */
static int proxy(struct config *c, struct err *e)
{
    static const char *const vars[] = {"HUTCH_NETWORK_PROXY", "https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"};
    const char *url = NULL, *var = "", *skip = getenv("no_proxy");
    uint32_t names;
    for (size_t i = 0; i < sizeof vars / sizeof *vars && (!url || !*url); i++)
        url = getenv(var = vars[i]);
    if (text(c->no_proxy, sizeof c->no_proxy, "HUTCH_NETWORK_NO_PROXY", skip ? skip : "", e) || number(&names, "HUTCH_NETWORK_PROXY_NAMES", 0, 0, 1, e))
        return -1;
    c->proxy_by_name = names;
    return url && strcmp(url, "none") && upstream_parse(url, &c->proxy, e) ? err_wrap(e, "%s", var) : 0;
}

static int network(struct config *c, struct err *e)
{
    const char *key = getenv("HUTCH_SECRETS_KEY");
    uint32_t uid;
    if (text(c->resolvers, sizeof c->resolvers, "HUTCH_RESOLVERS", "", e) || text_or_file(&c->ceiling, "HUTCH_NETWORK_CEILING", POLICY_TEXT_MAX, e) || config_tenants(&c->tenants, e) ||
        number(&c->egress_log_mib, "HUTCH_EGRESS_LOG_MIB", 8, 1, 4096, e) || number(&c->egress_log_files, "HUTCH_EGRESS_LOG_FILES", 4, 1, 100, e) ||
        number(&c->egress_log_days, "HUTCH_EGRESS_LOG_DAYS", 30, 0, 36500, e) || number(&c->net_connections, "HUTCH_NETWORK_CONNECTIONS", 0, 0, 1000000, e) ||
        number(&c->net_bytes_per_second, "HUTCH_NETWORK_BYTES_PER_SECOND", 0, 0, 4000000000u, e) ||
        number(&c->udp_idle_s, "HUTCH_NETWORK_UDP_IDLE", 60, 1, 3600, e) || number(&uid, "HUTCH_EGRESS_UID", 64883, 1, 4000000000u, e))
        return -1;
    c->egress_uid = uid;
    if (proxy(c, e))
        return -1;
    struct policy *p = c->ceiling ? policy_parse(c->ceiling, strlen(c->ceiling), POLICY_CEILING, e) : NULL;
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

int config_load(struct config *c, struct err *e)
{
    *c = (struct config){0};
    uint32_t uid;
    if (dir(c->home, sizeof c->home, "HUTCH_HOME", "/var/lib/hutch", e) || dir(c->run, sizeof c->run, "HUTCH_RUN", "/run/hutch", e) ||
        text(c->listen, sizeof c->listen, "HUTCH_LISTEN", "127.0.0.1:4882", e) || text(c->domain, sizeof c->domain, "HUTCH_DOMAIN", "", e) ||
        text(c->hosts, sizeof c->hosts, "HUTCH_HOSTS", "", e) || text(c->accel, sizeof c->accel, "HUTCH_ACCEL", "auto", e) ||
        tier(&c->default_tier, "HUTCH_DEFAULT_ISOLATION", TIER_VM, e) || tier(&c->min_tier, "HUTCH_MIN_ISOLATION", TIER_ISOLATE, e) ||
        number(&c->pool_vm, "HUTCH_POOL_VM", 2, 0, 1000, e) || number(&c->pool_vm_started, "HUTCH_POOL_PRESTARTED", 1, 0, 1000, e) ||
        number(&c->pool_container, "HUTCH_POOL_CONTAINER", 4, 0, 1000, e) ||
        number(&c->standby_s, "HUTCH_STANDBY", 300, 0, 31536000, e) || number(&c->standby_free_mib, "HUTCH_STANDBY_FREE", 1024, 0, 1u << 30, e) ||
        number(&c->max_sandboxes, "HUTCH_MAX_SANDBOXES", 1000, 1, 100000, e) ||
        number(&c->failed_keep_s, "HUTCH_FAILED_KEEP", 86400, 0, 31536000, e) ||
        number(&c->agent_silent_s, "HUTCH_AGENT_SILENT", 40, 4, 3600, e) ||
        number(&c->isolate_memory_mib, "HUTCH_ISOLATE_MEMORY", 3072, 64, 1u << 20, e) ||
        number(&c->isolate_calls, "HUTCH_ISOLATE_CALLS", 16, 1, 64, e) || number(&c->isolate_idle_s, "HUTCH_ISOLATE_IDLE", 300, 1, 86400, e) ||
        number(&c->isolate_jails, "HUTCH_ISOLATE_JAILS", 32, 1, 1000, e) ||
        number(&c->def_memory_mib, "HUTCH_DEFAULT_MEMORY", 512, 128, 65536, e) ||
        number(&c->def_disk_mib, "HUTCH_DEFAULT_DISK", 4096, 64, 1u << 20, e) ||
        number(&c->def_timeout_s, "HUTCH_DEFAULT_TIMEOUT", 300, 1, 86400, e) ||
        number(&c->tree_mib, "HUTCH_TREE_MAX", 4096, 1, 1u << 20, e) || number(&c->tree_files, "HUTCH_TREE_FILES", 200000, 1, 100000000, e) ||
        number(&c->build_cache_mib, "HUTCH_BUILD_CACHE", 4096, 0, 1u << 24, e) ||
        number(&c->pack_max_mib, "HUTCH_PACK_MAX", 65536, 1, 1u << 24, e) ||
        number(&c->def_volume_mib, "HUTCH_DEFAULT_VOLUME", 10240, 16, 1u << 20, e) ||
        number(&c->max_volume_mib, "HUTCH_MAX_VOLUME", 1u << 20, 16, 1u << 24, e) ||
        number(&c->max_volumes, "HUTCH_MAX_VOLUMES", 1000, 1, 100000, e) ||
        number(&c->max_timeout_s, "HUTCH_MAX_TIMEOUT", 86400, 1, 31536000, e) || number(&uid, "HUTCH_UID", 64882, 0, 4000000000u, e))
        return -1;
    c->uid = uid;
    if (network(c, e))
        return -1;
    if (c->default_tier == TIER_ISOLATE)
        return err_set(e, E_INVALID, "HUTCH_DEFAULT_ISOLATION must be vm or container: an isolate is no sandbox");
    if (strcmp(c->accel, "auto") && strcmp(c->accel, "kvm") && strcmp(c->accel, "tcg"))
        return err_set(e, E_INVALID, "HUTCH_ACCEL must be auto, kvm or tcg");
    return places(c, e);
}

void config_fini(struct config *c)
{
    free(c->ceiling), free(c->tenants);
    upstream_free(&c->proxy);
    explicit_bzero(c->secrets_key, sizeof c->secrets_key);
}
