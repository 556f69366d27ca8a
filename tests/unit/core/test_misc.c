#include "test.h"
#include "core/host/config.h"
#include "core/core.h"
#include "core/doctor.h"
#include "core/sandbox/exec.h"
#include "core/code/kernels.h"
#include "loop/lines.h"
#include "core/sandbox/sandbox.h"
#include "spawn/op.h"
#include "base/tree.h"
#include <fcntl.h>
#include <sys/stat.h>

static char got[8][32];
static int ngot;
static bool ended;
static void on_line(void *arg, char *line)
{
    (void)arg;
    if (ngot < 8)
        snprintf(got[ngot++], 32, "%s", line);
}
static void on_eof(void *arg)
{
    (void)arg;
    ended = true;
}

TEST(lines, splits_bounds_and_ends)
{
    struct loop *l = loop_new();
    struct lines ln;
    int p[2];
    CHECK(!pipe(p));
    lines_start(&ln, l, p[0], on_line, on_eof, NULL);
    CHECK(write(p[1], "one\ntw", 6) == 6);
    loop_turn(l, true);
    CHECK_INT(ngot, 1);
    CHECK(write(p[1], "o\nlast", 6) == 6);
    close(p[1]);
    for (int i = 0; i < 5 && !ended; i++)
        loop_turn(l, true);
    CHECK(ended);
    CHECK_INT(ngot, 3);
    CHECK_STR(got[1], "two");
    CHECK_STR(got[2], "last");
    lines_stop(&ln);
    loop_free(l);
}
TEST(tree, removes_deep_folders_without_following_links)
{
    char base[] = "/tmp/hutch-tree-XXXXXX", cmd[256];
    struct err e;
    CHECK(mkdtemp(base));
    snprintf(cmd, sizeof cmd, "mkdir -p %s/a/b/c %s/keep && touch %s/keep/f %s/a/b/x && ln -s %s/keep %s/a/b/link", base, base, base, base, base, base);
    CHECK(!system(cmd));
    int fd = open(base, O_RDONLY | O_DIRECTORY);
    CHECK_INT(tree_remove(fd, "a", &e), 0);
    CHECK(faccessat(fd, "a", F_OK, 0) && !faccessat(fd, "keep/f", F_OK, 0));
    CHECK_INT(tree_remove(fd, "absent", &e), 0);
    CHECK_INT(tree_remove(fd, "keep", &e), 0);
    close(fd);
    CHECK(!rmdir(base));
}
TEST(config, refuses_nonsense_by_name)
{
    struct config c;
    struct err e;
    setenv("HUTCH_POOL_VM", "many", 1);
    CHECK_INT(config_load(&c, &e), -1);
    CHECK(strstr(e.msg, "HUTCH_POOL_VM"));
    setenv("HUTCH_POOL_VM", "3", 1);
    setenv("HUTCH_HOME", "relative", 1);
    CHECK_INT(config_load(&c, &e), -1);
    CHECK(strstr(e.msg, "HUTCH_HOME"));
    setenv("HUTCH_HOME", "/tmp/x//", 1);
    setenv("HUTCH_ACCEL", "warp", 1);
    CHECK_INT(config_load(&c, &e), -1);
    setenv("HUTCH_ACCEL", "tcg", 1);
    CHECK_INT(config_load(&c, &e), 0);
    CHECK_STR(c.home, "/tmp/x");
    CHECK_INT(c.pool_vm, 3);
    CHECK(c.default_tier == tier_default());
}
TEST(signals, names_and_numbers)
{
    CHECK_INT(signal_number("SIGTERM"), 15);
    CHECK_INT(signal_number("kill"), 9);
    CHECK_INT(signal_number("2"), 2);
    CHECK_INT(signal_number("0"), -1);
    CHECK_INT(signal_number("65"), -1);
    CHECK_INT(signal_number("SIGNOPE"), -1);
    CHECK_STR(signal_name(9), "SIGKILL");
}
TEST(tiers, names)
{
    for (size_t i = 0; tiers[i]; i++) {
        CHECK(tier_find(tiers[i]->name) == tiers[i]);
        CHECK(!i || tiers[i]->strength < tiers[i - 1]->strength); /* strongest first */
        CHECK(tiers[i]->boundary[0] && tiers[i]->boundary[1] && tiers[i]->accel[0] &&
              tiers[i]->accel[1]);
        CHECK(!tier_can(tiers[i], TIER_SANDBOX) ||
              (tiers[i]->cold && tiers[i]->waiting && tiers[i]->pids_max));
    }
    CHECK(tier_default() == tier_find("vm") && tier_find("isolate") == &tier_isolate);
    CHECK(!tier_can(&tier_isolate, TIER_SANDBOX));
    CHECK(!tier_find("VM") && !tier_find(""));
}
TEST(kernels, sets_of_languages)
{
    unsigned set = 0;
    struct err e = {0};
    char text[KERNELS_TEXT];
    CHECK_INT(kernels_parse(" python\tjs  ", &set, &e), 0);
    kernels_format(set, text);
    CHECK_STR(text, "python javascript");
    CHECK_INT(kernels_parse("none", &set, &e), 0);
    CHECK_INT(set, 0);
    CHECK_INT(kernels_parse("", &set, &e), 0);
    kernels_format(set, text);
    CHECK_STR(text, "");
    CHECK_INT(kernels_parse("python cobol", &set, &e), -1);
    CHECK(e.code == E_INVALID && strstr(e.msg, "cobol"));
    CHECK_INT(kernels_parse("python javascript typescript bash r java", &set, &e), 0);
    kernels_format(set, text);
    CHECK_INT(strlen(text), strlen("python javascript typescript bash r java"));
}

TEST(doctor, knows_where_it_was_tried)
{
    char name[80];
    CHECK(os_tried("PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nID=debian\n", name, sizeof name));
    CHECK_STR(name, "Debian GNU/Linux 13 (trixie)");
    CHECK(os_tried("VERSION_ID='12'\nID=debian", name, sizeof name));
    CHECK_STR(name, "debian");
    CHECK(!os_tried("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux forky/sid\"\n", name, sizeof name));
    CHECK(!os_tried("ID=ubuntu\nVERSION_ID=\"13\"\n", name, sizeof name));
    CHECK(!os_tried("MYID=debian\nMYVERSION_ID=13\n", name, sizeof name));
    CHECK(!os_tried("", name, sizeof name));
    CHECK_STR(name, "unknown");
}

TEST(doctor, names_every_requirement)
{
    struct config c = {.home = "/nonexistent"};
    struct doctor_check checks[32];
    struct doctor_root bad = {SP_FEAT_MOUNTS_BAD, "open_tree: Invalid argument"};
    size_t n = doctor_run(&c, &bad, checks, 32);
    CHECK(n >= 10);
    for (size_t i = 0; i < n; i++) {
        CHECK(*checks[i].found);
        if (strcmp(checks[i].status, "ok"))
            CHECK(*checks[i].lost && *checks[i].fix);
    }
}

static const struct doctor_check *row(const struct doctor_check *at, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(at[i].name, name))
            return at + i;
    return NULL;
}

TEST(doctor, says_what_root_tried)
{
    struct config c = {.home = "/nonexistent"};
    struct doctor_check checks[32];
    struct doctor_root bad = {SP_FEAT_MOUNTS_BAD, "open_tree: Invalid argument"}, old = {SP_FEAT_MOUNTS_OK | SP_FEAT_SHELF, ""}, unknown = {0};
    size_t n = doctor_run(&c, &bad, checks, 32);
    const struct doctor_check *m = row(checks, n, "mounts");
    CHECK(m && !strcmp(m->status, "fail") && strstr(m->found, "open_tree") && strstr(m->lost, "containers"));
    n = doctor_run(&c, &old, checks, 32);
    m = row(checks, n, "mounts");
    CHECK(m && !strcmp(m->status, "ok") && strstr(m->found, "before 6.15"));
    n = doctor_run(&c, &unknown, checks, 32);
    CHECK(!row(checks, n, "mounts"));
}
TEST_MAIN
