/* A small stand-in for hutchd: just enough of docs/api.md, in memory, in a
 * forked process on a unix socket. exec knows a few pretend programs. What the
 * client asked is written to a log file that tests read. */
#pragma once
#include "base/buf.h"
#include "base/enc.h"
#include "base/map.h"
#include "http/router.h"
#include "http/server.h"
#include "http/ws.h"
#include "json/read.h"
#include "json/write.h"
#include "loop/loop.h"
#include "test.h"
#include <fcntl.h>
#include <sys/prctl.h>

#define ID "iaaaaaaaaaaaaaaaaaaaa"
static char dir[64];
static struct {
    struct loop *loop;
    bool alive, base;             /* the one sandbox; template base exists */
    struct map files;             /* path -> struct buf * */
    struct http_stream *cat;      /* the running command that reads stdin */
    bool full;                    /* stdin is refused */
    bool swallow;                 /* … into `tar`, instead of echoing */
    struct buf tar;
    int logfd;
} fake;

static inline void fake_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void fake_log(const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    buf_putc(&b, '\n');
    (void)!write(fake.logfd, b.p, b.n);
}
static inline void refuse(struct http_stream *s, int status, const char *code, const char *msg)
{
    char b[256];
    int n = snprintf(b, sizeof b, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\",\"hint\":\"a hint\",\"request_id\":\"r1\"}}", code, msg);
    http_reply(s, status, "application/json", b, (size_t)n);
}
static inline void json_ok(struct http_stream *s, int status, const char *j) { http_reply(s, status, "application/json", j, strlen(j)); }
static inline void line(struct http_stream *s, const char *j)
{
    http_write(s, j, strlen(j));
    http_write(s, "\n", 1);
}
#define SANDBOX                                                                                                                       \
    "{\"id\":\"" ID "\",\"name\":\"evil\\u001b[31m\",\"template\":\"base\",\"template_id\":\"t1\",\"state\":\"running\","             \
    "\"isolation\":{\"tier\":\"vm\",\"boundary\":\"own kernel\",\"accel\":\"tcg\"},\"cpu\":1,\"memory_mib\":512,\"disk_mib\":4096,"   \
    "\"timeout_s\":300,\"on_timeout\":\"kill\",\"created_at\":\"2026-01-01T00:00:00.000Z\",\"expires_at\":\"2099-01-01T00:00:00.000Z\"," \
    "\"metadata\":{\"k\":\"v\\n\"},\"network\":{\"mode\":\"none\"},\"generation\":1,\"start\":{\"path\":\"pool\",\"ms\":2.1},\"end\":null}"

static inline void h_health(struct http_stream *s, void *a) { (void)a, json_ok(s, 200, "{\"status\":\"ok\",\"version\":\"9.9\"}"); }
static inline void got_create(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    fake_log("create %.*s", (int)n, d);
    if (!fake.base) {
        refuse(s, 404, "not_found", "template 'base' does not exist");
        return;
    }
    fake.alive = true;
    json_ok(s, 201, SANDBOX);
}
static inline void h_create(struct http_stream *s, void *a) { http_body_collect(s, 1 << 20, got_create, a); }
static inline void h_list(struct http_stream *s, void *a)
{
    (void)a;
    auto_buf c = {0};
    bool second = http_query_get(s, "cursor", &c);
    json_ok(s, 200, second ? "{\"sandboxes\":[" SANDBOX "],\"next\":null}" : "{\"sandboxes\":[" SANDBOX "],\"next\":\"c2\"}");
}
static inline bool known(struct http_stream *s)
{
    struct str id = http_param(s, "id");
    if ((str_eqz(id, ID) || str_eqz(id, "web")) && fake.alive)
        return true;
    refuse(s, 404, "not_found", "no such sandbox");
    return false;
}
static inline void h_get(struct http_stream *s, void *a)
{
    (void)a;
    if (known(s))
        json_ok(s, 200, SANDBOX);
}
static inline void h_delete(struct http_stream *s, void *a)
{
    (void)a;
    if (!known(s))
        return;
    fake.alive = false;
    fake_log("delete");
    http_reply(s, 204, NULL, NULL, 0);
}
static inline void cat_left(struct http_stream *s, void *a)
{
    (void)s, (void)a;
    fake_log("client left");
    fake.cat = NULL;
}
static inline void out_bytes(struct http_stream *s, const char *ev, const char *p, size_t n)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "event", ev);
    jw_key(&w, "data_base64");
    jw_base64(&w, p, n);
    jw_end(&w);
    line(s, b.p);
}
static inline void got_exec(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    fake_log("exec %.*s", (int)n, d);
    auto_json j = json_parse_obj(d, n, NULL);
    struct json *cmd = json_get(j, "cmd");
    struct str prog = {"", 0}, arg = {"", 0};
    (void)json_to_str(json_at(cmd, 0), &prog, NULL);
    (void)json_to_str(json_at(cmd, 1), &arg, NULL);
    bool bg = false;
    (void)json_bool(j, "background", false, &bg, NULL);
    if (bg) {
        json_ok(s, 201, "{\"pid\":78}");
        return;
    }
    http_reply_start(s, 200, "application/x-ndjson");
    line(s, "{\"event\":\"started\",\"pid\":77}");
    if (str_eqz(prog, "cat") || str_eqz(prog, "sh") || str_eqz(prog, "full")) {
        fake.full = str_eqz(prog, "full");
        fake.swallow = str_eqz(prog, "sh");
        fake.tar.n = 0;
        fake.cat = s;
        http_on_cancel(s, cat_left, NULL);
        return;
    }
    if (str_eqz(prog, "hang")) {
        http_on_cancel(s, cat_left, NULL);
        return;
    }
    if (str_eqz(prog, "tar")) {
        for (size_t i = 0; i < fake.tar.n; i += 5000)
            out_bytes(s, "stdout", fake.tar.p + i, fake.tar.n - i < 5000 ? fake.tar.n - i : 5000);
    } else if (str_eqz(prog, "interrupt")) {
        line(s, "{\"event\":\"interrupted\",\"error\":{\"code\":\"gone\",\"message\":\"the sandbox ended: timeout\"}}");
        http_end(s);
        return;
    } else if (str_eqz(prog, "cut")) {
        http_abort(s);
        return;
    } else {
        line(s, "{\"event\":\"keepalive\"}");
        out_bytes(s, "stdout", "raw\0\xff\n", 6);
        line(s, "{\"event\":\"stderr\",\"data\":\"to stderr\\n\"}");
    }
    line(s, str_eqz(prog, "oom")       ? "{\"event\":\"exit\",\"exit\":{\"kind\":\"oom\",\"signal\":9}}"
            : str_eqz(prog, "timeout") ? "{\"event\":\"exit\",\"exit\":{\"kind\":\"timeout\",\"signal\":9,\"timeout_ms\":1000}}"
            : str_eqz(prog, "signal")  ? "{\"event\":\"exit\",\"exit\":{\"kind\":\"signal\",\"signal\":11,\"name\":\"SIGSEGV\"}}"
            : str_eqz(prog, "three")   ? "{\"event\":\"exit\",\"exit\":{\"kind\":\"exit\",\"code\":3}}"
                                       : "{\"event\":\"exit\",\"exit\":{\"kind\":\"exit\",\"code\":0}}");
    http_end(s);
}
static inline void h_exec(struct http_stream *s, void *a)
{
    if (known(s))
        http_body_collect(s, 1 << 20, got_exec, a);
}
static inline void got_stdin(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    auto_buf q = {0};
    if (fake.full) {
        refuse(s, 429, "quota", "too much unread input");
        return;
    }
    if (fake.cat && fake.swallow)
        buf_put(&fake.tar, d, n);
    else if (fake.cat && n)
        out_bytes(fake.cat, "stdout", d, n);
    if (http_query_get(s, "eof", &q) && fake.cat) {
        line(fake.cat, "{\"event\":\"exit\",\"exit\":{\"kind\":\"exit\",\"code\":0}}");
        http_on_cancel(fake.cat, NULL, NULL);
        http_end(fake.cat);
        fake.cat = NULL;
    }
    http_reply(s, 204, NULL, NULL, 0);
}
static inline void h_stdin(struct http_stream *s, void *a) { http_body_collect(s, 1 << 20, got_stdin, a); }
static inline void got_signal(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    fake_log("signal %.*s", (int)n, d);
    http_reply(s, 204, NULL, NULL, 0);
    if (fake.cat) {
        line(fake.cat, "{\"event\":\"exit\",\"exit\":{\"kind\":\"signal\",\"signal\":2}}");
        http_on_cancel(fake.cat, NULL, NULL);
        http_end(fake.cat);
        fake.cat = NULL;
    }
}
static inline void h_signal(struct http_stream *s, void *a) { http_body_collect(s, 1 << 20, got_signal, a); }
static inline void got_file(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    auto_buf path = {0}, mode = {0};
    http_query_get(s, "path", &path);
    http_query_get(s, "mode", &mode);
    struct buf *b = xcalloc(1, sizeof *b);
    buf_put(b, d, n);
    map_set(&fake.files, path.p, b);
    fake_log("put %s %s %zu", path.p, mode.n ? mode.p : "", n);
    json_ok(s, 201, "{}");
}
static inline void h_put(struct http_stream *s, void *a)
{
    if (known(s))
        http_body_collect(s, 64 << 20, got_file, a);
}
static inline void h_file(struct http_stream *s, void *a)
{
    (void)a;
    if (!known(s))
        return;
    auto_buf path = {0};
    http_query_get(s, "path", &path);
    struct buf *b = map_get(&fake.files, path.p);
    if (b)
        http_reply(s, 200, "application/octet-stream", b->p, b->n);
    else
        refuse(s, 404, "not_found", "no such file");
}
static inline void h_stat(struct http_stream *s, void *a)
{
    (void)a;
    if (!known(s))
        return;
    auto_buf path = {0};
    http_query_get(s, "path", &path);
    if (map_get(&fake.files, path.p))
        json_ok(s, 200, "{\"type\":\"file\"}");
    else if (!strcmp(path.p, "/tmp") || !strcmp(path.p, "/tree"))
        json_ok(s, 200, "{\"type\":\"dir\"}");
    else
        refuse(s, 404, "not_found", "no such file");
}
static inline void got_build(struct http_stream *s, void *a, const char *d, size_t n)
{
    (void)a;
    fake_log("build %.*s", (int)n, d);
    http_reply_start(s, 200, "application/x-ndjson");
    line(s, "{\"event\":\"progress\",\"percent\":40,\"step\":\"unpacking\"}");
    line(s, "{\"event\":\"log\",\"line\":\"a \\u001b[31m line\"}");
    line(s, "{\"event\":\"progress\",\"percent\":50,\"step\":\"unpacking: 3 MiB\"}");
    line(s, "{\"event\":\"progress\",\"percent\":60,\"step\":\"unpacking: 4 MiB\"}");
    line(s, "{\"event\":\"log\",\"line\":\"Reading 5%\\rReading 50%\\rReading done\\r\"}");
    if (strstr(d, "\"broken\""))
        line(s, "{\"event\":\"error\",\"error\":{\"code\":\"guest\",\"message\":\"RUN failed\"}}");
    else
        line(s, "{\"event\":\"done\",\"template\":{\"id\":\"t1\",\"name\":\"base\"}}");
    http_end(s);
    fake.base = true;
}
static inline void h_build(struct http_stream *s, void *a) { http_body_collect(s, 64 << 20, got_build, a); }
static inline void h_unsupported(struct http_stream *s, void *a) { (void)a, refuse(s, 501, "unsupported", "pause does not exist yet"); }
static inline void h_doctor(struct http_stream *s, void *a)
{
    (void)a;
    json_ok(s, 200, "{\"checks\":[{\"name\":\"kvm\",\"status\":\"warn\",\"found\":\"no /dev/kvm\",\"lost\":\"speed\",\"fix\":\"enable it\"},"
                    "{\"name\":\"root\",\"status\":\"ok\",\"found\":\"uid 0\"}]}");
}
static inline void h_events(struct http_stream *s, void *a)
{
    (void)a;
    sse_start(s, 0);
    sse_event_id(s, "1", "event", S("{\"seq\":1,\"at\":\"2026-01-01T00:00:00.000Z\",\"type\":\"sandbox.running\",\"sandbox\":\"" ID "\",\"data\":{}}"));
    http_end(s);
}
static inline void h_down(struct http_stream *s, void *a)
{
    (void)a;
    json_ok(s, 202, "{}");
    loop_stop(fake.loop);
}
static inline void pty_msg(struct http_stream *s, void *a, bool text, const char *p, size_t n)
{
    (void)a;
    fake_log("pty %s %.*s", text ? "text" : "bytes", (int)n, p);
    if (!text && memchr(p, 'q', n)) {
        const char *x = "{\"exit\":{\"kind\":\"exit\",\"code\":5}}";
        ws_send_text(s, x, strlen(x));
        ws_close(s, 1000, "");
    } else if (!text)
        ws_send_binary(s, p, n);
}
static inline void pty_closed(struct http_stream *s, void *a, int code, struct str r) { (void)s, (void)a, (void)r, fake_log("pty closed %d", code); }
static inline void h_pty(struct http_stream *s, void *a)
{
    if (!known(s))
        return;
    fake_log("pty %.*s", (int)http_query(s).n, http_query(s).p);
    if (!http_ws_accept(s, NULL, pty_msg, pty_closed, a))
        ws_send_text(s, "{\"started\":{\"pid\":77}}", 22);
}

static const struct route routes[] = {
    {"GET", "/healthz", h_health, 0}, {"POST", "/v1/sandboxes", h_create, 0}, {"GET", "/v1/sandboxes", h_list, 0},
    {"GET", "/v1/sandboxes/{id}", h_get, 0}, {"DELETE", "/v1/sandboxes/{id}", h_delete, 0}, {"POST", "/v1/sandboxes/{id}/exec", h_exec, 0},
    {"POST", "/v1/sandboxes/{id}/processes/{pid}/stdin", h_stdin, 0}, {"POST", "/v1/sandboxes/{id}/processes/{pid}/signal", h_signal, 0},
    {"PUT", "/v1/sandboxes/{id}/files", h_put, 0}, {"GET", "/v1/sandboxes/{id}/files", h_file, 0}, {"GET", "/v1/sandboxes/{id}/files/stat", h_stat, 0},
    {"POST", "/v1/sandboxes/{id}/pause", h_unsupported, 0}, {"GET", "/v1/sandboxes/{id}/pty", h_pty, 0}, {"POST", "/v1/templates", h_build, 0},
    {"POST", "/v1/templates/{name}/build", h_build, 0}, {"GET", "/v1/doctor", h_doctor, 0}, {"GET", "/v1/events", h_events, 0}, {"POST", "/v1/shutdown", h_down, 0},
};
static inline void dispatch(struct http_stream *s, void *arg) { router_dispatch(arg, s, NULL); }

static inline void drop_dir(void)
{
    char cmd[128];
    (void)snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    (void)!system(cmd);
}
static inline void fake_dir(void)
{
    strcpy(dir, "/tmp/hutch-cli-XXXXXX");
    CHECK(mkdtemp(dir));
    atexit(drop_dir);
    setenv("HUTCH_RUN", dir, 1);
    setenv("HUTCH_HOME", dir, 1);
    setenv("HUTCH_NO_START", "1", 1);
    unsetenv("HUTCH_URL");
    unsetenv("HUTCH_API_KEY");
}
static inline void fake_serve(bool alive, bool base) /* in this process, until shutdown */
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/calls", dir);
    fake.logfd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    fake.alive = alive, fake.base = base;
    fake.loop = loop_new();
    struct router *r = router_new(routes, sizeof routes / sizeof *routes);
    struct http_server *srv = http_server_new(fake.loop, &(struct http_config){.handler = dispatch, .arg = r});
    (void)snprintf(path, sizeof path, "%s/hutch.sock", dir);
    struct err e;
    if (http_listen_unix(srv, path, 0600, &e))
        _exit(1);
    loop_run(fake.loop);
    loop_turn(fake.loop, false);
    _exit(0);
}
static inline void fake_start(bool alive, bool base)
{
    fake_dir();
    fflush(stdout);
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fake_serve(alive, base);
    }
    char path[96];
    (void)snprintf(path, sizeof path, "%s/hutch.sock", dir);
    for (int i = 0; i < 500 && access(path, F_OK); i++)
        usleep(10000);
}
static inline char *slurp(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    struct buf b = {0};
    char d[4096];
    size_t n;
    buf_puts(&b, "");
    while (f && (n = fread(d, 1, sizeof d, f)) > 0)
        buf_put(&b, d, n);
    if (f)
        fclose(f);
    buf_putc(&b, 0);
    return buf_take(&b);
}
static inline bool logged(const char *what)
{
    char *l = slurp("calls");
    bool yes = strstr(l, what) != NULL;
    free(l);
    return yes;
}
