/* What traffic to a sandbox gets when the sandbox, or its port, cannot take it:
 * JSON that the SDKs read, or a page for the person whose browser went there. */
#include "api/preview/preview.h"
#include "api/req.h"
#include "json/write.h"
#include <stdio.h>
#include <string.h>

/* A browser that opens an address says that it would like HTML; programs and a page's own requests
 * do not. */
static bool navigating(struct http_stream *s)
{
    struct str accept = http_req_header(s, "Accept"), mode = http_req_header(s, "Sec-Fetch-Mode");
    return http_is(s, "GET") && accept.n && memmem(accept.p, accept.n, "text/html", 9) &&
           (!mode.p || str_eqz(mode, "navigate"));
}

static const char *advice(int status, unsigned port)
{
    if (status == 409)
        return "It is being paused or resumed. Load the page again in a moment.";
    if (port)
        return "Start a server on this port inside the sandbox, then load the page again.";
    return "It was killed, it has reached its timeout, or it is paused. A paused one runs again "
           "after the SDK's connect.";
}

/* id has letters and digits only, the texts are ours: nothing to escape. */
static void html(struct http_stream *s, int status, const char *id, unsigned port,
                 const char *message, const char *then)
{
    struct buf b = {0};
    buf_printf(&b,
               "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
               "content=\"width=device-width\"><title>%s</title>\n"
               "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh "
               "auto;padding:0 1em;color:#222;background:#fff}"
               "code{font-size:.95em}@media(prefers-color-scheme:dark){body{color:#ddd;background:#"
               "181818}}</style>\n"
               "<h1>%s</h1>\n<p>Sandbox <code>%s</code>",
               message, message, id);
    if (port)
        buf_printf(&b, ", port <code>%u</code>", port);
    buf_printf(&b, "</p>\n<p>%s</p>\n</html>\n", then);
    (void)http_header(s, "Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'"); /* nothing is sent yet */
    (void)http_header(s, "Cache-Control", "no-store");
    http_reply(s, status, "text/html; charset=utf-8", b.p, b.n);
    buf_free(&b);
}

static void json(struct http_stream *s, int status, const char *id, unsigned port,
                 const char *message)
{
    struct jw *w = reply_begin(s);
    jw_obj(w);
    if (port)
        jw_kv_str(w, "message", message);
    jw_kv_str(w, "sandboxId", id);
    if (port)
        jw_kv_u64(w, "port", port);
    else
        jw_kv_str(w, "message", message);
    jw_kv_i64(w, "code", status);
    jw_end(w);
    reply_send(s, status);
}

void preview_refuse(struct http_stream *s, int status, const char *id, unsigned port,
                    const char *message)
{
    if (navigating(s))
        html(s, status, id, port, message, advice(status, port));
    else
        json(s, status, id, port, message);
}

void preview_no_token(struct api *a, struct http_stream *s, const char *id)
{
    char message[200], then[200];
    const char *header = api_preview_header(a);
    if (!header)
        header = "(none is known)";
    (void)snprintf(
        message, sizeof message,
        "Sandbox is secured with traffic access token. Token header '%s' is missing or wrong",
        header);
    (void)snprintf(
        then, sizeof then,
        "Its traffic is not public. Send the header %s with the token that its creation returned.",
        header);
    if (navigating(s))
        html(s, 403, id, 0, message, then);
    else
        json(s, 403, id, 0, message);
}

void preview_problem(struct http_stream *s, int status, const char *message)
{
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_i64(w, "code", status);
    jw_kv_str(w, "message", message);
    jw_end(w);
    reply_send(s, status);
}
