/* What a sandbox keeps for its whole life beside its sizes and its timers: whose it is, who reaches
 * its ports, what it stands on, its network policy, what is put into it before user code runs. Each
 * member belongs to the room that is named beside it. Stored as one JSON text. */
#pragma once
#include "json/kv.h"
#include <stdbool.h>

struct kept {
    char *tenant;        /* whose it is (core/host/tenant.h); NULL: nobody's */
    char *preview_token; /* opens its ports (api/preview); NULL: they are public */
    char *
        preview_mask_host; /* the Host that servers inside see; ${PORT} is the port. NULL: as sent */
    char *base, *last; /* core/catalog: the snapshot it stands on; the newest it has in common */
    char *policy;      /* core/network: canonical text; NULL: none was set */
    char *ca_cert, *ca_key; /* core/network: of the gate for this sandbox; the key is sealed */
    bool network_due; /* core/network: its certificate and environment are yet to be brought in */
    /* Set over every other source, and written before user code runs: name or path to value. The
     * value "{sandbox}" stands for the sandbox's id. */
    struct kv inside_env, inside_files;
    /* Of the dialect that made it; nobody else looks into it. A fork has it too, except keys that
     * end with "_once". */
    struct kv dialect;
};

void kept_free(struct kept *k);
void kept_set(char **member, const char *value); /* NULL or "": none */
/* What a client chose: previews, what goes inside, the dialect's own. dst must be empty. */
void kept_copy(struct kept *dst, const struct kept *src);
void kept_fork(struct kept *dst, const struct kept *src); /* the same, with a token of its own */

char *kept_to_json(const struct kept *k);
int kept_from_json(struct kept *k, const char *text, struct err *e);
/* Schema 5 and before had one map of strings for all of this. */
int kept_from_options(struct kept *k, const char *text, struct err *e);
