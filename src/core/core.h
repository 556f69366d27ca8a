/* Everything the daemon knows, owned by the main loop. The API translates
 * requests into calls of sandbox.h, exec.h, files.h, template.h, event.h and
 * auth.h; this header is for start, stop and the odd fact. */
#pragma once
#include "base/err.h"
#include "core/host/config.h"
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
void core_reload_tenants(struct core *c); /* HUTCH_TENANTS was changed (SIGHUP): in force for running sandboxes too. A wrong one changes nothing */

struct core_counts { size_t sandboxes[8]; /* by state */ size_t pool_vm_ready, pool_vm_started, pool_slots, pool_making, templates; uint64_t creates, create_failures; };
void core_counts(struct core *c, struct core_counts *ret);

/* -- recover.c -- */
void recover_sweep(struct core *c); /* what lies in boxes/ and belongs to nobody goes */
void recover_start(struct core *c, void (*done)(void *arg, const struct err *e), void *arg);
