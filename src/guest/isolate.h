/* hutch-agent as the warden of an isolate: PID 1 of a jail that holds one
 * interpreter, loaded and waiting (zygote/zygote.c). Per request one process,
 * forked from it, given pipes, limited, waited for, gone. The warden never
 * parses what such a process says: it counts bytes, nanoseconds and statuses.
 *
 *   isolate.c   the interpreter: found, started, started again; requests
 *   iso_call.c  one call: payload, process, pipes, limits, end */
#pragma once
#include "guest/agent.h"
#include "wire/zygote.h"

#define ISO_CALLS_MAX 128

struct iso_lang {
    const char *name;
    const char *program;      /* looked for in /usr/local/bin, /usr/bin, /bin */
    const char *const *args;  /* after the program */
    uint64_t space;           /* address space a call may reserve beyond its memory */
};
const struct iso_lang *iso_lang(const char *name); /* NULL: unknown */

/* Ended before the note came that it had started. */
struct iso_early { pid_t pid; int status; int64_t cpu_ns; uint64_t rss; };

struct iso {
    const struct iso_lang *lang;
    pid_t zygote;            /* 0: none */
    bool ready;
    uint64_t rss;            /* bytes that a call begins with */
    uint64_t data;           /* bytes that may be written in it: a call has them beside its limit, see own_data of zygote.c */
    struct io sock, err;     /* to the library; the interpreter's stderr until it is ready */
    char tail[512];          /* last words on it */
    unsigned ntail;
    struct timer start;      /* it must get ready */
    struct list calls;       /* all that have no end yet */
    unsigned ncalls;
    uint64_t next_id;
    struct iso_early early[ISO_CALLS_MAX];
    unsigned nearly;
};

int iso_init(struct agent *a, const char *lang, struct err *e);
void iso_fini(struct agent *a);
void iso_request(struct agent *a, uint32_t id, uint8_t op, struct rec r);
void iso_reap(struct agent *a);

/* iso_call.c */
void iso_call(const struct req *q);
void iso_call_ready(struct agent *a);                             /* hand over every call that waits for an interpreter */
void iso_call_started(struct agent *a, const struct zy_note *n);
bool iso_call_exited(struct agent *a, const struct iso_early *x); /* false: no call has that pid (yet) */
void iso_calls_fail(struct agent *a, const struct err *e);
bool iso_calls_nameless(struct agent *a); /* some call was handed over and its pid is not known yet */
