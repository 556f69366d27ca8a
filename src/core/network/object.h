/* The network of a sandbox as an object, for the rooms of core: what the client asked for, checked, and the
 * certificate authority that goes with it. network_form.c has its text forms, network.c the rest. */
#pragma once
#include "base/buf.h"
#include "core/network/egress.h"
#include "core/network/network.h"
#include "core/network/preset.h"

struct network {
    char *text;            /* the client's form, checked */
    struct policy *policy; /* the same without presets */
    char *preset[PRESETS_MAX];
    size_t npresets;
    char *ceiling;          /* of the key that set it, as JSON; NULL: none */
    char *ca_cert, *ca_key; /* PEM; only if something is intercepted */
};

/* network_form.c */
struct network *network_new(struct core *c, const char *text); /* a text that is none: mode none */
void network_delete(struct network *n);
void network_values_free(struct kv *values); /* leaves nothing of them in memory */
#define NETWORK_KEY_CEILING "key_ceiling" /* in the text: what the key that set it may not exceed */
void network_gate_form(struct core *c, const struct network *n,
                       bool presets /* resolved into rules; false: left out */, struct buf *out);

/* network.c */
int network_need_ca(struct sandbox *sb, struct network *n,
                    struct err *e); /* makes one if there is something to look into */
void network_keep_ca(
    struct sandbox
        *sb); /* with its row, for the rest of its life: once the policy that needs it counts */
void network_load_ca(struct sandbox *sb, struct network *n);
void network_keep_values(struct sandbox *sb, const struct kv *values);
/* Its presets are resolved and its certificate authority is there, kept with the row: ready to be put in force. cb once,
 * perhaps inside the call. */
void network_prepare(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg);
void network_enforce(struct sandbox *sb, const struct network *n, egress_cb *cb /* may be NULL */,
                     void *arg); /* the gate has it */
void network_enforce_later(
    struct sandbox *sb); /* mode none needs no gate: it only writes down what is tried */
