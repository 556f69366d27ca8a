/* Between the files of volumes only: volume.c (what exists), volume_keeper.c
 * (the process that serves one), volume_mount.c (in sandboxes). */
#pragma once
#include "core/volume/volume.h"

struct volume *volume_at(const struct core *c, const char *id); /* NULL */

struct keeper *keeper_new(struct volume *v);
void keeper_free(struct keeper *k); /* it must not run, or nobody may be left to hear of it */
void keeper_get(struct volume *v,
                void (*cb)(void *arg, struct volume *v, struct agent *a, const struct err *e),
                void *arg);
struct agent *keeper_agent(struct volume *v); /* NULL: not running */
/* End it and unmount; waiters get E_GONE. done when the spawner said so; never before this returns. */
void keeper_stop(struct volume *v, void (*done)(void *arg), void *arg);
void keeper_touch(struct volume *v); /* an attachment went: it may stop after the usual time */
bool keeper_exited(struct volume *v, const struct sp_exit *ex); /* false: not its box */

bool volume_in_use(const struct volume *v); /* some box has it */
void volumes_keeper_lost(struct volume *v); /* it ended while in use: serve its shares anew */
void volumes_let_go(struct volume *v); /* of sandboxes that failed and are only there to be seen */
struct attachment_row;
void volumes_load_attachment(struct core *c, const struct attachment_row *r);
