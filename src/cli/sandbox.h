/* What several verbs do with sandboxes and templates: create from options,
 * build with progress, show. */
#pragma once
#include "cli/args.h"
#include "cli/client.h"

#define CREATE_OPTS                                                                                                                  \
    {"name", 'n', 's', "NAME", "a name to use instead of the id", NULL}, {"template", 't', 's', "NAME", "template to start from (base)", "@template"}, \
        {"snapshot", 0, 's', "NAME", "snapshot to start from, instead of a template", "@snapshot"},                                                \
        {"isolation", 0, 's', "TIER", "vm, gvisor, container or auto (auto)", "vm gvisor container auto"},                           \
        {"cpu", 0, 's', "N", "CPU cores, may be a fraction (1)", NULL}, {"memory", 'm', 's', "MIB", "memory in MiB (512)", NULL},        \
        {"disk", 0, 's', "MIB", "disk in MiB (4096)", NULL}, {"timeout", 0, 's', "S", "lifetime, for `run` the limit of the command: seconds, or 5m, 1h30m (300)", NULL}, \
        {"env", 'e', 'l', "K=V", "environment of every process; may be repeated", NULL},                                                     \
        {"net", 0, 's', "MODE", "none, open or allow=host,@preset,… (none)", "none open allow="},                                            \
        {"preview", 0, 's', "WHO", "who can reach its ports: public or token (public)", "public token"},                               \
        {"volume", 'v', 'l', "NAME:/path[:ro]", "attach a volume; may be repeated", "@volume"}, {"meta", 0, 'l', "K=V", "metadata; may be repeated", NULL}

/* timeout_s: -1 takes --timeout as it is; otherwise sent instead of it. Builds template base first if it is missing and may_build. */
int sandbox_create(struct cli *x, struct args *a, int64_t timeout_s, bool may_build, struct json **ret);
void sandbox_kill_quiet(struct cli *x, const char *id); /* best effort: the last thing before leaving */
/* "none", "open", "allow=host,@preset" as a policy; cmd_net.c */
int json_network(struct cli *x, struct jw *w, const char *s);
/* Calls one() for every argument; a failure is reported and does not stop the others. Returns the first failure's status. */
int each_arg(struct cli *x, struct args *a,
             int (*one)(struct cli *x, struct args *a, const char *arg, void *ctx), void *ctx);
void said(const char *id,
          const char *what); /* "ID: what", only to a terminal: scripts read the exit status */
void sandbox_tier(struct json *sb, char out[48]);       /* "vm/tcg" */

/* POST whose answer is a build's NDJSON; the body is JSON, or a file (then content_type is its type). */
int build_run(struct cli *x, const char *target, const struct buf *json_body, int fd, int64_t len, const char *content_type, struct json **ret_template);
int build_builtin(struct cli *x, const char *name, const char *builtin, bool force, struct json **ret_template);
