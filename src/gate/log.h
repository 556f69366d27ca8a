/* The egress log of a sandbox: <sandbox>.log in hutch-egress' log directory
 * ($HUTCH_HOME/log/egress), JSON lines, older parts <sandbox>.log.1, .2, …
 *
 *   {"seq":7,"time":"2026-01-02T03:04:05.678Z","box":"…","sandbox":"…","kind":"open","conn":3,"name":"example.org","addr":"192.0.2.1",
 *    "port":443,"type":"tls","verdict":"allow","rule":"allow example.org","hash":"<64 hex>"}
 *
 * hash = SHA-256 over the earlier line's hash (64 hex digits; for seq 1 the
 * sandbox id) and this line's bytes up to and without `,"hash"`. A line that was changed, removed or
 * inserted breaks the chain from there on. Kinds and fields: gate/ctl.h.
 * Written by hutch-egress only; hutchd reads (files are of its group). Beside
 * them lie its counts (gate/meter.c), which go with what is too old. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "gate/client.h"
#include <stdbool.h>

/* Writing. One per sandbox; dirfd is borrowed for its life. */
struct egress_log;
struct egress_log *egress_log_open(int dirfd, const char *sandbox, uint64_t max_bytes, unsigned files, struct err *e); /* goes on after the last line */
void egress_log_put(struct egress_log *l, struct gate_record *r); /* sets seq and time; a full disk is counted and told in the next line */
void egress_log_close(struct egress_log *l);
uint64_t egress_log_seq(const struct egress_log *l);
const char *egress_log_hash(const struct egress_log *l);

#define EGRESS_COUNT ".count"  /* how the name of a count ends */
#define EGRESS_GROUP ".group-" /* and begins, if it is not a sandbox's */

/* Removes parts and counts that were last written before `older` (wall clock); not the newest part of a sandbox that is in use, whose chain
 * goes on in it. */
void egress_logs_sweep(int dirfd, int64_t older, bool (*in_use)(void *arg, struct str sandbox), void *arg);
/* Removes the logs of sandboxes that are not in use, those written to longest ago first, until `most` of them are left. Counts stay: a sandbox that
 * is paused is not in use here, and begins no new budget because others came and went. */
void egress_logs_trim(int dirfd, size_t most, bool (*in_use)(void *arg, struct str sandbox), void *arg);

/* Reading: lines with seq > after, oldest first, at most `max` of them, as JSON array elements (no brackets, comma separated)
 * into out. Returns how many; -1 if the log cannot be read. No log: 0. */
long egress_log_read(int dirfd, const char *sandbox, uint64_t after, size_t max, struct buf *out, struct err *e);
/* The whole chain that is kept, and that it holds the line its writer knows as the last, so that none is missing at the end.
 * 0 and *ret_lines; -1 says which line is wrong. */
struct egress_last { uint64_t seq; char hash[65]; };
int egress_log_verify(int dirfd, const char *sandbox, const struct egress_last *last /* NULL: nobody knows */, uint64_t *ret_lines, struct err *e);
