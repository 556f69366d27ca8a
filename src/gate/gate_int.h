/* Private to gate/: what a box, a connection and the process hold.
 *
 * Ownership: gate owns boxes, groups and secrets; a box owns its sockets, its
 * connections and its questions. Whatever dies inside a callback is taken out of
 * its lists at once and freed at the end of the turn. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "crypto/tls.h"
#include "gate/bind.h"
#include "gate/client.h"
#include "gate/gate.h"
#include "gate/hostaddr.h"
#include "gate/limit.h"
#include "gate/link.h"
#include "gate/log.h"
#include "gate/policy.h"
#include "gate/via.h"

#define SCRATCH (256u * 1024) /* one read; shared, consumed before the next */
#define SOCKS_MAX 16

struct conn;
struct gate;

struct secret { char *id, *value; size_t n; uint64_t calls_max, bytes_max, calls, bytes; };

/* What is counted and limited, for a box and for a group. */
struct meter { uint64_t max_conns, max_bytes, conns, in, out, saved /* of in and out, on disk */; struct bucket rate; };
/* Sandboxes that share limits: all of the host, all of a tenant. max_bytes is for a day: what was counted begins anew with each. */
#define GROUPS_MAX 2
struct group { char *name; struct meter meter; uint64_t boxes, day; bool kept /* limits were set */; };

/* Datagrams (udp.c): flows, and which refusals were written down lately. */
#define UDP_SAID 32
struct udp_said { struct ip ip; uint16_t port; int64_t at; };
struct udp_box { struct list flows; size_t nflows; struct timer look; struct udp_said said[UDP_SAID]; struct bucket say; uint64_t unsaid; };

struct gsock { struct box *box; enum gate_sock role; int fd, family; struct io io; };

struct box {
    struct gate *g;
    char id[22], sandbox[22];
    struct group *group[GROUPS_MAX];
    int ngroups;
    struct policy *own, *ceiling[POLICY_CEILINGS];
    char *ceiling_name[POLICY_CEILINGS];
    struct policy_set set; /* borrows the above */
    struct buf ca_cert;    /* as given, to see whether it changed */
    struct tls_ca *ca;
    struct egress_log *log;
    struct binds binds;
    struct gsock sock[SOCKS_MAX];
    int nsocks;
    struct list conns, questions, dns_conns;
    struct udp_box udp;
    size_t nquestions;
    struct meter meter;
    struct bucket dns_rate;
    uint64_t total, denied, dns, dns_denied;
    bool dead;
};

struct gpipe { struct list node; int fd[2]; };

struct gate {
    struct loop *loop;
    struct map boxes, groups, secrets;
    struct resolver *resolver;
    struct vias vias; /* proxies of the host */
    struct hostaddr *host;
    struct tls_trust *trust;
    int log_dir;
    uint64_t log_bytes;
    unsigned log_files, log_days, log_sandboxes /* that are gone; 0: no limit */;
    unsigned ended;     /* boxes, since the last sweep */
    struct timer sweep; /* of logs that are too old */
    struct timer save;  /* of counts that changed */
    int64_t udp_idle;
    uint64_t next_conn, lost;
    /* control */
    int control_fd;
    struct io control_io;
    uid_t allow_uid;
    struct gate_link link;
    bool hello;
    /* shared by relays */
    struct list pipes; /* empty ones */
    size_t npipes;
    struct list starved; /* connections that wait for their share of the bandwidth */
    struct timer refill;
    char *scratch;
};

/* gate.c */
void gate_record(struct box *b, struct gate_record *r); /* fills box and sandbox; log, and daemon if it listens */
struct secret *gate_secret_get(struct gate *g, struct str id);
void gate_log_ended(struct gate *g); /* of a box that is gone */

/* meter.c */
uint64_t meter_may(struct box *b, uint64_t want, int64_t now); /* bytes that may move now: rate of box and groups */
void meter_moved(struct box *b, uint64_t in, uint64_t out);    /* bytes to and from the sandbox */
bool meter_spent(const struct box *b);                         /* the byte limit of box or group is used up */
const char *meter_why_spent(const struct box *b);
const char *meter_full(const struct box *b);                   /* why there can be no further connection, or NULL */
bool meter_has_rate(const struct box *b);                      /* some bandwidth limit applies */
void meter_conn(struct box *b, int by);                        /* one more, one less */
void meter_load_box(struct box *b);                            /* what it moved before this process, or before a pause */
void meter_load_group(struct gate *g, struct group *gr);
void meter_save_box(struct box *b);
void meters_save(void *gate);

/* box.c */
struct box *box_get(struct gate *g, struct str id);
int box_put(struct gate *g, struct rec r, bool whole, const int *fds, int nfds, uint64_t *ret_cut, struct err *e); /* ADD (whole) or POLICY; fds are taken */
void box_free(struct box *b); /* cuts its connections; takes it out of the map */
void box_listen(struct box *b, bool on);
struct group *group_get(struct gate *g, struct str name); /* made if there is none */

/* ctl_server.c */
void server_start(struct gate *g);
void server_stop(struct gate *g);

/* dns.c */
void dns_udp_ready(struct gsock *s);
void dns_accept(struct gsock *s);
void dns_drop(struct box *b); /* every question and connection of it */

/* udp.c */
void udp_init(struct box *b);
void udp_ready(struct gsock *s);
void udp_want_destination(int fd, int family);
uint64_t udp_review(struct box *b); /* after a policy change; how many flows were cut */
void udp_cut(struct box *b, const char *why);

/* conn.c */
void conn_accept(struct gsock *s);
uint64_t conns_review(struct box *b); /* after a policy change; how many were cut */
void conns_cut(struct box *b, const char *why);
