/* Finding the processes of a tree where there is no cgroup to ask: by group,
 * session, ancestry, and by the mark every started process carries in its
 * environment (HUTCH_EXEC=<serial>), which also finds a daemon that left its
 * session and lost its parents. Repeated until a pass finds nobody, because a
 * process may fork between the look and the kill. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "guest/proc.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSES 10
#define TASKS_MAX 32768

struct task { pid_t pid, parent, group, session; bool hit; };

static ssize_t read_proc(int dir, const char *pid, const char *file, char *out, size_t cap)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%.20s/%s", pid, file);
    auto_fd fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : read(fd, out, cap);
}

static bool marked(int dir, const char *pid, const char *mark, size_t n)
{
    char env[16384]; /* the mark is the first entry of the environment we pass */
    ssize_t k = read_proc(dir, pid, "environ", env, sizeof env);
    return k > 0 && memmem(env, (size_t)k, mark, n + 1) != NULL;
}

static bool parse_stat(char *s, struct task *t)
{
    char *p = strrchr(s, ')'); /* the name may hold anything */
    char state;
    return p && sscanf(p + 1, " %c %d %d %d", &state, &t->parent, &t->group, &t->session) == 4 && state != 'Z' && state != 'X';
}

static int by_pid(const void *x, const void *y)
{
    pid_t a = ((const struct task *)x)->pid, b = ((const struct task *)y)->pid;
    return (a > b) - (a < b);
}

static int one_pass(pid_t leader, const char *mark)
{
    struct task *t = NULL;
    size_t n = 0, cap = 0, len = strlen(mark);
    int kills = 0;
    DIR *d = opendir("/proc");
    if (!d)
        return 0;
    for (struct dirent *de; (de = readdir(d)) && n < TASKS_MAX;) {
        char st[1024];
        struct task x = {.pid = atoi(de->d_name)};
        ssize_t k;
        if (x.pid <= 1 || x.pid == getpid() || (k = read_proc(dirfd(d), de->d_name, "stat", st, sizeof st - 1)) <= 0)
            continue;
        st[k] = 0;
        if (!parse_stat(st, &x))
            continue;
        x.hit = (leader && (x.pid == leader || x.group == leader || x.session == leader)) || marked(dirfd(d), de->d_name, mark, len);
        if (n == cap) {
            cap = cap ? cap * 2 : 64;
            t = xrealloc(t, cap * sizeof *t);
        }
        t[n++] = x;
    }
    closedir(d);
    for (bool more = true; more;) { /* children of hits; /proc lists in pid order, so the table is sorted */
        more = false;
        for (size_t i = 0; i < n; i++) {
            struct task *up = t[i].hit ? NULL : bsearch(&(struct task){.pid = t[i].parent}, t, n, sizeof *t, by_pid);
            if (up && up->hit)
                t[i].hit = more = true;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (t[i].hit && !kill(t[i].pid, SIGKILL))
            kills++;
    free(t);
    return kills;
}

void tree_kill(pid_t leader, uint64_t serial)
{
    char mark[48];
    (void)snprintf(mark, sizeof mark, "HUTCH_EXEC=%llu", (unsigned long long)serial);
    for (int i = 0; i < PASSES && one_pass(leader, mark); i++)
        ;
}
