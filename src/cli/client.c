/* Requests, answers and their errors. */
#include "cli/client.h"
#include "cli/partial.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/hint.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include "http/uri.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *url(const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    for (const char *p = fmt; *p; p++)
        if (p[0] == '{' && p[1] == '}') {
            uri_encode(str_of(va_arg(ap, const char *)), false, &b);
            p++;
        } else
            buf_putc(&b, *p);
    va_end(ap);
    return buf_take(&b);
}

void url_arg(char **target, const char *key, const char *value)
{
    if (!value)
        return;
    struct buf b = {0};
    buf_puts(&b, *target);
    buf_putc(&b, strchr(*target, '?') ? '&' : '?');
    uri_encode(str_of(key), false, &b);
    buf_putc(&b, '=');
    uri_encode(str_of(value), false, &b);
    free(*target);
    *target = buf_take(&b);
}

static bool nobody_home(const struct err *e) { return e->sys == ENOENT || e->sys == ECONNREFUSED; }

struct http_client *api_open(struct cli *x)
{
    struct err e = {0};
    struct http_client *c = api_connect(x, &e);
    if (!c && x->local && !x->no_start && nobody_home(&e)) {
        if (daemon_start(x, false))
            return NULL;
        c = api_connect(x, &e);
    }
    if (c)
        return c;
    x->err = e;
    if (nobody_home(&e)) {
        (void)err_set(&x->err, E_UNAVAILABLE, "hutchd is not running");
        (void)snprintf(x->hint, sizeof x->hint, "%s", x->local ? "start it with `hutch up`" : "check HUTCH_URL, and that hutchd is listening there (HUTCH_LISTEN)");
    }
    return NULL;
}

const char *const *api_headers(struct cli *x, const char *content_type)
{
    static char key[256], type[128]; /* one thread builds requests at a time: the pump has its own, see stream.c */
    static const char *list[4];
    int n = 0;
    if (x->key) {
        (void)snprintf(key, sizeof key, "X-API-Key: %s", x->key);
        list[n++] = key;
    }
    if (content_type) {
        (void)snprintf(type, sizeof type, "Content-Type: %s", content_type);
        list[n++] = type;
    }
    list[n] = NULL;
    return list;
}

void api_about(struct cli *x, const char *target)
{
    (void)snprintf(x->about, sizeof x->about, "%s", target);
}

int api_send(struct cli *x, struct http_client *c, const char *method, const char *target, const struct buf *body)
{
    api_about(x, target);
    return http_client_send(c, method, target, api_headers(x, body ? "application/json" : NULL), body ? body->p : NULL, body ? body->n : 0,
                            &x->err);
}

void api_problem_json(struct cli *x, struct json *error)
{
    char msg[sizeof x->err.msg];
    esc_text(str_of(jget_str(error, "message", "refused without an explanation")), msg, sizeof msg);
    enum err_why why = err_why_from_name(jget_str(error, "reason", ""));
    const char *own = cli_hint(why);
    (void)err_why(&x->err, why, err_from_name(jget_str(error, "code", "internal")), "%s", msg);
    if (own)
        cli_hint_fill(own, x->about, x->hint, sizeof x->hint);
    else
        esc_text(str_of(jget_str(error, "hint", "")), x->hint, sizeof x->hint);
}

static enum err_code code_of_status(int status)
{
    for (int c = E_INVALID; c < E_CODE_MAX; c++)
        if (err_http((enum err_code)c) == status)
            return (enum err_code)c;
    return status >= 500 ? E_INTERNAL : E_INVALID;
}

void api_problem(struct cli *x, int status, const char *body, size_t n)
{
    auto_json j = json_parse_obj(body ? body : "", n, NULL);
    struct json *error = json_get(j, "error");
    if (json_kind(error) == JSON_OBJ)
        api_problem_json(x, error);
    else
        (void)err_set(&x->err, code_of_status(status), "the server answered %d %s", status, http_reason(status));
}

/* With signals held back, a wait notes the first one (what the server just made must be cleaned up) and gives up at the second. */
static int wait_head(struct cli *x, struct http_client *c)
{
    while (x->sigfd > 0 && !http_client_pending(c)) {
        struct pollfd p[2] = {{.fd = http_client_fd(c), .events = POLLIN}, {.fd = x->sigfd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_sys(&x->err, errno, "poll");
        if (p[0].revents && http_client_arrived(c))
            return 0;
        int sig = signals_take(x->sigfd);
        if (sig && x->caught)
            return err_set(&x->err, E_CANCELED, "interrupted");
        if (sig)
            x->caught = sig;
    }
    return 0;
}

int api_check(struct cli *x, struct http_client *c)
{
    if (wait_head(x, c))
        return -1;
    const struct http_head *h = http_client_head(c, &x->err);
    if (!h)
        return -1;
    int status = h->status;
    if (status < 400)
        return 0;
    auto_buf b = {0};
    struct err ignored = {0};
    (void)http_client_body(c, 1u << 20, &b, &ignored); /* a cut problem body still has its status */
    api_problem(x, status, b.p, b.n);
    return -1;
}

int api_send_fd(struct cli *x, struct http_client *c, const char *method, const char *target, const char *type, int fd, int64_t len)
{
    api_about(x, target);
    if (http_client_send_fd(c, method, target, api_headers(x, type), fd, len, &x->err) == 0)
        return api_check(x, c);
    struct err first = x->err, ignored = {0}; /* a server that refuses early cuts us off: its reason is better than "broken pipe" */
    const struct http_head *h = first.sys == EPIPE || first.sys == ECONNRESET ? http_client_head(c, &ignored) : NULL;
    if (h && h->status >= 400)
        return api_check(x, c);
    x->err = first;
    return -1;
}

int api_call(struct cli *x, const char *method, const char *target, const struct buf *json_body, struct json **ret)
{
    auto_client c = api_open(x);
    auto_buf b = {0};
    if (!c || api_send(x, c, method, target, json_body) || api_check(x, c) || http_client_body(c, API_BODY_MAX, &b, &x->err))
        return -1;
    if (!ret)
        return 0;
    *ret = NULL;
    if (!b.n)
        return 0;
    *ret = json_parse(b.p, b.n, &x->err);
    return *ret ? 0 : err_wrap(&x->err, "the server's response");
}

/* -- lenient JSON -- */

const char *jget_str(struct json *o, const char *key, const char *def)
{
    struct str s = {def, 0};
    return json_str(o, key, &s, false, NULL) ? def : s.p;
}
int64_t jget_i64(struct json *o, const char *key, int64_t def)
{
    int64_t v = def;
    return json_i64(o, key, INT64_MIN, INT64_MAX, def, &v, NULL) ? def : v;
}
double jget_f64(struct json *o, const char *key, double def)
{
    double v = def;
    return json_f64(o, key, -1e300, 1e300, def, &v, NULL) ? def : v;
}
bool jget_bool(struct json *o, const char *key, bool def)
{
    bool v = def;
    return json_bool(o, key, def, &v, NULL) ? def : v;
}
int64_t jget_time(struct json *o, const char *key)
{
    int64_t ns = 0;
    return time_parse(str_of(jget_str(o, key, NULL)), &ns) ? ns : 0;
}

void json_print(struct json *j)
{
    auto_buf b = {0};
    if (j)
        json_dump(j, &b);
    else
        buf_puts(&b, "null");
    buf_putc(&b, '\n');
    (void)fwrite(b.p, 1, b.n, stdout); /* main checks stdout once, at the end */
}

/* The bytes of an answer that was checked. */
static int receive(struct cli *x, struct http_client *c, int fd, const char *dst, int64_t max)
{
    char data[65536];
    ssize_t n;
    int64_t got = 0;
    while ((n = http_client_read(c, data, sizeof data, &x->err)) > 0) {
        got += n;
        if (max && got > max)
            return err_set(&x->err, E_TOO_LARGE,
                           "it is larger than %lld MiB, the limit; --max-size raises it",
                           (long long)(max >> 20));
        if (!fd_write_all(fd, data, (size_t)n))
            return err_sys(&x->err, errno, "cannot write '%.100s'", dst);
    }
    return n < 0 ? -1 : 0;
}

/* A device, a pipe: written to, not replaced. */
static bool is_special(const char *dst)
{
    struct stat st;
    return !stat(dst, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static int receive_file(struct cli *x, struct http_client *c, const char *dst, int64_t max)
{
    const char *slash = strrchr(dst, '/'), *name = slash ? slash + 1 : dst;
    auto_free char *folder =
        slash ? xstrndup(dst, slash == dst ? 1 : (size_t)(slash - dst)) : xstrdup(".");
    auto_fd dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct partial p;
    if (dir < 0 || !*name)
        return err_sys(&x->err, dir < 0 ? errno : EISDIR, "cannot write '%.100s'", dst);
    if (partial_begin(&p, dir, 0666, &x->err))
        return err_wrap(&x->err, "cannot write '%.100s'", dst);
    if (receive(x, c, p.fd, dst, max)) {
        partial_drop(&p);
        return -1;
    }
    return partial_keep(&p, name, &x->err);
}

int api_download(struct cli *x, const char *target, const char *dst, int64_t max)
{
    auto_client c = api_open(x);
    if (!c || api_send(x, c, "GET", target, NULL) || api_check(x, c))
        return -1;
    if (!strcmp(dst, "-"))
        return receive(x, c, STDOUT_FILENO, "standard output", max);
    if (!is_special(dst))
        return receive_file(x, c, dst, max);
    auto_fd fd = open(dst, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? err_sys(&x->err, errno, "cannot write '%.100s'", dst) : receive(x, c, fd, dst, max);
}
