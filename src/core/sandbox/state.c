#include "core/sandbox/state.h"
#include <string.h>

static const char *const names[SB_STATE_MAX] = {"creating", "running", "pausing", "paused",
                                                "stopping", "gone",    "failed"};

/* 0 = not allowed, else next state + 1 */
#define TO(s) ((s) + 1)
static const unsigned char table[SB_STATE_MAX][SBE_MAX] = {
    [SB_CREATING] =
        {[SBE_READY] = TO(SB_RUNNING), [SBE_KILL] = TO(SB_STOPPING), [SBE_FAIL] = TO(SB_FAILED)},
    [SB_RUNNING] =
        {[SBE_PAUSE] = TO(SB_PAUSING), [SBE_KILL] = TO(SB_STOPPING), [SBE_FAIL] = TO(SB_FAILED)},
    [SB_PAUSING] = {[SBE_PAUSED] = TO(SB_PAUSED),
                    [SBE_KILL] = TO(SB_STOPPING),
                    [SBE_FAIL] = TO(SB_FAILED),
                    [SBE_RESUME] = TO(SB_RUNNING)},
    [SB_PAUSED] =
        {[SBE_RESUME] = TO(SB_RUNNING), [SBE_KILL] = TO(SB_STOPPING), [SBE_FAIL] = TO(SB_FAILED)},
    [SB_STOPPING] = {[SBE_ENDED] = TO(SB_GONE)},
    [SB_FAILED] = {[SBE_KILL] = TO(SB_STOPPING), [SBE_RECOVER] = TO(SB_PAUSED)},
    [SB_GONE] = {0},
};

const char *state_name(enum sb_state s) { return (unsigned)s < SB_STATE_MAX ? names[s] : "failed"; }

int state_parse(const char *s)
{
    for (int i = 0; i < SB_STATE_MAX; i++)
        if (!strcmp(names[i], s))
            return i;
    return -1;
}
int state_next(enum sb_state s, enum sb_event ev)
{
    if ((unsigned)s >= SB_STATE_MAX || (unsigned)ev >= SBE_MAX)
        return -1;
    return (int)table[s][ev] - 1;
}
