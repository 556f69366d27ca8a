#include "core/sandbox/life.h"
#include "test.h"
#include <stdlib.h>

TEST(life, round_trip)
{
    struct err e;
    struct life a = {.auto_resume = true, .files_only = true, .paused = PAUSE_DISK, .memory = true, .paused_ns = 17, .bytes = 99,
                     .why = WHY_IDLE, .idle_s = 30, .on_idle = ON_TIMEOUT_PAUSE, .lifetime_s = 7200, .kept = true}, b;
    char *text = life_to_json(&a);
    CHECK_INT(life_from_json(&b, text, &e), 0);
    free(text);
    CHECK(b.auto_resume && b.files_only && b.memory && b.kept);
    CHECK_INT(b.paused, PAUSE_DISK);
    CHECK_INT(b.paused_ns, 17);
    CHECK_INT(b.bytes, 99);
    CHECK_INT(b.why, WHY_IDLE);
    CHECK_INT(b.idle_s, 30);
    CHECK_INT(b.on_idle, ON_TIMEOUT_PAUSE);
    CHECK_INT(b.lifetime_s, 7200);
    a = (struct life){.paused = PAUSE_STANDBY};
    text = life_to_json(&a);
    CHECK_INT(life_from_json(&b, text, &e), 0);
    free(text);
    CHECK_INT(b.paused, PAUSE_STANDBY);
    CHECK(!b.auto_resume && !b.memory && !b.idle_s && !b.lifetime_s);
    CHECK_INT(b.on_idle, ON_TIMEOUT_KILL);
    CHECK_INT(b.why, WHY_CALL);
}

TEST(life, old_rows_and_damaged_ones)
{
    struct err e;
    struct life b;
    CHECK_INT(life_from_json(&b, NULL, &e), 0); /* a row from before there was a pause */
    CHECK_INT(b.paused, PAUSE_NONE);
    CHECK_INT(life_from_json(&b, "{}", &e), 0);
    CHECK_INT(life_from_json(&b, "{\"paused\":", &e), -1);
    CHECK_INT(life_from_json(&b, "{\"memory\":3}", &e), -1);
}
TEST_MAIN
