/* One recipe build in progress; shared by build_recipe.c (begin and end),
 * build_steps.c (what runs inside) and build_export.c (what comes out). */
#pragma once
#include "base/buf.h"
#include "core/build/build_int.h"
#include "core/build/plan.h"
#include "core/sandbox/exec.h"
#include "core/network/network.h"
#include "image/recipe.h"

#define BUILD_CONTEXT "/.hutch-context" /* where the context lies inside, while it is built */
#define BUILD_STEP_MS (30 * 60 * 1000)

struct recipe_run {
    struct build *build;
    struct recipe recipe;
    bool parsed;
    int context_fd; /* -1: none */
    struct plan *plan;
    struct network_spec network; /* text NULL: none */
    char *tenant;
    bool force;
    int cached_line; /* up to here steps may come from the cache */
    size_t cached;   /* so many do */
    char from[22];   /* the snapshot they are in */
    char sandbox[22];
    char *user, *cwd; /* of the next step */
    struct kv env;
    size_t at; /* next step */
    struct exec *x;
    bool failed_exit, sent_eof, unpacking; /* the context, no step */
    int status;
    char tail[200];     /* last output line, for the error */
    struct buf partial; /* output not yet ended by a newline */
    /* export */
    int pipe_w;
    struct io pipe_io;
    struct buf queue;
    size_t queue_at;
    bool exporting, export_ended, finished;
    bool whole;       /* the tree, not a difference */
    bool again;       /* the difference was of no use; the rest of the attempt is awaited */
    int64_t since_ns; /* what changed later than this may differ from the parent; wall */
};

struct sandbox *recipe_box(struct recipe_run *r); /* NULL: gone */
void recipe_step_failed(struct recipe_run *r, int line,
                        const char *what); /* with the status and last line it left */
void recipe_fail(struct recipe_run *r, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* -- build_steps.c -- */
void recipe_log(struct recipe_run *r, const unsigned char *p,
                size_t n); /* output of a step, line by line */
void recipe_exited(void *arg, const struct exec_exit *x, uint64_t offset);
struct snapshot *recipe_find_kept(
    struct recipe_run *r); /* the last step that need not run; NULL. Sets cached and from */
void recipe_begin(
    struct recipe_run *r); /* its sandbox is there: what is kept is skipped, the rest runs */

/* -- build_export.c -- */
void recipe_export(struct recipe_run *r); /* the steps are through */
