/* Who owns what in HOME and RUN. Root works in both as long as hutch lives, and
 * the daemon, which may have been broken into, writes to both: so every name
 * that root uses lies in a folder where the daemon cannot move or replace it.
 * docs/decisions/047-folders-of-root.md
 *
 *   HOME                  root, sticky; the daemon's group may add files of its own
 *   HOME/templates, snapshots   root; the daemon's group writes
 *   HOME/boxes            root, sticky
 *   HOME/tmp, cache       the daemon's; root never goes there
 *   HOME/log, fs, volumes, kernel, root-cache   root's alone
 *   RUN                   root, sticky
 *   RUN/spawn             root's alone */
#pragma once
#include "spawn/starter.h"

#define PLACE_ROOT_CACHE "root-cache"     /* of tools that run as root */
#define PLACE_DEBS       "root-cache/apt" /* packages, and what bootstrap.sh noted */

/* Makes them all, and takes them over from versions that gave everything to the daemon. Blocking; before the daemon has given up root. */
int place_take(const struct spawn_conf *c, struct err *e) __attribute__((warn_unused_result));

/* log/<name> of a program of root's, for appending and reading -> descriptor. */
int place_log(const char *home, const char *name, struct err *e)
    __attribute__((warn_unused_result));
