/* Lines of a stream: a splitter without I/O, and a reader over an HTTP body
 * that also wakes for signals and time. */
#pragma once
#include "base/buf.h"
#include "cli/cli.h"
#include "base/str.h"
#include "http/client.h"

#define LINE_MAX_BYTES (24u << 20) /* more than the longest thing the server puts on one line */

struct splitter { struct buf b; size_t at /* start of the next line */, seen /* no newline before this */; };
void splitter_push(struct splitter *s, const char *p, size_t n);
bool splitter_next(struct splitter *s, struct str *line); /* without the newline; valid until the next push */
size_t splitter_rest(const struct splitter *s);           /* bytes of an unfinished line */
void splitter_free(struct splitter *s);

enum lines_got { LINES_BROKEN = -1, LINES_END, LINES_LINE, LINES_TICK, LINES_SIGNAL };
struct lines { struct http_client *c; struct splitter split; int sigfd; /* -1: none */ uint64_t got; };
/* Waits at most tick_ms (-1: for ever). LINES_BROKEN sets e, also when the body ends inside a line. */
enum lines_got lines_next(struct lines *l, int tick_ms, struct str *line, struct err *e);

/* INT, TERM and HUP arrive on the returned fd instead of ending the process. */
int signals_open(void);
int signals_take(int fd); /* the next signal number, 0 if none is waiting */
