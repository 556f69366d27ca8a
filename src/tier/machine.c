#include "tier/machine.h"
#include "base/buf.h"
#include "spawn/op.h"
#include <stdlib.h>

void tier_host_init(struct tier_host *h)
{
    list_init(&h->flights);
    for (size_t i = 0; tiers[i]; i++)
        if (tiers[i]->ops && tiers[i]->ops->open)
            tiers[i]->ops->open(h);
}
void tier_host_close(struct tier_host *h)
{
    for (size_t i = 0; tiers[i]; i++)
        if (tiers[i]->ops && tiers[i]->ops->close)
            tiers[i]->ops->close(h);
}
bool tier_here(const struct tier_host *h, const struct tier *t)
{
    return !t->ops || !t->ops->here || t->ops->here(h);
}
bool tier_ready(const struct tier_host *h, const struct tier *t)
{
    return tier_here(h, t) && (!t->ops || !t->ops->ready || t->ops->ready(h));
}
int tiers_load(struct tier_host *h, int kernel_dir_fd, int agent_fd, struct err *e)
{
    for (size_t i = 0; tiers[i]; i++)
        if (tiers[i]->ops && tiers[i]->ops->load && tier_here(h, tiers[i]) &&
            tiers[i]->ops->load(h, kernel_dir_fd, agent_fd, e))
            return -1;
    return 0;
}
void tier_host_fini(struct tier_host *h)
{
    struct flight *f;
    list_each(f, &h->flights, link) {
        list_del(&f->link);
        free(f);
    }
}
void flight_begin(struct tier_host *h, struct flight *f) { list_add_tail(&h->flights, &f->link); }
void flight_end(struct flight *f) { list_del(&f->link); }

struct start *start_new(struct tier_host *h, const struct tier *t, const struct machine_start *s,
                        machine_cb *cb, void *arg)
{
    struct start *st = xcalloc(1, sizeof *st);
    *st = (struct start){.host = h, .tier = t, .spec = *s, .cb = cb, .arg = arg};
    flight_begin(h, &st->flight);
    return st;
}

void start_end(struct start *st, struct machine *m, const struct err *e)
{
    struct start s = *st;
    flight_end(&st->flight);
    free(st);
    s.cb(s.arg, m, e);
}

struct sp_limit start_limit(const struct start *st)
{
    return (struct sp_limit){.memory_mib = st->spec.memory_mib,
                             .cpu_millis = st->spec.cpu_millis,
                             .pids_max = st->tier->pids_max};
}

bool start_over(struct start *st, const struct err *e)
{
    struct err gone;
    if (!e && !st->canceled)
        return false;
    err_set(&gone, E_CANCELED, "it was removed meanwhile");
    start_end(st, NULL, e ? e : &gone);
    return true;
}

struct start *machine_start(struct tier_host *h, const struct tier *t,
                            const struct machine_start *s, machine_cb *cb, void *arg)
{
    struct start *st = start_new(h, t, s, cb, arg);
    t->ops->start(st);
    return st;
}
bool start_cancel(struct start *st)
{
    st->canceled = true;
    return !st->on_host;
}
void machine_adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                   machine_cb *cb, void *arg)
{
    t->ops->adopt(h, t, id, fds, nfds, cb, arg);
}
int machine_chan(const struct machine *m) { return m->tier->ops->chan(m); }
bool machine_wake(struct machine *m, machine_cb *cb, void *arg)
{
    return m->tier->ops->wake(m, cb, arg);
}
bool machine_waking(const struct machine *m) { return m->tier->ops->waking(m); }
bool machine_running(const struct machine *m) { return m->tier->ops->running(m); }
void machine_hold(struct machine *m, bool on, machine_cb *cb, void *arg)
{
    m->tier->ops->hold(m, on, cb, arg);
}
void machine_drop(struct machine *m)
{
    if (m)
        m->tier->ops->drop(m);
}

struct saving *saving_new(struct machine *m, const char *snapshot, bool memory, saving_cb *cb,
                          void *arg)
{
    return m->tier->ops->save(m, snapshot, memory, cb, arg);
}
struct saving *saving_of_saved(struct tier_host *h, const struct tier *t, const char *id,
                               const char *snapshot, bool memory, saving_cb *cb, void *arg)
{
    return t->ops->save_saved(h, t, id, snapshot, memory, cb, arg);
}
void saving_take(struct saving *s, saving_cb *cb, void *arg) { s->tier->ops->take(s, cb, arg); }
void saving_publish(struct saving *s, uint64_t generation, saving_cb *cb, void *arg)
{
    s->tier->ops->publish(s, generation, cb, arg);
}
struct saved saving_facts(const struct saving *s) { return s->tier->ops->facts(s); }
void saving_free(struct saving *s)
{
    if (s)
        s->tier->ops->scrap(s);
}
int saved_read(struct tier_host *h, const struct tier *t, const char *id, struct saved *ret,
               struct err *e)
{
    return t->ops->saved_read(h, id, ret, e);
}
void saved_drop(struct tier_host *h, const struct tier *t, const char *id)
{
    if (tier_can(t, TIER_MEMORY))
        t->ops->saved_drop(h, id);
}
int machine_console(struct tier_host *h, const struct tier *t, const char *id,
                    void (*cb)(void *arg, struct str text, const struct err *e), void *arg,
                    struct err *e)
{
    return t->ops->console(h, id, cb, arg, e);
}
