/* Everything the daemon knows, owned by the main loop. The API translates
 * requests into calls of sandbox.h, exec.h, files.h, template.h, event.h and
 * auth.h; this header is for start, stop and the odd fact. */
#pragma once
#include "base/err.h"
#include "core/config.h"
#include "loop/job.h"
#include "loop/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct buf;
/* Opens the store, connects to the spawner, loads and adopts what runs. Blocking; before the loop runs. */
struct core *core_new(struct loop *l, struct jobs *jobs, const struct config *cfg, struct err *e);
/* Adopt or account for everything an earlier daemon left; requests are served after it. */
void core_recover(struct core *c, void (*done)(void *arg, const struct err *e), void *arg);
void core_free(struct core *c);
/* keep: leave sandboxes to a successor. done when nothing is left to wait for. */
void core_stop(struct core *c, bool keep, void (*done)(void *arg), void *arg);
struct loop *core_loop(struct core *c);
const struct config *core_config(struct core *c);

struct doctor_check { const char *name, *status /* ok warn fail */; char found[160], lost[160], mend[160]; };
/* What only root can try, by hutch-spawn. features: SP_FEAT_*; 0: it could not be asked, or is of an older version. */
struct doctor_root { uint32_t features; char why[160]; };
typedef void doctor_root_done(void *arg, const struct doctor_root *root);
void doctor_ask_root(struct core *c, doctor_root_done *done, void *arg); /* done is always called, perhaps at once */
void doctor_try_as_root(const struct config *cfg, struct doctor_root *ret); /* the same where no daemon runs and we are root: blocks */
size_t doctor_run(const struct config *cfg, const struct doctor_root *root, struct doctor_check *ret, size_t max); /* no core needed; may block for 100 ms */
bool os_tried(const char *os_release, char *ret_name, size_t cap); /* text of /etc/os-release -> is hutch tried on it, and what it is called */

struct core_counts { size_t sandboxes[8]; /* by state */ size_t pool_vm_ready, pool_vm_started, pool_slots, pool_making, templates; uint64_t creates, create_failures; };
void core_counts(struct core *c, struct core_counts *ret);
struct sandbox_log { int64_t at_ns; const char *level, *message; };
