/* The agent's end of the channel: frames in, frames out, streams and credit.
 * Normative text: docs/wire.md.
 *
 * A request that is answered at once is a plain handler: reply_begin, fields,
 * reply_send. One that lives longer embeds a `struct stream` as its first
 * member. A stream with something to do is put on the run queue (stream_wake);
 * its run() does a bounded piece of work (<= RUN_CHUNK bytes) and the queue is
 * served round-robin while the output queue is below OUT_RUN, so one stream
 * can neither stall the others nor grow the queue. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "guest/loop.h"
#include "wire/frame.h"
#include "wire/rec.h"
#include <stdbool.h>
#include <stdint.h>

#define RUN_CHUNK    (32u << 10)
#define OUT_RUN      (256u << 10) /* streams produce only below this */
#define OUT_READ     (1u << 20)   /* requests are read only below this */
#define STREAMS_MAX  4096
#define IN_CAP       (2 * FRAME_FLUSH)
#define STREAM_HASH  256

struct agent;
struct stream;
struct stream_ops {
    void (*data)(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *p, uint32_t n); /* NULL: takes none */
    void (*eof)(struct agent *a, struct stream *s, uint8_t chan);                                       /* may be NULL */
    void (*cancel)(struct agent *a, struct stream *s); /* NULL: answered with E_CANCELED */
    bool (*run)(struct agent *a, struct stream *s);    /* true: call again. May end the stream (then false). */
    void (*drop)(struct agent *a, struct stream *s);   /* release what hangs on it; not the stream itself */
};
struct stream {
    struct list hash, run;
    const struct stream_ops *ops;
    uint32_t id;
    uint32_t owed; /* consumed but not yet granted again */
    uint64_t tx;   /* DATA bytes we may still send */
    uint64_t rx;   /* DATA bytes the host may still send */
};

struct chan {
    struct io io;
    struct frame_reader rd;
    struct buf out;
    size_t out_head;       /* out.p[0..out_head) is written already */
    struct buf scratch;    /* the reply or event being built */
    struct list runq;
    struct list hash[STREAM_HASH];
    unsigned nstreams;
    size_t in_n;
    bool hup;              /* vm: the host end is away */
    bool vm;
    bool stalled;          /* complete frames wait in `in` for the output queue to drain */
    unsigned char in[IN_CAP];
};

struct req {
    struct agent *a;
    uint32_t id;   /* stream */
    uint8_t op;
    struct rec rec;
};

void chan_init(struct agent *a, int fd, bool vm);
void chan_fini(struct agent *a);
bool chan_flush(struct agent *a);   /* false: the channel is gone for good */
void chan_resume(struct agent *a);  /* handle frames kept back by a full output queue */
static inline size_t chan_pending(const struct chan *c) { return c->out.n - c->out_head; }

/* Building answers. The scratch buffer is one: begin .. send without another begin between. */
struct buf *reply_begin(struct agent *a);
void reply_send(struct agent *a, uint32_t id);
void reply_ok(struct agent *a, uint32_t id);
void reply_err(struct agent *a, uint32_t id, const struct err *e);
struct buf *event_begin(struct agent *a, uint8_t event);
void event_send(struct agent *a, uint32_t id);

/* size >= sizeof(struct stream); zeroed; NULL after answering E_QUOTA itself */
void *stream_new(const struct req *q, size_t size, const struct stream_ops *ops);
struct stream *stream_find(struct agent *a, uint32_t id);
void stream_wake(struct agent *a, struct stream *s);
void stream_data(struct agent *a, struct stream *s, uint8_t chan, const void *p, uint32_t n); /* n <= tx */
void stream_eof(struct agent *a, struct stream *s, uint8_t chan);
void stream_window(struct agent *a, struct stream *s, uint32_t n);  /* first grant; the same amount is accepted unasked */
void stream_consumed(struct agent *a, struct stream *s, uint32_t n); /* grants again in steps */
void stream_close(struct agent *a, struct stream *s);               /* drop without an answer (reply_* was called before) */
void stream_end_ok(struct agent *a, struct stream *s);
void stream_end_err(struct agent *a, struct stream *s, const struct err *e);
void streams_drop_all(struct agent *a);
