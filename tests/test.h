/* A unit test program is a list of TEST(group, behaviour) bodies and one
 * TEST_MAIN. Each test runs in a forked child with a time limit, so a crash or
 * hang fails one test and not the rest. Processes that a test leaves behind are
 * killed before the next, and it fails. Output is TAP. */
#pragma once
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct test { const char *name; void (*fn)(void); struct test *next; };
static struct test *test_first, **test_last = &test_first;

#define TEST(group, behaviour)                                                                                         \
    static void t_##group##_##behaviour(void);                                                                         \
    __attribute__((constructor)) static void r_##group##_##behaviour(void)                                             \
    {                                                                                                                  \
        static struct test t = {#group "." #behaviour, t_##group##_##behaviour, NULL};                                 \
        *test_last = &t;                                                                                               \
        test_last = &t.next;                                                                                           \
    }                                                                                                                  \
    static void t_##group##_##behaviour(void)

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            printf("# %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #cond);                                                 \
            fflush(stdout);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK_INT(a, b)                                                                                                \
    do {                                                                                                               \
        long long va_ = (long long)(a), vb_ = (long long)(b);                                                          \
        if (va_ != vb_) {                                                                                              \
            printf("# %s:%d: %s = %lld, want %lld\n", __FILE__, __LINE__, #a, va_, vb_);                               \
            fflush(stdout);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK_STR(a, b)                                                                                                \
    do {                                                                                                               \
        const char *va_ = (a), *vb_ = (b);                                                                             \
        if (!va_ || !vb_ || strcmp(va_, vb_)) {                                                                        \
            printf("# %s:%d: %s = \"%s\", want \"%s\"\n", __FILE__, __LINE__, #a, va_ ? va_ : "(null)", vb_ ? vb_ : "(null)"); \
            fflush(stdout);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        printf("# SKIP %s\n", why);                                                                                    \
        fflush(stdout);                                                                                                \
        exit(77);                                                                                                      \
    } while (0)

#ifndef TEST_SECONDS
#define TEST_SECONDS 60
#endif

#define TEST_GRACE_MS 5000 /* for what is ending by itself */

/* Orphans of the test are our children (we are their subreaper). Returns how many had to be killed. */
static inline int test_leftovers(int grace_ms)
{
    int killed = 0;
    for (int ms = 0;; ms += 10) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0)
            return killed; /* nobody is left */
        FILE *f = ms >= grace_ms ? fopen("/proc/thread-self/children", "re") : NULL;
        for (int kid; f && fscanf(f, "%d", &kid) == 1; killed++)
            (void)kill(kid, SIGKILL);
        if (f)
            (void)fclose(f);
        (void)usleep(10000);
        if (ms >= grace_ms + 10000)
            return killed ? killed : 1;
    }
}

static inline int test_main(int argc, char **argv)
{
    int n = 0, failed = 0;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (struct test *t = test_first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        n++;
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            alarm(TEST_SECONDS);
            t->fn();
            fflush(stdout);
            exit(0); /* runs the leak checker */
        }
        int st = 0;
        while (waitpid(-1, &st, 0) != pid) /* orphans too, as they come */
            ;
        int skip = WIFEXITED(st) && WEXITSTATUS(st) == 77, ok = skip || (WIFEXITED(st) && !WEXITSTATUS(st));
        int left = test_leftovers(ok ? TEST_GRACE_MS : 0);
        if (ok && left) {
            printf("# left %d processes behind\n", left);
            ok = 0;
        }
        failed += !ok;
        printf("%s %d - %s%s\n", ok ? "ok" : "not ok", n, t->name, skip ? " # SKIP" : "");
        if (!ok && WIFSIGNALED(st))
            printf("# signal %d\n", WTERMSIG(st));
    }
    printf("1..%d\n", n);
    if (!n)
        printf("not ok - %s%s\n", argc > 1 ? "no test matches " : "no tests",
               argc > 1 ? argv[1] : "");
    return failed || !n ? 1 : 0;
}
#define TEST_MAIN                                                                                                      \
    int main(int argc, char **argv) { return test_main(argc, argv); }
