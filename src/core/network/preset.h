/* Network presets: a word in a policy that stands for wherever this host's own
 * apt, pip, npm or git goes. Asked of the host when first used
 * (share/tools/presets.sh, run by the spawner) and again after ten minutes: its
 * configuration, else what the tool goes to by itself; an operator's
 * HUTCH_PRESET_<NAME> (rules, comma-separated) says it outright and may define
 * names of its own. An index of Python packages is also asked where its
 * files are: by the links to files in its page about pip (gate/links.h), at most
 * PRESET_FILES_MAX hosts, and by nothing else that it serves. What is asked of
 * the host is for fetching only: GET and HEAD, and for git the POST that a clone
 * makes; over TLS the gate therefore looks inside, and verifies the server with
 * the host's own trust store, so that a private authority of the host needs no
 * place in a sandbox.
 * Main loop only. */
#pragma once
#include "base/err.h"
#include "json/kv.h"
#include "json/write.h"
#include <stdbool.h>
#include <stddef.h>

struct core;
struct sp_exit;
struct gate_via;
struct doctor_check;
#define PRESETS_MAX      16
#define PRESET_FILES_MAX 8

struct preset_rule {
    char host[256];
    unsigned port;
    bool address, tls;
};
struct preset {
    char name[32];
    struct preset_rule *rule; /* from the host's tools */
    size_t nrules;
    char *text;                   /* from the operator: comma-separated rules; then nrules is 0 */
    char source[80];              /* what decided */
    struct links *page;           /* an index's, while it is read */
    char *file[PRESET_FILES_MAX]; /* links to files in it, one of each host */
    size_t nfiles;
    char doubt[80]; /* the page of an index that names no file, or could not be read; "": none */
    struct kv env;  /* what the tool inside needs */
    char via[64],
        via_auth
            [512]; /* the proxy the tool goes through: "192.0.2.1:3128", a Proxy-Authorization; "": none */
    struct err err; /* code != E_OK: it could not be told */
};

bool preset_known(struct core *c, struct str name);
/* All of them looked up; done exactly once, later. The first that could not be told is the error. */
void presets_load(struct core *c, const char *const *names, size_t n,
                  void (*done)(void *arg, const struct err *e), void *arg);
const struct preset *preset_get(struct core *c, const char *name); /* loaded, or NULL */
/* One row for each there is on this host: where it leads and why. Those that were never loaded are left out. */
size_t presets_report(struct core *c, struct doctor_check *ret, size_t max);
/* Names of all there are: built in and the operator's; borrowed, valid until the next call. */
size_t presets_names(struct core *c, const char **ret, size_t max);
void preset_put_rules(struct jw *w, const struct preset *p); /* elements of an "allow" array */
size_t presets_vias(struct core *c, struct gate_via *out,
                    size_t max);           /* of all that are loaded; borrowed */
bool preset_looks(const struct preset *p); /* its rules need the sandbox to trust the gate */
bool preset_tool_exit(struct core *c, const struct sp_exit *ex); /* false: not ours */
void presets_free(struct core *c);
/* One line of the script's output; exposed for its test. */
int preset_line(struct preset *p, char *line);
void preset_clear(struct preset *p); /* all but its name */
