/* What the network gate costs, against a plain veth pair in the same minute: the client is once in the host's namespace (plain) and
 * once in a sandbox's (through hutch-egress), the server is the same. Prints one JSON line; compare the ratios, not the figures.
 * Usage: gate_bench (as root). */
#include "../tests/unit/gate/world.h"

#define SECONDS 2
#define CONNS   2000
static char block[256 * 1024];

static void *discard_conn(void *arg)
{
    static char sink[1 << 20];
    while (read((int)(intptr_t)arg, sink, sizeof sink) > 0)
        ;
    close((int)(intptr_t)arg);
    return NULL;
}
static void discard(void)
{
    if (fork())
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter(W.inet_ns);
    int l = sock_at(SOCK_STREAM, "198.51.100.12", 9, true);
    for (;;)
        discard_conn((void *)(intptr_t)accept4(l, NULL, NULL, SOCK_CLOEXEC));
}

struct result { double mbit, conn_ms, rate, tls_ms; int many; };
static double now(void) { return (double)clock_mono() / 1e9; }
static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b; }

static double throughput(void)
{
    int fd = dial("198.51.100.12", 9);
    CHECK(fd >= 0);
    double t = now(), sent = 0;
    while (now() - t < SECONDS) {
        ssize_t n = write(fd, block, sizeof block);
        CHECK(n > 0);
        sent += (double)n;
    }
    double took = now() - t;
    close(fd);
    return sent * 8 / took / 1e6;
}
/* A connection, a byte there and back, the end; one after the other. Per second, and the median of one. */
static double conn_ms(double *ret_rate)
{
    static double v[CONNS];
    double all = now();
    char x;
    for (int i = 0; i < CONNS; i++) {
        double t = now();
        int fd = dial("198.51.100.12", 7);
        CHECK(fd >= 0 && write(fd, "x", 1) == 1 && read(fd, &x, 1) == 1);
        v[i] = (now() - t) * 1000;
        close(fd);
    }
    *ret_rate = CONNS / (now() - all);
    qsort(v, CONNS, sizeof *v, by_size);
    return v[CONNS / 2];
}
/* A whole handshake; the gate reads the server name and looks up its binding. */
static double tls_ms(void)
{
    static double v[100];
    struct err e;
    char pem[128];
    snprintf(pem, sizeof pem, "%s/site.pem", W.dir);
    struct tls_trust *t = tls_trust_new((const char *const[]){pem}, 1, &e);
    for (int i = 0; i < 100; i++) {
        double from = now();
        struct peer_io io = {dial("198.51.100.11", 443), tls_client_new(t, "api.example.org", &e)};
        const char *q = "GET /close HTTP/1.1\r\nHost: api.example.org\r\n\r\n";
        char raw[8192], out[8192];
        while (!tls_ready(io.tls) && !tls_error(io.tls)) {
            struct buf w = {0};
            (void)tls_read(io.tls, raw, 0);
            if (tls_take(io.tls, &w))
                CHECK(fd_write_all(io.fd, w.p, w.n));
            buf_free(&w);
            if (tls_ready(io.tls))
                break;
            ssize_t k = read(io.fd, raw, sizeof raw);
            CHECK(k > 0);
            tls_feed(io.tls, raw, (size_t)k);
        }
        io_put(&io, q, strlen(q));
        CHECK(io_get(&io, out, sizeof out) > 0);
        v[i] = (now() - from) * 1000;
        tls_free(io.tls);
        close(io.fd);
    }
    qsort(v, 100, sizeof *v, by_size);
    return v[50];
}
static int many(void)
{
    static int fd[1000];
    char x;
    for (int i = 0; i < 1000; i++)
        if ((fd[i] = dial("198.51.100.12", 7)) < 0)
            return i;
    int good = 0;
    for (int i = 0; i < 1000; i++)
        good += write(fd[i], "x", 1) == 1 && read(fd[i], &x, 1) == 1;
    for (int i = 0; i < 1000; i++)
        close(fd[i]);
    return good;
}
static struct result *shared;
static int measure(void *arg)
{
    struct result *r = arg;
    r->mbit = throughput();
    r->conn_ms = conn_ms(&r->rate);
    r->tls_ms = tls_ms();
    r->many = many();
    return 0;
}
static int plain(void)
{
    pid_t pid = fork();
    int st;
    if (!pid) {
        enter(W.world_ns);
        _exit(measure(&shared[0]));
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    return st;
}

#include <sys/mman.h>
int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("HUTCH_LOG", "warn", 1);
    world_open("{\"mode\":\"open\",\"allow\":[\"api.example.org\"],\"deny\":[{\"domain\":\"denied.example\",\"ports\":[443]}],\"limits\":{\"connections\":4000}}");
    discard();
    usleep(100000);
    CHECK(!plain());
    CHECK(!inside(measure, &shared[1]));
    struct result *p = &shared[0], *g = &shared[1];
    printf("{\"plain_mbit\":%.0f,\"gate_mbit\":%.0f,\"throughput_ratio\":%.2f,\"plain_conn_ms\":%.3f,\"gate_conn_ms\":%.3f,\"added_conn_ms\":%.3f,"
           "\"plain_rate\":%.0f,\"gate_rate\":%.0f,\"plain_tls_ms\":%.3f,\"gate_tls_ms\":%.3f,\"added_tls_ms\":%.3f,\"concurrent\":%d}\n",
           p->mbit, g->mbit, g->mbit / p->mbit, p->conn_ms, g->conn_ms, g->conn_ms - p->conn_ms, p->rate, g->rate, p->tls_ms, g->tls_ms, g->tls_ms - p->tls_ms, g->many);
    world_close();
    return 0;
}
