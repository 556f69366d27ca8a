/* The one place where a box becomes a sandbox: at its creation, and again after every takeover of its channel.
 * Three take part: its volumes, its network, its identity.
 *
 *   sandbox_configure → network_prepare (presets, certificate authority)
 *     → volumes_connect → sandbox_tell_identity → box_told   \  at once; the slower one goes on
 *     → network_enforce → gate_told                          /
 *     → trust_install (a new sandbox's: the authority's certificate goes inside) → configure_end
 *
 * A policy other than none is in force before user code runs, or the caller hears an error. Mode none needs nobody,
 * so the gate is told a moment later. */
#include "base/buf.h"
#include "core/agent/agent.h"
#include "core/agent/trust.h"
#include "core/box/box.h"
#include "core/catalog/template.h"
#include "core/life/life_int.h"
#include "core/network/object.h"
#include "core/volume/volume.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- identity ---- */
static void put_inside(const struct sandbox *sb, const struct kv *from, struct kv *ret)
{
    for (size_t i = 0; i < from->n; i++) {
        const char *v = from->at[i].v;
        kv_set(ret, str_of(from->at[i].k), str_of(strcmp(v, "{sandbox}") ? v : sb->id));
    }
}
void sandbox_environment(const struct sandbox *sb, struct kv *ret)
{
    const struct template *t = template_at(sb->core, sb->template_id);
    if (t)
        kv_copy(ret, &t->env);
    network_env(sb, ret);
    for (size_t i = 0; i < sb->env.n; i++)
        kv_set(ret, str_of(sb->env.at[i].k), str_of(sb->env.at[i].v));
    put_inside(sb, &sb->kept.inside_env, ret);
}

void sandbox_tell_identity(struct sandbox *sb, box_cb *cb, void *arg)
{
    struct template *t = template_at(sb->core, sb->template_id);
    struct kv env = {0}, files = {0};
    sandbox_environment(sb, &env);
    put_inside(sb, &sb->kept.inside_files, &files);
    /* the same after a takeover, another for every sandbox and every fork of one */
    char seed[80], machine_id[SHA256_HEX];
    (void)snprintf(seed, sizeof seed, "machine-id %s %s", sb->id, sb->token);
    sha256_hex(seed, strlen(seed), machine_id);
    machine_id[32] = 0;
    struct box_identity id = {
        .sandbox = sb->id,
        .hostname = sb->name ? sb->name : sb->id,
        .env = &env,
        .files = &files,
        .generation = sb->generation,
        .machine_id = machine_id,
        .takeover = sb->state == SB_RUNNING && sb->life.paused != PAUSE_DISK && !sb->coming_base,
        /* from disk, or from standby under another daemon: frozen until it is told to thaw */
        .resume =
            sb->life.paused != PAUSE_NONE && sb->life.memory && tier_can(sb->tier, TIER_MEMORY)};
    id.user = t && t->user ? t->user : "user";
    id.workdir = t ? t->workdir : NULL;
    box_configure(sb->box, &id, cb, arg);
    kv_free(&env);
    kv_free(&files);
}

/* ---- all three ---- */
struct configuring {
    struct core *core;
    char id[22], box_id[22];
    box_cb *cb;
    void *arg;
    struct box *box; /* once it was told; as the caller hears of it */
    bool box_pending, gate_pending;
    bool told;  /* the caller was */
    bool fresh; /* nothing of the user ran in it yet */
    struct err err;
};

/* The sandbox, if it still has the box this began with. */
static struct sandbox *configuring_find(const struct configuring *k)
{
    struct sandbox *sb = sandbox_at(k->core, k->id);
    return sb && sb->box && !strcmp(sb->box->id, k->box_id) ? sb : NULL;
}

static void configure_tell(struct configuring *k, const struct err *e)
{
    if (k->told)
        return;
    k->told = true;
    k->cb(k->arg, k->box, e);
}

static void configure_end(struct configuring *k)
{
    configure_tell(k, k->err.code ? &k->err : NULL);
    struct sandbox *sb = sandbox_at(k->core, k->id);
    if (!k->err.code && sb && sb->box && network_mode(sb) == POLICY_NONE)
        network_enforce_later(sb);
    free(k);
}

static void configure_trusted(void *arg, const struct err *e)
{
    struct configuring *k = arg;
    if (e)
        k->err = *e;
    configure_end(k);
}

static void configure_step(struct configuring *k)
{
    if (k->box_pending || k->gate_pending)
        return;
    struct sandbox *sb = configuring_find(k);
    bool brings = !k->err.code && !k->told && k->fresh && sb && sb->box == k->box &&
                  sb->box->agent && sb->net->ca_cert;
    if (!brings || trust_install(sb->box->agent, sb->net->ca_cert, configure_trusted, k, &k->err))
        configure_end(k);
}

static void box_told(void *arg, struct box *b, const struct err *e)
{
    struct configuring *k = arg;
    k->box_pending = false;
    k->box = b;
    if (e) { /* who asked must hear of it while the box is still there */
        k->err = *e;
        configure_tell(k, e);
    }
    configure_step(k);
}

static void gate_told(void *arg, const struct err *e, uint64_t cut)
{
    struct configuring *k = arg;
    (void)cut;
    k->gate_pending = false;
    if (e && !k->err.code) {
        k->err = *e;
        err_wrap(&k->err, "network");
    }
    configure_step(k);
}

static void volumes_there(void *arg, const struct err *e)
{
    struct configuring *k = arg;
    struct sandbox *sb = configuring_find(k);
    struct err gone;
    if (!e && !sb) {
        err_set(&gone, E_CANCELED, "sandbox %s ended in the meantime", k->id);
        e = &gone;
    }
    if (e)
        box_told(k, sb ? sb->box : NULL, e);
    else
        sandbox_tell_identity(sb, box_told, k);
}

static void network_prepared(void *arg, const struct err *e)
{
    struct configuring *k = arg;
    struct sandbox *sb = sandbox_at(k->core, k->id);
    if (e) {
        k->box = sb ? sb->box : NULL;
        k->err = *e;
        configure_end(k);
        return;
    }
    memcpy(k->box_id, sb->box->id, sizeof k->box_id);
    k->fresh = sb->state == SB_CREATING || sb->coming_base;
    k->box_pending = true;
    if (network_mode(sb) != POLICY_NONE) {
        k->gate_pending = true;
        network_enforce(sb, sb->net, gate_told, k);
    }
    if (list_empty(&sb->attachments))
        sandbox_tell_identity(sb, box_told, k);
    else
        volumes_connect(sb, volumes_there, k);
}

void sandbox_configure(struct sandbox *sb, box_cb *cb, void *arg)
{
    struct configuring *k = xcalloc(1, sizeof *k);
    *k = (struct configuring){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(k->id, sb->id, sizeof k->id);
    network_prepare(sb, network_prepared, k);
}
