/* Inside hutch-spawn: one thread, one epoll, a table of boxes. Everything that
 * runs is a `struct box`: containers, VMs, packers, tools. Nothing is freed
 * while an event batch is being handled (server_bury).
 *
 * Files: server.c (loop, connection, queue), server_box.c (life and death of a
 * box), server_disk.c (template mounts, writable layers), server_worker.c (a
 * process for disk work), server_task.c (processes for long work), server_child.c (processes for one answer),
 * server_console.c (what boxes print), server_volume.c (images of volumes), server_ready.c (container jails made ahead), server_host.c (what is made once at
 * start), server_own.c (what of the host is ours alone), op_*.c (one family of requests each). */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/map.h"
#include "jail/cgroup.h"
#include "jail/jail.h"
#include "jail/net.h"
#include "jail/seccomp.h"
#include "jail/shelf.h"
#include "spawn/op.h"
#include <stdbool.h>
#include <stdint.h>

#define SLOTS       1024  /* boxes alive at once */
#define SLOT_IDS    65536u
#define LOG_TAIL    SP_CONSOLE_MAX
#define PATH_LEN    512
#define POOL_KINDS  4
#define POOL_DEPTH  8
#define OUT_FDS     16    /* at most, in one answer */
#define READY_DEPTH 4

struct server;
struct watch { int fd; void (*fn)(struct server *s, struct watch *w); void *arg; };

enum box_state { BX_STARTING, BX_ALIVE, BX_DEAD };

struct box {
    struct list grave;
    struct server *srv;
    char id[SP_ID];
    enum sp_kind kind;
    enum box_state state;
    pid_t pid;
    int pidfd, sync, chan, qmp, errpipe;
    int volumes;                  /* VM: second channel, for the files of its volumes */
    struct watch w_pid, w_sync, w_err;
    bool armed;                   /* see jail_result */
    uint64_t start_seq;           /* the request to answer when exec succeeded; 0: none */
    uint64_t start_gen;           /* … on which connection */
    int start_fds[3], nstart_fds; /* what it gets besides (pack, tool: read ends of pipes); owned */
    bool removing, files_leaving;  /* SP_REMOVE was asked; the worker deletes its files */
    bool keep_files, synced;      /* SP_RELEASE: boxes/<id> stays; its layer was written to the disk */
    struct { uint64_t seq, gen; } remover[4];
    int nremovers;
    int64_t retry_at;             /* cgroup removal; 0: none */
    int tries;
    struct cgroup cg;
    struct cgroup_limit limit;
    struct cgroup_usage last;     /* at death */
    int slot;                     /* -1: none */
    int upper;                    /* container: mount of its writable layer */
    int mntns;                    /* container: its mount namespace; who lets go of it last takes its mounts down */
    int disk;                     /* VM: its top image, for accounting */
    int64_t started;
    struct sp_exit exit;
    char *tail;                   /* last bytes of stderr: a ring of LOG_TAIL, made with the first byte */
    uint64_t tail_total;
    int tail_reads;               /* until it has to wait for a tick */
    bool tail_waits;
    bool has_dir;                 /* boxes/<id> is its */
    bool gvisor;                  /* container: under runsc */
};

struct template { char id[SP_ID]; int mnt; };
struct volume { char id[SP_ID]; int mnt; };
struct upper { int mnt; uint32_t mib, inodes; char name[32]; };
struct pool { uint32_t mib, inodes; int64_t used; struct upper item[POOL_DEPTH]; int n, ordered; };

/* A container's jail that waits for the box it is to become: see jail/jail.h. */
struct ready { bool used; struct jailed child; int userns, mntns, slot; struct cgroup cg; struct watch w; };

struct out;
struct conn { int fd; uint64_t gen; struct watch w; struct list queue; int queued; bool want_write, paused; };

struct server {
    const char *home, *run, *share, *bin;
    int home_fd, fs_fd, run_fd; /* HOME, HOME/fs, RUN */
    uint32_t allow_uid, egress_uid;
    uint32_t uid_base;
    char tag[CG_NAME];
    int epoll, listener, lock, sigfd, uid_lock, uid_claim;
    int starter;                    /* spawn/starter.h; 0: none, we stay in any case */
    struct watch w_listen, w_sig, w_starter;
    struct worker { int sock; /* -1: none */ pid_t pid; struct watch w; } maker, worker, jailer; /* disk workers: of layers ahead of time, of everything else; of jails ahead of time */
    int nstarting;
    struct conn conn;
    struct map boxes;
    struct list graves;
    bool slot_used[SLOTS];
    int slot_next, nretry;
    int64_t console_at;             /* next tick of boxes that wrote much; 0: none did */
    struct cgroup_host cg;
    struct net_host net;
    struct seccomp_prog f_box, f_gvisor, f_vm, f_untar, f_keeper, f_isolate, f_call; /* f_call: what an isolate's calls live under */
    char attach_at[PATH_LEN], scratch[PATH_LEN];
    char dev_dir[PATH_LEN], vm_root[2][PATH_LEN];
    int dev_mnt;                    /* template of /dev, attached at dev_dir in our private mount namespace */
    int vm_mnt[2];                  /* roots of QEMU without and with /dev/kvm, likewise */
    struct shelf shelf;             /* where templates and volumes hang, if the kernel wants them to hang somewhere */
    int agent, untar;               /* sealed memfds; -1: not made yet */
    int64_t agent_id[3], untar_id[3]; /* size, mtime, inode of what was copied */
    struct template *tmpl;
    int ntmpl;
    struct volume *volume;          /* mounted: ours is one reference, boxes hold their own */
    int nvolume;
    struct { uint64_t gen, seq; } volume_wait[8]; /* makings and deletions that the disk worker has */
    struct pool pool[POOL_KINDS];
    struct ready ready[READY_DEPTH];
    int nready, ordered[READY_DEPTH] /* slots of those that the jailer makes */, nordered;
    bool ready_wanted;              /* a container was started: more are likely */
    uint64_t ready_serial;
    uint64_t pool_serial;
    bool pool_broken;
    bool stop;
    char note[160];
};

/* server.c */
int server_watch(struct server *s, struct watch *w, int fd, void (*fn)(struct server *, struct watch *), void *arg);
void server_unwatch(struct server *s, struct watch *w);
/* An answer to request `seq` of connection `gen`; dropped if that connection is gone. fds stay the caller's. */
void server_reply(struct server *s, uint64_t gen, uint64_t seq, const struct sp_rep *rep, const int *fds, int nfds);
void server_fail(struct server *s, uint64_t gen, uint64_t seq, const struct err *e);
void server_ok(struct server *s, uint64_t gen, uint64_t seq);
void server_event(struct server *s, const struct sp_exit *x);
int server_run(struct server *s);

/* server_host.c */
int server_init(struct server *s, struct err *e) __attribute__((warn_unused_result));
void server_unlisten(struct server *s); /* takes the socket's file away; connections stay */
void server_abandon(struct server *s); /* after a server_init() that failed */
void server_fini(struct server *s);
int server_program(struct server *s, const char *name, int *memfd, int64_t id[3], struct err *e) __attribute__((warn_unused_result)); /* -> memfd, borrowed */
int server_home_open(struct server *s, int flags, struct err *e, const char *fmt, ...) __attribute__((format(printf, 4, 5), warn_unused_result)); /* below home, no symlinks */

/* server_own.c, in this order */
int own_home(struct server *s, struct err *e) __attribute__((warn_unused_result));    /* locks home and run directory, makes the tag */
void own_for_good(struct server *s);                                                 /* the lease is over: others may rely on us */
int own_cgroups(struct server *s, struct err *e) __attribute__((warn_unused_result)); /* takes our tree, sweeps what an earlier life left in it */
int own_ids(struct server *s, struct err *e) __attribute__((warn_unused_result));     /* a window of ids */

/* server_box.c */
struct box *box_new(struct server *s, const char *id, enum sp_kind kind, struct err *e); /* listed; E_CONFLICT if the id is taken */
struct box *box_find(struct server *s, const char *id);
int slot_spare(struct server *s);                           /* -> a range of ids nobody has; -1: none */
int slot_take(struct server *s, struct err *e) __attribute__((warn_unused_result)); /* likewise; if need be one that was for a jail made ahead */
uint32_t slot_uid(const struct server *s, int slot);
int box_take_slot(struct box *b, struct err *e) __attribute__((warn_unused_result));
uint32_t box_uid(const struct box *b);
void box_started(struct box *b, const struct jailed *j);    /* the clone is there: watch it */

/* server_console.c */
int box_log_pipe(struct box *b, uint32_t uid, int *ret_write_end, struct err *e) __attribute__((warn_unused_result));
int console_tick(struct server *s, int64_t now);            /* reads on where a box had to wait -> ms until it is due, -1: nobody waits */
void console_catch_up(struct box *b);                       /* what is in the pipe now */
int console_open(struct box *b, struct err *e) __attribute__((warn_unused_result)); /* -> memfd of the last LOG_TAIL bytes */
void console_log_end(struct box *b);

struct request;
/* server_start.c: the steps that every start shares. box_begun() takes what the others led to. */
struct box *box_begin(struct server *s, const struct request *r, const char *id, enum sp_kind kind, struct err *e);
int box_begun(struct box *b, int rc); /* rc 0: the answer comes with the child's word; else all is undone, -1 */
int box_cage(struct box *b, const struct cgroup_limit *limit, struct err *e) __attribute__((warn_unused_result)); /* its ids and control group */
int box_channel(int *ret_ours, int *ret_inner, struct err *e) __attribute__((warn_unused_result));
int box_jail(struct box *b, struct jail *j, struct jailed *ret, int *ret_userns, struct err *e) __attribute__((warn_unused_result)); /* born, watched, ids mapped */
void box_answer(struct box *b, uint64_t gen, uint64_t seq); /* it runs: info and descriptors */
int box_fds(const struct box *b, int *fds);                 /* what a start or attach hands out, borrowed -> count */
void box_info(const struct box *b, struct sp_info *ret);
void box_kill(struct box *b);
void box_discard(struct box *b);                            /* before anything of it ran: kill, wait, undo all, forget */
void box_remove(struct box *b, bool keep_files, uint64_t gen, uint64_t seq); /* kill if alive, then everything goes, then the answer */
int box_remove_dir(struct server *s, const char *id);
void box_files_removed(struct server *s, const char *id);
void box_worker_lost(struct server *s);
int box_retry(struct server *s, int64_t now);               /* due cgroup removals -> ms until the next, -1: none */

/* op_box.c: what boxes with a template and a writable layer share */
int box_check(const struct sp_box *q, struct err *e) __attribute__((warn_unused_result));
int box_disk(struct box *b, const struct sp_box *q, struct err *e)
    __attribute__((warn_unused_result)); /* its writable layer, new or the one it has */
/* The root, whose layers carry the ids of the box's user namespace -> owned. Letting go of the lower one's mount waits for all
 * processors (RCU), so the caller does it when nobody waits for it. */
int box_root(struct box *b, int userns, int template, int *ret_lower, struct err *e)
    __attribute__((warn_unused_result));
uint32_t box_shm_mib(const struct sp_limit *l); /* of its /dev/shm */

/* server_ready.c: jails of containers, made when there is nothing else to do */
int ready_take(struct box *b, struct jailed *ret, int *ret_userns, struct err *e) __attribute__((warn_unused_result)); /* one that waits, else a new one, becomes the box */
void ready_order(struct server *s);                          /* from the jailer */
bool ready_wants(const struct server *s);                    /* there is no jailer */
void ready_refill(struct server *s);                         /* makes one: a few milliseconds */
void jailer_work(struct server *s, int sock) __attribute__((noreturn));
int jailer_watch(struct server *s);
bool ready_give_up(struct server *s);                        /* one less, for its range of ids; false: there is none */
void ready_fini(struct server *s);

/* server_disk.c */
int disk_template(struct server *s, const char *id, struct err *e) __attribute__((warn_unused_result)); /* -> mount for shelf_clone(), borrowed */
int disk_template_image(struct server *s, const char *id, struct err *e) __attribute__((warn_unused_result)); /* -> its image, owned; only what root wrote */
void disk_template_drop(struct server *s, const char *id);
int disk_upper(struct server *s, const char *box, uint32_t mib, uint32_t inodes, struct err *e) __attribute__((warn_unused_result)); /* -> mount, owned */
bool disk_upper_exists(struct server *s, const char *box);
bool disk_upper_busy(struct server *s, const char *box);     /* still mounted somewhere: a second mount would ruin it */
int disk_upper_sync(struct server *s, const char *box);
void disk_refill(struct server *s);                          /* orders layers from the worker */
int disk_ready_make(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes, struct err *e) __attribute__((warn_unused_result)); /* in the worker */
void disk_ready_done(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes, int mnt, const struct err *e);
void disk_worker_lost(struct server *s);
void disk_abandon(int upper_mnt);                            /* its content is not wanted any more: do not write it back */
void disk_fini(struct server *s);
int disk_mkfs(int image, uint32_t mib, uint32_t inodes, const char *from_dir, struct err *e) __attribute__((warn_unused_result));
int disk_mkfs_for(int image, uint32_t mib, uint32_t inodes, unsigned owner, struct err *e) __attribute__((warn_unused_result)); /* its top directory is that id's */
int run_program(const char *const *argv, struct err *e) __attribute__((warn_unused_result)); /* blocks; 0 on exit status 0 */

/* server_volume.c */
int volume_open(struct server *s, const char *id, struct err *e) __attribute__((warn_unused_result)); /* -> mount for shelf_clone(), borrowed */
int volume_find(struct server *s, const char *id);            /* likewise, -1: not mounted */
void volume_close(struct server *s, const char *id);
void volumes_fini(struct server *s);
int volume_usage(struct server *s, const char *id, uint64_t *ret_bytes, uint64_t *ret_used, struct err *e) __attribute__((warn_unused_result));
int volume_make(struct server *s, const char *id, uint32_t mib, uint32_t inodes, struct err *e) __attribute__((warn_unused_result)); /* blocks */
int volume_delete(struct server *s, const char *id, struct err *e) __attribute__((warn_unused_result)); /* blocks */
int volume_wait_slot(struct server *s, uint64_t gen, uint64_t seq); /* -1: none free */
void volume_wait_done(struct server *s, int slot, int rc, const struct err *e);
void volume_worker_lost(struct server *s);

/* server_worker.c */
int workers_start(struct server *s, struct err *e) __attribute__((warn_unused_result));
int workers_watch(struct server *s);
void workers_end(struct server *s);
bool worker_make(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes); /* false: do it yourself */
bool worker_remove(struct server *s, const char *id, int *layer, int *mntns); /* -1, or the mounts that the worker lets go of last: then closed here */
bool worker_volume(struct server *s, const char *id, uint32_t mib /* 0: delete */, uint32_t inodes, int slot);
bool worker_sync(struct server *s, const char *id);

/* op_*.c: answer now, or leave start_seq in the box */
struct request { uint64_t gen; const struct sp_req *q; int *fds; int nfds; };
int op_box_start(struct server *s, struct request *r, struct err *e);
int op_gvisor_start(struct server *s, struct request *r, struct err *e);
int op_vm_start(struct server *s, struct request *r, struct err *e);
int op_isolate_start(struct server *s, struct request *r, struct err *e);
int op_pack(struct server *s, struct request *r, struct err *e);
int op_tool(struct server *s, struct request *r, struct err *e);
int op_save(struct server *s, struct request *r, struct err *e);
int op_layer(struct server *s, struct request *r, struct err *e);
int op_net(struct server *s, struct request *r, struct err *e);
int op_egress(struct server *s, struct request *r, struct err *e);
int op_volume(struct server *s, struct request *r, struct err *e);
int op_control(struct server *s, struct request *r, struct err *e);

static inline bool sp_id_ok(const char id[SP_ID]);
#include "base/str.h"
static inline bool sp_id_ok(const char id[SP_ID])
{
    return memchr(id, 0, SP_ID) && id_ok(str_of(id));
}
int sp_limit_ok(const struct sp_limit *l, struct err *e);
bool sp_place_ok(const char *place); /* absolute, tidy, not the root and not the kernel's own directories */
