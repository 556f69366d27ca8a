/* Volumes in sandboxes. A container gets the volume's mount placed inside it
 * by the spawner, once. A VM's file requests go to the keeper as long as it
 * runs (core/volume/share.h); when keeper or channel are lost, they are connected
 * again, and nothing in the VM fails meanwhile. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/box/box.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/volume/share.h"
#include "core/volume/volume_int.h"
#include "spawn/client.h"
#include "store/store.h"
#include "wire/msg.h"
#include <stdio.h>
#include <string.h>

#define AGAIN_NS (50 * NS_PER_MS)

/* ---- which ones ---- */
static bool within(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

static int check_path(const char *p, struct err *e)
{
    static const char *const kernel[] = {"/proc", "/sys", "/dev"};
    size_t n = strlen(p);
    if (p[0] != '/' || n < 2)
        return err_set(e, E_INVALID, "path '%.64s' of a volume: must be absolute and not the root",
                       p);
    if (n > VOLUME_PATH_MAX)
        return err_set(e, E_INVALID, "path of a volume: at most %d bytes", VOLUME_PATH_MAX);
    for (const char *part = p; *part;) {
        size_t k = strcspn(part + 1, "/");
        if (!k || (k == 1 && part[1] == '.') || (k == 2 && part[1] == '.' && part[2] == '.'))
            return err_set(
                e, E_INVALID,
                "path '%.64s' of a volume: no empty parts, no '.' and '..', no slash at the end",
                p);
        part += k + 1;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] < ' ' || p[i] == 0x7f)
            return err_set(e, E_INVALID, "path of a volume: control characters");
    for (unsigned i = 0; i < sizeof kernel / sizeof *kernel; i++)
        if (within(p, kernel[i]))
            return err_set(e, E_INVALID, "path '%.64s' of a volume: %s is reserved for the kernel",
                           p, kernel[i]);
    return str_utf8(str_of(p)) ? 0 : err_set(e, E_INVALID, "path of a volume: not UTF-8");
}

int volumes_check(struct core *c, const struct caller *who, const struct volume_mount *m, size_t n,
                  struct err *e)
{
    if (n > VOLUMES_PER_SANDBOX)
        return err_set(e, E_INVALID, "at most %d volumes in a sandbox", VOLUMES_PER_SANDBOX);
    for (size_t i = 0; i < n; i++) {
        if (check_path(m[i].path, e))
            return -1;
        const struct volume *v = volume_find_for(c, who, m[i].volume, e);
        if (!v || !caller_changes(who, v->tenant))
            return err_set(
                e, E_INVALID, "volume '%.64s' does not exist",
                m[i].volume); /* what was asked for does, only a part of the request is wrong */
        for (size_t k = 0; k < i; k++)
            if (within(m[i].path, m[k].path) || within(m[k].path, m[i].path))
                return err_set(
                    e, E_INVALID,
                    "paths '%.64s' and '%.64s' of volumes: they are the same or one is inside the other",
                    m[k].path, m[i].path);
    }
    return 0;
}

static void on_again(void *arg);

static struct attachment *attach(struct sandbox *sb, struct volume *v, const char *path,
                                 bool read_only)
{
    struct attachment *a = xcalloc(1, sizeof *a);
    a->sandbox = sb, a->volume = v, a->path = xstrdup(path), a->read_only = read_only;
    timer_init(&a->again, sb->core->loop, on_again, a);
    list_add_tail(&sb->attachments, &a->of_sandbox);
    list_add_tail(&v->attachments, &a->of_volume);
    return a;
}

void volumes_attach(struct sandbox *sb, const struct caller *who, const struct volume_mount *m,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct volume *v = volume_find_for(sb->core, who, m[i].volume, NULL);
        struct attachment *a = attach(sb, v, m[i].path, m[i].read_only);
        struct attachment_row r = {
            .sandbox = sb->id, .path = a->path, .volume = v->id, .read_only = a->read_only};
        store_put_attachment(sb->core->store, &r, NULL,
                             NULL); /* before the sandbox's own row, in the same queue */
    }
}

void volumes_load_attachment(struct core *c, const struct attachment_row *r)
{
    struct sandbox *sb = r->sandbox ? sandbox_at(c, r->sandbox) : NULL;
    struct volume *v = r->volume ? volume_at(c, r->volume) : NULL;
    if (!sb || sb->state == SB_GONE) { /* its creation or its end was cut short */
        if (r->sandbox)
            store_del_attachments(c->store, r->sandbox, NULL, NULL);
    } else if (!v || !r->path || check_path(r->path, NULL)) {
        log_warn("sandbox %s: the stored row of an attachment is damaged; ignoring it", sb->id);
    } else {
        (void)attach(sb, v, r->path, r->read_only);
    }
}

static void drop(struct attachment *a)
{
    timer_stop(&a->again);
    share_close(a->share);
    list_del(&a->of_sandbox);
    list_del(&a->of_volume);
    free(a->path);
    loop_defer(a->volume->core->loop, free, a);
}

void volumes_forget(struct sandbox *sb)
{
    struct attachment *a;
    volumes_disconnect(sb);
    list_each(a, &sb->attachments, of_sandbox)
        drop(a);
}

void volumes_detach(struct sandbox *sb)
{
    if (list_empty(&sb->attachments))
        return;
    store_del_attachments(sb->core->store, sb->id, NULL, NULL);
    volumes_forget(sb);
}

void volumes_let_go(struct volume *v)
{
    struct attachment *a;
    list_each(a, &v->attachments, of_volume) {
        log_info("volume %s: detached from sandbox %s, which failed", v->id, a->sandbox->id);
        a->sandbox->volumes_lost = true;
        drop(a); /* its row names a volume that is gone and is ignored at the next start */
    }
}

size_t volume_users(const struct volume *v)
{
    struct attachment *a;
    size_t n = 0;
    list_each(a, (struct list *)(uintptr_t)&v->attachments, of_volume)
        n += a->sandbox->state != SB_GONE && a->sandbox->state != SB_FAILED;
    return n;
}

bool volume_in_use(const struct volume *v)
{
    struct attachment *a;
    list_each(a, (struct list *)(uintptr_t)&v->attachments, of_volume)
        if (a->sandbox->box)
            return true;
    return false;
}

/* ---- making them real in a box ---- */
struct connecting {
    struct core *core;
    char sandbox[22], box[22];
    size_t waiting;
    struct err why;
    void (*cb)(void *arg, const struct err *e);
    void *arg;
};
struct step {
    struct connecting *all;
    char volume[22];
    char path[VOLUME_PATH_MAX + 1];
};

static void one_less(struct connecting *k, const struct err *e)
{
    if (e && !k->why.code)
        k->why = *e;
    if (--k->waiting)
        return;
    k->cb(k->arg, k->why.code ? &k->why : NULL);
    free(k);
}

static struct sandbox *connecting_sandbox(const struct connecting *k)
{
    struct sandbox *sb = sandbox_at(k->core, k->sandbox);
    return sb && sb->box && !strcmp(sb->box->id, k->box) ? sb : NULL;
}

/* The attachment, if its sandbox still has the box this is for. */
static struct attachment *step_find(const struct step *t)
{
    struct sandbox *sb = connecting_sandbox(t->all);
    struct attachment *a;
    if (sb)
        list_each(a, &sb->attachments, of_sandbox)
            if (!strcmp(a->path, t->path) && !strcmp(a->volume->id, t->volume))
                return a;
    return NULL;
}

static struct step *step_new(struct connecting *k, const struct attachment *a)
{
    struct step *t = xcalloc(1, sizeof *t);
    t->all = k;
    memcpy(t->volume, a->volume->id, sizeof t->volume);
    (void)snprintf(t->path, sizeof t->path, "%s", a->path);
    k->waiting++;
    return t;
}

static void step_end(struct step *t, const struct err *e)
{
    struct connecting *k = t->all;
    struct err why;
    if (e) {
        why = *e;
        struct volume *v = volume_at(k->core, t->volume);
        (void)err_wrap(&why, "volume '%s'", v ? v->name : t->volume);
    }
    free(t);
    one_less(k, e ? &why : NULL);
}

/* ---- a container: the mount itself ---- */
static void lent(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    step_end(arg, rep->rc ? &rep->err : NULL);
}

static void lend(struct step *t, struct attachment *a)
{
    struct sp_req q = {.op = SP_VOLUME_LEND, .u.lend = {.read_only = a->read_only}};
    struct err e;
    memcpy(q.u.lend.box, a->sandbox->box->id, sizeof a->sandbox->box->id);
    memcpy(q.u.lend.volume, a->volume->id, sizeof a->volume->id);
    (void)snprintf(q.u.lend.place, sizeof q.u.lend.place, "%s", a->path);
    if (spawn_call(a->sandbox->core->spawn, &q, NULL, 0, lent, t, &e))
        step_end(t, &e);
}

/* ---- a VM: file requests to the keeper ---- */
static void share_up(void *arg)
{
    struct attachment *a = arg;
    struct step *t = a->step;
    a->up = true;
    a->tries = 0;
    a->step = NULL;
    if (t)
        step_end(t, NULL);
}

static void try_again(struct attachment *a)
{
    int64_t wait = AGAIN_NS << (a->tries < 6 ? a->tries : 6);
    a->tries++;
    timer_arm(&a->again, wait);
}

/* The keeper died, or the channel broke: whoever uses the volume in the VM waits, and we connect it again. */
static void share_down(void *arg, const struct err *e)
{
    struct attachment *a = arg;
    struct step *t = a->step;
    a->share = NULL;
    a->step = NULL;
    if (t) {
        step_end(t, e);
        return;
    }
    if (!a->sandbox->box || a->unmounted)
        return;
    a->unmounted =
        e->code == E_NOT_FOUND; /* the sandbox did that itself; it is not forced on it again */
    log_warn("sandbox %s: volume '%s': %s", a->sandbox->id, a->volume->name, e->msg);
    if (!a->unmounted)
        try_again(a);
}

static int share_begin(struct attachment *a, struct agent *keeper, struct err *e)
{
    static const struct share_ops ops = {.up = share_up, .down = share_down};
    struct box *b = a->sandbox->box;
    if (!b->volumes)
        return err_set(e, E_UNAVAILABLE, "the sandbox's channel for volumes is not open");
    unsigned flags =
        (a->read_only ? SHARE_RO : 0u) | (a->sandbox->state == SB_CREATING ? SHARE_THAW : 0u);
    a->share = share_open(b->volumes, keeper, a->volume->name, a->path, flags, &ops, a, e);
    return a->share ? 0 : -1;
}

static void opened(void *arg, struct volume *v, struct agent *keeper, const struct err *e)
{
    struct step *t = arg;
    struct attachment *a = step_find(t);
    struct err bad;
    (void)v;
    if (e || !a) {
        step_end(t, e); /* no attachment: whoever waits finds out that the sandbox is gone */
    } else if (!tier_can(a->sandbox->tier, TIER_FUSE)) {
        lend(t, a);
    } else {
        a->step = t;
        if (share_begin(a, keeper, &bad)) {
            a->step = NULL;
            step_end(t, &bad);
        }
    }
}

static void begin(struct connecting *k, struct sandbox *sb)
{
    struct attachment *a;
    list_each(a, &sb->attachments, of_sandbox) {
        if (a->share || a->step || a->unmounted)
            continue; /* served already */
        timer_stop(&a->again);
        keeper_get(a->volume, opened, step_new(k, a));
    }
}

static void channel_open(void *arg, struct agent *agent, const struct err *e)
{
    struct connecting *k = arg;
    struct sandbox *sb = connecting_sandbox(k);
    (void)agent;
    if (!e && sb)
        begin(k, sb);
    one_less(k, e);
}

static struct connecting *connecting_new(struct sandbox *sb,
                                         void (*cb)(void *arg, const struct err *e), void *arg)
{
    struct connecting *k = xcalloc(1, sizeof *k);
    *k = (struct connecting){.core = sb->core, .waiting = 1, .cb = cb, .arg = arg};
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    memcpy(k->box, sb->box->id, sizeof k->box);
    return k;
}

static void begin_later(void *arg)
{
    struct connecting *k = arg;
    struct sandbox *sb = connecting_sandbox(k);
    if (sb && sb->box->phase !=
                  BOX_LIVE) /* else an earlier daemon did it; the mounts are the container's own */
        begin(k, sb);
    one_less(k, NULL);
}

void volumes_connect(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg)
{
    struct connecting *k = connecting_new(sb, cb, arg);
    if (!tier_can(sb->tier, TIER_FUSE)) {
        loop_defer(sb->core->loop, begin_later, k);
        return;
    }
    box_wake(sb->box);
    box_volumes(sb->box, channel_open, k);
}

static void reconnected(void *arg, const struct err *e)
{
    (void)arg;
    if (e)
        log_warn("volumes: %s", e->msg);
}

static void on_again(void *arg)
{
    struct attachment *a = arg;
    struct sandbox *sb = a->sandbox;
    if (!sb->box || a->share || a->step)
        return;
    try_again(a); /* unless it comes up before; a sandbox in standby is only waited for */
    if (sb->state == SB_RUNNING)
        box_volumes(sb->box, channel_open, connecting_new(sb, reconnected, NULL));
}

void volumes_disconnect(struct sandbox *sb)
{
    struct attachment *a;
    list_each(a, &sb->attachments, of_sandbox) {
        struct step *t = a->step;
        struct err gone;
        timer_stop(&a->again);
        share_close(a->share);
        a->share = NULL;
        a->step = NULL;
        a->up = a->unmounted = false;
        a->tries = 0;
        keeper_touch(a->volume);
        if (t) {
            err_set(&gone, E_CANCELED, "the sandbox ended in the meantime");
            step_end(t, &gone);
        }
    }
}

void volumes_reconnect(struct sandbox *sb)
{
    struct attachment *a;
    list_each(a, &sb->attachments, of_sandbox)
        if (tier_can(sb->tier, TIER_FUSE))
            timer_arm(&a->again, 0);
}

/* Its shares went down with it, each of them tries again; nothing to do but to have it come back sooner. */
void volumes_keeper_lost(struct volume *v)
{
    struct attachment *a;
    list_each(a, &v->attachments, of_volume)
        if (a->sandbox->box && tier_can(a->sandbox->tier, TIER_FUSE) && !a->share && !a->step &&
            !a->unmounted)
            timer_arm(&a->again, 0);
}
