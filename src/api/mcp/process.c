#include "api/mcp/process.h"
#include "api/feed.h"
#include "api/mcp/bytes.h"
#include "api/mcp/text.h"
#include "base/clock.h"
#include "base/enc.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define OUT_BUDGET  (16u << 10) /* of text in one report */
#define ERR_BUDGET  (4u << 10)
#define LOG_FROM    (12u << 10) /* more output than this is also kept in a file inside */
#define LOG_QUEUE   (256u << 10)
#define RECENT      (256u << 10) /* of each stream, for resources */
#define CELL_OUTPUT (1u << 30)
#define ENDED_KEPT  256
#define ALL_MAX     4096
#define TERM_NS     (2 * NS_PER_S)
#define STOP_NS     (5 * NS_PER_S)
#define GATHER_NS   (30 * NS_PER_MS) /* a read waits so long for more of the same */
/* Unread for so long, its stream is let go: it would keep the sandbox from being idle. */
#define REST_NS     (600 * NS_PER_S)
#define IMAGES_MAX  4
#define IMAGE_MAX   (1400u << 10) /* of base64: a MiB */
#define OUT_DIR     ".hutch/out"

enum how { RUNNING, EXITED, TIMED_OUT, KILLED, FAILED };
static const char *const how_names[] = {"running", "exited", "timed_out", "killed", "error"};

struct picture {
    struct list link;
    struct process *of;
    struct pour *to;      /* while it goes into a file */
    char mime[32], *path; /* path: it lies in a file */
    uint64_t size;
    struct buf base64;
};

struct process {
    struct list order;
    struct mcp *m;
    char id[64], sandbox[22], tenant[MCP_TENANT];
    bool is_cell, background, started, stopped, dead;
    bool adopted; /* of before a restart, by its id alone */
    enum how how;
    int code;
    bool has_code, oom, timed_out;
    int64_t begun, ended;
    /* a command */
    struct exec *x;
    uint32_t pid;
    uint64_t offset;
    char *input;
    size_t ninput, input_at;
    size_t owed;
    /* a cell */
    struct eval *v;
    char context[CONTEXT_ID];
    struct buf result, name, value, traceback, extra;
    struct list pictures;
    unsigned npictures;
    /* what it wrote */
    struct pane pane[2]; /* since the last report */
    struct buf recent[2];
    uint64_t total[2], lost;
    /* … all of it, in a file inside */
    struct buf early; /* before there is one */
    struct pour *log;
    char *log_path;
    bool log_begun, log_over, log_failed;
    unsigned saving; /* pictures on their way into files */
    bool ending;     /* ended, but files are not */
    /* who waits */
    struct mcall *reader;
    bool foreground; /* the reader began it: cancelling kills it */
    bool eager;      /* the reader wants any output */
    struct timer wait, term, rest;
};

static void report(struct process *p);
static void settle(struct process *p);

/* ---- the table ---- */
static void picture_free(struct picture *pic)
{
    list_del(&pic->link);
    pour_cancel(pic->to);
    free(pic->path);
    buf_free(&pic->base64);
    free(pic);
}

static void process_free(struct process *p)
{
    timer_stop(&p->wait), timer_stop(&p->term), timer_stop(&p->rest);
    list_del(&p->order);
    map_del(&p->m->processes, p->id);
    if (p->x)
        exec_detach(p->x);
    if (p->v)
        eval_cancel(p->v);
    pour_cancel(p->log);
    while (!list_empty(&p->pictures)) {
        struct picture *pic = container_of(p->pictures.next, struct picture, link);
        picture_free(pic);
    }
    for (int i = 0; i < 2; i++)
        pane_free(&p->pane[i]), buf_free(&p->recent[i]);
    buf_free(&p->early), buf_free(&p->result), buf_free(&p->name), buf_free(&p->value);
    buf_free(&p->traceback), buf_free(&p->extra);
    free(p->input), free(p->log_path);
    free(p);
}

/* Also one that nobody listens to, of a sandbox that is gone. */
static bool is_over(const struct process *p)
{
    if (p->how != RUNNING)
        return true;
    const struct sandbox *sb =
        p->x || p->v ? NULL : sandbox_find(p->m->core, p->sandbox, &(struct err){0});
    return !p->x && !p->v && p->started && (!sb || sb->state > SB_PAUSED);
}

/* Those that ended and were read go first, oldest first. */
static void forget_old(struct mcp *m)
{
    struct process *p;
    size_t ended = 0;
    list_each(p, &m->process_order, order)
        ended += is_over(p);
    list_each(p, &m->process_order, order)
        if (ended > ENDED_KEPT && is_over(p) && !p->reader && !p->saving && !p->ending)
            ended--, process_free(p);
}

void processes_stop(struct mcp *m)
{
    struct process *p;
    list_each(p, &m->process_order, order)
        process_free(p);
    map_free(&m->processes);
}

static void on_wait(void *arg);
static void on_term(void *arg);
static void on_rest(void *arg);

static struct process *process_new(struct mcall *k, const struct sandbox *sb, const char *id)
{
    struct process *p = xcalloc(1, sizeof *p);
    unsigned char salt[4];
    char hex[9];
    p->m = k->m;
    random_bytes(salt, sizeof salt);
    hex_encode(salt, sizeof salt, hex);
    if (id)
        (void)snprintf(p->id, sizeof p->id, "%s", id);
    else
        (void)snprintf(p->id, sizeof p->id, "p_%s_%s", hex, sb->id);
    memcpy(p->sandbox, sb->id, sizeof p->sandbox);
    (void)snprintf(p->tenant, sizeof p->tenant, "%s", sandbox_tenant(sb));
    p->begun = clock_mono();
    list_init(&p->pictures);
    timer_init(&p->wait, k->m->loop, on_wait, p);
    timer_init(&p->term, k->m->loop, on_term, p);
    timer_init(&p->rest, k->m->loop, on_rest, p);
    list_add_tail(&k->m->process_order, &p->order);
    map_set(&k->m->processes, p->id, p);
    forget_old(k->m);
    return p;
}

struct process *mcall_process(struct mcall *k, struct str id)
{
    struct process *p = map_get_n(&k->m->processes, id.p, id.n);
    return p && mcall_sees(k, p->tenant) ? p : NULL;
}

struct str process_log(const struct process *p, int i)
{
    return (struct str){p->recent[i].p ? p->recent[i].p : "", p->recent[i].n};
}
const char *process_sandbox(const struct process *p) { return p->sandbox; }

/* ---- the reader ---- */
/* Whether a signal arrived shows in the end of the process. */
static void ignore_end(void *arg, const struct err *e) { (void)arg, (void)e; }
static void interrupted(void *arg, const struct err *e, const struct context_info *c)
{
    (void)arg, (void)e, (void)c;
}

static void reader_gone(struct mcall *k)
{
    struct process *p = k->state;
    if (p && p->reader == k) {
        p->reader = NULL;
        timer_stop(&p->wait);
    }
    k->state = NULL;
}

static void kill_cancelled(struct process *p)
{
    struct sandbox *sb = sandbox_find(p->m->core, p->sandbox, NULL);
    char who[16];
    p->stopped = true;
    if (p->v) {
        eval_cancel(p->v);
        p->v = NULL, p->how = KILLED, p->ended = clock_mono();
        return;
    }
    (void)snprintf(who, sizeof who, "%u", p->pid);
    if (p->x && sb && p->pid && !exec_signal(sb, who, SIGTERM, true, ignore_end, NULL, NULL)) {
        timer_arm(&p->term, TERM_NS);
        return;
    }
    on_term(p);
}

static void reader_cancelled(struct mcall *k)
{
    struct process *p = k->state;
    bool kills = p && p->foreground && p->how == RUNNING;
    reader_gone(k);
    if (kills)
        kill_cancelled(p);
}

static void reader_news(struct mcall *k, struct buf *out)
{
    struct process *p = k->state;
    struct str line = p ? pane_last_line(&p->pane[0]) : (struct str){0};
    if (!line.n && p)
        line = pane_last_line(&p->pane[1]);
    buf_put(out, line.p, line.n);
}

static void read_by(struct process *p, struct mcall *k, double wait_s)
{
    if (p->reader)
        report(p); /* the newer one takes over */
    timer_stop(&p->rest);
    p->reader = k;
    memcpy(k->sandbox, p->sandbox, sizeof k->sandbox);
    k->state = p;
    k->fini = reader_gone, k->stop = reader_cancelled, k->news = reader_news;
    timer_arm(&p->wait, (int64_t)(wait_s * 1e9));
}

/* The process did not even begin. */
static void abandon(struct process *p, const struct err *e, enum about about)
{
    struct mcall *k = p->reader;
    p->how = FAILED;
    p->reader = NULL;
    process_free(p);
    if (k) {
        k->state = NULL;
        mcall_fail(k, e, about);
    }
}

static void on_wait(void *arg)
{
    struct process *p = arg;
    if (!p->reader)
        return;
    if (!p->is_cell && !p->started && p->how == RUNNING) {
        timer_arm(&p->wait, GATHER_NS); /* whether it starts at all is worth waiting for */
        return;
    }
    if (p->how == RUNNING || !p->ending)
        report(p);
}

/* TERM did not help. */
static void on_term(void *arg)
{
    struct process *p = arg;
    if (p->x) {
        exec_kill(p->x);
        p->x = NULL;
    }
    if (p->how == RUNNING) {
        p->how = KILLED, p->code = 128 + SIGKILL, p->has_code = true;
        settle(p);
    }
}

static void on_rest(void *arg)
{
    struct process *p = arg;
    if (p->x && p->how == RUNNING && !p->reader) {
        exec_detach(p->x);
        p->x = NULL;
    }
}

/* ---- the log inside ---- */
static void log_room(void *arg)
{
    struct process *p = arg;
    if (!p->log || pour_waiting(p->log) > LOG_QUEUE)
        return;
    if (p->x && p->owed)
        exec_consumed(p->x, p->owed);
    p->owed = 0;
    if (p->v)
        eval_hold(p->v, false);
}

static void log_done(void *arg, const struct err *e, const struct file_entry *en)
{
    struct process *p = arg;
    p->log = NULL;
    p->log_over = true;
    p->log_failed = e != NULL;
    if (en)
        resource_artifact(p->m, p->tenant, p->sandbox, en->path, "text/plain", en->size);
    if (p->x && p->owed)
        exec_consumed(p->x, p->owed);
    p->owed = 0;
    if (p->v)
        eval_hold(p->v, false);
    settle(p);
}

/* A directory was made, or not; the process may be gone by now. */
struct opening {
    struct mcp *m;
    char process[64];
};

static void log_open(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct pour_ops ops = {.room = log_room, .done = log_done};
    struct opening *o = arg;
    struct process *p = map_get(&o->m->processes, o->process);
    struct sandbox *sb = p ? sandbox_find(o->m->core, p->sandbox, NULL) : NULL;
    mcp_unref(o->m);
    free(o);
    if (!p)
        return;
    if (!e && en && sb) {
        struct file_write_spec spec = {.mode = 0644};
        p->log_path = xasprintf("%s/%s.log", en->path, p->id);
        spec.path = p->log_path;
        p->log = pour_start(sb, &spec, &ops, p, NULL);
    }
    if (!p->log) {
        p->log_over = p->log_failed = true;
    } else {
        pour_put(p->log, p->early.p, p->early.n);
        if (p->how != RUNNING)
            pour_end(p->log);
    }
    buf_free(&p->early);
    if (!p->log)
        log_done(p, e, NULL);
}

static void log_begin(struct process *p)
{
    struct sandbox *sb = sandbox_find(p->m->core, p->sandbox, NULL);
    struct opening *o = xcalloc(1, sizeof *o);
    p->log_begun = true;
    o->m = mcp_ref(p->m);
    memcpy(o->process, p->id, sizeof o->process);
    if (sb && !files_mkdir(sb, OUT_DIR, NULL, 0755, true, log_open, o, NULL))
        return;
    mcp_unref(p->m);
    free(o);
    p->log_over = p->log_failed = true;
}

/* True: the writer should wait. */
static bool log_add(struct process *p, const void *bytes, size_t n)
{
    if (p->log)
        pour_put(p->log, bytes, n);
    else if (!p->log_over)
        buf_put(&p->early, bytes, n);
    if (!p->log_begun && (p->total[0] + p->total[1] > LOG_FROM || p->total[1] > ERR_BUDGET))
        log_begin(p);
    return p->log ? pour_waiting(p->log) > LOG_QUEUE : p->early.n > LOG_QUEUE;
}

static bool wrote(struct process *p, int i, const void *bytes, size_t n)
{
    struct buf *r = &p->recent[i];
    p->total[i] += n;
    pane_add(&p->pane[i], bytes, n);
    buf_put(r, bytes, n);
    if (r->n > 2 * RECENT)
        buf_drop(r, r->n - RECENT);
    resource_process_grew(p->m, p->sandbox, p->id);
    if (p->reader && p->eager)
        timer_arm(&p->wait, GATHER_NS), p->eager = false;
    return log_add(p, bytes, n);
}

/* ---- the end ---- */
static void finished(struct process *p, enum how how)
{
    if (p->how != RUNNING)
        return;
    timer_stop(&p->term);
    p->how = p->stopped && how == EXITED ? KILLED : how;
    p->ended = clock_mono();
    p->ending = true;
    if (p->log)
        pour_end(p->log);
    settle(p);
}

/* It has ended, and its files are whole: whoever waits is told. */
static void settle(struct process *p)
{
    if (p->how == RUNNING || p->saving || (p->log_begun && !p->log_over))
        return;
    p->ending = false;
    buf_free(&p->early);
    if (p->reader)
        report(p);
}

/* ---- commands ---- */
static void push_input(struct process *p)
{
    while (p->x && p->input && p->input_at < p->ninput) {
        size_t took = exec_input(p->x, p->input + p->input_at, p->ninput - p->input_at);
        if (!took)
            return; /* room calls again */
        p->input_at += took;
    }
    if (p->x && p->input) {
        free(p->input);
        p->input = NULL;
        if (!p->background)
            exec_input_eof(p->x);
    }
}

static void command_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct process *p = arg;
    p->started = true;
    p->pid = pid;
    if (offset > p->offset)
        p->lost += offset - p->offset, p->offset = offset;
    push_input(p);
    if (p->background && p->foreground)
        timer_arm(&p->wait, GATHER_NS); /* an early end is reported as such */
}

static void command_room(void *arg) { push_input(arg); }

static void command_output(void *arg, uint8_t chan, const unsigned char *bytes, size_t n)
{
    struct process *p = arg;
    p->offset += n;
    if (wrote(p, chan == CH_STDERR, bytes, n))
        p->owed += n;
    else
        exec_consumed(p->x, n);
}

static void command_lost(void *arg, uint64_t n)
{
    struct process *p = arg;
    p->lost += n, p->offset += n;
}

static void command_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct process *p = arg;
    (void)offset;
    p->has_code = true;
    p->code = x->kind == EXIT_CODE ? x->code : 128 + x->code;
    p->oom = x->kind == EXIT_OOM;
    p->timed_out = x->kind == EXIT_TIMEOUT;
    if (p->timed_out)
        p->code = 128 + SIGKILL;
    p->dead = x->kind == EXIT_SIGNAL || p->oom;
}

static void command_done(void *arg, const struct err *e)
{
    struct process *p = arg;
    p->x = NULL;
    if (e && !p->started) {
        abandon(p, e, ABOUT_PROCESS);
        return;
    }
    if (e) {
        buf_puts(&p->name, "Interrupted");
        buf_puts(&p->value, e->msg);
        finished(p, FAILED);
        return;
    }
    finished(p, p->timed_out ? TIMED_OUT : p->dead ? KILLED : EXITED);
}

static const struct exec_ops command_ops = {.started = command_started,
                                            .output = command_output,
                                            .lost = command_lost,
                                            .room = command_room,
                                            .exited = command_exited,
                                            .done = command_done};

static bool too_many(struct mcall *k)
{
    if (k->m->processes.n < ALL_MAX)
        return false;
    mcall_refuse(k, "%d processes are being kept, the limit; stop some with stop_process.",
                 ALL_MAX);
    return true;
}

int process_command(struct mcall *k, struct sandbox *sb, const struct command *c, double wait_s)
{
    struct err e;
    char *argv[] = {"/bin/bash", "-c", (char *)(uintptr_t)c->line, NULL};
    if (too_many(k))
        return -1;
    struct process *p = process_new(k, sb, NULL);
    struct exec_spec spec = {.argv = argv,
                             .env = c->env,
                             .cwd = c->cwd,
                             .tag = p->id,
                             .timeout_ms = c->timeout_ms,
                             .stdin_pipe = c->input.p || c->background};
    p->background = c->background, p->foreground = true;
    if (c->input.p) {
        p->input = xstrndup(c->input.p, c->input.n);
        p->ninput = c->input.n;
    }
    read_by(p, k, c->background ? 300 : wait_s);
    p->x = exec_start(sb, &spec, &command_ops, p, &e);
    if (p->x)
        return 0;
    abandon(p, &e, ABOUT_SANDBOX);
    return -1;
}

/* ---- cells ---- */
static void cell_started(void *arg, const struct context_info *c)
{
    struct process *p = arg;
    p->started = true;
    (void)snprintf(p->context, sizeof p->context, "%s", c->id);
}

static bool is_picture(struct str type)
{
    return str_eqz(type, "image/png") || str_eqz(type, "image/jpeg") ||
           str_eqz(type, "image/gif") || str_eqz(type, "image/webp");
}

static void picture_saved(void *arg, const struct err *e, const struct file_entry *en)
{
    struct picture *pic = arg;
    struct process *p = pic->of;
    pic->to = NULL;
    if (!e && en) {
        pic->path = xstrdup(en->path);
        pic->size = en->size;
        resource_artifact(p->m, p->tenant, p->sandbox, en->path, pic->mime, en->size);
    }
    p->saving--;
    settle(p);
}

/* Too large, or one too many, to be sent as a block: into a file. */
static void save_picture(struct process *p, struct picture *pic)
{
    static const struct pour_ops ops = {.done = picture_saved};
    struct sandbox *sb = sandbox_find(p->m->core, p->sandbox, NULL);
    auto_buf raw = {0};
    char path[128];
    const char *kind = strchr(pic->mime, '/') + 1;
    (void)snprintf(path, sizeof path, OUT_DIR "/%s-%u.%s", p->id, p->npictures, kind);
    struct file_write_spec spec = {.path = path, .mode = 0644};
    if (!sb || !base64_decode(pic->base64.p, pic->base64.n, &raw))
        return;
    pic->to = pour_start(sb, &spec, &ops, pic, NULL);
    buf_free(&pic->base64);
    if (!pic->to)
        return;
    p->saving++;
    pour_put(pic->to, raw.p, raw.n);
    pour_end(pic->to);
}

static void keep_picture(struct process *p, const struct mime *m)
{
    struct picture *pic = xcalloc(1, sizeof *pic);
    pic->of = p;
    (void)snprintf(pic->mime, sizeof pic->mime, "%.*s", (int)m->type.n, m->type.p);
    for (size_t i = 0; i < m->value.n; i++) /* some kernels break lines */
        if (m->value.p[i] != '\n' && m->value.p[i] != '\r')
            buf_putc(&pic->base64, m->value.p[i]);
    list_add_tail(&p->pictures, &pic->link);
    if (++p->npictures > IMAGES_MAX || pic->base64.n > IMAGE_MAX)
        save_picture(p, pic);
}

static void cell_result(struct process *p, const struct kernel_event *ev)
{
    const struct mime *plain = NULL, *other = NULL;
    bool pictured = false;
    for (size_t i = 0; i < ev->nmime; i++) {
        const struct mime *m = &ev->mime[i];
        if (is_picture(m->type) && !pictured)
            keep_picture(p, m), pictured = true;
        else if (str_eqz(m->type, "text/plain"))
            plain = m;
        else if (str_eqz(m->type, "e2b/chart"))
            buf_printf(&p->extra, "chart: %.*s\n", (int)m->value.n, m->value.p);
        else if (!m->json && !other && !is_picture(m->type) && !str_starts(m->type, "e2b/"))
            other = m;
    }
    if (!plain)
        plain = other;
    if (plain && ev->is_main)
        p->result.n = 0, buf_put(&p->result, plain->value.p, plain->value.n);
    else if (plain && !pictured)
        buf_put(&p->extra, plain->value.p, plain->value.n), buf_putc(&p->extra, '\n');
}

static void cell_event(void *arg, const struct kernel_event *ev)
{
    struct process *p = arg;
    if (ev->type == KE_OUT && wrote(p, ev->is_stderr, ev->text.p, ev->text.n) && p->v)
        eval_hold(p->v, true);
    if (ev->type == KE_RESULT)
        cell_result(p, ev);
    if (ev->type == KE_ERROR) {
        buf_put(&p->name, ev->name.p, ev->name.n);
        buf_put(&p->value, ev->value.p, ev->value.n);
        buf_put(&p->traceback, ev->traceback.p, ev->traceback.n);
    }
}

static void cell_done(void *arg, const struct eval_end *end)
{
    static const enum how of[] = {[EVAL_OK] = EXITED,
                                  [EVAL_ERROR] = EXITED,
                                  [EVAL_INTERRUPTED] = KILLED,
                                  [EVAL_TIMEOUT] = TIMED_OUT,
                                  [EVAL_LOST] = FAILED};
    struct process *p = arg;
    p->v = NULL;
    p->lost += end->cut_output;
    p->has_code = end->how == EVAL_OK || end->how == EVAL_ERROR;
    p->code = end->how == EVAL_ERROR;
    if (end->how == EVAL_LOST && !p->name.n) {
        buf_puts(&p->name, "KernelDied");
        buf_puts(&p->value, end->e ? end->e->msg : "the interpreter ended");
    }
    finished(p, of[end->how]);
}

static void cell_failed(void *arg, const struct err *e)
{
    struct process *p = arg;
    p->v = NULL;
    abandon(p, e, ABOUT_CONTEXT);
}

int process_cell(struct mcall *k, struct sandbox *sb, enum language l, struct str code,
                 uint64_t timeout_ms, double wait_s)
{
    static const struct eval_ops ops = {
        .started = cell_started, .event = cell_event, .done = cell_done, .failed = cell_failed};
    struct err e;
    if (too_many(k))
        return -1;
    struct process *p = process_new(k, sb, NULL);
    struct eval_spec spec = {
        .language = l, .code = code, .timeout_ms = timeout_ms, .max_output = CELL_OUTPUT};
    p->is_cell = p->foreground = true;
    read_by(p, k, wait_s);
    p->v = eval_start(sb, &spec, &ops, p, &e);
    if (p->v)
        return 0;
    abandon(p, &e, ABOUT_SANDBOX);
    return -1;
}

/* ---- reading and stopping ---- */
/* A command that nobody listens to: since a while, or since another daemon ran. */
static int listen_again(struct process *p, struct sandbox *sb, struct err *e)
{
    char who[80];
    if (p->x || p->is_cell || p->how != RUNNING)
        return 0;
    (void)snprintf(who, sizeof who, "tag:%s", p->id);
    p->started = false;
    p->x = exec_attach(sb, who, p->offset, &command_ops, p, e);
    return p->x ? 0 : -1;
}

/* One that was only asked for: whether there is such a process nobody has seen. */
static void drop_adopted(struct process *p)
{
    if (p->adopted && !p->x && !p->reader)
        process_free(p);
}

static void feed(struct process *p, struct str input)
{
    char who[80];
    (void)snprintf(who, sizeof who, "tag:%s", p->id);
    struct feed *f = feed_new(p->m->api, p->sandbox, who, NULL, NULL);
    feed_put(f, input.p, input.n);
    feed_finish(f, false);
}

void process_read(struct mcall *k, struct process *p, struct str input, double wait_s)
{
    struct err e;
    struct sandbox *sb = sandbox_find(p->m->core, p->sandbox, &e);
    if (input.n && (p->is_cell || p->how != RUNNING || (p->started && !p->background && p->x))) {
        mcall_refuse(k, "Process %s takes no input%s.", p->id,
                     p->is_cell          ? ": it is a cell of run_code"
                     : p->how != RUNNING ? ": it has ended"
                                         : "; start it with `background` for that");
        return;
    }
    if (p->how == RUNNING && (!sb || listen_again(p, sb, &e))) {
        drop_adopted(p);
        mcall_fail(k, &e, ABOUT_PROCESS);
        return;
    }
    if (input.n)
        feed(p, input);
    p->foreground = false;
    read_by(p, k, wait_s);
    p->eager = !input.n || !p->pane[0].total;
    if (p->how != RUNNING)
        settle(p);
    else if (!input.n && (p->pane[0].total || p->pane[1].total))
        timer_arm(&p->wait, GATHER_NS), p->eager = false;
}

void process_stop(struct mcall *k, struct process *p, int signo)
{
    struct err e;
    struct sandbox *sb = sandbox_find(p->m->core, p->sandbox, &e);
    char who[80];
    p->foreground = false;
    if (p->how != RUNNING) {
        read_by(p, k, 0);
        settle(p);
        return;
    }
    if (!sb || listen_again(p, sb, &e)) {
        drop_adopted(p);
        mcall_fail(k, &e, ABOUT_PROCESS);
        return;
    }
    read_by(p, k, (double)STOP_NS / 1e9);
    p->eager = false;
    p->stopped = true;
    (void)snprintf(who, sizeof who, "tag:%s", p->id);
    int rc = p->is_cell ? context_interrupt(sb, p->context, interrupted, NULL, &e)
                        : exec_signal(sb, who, signo, true, ignore_end, NULL, &e);
    if (rc) {
        reader_gone(k);
        k->fini = NULL, k->stop = NULL;
        mcall_fail(k, &e, ABOUT_PROCESS);
    }
}

/* After a restart: the id says in which sandbox to look for the tag. */
struct process *process_adopt(struct mcall *k, struct str id, struct err *e)
{
    const char *under = id.n > 22 ? id.p + id.n - 22 : NULL;
    struct sandbox *sb = NULL;
    if (under && *under == '_' && str_starts(id, "p_") && id.n < 64)
        sb = mcall_sandbox(k, (struct str){under + 1, 21}, e);
    if (!sb) {
        err_why(e, REASON_NO_PROCESS, E_NOT_FOUND, "Process '%.*s' does not exist",
                (int)(id.n > 60 ? 60 : id.n), id.p ? id.p : "");
        return NULL;
    }
    if (k->m->processes.n >= ALL_MAX) {
        err_set(e, E_QUOTA, "%d processes are being kept, the limit", ALL_MAX);
        return NULL;
    }
    struct process *p = process_new(k, sb, id.p);
    p->adopted = true;
    p->background = true; /* as far as anybody can know: its stdin may be open */
    return p;
}

/* ---- telling ---- */
static void put_state(struct process *p, struct buf *out, double ms)
{
    buf_printf(out, "[%s · ", p->sandbox);
    if (p->how == RUNNING)
        buf_printf(out, "running after %.0f s · %s", ms / 1000, p->id);
    else if (p->how == EXITED && p->is_cell)
        buf_printf(out, "%s · %.1f s", p->code ? "exception" : "done", ms / 1000);
    else if (p->how == EXITED)
        buf_printf(out, "exit %d · %.1f s", p->code, ms / 1000);
    else
        buf_printf(out, "%s%s · %.1f s", p->oom ? "killed: out of memory" : how_names[p->how], "",
                   ms / 1000);
    buf_puts(out, "]\n");
}

static void put_part(struct buf *out, const char *label, const struct buf *text)
{
    if (!text->n)
        return;
    buf_printf(out, "%s:\n", label);
    buf_put(out, text->p, text->n);
    if (text->p[text->n - 1] != '\n')
        buf_putc(out, '\n');
}

static struct str whole(const struct buf *b) { return (struct str){b->p ? b->p : "", b->n}; }

static void put_run(struct jw *w, struct process *p, const struct buf *out, const struct buf *err,
                    bool truncated, double ms, unsigned images)
{
    jw_kv_str(w, "sandbox", p->sandbox);
    jw_kv_str(w, "status", how_names[p->how]);
    if (p->has_code && p->how != RUNNING)
        jw_kv_i64(w, "exit_code", p->code);
    jw_kv_strn(w, "stdout", whole(out));
    jw_kv_strn(w, "stderr", whole(err));
    jw_kv_bool(w, "truncated", truncated);
    jw_kv_f64(w, "duration_ms", ms);
    if (p->how == RUNNING)
        jw_kv_str(w, "process_id", p->id);
    if (truncated && p->log_path)
        jw_kv_str(w, "full_output", p->log_path);
    if (p->result.n)
        jw_kv_strn(w, "result", whole(&p->result));
    if (p->name.n) {
        jw_kv_obj(w, "error");
        jw_kv_strn(w, "name", whole(&p->name));
        jw_kv_strn(w, "value", whole(&p->value));
        if (p->traceback.n)
            jw_kv_strn(w, "traceback", whole(&p->traceback));
        jw_end(w);
    }
    if (p->is_cell)
        jw_kv_u64(w, "images", images);
}

static unsigned put_pictures(struct process *p, struct mcall *k)
{
    struct picture *pic;
    unsigned n = 0;
    list_each(pic, &p->pictures, link) {
        if (pic->path)
            mcall_link(k, p->sandbox, pic->path, pic->mime, pic->size);
        else if (pic->base64.n)
            mcall_image(k, pic->mime, whole(&pic->base64)), n++;
        picture_free(pic);
    }
    return n;
}

static void clip(struct buf *b, size_t max)
{
    auto_buf clean = {0};
    struct pane whole_text = {0};
    pane_add(&whole_text, b->p, b->n);
    (void)pane_render(&whole_text, max, "", &clean);
    pane_free(&whole_text);
    b->n = 0;
    buf_put(b, clean.p, clean.n);
}

static void report(struct process *p)
{
    struct mcall *k = p->reader;
    auto_buf out = {0}, err = {0}, text = {0};
    double ms = (double)(((p->ended ? p->ended : clock_mono()) - p->begun) / NS_PER_MS);
    const char *where = p->log_path ? p->log_path : "";
    bool truncated = pane_render(&p->pane[1], ERR_BUDGET, where, &err);
    truncated |= pane_render(&p->pane[0], OUT_BUDGET - (err.n < ERR_BUDGET ? err.n : ERR_BUDGET),
                             where, &out);
    pane_clear(&p->pane[0]), pane_clear(&p->pane[1]);
    p->reader = NULL;
    timer_stop(&p->wait);
    if (p->how == RUNNING)
        timer_arm(&p->rest, REST_NS);
    if (p->result.n > OUT_BUDGET)
        clip(&p->result, OUT_BUDGET), truncated = true;
    if (p->traceback.n)
        clip(&p->traceback, OUT_BUDGET / 2);
    put_state(p, &text, ms);
    if (k->sandbox_made && !k->ss)
        buf_printf(&text, "New sandbox %s; pass it as `sandbox` to use it again.\n", p->sandbox);
    if (p->lost) {
        text_thousands(p->lost, &text);
        buf_puts(&text, " bytes of output were lost\n");
        truncated = true;
    }
    if (p->log_failed && truncated)
        buf_puts(&text, "The log of all output is incomplete: the disk may be full.\n");
    put_part(&text, "stdout", &out);
    put_part(&text, "stderr", &err);
    put_part(&text, "result", &p->result);
    if (p->extra.n)
        clip(&p->extra, OUT_BUDGET);
    put_part(&text, "output", &p->extra);
    if (p->traceback.n)
        put_part(&text, "error", &p->traceback);
    else if (p->name.n)
        buf_printf(&text, "error: %s: %s\n", p->name.p, p->value.n ? p->value.p : "");
    if (p->how == RUNNING)
        buf_printf(&text, "Still running. Call read_process with process_id %s.\n", p->id);
    mcall_text(k, (struct str){text.p, text.n});
    unsigned images = put_pictures(p, k);
    put_run(mcall_structured(k), p, &out, &err, truncated, ms, images);
    p->lost = 0;
    buf_free(&p->extra);
    k->is_error = p->how == FAILED;
    k->state = NULL;
    k->fini = NULL, k->stop = NULL, k->news = NULL;
    mcall_done(k);
}
