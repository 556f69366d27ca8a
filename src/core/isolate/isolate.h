/* The isolate tier: one program, one JSON value, no sandbox. A jail per
 * (template, language, tenant) holds a loaded interpreter and its warden; every
 * call is a new process forked from it (docs/isolate.md). Jails are started by
 * the first call that needs them and go when unused for some minutes, when
 * another needs the place, with their template, or with the daemon; nothing of
 * them is stored. Main loop only.
 *
 * Admission: the memory limits of the calls that run together never add up to
 * more than the jail has, so one call cannot be killed for another's memory, and
 * those of a tenant to no more than its `memory_mib`.
 *
 *   isolate.c       calls: admitted, sent, answered
 *   isolate_jail.c  the jails
 *   isolate_end.c   what became of a call; pure */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct isolate_call;
struct sp_exit;

#define ISOLATE_TIMEOUT_MS     5000u
#define ISOLATE_TIMEOUT_MAX_MS 300000u
#define ISOLATE_MEMORY_MIB     128u
#define ISOLATE_MEMORY_MIN     16u
#define ISOLATE_OUTPUT         (1u << 20)
#define ISOLATE_OUTPUT_MAX     (4u << 20)
#define ISOLATE_VALUE_MAX      (1u << 20)

struct isolate_spec {     /* read during isolate_eval() only */
    const char *language; /* "python", "js", "php", "ruby" */
    const char *template; /* NULL: "isolate" if it is built, else "base" */
    const char *tenant;   /* NULL or "": the operator */
    const struct caller *by; /* during the call: who asks (core/host/rights.h); NULL: the tenant itself */
    struct str code;      /* UTF-8 */
    struct str input;     /* JSON text; empty: null */
    const char
        *function; /* NULL, or the name of a function of the program to call with the input */
    uint32_t timeout_ms, cpu_ms, memory_mib,
        max_output; /* 0: default; cpu: as long as the timeout */
};

enum isolate_end {
    ISOLATE_VALUE,     /* it ended well */
    ISOLATE_EXCEPTION, /* the program threw */
    ISOLATE_NOT_JSON,  /* its value has no JSON form */
    ISOLATE_EXIT,      /* it left by itself with a status that is not 0 */
    ISOLATE_TIMEOUT,
    ISOLATE_CPU,
    ISOLATE_MEMORY,
    ISOLATE_OUTPUT_LIMIT,
    ISOLATE_FORBIDDEN, /* it asked the kernel for something outside the list */
    ISOLATE_CRASHED,   /* another signal */
    ISOLATE_END_MAX
};
const char *isolate_end_name(enum isolate_end x);

struct isolate_result { /* lent to the callback */
    enum isolate_end end;
    struct str out, err;
    struct str value; /* JSON text; "null" unless ISOLATE_VALUE */
    const char *language, *template;
    const char *message;          /* a sentence; "" with ISOLATE_VALUE */
    const char *type, *traceback; /* of an exception; may be NULL */
    const char *syscall;          /* with ISOLATE_FORBIDDEN; NULL: not known */
    int exit_code;                /* of wait(2); -1: a signal ended it */
    int signal;                   /* 0: none */
    int64_t wall_ns, cpu_ns;
    uint64_t memory_bytes; /* peak, beyond the interpreter itself */
    uint32_t timeout_ms, cpu_ms, memory_mib;
};
typedef void isolate_done(void *arg, const struct isolate_result *r /* NULL on error */,
                          const struct err *e);

bool isolate_language_ok(const char *name);
/* NULL + e: refused at once. Otherwise done is called once, later, unless cancelled first. */
struct isolate_call *isolate_eval(struct core *c, const struct isolate_spec *s, isolate_done *done,
                                  void *arg, struct err *e);
void isolate_cancel(struct isolate_call *k); /* its process is killed; no callback */

/* For core. */
bool isolate_on_exit(struct core *c, const struct sp_exit *ex); /* false: not one of ours */
void isolate_drop_template(struct core *c, const char *template_id, void (*done)(void *arg),
                           void *arg); /* "": all of them */
void isolate_spawner_lost(struct core *c);
void isolates_init(struct core *c);
void isolate_free(struct core *c);

/* What became of a call, from the facts the warden and the kernel reported. */
struct isolate_facts {
    int status;
    unsigned cut;
    int64_t cpu_ns;
    uint64_t rss;
    uint32_t cpu_ms, memory_mib, timeout_ms;
    struct str result, err;
};
struct isolate_verdict {
    enum isolate_end end;
    char message[256];
    char syscall[32];
    struct str detail; /* JSON text after 'V' or 'E' */
    bool value;
};
/* JSON text of an error, in place: \u0000 and halves of surrogate pairs, which programs have in their messages and our reader
 * refuses, become U+FFFD. */
void isolate_mend(char *text, size_t n);
/* -1 + e: the process never got as far as the caller's code. */
int isolate_judge(const struct isolate_facts *f, struct isolate_verdict *ret, struct err *e);
