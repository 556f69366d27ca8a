/* Inside of pause.c, resume.c, snapshot_take*.c, rollback.c, transit.c and network_force.c (which waits): what is under way with a sandbox.
 *
 * A transition belongs to its sandbox and ends exactly once (transit_end): done,
 * failed, or aborted because the sandbox is killed or lost. Machine calls and the
 * saving end with it; agent, store and box callbacks cannot be called off (an
 * agent may answer long after a deadline has passed, or when its box goes), so
 * they hold it (transit_call, transit_hold, and transit_back first thing). */
#pragma once
#include "base/clock.h"
#include "core/agent/agent.h"
#include "core/life/life_int.h"
#include "core/life/pause.h"

#define THAW_NS (120 * NS_PER_S) /* what was frozen goes on by then; hooks may run before */

enum transit_kind {
    PAUSE,
    RESUME,
    ROLLBACK,
    SNAPSHOT /* it runs all the while: calls do not wait for it */
};

struct saving;
struct prime;
struct taking;

struct transit {
    struct core *core;
    char id[22];
    enum transit_kind kind;
    struct pause_spec pause;
    struct resume_spec resume;
    struct list waiters;
    struct timer deadline;
    struct saving *saving;
    struct prime *prime;
    struct taking *taking;                                                   /* SNAPSHOT */
    void (*on_end)(struct transit *t, const struct err *e /* NULL: well */); /* may be NULL */
    char base[22];        /* ROLLBACK: the snapshot; */
    char other[22];       /* the box of the two that the sandbox has not (now); "" */
    bool boots, changed;  /* on files alone; the sandbox has the new one (now) */
    bool frozen, stopped; /* PAUSE: how far it got */
    bool deepen;          /* PAUSE: it was in standby */
    bool committed;       /* RESUME: the row says it runs */
    bool bumped;          /* RESUME: the generation is the next one already */
    bool failing;         /* RESUME: its machine is being removed */
    bool over;
    unsigned refs; /* callbacks under way that nothing can call off */
    int parts;     /* what is still to come of the last step */
    int64_t begun;
    struct err err;
};

struct transit *transit_new(struct sandbox *sb, enum transit_kind kind,
                            void (*on_deadline)(void *));
struct sandbox *transit_owner(const struct transit *t); /* NULL: over, or the sandbox is gone */
void transit_wait(struct transit *t, sandbox_cb *done, void *arg,
                  bool settle /* only wants to know that it is over */);
struct transit *transit_hold(struct transit *t);
/* Asks the agent of its box; ops->done gets t, held. -1 + e: the channel is broken, nothing will be called. */
int transit_call(struct transit *t, enum agent_op op, const struct buf *body,
                 const struct call_ops *ops, struct err *e);
void transit_deadline(struct transit *t, int64_t ns,
                      void (*late)(void *transit)); /* instead of the one it has */
bool transit_back(struct transit *t);               /* false: it is all over, and t may be gone */
void transit_end(struct transit *t, const struct err *e);

/* The other transition first, then what was asked for. */
struct transit_again {
    struct core *core;
    char id[22];
    enum transit_kind kind;
    struct pause_spec pause;
    struct resume_spec resume;
    sandbox_cb *done;
    void *arg;
};
int transit_after(struct sandbox *sb, struct transit_again a);
int transit_not_now(const struct sandbox *sb, const char *what, struct err *e);
