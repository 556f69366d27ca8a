/* The E2B dialect: a translation over the same core calls as the native API.
 * Control plane at the root paths E2B's SDKs use (e2b_control.c and friends);
 * sandbox traffic, recognised by E2b-Sandbox-Id or a {port}-{id}.<domain> host,
 * is envd (port 49983: files, RPC), the code interpreter (port 49999), or ingress
 * to a port of the guest. */
#pragma once
#include "api/api.h"
#include <stdbool.h>

/* Control plane routes, added to the router by api.c (everything at e2b_path has errors in E2B's form). */
extern const struct route e2b_routes[];
extern const size_t e2b_nroutes;

/* Called before the gate for every request. True: it was sandbox traffic and has been (or will be) answered here. */
bool e2b_sandbox_traffic(struct api *a, struct http_stream *s);

/* -- between the parts -- */
struct sandbox;
struct e2b_may;
/* A door: a port of a sandbox, who may come in (access.h), and what is behind it, called for a running sandbox after that was asked.
 * Those with a port number are served by the daemon itself; the last, 0, stands for all others: servers in the guest. */
struct e2b_door {
    unsigned port;
    const char *name;
    struct e2b_may (*may)(struct api *a, struct http_stream *s, const struct sandbox *sb);
    void (*serve)(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port);
};
extern const struct e2b_door e2b_doors[];
extern const size_t e2b_ndoors;
void e2b_envd(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port);        /* files, RPC */
void e2b_interpreter(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port); /* /execute, /contexts */
void e2b_ingress(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port);     /* HTTP and WebSocket to the guest */
/* It can be worked with, which keeps it from being idle. False: the 502 (or 409 while it changes state) of spec 4.2 is out. */
bool e2b_reachable(struct http_stream *s, struct sandbox *sb);
/* page.c: traffic that cannot be taken. JSON, or a page for a browser that goes there; port 0: not about one. The id is a checked one. */
void e2b_no_traffic(struct http_stream *s, int status, const char *id, unsigned port, const char *message);
/* {"code":404,"message":"…"} with that status. */
void e2b_problem(struct http_stream *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void e2b_problem_code(struct http_stream *s, int status, const char *error_code, const char *message); /* with a name that programs read */
