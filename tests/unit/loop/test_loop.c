#include "loop/loop.h"
#include "base/clock.h"
#include "loop/job.h"
#include "loop/sock.h"
#include "test.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

static struct loop *L;
static char trace[256];
static void say(const char *s) { strcat(trace, s); }
static void stop(void *arg)
{
    (void)arg;
    loop_stop(L);
}
static void say_arg(void *arg) { say(arg); }
static void defers_more(void *arg)
{
    (void)arg;
    say("1");
    loop_defer(L, say_arg, "3");
    loop_defer(L, stop, NULL);
    say("2");
}
TEST(loop, runs_deferred_calls_at_the_end_of_the_turn)
{
    L = loop_new();
    loop_defer(L, defers_more, NULL);
    loop_run(L);
    CHECK_STR(trace, "123");
    loop_defer(L, say_arg, "4");
    loop_free(L); /* runs what is left */
    CHECK_STR(trace, "1234");
}
TEST(loop, fires_timers_in_order_and_not_when_stopped)
{
    struct timer a, b, c, d;
    L = loop_new();
    timer_init(&a, L, say_arg, "a");
    timer_init(&b, L, say_arg, "b");
    timer_init(&c, L, say_arg, "c");
    timer_init(&d, L, stop, NULL);
    int64_t t0 = clock_mono();
    timer_arm(&d, 40 * NS_PER_MS);
    timer_arm(&b, 20 * NS_PER_MS);
    timer_arm(&a, 5 * NS_PER_MS);
    timer_arm(&c, 10 * NS_PER_MS);
    timer_stop(&c);
    timer_stop(&c);
    loop_run(L);
    CHECK_STR(trace, "ab");
    CHECK(clock_mono() - t0 >= 39 * NS_PER_MS);
    struct timer zero = {0};
    timer_stop(&zero);
    loop_free(L);
}
static struct io IO;
static void on_io(void *arg, int ev)
{
    char c;
    int *fd = arg;
    if (ev & IO_WRITE) {
        say("w");
        io_want(&IO, IO_READ);
        CHECK(write(fd[1], "x", 1) == 1);
    } else {
        CHECK(read(fd[0], &c, 1) == 1);
        say("r");
        io_stop(&IO);
        loop_stop(L);
    }
}
TEST(loop, watches_fds)
{
    int fd[2];
    L = loop_new();
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
    io_init(&IO, L, fd[0], on_io, fd);
    io_want(&IO, IO_READ | IO_WRITE);
    loop_run(L);
    CHECK_STR(trace, "wr");
    close(fd[0]);
    close(fd[1]);
    loop_free(L);
}
TEST(loop, delivers_signals)
{
    struct sig s;
    L = loop_new();
    sig_start(&s, L, SIGUSR1, stop, NULL);
    kill(getpid(), SIGUSR1);
    loop_run(L);
    sig_stop(&s);
    loop_free(L);
}
static int count;
static void bump(void *arg)
{
    (void)arg;
    if (++count == 40000)
        loop_stop(L);
}
static void *poster(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10000; i++)
        loop_post(L, bump, NULL);
    return NULL;
}
TEST(loop, takes_posts_from_other_threads)
{
    pthread_t t[4];
    L = loop_new();
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&t[i], NULL, poster, NULL));
    loop_run(L);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    CHECK_INT(count, 40000);
    loop_free(L);
}

static int worked[200], finished;
static pthread_t loop_thread;
static void work(void *arg)
{
    CHECK(!pthread_equal(pthread_self(), loop_thread));
    ++*(int *)arg;
}
static void done(void *arg)
{
    CHECK(pthread_equal(pthread_self(), loop_thread));
    CHECK_INT(*(int *)arg, 1);
    if (++finished == 200)
        loop_stop(L);
}
TEST(job, works_elsewhere_and_finishes_on_the_loop)
{
    loop_thread = pthread_self();
    L = loop_new();
    struct jobs *j = jobs_new(L, 4);
    for (int i = 0; i < 200; i++)
        job_run(j, work, done, &worked[i]);
    loop_run(L);
    CHECK_INT(jobs_pending(j), 0);
    jobs_free(j);
    loop_free(L);
}
TEST(job, finishes_accepted_jobs_when_freed)
{
    loop_thread = pthread_self();
    L = loop_new();
    struct jobs *j = jobs_new(L, 2);
    for (int i = 0; i < 100; i++)
        job_run(j, work, done, &worked[i]);
    jobs_free(j);
    CHECK_INT(finished, 100);
    loop_turn(L, false);
    loop_free(L);
}
static struct jobs *chain;
static void begin_another(void *arg)
{
    done(arg);
    if (finished < 10)
        job_run(chain, work, begin_another, &worked[finished]);
}
TEST(job, finishes_also_what_a_finished_job_begins)
{
    loop_thread = pthread_self();
    L = loop_new();
    chain = jobs_new(L, 2);
    job_run(chain, work, begin_another, &worked[0]);
    jobs_finish(chain);
    CHECK_INT(finished, 10);
    CHECK_INT(jobs_pending(chain), 0);
    jobs_finish(chain); /* nothing to wait for */
    jobs_free(chain);
    loop_free(L);
}
/* As at the end of the daemon; the sanitizers say whether something was left behind. */
TEST(job, is_freed_with_a_loop_that_never_turns_again)
{
    loop_thread = pthread_self();
    L = loop_new();
    struct jobs *j = jobs_new(L, 1);
    int ran = 0;
    job_run(j, work, NULL, &worked[0]);
    job_run(j, work, NULL, &worked[1]); /* when this one runs, the first has been posted */
    while (!(ran = __atomic_load_n(&worked[1], __ATOMIC_ACQUIRE)))
        usleep(1000);
    jobs_free(j);
    loop_free(L);
    CHECK_INT(ran, 1);
}

TEST(sock, listens_and_connects_over_tcp)
{
    struct err e;
    struct sock_peer p;
    char addr[32];
    int l = sock_listen_tcp("127.0.0.1:0", &e);
    CHECK(l >= 0 && sock_port(l) > 0);
    snprintf(addr, sizeof addr, "localhost:%d", sock_port(l));
    int c = sock_connect_tcp(addr, &e);
    CHECK(c >= 0);
    struct pollfd pf = {l, POLLIN, 0};
    CHECK(poll(&pf, 1, 2000) == 1);
    int a = sock_accept(l);
    CHECK(a >= 0 && !sock_peer(a, &p, &e) && !p.is_unix && strstr(p.addr, "127.0.0.1:"));
    CHECK(fcntl(a, F_GETFD) & FD_CLOEXEC);
    close(a), close(c), close(l);
    CHECK(sock_listen_tcp("nonsense", &e) < 0 && e.code == E_INVALID);
    CHECK(sock_listen_tcp("example.org:1", &e) < 0 && e.code == E_INVALID);
}
TEST(sock, replaces_stale_unix_sockets_only)
{
    struct err e;
    struct sock_peer p;
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hutch-sock-%d", (int)getpid());
    int l = sock_listen_unix(path, 0600, &e);
    CHECK(l >= 0 && !stat(path, &st) && (st.st_mode & 0777) == 0600);
    CHECK(sock_listen_unix(path, 0600, &e) < 0 && e.code == E_CONFLICT);
    int c = sock_connect_unix(path, &e), a = sock_accept(l);
    CHECK(c >= 0 && a >= 0 && !sock_peer(a, &p, &e));
    CHECK(p.is_unix && p.uid == getuid() && p.pid == getpid());
    close(l), close(c), close(a);
    l = sock_listen_unix(path, 0660, &e); /* stale now */
    CHECK(l >= 0 && !stat(path, &st) && (st.st_mode & 0777) == 0660);
    close(l);
    unlink(path);
    int f = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(f >= 0);
    close(f);
    CHECK(sock_listen_unix(path, 0600, &e) < 0 && e.code == E_CONFLICT);
    unlink(path);
}
TEST_MAIN
