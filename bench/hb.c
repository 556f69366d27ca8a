/* hb: the stop watch of the benchmarks. An HTTP client costs Python 0.3 ms a
 * call, more than what is measured here; this one costs some microseconds.
 * One keep-alive connection per thread; times are monotonic, in microseconds.
 *
 *   hb spawn N -- CMD…                 start, first byte of output, end
 *   hb SOCK get TARGET N               one GET
 *   hb SOCK exec ID BODY N             one POST …/exec
 *   hb SOCK life CREATE EXEC N THREADS create, exec (- for none), delete; N in all
 *   hb SOCK burst CREATE N             N creates at the same moment, then deletes
 *   hb echo N                          a byte there and back over a unix socket pair
 *
 * Prints one line per sample: `name number…`, life lines end with start.path.
 * Any answer outside 2xx is printed to stderr and ends the program with 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what)
{
    fprintf(stderr, "hb: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- HTTP, just enough for our own server ---- */

struct conn { int fd; size_t have; char buf[1 << 16]; };
struct reply { int status; size_t n; char body[1 << 16]; /* cut beyond */ };

static void conn_open(struct conn *c, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    strcpy(a.sun_path, path);
    c->have = 0;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a))
        die(path);
}

static void fill(struct conn *c)
{
    if (c->have == sizeof c->buf) {
        errno = E2BIG;
        die("answer");
    }
    ssize_t n = read(c->fd, c->buf + c->have, sizeof c->buf - c->have);
    if (n <= 0) {
        if (!n)
            errno = ECONNRESET;
        die("answer");
    }
    c->have += (size_t)n;
}

static void drop(struct conn *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->have - n);
    c->have -= n;
}

static void keep(struct reply *r, const char *p, size_t n)
{
    size_t room = sizeof r->body - 1 - r->n;
    if (n > room)
        n = room;
    memcpy(r->body + r->n, p, n);
    r->n += n;
    r->body[r->n] = 0;
}

static void body_length(struct conn *c, struct reply *r, size_t left)
{
    while (left) {
        if (!c->have)
            fill(c);
        size_t n = c->have < left ? c->have : left;
        keep(r, c->buf, n);
        drop(c, n);
        left -= n;
    }
}

static size_t line_end(struct conn *c) /* offset of "\r\n" */
{
    for (;;) {
        char *e = memmem(c->buf, c->have, "\r\n", 2);
        if (e)
            return (size_t)(e - c->buf);
        fill(c);
    }
}

static void body_chunked(struct conn *c, struct reply *r)
{
    for (;;) {
        size_t e = line_end(c), n = strtoul(c->buf, NULL, 16);
        drop(c, e + 2);
        body_length(c, r, n);
        e = line_end(c);
        drop(c, e + 2);
        if (!n)
            return;
    }
}

static double call(struct conn *c, const char *method, const char *target, const char *body, struct reply *r)
{
    char head[4096];
    size_t nb = body ? strlen(body) : 0;
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, body ? "Content-Type: application/json\r\n" : "");
    if (body)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %zu\r\n\r\n%s", nb, body);
    else
        n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    if (n >= (int)sizeof head) {
        errno = E2BIG;
        die("request");
    }
    double t0 = now_us();
    if (write(c->fd, head, (size_t)n) != n)
        die("request");
    char *end;
    while (!(end = memmem(c->buf, c->have, "\r\n\r\n", 4)))
        fill(c);
    size_t hn = (size_t)(end - c->buf) + 4;
    c->buf[hn - 1] = 0;
    r->status = atoi(c->buf + 9);
    r->n = 0;
    r->body[0] = 0;
    char *len = strcasestr(c->buf, "\r\nContent-Length:"), *chunked = strcasestr(c->buf, "\r\nTransfer-Encoding: chunked");
    size_t want = len ? strtoul(len + 17, NULL, 10) : 0;
    drop(c, hn);
    if (chunked)
        body_chunked(c, r);
    else
        body_length(c, r, want);
    double t1 = now_us();
    if (r->status < 200 || r->status > 299) {
        fprintf(stderr, "hb: %s %s: %d %s\n", method, target, r->status, r->body);
        exit(1);
    }
    return t1 - t0;
}

static bool text_of(const char *json, const char *name, char *out, size_t cap)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *p = strstr(json, key), *e;
    if (!p || !(e = strchr(p += strlen(key), '"')) || (size_t)(e - p) >= cap)
        return false;
    memcpy(out, p, (size_t)(e - p));
    out[e - p] = 0;
    return true;
}

/* ---- the measurements ---- */

struct life { const char *sock, *create, *exec; int n; pthread_barrier_t *start; };

static void *life(void *arg)
{
    struct life *l = arg;
    struct conn *c = calloc(1, sizeof *c);
    struct reply *r = calloc(1, sizeof *r);
    char id[64], path[32], target[160];
    conn_open(c, l->sock);
    pthread_barrier_wait(l->start);
    for (int i = 0; i < l->n; i++) {
        double a = call(c, "POST", "/v1/sandboxes", l->create, r), b = 0, d;
        if (!text_of(r->body, "id", id, sizeof id) || !text_of(r->body, "path", path, sizeof path)) {
            fprintf(stderr, "hb: no id in %s\n", r->body);
            exit(1);
        }
        if (l->exec) {
            snprintf(target, sizeof target, "/v1/sandboxes/%s/exec", id);
            b = call(c, "POST", target, l->exec, r);
        }
        snprintf(target, sizeof target, "/v1/sandboxes/%s", id);
        d = call(c, "DELETE", target, NULL, r);
        flockfile(stdout);
        printf("life %.1f %.1f %.1f %s\n", a, b, d, path);
        funlockfile(stdout);
    }
    close(c->fd);
    free(c);
    free(r);
    return NULL;
}

static void lives(const char *sock, const char *create, const char *exec, int n, int threads)
{
    pthread_t th[64];
    pthread_barrier_t bar;
    pthread_barrier_init(&bar, NULL, (unsigned)threads + 1);
    struct life l = {sock, create, exec && *exec ? exec : NULL, n / threads, &bar};
    for (int i = 0; i < threads; i++)
        pthread_create(&th[i], NULL, life, &l);
    pthread_barrier_wait(&bar);
    double t0 = now_us();
    for (int i = 0; i < threads; i++)
        pthread_join(th[i], NULL);
    printf("total %.1f %d\n", now_us() - t0, n / threads * threads);
}

struct burst { const char *sock, *create; pthread_barrier_t *start; double us; char id[64], path[32]; };

static void *burst_one(void *arg)
{
    struct burst *b = arg;
    struct conn *c = calloc(1, sizeof *c);
    struct reply *r = calloc(1, sizeof *r);
    conn_open(c, b->sock);
    pthread_barrier_wait(b->start);
    b->us = call(c, "POST", "/v1/sandboxes", b->create, r);
    if (!text_of(r->body, "id", b->id, sizeof b->id))
        exit(1);
    (void)text_of(r->body, "path", b->path, sizeof b->path);
    close(c->fd);
    free(c);
    free(r);
    return NULL;
}

static void burst(const char *sock, const char *create, int n)
{
    struct burst *b = calloc((size_t)n, sizeof *b);
    pthread_t *th = calloc((size_t)n, sizeof *th);
    pthread_barrier_t bar;
    pthread_barrier_init(&bar, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        b[i] = (struct burst){.sock = sock, .create = create, .start = &bar};
        pthread_create(&th[i], NULL, burst_one, &b[i]);
    }
    pthread_barrier_wait(&bar);
    double t0 = now_us();
    for (int i = 0; i < n; i++)
        pthread_join(th[i], NULL);
    printf("total %.1f %d\n", now_us() - t0, n);
    struct conn *c = calloc(1, sizeof *c);
    struct reply *r = calloc(1, sizeof *r);
    char target[160];
    conn_open(c, sock);
    for (int i = 0; i < n; i++) {
        printf("create %.1f %s\n", b[i].us, b[i].path);
        snprintf(target, sizeof target, "/v1/sandboxes/%s", b[i].id);
        (void)call(c, "DELETE", target, NULL, r);
    }
    free(b);
    free(th);
    free(c);
    free(r);
}

static void spawn_one(char **argv)
{
    int p[2];
    pid_t pid;
    posix_spawn_file_actions_t fa;
    char buf[4096];
    if (pipe(p))
        die("pipe");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, p[1], 1);
    posix_spawn_file_actions_addclose(&fa, p[0]);
    posix_spawn_file_actions_addclose(&fa, p[1]);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", 0, 0);
    double t0 = now_us(), t1;
    if ((errno = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ)))
        die(argv[0]);
    close(p[1]);
    ssize_t n = read(p[0], buf, sizeof buf);
    t1 = now_us();
    while (n > 0)
        n = read(p[0], buf, sizeof buf);
    int st;
    (void)waitpid(pid, &st, 0);
    printf("spawn %.1f %.1f\n", t1 - t0, now_us() - t0);
    close(p[0]);
    posix_spawn_file_actions_destroy(&fa);
    if (!WIFEXITED(st) || WEXITSTATUS(st)) {
        fprintf(stderr, "hb: %s ended with %d\n", argv[0], st);
        exit(1);
    }
}

static void *echo_side(void *arg)
{
    int fd = *(int *)arg;
    char b[256];
    ssize_t n;
    while ((n = read(fd, b, sizeof b)) > 0)
        if (write(fd, b, (size_t)n) != n)
            break;
    return NULL;
}

static void echo(int n)
{
    int s[2];
    pthread_t th;
    char b[100] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
        die("socketpair");
    pthread_create(&th, NULL, echo_side, &s[1]);
    for (int i = 0; i < n; i++) {
        double t0 = now_us();
        if (write(s[0], b, sizeof b) != sizeof b || read(s[0], b, sizeof b) <= 0)
            die("echo");
        printf("echo %.2f\n", now_us() - t0);
    }
    shutdown(s[0], SHUT_RDWR);
    pthread_join(th, NULL);
}

static int usage(void)
{
    fprintf(stderr, "usage: hb spawn N -- CMD… | hb echo N | hb SOCK get|post|exec|life|burst …\n");
    return 64;
}

int main(int argc, char **argv)
{
    static struct conn c;
    static struct reply r;
    char target[160];
    if (argc >= 5 && !strcmp(argv[1], "spawn") && !strcmp(argv[3], "--")) {
        for (int i = 0; i < atoi(argv[2]); i++)
            spawn_one(argv + 4);
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "echo")) {
        echo(atoi(argv[2]));
        return 0;
    }
    if (argc == 5 && !strcmp(argv[2], "get")) {
        conn_open(&c, argv[1]);
        for (int i = 0; i < atoi(argv[4]); i++)
            printf("get %.2f\n", call(&c, "GET", argv[3], NULL, &r));
        return 0;
    }
    if (argc == 6 && !strcmp(argv[2], "post")) {
        conn_open(&c, argv[1]);
        for (int i = 0; i < atoi(argv[5]); i++)
            printf("post %.2f\n", call(&c, "POST", argv[3], argv[4], &r));
        return 0;
    }
    if (argc == 6 && !strcmp(argv[2], "exec")) {
        snprintf(target, sizeof target, "/v1/sandboxes/%s/exec", argv[3]);
        conn_open(&c, argv[1]);
        for (int i = 0; i < atoi(argv[5]); i++)
            printf("exec %.2f\n", call(&c, "POST", target, argv[4], &r));
        return 0;
    }
    if (argc == 7 && !strcmp(argv[2], "life") && atoi(argv[6]) > 0 && atoi(argv[6]) <= 64) {
        lives(argv[1], argv[3], strcmp(argv[4], "-") ? argv[4] : NULL, atoi(argv[5]), atoi(argv[6]));
        return 0;
    }
    if (argc == 5 && !strcmp(argv[2], "burst") && atoi(argv[4]) > 0 && atoi(argv[4]) <= 1000) {
        burst(argv[1], argv[3], atoi(argv[4]));
        return 0;
    }
    return usage();
}
