/* What clients send, checked: query parameters, members of JSON bodies, and
 * the grammars both share. Every refusal is E_INVALID (E_TOO_LARGE for sizes)
 * and names the member and its limit. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "json/kv.h"
#include "http/stream.h"
#include "json/read.h"

#define PARAM_BODY_MAX  (1u << 20) /* a JSON body */
#define PARAM_ENV_MAX   256        /* entries */
#define PARAM_ARG_MAX   (128 * 1024) /* bytes of one argument or K=V, the kernel's MAX_ARG_STRLEN */
#define PARAM_ARGS_MAX  4096
#define PARAM_META_MAX  64
#define PARAM_META_VALUE_MAX 4096
#define PARAM_PATH_MAX  4096
#define PARAM_WINDOW_MAX     4096 /* columns or rows of a terminal */

/* -- the query; absent: def. b gets the decoded text, the result points into it -- */
const char *param_str(struct http_stream *s, const char *key, struct buf *b);                /* NULL if absent, else NUL-terminated */
int param_text(struct http_stream *s, const char *key, size_t max, struct buf *b, const char **ret, struct err *e); /* absent or empty: NULL */
int param_u64(struct http_stream *s, const char *key, uint64_t min, uint64_t max, uint64_t def, uint64_t *ret, struct err *e);
int param_bool(struct http_stream *s, const char *key, bool def, bool *ret, struct err *e);  /* 1 0 true false */
/* family.KEY=VALUE pairs, or family[KEY]=VALUE. env: names and sizes as for body_env; else as for metadata. */
int param_map(struct http_stream *s, const char *family, bool env, struct kv *ret, struct err *e);

/* -- members of a body -- */
int body_env(struct json *obj, const char *key, struct kv *ret, struct err *e);
int body_meta(struct json *obj, const char *key, struct kv *ret, struct err *e);

/* -- grammars -- */
bool env_key_ok(struct str k);                       /* ^[A-Za-z_][A-Za-z0-9_]*$ */
int mode_parse(struct str text, uint32_t *ret);      /* octal, up to 07777; -1 */
bool who_ok(const char *who);                        /* a pid, or tag:NAME */
