/* Builds of templates. A template is published whole or not at all; "built" means a sandbox was started from it
 * and ran a command. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "core/catalog/template.h"
#include "core/host/rights.h"

struct core;
struct sp_exit;

struct build; /* one build in progress */
struct build_ops {
    void (*progress)(void *arg, int percent, const char *step);
    void (*log)(void *arg, const char *line);
    void (*done)(void *arg, const struct template *t, const struct err *e); /* last */
};
/* A built-in recipe ("base", "code-interpreter", "isolate"). Already there and !force: done at once with it. */
struct build *build_builtin(struct core *c, const char *name, const char *builtin, bool force,
                            const struct build_ops *ops, void *arg, struct err *e);
struct network_spec;
struct recipe_spec {
    const char *name;
    struct str text;
    int context_fd; /* a tar file, taken by build_recipe; -1: none */
    const struct network_spec
        *network;       /* what its steps may reach (core/network/network.h); NULL: nothing */
    const char *tenant; /* whose (core/host/tenant.h); NULL: the operator's, for all */
    const struct caller
        *by;         /* who asks, during the call (core/host/rights.h); NULL: the tenant itself */
    bool force;      /* build it although the same is there */
    int cached_line; /* steps up to this line need not run if they are kept from before (core/build/step_cache.h); 0: all run */
};
struct build *build_recipe(struct core *c, const struct recipe_spec *s, const struct build_ops *ops,
                           void *arg, struct err *e);
/* image_fd: an OCI layout or docker-archive tar, seekable (taken). */
struct build *build_import(struct core *c, const char *tenant, const char *name, int image_fd,
                           const struct build_ops *ops, void *arg, struct err *e);
void build_cancel(
    struct build *b); /* the client left: stop it, leave nothing; no callback after this */
struct manifest;
/* The tree of a container's snapshot pack as a template of its own; m: what the one it stood on was. fd: a tar file (taken). */
struct build *build_tree(struct core *c, const struct manifest *m, int fd,
                         const struct build_ops *ops, void *arg, struct err *e);
int build_tempfile(struct core *c,
                   struct err *e); /* an unlinked file on the home's disk for uploads */

/* -- for core.c -- */
void builds_init(struct core *c);
void builds_free(struct core *c);
void builds_cancel(struct core *c, enum err_code code, const char *why);
void template_tool_exit(struct core *c, const struct sp_exit *ex); /* an exit that is no box's */
