#include "core/host/reason.h"
#include <string.h>

static const char *const ends[END_MAX] = {"",         "killed",      "timeout",    "idle",
                                          "oom",      "guest-exit",  "host-fault", "quota",
                                          "shutdown", "max-lifetime"};

const char *end_name(enum end_reason r) { return (unsigned)r < END_MAX ? ends[r] : ""; }

enum end_reason end_parse(const char *s)
{
    for (int i = 1; s && i < END_MAX; i++)
        if (!strcmp(ends[i], s))
            return (enum end_reason)i;
    return END_NONE;
}
