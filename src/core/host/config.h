/* Settings, all from the environment, read once; the table of them is core/host/settings.h. */
#pragma once
#include "base/err.h"
#include "core/host/upstream.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
/* What a sandbox can be given. */
#define SANDBOX_CPU_MIN      100 /* thousandths of a core */
#define SANDBOX_CPU_MAX      64000
#define SANDBOX_MEMORY_MIN   128 /* MiB */
#define SANDBOX_MEMORY_MAX   65536
#define SANDBOX_DISK_MAX     (1 << 20)
#define SANDBOX_LIFE_MAX     31536000 /* seconds: a year */
#define CONFIG_MAX_TIMEOUT_S 86400    /* unless HUTCH_MAX_TIMEOUT says otherwise */

struct tier;
struct config {
    char home[200], run[80];   /* HUTCH_HOME, HUTCH_RUN */
    char listen[64];           /* HUTCH_LISTEN */
    char share[200], bin[200]; /* HUTCH_SHARE; where our other programs are */
    char
        key_prefix[16]; /* of new API keys; not a setting: the program that links the API sets it */
    char domain[128];   /* HUTCH_DOMAIN: preview hosts {port}-{id}.<domain> */
    char tls_cert[200], tls_key[200]; /* HUTCH_TLS_CERT, HUTCH_TLS_KEY: both or none */
    char hosts[256];       /* HUTCH_HOSTS: further names accepted in Host, comma-separated */
    char mcp_template[64]; /* HUTCH_MCP_TEMPLATE: of sandboxes that MCP makes on first use */
    const struct tier *default_tier, *min_tier; /* HUTCH_DEFAULT_ISOLATION, HUTCH_MIN_ISOLATION */
    char accel[8];                              /* HUTCH_ACCEL: auto, kvm, tcg */
    unsigned pool_vm, pool_vm_started,
        pool_container; /* HUTCH_POOL_VM, HUTCH_POOL_PRESTARTED, HUTCH_POOL_CONTAINER */
    uint32_t
        standby_free_mib; /* HUTCH_STANDBY_FREE: below this much free host memory all of them go at once */
    uint32_t
        standby_s; /* HUTCH_STANDBY: how long a VM stays in standby before it goes to disk; 0: for ever */
    uint32_t isolate_memory_mib, isolate_calls, isolate_idle_s,
        isolate_jails;      /* HUTCH_ISOLATE_MEMORY, _CALLS: of one jail at once; _IDLE; _JAILS */
    unsigned max_sandboxes; /* HUTCH_MAX_SANDBOXES */
    uint32_t failed_keep_s; /* HUTCH_FAILED_KEEP: how long the disk of a failed sandbox stays */
    uint32_t
        agent_silent_s; /* HUTCH_AGENT_SILENT: how long a sandbox that was asked something may say nothing */
    uint32_t def_memory_mib, def_disk_mib, def_timeout_s, max_timeout_s;
    uint32_t
        build_cache_mib; /* HUTCH_BUILD_CACHE: all kept steps of recipes together; 0: none are kept (core/build/step_cache.h) */
    uint32_t tree_mib,
        tree_files;        /* HUTCH_TREE_MAX, HUTCH_TREE_FILES: of the snapshot of a directory */
    uint32_t pack_max_mib; /* HUTCH_PACK_MAX: of a snapshot pack that is imported */
    uint32_t def_volume_mib, max_volume_mib,
        max_volumes; /* HUTCH_DEFAULT_VOLUME, HUTCH_MAX_VOLUME, HUTCH_MAX_VOLUMES */
    bool use_kvm;    /* the probe's verdict, set by main */
    char accel_why[160];
    uint32_t tsc_khz;
    char resolvers[256]; /* HUTCH_RESOLVERS: for sandboxes' names; empty: the host's own */
    char *
        ceiling; /* HUTCH_NETWORK_CEILING: a policy no sandbox exceeds, as JSON or @/file; NULL: none */
    char *
        tenants; /* HUTCH_TENANTS: what each may have, as JSON or @/file (core/host/tenant.h); NULL: nothing is set */
    uint32_t egress_log_mib,
        egress_log_files;          /* HUTCH_EGRESS_LOG_MIB, HUTCH_EGRESS_LOG_FILES: per sandbox */
    uint32_t egress_log_days;      /* HUTCH_EGRESS_LOG_DAYS: older parts go; 0: none does */
    uint32_t egress_log_sandboxes; /* HUTCH_EGRESS_LOG_SANDBOXES that are gone; 0: no limit */
    uint32_t net_connections,
        net_bytes_per_second; /* HUTCH_NETWORK_CONNECTIONS, _BYTES_PER_SECOND: of all sandboxes together; 0: no limit */
    uint32_t
        udp_idle_s; /* HUTCH_NETWORK_UDP_IDLE: a flow of datagrams ends when nothing moved for so long */
    struct upstream
        proxy; /* HUTCH_NETWORK_PROXY, else https_proxy, http_proxy: how the gate gets outside (core/host/upstream.h) */
    bool proxy_by_name;  /* HUTCH_NETWORK_PROXY_NAMES=1: it is asked for names */
    char no_proxy[1024]; /* HUTCH_NETWORK_NO_PROXY, else no_proxy */
    uid_t egress_uid;    /* HUTCH_EGRESS_UID */
    char
        secrets_key[80]; /* from the file HUTCH_SECRETS_KEY names; empty: secrets.key of the home */
    uid_t uid;           /* HUTCH_UID: what the daemon drops to */
};
int config_load(struct config *c, struct err *e);
int config_tenants(char **ret, struct err *e); /* HUTCH_TENANTS as it is now */
void config_fini(struct config *c);
