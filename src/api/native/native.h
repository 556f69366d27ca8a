/* The native API: handlers by file, and the renderings they share. */
#pragma once
#include "api/api.h"
#include "api/req.h"
#include "api/route.h"
#include "core/exec.h"
#include "core/files.h"
#include "core/sandbox.h"
#include "core/template.h"
#include "json/write.h"

extern const struct api_route native_routes[];
extern const size_t native_nroutes;

/* sandboxes.c */
http_handler sandboxes_create, sandboxes_list, sandboxes_get, sandboxes_patch, sandboxes_delete, sandboxes_timeout, sandboxes_keepalive, sandboxes_pause, sandboxes_resume, sandboxes_recover, sandboxes_rollback;
struct json;
struct network_spec;
/* A policy in our form, or in Vercel's (api/vercel/network.h). */
int native_network(struct api *a, struct json *j, struct network_spec *ret, struct err *e);
void put_sandbox(struct jw *w, const struct sandbox *sb);
void put_time(struct jw *w, const char *key, int64_t wall_ns); /* 0: null */
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
struct snapshot *api_snapshot(struct api *a, struct http_stream *s); /* the one in the path; NULL: the answer is out */
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
