/* Errors on the wire, native form:
 *   {"error":{"code":"not_found","message":"…","reason":"unknown_sandbox","hint":"…","request_id":"r…"}}
 * "reason" and "hint" are there if something can be done about it (err_why).
 * The only place of the API that turns an error into a status. Dialects render
 * the same struct err their own way, beside this one. */
#pragma once
#include "base/err.h"
#include "http/stream.h"
#include "json/write.h"

/* What the caller was dealing with: with the code it gives the reason of an error that was made without one. */
enum about {
    ABOUT_REQUEST, ABOUT_SANDBOX, ABOUT_TEMPLATE, ABOUT_PROCESS, ABOUT_FILE, ABOUT_KEY, ABOUT_VOLUME, ABOUT_ROUTE, ABOUT_HOST, ABOUT_ORIGIN, ABOUT_SOCKET,
    ABOUT_CONTEXT, ABOUT_NETWORK, ABOUT_SECRET, ABOUT_STATE, ABOUT_RECOVER, ABOUT_ISOLATE, ABOUT_SNAPSHOT, ABOUT_METHOD /* the path has no such method: 405 */,
};
enum err_why problem_why(const struct err *e, enum about about);
const char *problem_hint(enum err_why why); /* never NULL, may be ""; "{}" stands for the id */

/* hint NULL: chosen by the reason. */
void problem_reply(struct http_stream *s, const struct err *e, const char *hint);
void problem_about(struct http_stream *s, const struct err *e, enum about about);

/* The object after "error": for streams that fail after their head went out. */
void problem_put(struct jw *w, const struct err *e, const char *request_id, bool trusted);
void problem_put_stream(struct jw *w, struct http_stream *s, const struct err *e, enum about about);
