/* Templates as E2B has them: names, tags, builds. The catalogue is this dialect's
 * own state, owned by struct e2b and stored in its home; the templates themselves
 * are core's. Main loop only. */
#pragma once
#include "api/e2b/e2b.h"
#include "base/list.h"
#include "core/build/build.h"
#include "core/catalog/template.h"
#include "core/host/rights.h"
#include "core/sandbox/sandbox.h"
#include "json/read.h"

#define E2B_NAMESPACE "hutch" /* the one team there is */
#define E2B_NAME_MAX  128

/* -- references to templates: [namespace/]name[:tag] -- */
struct e2b_ref {
    char name[E2B_NAME_MAX], tag[E2B_NAME_MAX]; /* tag "": none given */
};
int e2b_ref_parse(const char *text, struct e2b_ref *ret, struct err *e);
bool e2b_tag_read(
    const char *tag,
    char out[E2B_NAME_MAX]); /* in small letters, as references have it; false: not one */

/* -- the catalogue -- */
enum build_state { BUILD_WAITING, BUILD_BUILDING, BUILD_READY, BUILD_ERROR };
struct log_line {
    int64_t at_ns;
    const char *level;
    char *text;
    char step[12];
};
struct e2b_build {
    struct list link;
    struct e2b_template *t;
    char id[37];
    enum build_state state;
    char core_id[22]; /* of the core's template once ready */
    char key[65];     /* what was asked for, hashed: same text, same result */
    struct kv tags;   /* tag -> "", to be set when it is ready */
    int64_t created_ns, started_ns;
    bool seen; /* its status was asked for since */
    struct log_line *log;
    size_t nlog, caplog;
    char *error, error_step[12];
    /* while it runs */
    struct api *api;
    char *tenant; /* whose (core/host/tenant.h) */
    struct build *core;
    struct kv lines; /* recipe line -> what it stands for, see steps.c */
    char core_name[64];
};
struct e2b_template {
    struct list link;
    char id[22];
    char name[E2B_NAME_MAX], tenant[TENANT_NAME_MAX + 1]; /* tenant "": for all */
    int64_t created_ns;
    uint32_t cpu, memory_mib; /* 0: default */
    struct list builds;
    struct kv tags;   /* tag -> build id */
    struct kv tagged; /* tag -> RFC 3339 */
};
struct e2b_found {
    char core_id[22], template_id[22], build_id[37], alias[E2B_NAME_MAX];
    uint32_t cpu, memory_mib;
    struct e2b_template *t;
};
void catalogue_load(struct e2b *x);
void catalogue_save(struct e2b *x);
void catalogue_free(struct e2b *x);
/* What the caller may use: its tenant's own before what is for all. */
struct e2b_template *catalogue_get(struct e2b *x, const struct caller *who, const char *id_or_name);
struct e2b_template *catalogue_own(struct e2b *x, const char *tenant, const char *name);
struct e2b_template *catalogue_add(struct e2b *x, const char *tenant, const char *name);
void catalogue_del(struct e2b_template *t);
struct e2b_build *catalogue_add_build(struct e2b_template *t);
struct e2b_build *catalogue_build(struct e2b_template *t, const char *id);
void catalogue_tag(struct e2b_template *t, const char *tag, const char *build_id);
/* A reference as create and fromTemplate take it. E_INVALID, E_NOT_FOUND with E2B's words. */
int catalogue_resolve(struct e2b *x, const struct caller *who, const char *ref,
                      struct e2b_found *ret, struct err *e);
void build_uuid(const char *core_id,
                char out[37]); /* of a template that was not built through this dialect */

/* -- steps.c: what E2B's SDK sends to what core builds -- */
struct e2b_recipe {
    struct buf text;
    struct kv lines /* "7" -> "step|kind|detail" */, files /* hash -> "" */;
    int line, cached_line; /* core/catalog/template.h */
};
int e2b_steps(struct json *body, const char *from /* core id */, const char *user,
              const char *workdir, struct e2b_recipe *ret, struct err *e);
void e2b_recipe_fini(struct e2b_recipe *r);
void e2b_build_message(const struct kv *lines, const char *core_msg, struct buf *msg,
                       char step[12]);
const char *e2b_image_template(const char *image,
                               char out[64]); /* our name for an image; never NULL */

/* -- for handlers: of the path, or of a reference in a body -- */
struct e2b_template *e2b_find_template(struct http_stream *s,
                                       struct api *a); /* of {tid}; NULL: the 404 is out */
struct e2b_build *e2b_find_build(struct http_stream *s,
                                 struct api *a); /* of {tid} and {bid}; NULL: the 404 is out */
/* One that was built here; NULL: core's own (*core), or neither and the answer is out. */
struct e2b_template *e2b_find_ref(struct http_stream *s, struct api *a, const char *text,
                                  struct e2b_ref *ref, const struct template **core);
/* -- build_files.c -- */
#define E2B_SHELF 33 /* with the NUL */
/* Where the archives are that a tenant sent for a template. Those of others are elsewhere. */
void e2b_build_shelf(const char *tenant, const struct e2b_template *t, char out[E2B_SHELF]);
int e2b_build_context(struct api *a, const char *shelf, const struct kv *files /* by hash */,
                      struct err *e); /* a tar of these; the caller's. Blocks */
/* -- builds.c -- */
const char *build_state_name(enum build_state s);
void build_drop(struct e2b_build *b); /* stop it, free it */
