/* A tier in memory, for tests of what is above tiers: a machine is a socket pair with an agent of a few lines behind
 * it, a saved machine is an entry in a table. hutchd does not link it. A test puts it in front with
 *
 *     tiers = fake_tiers;
 *     fake_begin(loop, home_fd, on_exit, arg);
 *
 * Machines outlive who dropped them, as real ones do: fake_stop() ends one (the spawner's SP_REMOVE), fake_die() lets
 * one end by itself. Where core looks for files there are some: boxes/<id>/disk, snapshots/<id>/manifest.json.
 *
 * Steps. Whatever is asked of the tier or of an agent is a step with a name: "start", "adopt", "wake", "hold", "go"
 * (hold, off), "save", "copy" (of a saved one), "take", "publish", "agent.configure", "agent.freeze", … A test's own
 * fakes add theirs with fake_step(). Each is answered at the end of the turn, or as the test said before:
 *
 *     fake_fail("publish", 1, FAKE_FAILS);     the next one
 *     fake_fail(NULL, 7, FAKE_DIES);           the seventh step from now, whatever it is
 *
 * Thread: the loop's. One at a time per process. */
#pragma once
#include "tier/machine.h"

struct loop;

/* As a microVM and as a container: what each can do, and nothing else, differs. */
extern const struct tier fake_vm, fake_box;
extern const struct tier *const fake_tiers[];

enum fake_how {
    FAKE_WELL,
    FAKE_FAILS,  /* E_INTERNAL "told to fail" */
    FAKE_SILENT, /* no answer comes */
    FAKE_DIES,   /* the machine ends instead; what was asked fails with E_GONE */
};

void fake_begin(struct loop *l, int home_fd, void (*on_exit)(void *arg, const char *id), void *arg);
void fake_end(void); /* everything goes */

enum fake_how fake_step(const char *name, const char *id /* of the box; may be NULL */);
void fake_fail(const char *name /* NULL: any */, unsigned nth /* from now, 1: the next */,
               enum fake_how how);
size_t fake_fail_none(void); /* forgets what did not happen yet; how much that was */
extern void (*fake_watch)(void *arg, const char *name,
                          const char *id); /* hears of every step first; NULL: nobody */
extern void *fake_watch_arg;

/* What there is. */
size_t fake_machines(char ids[][22], size_t max); /* processes; returns how many there are */
bool fake_lives(const char *id);
bool fake_works(const char *id);          /* its processors run, and so do its users' processes */
uint64_t fake_generation(const char *id); /* as its agent was told last */
bool fake_has_saved(const char *id);
void fake_set_cpu(const char *id, uint64_t cpu_ns); /* for its agent's metrics */
size_t fake_pending(void);                          /* answers that are still to come */
void fake_call_off(void); /* … and now do not: the daemon that asked is about to go */
void fake_stop(const char *id);
void fake_die(const char *id);
void fake_forget(const char *id); /* its files go: what was saved of it too */
