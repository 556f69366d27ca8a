/* What a sandbox may reach: its policy as the client gave it, kept with the
 * row, in force at the gate whenever the sandbox runs. The client's form is
 * that of gate/policy.h with two additions:
 *
 *   "presets": ["pip", …]                     rules that follow this host's own tools (core/network/preset.h)
 *   "inject": [{… "value": "literal" …}]      instead of "secret": kept as a secret of this sandbox alone
 *
 * and with "mode" left out meaning allow if anything is allowed, else none.
 * A policy other than none is in force before user code runs, or the sandbox
 * does not start; none needs nobody, so the gate (which then only writes down
 * what was tried) is told a moment later. Main loop only. */
#pragma once
#include "base/err.h"
#include "json/kv.h"
#include "gate/policy.h"
#include "json/read.h"
#include "json/write.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct caller;
struct sandbox;
struct box;

struct network_spec {
    char *text;
    struct kv values; /* literal values by the secret's name */
};
/* Set by `who` for a sandbox of `tenant`: it may name that tenant's secrets, an admin the operator's too, and
 * stays under the ceiling of the key's scope for as long as it is in force. */
int network_parse(struct core *c, const struct caller *who, const char *tenant,
                  struct json *obj /* NULL: none */, struct network_spec *ret, struct err *e);
void network_spec_free(struct network_spec *s);
void network_copy(const struct sandbox *sb,
                  struct network_spec *ret); /* the same for another sandbox, literal values too */

void network_put(
    struct jw *w,
    const struct sandbox
        *sb); /* one object: the policy, and what the operator's ceiling takes from it */
#define NETWORK_LIMITED_TEXT 160
const char *network_limited(
    const struct sandbox *sb,
    char say
        [NETWORK_LIMITED_TEXT]); /* that a ceiling takes from its policy, as a sentence; NULL: none does */
enum policy_mode network_mode(const struct sandbox *sb);

typedef void network_cb(void *arg, const struct err *e, uint64_t cut);
/* A new policy for a sandbox that is there. cb exactly once, when it is in force (running, standby) or stored (paused on disk); connections
 * that it denies are cut by then. -1 + e: refused, nothing changed. */
int network_set(struct sandbox *sb, const struct network_spec *s, network_cb *cb, void *arg,
                struct err *e);

/* -- for sandbox.c, resume.c -- */
void network_init(struct sandbox *sb, const struct network_spec *s /* NULL: none */);
void network_load(struct sandbox *sb);  /* from its stored options */
void network_ended(struct sandbox *sb); /* nothing of it runs any more */
void network_free(struct sandbox *sb);
bool network_wake(
    struct sandbox *sb, void (*cb)(void *arg),
    void *
        arg); /* it runs again: brings in what a change could not while it slept; cb once, or false: nothing to bring */
void network_env(const struct sandbox *sb,
                 struct kv *env); /* what tools inside need to find presets and trust the gate */
