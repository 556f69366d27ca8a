/* Templates: catalogue and builds. A template is published whole or not at
 * all; "built" means a sandbox was started from it and ran a command. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "core/kv.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct core;

struct template {
    char id[22];
    char *name;
    int64_t created_ns;
    char *source, *parent /* id or NULL */;
    uint64_t size_bytes;
    uint32_t disk_min_mib;
    struct kv env;
    char *user, *workdir, *start, *ready; /* NULL: default */
    unsigned kernels;                     /* that run before anybody asks: kernels.h, warm.h */
    char *content_key;                    /* recipe hash, NULL */
    bool warm_container, warm_vm;
    bool building;                        /* on disk, not proven yet: found by its id only, and its build's to remove */
    bool retired;                         /* another template took its name */
    bool packed;                          /* came with a snapshot pack: found by its id only, and goes with the last that stands on it */
    unsigned users;                       /* live sandboxes and boxes standing on it */
};
void template_free(struct template *t);
struct template *template_find(struct core *c, const char *name_or_id, struct err *e);
size_t template_list(struct core *c, struct template **ret, size_t max); /* by name */
unsigned template_kernels(const struct template *t /* may be NULL */, uint32_t memory_mib); /* its kernels, where there is room for them */
/* Refused while sandboxes stand on it or its build is not over. */
int template_remove(struct core *c, struct template *t, void (*done)(void *arg, const struct err *e), void *arg, struct err *e);

struct build; /* one build in progress */
struct build_ops {
    void (*progress)(void *arg, int percent, const char *step);
    void (*log)(void *arg, const char *line);
    void (*done)(void *arg, const struct template *t, const struct err *e); /* last */
};
/* A built-in recipe ("base", "code-interpreter", "isolate"). Already there and !force: done at once with it. */
struct build *build_builtin(struct core *c, const char *name, const char *builtin, bool force, const struct build_ops *ops, void *arg, struct err *e);
struct network_spec;
struct recipe_spec {
    const char *name;
    struct str text;
    int context_fd;                     /* a tar file, taken by build_recipe; -1: none */
    const struct network_spec *network; /* what its steps may reach (core/network.h); NULL: nothing */
    const char *tenant;                 /* whose (core/tenant.h); NULL: the operator's */
    bool force;                         /* build it although the same is there */
    int cached_line;                    /* steps up to this line need not run if they are kept from before (core/step_cache.h); 0: all run */
};
struct build *build_recipe(struct core *c, const struct recipe_spec *s, const struct build_ops *ops, void *arg, struct err *e);
/* image_fd: an OCI layout or docker-archive tar, seekable (taken). */
struct build *build_import(struct core *c, const char *name, int image_fd, const struct build_ops *ops, void *arg, struct err *e);
void build_cancel(struct build *b); /* the client left: stop it, leave nothing; no callback after this */
struct manifest;
/* The tree of a container's snapshot pack as a template of its own; m: what the one it stood on was. fd: a tar file (taken). */
struct build *build_tree(struct core *c, const struct manifest *m, int fd, const struct build_ops *ops, void *arg, struct err *e);
struct template *template_adopt(struct core *c, const struct manifest *m); /* its directory was just put in place */
void templates_collect(struct core *c);                                   /* something that stood on a packed one may be gone */
int build_tempfile(struct core *c, struct err *e); /* an unlinked file on the home's disk for uploads */
