/* One template build in progress; shared by build.c (its life and its packer),
 * build_builtin.c and build_recipe.c (what is packed) and build_publish.c (what
 * becomes of it). */
#pragma once
#include "core/build/build.h"
#include "core/host/host.h"
#include "loop/lines.h"

struct recipe_run;
struct exec;

struct build {
    struct list link;
    struct core *core;
    struct build_ops ops;
    void *arg;
    struct template *t; /* being assembled; the catalogue's once published */
    bool published, done, force;
    char tool_id[22]; /* SP_TOOL in flight, "" if none */
    bool tool_running, pack_running, kernel_stage, kernel_only;
    struct lines tool_lines, pack_lines;
    int low, high, percent; /* the share of the current stage in the whole */
    char last_line[200];    /* of the tool's stderr, for the error text */
    struct err err;         /* the first failure */
    char verify_id[22];     /* sandbox that proves the template */
    struct exec *verify;    /* the command it runs */
    struct recipe_run *recipe;
    char builtin[64];
};

struct build *build_new(struct core *c, const char *tenant /* NULL: for all */, const char *name, const char *source,
                        const struct build_ops *ops, void *arg, struct err *e);
struct build *build_find(struct core *c, const char *id); /* its template's; NULL if it is over */
struct build *build_take(void *ref);                      /* likewise; frees the reference */
void build_progress(struct build *b, int within /* 0..100 of this stage */, const char *step);
void build_stage(struct build *b, int low, int high);
void build_log(struct build *b, const char *line);
void build_succeed(struct build *b,
                   const struct template *t); /* the last word on it, as is build_fail */
void build_fail(struct build *b, const struct err *e);
/* Hand a tar stream (or image) to the packer; the build goes on by itself when it has ended. fd stays the caller's. */
int build_pack(struct build *b, int fd, unsigned mode,
               const char *base /* SP_PACK_ONTO: whose image */, struct err *e);
void build_clear(struct build *b); /* what is left of its packer goes, then recipe_whole */

/* -- build_publish.c -- */
/* The pack has ended well and (if there was one) its source too. */
void build_packed(struct build *b);

/* -- build_builtin.c -- */
void build_tool_ended(struct build *b, const struct sp_exit *ex);

/* -- build_recipe.c, build_export.c -- */
void recipe_run_free(struct recipe_run *r);
bool recipe_again(
    struct recipe_run
        *r); /* the packer could not use the difference: true, the whole tree comes instead */
void recipe_whole(struct recipe_run *r); /* now */
bool recipe_run_finished(
    const struct recipe_run *r); /* its export has ended; build_packed may go on */
