/* Pause and resume. One path whoever asks: a call, a timeout, idleness, a
 * quota, the daemon's end. What is under way is a transition of its sandbox; there is one
 * at a time, and calls that come meanwhile wait for it (sandbox_wake).
 *
 * When is a pause true? A VM on disk: from the moment its manifest was renamed
 * into place with this row's generation. A resume: from the moment the row was
 * stored with the next generation; until then nothing has written to its disk,
 * so the saved machine still fits. A crash at any point leaves one or the other. */
#pragma once
#include "core/sandbox/sandbox.h"

struct pause_spec {
    bool files_only;    /* no memory: a resume boots */
    bool memory_wanted; /* refuse rather than keep files only */
    bool standby;       /* memory stays in memory */
    enum pause_why why;
};
/* done (may be NULL) when it is paused and nothing of it uses CPU or (on disk) memory. -1 + e: refused at once. A pause that
 * fails leaves it running. */
int sandbox_pause(struct sandbox *sb, const struct pause_spec *how, sandbox_cb *done, void *arg,
                  struct err *e);
struct resume_spec {
    uint32_t timeout_s; /* 0: the one it has */
    bool cold;          /* boot from its disk, drop saved memory */
};
/* done when it runs and user code goes on. A resume that fails leaves it paused. */
int sandbox_resume(struct sandbox *sb, const struct resume_spec *how, sandbox_cb *done, void *arg,
                   struct err *e);
/* Back to running with as much as there is: a paused one with its memory if that is good, otherwise booted from its disk; a
 * failed one booted from its disk. One that fails again is paused, with its files only. */
enum {
    LOST_MEMORY = 1 /* and with it all processes */,
    LOST_WRITES = 2 /* that were not on its disk yet */,
    LOST_VOLUMES = 4 /* deleted meanwhile */
};
struct jw;
void recover_put_lost(struct jw *w, unsigned lost); /* "memory", "processes", "writes", "volumes" */
typedef void recover_cb(void *arg, struct sandbox *sb /* NULL on error */, unsigned lost,
                        const struct err *e);
int sandbox_recover(struct sandbox *sb, uint32_t timeout_s /* 0: the one it has */,
                    recover_cb *done, void *arg, struct err *e);
/* Calls back once it can take calls: at once if it runs, after what is under way, after a resume if it is paused and asked
 * for that. Otherwise with the error that the call deserves. Never inside the call. */
void sandbox_wake(struct sandbox *sb, sandbox_cb *done, void *arg);

/* -- for sandbox.c and recover.c -- */
void transit_abort(struct sandbox *sb,
                   const struct err *why); /* it is being killed or failed: who waits is told */
bool transit_box_lost(
    struct sandbox *sb,
    const char *message); /* its machine ended: true if that only fails the resume */
