/* Loaded variants: one object per key, shared, counted, gone with the last
 * user. Several loads of one key at once share one read of the files. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "loop/job.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct waiter {
    struct list node;
    vm_variant_cb *cb;
    void *arg;
};

/* Owned by the job until its done(): inputs by value, results to be moved. */
struct load {
    struct vm_host *host; /* reference */
    struct vm_variant *v; /* loop thread only */
    struct vm_spec spec;
    struct vm_identity ident;
    char key[VM_KEY_SIZE];
    int home;
    int rc;
    struct varfile file;
    struct err err;
};

const struct vm_spec *vm_variant_spec(const struct vm_variant *v) { return &v->spec; }
const char *vm_variant_key(const struct vm_variant *v) { return v->key; }
uint64_t vm_variant_ram_bytes(const struct vm_variant *v) { return v->file.ram_bytes; }

struct vm_variant *vm_variant_ref(struct vm_variant *v)
{
    v->refs++;
    return v;
}

void vm_variant_unref(struct vm_variant *v)
{
    if (!v || --v->refs)
        return;
    list_del(&v->node);
    varfile_close(&v->file);
    free(v);
}

static struct vm_variant *find(struct vm_host *h, const char *key)
{
    struct vm_variant *v;
    list_each(v, &h->variants, node)
        if (!strcmp(v->key, key))
            return v;
    return NULL;
}

void variant_forget(struct vm_host *h, const char *key)
{
    struct vm_variant *v = find(h, key);
    if (v) /* its users keep what they have: the files stay open, the memory sealed */
        list_del(&v->node);
}

/* The caller holds a reference. */
static void answer(struct vm_host *h, struct vm_variant *v, const struct err *e)
{
    struct waiter *w;
    while (!list_empty(&v->waiters)) {
        w = container_of(v->waiters.next, struct waiter, node);
        list_del(&w->node);
        vm_variant_cb *cb = w->cb;
        void *arg = w->arg;
        free(w);
        if (!h->closed)
            cb(arg, e ? NULL : vm_variant_ref(v), e);
    }
}

static void load_work(void *arg)
{
    struct load *l = arg;
    l->rc = varfile_open(&l->file, l->home, &l->spec, &l->ident, l->key, &l->err);
}

static void load_done(void *arg)
{
    struct load *l = arg;
    struct vm_variant *v = l->v;
    v->loading = false;
    if (l->rc) {
        varfile_close(&l->file);
        list_del(&v->node); /* the next load tries again */
    } else {
        v->file = l->file;
    }
    cleanup_fd(&l->home);
    answer(l->host, v, l->rc ? &l->err : NULL);
    vm_variant_unref(v); /* the load's own reference */
    host_unref(l->host);
    free(l);
}

struct ready {
    struct vm_host *host;
    struct vm_variant *v;
    vm_variant_cb *cb;
    void *arg;
    struct err err;
};
static void ready_now(void *arg)
{
    struct ready *r = arg;
    if (r->host->closed)
        vm_variant_unref(r->v);
    else
        r->cb(r->arg, r->v, r->v ? NULL : &r->err);
    host_unref(r->host);
    free(r);
}

static void load_any(struct vm_host *h, const struct vm_spec *spec, const char *key, bool current,
                     vm_variant_cb *cb, void *arg)
{
    struct vm_variant *v = h->ready ? find(h, key) : NULL;
    int home = -1;
    if (!h->ready || (v && !v->loading) ||
        (!v && (home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0)) < 0)) {
        struct ready *r = xcalloc(1, sizeof *r);
        *r = (struct ready){host_ref(h), v ? vm_variant_ref(v) : NULL, cb, arg, {0}};
        if (!h->ready)
            (void)err_set(&r->err, E_UNAVAILABLE,
                          "the guest kernel is not installed yet: build template base first");
        else if (!v)
            (void)err_sys(&r->err, errno, "VM snapshot");
        loop_defer(h->conf.loop, ready_now, r);
        return;
    }
    if (!v) {
        v = xcalloc(1, sizeof *v);
        v->refs = 1; /* of the load */
        v->loading = true;
        v->spec = *spec;
        memcpy(v->key, key, sizeof v->key);
        varfile_init(&v->file);
        list_init(&v->waiters);
        list_add_tail(&h->variants, &v->node);
        struct load *l = xcalloc(1, sizeof *l);
        l->host = host_ref(h);
        l->v = v;
        l->spec = *spec;
        l->ident = h->ident;
        if (!current)
            l->ident.agent[0] = '\0';
        l->home = home;
        memcpy(l->key, key, sizeof l->key);
        varfile_init(&l->file);
        job_run(h->conf.jobs, load_work, load_done, l);
    }
    struct waiter *w = xcalloc(1, sizeof *w);
    w->cb = cb;
    w->arg = arg;
    list_add_tail(&v->waiters, &w->node);
}

void vm_variant_load(struct vm_host *h, const struct vm_spec *spec, vm_variant_cb *cb, void *arg)
{
    char key[VM_KEY_SIZE];
    vm_key(h, spec, key);
    load_any(h, spec, key, true, cb, arg);
}

void variant_load_key(struct vm_host *h, const struct vm_spec *spec, const char *key,
                      vm_variant_cb *cb, void *arg)
{
    char copy[VM_KEY_SIZE];
    (void)snprintf(copy, sizeof copy, "%s", key);
    load_any(h, spec, copy, false, cb, arg);
}
