/* What a sandbox packed, made on this disk. */
#include "cli/tar.h"
#include "test.h"

TEST(tar, links_stay_in_the_copy)
{
    static const struct {
        const char *target;
        unsigned depth;
        bool stays;
    } t[] = {
        {"f", 0, true},        {"a/b/c", 0, true},
        {"./f", 0, true},      {"../f", 1, true},
        {"../../f", 2, true},  {"..", 1, true},
        {".//..//f", 1, true}, {"..f/x", 0, true},
        {"", 0, true},         {"/etc", 5, false},
        {"/", 0, false},       {"..", 0, false},
        {"../f", 0, false},    {"../..", 1, false},
        {"a/../f", 0, false},  {"a/b/../../..", 9, false},
        {"./../f", 0, false},  {"../a/../../f", 3, false},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (tar_link_stays(t[i].target, t[i].depth) != t[i].stays)
            printf("# %s at depth %u\n", t[i].target, t[i].depth);
        CHECK_INT(tar_link_stays(t[i].target, t[i].depth), t[i].stays);
    }
}

TEST_MAIN
