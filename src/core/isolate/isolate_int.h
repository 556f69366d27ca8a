/* Between isolate.c (calls) and isolate_jail.c (the jails they run in). */
#pragma once
#include "base/list.h"
#include "core/host/host.h"
#include "core/isolate/isolate.h"
#include "core/catalog/template.h"

#define ISOLATE_LANGUAGES 4
extern const char *const isolate_language[ISOLATE_LANGUAGES];

struct isolates {
    struct list jails;
};

struct jail {
    struct list link; /* of core->isolates */
    struct core *core;
    char id[22], template_id[22];
    char *template_name, *tenant; /* tenant "": the operator's */
    unsigned lang;                /* index of isolate_language[] */
    struct agent *agent;          /* NULL: still starting */
    int pidfd;
    bool answered, removing;
    struct list waiting, running;
    size_t nwaiting, nrunning;
    size_t waiting_bytes; /* of payloads */
    uint32_t memory_mib;  /* promised to the calls that run, by their own limits */
    uint32_t
        own_mib; /* what each can take beside its limit: its copy of the interpreter; known once one has answered */
    int64_t used_ns; /* when its last call began */
    struct timer idle;
    struct list removers;
};

struct isolate_call {
    struct list link;
    struct jail *jail;
    struct call *call; /* NULL: waits */
    struct buf payload;
    size_t sent;
    uint32_t timeout_ms, cpu_ms, memory_mib, max_output;
    struct buf out, err, result;
    struct timer deadline;
    isolate_done *done;
    void *arg;
};

/* isolate.c */
void isolate_call_fail(struct isolate_call *k, const struct err *e);
void isolate_pump(struct jail *j); /* whatever may run now runs */

/* isolate_jail.c */
struct jail *jail_for(struct core *c, const struct template *t, unsigned lang, const char *tenant,
                      struct err *e); /* the one there is, or a new one */
void jail_remove(struct jail *j, const struct err *e, void (*done)(void *arg),
                 void *arg); /* calls that still want something of it fail with e */
void isolate_pump_tenant(
    const struct jail *j); /* in all jails of its tenant, which share a limit */
void jail_broken(void *arg /* struct jail */, const struct err *why);
/* MiB that calls of this tenant may have together in all its jails now; what those that run have of it. */
uint32_t isolate_memory_of(struct core *c, const char *tenant, uint32_t *used);
