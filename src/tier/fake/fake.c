#include "tier/fake/fake.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/map.h"
#include "loop/loop.h"
#include "tier/variant.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rec.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULES_MAX    8
#define MEMORY_BYTES 65536
#define DISK_BYTES   4096

/* A process: what is left when a daemon goes. */
struct proc {
    struct list link;
    char id[22];
    const struct tier *tier;
    bool running, held;  /* its processors */
    bool memory;         /* it begins with a saved memory, which is read when it wakes */
    bool waking, frozen; /* … its users' processes stand still */
    uint64_t generation, cpu_ns;
    struct machine_fake *m;
    int fd; /* the agent's end */
    struct io io;
    struct frame_reader rd;
    struct buf in;
};

struct machine_fake {
    struct machine m;
    struct proc *p;
    int chan;
};
struct saving_fake {
    struct saving s;
    char id[22], snapshot[22];
    bool memory, done;
    struct saved facts;
};

struct rule {
    bool on;
    char name[24];
    unsigned left;
    enum fake_how how;
};

static struct {
    struct loop *loop;
    int home;
    struct list procs, answers;
    struct map saved; /* box id, or snapshot id -> struct saved */
    struct rule rule[RULES_MAX];
    void (*on_exit)(void *arg, const char *id);
    void *on_exit_arg;
} F = {.home = -1};

void (*fake_watch)(void *arg, const char *name, const char *id);
void *fake_watch_arg;

/* ---- steps ---- */
void fake_fail(const char *name, unsigned nth, enum fake_how how)
{
    for (size_t i = 0; i < RULES_MAX; i++)
        if (!F.rule[i].on) {
            F.rule[i] = (struct rule){.on = true, .left = nth, .how = how};
            (void)snprintf(F.rule[i].name, sizeof F.rule[i].name, "%s", name ? name : "");
            return;
        }
    abort();
}
size_t fake_fail_none(void)
{
    size_t n = 0;
    for (size_t i = 0; i < RULES_MAX; i++)
        n += F.rule[i].on;
    memset(F.rule, 0, sizeof F.rule);
    return n;
}

enum fake_how fake_step(const char *name, const char *id)
{
    enum fake_how how = FAKE_WELL;
    if (fake_watch)
        fake_watch(fake_watch_arg, name, id);
    for (size_t i = 0; i < RULES_MAX; i++) {
        struct rule *r = &F.rule[i];
        if (!r->on || (*r->name && strcmp(r->name, name)) || --r->left)
            continue;
        r->on = false;
        how = r->how;
    }
    return how;
}

/* ---- processes ---- */
static struct proc *proc_at(const char *id)
{
    struct proc *p;
    list_each(p, &F.procs, link)
        if (!strcmp(p->id, id))
            return p;
    return NULL;
}

static void hang_up(struct proc *p)
{
    if (p->fd < 0)
        return;
    io_stop(&p->io);
    (void)close(p->fd);
    p->fd = -1;
    buf_free(&p->in);
}

void fake_stop(const char *id)
{
    struct proc *p = proc_at(id);
    if (!p)
        return;
    hang_up(p);
    if (p->m)
        p->m->p = NULL;
    list_del(&p->link);
    free(p);
}

void fake_die(const char *id)
{
    char who[22];
    if (!proc_at(id))
        return;
    (void)snprintf(who, sizeof who, "%s", id);
    fake_stop(who);
    F.on_exit(F.on_exit_arg, who);
}

bool fake_lives(const char *id) { return proc_at(id); }
bool fake_works(const char *id)
{
    const struct proc *p = proc_at(id);
    return p && p->running && !p->held && !p->frozen;
}
uint64_t fake_generation(const char *id)
{
    const struct proc *p = proc_at(id);
    return p ? p->generation : 0;
}
void fake_set_cpu(const char *id, uint64_t cpu_ns)
{
    struct proc *p = proc_at(id);
    if (p)
        p->cpu_ns = cpu_ns;
}
size_t fake_machines(char ids[][22], size_t max)
{
    struct proc *p;
    size_t n = 0;
    list_each(p, &F.procs, link) {
        if (n < max)
            memcpy(ids[n], p->id, sizeof p->id);
        n++;
    }
    return n;
}
bool fake_has_saved(const char *id) { return map_get(&F.saved, id); }
void fake_forget(const char *id) { free(map_del(&F.saved, id)); }

/* ---- the agent ---- */
static const char *op_name(unsigned op)
{
    static const char *const names[OP_MAX] = {
        [OP_CONFIGURE] = "agent.configure", [OP_PING] = "agent.ping", [OP_START] = "agent.start",
        [OP_METRICS] = "agent.metrics",     [OP_SYNC] = "agent.sync", [OP_FREEZE] = "agent.freeze",
        [OP_THAW] = "agent.thaw",
    };
    return op < OP_MAX && names[op] ? names[op] : "agent.other";
}

static void say(struct proc *p, enum frame_type t, uint32_t stream, const struct buf *b)
{
    auto_buf out = {0};
    frame_put(&out, p->rd.epoch, t, 0, stream, b->p, b->n);
    (void)fd_write_all(p->fd, out.p, out.n);
}

static void say_event(struct proc *p, uint32_t stream, enum agent_event ev)
{
    auto_buf b = {0};
    buf_putc(&b, (char)ev);
    if (ev == EV_STARTED)
        rec_put_u64(&b, T_PID, 7);
    if (ev == EV_EXIT) {
        rec_put_u64(&b, T_EXIT_KIND, EXIT_CODE);
        rec_put_u64(&b, T_EXIT_CODE, 0);
    }
    say(p, FR_EVENT, stream, &b);
}

static void do_op(struct proc *p, unsigned op, struct rec r, struct buf *ret)
{
    switch (op) {
    case OP_CONFIGURE:
        p->generation = rec_u64_or(r, T_GENERATION, 0);
        if (!(rec_u64_or(r, T_FLAGS, 0) & CFG_RESUME))
            p->frozen = false;
        rec_put_u64(ret, T_GENERATION, p->generation);
        rec_put_u64(ret, T_WALL_NS, (uint64_t)clock_wall());
        rec_put_str(ret, T_KERNEL, "0.0-fake");
        break;
    case OP_FREEZE: p->frozen = true; break;
    case OP_THAW: p->frozen = false; break;
    case OP_METRICS: rec_put_u64(ret, T_CPU_NS, p->cpu_ns); break;
    default: break;
    }
}

/* false: it is gone. */
static bool asked(struct proc *p, const struct frame *f)
{
    unsigned op = f->n ? f->p[0] : 0;
    enum fake_how how = fake_step(op_name(op), p->id);
    auto_buf b = {0};
    if (how == FAKE_DIES) {
        fake_die(p->id);
        return false;
    }
    if (how == FAKE_SILENT)
        return true;
    buf_putc(&b, how == FAKE_FAILS ? (char)E_INTERNAL : 0);
    if (how == FAKE_FAILS) {
        rec_put_str(&b, T_MESSAGE, "told to fail");
    } else {
        do_op(p, op, (struct rec){f->p + 1, f->n - 1}, &b);
        if (op == OP_START) {
            say_event(p, f->stream, EV_STARTED);
            say_event(p, f->stream, EV_EXIT);
        }
    }
    say(p, FR_RES, f->stream, &b);
    return true;
}

static void on_io(void *arg, int events)
{
    struct proc *p = arg;
    struct frame f;
    (void)events;
    buf_reserve(&p->in, FRAME_FLUSH);
    ssize_t n = read(p->fd, p->in.p + p->in.n, FRAME_FLUSH);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up(p); /* the daemon went; another may come */
        return;
    }
    p->in.n += (size_t)n;
    for (;;) {
        size_t used = 0;
        enum frame_result r = frame_next(&p->rd, (unsigned char *)p->in.p, p->in.n, &used, &f);
        if (r == FRAME_SYNC) {
            auto_buf out = {0};
            frame_put_sync(&out, p->rd.epoch, true, false);
            (void)fd_write_all(p->fd, out.p, out.n);
        } else if (r == FRAME_GOT && f.type == FR_REQ && !asked(p, &f)) {
            return;
        }
        if (used)
            buf_drop(&p->in, used);
        if (r == FRAME_MORE || !p->in.n)
            return;
    }
}

static void listen_if_awake(struct proc *p)
{
    if (p->fd >= 0)
        io_want(&p->io, p->running && !p->held ? IO_READ : 0);
}

/* ---- answers: at the end of the turn, unless who asked is gone by then ---- */
struct answer {
    struct list link;
    const void *owner; /* the machine or saving it ends with; NULL: gone */
    void (*act)(struct answer *a, const struct err *e);
    machine_cb *cb;
    saving_cb *saving;
    void *arg;
    struct start *start;
    bool on, again;
    uint64_t generation;
    enum fake_how how;
};

static void answer_due(void *arg)
{
    struct answer *a = arg;
    struct err e;
    if (a->again &&
        a->owner) { /* a start takes a turn more: canceled before, nothing is made; after, all of it is */
        a->again = false;
        a->start->on_host = !a->start->canceled;
        loop_defer(F.loop, answer_due, a);
        return;
    }
    list_del(&a->link);
    if (a->how == FAKE_FAILS)
        err_set(&e, E_INTERNAL, "told to fail");
    else
        err_set(&e, E_GONE, "its process ended");
    if (a->owner)
        a->act(a, a->how ? &e : NULL);
    free(a);
}

static void answer_later(const char *step, const char *id, struct answer what)
{
    what.how = fake_step(step, id);
    if (what.how == FAKE_SILENT)
        return;
    if (what.how == FAKE_DIES)
        fake_die(id);
    struct answer *a = xcalloc(1, sizeof *a);
    *a = what;
    list_add_tail(&F.answers, &a->link);
    loop_defer(F.loop, answer_due, a);
}

static void answers_drop(const void *owner)
{
    struct answer *a;
    list_each(a, &F.answers, link)
        if (a->owner == owner)
            a->owner = NULL;
}

void fake_call_off(void)
{
    struct answer *a;
    list_each(a, &F.answers, link)
        a->owner = NULL;
}

size_t fake_pending(void)
{
    size_t n = 0;
    for (struct list *l = F.answers.next; l != &F.answers; l = l->next)
        n++;
    return n;
}

/* ---- machines ---- */
static struct machine_fake *of(const struct machine *m)
{
    return (struct machine_fake *)(uintptr_t)m;
}

static struct machine *machine_of(struct tier_host *h, struct proc *p)
{
    struct machine_fake *m = xcalloc(1, sizeof *m);
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
        abort();
    m->m = (struct machine){.tier = p->tier, .host = h};
    memcpy(m->m.id, p->id, sizeof p->id);
    m->p = p;
    m->chan = sv[0];
    hang_up(p);
    p->m = m;
    p->fd = sv[1];
    p->rd = (struct frame_reader){0};
    io_init(&p->io, F.loop, p->fd, on_io, p);
    listen_if_awake(p);
    return &m->m;
}

static int make_file(const char *dir, const char *id, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, id);
    if (mkdirat(F.home, path, 0700) && errno != EEXIST)
        return -1;
    (void)snprintf(path, sizeof path, "%s/%s/%s", dir, id, name);
    auto_fd fd = openat(F.home, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : 0;
}

static bool has_files(const char *dir, const char *id)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, id);
    return !faccessat(F.home, path, F_OK, 0);
}

static void started(struct answer *a, const struct err *e)
{
    struct start *st = a->start;
    const struct machine_start *s = &st->spec;
    const struct saved *saved = map_get(&F.saved, *s->snapshot ? s->snapshot : s->id);
    struct err no;
    if (e || !st->on_host) {
        (void)start_over(st, e);
        return;
    }
    if (*s->snapshot ? !has_files("snapshots", s->snapshot)
                     : s->own_files && !has_files("boxes", s->id)) {
        err_set(&no, E_NOT_FOUND, "its files are not there");
        start_end(st, NULL, &no);
        return;
    }
    if (make_file("boxes", s->id, "disk")) {
        err_sys(&no, errno, "files of a machine");
        start_end(st, NULL, &no);
        return;
    }
    struct proc *p = xcalloc(1, sizeof *p);
    p->tier = st->tier;
    p->fd = -1;
    memcpy(p->id, s->id, sizeof p->id);
    p->memory = !s->boot && saved && saved->memory;
    p->frozen = p->memory;
    p->running = tier_can(st->tier, TIER_FREEZER);
    list_add_tail(&F.procs, &p->link);
    start_end(st, machine_of(st->host, p), NULL);
}

static void start(struct start *st)
{
    answer_later("start", st->spec.id,
                 (struct answer){.owner = st->host, .act = started, .start = st, .again = true});
}

static void adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                  machine_cb *cb, void *arg)
{
    enum fake_how how = fake_step("adopt", id);
    struct proc *p;
    struct err e;
    (void)t, (void)fds, (void)nfds;
    if (how == FAKE_DIES)
        fake_die(id);
    p = proc_at(id);
    if (how == FAKE_FAILS)
        err_set(&e, E_INTERNAL, "told to fail");
    else if (!p)
        err_set(&e, E_GONE, "its process has ended");
    if (how == FAKE_FAILS || !p)
        cb(arg, NULL, &e);
    else
        cb(arg, machine_of(h, p), NULL);
}

static int chan(const struct machine *m) { return take_fd(&of(m)->chan); }

static void woken(struct answer *a, const struct err *e)
{
    struct machine_fake *m = of(a->owner);
    struct err gone;
    if (!e && !m->p) {
        err_set(&gone, E_GONE, "its process ended");
        e = &gone;
    }
    if (m->p)
        m->p->waking = false;
    if (!e) {
        m->p->running = true, m->p->held = false;
        listen_if_awake(m->p);
    }
    a->cb(a->arg, &m->m, e);
}

static bool wake(struct machine *m, machine_cb *cb, void *arg)
{
    struct proc *p = of(m)->p;
    if (tier_can(m->tier, TIER_FREEZER) || (p && p->running && !p->held))
        return false;
    if (p)
        p->waking = p->memory && !p->running;
    answer_later("wake", m->id, (struct answer){.owner = m, .act = woken, .cb = cb, .arg = arg});
    return true;
}
static bool waking(const struct machine *m) { return of(m)->p && of(m)->p->waking; }
static bool running(const struct machine *m)
{
    const struct proc *p = of(m)->p;
    return tier_can(m->tier, TIER_FREEZER) || (p && p->running && !p->held);
}

static void held(struct answer *a, const struct err *e)
{
    struct machine_fake *m = of(a->owner);
    struct err gone;
    if (!e && !m->p) {
        err_set(&gone, E_GONE, "its process ended");
        e = &gone;
    }
    if (!e) {
        m->p->held = a->on;
        listen_if_awake(m->p);
    }
    a->cb(a->arg, &m->m, e);
}

static void hold(struct machine *m, bool on, machine_cb *cb, void *arg)
{
    answer_later(on ? "hold" : "go", m->id,
                 (struct answer){.owner = m, .act = held, .cb = cb, .arg = arg, .on = on});
}

static void drop(struct machine *m)
{
    struct machine_fake *f = of(m);
    answers_drop(f);
    if (f->p)
        f->p->m = NULL;
    if (f->chan >= 0)
        (void)close(f->chan);
    free(f);
}

/* ---- savings ---- */
static struct saving_fake *saving_of(const void *s) { return (struct saving_fake *)(uintptr_t)s; }

static struct saving *saving_begin(const struct tier *t, const char *id, const char *snapshot,
                                   bool memory)
{
    struct saving_fake *s = xcalloc(1, sizeof *s);
    s->s.tier = t;
    s->memory = memory;
    (void)snprintf(s->id, sizeof s->id, "%s", id);
    (void)snprintf(s->snapshot, sizeof s->snapshot, "%s", snapshot ? snapshot : "");
    return &s->s;
}

static void saving_told(struct answer *a, const struct err *e)
{
    a->saving(a->arg, (struct saving *)(uintptr_t)a->owner, e);
}

static struct saving *save(struct machine *m, const char *snapshot, bool memory, saving_cb *cb,
                           void *arg)
{
    struct saving *s = saving_begin(m->tier, m->id, snapshot, memory);
    answer_later("save", m->id,
                 (struct answer){.owner = s, .act = saving_told, .saving = cb, .arg = arg});
    return s;
}

static void copied(struct answer *a, const struct err *e)
{
    struct saving_fake *s = saving_of(a->owner);
    struct err no;
    if (!e && (!has_files("boxes", s->id) || (s->memory && !fake_has_saved(s->id)))) {
        err_set(&no, E_NOT_FOUND, "nothing of it is saved");
        e = &no;
    }
    a->saving(a->arg, &s->s, e);
}

static struct saving *save_saved(struct tier_host *h, const struct tier *t, const char *id,
                                 const char *snapshot, bool memory, saving_cb *cb, void *arg)
{
    struct saving *s = saving_begin(t, id, snapshot, memory);
    (void)h;
    answer_later("copy", id, (struct answer){.owner = s, .act = copied, .saving = cb, .arg = arg});
    return s;
}

static void taken(struct answer *a, const struct err *e)
{
    struct saving_fake *s = saving_of(a->owner);
    const struct proc *p = proc_at(s->id);
    struct err no;
    if (!e && (!p || (p->running && !p->held))) {
        err_set(&no, E_CONFLICT, "it does not stand still");
        e = &no;
    }
    a->saving(a->arg, &s->s, e);
}

static void take(struct saving *s, saving_cb *cb, void *arg)
{
    answer_later("take", saving_of(s)->id,
                 (struct answer){.owner = s, .act = taken, .saving = cb, .arg = arg});
}

static void published(struct answer *a, const struct err *e)
{
    struct saving_fake *s = saving_of(a->owner);
    struct err no;
    if (!e && *s->snapshot && make_file("snapshots", s->snapshot, "manifest.json")) {
        err_sys(&no, errno, "files of a snapshot");
        e = &no;
    }
    if (!e) {
        struct saved *kept = xcalloc(1, sizeof *kept);
        *kept = s->facts = (struct saved){.generation = a->generation,
                                          .memory = s->memory,
                                          .bytes = s->memory ? MEMORY_BYTES : 0,
                                          .disk_bytes = *s->snapshot ? DISK_BYTES : 0,
                                          .at_wall_ns = clock_wall()};
        free(map_set(&F.saved, *s->snapshot ? s->snapshot : s->id, kept));
        s->done = true;
    }
    a->saving(a->arg, &s->s, e);
}

static void publish(struct saving *s, uint64_t generation, saving_cb *cb, void *arg)
{
    answer_later(
        "publish", saving_of(s)->id,
        (struct answer){
            .owner = s, .act = published, .saving = cb, .arg = arg, .generation = generation});
}

static struct saved facts(const struct saving *s) { return saving_of(s)->facts; }

static void scrap(struct saving *s)
{
    answers_drop(s);
    free(saving_of(s));
}

static int saved_found(struct tier_host *h, const char *id, struct saved *ret, struct err *e)
{
    const struct saved *s = map_get(&F.saved, id);
    (void)h;
    if (!s)
        return err_set(e, E_NOT_FOUND, "nothing of it is saved");
    *ret = *s;
    return 0;
}

static void saved_gone(struct tier_host *h, const char *id)
{
    (void)h;
    fake_forget(id);
}

static int console(struct tier_host *h, const char *id,
                   void (*cb)(void *arg, struct str text, const struct err *e), void *arg,
                   struct err *e)
{
    (void)h, (void)id, (void)cb, (void)arg;
    return err_set(e, E_UNSUPPORTED, "nothing is written on this console");
}

/* Machines of a tier in memory boot in no time: there are no variants to load, build or remove. */
static void sweep(struct tier_host *h) { (void)h; }
static const struct variant_ops variants = {.sweep = sweep};

static const struct machine_ops ops = {
    .start = start,
    .adopt = adopt,
    .chan = chan,
    .wake = wake,
    .waking = waking,
    .running = running,
    .hold = hold,
    .drop = drop,
    .save = save,
    .save_saved = save_saved,
    .take = take,
    .publish = publish,
    .facts = facts,
    .scrap = scrap,
    .saved_read = saved_found,
    .saved_drop = saved_gone,
    .console = console,
    .variants = &variants,
};

const struct tier fake_vm = {
    .name = "fakevm",
    .strength = 100,
    .can = TIER_SANDBOX | TIER_KERNEL | TIER_MEMORY | TIER_VARIANTS | TIER_CHAINS,
    .pids_max = 64,
    .cold = "restore",
    .waiting = "prestarted",
    .boundary = {"none", "none"},
    .accel = {"none", "none"},
    .ops = &ops,
};
const struct tier fake_box = {
    .name = "fakebox",
    .strength = 50,
    .can = TIER_SANDBOX | TIER_FREEZER | TIER_COUNTED,
    .pids_max = 64,
    .cold = "cold",
    .waiting = "slot",
    .boundary = {"none", "none"},
    .accel = {"none", "none"},
    .ops = &ops,
};
const struct tier *const fake_tiers[] = {&fake_vm, &fake_box, &tier_isolate, NULL};

void fake_begin(struct loop *l, int home_fd, void (*on_exit)(void *arg, const char *id), void *arg)
{
    F.loop = l;
    F.home = fcntl(home_fd, F_DUPFD_CLOEXEC, 0);
    F.on_exit = on_exit, F.on_exit_arg = arg;
    list_init(&F.procs), list_init(&F.answers);
    (void)fake_fail_none();
}

void fake_end(void)
{
    struct proc *p;
    struct map_entry *en;
    list_each(p, &F.procs, link)
        fake_stop(p->id);
    for (size_t i = 0; (en = map_next(&F.saved, &i));)
        free(en->value);
    map_free(&F.saved);
    cleanup_fd(&F.home);
}
