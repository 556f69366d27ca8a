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
/* The envd half: id is the sandbox id, the request's own path decides. Checks the access token itself. */
void e2b_envd(struct api *a, struct http_stream *s, const char *id);
/* A header-less signed /files URL on a plain host (spec 1.5): finds the sandbox by signature. True: answered. */
bool e2b_signed_files(struct api *a, struct http_stream *s);
/* The code interpreter, port 49999: /execute, /contexts. */
void e2b_interpreter(struct api *a, struct http_stream *s, const char *id);
/* Forward to a port of the guest (HTTP and WebSocket). */
void e2b_ingress(struct api *a, struct http_stream *s, const char *id, unsigned port);
/* Issued without an access token (v1 create with "secure":false)? Then envd asks for none. */
struct sandbox;
bool e2b_secure(const struct sandbox *sb);
/* The running sandbox of that id; NULL: the 502 (or 409 while it changes state) of spec 4.2 is out. */
struct sandbox *e2b_running(struct api *a, struct http_stream *s, const char *id);
/* Its traffic token, if it has one, came along. False: the 403 is out. */
bool e2b_traffic_allowed(struct http_stream *s, const struct sandbox *sb);
/* page.c: traffic that cannot be taken. JSON, or a page for a browser that goes there; port 0: not about one. The id is a checked one. */
void e2b_no_traffic(struct http_stream *s, int status, const char *id, unsigned port, const char *message);
/* {"code":404,"message":"…"} with that status. */
void e2b_problem(struct http_stream *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void e2b_problem_code(struct http_stream *s, int status, const char *error_code, const char *message); /* with a name that programs read */
