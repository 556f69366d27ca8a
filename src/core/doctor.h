/* What this host can do for hutch, what that costs, and how to fix it. */
#pragma once
#include "base/err.h"
#include "core/host/check.h"
#include "core/host/config.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
/* What only root can try, by hutch-spawn. features: SP_FEAT_*; 0: it could not be asked, or is of an older version. */
struct doctor_root {
    uint32_t features;
    char why[160];
};
typedef void doctor_root_done(void *arg, const struct doctor_root *root);
void doctor_ask_root(struct core *c, doctor_root_done *done,
                     void *arg); /* done is always called, perhaps at once */
void doctor_try_as_root(
    const struct config *cfg,
    struct doctor_root *ret); /* the same where no daemon runs and we are root: blocks */
size_t doctor_run(const struct config *cfg, const struct doctor_root *root,
                  struct doctor_check *ret, size_t max); /* no core needed; may block for 100 ms */
bool os_tried(
    const char *os_release, char *ret_name,
    size_t cap); /* text of /etc/os-release -> is hutch tried on it, and what it is called */
