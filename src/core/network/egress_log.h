/* What a sandbox asked for and where it went, as hutch-egress wrote it down:
 * pages of $HUTCH_HOME/log/egress/<sandbox>.log, read on a worker. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct egress_query {
    const char *sandbox;        /* id_ok */
    uint64_t after;             /* sequence number; 0: from the oldest that is kept */
    unsigned limit;             /* lines in the answer */
    const char *kind, *verdict; /* "dns", "deny"; NULL: any */
    const char *name;           /* a host name or address, whole or "*.suffix"; NULL: any */
    bool verify;                /* walk the chain as well */
};
struct egress_page {
    struct buf lines; /* JSON objects, comma-separated */
    unsigned n;
    uint64_t next;     /* `after` of the next page; 0: this was the end */
    uint64_t verified; /* lines of the chain that were found right */
};
typedef void egress_page_cb(void *arg, const struct err *e, const struct egress_page *p);
void egress_log_query(struct core *c, const struct egress_query *q, egress_page_cb *cb, void *arg);
