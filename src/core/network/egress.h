/* hutch-egress, seen from the daemon: started and restarted, told what every
 * running box may do, and told again whenever either side began anew. A box
 * that the gate does not know has no network; so does every box while the gate
 * is away. Main loop only. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct sp_exit;
struct egress;
struct gate_client;

struct egress_box {
    const char *box, *sandbox;  /* ids */
    const char *tenant;         /* core/host/tenant.h; "": none */
    const char *ceiling;        /* of the key that set the policy, JSON; NULL: none */
    struct str policy;          /* JSON, gate/policy.h; presets resolved */
    struct str ca_cert, ca_key; /* PEM; n == 0: none */
};
typedef void egress_cb(void *arg, const struct err *e /* NULL: in force */,
                       uint64_t cut /* connections the change ended */);

void egress_start(struct core *c);
void egress_stop(struct core *c); /* the daemon ends; the gate serves on */
void egress_recovered(
    struct core
        *c); /* all boxes that still live are known: what the gate serves beyond them can go */
bool egress_exited(struct core *c, const struct sp_exit *ex); /* false: not its */
void egress_spawner_lost(struct core *c);                     /* the process went with it */
void egress_spawner_back(struct core *c);
bool egress_up(const struct core *c);
/* A process that serves boxes is there, whether it answers or not. Without one nothing leaves any box. */
bool egress_running(const struct core *c);
/* It does not answer, and what it does by an older policy must end: it is killed. Another one starts, knows the boxes as they were put
 * here last, and every connection of every box is cut. -1 + e: it could not be asked for. */
int egress_kill(struct core *c, struct err *e);
struct gate_client *egress_client(struct core *c);
/* Serve this box by this policy: new, or changed. Answers once the gate has it in force; a gate that is away is waited for, ten
 * seconds. Without a callback it is kept trying. The strings are copied. */
void egress_put(struct core *c, const struct egress_box *b, egress_cb *cb, void *arg);
void egress_drop(
    struct core *c,
    const char *box); /* not to be served any more; unknown is fine. Waiters hear E_CANCELED */
void egress_tenants_changed(struct core *c);          /* c->tenants is another: tell the gate */
void egress_proxies_changed(struct core *c);          /* a preset's tool has a proxy */
void egress_secret(struct core *c, const char *name); /* it was set or deleted: tell the gate */
