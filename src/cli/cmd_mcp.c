/* hutch mcp: the MCP server on standard input and output. It holds no state:
 * each message goes to the daemon's /mcp as a request of its own, answers come
 * back as lines. Nothing else is ever written to standard output.
 *
 * One thread per request in flight, since a client may take up to five minutes
 * for one and sends others meanwhile. `initialize` is the exception: what
 * follows needs the session that it returns. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/list.h"
#include "cli/args.h"
#include "cli/cmds.h"
#include "cli/client.h"
#include "cli/mcp_install.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_MAX_BYTES (32u << 20)
#define BODY_MAX       (32u << 20)
#define INFLIGHT_MAX   128
#define GOODBYE_NS     (800 * NS_PER_MS) /* clients kill us after two seconds */
#define AWAY_NS        (15 * NS_PER_S)   /* how long a daemon may be away while it is restarted */
#define META(name)     "io.modelcontextprotocol/" name
#define MODERN         "2026-07-28"

struct proxy {
    struct cli *x;
    const char *sandbox, *tools, *template;
    pthread_mutex_t lock; /* over everything below, and standard output */
    pthread_cond_t calmer;
    char session[256];
    char *hello; /* the initialize that was sent, for a daemon that forgot the session */
    struct list inflight;
    unsigned n;
    bool pushing, leaving;
};

struct message {
    struct list link;
    struct proxy *p;
    char *text;
    size_t n;
    char *id; /* JSON; NULL: not a request */
    struct str method;
    struct json *j;
    bool modern, answered;
    int fd; /* of its connection while it has one; -1 */
};

/* ---- lines out ---- */
static void say(struct proxy *p, struct str line)
{
    (void)pthread_mutex_lock(&p->lock);
    if (!fd_write_all(STDOUT_FILENO, line.p, line.n) || !fd_write_all(STDOUT_FILENO, "\n", 1))
        p->leaving = true; /* nobody reads: the next look at stdin ends it */
    (void)pthread_mutex_unlock(&p->lock);
}

static void say_error(struct message *m, int code, const char *text)
{
    auto_buf b = {0};
    struct jw w;
    if (!m->id || m->answered)
        return;
    m->answered = true;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "jsonrpc", "2.0");
    jw_kv_raw(&w, "id", str_of(m->id));
    jw_kv_obj(&w, "error");
    jw_kv_i64(&w, "code", code);
    jw_kv_str(&w, "message", text);
    jw_end(&w);
    jw_end(&w);
    say(m->p, (struct str){b.p, b.n});
}

/* ---- requests ---- */
struct heads {
    char line[10][1200];
    const char *list[11];
    int n;
};

static void head(struct heads *h, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    (void)snprintf(h->line[h->n], sizeof h->line[0], "%s: %s", name, value);
    h->list[h->n] = h->line[h->n];
    h->list[++h->n] = NULL;
}

/* A value that a header cannot carry as it is goes as base64. */
static void head_text(struct heads *h, const char *name, struct str v)
{
    auto_buf b = {0};
    bool plain = v.n > 0 && *v.p != ' ' && v.p[v.n - 1] != ' ';
    for (size_t i = 0; i < v.n; i++)
        plain &= v.p[i] >= 0x20 && v.p[i] < 0x7f;
    if (plain) {
        head(h, name, v.p);
        return;
    }
    buf_puts(&b, "=?base64?");
    base64_encode(v.p, v.n, &b);
    buf_puts(&b, "?=");
    head(h, name, b.p);
}

static void put_heads(struct proxy *p, struct heads *h, const struct message *m)
{
    static const char accept[] = "application/json, text/event-stream";
    struct json *params = m ? json_get(m->j, "params") : NULL;
    char session[sizeof p->session];
    h->n = 0, h->list[0] = NULL;
    (void)pthread_mutex_lock(&p->lock);
    (void)snprintf(session, sizeof session, "%s", p->session);
    (void)pthread_mutex_unlock(&p->lock);
    head(h, "Accept", accept);
    head(h, "Content-Type", m ? "application/json" : NULL);
    head(h, "X-API-Key", p->x->key);
    head(h, "X-Hutch-Sandbox", p->sandbox);
    head(h, "X-Hutch-Tools", p->tools);
    head(h, "X-Hutch-Template", p->template);
    if (!m || !m->modern) {
        head(h, "Mcp-Session-Id", session);
        return;
    }
    struct str name = str_of(jget_str(params, "name", NULL));
    head(h, "MCP-Protocol-Version",
         jget_str(json_get(params, "_meta"), META("protocolVersion"), MODERN));
    head(h, "Mcp-Method", m->method.p);
    if (!name.p)
        name = str_of(jget_str(params, "uri", NULL));
    if (name.p)
        head_text(h, "Mcp-Name", name);
}

/* A daemon that is being restarted, or was not started yet, is worth waiting for. */
static struct http_client *dial(struct proxy *p, struct err *e)
{
    struct cli mine = {
        .url = p->x->url, .key = p->x->key, .ca = p->x->ca}; /* threads dial at once */
    for (int64_t until = clock_mono() + AWAY_NS;;) {
        struct http_client *c = api_connect(&mine, e);
        if (c || p->leaving || (e->sys != ENOENT && e->sys != ECONNREFUSED) || clock_mono() > until)
            return c;
        (void)poll(NULL, 0, 200);
    }
}

/* ---- answers ---- */
static void pass_on(struct message *m, struct proxy *p, struct str json)
{
    auto_json j = json_parse(json.p, json.n, NULL);
    if (m && (json_kind(j) == JSON_ARR || !json_has(j, "method")))
        m->answered = true;
    say(p, json);
}

/* Server-sent events: the data lines of one event are one message. */
static int pass_events(struct message *m, struct proxy *p, struct http_client *c)
{
    auto_buf line = {0}, data = {0};
    char chunk[65536];
    ssize_t n;
    struct err e;
    while ((n = http_client_read(c, chunk, sizeof chunk, &e)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (chunk[i] != '\n') {
                if (line.n < BODY_MAX)
                    buf_putc(&line, chunk[i]);
                continue;
            }
            if (line.n && line.p[line.n - 1] == '\r')
                line.n--;
            if (line.n > 5 && !memcmp(line.p, "data:", 5)) {
                size_t skip = line.p[5] == ' ' ? 6 : 5;
                buf_put(&data, line.p + skip, line.n - skip);
            } else if (!line.n && data.n) {
                pass_on(m, p, (struct str){data.p, data.n});
                data.n = 0;
            }
            line.n = 0;
        }
    return n < 0 ? -1 : 0;
}

static bool is_events(const struct http_head *h)
{
    struct str type = http_head_get(h, "Content-Type");
    return str_starts(type, "text/event-stream");
}

/* A refusal may not say whose it is: it is this one's. */
static void pass_refusal(struct message *m, int status, const struct buf *body)
{
    auto_json j = json_parse_obj(body->p ? body->p : "", body->n, NULL);
    struct json *error = json_get(j, "error");
    char say_status[80];
    if (json_get(j, "id") || !m->j) { /* or what was sent is not JSON: it has no id */
        pass_on(m, m->p, (struct str){body->p, body->n});
        return;
    }
    (void)snprintf(say_status, sizeof say_status, "the daemon answered %d", status);
    say_error(m, (int)jget_i64(error, "code", -32603), jget_str(error, "message", say_status));
}

static void note_session(struct proxy *p, const struct http_head *h)
{
    struct str id = http_head_get(h, "Mcp-Session-Id");
    if (!id.p || id.n >= sizeof p->session)
        return;
    (void)pthread_mutex_lock(&p->lock);
    (void)snprintf(p->session, sizeof p->session, "%.*s", (int)id.n, id.p);
    (void)pthread_mutex_unlock(&p->lock);
}

static void hold_fd(struct message *m, int fd)
{
    (void)pthread_mutex_lock(&m->p->lock);
    m->fd = fd;
    (void)pthread_mutex_unlock(&m->p->lock);
}

/* 0, or the status of a session that is not known any more. */
static int exchange(struct message *m, const char *text, size_t n, bool silent)
{
    struct proxy *p = m->p;
    struct err e = {0};
    struct heads h;
    auto_buf body = {0};
    auto_client c = dial(p, &e);
    if (!c) {
        say_error(m, -32603, e.msg);
        return 0;
    }
    put_heads(p, &h, m);
    hold_fd(m, http_client_fd(c));
    const struct http_head *r = NULL;
    if (!http_client_send(c, "POST", "/mcp", h.list, text, n, &e))
        r = http_client_head(c, &e);
    int status = r ? r->status : 0;
    if (r && status < 300)
        note_session(p, r);
    if (r && status < 300 && is_events(r) && !silent) {
        (void)pass_events(m, p, c);
    } else if (r && !http_client_body(c, BODY_MAX, &body, &e)) {
        if (status == 404 && !m->modern && m->id && p->hello && !silent)
            return hold_fd(m, -1), status;
        if (silent)
            ;
        else if (status >= 400)
            pass_refusal(m, status, &body);
        else if (body.n)
            pass_on(m, p, (struct str){body.p, body.n});
    }
    hold_fd(m, -1);
    if (!m->answered && !m->modern && !silent && !r)
        say_error(m, -32603, "the daemon went away before it answered");
    return 0;
}

static void forward(struct message *m)
{
    if (!exchange(m, m->text, m->n, false))
        return;
    /* Another daemon with another home, say. What the client said at first still holds. */
    struct message again = {.p = m->p, .fd = -1, .j = m->j};
    (void)pthread_mutex_lock(&m->p->lock);
    *m->p->session = 0;
    (void)pthread_mutex_unlock(&m->p->lock);
    (void)exchange(&again, m->p->hello, strlen(m->p->hello), true);
    if (exchange(m, m->text, m->n, false))
        say_error(m, -32600, "this session has ended; initialize");
}

/* ---- messages ---- */
static void message_free(struct message *m)
{
    json_free(m->j);
    free(m->text), free(m->id);
    free(m);
}

static void *message_run(void *arg)
{
    struct message *m = arg;
    struct proxy *p = m->p;
    forward(m);
    (void)pthread_mutex_lock(&p->lock);
    list_del(&m->link);
    p->n--;
    (void)pthread_cond_signal(&p->calmer);
    (void)pthread_mutex_unlock(&p->lock);
    message_free(m);
    return NULL;
}

static void *push_run(void *arg)
{
    struct proxy *p = arg;
    while (!p->leaving) {
        struct err e;
        struct heads h;
        auto_client c = dial(p, &e);
        const struct http_head *r = NULL;
        put_heads(p, &h, NULL);
        if (c && !http_client_send(c, "GET", "/mcp", h.list, NULL, 0, &e))
            r = http_client_head(c, &e);
        if (r && r->status == 200)
            (void)pass_events(NULL, p, c);
        (void)poll(NULL, 0, 1000);
    }
    return NULL;
}

static void start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    pthread_attr_t how;
    (void)pthread_attr_init(&how);
    (void)pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&how, 512 << 10);
    if (pthread_create(&t, &how, fn, arg))
        abort(); /* not even one more thread: nothing can be answered */
    (void)pthread_attr_destroy(&how);
}

/* Modern: to close the connection is to cancel. Legacy: the daemon is told like of anything else. */
static bool cancelled_here(struct proxy *p, struct json *params)
{
    struct json *which = json_get(params, "requestId");
    struct message *m;
    auto_buf id = {0};
    bool hit = false;
    if (which)
        json_dump(which, &id);
    (void)pthread_mutex_lock(&p->lock);
    list_each(m, &p->inflight, link)
        if (id.n && m->id && m->modern && !strcmp(m->id, id.p)) {
            hit = m->answered = true;
            if (m->fd >= 0)
                (void)shutdown(m->fd, SHUT_RDWR);
        }
    (void)pthread_mutex_unlock(&p->lock);
    return hit;
}

static void begin(struct proxy *p, struct message *m)
{
    (void)pthread_mutex_lock(&p->lock);
    while (p->n >= INFLIGHT_MAX)
        (void)pthread_cond_wait(&p->calmer, &p->lock);
    list_add_tail(&p->inflight, &m->link);
    p->n++;
    (void)pthread_mutex_unlock(&p->lock);
    start_thread(message_run, m);
}

static struct message *message_new(struct proxy *p, const char *line, size_t n)
{
    struct err e;
    struct message *m = xcalloc(1, sizeof *m);
    struct json *id;
    m->p = p, m->fd = -1;
    m->text = xstrndup(line, n), m->n = n;
    m->j = json_parse(line, n, &e);
    m->method = str_of(jget_str(m->j, "method", NULL));
    id = json_get(m->j, "id");
    if (m->method.p && (json_kind(id) == JSON_STR || json_kind(id) == JSON_INT)) {
        struct buf b = {0};
        json_dump(id, &b);
        m->id = buf_take(&b);
    }
    m->modern = json_has(json_get(json_get(m->j, "params"), "_meta"), META("protocolVersion"));
    return m;
}

static void take_line(struct proxy *p, const char *line, size_t n)
{
    struct message *m = message_new(p, line, n);
    bool is_call = m->method.p != NULL;
    if (is_call && str_eqz(m->method, "initialize") && !m->modern) {
        free(p->hello);
        p->hello = xstrdup(m->text);
        *p->session = 0;
        forward(m);
        message_free(m);
    } else if (m->id && !*p->session && str_eqz(m->method, "ping")) {
        auto_buf b = {0}; /* before initialize too: that we are here */
        buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}", m->id);
        say(p, (struct str){b.p, b.n});
        message_free(m);
    } else if (is_call && str_eqz(m->method, "notifications/cancelled") &&
               cancelled_here(p, json_get(m->j, "params"))) {
        message_free(m);
    } else {
        bool ready = is_call && str_eqz(m->method, "notifications/initialized");
        begin(p, m);
        if (ready && !p->pushing && *p->session) {
            p->pushing = true;
            start_thread(push_run, p);
        }
    }
}

/* ---- standard input ---- */
static void read_lines(struct proxy *p)
{
    auto_buf in = {0};
    char chunk[65536];
    ssize_t n;
    while (!p->leaving && (n = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        buf_put(&in, chunk, (size_t)n);
        size_t from = 0;
        const char *nl;
        while ((nl = memchr(in.p + from, '\n', in.n - from))) {
            size_t len = (size_t)(nl - in.p) - from, next = from + len + 1;
            while (len && (in.p[from + len - 1] == '\r' || in.p[from + len - 1] == ' '))
                len--;
            if (len)
                take_line(p, in.p + from, len);
            from = next;
        }
        buf_drop(&in, from);
        if (in.n > LINE_MAX_BYTES) {
            (void)fprintf(stderr, "hutch mcp: a line of more than 32 MiB; giving up\n");
            return;
        }
    }
}

/* The client has left: what is nearly over may end, the rest is called off with the session. */
static void leave(struct proxy *p)
{
    int64_t until = clock_mono() + GOODBYE_NS;
    struct heads h;
    struct err e;
    for (bool busy = true; busy && clock_mono() < until;) {
        (void)pthread_mutex_lock(&p->lock);
        busy = p->n > 0;
        (void)pthread_mutex_unlock(&p->lock);
        if (busy)
            (void)poll(NULL, 0, 20);
    }
    p->leaving = true;
    put_heads(p, &h, NULL);
    struct http_client *c = *p->session ? api_connect(p->x, &e) : NULL;
    if (c) {
        http_client_timeout(c, 200 * NS_PER_MS);
        if (!http_client_send(c, "DELETE", "/mcp", h.list, NULL, 0, &e))
            (void)http_client_head(c, &e);
    }
    _exit(0); /* threads wait for answers that nobody wants */
}

static int exec_mcp(struct cli *x, struct args *a)
{
    static struct proxy p;
    const char *url = args_str(a, "url", NULL), *key = args_str(a, "token", NULL);
    if (a->n)
        return strcmp(a->v[0], "install") ? cli_usage(x,
                                                      "unknown word '%.40s'; did you mean "
                                                      "`hutch mcp install CLIENT`?",
                                                      a->v[0])
                                          : mcp_install(x, a);
    p.x = x;
    p.sandbox = args_str(a, "sandbox", NULL);
    p.tools = args_str(a, "tools", NULL);
    p.template = args_str(a, "image", NULL);
    if (url) {
        free(x->url);
        x->url = xstrdup(url);
        x->local = false;
    }
    if (key) {
        free(x->key);
        x->key = xstrdup(key);
    }
    list_init(&p.inflight);
    (void)pthread_mutex_init(&p.lock, NULL);
    (void)pthread_cond_init(&p.calmer, NULL);
    auto_client first = api_open(x); /* starts the daemon if there is none */
    if (!first)
        return cli_fail(x);
    read_lines(&p);
    leave(&p);
    return 0;
}

static const struct opt opts[] = {
    {"sandbox", 0, 's', "NAME", "the default sandbox; made on first use if none has this name",
     "@id"},
    {"tools", 0, 's', "SET", "minimal, standard, full, or names separated by commas",
     "minimal standard full"},
    {"image", 0, 's', "TEMPLATE", "template of sandboxes that are made on first use", "@template"},
    {"url", 0, 's', "URL", "a daemon elsewhere", NULL},
    {"token", 0, 's', "KEY", "its API key; better in HUTCH_API_KEY", NULL},
    {"project", 0, 'f', NULL, "install: for the current directory, not for the user", NULL},
    {"print", 0, 'f', NULL, "install: only show what would be written", NULL},
    OPT_END};
const struct cmd cmd_mcp = {.name = "mcp",
                            .usage = "[options] | install claude-code|codex|cursor|vscode",
                            .help = "serve MCP on standard input and output",
                            .opts = opts,
                            .max = 2,
                            .words = "install; claude-code codex cursor vscode",
                            .exec = exec_mcp};
