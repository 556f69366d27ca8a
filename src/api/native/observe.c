/* Numbers: one sandbox's, and the daemon's for Prometheus (text format 0.0.4). */
#include "api/native/native.h"
#include "base/clock.h"
#include "base/fd.h"
#include "http/server.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- a sandbox ---- */
static void on_metrics(void *arg, const struct err *e, const struct sandbox_metrics *m)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, ABOUT_SANDBOX);
        return;
    }
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_kv_u64(w, "cpu_ns", m->cpu_ns);
    jw_kv_u64(w, "cpu_count", m->cpu_count);
    jw_kv_u64(w, "memory_used", m->mem_used);
    jw_kv_u64(w, "memory_cache", m->mem_cache);
    jw_kv_u64(w, "memory_total", m->mem_total);
    jw_kv_u64(w, "disk_used", m->disk_used);
    jw_kv_u64(w, "disk_total", m->disk_total);
    jw_kv_u64(w, "processes", m->nproc);
    put_time(w, "at", clock_wall());
    jw_end(w);
    req_send(r, 200);
}

void metrics_get(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_metrics(sb, on_metrics, r, &e), &e, ABOUT_SANDBOX);
}

static void on_console(void *arg, struct str text, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, ABOUT_SANDBOX);
        return;
    }
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_kv_arr(w, "lines");
    for (const char *nl; text.n && (nl = memchr(text.p, '\n', text.n));) {
        size_t n = (size_t)(nl - text.p);
        jw_str(w, (struct str){text.p, n});
        text.p += n + 1, text.n -= n + 1;
    }
    jw_end(w);
    jw_end(w);
    req_send(r, 200);
}

void console_get(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_console(sb, on_console, r, &e), &e, ABOUT_SANDBOX);
}

/* ---- the daemon ---- */
static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}
static void gauge(struct buf *b, const char *name, const char *help, double v)
{
    head(b, name, "gauge", help);
    buf_printf(b, "%s %.15g\n", name, v);
}
static void counter(struct buf *b, const char *name, const char *help, double v)
{
    head(b, name, "counter", help);
    buf_printf(b, "%s %.15g\n", name, v);
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static void put_process(struct buf *b)
{
    struct rusage u;
    if (!getrusage(RUSAGE_SELF, &u))
        counter(b, "process_cpu_seconds_total", "CPU time of the daemon", seconds(u.ru_utime) + seconds(u.ru_stime));
    char *statm = fd_slurp_at(AT_FDCWD, "/proc/self/statm", 256, NULL);
    unsigned long long pages;
    if (statm && sscanf(statm, "%*u %llu", &pages) == 1)
        gauge(b, "process_resident_memory_bytes", "Resident memory of the daemon", (double)pages * (double)sysconf(_SC_PAGESIZE));
    free(statm);
    DIR *d = opendir("/proc/self/fd");
    if (d) {
        unsigned n = 0;
        for (const struct dirent *de; (de = readdir(d));)
            n += de->d_name[0] != '.';
        closedir(d);
        gauge(b, "process_open_fds", "Open file descriptors of the daemon", n ? n - 1 : 0); /* less the one that counted */
    }
}

void prometheus_get(struct http_stream *s, void *a)
{
    struct core_counts c = {0};
    struct buf b = {0};
    core_counts(api_core(a), &c);
    head(&b, "hutch_build_info", "gauge", "Version of the daemon");
    buf_printf(&b, "hutch_build_info{version=\"%s\"} 1\n", HUTCH_VERSION);
    head(&b, "hutch_sandboxes", "gauge", "Sandboxes by state");
    for (int i = 0; i < SB_STATE_MAX; i++)
        buf_printf(&b, "hutch_sandboxes{state=\"%s\"} %zu\n", state_name((enum sb_state)i), c.sandboxes[i]);
    head(&b, "hutch_pool_ready", "gauge", "Prepared sandboxes ready to use, by kind");
    buf_printf(&b, "hutch_pool_ready{kind=\"vm\"} %zu\nhutch_pool_ready{kind=\"prestarted\"} %zu\nhutch_pool_ready{kind=\"container\"} %zu\n",
               c.pool_vm_ready, c.pool_vm_started, c.pool_slots);
    gauge(&b, "hutch_pool_making", "Prepared sandboxes being made", (double)c.pool_making);
    gauge(&b, "hutch_templates", "Templates built", (double)c.templates);
    counter(&b, "hutch_creates_total", "Sandboxes requested", (double)c.creates);
    counter(&b, "hutch_create_failures_total", "Sandboxes that could not be created", (double)c.create_failures);
    gauge(&b, "hutch_http_connections", "Open connections", http_server_conns(http_server_of(s)));
    put_process(&b);
    http_reply_buf(s, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}
