/* A snapshot as a pack. Two passes over its files: the manifest, with the sum
 * of every part, comes first and is signed; then the parts follow. A container
 * is read through a sandbox that is made of it for that, as a recipe's is
 * (decision 004). */
#include "tier/vm/vm.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/pack/pack.h"
#include "core/pack/signer.h"
#include "core/sandbox/spool.h"
#include "core/catalog/template.h"
#include "core/agent/trust.h"
#include "image/pack.h"
#include "loop/job.h"
#include "core/build/build.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCAN_AT_ONCE (64u << 20) /* other jobs want a worker, too */
#define TREE_MS      (30 * 60 * 1000)
#define SANDBOX_S    3600

struct pack_export {
    struct core *core;
    struct pack_export_ops ops;
    void *arg;
    char snapshot[22], template_id[22];
    char sandbox[22]; /* of a container: the one it is read through; "" */
    struct spool *spool;
    bool busy, dead, opened;
    int home, templates;
    struct pack pack;
    struct vm_pack vm;
    int fd[PACK_PARTS_MAX]; /* borrowed of vm, but for a tree */
    int tree;
    unsigned part; /* of the pass under way */
    uint64_t at, blocks;
    struct sha256 *sum;
    struct buf head, out;
    size_t want;
    int rc;
    struct err err;
};

static void end_sandbox(struct pack_export *x)
{
    struct sandbox *sb = *x->sandbox ? sandbox_find(x->core, x->sandbox, NULL) : NULL;
    *x->sandbox = 0;
    if (sb)
        (void)sandbox_kill(sb, END_KILLED, "the snapshot was read", NULL, NULL,
                           NULL); /* refused only when it is ending */
}

static void bury(void *arg)
{
    struct pack_export *x = arg;
    end_sandbox(x);
    vm_pack_close(&x->vm);
    pack_fini(&x->pack);
    cleanup_fd(&x->tree);
    cleanup_fd(&x->home);
    cleanup_fd(&x->templates);
    sha256_free(x->sum);
    buf_free(&x->head), buf_free(&x->out);
    free(x);
}

static void over(struct pack_export *x, const struct err *e)
{
    x->dead = true;
    x->ops.done(x->arg, e);
    loop_defer(x->core->loop, bury, x);
}

void pack_export_cancel(struct pack_export *x)
{
    if (x->spool)
        spool_cancel(x->spool);
    x->spool = NULL;
    x->dead = true;
    if (!x->busy)
        loop_defer(x->core->loop, bury, x);
}

static void run(struct pack_export *x, void (*work)(void *), void (*done)(void *))
{
    x->busy = true;
    job_run(x->core->jobs, work, done, x);
}

/* A job came back: false if nobody waits any more, or it failed. */
static bool back(struct pack_export *x)
{
    x->busy = false;
    if (x->dead) {
        bury(x);
        return false;
    }
    if (x->rc)
        over(x, &x->err);
    return !x->rc;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void put_block(void *arg, uint64_t number, const unsigned char *block)
{
    pack_put_record(arg, number, block);
}

static void send_work(void *arg)
{
    struct pack_export *x = arg;
    while (!x->rc && x->out.n < x->want && x->part < x->pack.nparts) {
        int rc = pack_scan(x->fd[x->part], x->pack.part[x->part].bytes, &x->at, PACK_CHUNK / 2,
                           put_block, &x->out, &x->err);
        if (rc < 0)
            x->rc = -1;
        else if (rc)
            x->part++, x->at = 0;
    }
}

static void send_done(void *arg)
{
    struct pack_export *x = arg;
    if (!back(x))
        return;
    struct buf b = x->out;
    bool all = !b.n && x->part == x->pack.nparts;
    x->out = (struct buf){0};
    if (all)
        over(x, NULL);
    else
        x->ops.data(x->arg, b.p, b.n);
    buf_free(&b);
}

static void send_head(void *arg)
{
    struct pack_export *x = arg;
    x->busy = false;
    if (x->dead) {
        bury(x);
        return;
    }
    struct buf b = x->head;
    x->head = (struct buf){0};
    x->ops.data(x->arg, b.p, b.n);
    buf_free(&b);
}

void pack_export_more(struct pack_export *x)
{
    if (x->busy || x->dead)
        return;
    x->want = PACK_CHUNK / 2;
    if (x->head.n) {
        x->busy = true;
        loop_defer(x->core->loop, send_head, x);
    } else {
        run(x, send_work, send_done);
    }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void add_block(void *arg, uint64_t number, const unsigned char *block)
{
    struct pack_export *x = arg;
    pack_sum_block(x->sum, number, block);
    x->blocks++;
}

static int sign(struct pack_export *x)
{
    unsigned char secret[SIGN_SECRET];
    auto_buf text = {0};
    pack_format(&x->pack, &text);
    if (text.n > PACK_MANIFEST_MAX)
        return err_set(&x->err, E_TOO_LARGE,
                       "the manifest of the pack would be larger than %u bytes", PACK_MANIFEST_MAX);
    if (signer_secret(x->home, secret, &x->err))
        return -1;
    pack_sign(secret, (struct str){text.p, text.n}, &x->head);
    explicit_bzero(secret, sizeof secret);
    return 0;
}

static void sum_work(void *arg)
{
    struct pack_export *x = arg;
    for (uint64_t begun = x->at;
         !x->rc && x->part < x->pack.nparts && x->at - begun < SCAN_AT_ONCE;) {
        struct pack_part *p = &x->pack.part[x->part];
        if (!x->sum)
            x->sum = sha256_new(), x->blocks = 0;
        off_t size = lseek(x->fd[x->part], 0, SEEK_END);
        p->bytes = size < 0 ? 0 : (uint64_t)size;
        int rc = pack_scan(x->fd[x->part], p->bytes, &x->at, 1u << 20, add_block, x, &x->err);
        if (rc < 0) {
            x->rc = -1;
        } else if (rc) {
            sha256_end_hex(x->sum, p->sha256);
            x->sum = NULL;
            p->blocks = x->blocks;
            x->part++, x->at = begun = 0;
        }
    }
    if (!x->rc && x->part == x->pack.nparts)
        x->rc = sign(x);
}

static void sum_done(void *arg)
{
    struct pack_export *x = arg;
    if (!back(x))
        return;
    if (x->part < x->pack.nparts) {
        run(x, sum_work, sum_done);
        return;
    }
    x->part = 0, x->at = 0;
    x->opened = true;
    x->ops.opened(x->arg, x->head.n + pack_bytes(&x->pack));
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static void take_vm(struct pack_export *x)
{
    struct pack *p = &x->pack;
    p->variant = xstrdup(x->vm.variant);
    for (; p->nmachines < x->vm.n; p->nmachines++)
        p->machine[p->nmachines] = xstrdup(x->vm.text[p->nmachines]);
    pack_roles(p);
    unsigned disk = 0;
    for (unsigned i = 0; i < p->nparts; i++) {
        const int by[] = {[PACK_TREE] = -1,          [PACK_IMAGE] = x->vm.image,
                          [PACK_RAM] = x->vm.ram,    [PACK_DEVICES] = x->vm.devices,
                          [PACK_BOOT] = x->vm.boot,  [PACK_STATE] = x->vm.state,
                          [PACK_PAGES] = x->vm.pages};
        x->fd[i] = p->part[i].role == PACK_DISK ? x->vm.disk[disk++] : by[p->part[i].role];
    }
}

static void open_work(void *arg)
{
    struct pack_export *x = arg;
    x->rc = manifest_read(x->templates, x->template_id, &x->pack.template, &x->err);
    if (x->rc)
        return;
    if (!x->pack.vm) {
        pack_roles(&x->pack);
        x->fd[0] = x->tree;
        return;
    }
    x->rc = vm_pack_open(x->home, x->snapshot, &x->vm, &x->err);
    if (!x->rc && x->vm.n > PACK_MACHINES_MAX)
        x->rc =
            err_set(&x->err, E_QUOTA, "it is based on more than %d snapshots", PACK_MACHINES_MAX);
    if (!x->rc)
        take_vm(x);
}

static void open_done(void *arg)
{
    struct pack_export *x = arg;
    if (back(x))
        run(x, sum_work, sum_done);
}

/* ---- a container's tree ------------------------------------------------------------------------------------------- */

static void tree_read(void *arg, uint64_t bytes, const struct err *e)
{
    struct pack_export *x = arg;
    (void)bytes;
    x->spool = NULL;
    end_sandbox(x);
    if (e)
        over(x, e);
    else
        run(x, open_work, open_done);
}

static void tree_ready(void *arg, struct sandbox *sb, const struct err *e)
{
    struct pack_export *x = arg;
    struct err no;
    x->busy = false;
    if (sb)
        memcpy(x->sandbox, sb->id, sizeof x->sandbox);
    if (x->dead) {
        bury(x);
        return;
    }
    if (e) {
        over(x, e);
        return;
    }
    auto_free char *script = xasprintf("%s%s", trust_undo, spool_root);
    struct spool_spec how = {.script = script,
                             .what = "reading the files of the snapshot",
                             .out = x->tree,
                             .in = -1,
                             .max = PACK_TREE_MAX,
                             .limit = "files of a pack",
                             .timeout_ms = TREE_MS};
    if (!(x->spool = spool_start(sb, &how, tree_read, x, &no)))
        over(x, &no);
}

static int read_tree(struct pack_export *x, struct snapshot *s, struct err *e)
{
    struct sandbox_spec spec = {.from = s,
                                .boot = true,
                                .asleep = true,
                                .timeout_s = SANDBOX_S < x->core->cfg.max_timeout_s
                                                 ? SANDBOX_S
                                                 : x->core->cfg.max_timeout_s};
    if ((x->tree = build_tempfile(x->core, e)) < 0)
        return -1;
    kv_set(&spec.metadata, S("hutch.export"), str_of(s->name ? s->name : s->id));
    x->busy = true;
    int rc = sandbox_create(x->core, &spec, tree_ready, x, e);
    kv_free(&spec.metadata);
    return rc;
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

struct pack_export *pack_export_start(struct snapshot *s, const struct pack_export_ops *ops,
                                      void *arg, struct err *e)
{
    struct core *c = s->core;
    if (c->stopping || c->spawn_lost) {
        err_set(e, E_UNAVAILABLE, "the daemon is stopping");
        return NULL;
    }
    if (s->path) {
        err_set(
            e, E_UNSUPPORTED,
            "a snapshot of a directory cannot be exported; put it into a sandbox and copy the files out (`hutch cp`)");
        return NULL;
    }
    if (s->volumes.n) {
        err_set(
            e, E_UNSUPPORTED,
            "the snapshot's memory has volumes mounted, which are not exported; take one without memory (\"memory\": false, --files-only)");
        return NULL;
    }
    struct pack_export *x = xcalloc(1, sizeof *x);
    *x = (struct pack_export){
        .core = c,
        .ops = *ops,
        .arg = arg,
        .tree = -1,
        .home = fcntl(c->home_fd, F_DUPFD_CLOEXEC, 0),
        .templates = fcntl(templates_fd(c), F_DUPFD_CLOEXEC, 0),
        .vm = {.image = -1, .ram = -1, .devices = -1, .boot = -1, .state = -1, .pages = -1}};
    memcpy(x->snapshot, s->id, sizeof x->snapshot);
    memcpy(x->template_id, s->template_id, sizeof x->template_id);
    struct pack *p = &x->pack;
    p->vm = tier_can(s->tier, TIER_MEMORY), p->memory = s->memory;
    (void)snprintf(p->tier, sizeof p->tier, "%s", s->tier->name);
    (void)snprintf(p->name, sizeof p->name, "%s", s->name ? s->name : "");
    clock_rfc3339(s->created_ns, p->created);
    p->cpu_millis = s->cpu_millis, p->memory_mib = s->memory_mib, p->disk_mib = s->disk_mib;
    p->generation = s->generation;
    p->env = kv_to_json(&s->env);
    if (p->vm) {
        run(x, open_work, open_done);
    } else if (read_tree(x, s, e)) {
        x->busy = false;
        bury(x);
        return NULL;
    }
    return x;
}
