#include "api/cors.h"

#define ASKED_MAX 4096

void cors_open(struct http_stream *s)
{
    (void)http_header(s, "Access-Control-Allow-Origin",
                      "*"); /* nothing is sent yet: it cannot be too late */
    (void)http_header(s, "Access-Control-Expose-Headers", "*");
}

bool cors_asks(struct http_stream *s)
{
    return http_is(s, "OPTIONS") && http_req_header(s, "Origin").p &&
           http_req_header(s, "Access-Control-Request-Method").p;
}

void cors_preflight(struct http_stream *s)
{
    struct str asked = http_req_header(s, "Access-Control-Request-Headers");
    cors_open(s);
    (void)http_header(s, "Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
    if (asked.n && asked.n < ASKED_MAX) /* "*" does not cover Authorization; the list does */
        (void)http_headerf(s, "Access-Control-Allow-Headers", "%.*s", (int)asked.n, asked.p);
    else
        (void)http_header(s, "Access-Control-Allow-Headers", "*");
    (void)http_header(s, "Access-Control-Max-Age", "7200");
    http_reply(s, 204, NULL, NULL, 0);
}
