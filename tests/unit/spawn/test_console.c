/* What boxes print: the last of it is kept, and who prints much waits, not the spawner. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "spawn/server.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static struct server s;
static struct box *b;
static int out; /* the box's end */

static void setup(enum sp_kind kind)
{
    struct err e;
    s.epoll = epoll_create1(EPOLL_CLOEXEC);
    list_init(&s.graves);
    b = box_new(&s, "i00000000000000000000", kind, &e);
    CHECK(b);
    CHECK_INT(box_log_pipe(b, getuid(), &out, &e), 0);
    CHECK(kind == SP_KIND_VM || !fcntl(out, F_SETFL, O_NONBLOCK)); /* we write and read */
}

/* Turns of the loop until nothing more happens at this moment -> how many. */
static int turns(void)
{
    struct epoll_event ev;
    int n = 0;
    for (; n < 100000 && epoll_wait(s.epoll, &ev, 1, 0) == 1; n++) {
        struct watch *w = ev.data.ptr;
        w->fn(&s, w);
    }
    return n;
}

static size_t kept(char *text)
{
    struct err e;
    int fd = console_open(b, &e);
    CHECK(fd >= 0);
    ssize_t n = fd_read_all(fd, text, SP_CONSOLE_MAX + 1);
    CHECK(n >= 0);
    close(fd);
    return (size_t)n;
}

TEST(console, keeps_the_last_bytes_in_order)
{
    static char text[SP_CONSOLE_MAX + 1], line[32], all[64 << 10];
    size_t n = 0;
    setup(SP_KIND_VM);
    CHECK_INT(kept(text), 0);
    for (int i = 0; n < sizeof all - sizeof line; i++) {
        int k = snprintf(line, sizeof line, "line %d\n", i);
        CHECK_INT(write(out, line, (size_t)k), k);
        memcpy(all + n, line, (size_t)k), n += (size_t)k;
        if (i % 7 == 0)
            (void)turns();
        if (i == 100) {
            CHECK_INT(kept(text), n);
            CHECK(!memcmp(text, all, n));
        }
        if (s.console_at)
            (void)console_tick(&s, s.console_at);
    }
    CHECK_INT(kept(text), SP_CONSOLE_MAX);
    CHECK(!memcmp(text, all + n - SP_CONSOLE_MAX, SP_CONSOLE_MAX));
}

/* A guest writes a byte at a time, for ever. */
TEST(console, a_flood_costs_the_spawner_little)
{
    setup(SP_KIND_VM);
    int reads = 0;
    for (int i = 0; i < 10000; i++) {
        (void)!write(out, "x", 1);
        reads += turns();
    }
    CHECK(reads > 0 && reads <= 256);
    CHECK(console_tick(&s, clock_mono()) > 0); /* not yet */
    size_t lost = 0;
    for (int i = 0; i < 200000; i++) /* the emulator is not held up: what has no room is lost */
        if (write(out, "x", 1) < 0) {
            CHECK_INT(errno, EAGAIN);
            lost++;
        }
    CHECK(lost > 0);
    CHECK_INT(turns(), 0);
    for (int tick = 0; tick < 10; tick++) {
        CHECK_INT(console_tick(&s, s.console_at), -1);
        int n = 0;
        for (int i = 0; i < 1000; i++) {
            (void)!write(out, "y", 1);
            n += turns();
        }
        CHECK(n > 0 && n <= 4);
    }
    char text[SP_CONSOLE_MAX + 1];
    CHECK_INT(kept(text), SP_CONSOLE_MAX);
}

TEST(console, others_lose_their_stderr)
{
    static char much[4096];
    (void)signal(SIGPIPE, SIG_IGN);
    setup(SP_KIND_BOX);
    for (int i = 0; i < 300; i++) {
        (void)!write(out, much, sizeof much);
        (void)turns();
        if (s.console_at)
            (void)console_tick(&s, s.console_at);
    }
    CHECK_INT(b->errpipe, -1);
    CHECK_INT(write(out, much, 1), -1);
    CHECK_INT(errno, EPIPE);
}

/* Its last words, not whatever number of them: a line costs more in the log than in the box. */
TEST(console, an_end_takes_few_lines_of_the_log)
{
    static char text[64 << 10];
    setup(SP_KIND_VM);
    for (int i = 0; i < 3000; i++) {
        CHECK_INT(write(out, "x\n", 2), 2);
        (void)turns();
        if (s.console_at)
            (void)console_tick(&s, s.console_at);
    }
    CHECK_INT(write(out, "last words", 10), 10);
    int log = memfd_create("log", MFD_CLOEXEC), err = dup(2);
    CHECK(log >= 0 && err >= 0 && dup2(log, 2) == 2);
    console_catch_up(b);
    console_log_end(b);
    (void)dup2(err, 2);
    CHECK(lseek(log, 0, SEEK_SET) == 0);
    ssize_t n = fd_read_all(log, text, sizeof text - 1);
    CHECK(n > 0 && strstr(text, "stderr: last words\n"));
    int lines = 0;
    for (ssize_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    CHECK(lines > 10 && lines <= 65);
    close(log), close(err), close(out);
}

TEST_MAIN
