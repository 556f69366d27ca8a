/* Shared by the files of E2B's control plane. The catalogue (names, tags and
 * builds as E2B has them) and the metrics history are this dialect's own state,
 * owned by struct e2b; everything else is core's. Main loop only. */
#pragma once
#include "api/api.h"
#include "api/req.h"
#include "base/list.h"
#include "base/map.h"
#include "core/kv.h"
#include "core/sandbox.h"
#include "json/read.h"
#include "json/write.h"
#include "loop/loop.h"

#define E2B_ENVD_VERSION "0.6.13"
#define E2B_NAMESPACE    "hutch" /* the one team there is */
#define E2B_NAME_MAX     128

struct e2b {
    struct api *api;
    struct list templates;      /* struct e2b_template, oldest first */
    bool loaded;
    struct map metrics;         /* sandbox id -> struct e2b_history */
    struct timer sample;
    unsigned char secret[32];   /* signs upload URLs; another one after every start */
};
struct e2b *e2b_new(struct api *a);
void e2b_free(struct e2b *x);

/* -- problem.c -- */
bool e2b_path(struct str path);                                   /* a path of this dialect's control plane */
bool e2b_cors(struct http_stream *s);                             /* adds the headers; true: it was a preflight and is answered */
void e2b_fail(struct http_stream *s, const struct err *e);
void e2b_req_fail(struct req *r, const struct err *e);
void e2b_req_none(struct req *r, const struct err *e); /* the end of a unary call: 204 or the problem */
void e2b_body(struct http_stream *s, struct api *a, void (*fn)(struct http_stream *s, void *api, const char *p, size_t n));

/* -- idempotency.c -- */
/* Idempotency-Key of a create. True: answered, by the sandbox that it made before or by a refusal. Else opt remembers it. */
bool e2b_idempotent(struct http_stream *s, struct api *a, const char *body, size_t n, struct kv *opt);
bool e2b_has_key(const struct sandbox *sb); /* whoever asked for it may ask again */

/* -- references to templates: [namespace/]name[:tag] -- */
struct e2b_ref { char name[E2B_NAME_MAX], tag[E2B_NAME_MAX]; /* tag "": none given */ };
int e2b_ref_parse(const char *text, struct e2b_ref *ret, struct err *e);
bool e2b_tag_read(const char *tag, char out[E2B_NAME_MAX]); /* in small letters, as references have it; false: not one */

/* -- the catalogue -- */
enum build_state { BUILD_WAITING, BUILD_BUILDING, BUILD_READY, BUILD_ERROR };
struct log_line { int64_t at_ns; const char *level; char *text; char step[12]; };
struct e2b_build {
    struct list link;
    struct e2b_template *t;
    char id[37];
    enum build_state state;
    char core_id[22];           /* of the core's template once ready */
    char key[65];               /* what was asked for, hashed: same text, same result */
    struct kv tags;             /* tag -> "", to be set when it is ready */
    int64_t created_ns, started_ns;
    bool seen;                  /* its status was asked for since */
    struct log_line *log;
    size_t nlog, caplog;
    char *error, error_step[12];
    /* while it runs */
    struct api *api;
    char *tenant;               /* whose (core/tenant.h) */
    struct build *core;
    struct kv lines;            /* recipe line -> what it stands for, see steps.c */
    char core_name[64];
};
struct e2b_template {
    struct list link;
    char id[22];
    char name[E2B_NAME_MAX];
    int64_t created_ns;
    uint32_t cpu, memory_mib;   /* 0: default */
    struct list builds;
    struct kv tags;             /* tag -> build id */
    struct kv tagged;           /* tag -> RFC 3339 */
};
struct e2b_found { char core_id[22], template_id[22], build_id[37], alias[E2B_NAME_MAX]; uint32_t cpu, memory_mib; struct e2b_template *t; };
void catalogue_load(struct e2b *x);
void catalogue_save(struct e2b *x);
void catalogue_free(struct e2b *x);
struct e2b_template *catalogue_get(struct e2b *x, const char *id_or_name);
struct e2b_template *catalogue_add(struct e2b *x, const char *name);
void catalogue_del(struct e2b_template *t);
struct e2b_build *catalogue_add_build(struct e2b_template *t);
struct e2b_build *catalogue_build(struct e2b_template *t, const char *id);
void catalogue_tag(struct e2b_template *t, const char *tag, const char *build_id);
/* A reference as create and fromTemplate take it. E_INVALID, E_NOT_FOUND with E2B's words. */
int catalogue_resolve(struct e2b *x, const char *ref, struct e2b_found *ret, struct err *e);
void build_uuid(const char *core_id, char out[37]); /* of a template that was not built through this dialect */

/* -- steps.c: what E2B's SDK sends to what core builds -- */
struct e2b_recipe { struct buf text; struct kv lines /* "7" -> "step|kind|detail" */, files /* hash -> "" */; int line, cached_line; /* core/template.h */ };
int e2b_steps(struct json *body, const char *from /* core id */, const char *user, const char *workdir, struct e2b_recipe *ret, struct err *e);
void e2b_recipe_fini(struct e2b_recipe *r);
void e2b_build_message(const struct kv *lines, const char *core_msg, struct buf *msg, char step[12]);
const char *e2b_image_template(const char *image, char out[64]); /* our name for an image; never NULL */

/* -- list.c -- */
int e2b_meta_parse(struct str decoded, struct kv *ret); /* the value of the query parameter, decoded once; -1 malformed */
int64_t e2b_time_parse(const char *s);                  /* RFC 3339 with any offset; INT64_MIN: not one */
void put_listed(struct jw *w, const struct sandbox *sb, bool detail);
http_handler e2b_list, e2b_list_v2;

/* -- hosts -- */
struct e2b_target { unsigned port; char id[64]; };
enum e2b_host { E2B_HOST_PLAIN, E2B_HOST_TARGET, E2B_HOST_BAD_PORT, E2B_HOST_BAD_ID };
enum e2b_host e2b_host_parse(struct str authority, struct e2b_target *ret); /* {port}-{id}.rest */
void e2b_cookie_own(struct str set_cookie, struct buf *out);                /* without its Domain: for the host that set it, and no neighbour */
bool e2b_host_trusted(struct str authority);                                /* localhost, an address, sandbox.* */

/* -- control.c, metrics.c, templates.c, builds.c -- */
struct sandbox *e2b_sandbox(struct api *a, struct http_stream *s); /* of {id}, alive; NULL: the 404 is out */
struct sandbox *e2b_find_any(struct api *a, struct http_stream *s); /* also an ended one */
void e2b_put_sandbox(struct jw *w, struct api *a, const struct sandbox *sb);
void e2b_reply_sandbox(struct http_stream *s, struct api *a, int status, const struct sandbox *sb);
int e2b_read_timeout(struct api *a, struct json *j, const char *key, int64_t def, uint32_t *ret, struct err *e);
struct json *e2b_parse_or_empty(const char *p, size_t n, struct err *e);
int e2b_extend(struct sandbox *sb, uint32_t seconds, struct err *e); /* never shortens */
http_handler e2b_create, e2b_create_v2, e2b_get, e2b_delete, e2b_timeout, e2b_refresh, e2b_network,
    e2b_health;
http_handler e2b_secrets, e2b_secret_new, e2b_secret_get, e2b_secret_update, e2b_secret_delete; /* secrets.c */
/* -- volumes.c, volume_content.c -- */
struct volume;
struct volume_mount;
struct volume *e2b_volume(struct api *a, struct http_stream *s); /* of {volume}; NULL: the 404 is out */
void e2b_put_mounts(struct jw *w, const struct sandbox *sb);
int e2b_mounts_read(struct api *a, struct json *j, struct volume_mount *at /* VOLUMES_PER_SANDBOX */, struct sandbox_spec *sp, struct err *e);
http_handler e2b_volumes, e2b_volume_new, e2b_volume_get, e2b_volume_delete, e2b_volume_content;
/* -- snapshots.c -- */
struct snapshot;
struct snapshot *e2b_snapshot_find(struct api *a, const char *ref); /* NULL: no snapshot, or not a reference */
bool e2b_snapshot_named(struct api *a, const char *ref, struct e2b_ref *ret); /* there are snapshots of this name, of other tags perhaps */
void e2b_snapshot_found(const struct snapshot *s, struct e2b_found *ret);
bool e2b_snapshot_delete(struct http_stream *s, struct api *a, const char *ref); /* false: not a snapshot's, nothing was done */
http_handler e2b_fork, e2b_snapshot_take, e2b_snapshots;
http_handler e2b_pause, e2b_connect, e2b_resume; /* lifecycle.c */
/* -- network.c -- */
struct network_spec;
int e2b_network_read(struct api *a, struct json *j /* body of a create */, struct kv *opt, struct network_spec *ret, struct err *e);
int e2b_policy_read(struct api *a, struct json *net /* allowOut, denyOut, rules */, bool internet, struct network_spec *ret, struct err *e);
void e2b_network_text(struct json *ingress, struct json *egress, struct buf *out); /* as shown again: members of either, values masked */
http_handler e2b_metrics, e2b_metrics_batch;
/* -- logs.c -- */
enum e2b_level { E2B_DEBUG, E2B_INFO, E2B_WARN, E2B_ERROR, E2B_NONE };
struct e2b_log_query { uint64_t limit, cursor /* milliseconds */; bool has_cursor, backward; enum e2b_level level; const char *search; };
enum e2b_level e2b_log_level(const char *name); /* E2B_NONE: no such word */
int e2b_log_query_read(struct http_stream *s, const char *from /* parameter of the cursor */, uint64_t max, struct e2b_log_query *ret, struct buf *search, struct err *e);
http_handler e2b_logs, e2b_logs_v2;
void metrics_start(struct e2b *x);
void metrics_stop(struct e2b *x);
http_handler e2b_templates, e2b_template_get, e2b_template_patch, e2b_template_delete, e2b_template_alias, e2b_template_tags, e2b_tags_set, e2b_tags_del;
http_handler e2b_template_new, e2b_build_start;
struct e2b_template *e2b_find_template(struct http_stream *s, struct api *a); /* of {tid}; NULL: the 404 is out */
struct e2b_build *e2b_find_build(struct http_stream *s, struct api *a); /* of {tid} and {bid}; NULL: the 404 is out */
/* -- build_files.c -- */
http_handler e2b_build_file, e2b_build_upload;
int e2b_build_context(struct api *a, const struct kv *files /* by hash */, struct err *e); /* a tar of these; the caller's. Blocks */
/* -- build_status.c -- */
const char *build_state_name(enum build_state s);
http_handler e2b_build_status, e2b_build_logs;
void build_drop(struct e2b_build *b); /* stop it, free it */
