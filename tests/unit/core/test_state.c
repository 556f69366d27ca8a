#include "test.h"
#include "core/host/reason.h"
#include "core/sandbox/state.h"

/* Every row of the table, spelled out a second time: a change must be made twice, on purpose. */
static const struct { enum sb_state from; enum sb_event ev; int to; } rows[] = {
    {SB_CREATING, SBE_READY, SB_RUNNING}, {SB_CREATING, SBE_KILL, SB_STOPPING}, {SB_CREATING, SBE_FAIL, SB_FAILED},
    {SB_RUNNING, SBE_PAUSE, SB_PAUSING},  {SB_RUNNING, SBE_KILL, SB_STOPPING},  {SB_RUNNING, SBE_FAIL, SB_FAILED},
    {SB_PAUSING, SBE_PAUSED, SB_PAUSED},  {SB_PAUSING, SBE_KILL, SB_STOPPING},  {SB_PAUSING, SBE_FAIL, SB_FAILED},
    {SB_PAUSING, SBE_RESUME, SB_RUNNING}, {SB_PAUSED, SBE_RESUME, SB_RUNNING},  {SB_PAUSED, SBE_KILL, SB_STOPPING},
    {SB_PAUSED, SBE_FAIL, SB_FAILED},     {SB_STOPPING, SBE_ENDED, SB_GONE},    {SB_FAILED, SBE_KILL, SB_STOPPING},
    {SB_FAILED, SBE_RECOVER, SB_PAUSED},
};

TEST(state, allowed_transitions)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(state_next(rows[i].from, rows[i].ev), rows[i].to);
}
TEST(state, everything_else_is_refused)
{
    int allowed = 0;
    for (int s = 0; s < SB_STATE_MAX; s++)
        for (int e = 0; e < SBE_MAX; e++)
            allowed += state_next((enum sb_state)s, (enum sb_event)e) >= 0;
    CHECK_INT(allowed, sizeof rows / sizeof *rows);
    CHECK_INT(state_next(SB_STATE_MAX, SBE_KILL), -1);
    CHECK_INT(state_next(SB_RUNNING, SBE_MAX), -1);
}
TEST(state, gone_is_final)
{
    for (int e = 0; e < SBE_MAX; e++)
        CHECK_INT(state_next(SB_GONE, (enum sb_event)e), -1);
}
TEST(state, names_round_trip)
{
    for (int s = 0; s < SB_STATE_MAX; s++)
        CHECK_INT(state_parse(state_name((enum sb_state)s)), s);
    CHECK_INT(state_parse("sleeping"), -1);
    for (int r = END_KILLED; r < END_MAX; r++)
        CHECK_INT(end_parse(end_name((enum end_reason)r)), r);
    CHECK_INT(end_parse("nonsense"), END_NONE);
    CHECK_INT(end_parse(NULL), END_NONE);
}
TEST_MAIN
