#include "core/code/kernel.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/host/host.h"
#include "core/sandbox/exec.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "json/read.h"
#include "json/write.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (24u << 20)
#define TAIL_MAX       1024             /* of its last words on stderr */
#define START_NS       (180 * NS_PER_S) /* a JVM under emulation is slow */
#define ADOPT_NS       (1500 * NS_PER_MS)

struct kernel {
    struct core *core;
    char sandbox[22];
    struct exec *x;
    struct kernel_ops ops;
    void *arg;
    enum language language;
    uint32_t pid;
    struct buf in;  /* not yet a whole line */
    size_t seen;    /* of `in`: no newline before this */
    struct buf out; /* to the kernel, not yet taken */
    size_t out_at;
    char tail[TAIL_MAX + 1];
    size_t ntail;
    size_t unread; /* taken while held: credit not yet given back */
    bool ready, found, nudged, held, ending;
    bool hears;         /* an interrupt at any time, not only once a cell has begun */
    struct err why;     /* we ended it ourselves, for this */
    struct timer limit; /* for `ready`; of a found one for `adopted` */
};

static void bury(void *arg)
{
    struct kernel *k = arg;
    buf_free(&k->in), buf_free(&k->out);
    free(k);
}

static void release(struct kernel *k)
{
    timer_stop(&k->limit);
    k->ending = true;
    loop_defer(k->core->loop, bury, k);
}

/* ---- to the kernel ---- */
static void flush(struct kernel *k)
{
    while (k->x && k->out_at < k->out.n) {
        size_t took = exec_input(k->x, k->out.p + k->out_at, k->out.n - k->out_at);
        if (!took)
            return; /* room() calls again */
        k->out_at += took;
    }
    k->out.n = k->out_at = 0;
}

static void put_map(struct jw *w, const char *key, const struct kv *m)
{
    jw_kv_obj(w, key);
    for (size_t i = 0; m && i < m->n; i++) {
        jw_key_str(w, str_of(m->at[i].k));
        jw_strz(w, m->at[i].v);
    }
    jw_end(w);
}

static void begin(struct kernel *k, struct jw *w, const char *op)
{
    jw_init(w, &k->out);
    w->ascii = true;
    jw_obj(w);
    jw_kv_str(w, "op", op);
}

static void end(struct kernel *k, struct jw *w)
{
    jw_end(w);
    buf_putc(&k->out, '\n');
    flush(k);
}

static void send_adopt(struct kernel *k, struct sandbox *sb)
{
    struct jw w;
    struct kv env = {0};
    sb->core->on->sandbox_environment(sb, &env);
    begin(k, &w, "adopt");
    jw_kv_str(&w, "sandbox", sb->id);
    put_map(&w, "env", &env);
    end(k, &w);
    kv_free(&env);
}

void kernel_run(struct kernel *k, int64_t cell, struct str code, const struct kv *env)
{
    struct jw w;
    begin(k, &w, "run");
    jw_kv_i64(&w, "id", cell);
    jw_kv_strn(&w, "code", code);
    put_map(&w, "env", env);
    end(k, &w);
}

static void signaled(void *arg, const struct err *e)
{
    (void)arg, (void)e;
} /* it may have ended meanwhile */

void kernel_interrupt(struct kernel *k, int64_t cell)
{
    struct jw w;
    char who[16];
    struct sandbox *sb = sandbox_find(k->core, k->sandbox, NULL);
    if (!sb || !k->pid || !k->x)
        return;
    begin(k, &w, "interrupt"); /* before the signal: who hears that finds the line */
    jw_kv_i64(&w, "id", cell);
    end(k, &w);
    (void)snprintf(who, sizeof who, "%u", k->pid);
    (void)exec_signal(sb, who, SIGINT, true, signaled, NULL,
                      NULL); /* fails only with the sandbox */
}

bool kernel_hears(const struct kernel *k) { return k->hears; }

/* ---- from the kernel ---- */
static bool ascii(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80 || (unsigned char)s.p[i] < 0x20)
            return false;
    return true;
}

/* A type outside the registered families is a product's own (PRODUCT/chart): these hold JSON. */
static bool own_family(struct str t)
{
    static const char *const registered[] = {"application/", "audio/",   "font/",
                                             "image/",       "message/", "model/",
                                             "multipart/",   "text/",    "video/"};
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++)
        if (str_starts(t, registered[i]))
            return false;
    return memchr(t.p, '/', t.n) != NULL;
}

static bool is_json_type(struct str t)
{
    return str_eqz(t, "application/json") || own_family(t) ||
           (t.n > 5 && !memcmp(t.p + t.n - 5, "+json", 5));
}

/* JSON inside a string is passed on as it is, so it has to be that: one value, ASCII. Else it is only text. */
static bool is_json_text(struct str v)
{
    auto_json j = ascii(v) ? json_parse(v.p, v.n, NULL) : NULL;
    return j != NULL;
}

static size_t read_bundle(struct json *data, struct mime *m)
{
    size_t n = 0;
    for (void *it = json_first(data); it && n < MIME_MAX; it = json_next(data, it)) {
        struct str type = json_iter_key(it), value;
        if (!type.n || type.n > 128 || json_to_str(json_iter_value(data, it), &value, NULL))
            continue;
        bool json = is_json_type(type);
        if (json && !is_json_text(value))
            continue;
        m[n++] = (struct mime){type, value, json};
    }
    return n;
}

static void on_event(struct kernel *k, struct json *j, struct str name, size_t bytes)
{
    struct mime mime[MIME_MAX];
    struct kernel_event ev = {.bytes = bytes};
    struct str stream = {0};
    struct json *data = NULL;
    if (json_i64(j, "id", 0, INT64_MAX, -1, &ev.cell, NULL) || ev.cell < 0)
        return;
    if (str_eqz(name, "count")) {
        ev.type = KE_COUNT;
        if (json_i64(j, "n", 0, INT64_MAX, 0, &ev.n, NULL))
            return;
    } else if (str_eqz(name, "out")) {
        ev.type = KE_OUT;
        if (json_str(j, "stream", &stream, true, NULL) || json_str(j, "text", &ev.text, true, NULL))
            return;
        ev.is_stderr = str_eqz(stream, "stderr");
    } else if (str_eqz(name, "result")) {
        ev.type = KE_RESULT;
        if (json_obj(j, "data", &data, true, NULL) ||
            json_bool(j, "main", false, &ev.is_main, NULL))
            return;
        ev.mime = mime, ev.nmime = read_bundle(data, mime);
        if (!ev.nmime)
            return;
    } else if (str_eqz(name, "error")) {
        ev.type = KE_ERROR;
        ev.name = S("Error"), ev.value = ev.traceback = S("");
        if (json_str(j, "name", &ev.name, false, NULL) ||
            json_str(j, "value", &ev.value, false, NULL) ||
            json_str(j, "traceback", &ev.traceback, false, NULL))
            return;
    } else if (str_eqz(name, "done")) {
        ev.type = KE_DONE;
    } else {
        return;
    }
    k->ops.event(k->arg, &ev);
}

static void on_line(struct kernel *k, const char *p, size_t n)
{
    auto_json j = json_parse_obj(p, n, NULL);
    struct str name = {0};
    if (!j || json_str(j, "ev", &name, true, NULL))
        return; /* the rest of a line whose beginning an earlier daemon read, or nonsense */
    if (str_eqz(name, k->found ? "adopted" : "ready") && !k->ready) {
        timer_stop(&k->limit);
        k->ready = true;
        (void)json_bool(j, "hears", false, &k->hears, NULL);
        k->ops.ready(k->arg);
        return;
    }
    on_event(k, j, name, n + 1);
}

static void settle(struct kernel *k)
{
    size_t n = k->unread;
    if (k->held || !n || !k->x)
        return;
    k->unread = 0;
    exec_consumed(k->x, n);
}

static void fail(struct kernel *k, const struct err *e)
{
    struct exec *x = k->x;
    struct err copy = *e;
    k->x = NULL;
    if (x)
        exec_kill(x);
    release(k);
    k->ops.ended(k->arg, &copy);
}

static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct kernel *k = arg;
    struct err e;
    char *nl;
    k->unread += n;
    if (chan == CH_STDERR) {
        size_t keep = n > TAIL_MAX ? TAIL_MAX : n;
        if (k->ntail + keep > TAIL_MAX) {
            size_t drop = k->ntail + keep - TAIL_MAX;
            memmove(k->tail, k->tail + drop, k->ntail - drop);
            k->ntail -= drop;
        }
        memcpy(k->tail + k->ntail, p + n - keep, keep);
        k->ntail += keep;
        settle(k);
        return;
    }
    buf_put(&k->in, p, n);
    size_t from = 0;
    while (!k->ending && (nl = memchr(k->in.p + (k->seen > from ? k->seen : from), '\n',
                                      k->in.n - (k->seen > from ? k->seen : from)))) {
        size_t at = (size_t)(nl - k->in.p);
        on_line(k, k->in.p + from, at - from);
        from = at + 1;
    }
    if (k->ending)
        return; /* a callback let go of it */
    buf_drop(&k->in, from);
    k->seen = k->in.n;
    if (k->in.n > LINE_MAX_BYTES) {
        err_set(&e, E_GUEST, "the kernel sent a line of more than %u MiB", LINE_MAX_BYTES >> 20);
        fail(k, &e);
        return;
    }
    settle(k);
}

static void on_room(void *arg) { flush(arg); }

static void on_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct kernel *k = arg;
    (void)offset;
    k->pid = pid;
}

/* The last line on stderr says most. */
static void last_words(struct kernel *k, char out[120])
{
    while (k->ntail && (k->tail[k->ntail - 1] == '\n' || k->tail[k->ntail - 1] == ' '))
        k->ntail--;
    k->tail[k->ntail] = 0;
    char *nl = strrchr(k->tail, '\n');
    struct str line = str_of(nl ? nl + 1 : k->tail);
    (void)snprintf(out, 120, "%s%.*s", line.n ? ": " : "", (int)(line.n > 110 ? 110 : line.n),
                   str_utf8(line) ? line.p : "");
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct kernel *k = arg;
    char words[120];
    (void)offset;
    last_words(k, words);
    if (x->kind == EXIT_OOM)
        err_set(&k->why, E_GUEST, "the kernel was killed: the sandbox is out of memory");
    else if (!k->ready && x->kind == EXIT_CODE && x->code == 127)
        err_why(&k->why, REASON_NO_LANGUAGE, E_UNSUPPORTED,
                "this sandbox's template cannot run %s%s", language_name(k->language), words);
    else if (x->kind == EXIT_SIGNAL)
        err_set(&k->why, E_GUEST, "the kernel was killed by %s%s", signal_name(x->code), words);
    else
        err_set(&k->why, E_GUEST, "the kernel %s with status %d%s",
                k->ready ? "exited" : "could not start; it exited", x->code, words);
}

static void on_done(void *arg, const struct err *e)
{
    struct kernel *k = arg;
    struct err why = e ? *e : k->why;
    k->x = NULL;
    if (e && e->code == E_NOT_FOUND && !k->ready && !k->found && !strncmp(e->msg, "exec ", 5))
        err_why(&why, REASON_NO_LANGUAGE, E_UNSUPPORTED,
                "this sandbox's template cannot run %s: %.140s", language_name(k->language),
                e->msg);
    release(k);
    k->ops.ended(k->arg, &why);
}

static void on_limit(void *arg)
{
    struct kernel *k = arg;
    struct err e;
    if (k->found && !k->nudged) { /* it still works for a client that is gone */
        k->nudged = true;
        kernel_interrupt(k, 0);
        timer_arm(&k->limit, START_NS);
        return;
    }
    err_set(&e, E_TIMEOUT, "the %s kernel was not ready within %d s", language_name(k->language),
            (int)(START_NS / NS_PER_S));
    fail(k, &e);
}

static const struct exec_ops ops = {.started = on_started,
                                    .output = on_output,
                                    .room = on_room,
                                    .exited = on_exited,
                                    .done = on_done};

static struct kernel *kernel_new(struct sandbox *sb, const struct kernel_ops *o, void *arg)
{
    struct kernel *k = xcalloc(1, sizeof *k);
    k->core = sb->core, k->ops = *o, k->arg = arg;
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    err_set(&k->why, E_GUEST, "the kernel ended");
    timer_init(&k->limit, sb->core->loop, on_limit, k);
    return k;
}

struct kernel *kernel_start(struct sandbox *sb, const struct kernel_spec *s,
                            const struct kernel_ops *o, void *arg, struct err *e)
{
    struct kernel_cmd cmd;
    kernels_command(sb->core, s->language, false, &cmd);
    char **env = s->env ? kv_to_env(s->env) : NULL;
    struct exec_spec spec = {.argv = (char *const *)(uintptr_t)cmd.argv,
                             .env = env,
                             .cwd = s->cwd,
                             .tag = s->tag,
                             .stdin_pipe = true};
    struct kernel *k = kernel_new(sb, o, arg);
    k->language = s->language;
    k->x = exec_start(sb, &spec, &ops, k, e);
    if (env)
        env_free(env);
    if (!k->x) {
        bury(k);
        return NULL;
    }
    timer_arm(&k->limit, START_NS);
    send_adopt(k, sb);
    return k;
}

struct kernel *kernel_attach(struct sandbox *sb, uint32_t pid, const struct kernel_ops *o,
                             void *arg, struct err *e)
{
    char who[16];
    struct kernel *k = kernel_new(sb, o, arg);
    (void)snprintf(who, sizeof who, "%u", pid);
    k->pid = pid, k->found = true;
    k->x = exec_attach(sb, who, UINT64_MAX, &ops, k, e);
    if (!k->x) {
        bury(k);
        return NULL;
    }
    timer_arm(&k->limit, ADOPT_NS);
    send_adopt(k, sb);
    return k;
}

void kernel_hold(struct kernel *k, bool hold)
{
    k->held = hold;
    settle(k);
}

void kernel_kill(struct kernel *k)
{
    struct exec *x = k->x;
    k->x = NULL;
    if (x)
        exec_kill(x);
    release(k);
}

void kernel_leave(struct kernel *k)
{
    struct exec *x = k->x;
    k->x = NULL;
    if (x)
        exec_detach(x);
    release(k);
}

uint32_t kernel_pid(const struct kernel *k) { return k->pid; }
