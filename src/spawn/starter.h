/* The start of hutch-spawn, from both sides. The daemon looks for one that
 * serves its home already; else it starts one and holds a lease on it until its
 * own start has succeeded: a start that fails, or is killed, takes the spawner
 * it brought along with it, and never one that was there before.
 *
 * The lease is a socket pair. The spawner writes one struct err into it: E_OK
 * when it serves, else why not. The daemon writes one byte: "stay". The end of
 * the stream without that byte means that the start failed. The byte is never
 * taken out, so that a spawner that its watcher starts later sees it too. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct spawn_conf { const char *home, *run, *share, *bin; uint32_t allow_uid, egress_uid; };

/* ---- the daemon's side; blocking, before there is a loop ---- */

/* Found: by locks, never by connecting, since a connection would replace that of a daemon which lives on this home already.
 * E_CONFLICT: the home or the run folder is another one's. Changes nothing. */
int spawn_find(const struct spawn_conf *c, bool *ret_found, struct err *e) __attribute__((warn_unused_result));
int spawn_start(const struct spawn_conf *c, int *ret_lease, struct err *e) __attribute__((warn_unused_result)); /* it serves; a failure leaves none */
void spawn_lease_keep(int *lease); /* it stays, whatever becomes of us */
void spawn_lease_drop(int *lease); /* it ends, with all it holds; waits for that. -1: none */

/* ---- the spawner's side ---- */
enum spawn_lease { LEASE_OPEN, LEASE_KEPT, LEASE_DROPPED };
enum spawn_lease spawn_lease_look(int starter);
void spawn_tell(int starter, const struct err *e); /* NULL: it serves. A starter below 0: nobody wants to know */

/* What the lock file of a run folder says: version, device, inode and path of the home, and whether there is still a lease on its spawner,
 * which the next daemon must not rely on then. Returns its length. */
int spawn_home_text(const struct stat *home, const char *path, bool leased, char *ret, size_t n);
