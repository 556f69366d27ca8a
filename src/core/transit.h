/* Inside of pause.c, resume.c, snapshot_take*.c, rollback.c, transit.c and network_force.c (which waits): what is under way with a sandbox.
 *
 * A transition belongs to its sandbox and ends exactly once (transit_end): done,
 * failed, or aborted because the sandbox is killed or lost. Agent calls, vm
 * calls and the saving end with it; store and box callbacks cannot be called
 * off, so they hold it (transit_hold, and transit_back first thing). */
#pragma once
#include "core/internal.h"
#include "core/pause.h"

enum transit_kind { PAUSE, RESUME, ROLLBACK, SNAPSHOT /* it runs all the while: calls do not wait for it */ };

struct vm_saving;
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
    struct vm_saving *saving;
    struct prime *prime;
    struct taking *taking; /* SNAPSHOT */
    void (*on_end)(struct transit *t, const struct err *e /* NULL: well */); /* may be NULL */
    char base[22];         /* ROLLBACK: the snapshot; */
    char other[22];        /* the box of the two that the sandbox has not (now); "" */
    bool boots, changed;   /* on files alone; the sandbox has the new one (now) */
    bool frozen, stopped;  /* PAUSE: how far it got */
    bool deepen;           /* PAUSE: it was in standby */
    bool committed;        /* RESUME: the row says it runs */
    bool bumped;           /* RESUME: the generation is the next one already */
    bool failing;          /* RESUME: its machine is being removed */
    bool over;
    unsigned refs;         /* callbacks under way that nothing can call off */
    int parts;             /* what is still to come of the last step */
    int64_t begun;
    struct err err;
};

struct transit *transit_new(struct sandbox *sb, enum transit_kind kind, void (*on_deadline)(void *));
struct sandbox *transit_owner(const struct transit *t); /* NULL: over, or the sandbox is gone */
void transit_wait(struct transit *t, sandbox_cb *done, void *arg, bool settle /* only wants to know that it is over */);
struct transit *transit_hold(struct transit *t);
bool transit_back(struct transit *t); /* false: it is all over, and t may be gone */
void transit_end(struct transit *t, const struct err *e);

/* The other transition first, then what was asked for. */
struct transit_again { struct core *core; char id[22]; enum transit_kind kind; struct pause_spec pause; struct resume_spec resume; sandbox_cb *done; void *arg; };
int transit_after(struct sandbox *sb, struct transit_again a);
int transit_not_now(const struct sandbox *sb, const char *what, struct err *e);
