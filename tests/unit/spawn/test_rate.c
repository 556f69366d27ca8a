/* Figures, not promises: they are printed; what must hold is that every one starts and ends. */
#define TEST_SECONDS 120
#include "fixture.h"

static int cmp(const void *a, const void *b) { return *(const int64_t *)a < *(const int64_t *)b ? -1 : 1; }

static void show(const char *what, int64_t *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, cmp);
    printf("# %s: median %.2f ms, p90 %.2f, p99 %.2f, min %.2f (n=%d)\n", what, (double)v[n / 2] / 1e6, (double)v[n * 9 / 10] / 1e6,
           (double)v[n * 99 / 100] / 1e6, (double)v[0] / 1e6, n);
    fflush(stdout);
}

/* The machine's unit: fork, exec /bin/true, wait. */
static int64_t unit(void)
{
    int64_t t = clock_mono();
    pid_t p = fork();
    if (!p) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(p, NULL, 0);
    return clock_mono() - t;
}

TEST(rate, latency_one_at_a_time)
{
    enum { N = 200 };
    static int64_t up[N], first[N], down[N], base[N];
    fx_start();
    for (int i = -5; i < N; i++) {
        int64_t t0 = clock_mono();
        struct tbox b = box_start();
        int64_t t1 = clock_mono();
        CHECK_STR(ask(b.chan, "ids"), "1 0 0 0");
        int64_t t2 = clock_mono();
        box_gone(&b);
        int64_t t3 = clock_mono();
        usleep(10000); /* the pool refills between starts, as on a host that is not saturated */
        if (i >= 0)
            up[i] = t1 - t0, first[i] = t2 - t0, down[i] = t3 - t2, base[i] = unit();
    }
    show("fork+exec+wait of /bin/true", base, N);
    show("start to exec", up, N);
    show("start to first answer of PID 1", first, N);
    show("remove", down, N);
    fx_stop();
}

TEST(rate, create_and_destroy)
{
    enum { TOTAL = 600, WIDE = 4 };
    static char id[TOTAL][SP_ID];
    fx_start();
    int64_t t0 = clock_mono();
    int sent = 0, done = 0;
    while (done < TOTAL) {
        while (sent < TOTAL && sent - done < WIDE) {
            id_make('i', id[sent]);
            struct sp_req q = box_req(id[sent]);
            q.version = SP_VERSION;
            q.seq = (uint64_t)sent * 2 + 2;
            CHECK(fd_send(fx.fd, &q, sizeof q, NULL, 0, 0) > 0);
            sent++;
        }
        struct sp_rep rep;
        int fds[3], n = 3;
        CHECK(fd_recv(fx.fd, &rep, sizeof rep, fds, &n, 0) == sizeof rep);
        for (int i = 0; i < n; i++)
            close(fds[i]);
        if (!rep.seq)
            continue;
        if (rep.rc) {
            printf("# %s\n", rep.err.msg);
            CHECK(!"refused");
        }
        if (rep.seq & 1) {
            done++;
            continue;
        }
        struct sp_req q = {.version = SP_VERSION, .op = SP_REMOVE, .seq = rep.seq + 1};
        strcpy(q.u.id.id, id[rep.seq / 2 - 1]);
        CHECK(fd_send(fx.fd, &q, sizeof q, NULL, 0, 0) > 0);
    }
    double s = (double)(clock_mono() - t0) / 1e9;
    printf("# %d created and destroyed in %.2f s: %.0f/s\n", TOTAL, s, TOTAL / s);
    fx_stop();
}

TEST_MAIN
