#include "core/life/usage.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "core/life/life_int.h"
#include "core/catalog/snapshot.h"
#include "spawn/client.h"
#include "core/host/ref.h"
#include <stdlib.h>
#include <string.h>

/* A pause under way counts as soon as its files are whole. */
static bool on_disk(const struct sandbox *sb)
{
    return sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK;
}

static uint64_t paused_bytes(const struct sandbox *sb)
{
    return sb->life.held > sb->life.bytes ? sb->life.held : sb->life.bytes;
}

static struct usage count(struct core *c, const char *tenant)
{
    struct usage u = {.tenant = tenant};
    struct map_entry *en;
    const struct tenant *t = tenant_find(&c->tenants, tenant);
    for (size_t i = 0; (en = map_next(snapshots(c), &i));) {
        const struct snapshot *s = en->value;
        if (s->making || snapshot_step(s) || strcmp(snapshot_tenant(s), tenant))
            continue;
        u.snapshots++;
        u.snapshot_bytes += s->memory_bytes + s->disk_bytes;
    }
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));) {
        const struct sandbox *sb = en->value;
        if (!on_disk(sb) || strcmp(sandbox_tenant(sb), tenant))
            continue;
        u.paused++;
        u.paused_bytes += paused_bytes(sb);
    }
    u.limit_bytes = t ? t->held_bytes : 0;
    return u;
}

int usage_check(struct core *c, const char *tenant, uint64_t more, struct err *e)
{
    struct usage u = count(c, tenant);
    uint64_t has = u.snapshot_bytes + u.paused_bytes;
    if (!u.limit_bytes || (has < u.limit_bytes && more <= u.limit_bytes - has))
        return 0;
    return err_set(
        e, E_QUOTA,
        "tenant '%.64s' has %llu MiB in %u snapshots and %u paused sandboxes; the limit (held_bytes in HUTCH_TENANTS) is %llu MiB: delete some",
        tenant, (unsigned long long)(has >> 20), u.snapshots, u.paused,
        (unsigned long long)(u.limit_bytes >> 20));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void usage_each(struct core *c, void (*fn)(void *arg, const struct usage *u), void *arg)
{
    struct map_entry *en;
    size_t n = 0;
    auto_free const char **name = xcalloc(snapshots(c)->n + sandboxes(c)->n + 1, sizeof *name);
    name[n++] = ""; /* shown even with nothing */
    for (size_t i = 0; (en = map_next(snapshots(c), &i));)
        if (!snapshot_step(en->value))
            name[n++] = snapshot_tenant(en->value);
    for (size_t i = 0; (en = map_next(sandboxes(c), &i));)
        if (on_disk(en->value))
            name[n++] = sandbox_tenant(en->value);
    qsort(name, n, sizeof *name, by_name);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(name[i], name[i - 1])) {
            struct usage u = count(c, name[i]);
            fn(arg, &u);
        }
}

static void measured(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct ref r = ref_take(arg);
    struct sandbox *sb = sandbox_at(r.core, r.id);
    (void)fds, (void)nfds;
    if (!sb || rep->rc || !on_disk(sb) || sb->transit)
        return; /* it went on meanwhile */
    sb->life.held = rep->u.stat.disk_used;
    sandbox_store(sb, NULL, NULL);
}

void usage_measure(struct sandbox *sb)
{
    struct sp_req q = {.op = SP_STAT};
    struct err e;
    if (!on_disk(sb))
        return;
    struct ref *r = ref_new(sb->core, sb->id);
    memcpy(q.u.id.id, sb->box_id, sizeof sb->box_id);
    if (spawn_call(sb->core->spawn, &q, NULL, 0, measured, r, &e)) {
        (void)ref_take(r);
        log_debug("sandbox %s: %s", sb->id, e.msg);
    }
}
