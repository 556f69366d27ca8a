/* The native API: handlers by file, and the renderings they share. */
#pragma once
#include "api/api.h"
#include "api/native/answers.h"
#include "api/params.h"
#include "api/render.h"
#include "api/req.h"
#include "api/route.h"
#include "core/host/config.h"
#include "core/sandbox/exec.h"
#include "core/sandbox/files.h"
#include "core/sandbox/sandbox.h"
#include "core/build/build.h"
#include "core/catalog/template.h"
#include "json/write.h"

extern const struct api_route native_routes[];
extern const size_t native_nroutes;
extern const struct dialect native_dialect;
extern const struct api_table native_table;

/* A body or a query by its table, with the limits that the operator sets. See api/fields.h for who frees what. */
static inline struct json *native_body(struct api *a, const char *p, size_t n,
                                       const struct shape *sh, void *into, struct err *e)
{
    return body_read(p, n, sh, into, core_config(api_core(a)), e);
}
static inline int native_query(struct api *a, struct http_stream *s, const struct shape *sh,
                               void *into, struct err *e)
{
    return query_read(s, sh, into, core_config(api_core(a)), e);
}
#define FIELD_TIMEOUT(struct_, member, help_, ...) \
    FIELD("timeout_s", F_INT, struct_, member, .min = 1, .max = CONFIG_MAX_TIMEOUT_S, \
          .max_of = offsetof(struct config, max_timeout_s), .help = (help_), __VA_ARGS__)
#define FIELD_USER(struct_, member, help_) \
    FIELD("user", F_STR, struct_, member, .max = 64, .help = (help_))
#define FIELD_AT(struct_, member) \
    FIELD("path", F_PATH, struct_, member, .flags = F_REQUIRED, .max = PARAM_PATH_MAX, \
          .help = "An absolute path, or one below the user's home.")
/* What is sent, by the file that reads it. */
extern const struct shape create_body, list_query, patch_body, timeout_body,
    keepalive_body;                                                                /* sandboxes.c */
extern const struct shape pause_body, resume_body, recover_body, rollback_body;    /* lifecycle.c */
extern const struct shape snapshot_body, snapshots_query, restore_body, fork_body; /* snapshots.c */
extern const struct shape exec_body, window_shape;                                 /* exec.c */
extern const struct shape stream_query, stdin_query, signal_body, resize_body;     /* processes.c */
extern const struct shape pty_query;                                               /* pty.c */
extern const struct shape eval_body, context_body, program_body; /* eval.c, contexts.c, isolate.c */
extern const struct shape where_query, remove_query, dir_query, list_dir_query; /* files.c */
extern const struct shape move_body, attr_body, symlink_body;
extern const struct shape read_query, write_query, watch_query;     /* transfer.c, watch.c */
extern const struct shape volume_body;                              /* volumes.c */
extern const struct shape builtin_body, build_query, build_form;    /* builds.c */
extern const struct shape egress_query, url_query, secret_body;     /* network.c */
extern const struct shape key_body, events_query, logs_query;       /* keys.c, events.c */
extern const struct shape import_query, signer_body, shutdown_body; /* packs.c, admin.c */
extern const struct shape raw_body;                                 /* routes.c: any bytes */

/* sandboxes.c */
http_handler sandboxes_create, sandboxes_list, sandboxes_get, sandboxes_patch, sandboxes_delete, sandboxes_timeout, sandboxes_keepalive, sandboxes_pause, sandboxes_resume, sandboxes_recover, sandboxes_rollback;
struct json;
struct network_spec;
/* A policy in our form, or in one of a dialect's (struct policy_form). */
int native_network(struct api *a, const struct caller *who, const char *tenant, struct json *j,
                   struct network_spec *ret, struct err *e);
void put_sandbox(struct jw *w, const struct sandbox *sb);
/* exec.c, exec_stream.c */
http_handler exec_post;
void put_exit(struct jw *w, const struct exec_exit *x); /* NULL: null */
double tenths(double ms); /* rounded to a tenth */
double duration_ms(int64_t since_mono);
struct exec_input { char *p; size_t n, at; bool eof; }; /* text to feed, then EOF */
void exec_input_push(struct exec *x, struct exec_input *in);
/* Start, or (who given) attach; the reply is NDJSON. Takes in->p. */
void exec_stream_start(struct api *a, struct http_stream *s, struct sandbox *sb, const struct exec_spec *spec, struct exec_input *in);
void exec_stream_attach(struct api *a, struct http_stream *s, struct sandbox *sb, const char *who, uint64_t offset);
/* eval.c, contexts.c */
http_handler eval_post, contexts_create, contexts_list, contexts_get, contexts_delete, contexts_restart, contexts_interrupt;
/* isolate.c */
http_handler isolate_post;
/* processes.c, pty.c */
http_handler processes_list, processes_get, processes_stream, processes_stdin, processes_signal, processes_resize;
http_handler pty_open;
/* files.c (unary), transfer.c (bytes), watch.c */
http_handler files_delete, files_stat_get, files_move_post, files_attr_post, files_symlink_post, dirs_list, dirs_make;
http_handler files_get, files_put;
http_handler watch_open;
void put_entry(struct jw *w, const struct file_entry *en);
struct agent *files_agent(struct api *a, struct http_stream *s); /* NULL: the answer is out */
/* volumes.c: volumes, and the file calls above on their content */
http_handler volumes_create, volumes_list, volumes_get, volumes_delete;
http_handler vfiles_get, vfiles_put, vfiles_delete, vfiles_stat, vfiles_move, vfiles_attr, vfiles_symlink, vdirs_list, vdirs_make;
void put_attachments(struct jw *w, const struct sandbox *sb);
/* snapshots.c */
http_handler sandboxes_fork, sandboxes_restore, snapshots_take, snapshots_list, snapshots_get, snapshots_delete, usage_get;
void put_snapshot(struct jw *w, const struct snapshot *s);
struct snapshot *path_snapshot(struct api *a, struct http_stream *s); /* the one in the path; NULL: the answer is out */
/* tenants.c */
http_handler tenants_get;
/* packs.c */
http_handler packs_export, packs_import, signers_list, signers_put, signers_delete;
/* templates.c, builds.c */
http_handler templates_list, templates_get, templates_delete;
http_handler templates_builtin, templates_build, templates_import;
void put_template(struct jw *w, const struct template *t);
/* network.c */
http_handler network_get, network_put_handler, egress_get, url_get, secrets_put, secrets_list, secrets_delete;
/* keys.c, events.c, observe.c, admin.c */
http_handler keys_create, keys_list, keys_delete;
http_handler events_get, logs_get;
http_handler metrics_get, console_get, prometheus_get;
http_handler health_get, doctor_get, shutdown_post, openapi_get;
