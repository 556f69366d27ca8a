/* The envd half of the E2B dialect: what its parts share. One request at a
 * time comes in through e2b_envd, for a running sandbox and after access.c found
 * its credential right, before any of the functions below is called. */
#pragma once
#include "api/e2b/e2b.h"
#include "api/req.h"
#include "core/sandbox/files.h"
#include "core/sandbox/sandbox.h"
#include "json/read.h"
#include "json/write.h"

/* 502 of a sandbox that is not (or no longer) there: the SDKs ask for exactly this. */
void envd_gone(struct http_stream *s, const char *id);
bool envd_alive(struct api *a, const char *id); /* still running */
/* A path of a request: NULL + e for "~other"; "" becomes the template's work directory, else home. The text is borrowed. */
const char *envd_path(struct sandbox *sb, const char *path, struct err *e);
const char *envd_workdir(struct sandbox *sb); /* the template's; NULL: it has none, home is */
bool envd_no_user(const struct err *e);       /* the agent does not know the acting user */

/* files.c, files_upload.c: user NULL is the default user */
void e2b_files_get(struct api *a, struct http_stream *s, struct sandbox *sb);
void e2b_files_post(struct api *a, struct http_stream *s, struct sandbox *sb);
void e2b_files_compose(struct api *a, struct http_stream *s,
                       struct sandbox *sb); /* files_compose.c */
/* The answer to a failed file request; path may be NULL. Falls to 502 when the sandbox went away. */
void e2b_files_fail(struct api *a, struct http_stream *s, const char *id, const struct err *e,
                    const char *user);
/* X-Metadata-* as "user.e2b.key=value" strings, NULL-terminated; NULL + e when they break a limit. Free with env_free. */
char **e2b_files_metadata(const struct http_head *h, struct err *e);
#define E2B_XATTR "user.e2b."
/* A part's filename as a path: whole, with what forms escape (%22, %0D, %0A) undone. */
void e2b_part_path(struct str filename, struct buf *out);

/* rpc.c: everything below /process.Process/ and /filesystem.Filesystem/. False: no such path. */
bool e2b_rpc(struct api *a, struct http_stream *s, struct sandbox *sb);
