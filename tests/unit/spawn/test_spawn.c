#include "fixture.h"

TEST(spawn, starts_a_container)
{
    fx_start();
    struct tbox b = box_start();
    CHECK_STR(ask(b.chan, "ids"), "1 0 0 0");
    box_gone(&b);
    fx_stop();
}

TEST_MAIN
