/* A reply of JSON lines that never falls silent: after 15 s without a line it
 * says {"event":"keepalive"}. Embedded in a handler's state. */
#pragma once
#include "http/stream.h"
#include "json/write.h"

#define NDJSON_QUIET_S 15
struct ndjson { struct http_stream *s; struct timer quiet; int64_t quiet_ns; struct buf line; struct jw w; };
void nd_start(struct ndjson *n, struct http_stream *s); /* 200 and the head; s is borrowed */
struct jw *nd_event(struct ndjson *n, const char *event); /* opens {"event":…; nd_send closes and sends it */
void nd_send(struct ndjson *n);
void nd_end(struct ndjson *n);  /* proper end of the reply */
void nd_fini(struct ndjson *n); /* timer and memory; safe on a zeroed one and twice */
