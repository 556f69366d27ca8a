/* The life of a sandbox as one table. A state changes only through
 * state_next(); a transition is stored before it is announced. */
#pragma once
enum sb_state {
    SB_CREATING,
    SB_RUNNING,
    SB_PAUSING,
    SB_PAUSED,
    SB_STOPPING,
    SB_GONE,
    SB_FAILED,
    SB_STATE_MAX
};
enum sb_event {
    SBE_READY,
    SBE_PAUSE,
    SBE_PAUSED,
    SBE_RESUME,
    SBE_KILL,
    SBE_FAIL,
    SBE_ENDED,
    SBE_RECOVER,
    SBE_MAX
};
const char *state_name(enum sb_state s);
int state_parse(const char *s);                    /* -1 unknown */
int state_next(enum sb_state s, enum sb_event ev); /* the next state, -1: not allowed */
