/* Sandboxes as E2B's control plane shows and makes them: what its files share. */
#pragma once
#include "api/e2b/control/catalogue.h"
#include "api/e2b/e2b.h"
#include "core/sandbox/sandbox.h"
#include "json/read.h"
#include "json/write.h"

#define E2B_ENVD_VERSION "0.6.13"

/* -- sandboxes.c -- */
struct sandbox *e2b_find_sandbox(struct api *a, const struct caller *who, struct str id,
                                 struct err *e); /* alive, by id */
struct sandbox *e2b_find_any(struct api *a,
                             struct http_stream *s); /* also an ended one; NULL: the 404 is out */
void e2b_put_sandbox(struct jw *w, struct http_stream *s, struct api *a, const struct sandbox *sb);
void e2b_reply_sandbox(struct http_stream *s, struct api *a, int status, const struct sandbox *sb);
int e2b_read_timeout(struct api *a, struct json *j, const char *key, int64_t def, uint32_t *ret,
                     struct err *e);
struct json *e2b_parse_or_empty(const char *p, size_t n, struct err *e);
int e2b_extend(struct sandbox *sb, uint32_t seconds, struct err *e); /* never shortens */
/* s: for which with all details; NULL: in a list. token: the caller may have it, which opens the
 * sandbox. */
void put_listed(struct jw *w, const struct sandbox *sb, struct http_stream *s, bool token);
/* -- list.c -- */
int e2b_meta_parse(
    struct str decoded,
    struct kv *ret); /* the value of the query parameter, decoded once; -1 malformed */
int64_t e2b_time_parse(const char *s); /* RFC 3339 with any offset; INT64_MIN: not one */
/* -- idempotency.c -- */
/* Idempotency-Key of a create. True: answered, by the sandbox that it made before or by a refusal. Else opt remembers it. */
bool e2b_idempotent(struct http_stream *s, struct api *a, const char *body, size_t n,
                    struct kv *opt);
bool e2b_has_key(const struct sandbox *sb); /* whoever asked for it may ask again */
/* -- volumes.c -- */
struct volume;
struct volume_mount;
struct volume *e2b_find_volume(struct api *a, const struct caller *who, struct str id,
                               struct err *e);
void e2b_put_mounts(struct jw *w, const struct sandbox *sb);
int e2b_mounts_read(struct api *a, struct json *j,
                    struct volume_mount *at /* VOLUMES_PER_SANDBOX */, struct sandbox_spec *sp,
                    struct err *e);
/* -- snapshots.c -- */
struct snapshot;
struct snapshot *e2b_snapshot_find(struct api *a, const struct caller *who,
                                   const char *ref); /* NULL: no snapshot, or not a reference */
bool e2b_snapshot_named(
    struct api *a, const struct caller *who, const char *ref,
    struct e2b_ref *ret); /* there are snapshots of this name, of other tags perhaps */
void e2b_snapshot_found(const struct snapshot *s, struct e2b_found *ret);
bool e2b_snapshot_delete(struct http_stream *s, struct api *a,
                         const char *ref); /* false: not a snapshot's, nothing was done */
/* -- network.c -- */
struct network_spec;
int e2b_network_read(struct api *a, const struct caller *who, struct json *j /* body of a create */,
                     struct kept *k, struct network_spec *ret, struct err *e);
int e2b_policy_read(struct api *a, const struct caller *who, const char *tenant,
                    struct json *net /* allowOut, denyOut, rules */, bool internet,
                    struct network_spec *ret, struct err *e);
void e2b_network_text(struct json *ingress, struct json *egress,
                      struct buf *out); /* as shown again: members of either, values masked */
