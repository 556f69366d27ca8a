/* Who owns HOME and RUN, and what root does about names that others have put there. As root. */
#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/ours.h"
#include "spawn/place.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define UID 64882u

static char top[64], home[80], run[80];
static struct spawn_conf conf = {.home = home, .run = run, .allow_uid = UID, .egress_uid = 64883};

static int sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int sh(const char *fmt, ...)
{
    char cmd[512], all[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    snprintf(all, sizeof all, "cd %s && { %s; }", top, cmd);
    return system(all);
}

static void begin(void)
{
    if (getuid())
        SKIP("needs root");
    strcpy(top, "/tmp/hutch-place-XXXXXX");
    CHECK(mkdtemp(top));
    snprintf(home, sizeof home, "%s/home", top);
    snprintf(run, sizeof run, "%s/run", top);
    umask(022);
}
static void end(void) { CHECK_INT(sh("rm -rf %s", top), 0); }

static void is(const char *name, unsigned uid, unsigned gid, unsigned mode)
{
    char path[160];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", top, name);
    CHECK_INT(lstat(path, &st), 0);
    if (st.st_uid != uid || st.st_gid != gid || (st.st_mode & 07777) != mode)
        printf("# %s: %u:%u %o\n", name, st.st_uid, st.st_gid, st.st_mode & 07777);
    CHECK(st.st_uid == uid && st.st_gid == gid && (st.st_mode & 07777) == mode);
}

static void is_as_it_should(void)
{
    is("home", 0, UID, 01771);
    is("home/boxes", 0, UID, 01771);
    is("home/templates", 0, UID, 0771);
    is("home/snapshots", 0, UID, 0771);
    is("home/tmp", UID, UID, 0711);
    is("home/cache", UID, UID, 0711);
    is("home/log", 0, 0, 0711);
    is("home/log/egress", 64883, UID, 02750);
    is("home/log/console.log", UID, UID, 0600);
    is("home/fs", 0, 0, 0700);
    is("home/volumes", 0, 0, 0700);
    is("home/kernel", 0, 0, 0755);
    is("home/root-cache", 0, 0, 0711);
    is("home/root-cache/apt", 0, 0, 0700);
    is("run", 0, UID, 01775);
    is("run/spawn", 0, 0, 0700);
}

TEST(place, new_and_again)
{
    struct err e;
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_INT(place_take(&conf, &e), 0);
        is_as_it_should();
    }
    end();
}

TEST(place, of_before)
{
    struct err e;
    begin();
    CHECK_INT(
        sh("mkdir -p home/log/egress home/templates/t home/boxes home/tmp home/snapshots home/cache home/fs run && echo 1 > home/state.db && echo 2 > home/templates/t/x && "
           "chown -R %u:%u home run && chmod 711 home && mkdir -p home/cache/apt && echo 3 > home/cache/apt/a_1_all.deb",
           UID, UID),
        0);
    CHECK_INT(place_take(&conf, &e), 0);
    is_as_it_should();
    is("home/state.db", UID, UID, 0644);
    is("home/templates/t/x", UID, UID, 0644); /* what is inside stays whose it is */
    CHECK_INT(
        sh("grep -qx 1 home/state.db && grep -qx 2 home/templates/t/x && grep -qx 3 home/root-cache/apt/a_1_all.deb && test ! -e home/cache/apt"),
        0);
    end();
}

/* Packages in a folder that was not root's are nobody's. */
TEST(place, planted_packages)
{
    struct err e;
    begin();
    CHECK_INT(
        sh("mkdir -p home/cache/apt && echo 3 > home/cache/apt/a_1_all.deb && chown -R %u home",
           UID),
        0);
    CHECK_INT(place_take(&conf, &e), 0);
    CHECK_INT(sh("test ! -e home/root-cache/apt/a_1_all.deb && test -e home/cache/apt/a_1_all.deb"),
              0);
    end();
}

static void refused(const char *want)
{
    struct err e = {0};
    CHECK(place_take(&conf, &e));
    if (!strstr(e.msg, want))
        printf("# %s\n", e.msg);
    CHECK(strstr(e.msg, want));
    is("victim", 0, 0, 0700);
}

TEST(place, links_and_strangers)
{
    static const char *const names[] = {"log",   "templates", "snapshots", "boxes",  "tmp",
                                        "cache", "fs",        "volumes",   "kernel", "root-cache"};
    char want[96];
    begin();
    CHECK_INT(sh("mkdir -m 700 victim && mkdir home run && chown %u home run", UID), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_INT(sh("rm -rf home/%s && ln -s ../victim home/%s && chown -h %u home/%s", names[i],
                     names[i], UID, names[i]),
                  0);
        snprintf(want, sizeof want, "HUTCH_HOME: %s is not a directory", names[i]);
        refused(want);
        CHECK_INT(
            sh("rm home/%s && mkdir home/%s && chown 1234 home/%s", names[i], names[i], names[i]),
            0);
        snprintf(want, sizeof want, "HUTCH_HOME: %s belongs to uid 1234", names[i]);
        refused(want);
        CHECK_INT(sh("rmdir home/%s", names[i]), 0);
    }
    CHECK_INT(sh("ln -s ../victim run/spawn"), 0);
    refused("HUTCH_RUN: spawn is not a directory");
    CHECK_INT(sh("rm run/spawn && mkdir run/spawn && chown %u run/spawn", UID), 0);
    refused("HUTCH_RUN: spawn belongs to uid 64882");
    CHECK_INT(sh("rmdir run/spawn && chown 1234 home"), 0);
    refused("belongs to uid 1234");
    CHECK_INT(sh("chown 0 home && : > home/state.db"), 0);
    refused("state.db belongs to uid 0");
    CHECK_INT(
        sh("rm home/state.db && ln victim home/state.db 2>/dev/null; ln -s ../victim home/state.db"),
        0);
    refused("state.db belongs to uid 0");
    end();
}

/* A home that the operator reaches through a link is his business. */
TEST(place, home_behind_a_link)
{
    struct err e;
    begin();
    CHECK_INT(sh("mkdir real && ln -s real home"), 0);
    CHECK_INT(place_take(&conf, &e), 0);
    is("real", 0, UID, 01771);
    end();
}

/* ---- ours_file(), ours_give_socket(), ours_place() ---- */

TEST(ours, files)
{
    static const char *const plants[] = {"ln -s ../victim log/x", "ln -s ../nowhere log/x",
                                         "mkfifo log/x", "ln victim log/x",
                                         "echo theirs > log/x && chown 64882 log/x"};
    struct err e;
    begin();
    CHECK_INT(sh("mkdir log && echo kept > victim"), 0);
    snprintf(home, sizeof home, "%s/log", top);
    auto_fd dir = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        CHECK_INT(sh("%s", plants[i]), 0);
        auto_fd fd = ours_file(dir, "x", O_WRONLY | O_APPEND, &e);
        CHECK(fd >= 0 && fd_write_all(fd, "log\n", 4));
        CHECK_INT(
            sh("grep -qx kept victim && grep -qx log log/x && test ! -L log/x && test ! -e nowhere"),
            0);
        is("log/x", 0, 0, 0600);
        auto_fd again = ours_file(dir, "x", O_WRONLY | O_APPEND, &e); /* ours: as it is */
        CHECK(again >= 0 && fd_write_all(again, "more\n", 5));
        CHECK_INT(sh("test $(wc -l < log/x) = 2 && rm log/x"), 0);
    }
    CHECK_INT(sh("mkdir log/x"), 0);
    CHECK(ours_file(dir, "x", O_WRONLY | O_APPEND, &e) < 0);
    end();
}

TEST(ours, sockets)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct err e;
    begin();
    auto_fd dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/sock", top);
    CHECK_INT(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_INT(sh(": > victim && ln -s victim link && mkdir dir"), 0);
    CHECK_INT(ours_give_socket(dir, "sock", UID, &e), 0);
    struct stat st;
    CHECK(!stat(a.sun_path, &st) && st.st_uid == UID);
    CHECK(ours_give_socket(dir, "sock", 0, &e)); /* by now it is not ours to give */
    CHECK(ours_give_socket(dir, "victim", UID, &e) && ours_give_socket(dir, "link", UID, &e) &&
          ours_give_socket(dir, "dir", UID, &e));
    is("victim", 0, 0, 0644);
    end();
}

TEST(ours, places)
{
    static const struct {
        const char *how;
        bool good;
    } t[] = {{"0 755", true},  {"0 700", true},  {"0 775", false},     {"0 1775", true},
             {"0 777", false}, {"0 1777", true}, {"64882 755", false}, {"64882 1777", false}};
    struct err e;
    begin();
    CHECK_INT(sh("mkdir d"), 0);
    snprintf(home, sizeof home, "%s/d", top);
    auto_fd dir = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        CHECK_INT(sh("set -- %s && chown $1 d && chmod $2 d", t[i].how), 0);
        CHECK((ours_place(dir, "d", &e) == 0) == t[i].good);
    }
    end();
}

TEST_MAIN
