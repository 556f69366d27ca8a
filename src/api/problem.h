/* Errors on the wire, native form:
 *   {"error":{"code":"not_found","message":"…","hint":"…","request_id":"r…"}}
 * The only place of the API that turns an error into a status. Dialects render
 * the same struct err their own way, beside this one. */
#pragma once
#include "base/err.h"
#include "http/stream.h"
#include "json/write.h"

/* What the caller was dealing with; chooses the hint together with the code. */
enum about {
    ABOUT_REQUEST, ABOUT_SANDBOX, ABOUT_TEMPLATE, ABOUT_PROCESS, ABOUT_FILE, ABOUT_KEY, ABOUT_VOLUME, ABOUT_ROUTE, ABOUT_HOST, ABOUT_ORIGIN, ABOUT_SOCKET,
    ABOUT_CONTEXT, ABOUT_NETWORK, ABOUT_SECRET, ABOUT_STATE, ABOUT_RECOVER, ABOUT_ISOLATE, ABOUT_SNAPSHOT,
};
const char *problem_hint(enum err_code code, enum about about); /* never NULL, may be "" */

/* hint NULL: from the table, about the request as such. */
void problem_reply(struct http_stream *s, const struct err *e, const char *hint);
void problem_about(struct http_stream *s, const struct err *e, enum about about);
void problem_method(struct http_stream *s, const char *allow); /* 405, code "invalid" */

/* The object after "error": for streams that fail after their head went out. */
void problem_put(struct jw *w, const struct err *e, const char *hint, const char *request_id, bool trusted);
void problem_put_stream(struct jw *w, struct http_stream *s, const struct err *e, enum about about);
