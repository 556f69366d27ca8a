/* What volumes there are: their rows and their making and deleting, each of
 * which is finished or undone after a crash at any point:
 *
 *   create   row "making" -> image -> row "ready" -> answer
 *   delete   row "deleting" -> keeper gone, unmounted -> image gone -> row gone -> answer
 *
 * At the next start a row that is not "ready" loses its image and then itself. */
#include "core/volume/volume.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/volume/volume_int.h"
#include "json/write.h"
#include "spawn/client.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 63
_Static_assert(VOLUME_SIZE_MIN == SP_VOLUME_MIN, "what we promise is what the spawner takes");

static const char *const states[] = {
    [VOL_MAKING] = "making", [VOL_READY] = "ready", [VOL_DELETING] = "deleting"};

bool volume_name_ok(const char *name)
{
    size_t n = strlen(name);
    if (!n || n > NAME_MAX_LEN || id_ok(str_of(name)))
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '-' && c != '_')
            return false;
    }
    return true;
}

/* ---- objects ---- */
struct volumes {
    struct map by_id, by_name; /* by_name: full_name() */
};

void volumes_init(struct core *c) { c->volumes = xcalloc(1, sizeof *c->volumes); }
static const struct map *volumes(const struct core *c) { return &c->volumes->by_id; }
struct volume *volume_at(const struct core *c, const char *id)
{
    return map_get(&c->volumes->by_id, id);
}
static struct volume *volume_named(const struct core *c, const char *tenant, const char *name)
{
    char full[FULL_NAME];
    return map_get(&c->volumes->by_name, full_name(tenant, name, full));
}

/* full: full_name(), as the row has it */
static struct volume *volume_new(struct core *c, const char *id, const char *full)
{
    struct volume *v = xcalloc(1, sizeof *v);
    v->core = c;
    (void)snprintf(v->id, sizeof v->id, "%s", id);
    v->name = xstrndup(full, full_name_len(full));
    v->tenant = xstrdup(full_name_tenant(full));
    list_init(&v->attachments);
    v->keeper = keeper_new(v);
    map_set(&c->volumes->by_id, v->id, v);
    map_set(&c->volumes->by_name, full, v);
    return v;
}

static void bury(void *arg)
{
    struct volume *v = arg;
    keeper_free(v->keeper);
    free(v->name), free(v->tenant);
    free(v);
}

static void volume_forget(struct volume *v)
{
    char full[FULL_NAME];
    map_del(&v->core->volumes->by_id, v->id);
    if (volume_named(v->core, v->tenant, v->name) == v)
        map_del(&v->core->volumes->by_name, full_name(v->tenant, v->name, full));
    loop_defer(v->core->loop, bury, v);
}

static void volume_store(struct volume *v, store_done *done, void *arg)
{
    char full[FULL_NAME];
    struct volume_row r = {.id = v->id,
                           .name = full_name(v->tenant, v->name, full),
                           .state = states[v->state],
                           .size_mib = v->size_mib,
                           .inodes = v->inodes,
                           .created_wall_ns = v->created_ns,
                           .token = v->token};
    store_put_volume(v->core->store, &r, done, arg);
}

static void announce(struct volume *v, const char *type)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "volume", v->id);
    jw_kv_str(&w, "name", v->name);
    jw_end(&w);
    event_emit(v->core, type, v->tenant, NULL, b.p);
    buf_free(&b);
}

static struct volume *find_named(struct core *c, const struct caller *who, const char *name,
                                 struct err *e)
{
    struct pick p = {.who = who};
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->volumes->by_name, &i));) {
        struct volume *v = en->value;
        if (!strcmp(v->name, name))
            pick_add(&p, v->tenant, v);
    }
    if (pick_several(&p))
        err_why(e, REASON_NAME_TAKEN, E_CONFLICT,
                "several tenants have a volume named '%.63s': use its id", name);
    return pick_get(&p, false);
}

struct volume *volume_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                               struct err *e)
{
    struct err several = {0};
    struct volume *v = volume_at(c, id_or_name);
    if (v && !caller_sees(who, v->tenant))
        v = NULL;
    else if (!v)
        v = find_named(c, who, id_or_name, &several);
    if (v && v->state == VOL_READY)
        return v;
    if (several.code && e)
        *e = several;
    else
        err_set(e, E_NOT_FOUND, "volume '%.64s' does not exist", id_or_name);
    return NULL;
}

struct volume *volume_find(struct core *c, const char *id_or_name, struct err *e)
{
    return volume_find_for(c, &caller_daemon, id_or_name, e);
}

size_t volume_count(struct core *c) { return volumes(c)->n; }

static int oldest_first(const void *a, const void *b)
{
    const struct volume *x = *(struct volume *const *)a, *y = *(struct volume *const *)b;
    return x->created_ns < y->created_ns   ? -1
           : x->created_ns > y->created_ns ? 1
                                           : strcmp(x->id, y->id);
}

size_t volume_list(struct core *c, const struct caller *who, struct volume **ret, size_t max)
{
    struct map_entry *en;
    size_t i = 0, n = 0;
    while (n < max && (en = map_next(volumes(c), &i))) {
        struct volume *v = en->value;
        if (v->state == VOL_READY && caller_sees(who, v->tenant))
            ret[n++] = v;
    }
    qsort(ret, n, sizeof *ret, oldest_first);
    return n;
}

/* ---- one operation on a volume: carries the id, the object may be gone when it comes back ---- */
struct job {
    struct core *core;
    char id[22];
    volume_cb *done;
    void *arg;
    struct err why;
};

static struct job *job_new(struct volume *v, volume_cb *done, void *arg)
{
    struct job *j = xcalloc(1, sizeof *j);
    j->core = v->core, j->done = done, j->arg = arg;
    memcpy(j->id, v->id, sizeof j->id);
    return j;
}

static struct volume *job_volume(const struct job *j) { return volume_at(j->core, j->id); }

static void job_end(struct job *j, struct volume *v, const struct err *e)
{
    if (j->done)
        j->done(j->arg, v, e);
    free(j);
}

static int ask(struct core *c, uint32_t op, const struct volume *v, spawn_done *done, void *arg,
               struct err *e)
{
    struct sp_req q = {.op = op, .u.volume = {.size_mib = v->size_mib, .inodes = v->inodes}};
    memcpy(q.u.volume.id, v->id, sizeof v->id);
    return spawn_call(c->spawn, &q, NULL, 0, done, arg, e);
}

/* ---- delete; also the way back of a creation that failed (why is set then) ---- */
static void row_gone(void *arg, const struct err *e)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    if (e)
        log_error("volume %s: deleting its row: %s", j->id, e->msg);
    if (v && !j->why.code)
        announce(v, "volume.deleted");
    if (v)
        volume_forget(v);
    job_end(j, NULL, j->why.code ? &j->why : e);
}

static void image_gone(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct job *j = arg;
    (void)fds, (void)nfds;
    if (rep->rc) { /* the row stays "deleting": the next start tries again */
        log_error("volume %s: deleting its image: %s", j->id, rep->err.msg);
        job_end(j, NULL, j->why.code ? &j->why : &rep->err);
        return;
    }
    store_del_volume(j->core->store, j->id, row_gone, j);
}

static void keeper_gone(void *arg)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    struct err e;
    if (v && ask(j->core, SP_VOLUME_DELETE, v, image_gone, j, &e))
        job_end(j, NULL, j->why.code ? &j->why : &e);
}

static void deleting_stored(void *arg, const struct err *e)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    if (e && v) {
        v->state = VOL_READY;
        job_end(j, NULL, e);
        return;
    }
    if (v)
        keeper_stop(v, keeper_gone, j);
}

static void volume_drop(struct volume *v, struct job *j)
{
    v->state = VOL_DELETING;
    volume_store(v, deleting_stored, j);
}

int volume_delete(struct volume *v, volume_cb *done, void *arg, struct err *e)
{
    size_t users = volume_users(v);
    if (v->state != VOL_READY)
        return err_set(e, E_NOT_FOUND, "volume '%s' does not exist", v->name);
    if (users)
        return err_why(e, REASON_VOLUME_USED, E_CONFLICT,
                       "volume '%s' is attached to %zu sandbox%s", v->name, users,
                       users == 1 ? "" : "es");
    volumes_let_go(v);
    volume_drop(v, job_new(v, done, arg));
    return 0;
}

/* ---- create ---- */
static void ready_stored(void *arg, const struct err *e)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    if (!v)
        return;
    if (e) {
        j->why = *e;
        volume_drop(v, j);
        return;
    }
    announce(v, "volume.created");
    job_end(j, v, NULL);
}

static void image_made(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    (void)fds, (void)nfds;
    if (!v)
        return;
    if (rep->rc) {
        j->why = rep->err;
        volume_drop(v, j);
        return;
    }
    v->state = VOL_READY;
    volume_store(v, ready_stored, j);
}

static void making_stored(void *arg, const struct err *e)
{
    struct job *j = arg;
    struct volume *v = job_volume(j);
    struct err bad;
    if (!v)
        return;
    if (e) {
        bad = *e;
        volume_forget(v);
        job_end(j, NULL, &bad);
        return;
    }
    if (ask(j->core, SP_VOLUME_MAKE, v, image_made, j, &bad)) {
        j->why = bad;
        volume_drop(v, j);
    }
}

int volume_create(struct core *c, const struct volume_spec *s, volume_cb *done, void *arg,
                  struct err *e)
{
    uint32_t size = s->size_mib ? s->size_mib : c->cfg.def_volume_mib;
    const char *tenant = s->tenant ? s->tenant : "";
    char id[22], full[FULL_NAME];
    if (c->stopping || c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping, or hutch-spawn is not running");
    if (!s->name || !volume_name_ok(s->name))
        return err_set(e, E_INVALID,
                       "name: must match [A-Za-z0-9_-]{1,63} and must not look like an id");
    if (volume_named(c, tenant, s->name))
        return err_why(e, REASON_NAME_TAKEN, E_CONFLICT, "a volume named '%s' already exists",
                       s->name);
    if (size < SP_VOLUME_MIN || size > c->cfg.max_volume_mib)
        return err_set(e, E_INVALID, "size_mib: %u to %u (HUTCH_MAX_VOLUME)", SP_VOLUME_MIN,
                       c->cfg.max_volume_mib);
    if (s->inodes &&
        (s->inodes < VOLUME_INODES_MIN ||
         s->inodes / 256 > size)) /* an inode takes 256 bytes: at most a sixteenth of the volume */
        return err_set(e, E_INVALID, "inodes: 64 to %u for this size", size * 256);
    if (volumes(c)->n >= c->cfg.max_volumes)
        return err_set(e, E_QUOTA, "%zu volumes exist, the limit (HUTCH_MAX_VOLUMES) is %u",
                       volumes(c)->n, c->cfg.max_volumes);
    id_make('v', id);
    struct volume *v = volume_new(c, id, full_name(tenant, s->name, full));
    unsigned char token[20];
    v->size_mib = size, v->inodes = s->inodes;
    v->created_ns = clock_wall();
    random_bytes(token, sizeof token);
    hex_encode(token, sizeof token, v->token);
    volume_store(v, making_stored, job_new(v, done, arg));
    return 0;
}

/* ---- the rest ---- */
struct usage_wait {
    void (*cb)(void *arg, const struct err *e, uint64_t bytes_on_host);
    void *arg;
};

static void usage_told(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct usage_wait w = *(struct usage_wait *)arg;
    (void)fds, (void)nfds;
    free(arg);
    w.cb(w.arg, rep->rc ? &rep->err : NULL, rep->u.stat.disk_used);
}

int volume_usage(struct volume *v,
                 void (*cb)(void *arg, const struct err *e, uint64_t bytes_on_host), void *arg,
                 struct err *e)
{
    struct usage_wait *w = xcalloc(1, sizeof *w);
    *w = (struct usage_wait){cb, arg};
    if (!ask(v->core, SP_VOLUME_STAT, v, usage_told, w, e))
        return 0;
    free(w);
    return -1;
}

void volume_open(struct volume *v,
                 void (*cb)(void *arg, struct volume *v, struct agent *a, const struct err *e),
                 void *arg)
{
    keeper_get(v, cb, arg);
}

struct agent *volume_agent(struct volume *v, struct err *e)
{
    struct agent *a = keeper_agent(v);
    if (!a)
        err_set(e, E_UNAVAILABLE, "volume '%s' is not open", v->name);
    return a;
}

/* ---- start and stop ---- */
static bool full_name_ok(const char *full)
{
    char name[FULL_NAME];
    (void)snprintf(name, sizeof name, "%.*s", (int)full_name_len(full), full);
    return volume_name_ok(name);
}

static int load_volume(void *arg, const struct volume_row *r)
{
    struct core *c = arg;
    int state = -1;
    for (int i = 0; r->state && i < (int)(sizeof states / sizeof *states); i++)
        if (!strcmp(states[i], r->state))
            state = i;
    if (state < 0 || !r->id || !id_ok(str_of(r->id)) || !r->name || !full_name_ok(r->name)) {
        log_warn("the stored row of volume '%.40s' is damaged; ignoring it", r->id ? r->id : "");
        return 0;
    }
    struct volume *v = volume_new(c, r->id, r->name);
    v->state = (enum volume_state)state;
    v->size_mib = (uint32_t)r->size_mib, v->inodes = (uint32_t)r->inodes;
    v->created_ns = r->created_wall_ns;
    (void)snprintf(v->token, sizeof v->token, "%s", r->token ? r->token : "");
    return 0;
}

static int load_attachment(void *arg, const struct attachment_row *r)
{
    volumes_load_attachment(arg, r);
    return 0;
}

int volumes_load(struct core *c, struct err *e)
{
    if (store_load_volumes(c->store, load_volume, c, e) ||
        store_load_attachments(c->store, load_attachment, c, e))
        return -1;
    return 0;
}

void volumes_recover(struct core *c)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(volumes(c), &i));) {
        struct volume *v = en->value;
        if (v->state != VOL_READY)
            volume_drop(v, job_new(v, NULL, NULL));
        else if (!volume_in_use(v))
            keeper_stop(v, NULL, NULL); /* an earlier daemon may have left it mounted */
    }
}

void volumes_stop(struct core *c, void (*one_more)(void *arg), void (*one_less)(void *arg),
                  void *arg)
{
    struct map_entry *en;
    for (size_t i = 0; !c->spawn_lost && (en = map_next(volumes(c), &i));) {
        struct volume *v = en->value;
        if (!keeper_agent(v))
            continue;
        one_more(arg);
        keeper_stop(v, one_less, arg);
    }
}

void volumes_free(struct core *c)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(volumes(c), &i));)
        bury(en->value);
    map_free(&c->volumes->by_id), map_free(&c->volumes->by_name);
    free(c->volumes);
    c->volumes = NULL;
}

bool volumes_exit(struct core *c, const struct sp_exit *ex)
{
    struct map_entry *en;
    if (ex->kind != SP_KIND_KEEPER)
        return false;
    for (size_t i = 0; (en = map_next(volumes(c), &i));)
        if (keeper_exited(en->value, ex))
            break;
    return true;
}
