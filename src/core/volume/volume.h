/* Volumes: file systems with a name that outlive sandboxes and are shared by
 * any number of them. docs/decisions/014-volumes.md says why it is done so.
 *
 * A volume is an ext4 image that only the host's kernel ever writes. While it
 * is used it is mounted once on the host, and one jailed process, its keeper,
 * has it as its root and serves its files: to the content API, and to virtual
 * machines (core/volume/share.h). A container has the mount itself.
 *
 * A sandbox has attachments. They are stored before its row and go with it.
 * volumes_connect() makes them real in the sandbox's present box; it is called
 * by sandbox_configure() at creation, after a restart of the daemon and after
 * a restore, always before user code can run, so whoever brings a box back
 * goes through sandbox_configure() and need not know of volumes.
 *
 * Main loop only. A volume pointer is valid until the loop turn ends. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "core/sandbox/sandbox.h"
#include "loop/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keeper;
struct share;
struct step;

#define VOLUMES_PER_SANDBOX 16
#define VOLUME_PATH_MAX     255
#define VOLUME_SIZE_MIN     16 /* MiB */
#define VOLUME_INODES_MIN   64

enum volume_state { VOL_MAKING, VOL_READY, VOL_DELETING };

struct volume {
    struct core *core;
    char id[22];
    char *name, *tenant; /* tenant "": the operator's */
    enum volume_state state;
    uint32_t size_mib, inodes; /* inodes 0: as many as the size gives */
    int64_t created_ns;
    char token[41];          /* opens its content and nothing else */
    struct list attachments; /* struct attachment.of_volume */
    struct keeper *keeper;   /* of volume_keeper.c */
};

struct attachment {
    struct list of_volume, of_sandbox;
    struct volume *volume;
    struct sandbox *sandbox;
    char *path;
    bool read_only;
    struct share *
        share; /* vm: file requests and answers, while it runs; NULL: being connected, or not at all */
    bool up,
        unmounted; /* vm: it has been served since the box came; the sandbox itself unmounted it */
    struct step *step;  /* vm: who waits for it to come up */
    struct timer again; /* vm: it was lost, try again */
    unsigned tries;
};

bool volume_name_ok(const char *name); /* ^[A-Za-z0-9_-]{1,63}$ and not the form of an id */

struct volume_spec {
    const char *name, *tenant; /* NULL: the operator's */
    uint32_t size_mib, inodes; /* 0: default */
};
typedef void volume_cb(void *arg, struct volume *v /* NULL on error */, const struct err *e);
int volume_create(struct core *c, const struct volume_spec *s, volume_cb *done, void *arg,
                  struct err *e);
struct volume *volume_find(struct core *c, const char *id_or_name,
                           struct err *e); /* ready ones only */
struct volume *volume_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                               struct err *e); /* of what it sees; a name is first its own tenant's */
size_t volume_count(struct core *c);
size_t volume_list(struct core *c, const struct caller *who, struct volume **ret,
                   size_t max); /* what it sees, oldest first */
/* E_CONFLICT while a sandbox has it. done(v == NULL, e == NULL): nothing of it is left. */
int volume_delete(struct volume *v, volume_cb *done, void *arg, struct err *e);
size_t volume_users(
    const struct volume *v); /* sandboxes that hold it: not those that ended or failed */
int volume_usage(struct volume *v,
                 void (*cb)(void *arg, const struct err *e, uint64_t bytes_on_host), void *arg,
                 struct err *e);

/* Its keeper's channel, started if there is none: for the _on functions of core/sandbox/files.h. The agent is good for the turn of
 * the callback; a keeper with calls open is not stopped. */
void volume_open(struct volume *v,
                 void (*cb)(void *arg, struct volume *v, struct agent *a, const struct err *e),
                 void *arg);

struct agent *volume_agent(
    struct volume *v, struct err *e); /* of a keeper that runs; E_UNAVAILABLE: volume_open first */

/* ---- sandboxes ---- */
struct volume_mount {
    const char *volume /* id or name */, *path;
    bool read_only;
};
/* Would it be possible? Paths are absolute and tidy, none inside another, none of the kernel's. */
int volumes_check(struct core *c, const struct caller *who, const struct volume_mount *m, size_t n,
                  struct err *e);
void volumes_attach(struct sandbox *sb, const struct caller *who, const struct volume_mount *m,
                    size_t n); /* after volumes_check in the same turn */
/* Make them usable in sb->box. Always calls back, later, also if the sandbox is gone by then. */
void volumes_connect(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg);
void volumes_disconnect(struct sandbox *sb); /* its box is about to go */
void volumes_reconnect(struct sandbox *sb);  /* in a box that had them before */
void volumes_detach(struct sandbox *sb);     /* it has ended: the rows go too */
void volumes_forget(struct sandbox *sb);     /* the object is about to be freed; rows stay */

/* ---- start and stop (core.c, recover.c) ---- */
struct sp_exit;
void volumes_init(struct core *c);
int volumes_load(struct core *c, struct err *e); /* after the sandboxes */
void volumes_recover(
    struct core *c); /* after adoption: finish what was cut short, let go of what is not used */
void volumes_stop(struct core *c, void (*one_more)(void *arg), void (*one_less)(void *arg),
                  void *arg);
void volumes_free(struct core *c);
bool volumes_exit(struct core *c, const struct sp_exit *ex); /* false: not one of ours */
