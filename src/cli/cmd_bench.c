/* hutch bench: how fast this machine answers, as a client sees it. Each round
 * creates a sandbox, runs one program in it and destroys it; the medians are
 * shown beside what starting the same program on the host costs. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define ROUNDS_MAX 1000
#define PROGRAM    "/bin/true"

enum { CREATE, EXEC, AGAIN, DESTROY, STEPS };
struct rounds {
    const char *tier;
    int n;
    double ms[STEPS][ROUNDS_MAX];
    char path[24]; /* how the last one was started */
};

static double since(int64_t t) { return (double)(clock_mono() - t) / 1e6; }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n ? v[n / 2] : 0;
}

static double on_host(int n)
{
    double v[ROUNDS_MAX] = {0};
    char *argv[] = {(char *)(uintptr_t)PROGRAM, NULL}, *env[] = {NULL};
    for (int i = 0; i < n; i++) {
        pid_t pid;
        int64_t t = clock_mono();
        if (posix_spawn(&pid, PROGRAM, NULL, NULL, argv, env))
            return 0;
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        v[i] = since(t);
    }
    return median(v, n);
}

static int run_program(struct cli *x, const char *id, double *ret)
{
    auto_free char *t = url("/v1/sandboxes/{}/exec", id);
    auto_buf b = {0};
    buf_puts(&b, "{\"cmd\":[\"" PROGRAM "\"]}");
    int64_t at = clock_mono();
    int rc = api_call(x, "POST", t, &b, NULL);
    *ret = since(at);
    return rc;
}

static int one_round(struct cli *x, struct rounds *r, const char *template)
{
    auto_buf b = {0};
    auto_json sb = NULL;
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "isolation", r->tier);
    jw_kv_str(&w, "template", template);
    jw_end(&w);
    int64_t at = clock_mono();
    if (api_call(x, "POST", "/v1/sandboxes", &b, &sb))
        return -1;
    int i = r->n;
    r->ms[CREATE][i] = since(at);
    const char *id = jget_str(sb, "id", "");
    (void)snprintf(r->path, sizeof r->path, "%.20s", jget_str(json_get(sb, "start"), "path", "-"));
    auto_free char *t = url("/v1/sandboxes/{}", id);
    if (run_program(x, id, &r->ms[EXEC][i]) || run_program(x, id, &r->ms[AGAIN][i])) {
        sandbox_kill_quiet(x, id);
        return -1;
    }
    at = clock_mono();
    if (api_call(x, "DELETE", t, NULL, NULL))
        return -1;
    r->ms[DESTROY][i] = since(at);
    r->n++;
    return 0;
}

static void show_json(struct rounds *r, double host)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "tier", r->tier);
    jw_kv_str(&w, "path", r->path);
    jw_kv_u64(&w, "rounds", (uint64_t)r->n);
    jw_kv_f64(&w, "create_ms", median(r->ms[CREATE], r->n));
    jw_kv_f64(&w, "first_exec_ms", median(r->ms[EXEC], r->n));
    jw_kv_f64(&w, "exec_ms", median(r->ms[AGAIN], r->n));
    jw_kv_f64(&w, "destroy_ms", median(r->ms[DESTROY], r->n));
    jw_kv_f64(&w, "host_exec_ms", host);
    jw_end(&w);
    printf("%.*s\n", (int)b.n, b.p);
}

static int exec_bench(struct cli *x, struct args *a)
{
    static const char *const all[] = {"vm", "gvisor", "container"},
                             *const asked = "gvisor"; /* a host need not have it */
    static const char *const heads[] = {"TIER", "START", ">CREATE", ">FIRST EXEC", ">EXEC", ">DESTROY", ">HOST EXEC", NULL};
    const char *only = args_str(a, "isolation", NULL), *template = args_str(a, "template", "base");
    int64_t n = 0;
    if (args_int(a, "rounds", 1, ROUNDS_MAX, 10, &n, &x->err))
        return cli_fail(x);
    auto_free struct rounds *r = xcalloc(1, sizeof *r);
    double host = on_host((int)n);
    struct progress p;
    struct table *t = table_new(heads);
    progress_begin(&p);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        if (strcmp(only ? only : all[k], all[k]) != 0 || (!only && !strcmp(all[k], asked)))
            continue;
        *r = (struct rounds){.tier = all[k]};
        while (r->n < n) {
            progress_set(&p, (int)(r->n * 100 / n), all[k]);
            if (one_round(x, r, template)) {
                progress_end(&p, NULL);
                table_free(t);
                return cli_fail(x);
            }
        }
        if (args_flag(a, "json")) {
            show_json(r, host);
            continue;
        }
        table_cell(t, ST_BOLD, r->tier);
        table_cell(t, ST_PLAIN, r->path);
        for (int s = 0; s < STEPS; s++)
            table_cellf(t, ST_PLAIN, "%.2f ms", median(r->ms[s], r->n));
        table_cellf(t, ST_DIM, "%.2f ms", host);
    }
    progress_end(&p, NULL);
    if (args_flag(a, "json"))
        table_free(t);
    else
        table_print(t);
    return 0;
}

static const struct opt opts[] = {{"rounds", 'n', 's', "N", "sandboxes per tier (10)", NULL},
                                  {"isolation", 0, 's', "TIER", "only this tier: vm, gvisor or container (all but gvisor)", "vm gvisor container"},
                                  {"template", 't', 's', "NAME", "template to start from (base)", "@template"},
                                  OPT_JSON,
                                  OPT_END};
const struct cmd cmd_bench = {.name = "bench", .usage = "[-n N]", .help = "measure create, exec and destroy on this machine", .opts = opts, .exec = exec_bench};
