/* How E2B asks for pages of a log: a sandbox's, or a build's. */
#pragma once
#include "api/e2b/e2b.h"

enum e2b_level { E2B_DEBUG, E2B_INFO, E2B_WARN, E2B_ERROR, E2B_NONE };
struct e2b_log_query {
    uint64_t limit, cursor /* milliseconds */;
    bool has_cursor, backward;
    enum e2b_level level;
    const char *search;
};
enum e2b_level e2b_log_level(const char *name); /* E2B_NONE: no such word */
int e2b_log_query_read(struct http_stream *s, const char *from /* parameter of the cursor */,
                       uint64_t max, struct e2b_log_query *ret, struct buf *search, struct err *e);
