/* The framing of the channel between hutchd and hutch-agent. Pure functions,
 * no I/O. Normative text: docs/wire.md.
 *
 * frame   = length(u32) type(u8) chan(u8) zero(u16) stream(u32) payload epoch(u32)
 * sync    = ff ff ff ff "HUTS" version(u32) epoch(u32)      host -> agent
 * ack     = ff ff ff ff "HUTA" version(u32) epoch(u32)      agent -> host
 *
 * All integers little-endian. `length` counts the payload only (<= FRAME_MAX).
 * The trailing epoch must equal the epoch of the last sync; it is what makes a
 * torn frame recognisable. A byte stream that outlives one of its ends (the
 * daemon was killed, a VM was restored from a snapshot) is taken over like
 * this: the new host end writes FRAME_FLUSH zero bytes (only if the stream may
 * be torn) and a sync with a fresh non-zero epoch. Whatever half frame the
 * agent was reading is completed by zeros, fails the epoch check and is skipped
 * whole (its payload may imitate a sync); the agent hunts for the sync. The agent drops all streams and queued output and
 * answers with an ack; the host end discards bytes until it sees the ack. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1
#define FRAME_HEAD   12
#define FRAME_TAIL   4
#define FRAME_MAX    262144 /* an argv and environment fit; bulk DATA goes in far smaller pieces */
#define FRAME_FLUSH  (FRAME_HEAD + FRAME_MAX + FRAME_TAIL)
#define SYNC_SIZE    16

enum frame_type {
    FR_REQ = 1, /* host -> agent: opens a stream; payload = op(u8) + record (wire/msg.h) */
    FR_RES,     /* agent -> host: ends the stream; payload = err_code(u8) + record; the stream id is free afterwards */
    FR_EVENT,   /* agent -> host: payload = event(u8) + record; not flow-controlled */
    FR_DATA,    /* both: payload = bytes of channel `chan`; costs credit */
    FR_EOF,     /* both: no more DATA on `chan` */
    FR_CREDIT,  /* both: payload = u32, that many more DATA bytes may be sent to me on this stream */
    FR_CANCEL,  /* host -> agent: the host lost interest; the agent must still answer with FR_RES (E_CANCELED if unfinished) */
    FR_TYPE_MAX
};
enum frame_chan { CH_STDIN = 0, CH_STDOUT = 1, CH_STDERR = 2, CH_PTY = 3, CH_FILE = 4, CH_TUNNEL = 5, CH_MAX };

struct frame {
    uint8_t type, chan;
    uint32_t stream;
    const unsigned char *p; /* payload, inside the caller's buffer */
    uint32_t n;
};

enum frame_result {
    FRAME_MORE, /* need more bytes; *used may be > 0 while hunting */
    FRAME_GOT,  /* out is filled */
    FRAME_SYNC, /* a sync (or ack) was consumed; reader epoch and peer_version are set */
    FRAME_BAD,  /* not a frame; the reader is now hunting behind *used. A host treats this as a broken agent. */
};

struct frame_reader {
    uint32_t epoch;        /* 0: hunting for a sync */
    uint32_t want_epoch;   /* host: only an ack with this epoch ends the hunt; agent: 0 = take any */
    uint32_t peer_version;
    bool want_ack;         /* host end: true, agent end: false */
};

/* Look at p[0..n); consumes *used bytes. Call again until FRAME_MORE. */
enum frame_result frame_next(struct frame_reader *r, const unsigned char *p, size_t n, size_t *used, struct frame *out);
void frame_put(struct buf *b, uint32_t epoch, enum frame_type type, uint8_t chan, uint32_t stream, const void *p, size_t n);
void frame_put_sync(struct buf *b, uint32_t epoch, bool ack, bool flush);
