/* A socket whose bytes are looked at: plain or under TLS, with bounded buffers
 * in both directions. The owner reads ch->in, writes with chan_write and is told
 * by on_event that something changed. Nothing is called back before a call
 * returns. */
#pragma once
#include "base/buf.h"
#include "crypto/tls.h"
#include "loop/loop.h"
#include <stdbool.h>
#include <stdint.h>

#define CHAN_IN_MAX  (128u * 1024) /* reading stops above */
#define CHAN_OUT_MAX (256u * 1024) /* chan_full above */

struct chan {
    struct loop *loop;
    int fd; /* owned; -1: none */
    struct io io;
    struct tls *tls; /* owned; NULL: plain */
    struct buf in;   /* plain bytes for the owner */
    struct buf out;  /* wire bytes for the socket */
    struct buf wait; /* plain bytes until the handshake is over */
    size_t out_off;
    bool eof;        /* the peer sends no more; `clean` tells whether it said so (always for plain) */
    bool clean, broken, shut, finishing;
    char why[160];   /* broken */
    uint64_t rx, tx; /* wire bytes */
    uint64_t may;    /* wire bytes that may still be read before the owner allows more (chan_allow) */
    bool waiting_more; /* stopped for lack of allowance */
    char *scratch;   /* shared, SCRATCH bytes */
    void (*on_event)(void *arg);
    void *arg;
};

void chan_open(struct chan *ch, struct loop *l, int fd, struct tls *tls, char *scratch); /* takes fd and tls; on_event and arg are set before */
void chan_close(struct chan *ch);                           /* safe on a closed one */
int chan_take(struct chan *ch);                             /* the socket, for somebody else; plain and flushed only. `in` stays readable */
void chan_feed(struct chan *ch, const void *p, size_t n);   /* wire bytes that were read before the chan existed */
void chan_allow(struct chan *ch, uint64_t bytes);           /* may read so many wire bytes from now on */
void chan_write(struct chan *ch, const void *p, size_t n);  /* plain bytes; before the handshake is over they wait */
void chan_finish(struct chan *ch);                          /* after what is queued: no more from us */
void chan_used(struct chan *ch, size_t n);                  /* n bytes of `in` are done with */
static inline size_t chan_queued(const struct chan *ch) { return ch->out.n - ch->out_off; }
static inline bool chan_full(const struct chan *ch) { return chan_queued(ch) > CHAN_OUT_MAX; }
bool chan_ready(const struct chan *ch); /* handshake over, or plain */
