/* Every verb, by name; each is defined in its cmd_<verb>.c, or beside the verb it belongs to. */
#pragma once
#include "cli/cli.h"
struct args;
extern const struct cmd cmd_complete, cmd_man; /* not in cmds[] */
int snapshot_export(struct cli *x, struct args *a), snapshot_import(struct cli *x, struct args *a), snapshot_trust(struct cli *x, struct args *a), snapshot_distrust(struct cli *x, struct args *a); /* cmd_pack.c */
extern const struct cmd cmd_up, cmd_down, cmd_run, cmd_create, cmd_ls, cmd_info, cmd_exec, cmd_sh, cmd_cp, cmd_logs, cmd_kill, cmd_timeout, cmd_keepalive,
    cmd_ps, cmd_pause, cmd_resume, cmd_recover, cmd_fork, cmd_snapshot, cmd_snapshots, cmd_usage, cmd_rollback, cmd_eval, cmd_template, cmd_volume, cmd_key, cmd_tls, cmd_net, cmd_url,
    cmd_metrics, cmd_top, cmd_events, cmd_egress, cmd_secret, cmd_doctor, cmd_gvisor, cmd_bench, cmd_mcp, cmd_completion, cmd_version, cmd_help_verb;
