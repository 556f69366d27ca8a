/* The E2B dialect: a translation over the same core calls as the native API.
 * control/ has the control plane, at the root paths that E2B's SDKs use; envd/ and
 * interpreter.c have the two ports of a sandbox that the daemon serves in their
 * place (49983: files, RPC; 49999: code). All other ports are previews. */
#pragma once
#include "api/api.h"
#include "api/req.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/loop.h"
#include <stdbool.h>

struct sandbox;
extern const struct dialect e2b_dialect;

/* What it keeps: templates with their names and builds, and the history of metrics. */
struct e2b {
    struct api *api;
    struct list templates;    /* struct e2b_template, oldest first (control/catalogue.h) */
    bool loaded;
    struct map metrics;       /* sandbox id -> struct e2b_history */
    struct timer sample;
    unsigned char secret[32]; /* signs upload URLs; another one after every start */
};
struct e2b *e2b_of(struct api *a);
void metrics_start(struct e2b *x); /* control/metrics.c */
void metrics_stop(struct e2b *x);

/* traffic.c */
bool e2b_claims(struct api *a, struct http_stream *s);
bool e2b_serve(struct api *a, struct http_stream *s);
bool e2b_host_trusted(struct str authority); /* localhost, an address, sandbox.* */
http_handler e2b_signed_files;
door_serve e2b_envd /* files, RPC */, e2b_interpreter /* /execute, /contexts */;
/* problem.c */
bool e2b_path(struct str path); /* a path of this dialect's control plane */
void e2b_fail(struct http_stream *s, const struct err *e, enum about about);
/* {"code":404,"message":"…"} with that status. */
void e2b_problem(struct http_stream *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void e2b_problem_code(struct http_stream *s, int status, const char *error_code, const char *message); /* with a name that programs read */
