/* The host end of one sandbox's agent channel: sync, requests, flow control.
 * Lives on the main loop. Trusts nothing the agent says: every frame is
 * bounded, unknown streams are ignored, a malformed frame breaks the channel.
 *
 * A call is one open stream. Its `done` is the last callback and frees it.
 * call_cancel() is the other way: no callback comes after it. */
#pragma once
#include "base/err.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rec.h"
#include "loop/loop.h"

struct agent;
struct call;

struct call_ops {
    void (*event)(void *arg, uint8_t event, struct rec r); /* may be NULL */
    void (*data)(void *arg, uint8_t chan, const unsigned char *p,
                 size_t n);               /* credit is used up; give it back with call_credit */
    void (*eof)(void *arg, uint8_t chan); /* may be NULL */
    void (*room)(void *arg);              /* may be NULL: call_room() grew */
    void (*done)(void *arg, const struct err *e /* NULL: fine */, struct rec r); /* never NULL */
};

/* Takes fd. `broken` is called once, from the loop, when the channel fails; the agent is still the owner's to free. */
struct agent *agent_new(struct loop *l, int fd, void (*broken)(void *arg, const struct err *why),
                        void *arg);
void agent_free(struct agent *a); /* calls still open get done(E_GONE) */

/* (Re)take the stream: new epoch. torn: it may be in the middle of a frame (daemon restart). */
void agent_sync(struct agent *a, bool torn, void (*done)(void *arg, const struct err *e),
                void *arg);
bool agent_synced(const struct agent *a);
bool agent_broken(const struct agent *a); /* the channel failed: silence, or its end */
/* When the channel ends, its owner is about to hear how the machine did: calls that are open end with
 * agent_free, after what the owner has to say, and without that after so long. */
void agent_hold(struct agent *a, int64_t ns);
void agent_silence(struct agent *a,
                   int64_t ns); /* how long it may say nothing while requests are open; 40 s */
void agent_patient(
    struct agent *a); /* silence is not a fault: a VM that stands still says nothing */

/* `body` is a record (may be NULL for none). Never calls back before it returns. NULL + e: channel broken. */
struct call *agent_call(struct agent *a, enum agent_op op, const struct buf *body,
                        const struct call_ops *ops, void *arg, struct err *e);
size_t call_room(const struct call *c); /* bytes the agent will take now */
size_t call_send(struct call *c, uint8_t chan, const void *p,
                 size_t n); /* sends at most call_room(); returns how much */
void call_eof(struct call *c, uint8_t chan);
void call_credit(struct call *c, size_t n);
void call_cancel(struct call *c); /* FR_CANCEL; no callback after this */

struct loop *agent_loop(const struct agent *a);
size_t agent_open(const struct agent *a); /* calls without an answer yet */
void agent_cut(struct agent *a,
               const struct err *why); /* every open call ends with it; the channel stays */

uint64_t agent_bytes_in(const struct agent *a);
