#include "core/host/settings.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/suggest.h"
#include "core/host/config.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP(title) \
    { \
        .kind = SET_GROUP, .help = title \
    }
#define FIELD(f) .at = offsetof(struct config, f), .cap = sizeof(((struct config *)0)->f)
#define TEXT(var, f, d, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_TEXT, FIELD(f), .def = d, .help = h \
    }
#define DIR(var, f, d, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_DIR, FIELD(f), .def = d, .help = h \
    }
#define NUMBER(var, f, d, lo, hi, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_NUMBER, FIELD(f), .num = d, .min = lo, .max = hi, \
        .help = h \
    }
#define SWITCH(var, f, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_SWITCH, FIELD(f), .max = 1, .help = h \
    }
#define WORD(var, f, d, w, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_WORD, FIELD(f), .def = d, .words = w, .help = h \
    }
#define TIER(var, f, d, h) \
    { \
        .name = "HUTCH_" var, .kind = SET_TIER, FIELD(f), .def = d, .help = h \
    }
#define ELSEWHERE(var, d, h) \
    { \
        .name = var, .kind = SET_ELSEWHERE, .def = d, .help = h \
    }

/* clang-format off */
const struct setting settings[] = {
    GROUP("Places"),
    DIR("HOME", home, CONF_HOME, "State: database, templates, disks of sandboxes, guest kernel, logs, `admin.key`. `HUTCH_UID` must be able to reach it"),
    DIR("RUN", run, "/run/hutch", "Sockets and locks; shorter than 80 characters. Each home needs its own"),
    ELSEWHERE("HUTCH_CONFIG", "`/etc/hutch/hutchd.conf`", "The file of settings; `none` reads none. In the environment only"),
    ELSEWHERE("HUTCH_BIN", "beside `hutchd`, or `../libexec/hutch`", "Where `hutch-spawn`, `hutch-agent`, `hutch-egress` and `hutch-untar` are"),
    ELSEWHERE("HUTCH_SHARE", "`../share/hutch` or `../share`", "Seccomp profiles, recipes, tools"),
    ELSEWHERE("HUTCH_LOG", "`info`", "How much is logged: `error`, `warn`, `info` or `debug`"),
    NUMBER("UID", uid, CONF_UID, 0, 4000000000u, "User and group id that the daemon changes to. 0: it stays root"),
    NUMBER("EGRESS_UID", egress_uid, 64883, 1, 4000000000u, "User id of `hutch-egress`"),

    GROUP("API"),
    TEXT("LISTEN", listen, "127.0.0.1:4882", "TCP address: `host:port`, `[v6]:port`, or `:port` for all addresses. The host is a number or `localhost`; port 0 lets the kernel choose. If it is taken, the start fails and says by whom"),
    TEXT("HOSTS", hosts, "", "More names that are accepted in `Host`, separated by commas: what clients call this machine"),
    TEXT("DOMAIN", domain, "", "One more name accepted in `Host`. `{port}-{id}.` before it leads to a port of a sandbox ([e2b.md](e2b.md))"),
    TEXT("MCP_TEMPLATE", mcp_template, "", "Template of the sandboxes that [MCP](mcp.md) clients get on first use. Empty: `code-interpreter` if it is built, else `base`"),

    TEXT("TLS_CERT", tls_cert, "", "File with the certificate (PEM, the chain behind it): the TCP address then speaks https only ([remote.md](remote.md)). Read again when it changes. `HUTCH_UID` must be able to read it"),
    TEXT("TLS_KEY", tls_key, "", "File with its private key (PEM, no password)"),

    GROUP("Isolation"),
    TIER("DEFAULT_ISOLATION", default_tier, "vm", "Isolation of a sandbox whose create says `auto` or nothing: `vm`, `gvisor` or `container`"),
    TIER("MIN_ISOLATION", min_tier, "isolate", "The weakest isolation that is allowed: `container` refuses isolates, `gvisor` also refuses containers, `vm` also refuses gVisor"),
    WORD("ACCEL", accel, "auto", "auto|kvm|tcg", "`auto` tries KVM, `kvm` demands it (the start fails without), `tcg` never uses it"),
    ELSEWHERE("HUTCH_RUNSC", "`runsc` in HUTCH_BIN, then in `/usr/local/bin` and `/usr/bin`", "gVisor's program, for isolation `gvisor`. A file of root's that nobody else can write"),
    ELSEWHERE("HUTCH_SHELF", "", "Any value: mounts are made as on kernels before 6.15, whatever this one can do (decision 043). For tests and for finding faults"),

    GROUP("Sandboxes"),
    NUMBER("DEFAULT_MEMORY", def_memory_mib, 512, SANDBOX_MEMORY_MIN, SANDBOX_MEMORY_MAX, "MiB of memory of a sandbox that names none"),
    NUMBER("DEFAULT_DISK", def_disk_mib, 4096, 64, SANDBOX_DISK_MAX, "MiB of disk of a sandbox that names none. A VM gets at least what its template needs"),
    NUMBER("DEFAULT_TIMEOUT", def_timeout_s, 300, 1, 86400, "Seconds that a sandbox lives if it names no timeout"),
    NUMBER("MAX_TIMEOUT", max_timeout_s, CONFIG_MAX_TIMEOUT_S, 1, 31536000, "The longest timeout, in seconds, that may be asked for"),
    NUMBER("MAX_SANDBOXES", max_sandboxes, 1000, 1, 100000, "Sandboxes that live at once; then creates fail with `quota`"),
    NUMBER("AGENT_SILENT", agent_silent_s, 40, 4, 3600, "Seconds that a sandbox may not answer before it counts as failed"),
    NUMBER("FAILED_KEEP", failed_keep_s, 86400, 0, 31536000, "Seconds that the disk of a failed sandbox is kept for `hutch recover`"),
    NUMBER("STANDBY", standby_s, 300, 0, 31536000, "Seconds that a VM stays in standby before it goes to disk. 0: for ever"),
    NUMBER("STANDBY_FREE", standby_free_mib, 1024, 0, 1u << 30, "MiB of free host memory below which VMs in standby go to disk, one after the other"),
    NUMBER("POOL_VM", pool_vm, 2, 0, 1000, "Restored VMs that wait, per class"),
    NUMBER("POOL_PRESTARTED", pool_vm_started, 1, 0, 1000, "VMs per class that wait with QEMU started but nothing restored"),
    NUMBER("POOL_CONTAINER", pool_container, 4, 0, 1000, "Started containers that wait, per class"),

    GROUP("Isolates"),
    NUMBER("ISOLATE_MEMORY", isolate_memory_mib, 3072, 64, 1u << 20, "MiB that the calls of one [isolate](isolate.md) jail may use together, with their copies of the interpreter"),
    NUMBER("ISOLATE_CALLS", isolate_calls, 16, 1, 64, "Calls that run in one jail at once; more wait"),
    NUMBER("ISOLATE_IDLE", isolate_idle_s, 300, 1, 86400, "Seconds that an unused jail stays"),
    NUMBER("ISOLATE_JAILS", isolate_jails, 32, 1, 1000, "Jails (language, template and tenant) at once. An idle one makes room, else `rate`; a tenant has half at most"),

    GROUP("Disk"),
    NUMBER("BUILD_CACHE", build_cache_mib, 4096, 0, 1u << 24, "MiB of build steps that are kept ([templates.md](templates.md)). 0: none"),
    NUMBER("TREE_MAX", tree_mib, 4096, 1, 1u << 20, "MiB that the snapshot of a directory may have"),
    NUMBER("TREE_FILES", tree_files, 200000, 1, 100000000, "Files that the snapshot of a directory may have"),
    NUMBER("PACK_MAX", pack_max_mib, 65536, 1, 1u << 24, "MiB that an imported snapshot pack may have"),
    NUMBER("DEFAULT_VOLUME", def_volume_mib, 10240, 16, 1u << 20, "MiB of a [volume](volumes.md) that names no size"),
    NUMBER("MAX_VOLUME", max_volume_mib, 1u << 20, 16, 1u << 24, "MiB that a volume may have"),
    NUMBER("MAX_VOLUMES", max_volumes, 1000, 1, 100000, "Volumes at once"),
    ELSEWHERE("HUTCH_SECRETS_KEY", "`secrets.key` in the home", "File with the key (64 hex digits) that secrets are sealed with"),

    GROUP("Network"),
    ELSEWHERE("HUTCH_NETWORK_CEILING", "", "A network policy that no sandbox exceeds, as JSON or `@/file`; the only place that can open `\"private\"` ranges ([network.md](network.md))"),
    ELSEWHERE("HUTCH_TENANTS", "", "What the owner of an API key may use, as JSON or `@/file` (read again on SIGHUP). [network.md](network.md), [snapshots.md](snapshots.md), [state.md](state.md)"),
    ELSEWHERE("HUTCH_PRESET_*", "the host's configuration", "Rules of the network preset of that name, separated by commas: `HUTCH_PRESET_PIP=index.example.org`. A new name is a new preset ([network.md](network.md#policy))"),
    TEXT("RESOLVERS", resolvers, "", "Name servers that answer for sandboxes, `address` or `address:port`, separated by commas. Empty: the host's"),
    ELSEWHERE("HUTCH_NETWORK_PROXY", "`https_proxy`, `http_proxy`", "The HTTP proxy that sandboxes' traffic leaves through; `none` for none ([network.md](network.md))"),
    ELSEWHERE("HUTCH_NETWORK_NO_PROXY", "`no_proxy`", "What is reached without the proxy"),
    SWITCH("NETWORK_PROXY_NAMES", proxy_by_name, "1: the proxy resolves names"),
    NUMBER("NETWORK_CONNECTIONS", net_connections, 0, 0, 1000000, "Connections that all sandboxes together may have open. 0: no limit"),
    NUMBER("NETWORK_BYTES_PER_SECOND", net_bytes_per_second, 0, 0, 4000000000u, "Bytes per second that all sandboxes together may move. 0: no limit"),
    NUMBER("NETWORK_UDP_IDLE", udp_idle_s, 60, 1, 3600, "Seconds after which a flow of datagrams without traffic ends (a third of it if no answer ever came)"),
    NUMBER("EGRESS_LOG_MIB", egress_log_mib, 8, 1, 4096, "MiB of one part of a sandbox's egress log"),
    NUMBER("EGRESS_LOG_FILES", egress_log_files, 4, 1, 100, "Parts of a sandbox's egress log that are kept"),
    NUMBER("EGRESS_LOG_DAYS", egress_log_days, 30, 0, 36500, "Days after which parts of egress logs are removed. 0: never"),
    NUMBER("EGRESS_LOG_SANDBOXES", egress_log_sandboxes, 1000, 0, 1000000, "Sandboxes that have stopped whose egress logs are kept, the latest. 0: no limit"),
    ELSEWHERE("SSL_CERT_FILE", "the system's", "Certificates that `hutch-egress` trusts where it looks into TLS"),
};
/* clang-format on */
const size_t nsettings = sizeof settings / sizeof *settings;

/* Not the daemon's, but no mistake either. A * stands for any rest. */
static const char *const others[] = {"HUTCH_URL",  "HUTCH_API_KEY", "HUTCH_NO_START",
                                     "HUTCH_CA",   "HUTCH_FAULT",   "HUTCH_BUILD",
                                     "HUTCH_DEBS", "HUTCH_TEST_*"};
/* What a file may set besides: the usual variables of programs that fetch something. */
static const char *const foreign[] = {"http_proxy",   "https_proxy",    "no_proxy",  "all_proxy",
                                      "HTTPS_PROXY",  "HTTP_PROXY",     "NO_PROXY",  "ALL_PROXY",
                                      "SSL_CERT_DIR", "CURL_CA_BUNDLE", "APT_CONFIG"};

static bool is(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? !strncmp(pattern, name, n - 1) && name[n - 1]
                                 : !strcmp(pattern, name);
}
static bool among(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (is(list[i], name))
            return true;
    return false;
}
static bool known(const char *name)
{
    for (size_t i = 0; i < nsettings; i++)
        if (settings[i].name && is(settings[i].name, name))
            return true;
    return among(others, sizeof others / sizeof *others, name);
}
static bool takes(const char *name) /* from a file */
{
    return strcmp(name, "HUTCH_CONFIG") &&
           (known(name) || among(foreign, sizeof foreign / sizeof *foreign, name));
}
static const char *name_at(const void *arg, int i)
{
    static const char none[] = ""; /* near to nothing */
    (void)arg;
    return (size_t)i >= nsettings ? NULL : settings[i].name ? settings[i].name : none;
}
static void report(const char *name, const char *where)
{
    const char *near = suggest(name, name_at, NULL);
    if (near && *near)
        log_warn("unknown setting %.64s%s: did you mean %s?", name, where, near);
    else
        log_warn("unknown setting %.64s%s: `hutchd --settings` lists them", name, where);
}

int settings_read(char *ret_file, size_t n, struct err *e)
{
    const char *path = conf_path();
    auto_conf c = {0};
    *ret_file = 0;
    if (conf_load(&c, e))
        return -1;
    if (!c.n)
        return 0;
    for (size_t i = c.n; i-- > 0;) { /* the last of a name wins, the environment always */
        const struct conf_line *l = &c.at[i];
        if (takes(l->name)) {
            (void)setenv(l->name, l->value, 0);
            continue;
        }
        char where[300];
        (void)snprintf(where, sizeof where, " in %.256s:%d", path, l->line);
        report(l->name, where);
    }
    (void)snprintf(ret_file, n, "%s", path);
    return 0;
}

extern char **environ;
int settings_unknown(void)
{
    int n = 0;
    for (char **v = environ; *v; v++) {
        char name[80];
        size_t len = strcspn(*v, "=");
        if (strncmp(*v, "HUTCH_", 6) || len >= sizeof name)
            continue;
        memcpy(name, *v, len);
        name[len] = 0;
        if (known(name))
            continue;
        report(name, "");
        n++;
    }
    return n;
}
