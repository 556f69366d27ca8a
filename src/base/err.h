/* One error value for every process: no allocation, so it works in a jailed
 * child and crosses pipes and threads by copy. Functions return 0/-1 (or an
 * fd, or a pointer/NULL) and take `struct err *e` last; e is only written on
 * failure and may be NULL when the caller does not care.
 *
 * A message is for the user: it names the object, the limit, the remedy.
 * Host paths go to the log, not into msg; err_sys() appends the errno text. What to do next is not part of it: see enum err_why. */
#pragma once
#include <stdarg.h>
#include <stdint.h>

enum err_code {
    E_OK = 0,
    E_INVALID,         /* the request is malformed or names an impossible value */
    E_UNAUTHENTICATED, /* no key, or a wrong one */
    E_DENIED,          /* known caller, not allowed */
    E_NOT_FOUND,
    E_CONFLICT, /* exists already, or in a state that forbids this */
    E_GONE,     /* was here, is not any more */
    E_TOO_LARGE,
    E_QUOTA, /* a named limit is reached */
    E_RATE,
    E_TIMEOUT,
    E_CANCELED,
    E_UNAVAILABLE, /* may work later */
    E_UNSUPPORTED, /* this host or tier cannot do it */
    E_GUEST,       /* the inside of a sandbox misbehaved */
    E_INTERNAL,
    E_FORBIDDEN, /* the role or scope of the key does not allow it */
    E_CODE_MAX
};

/* What happened, where the code alone does not tell what to do about it. Set where the error is made; the API sends it as a
 * slug ("reason"), and each client chooses its hint by it. Appending is compatible, renaming a slug is not. */
enum err_why {
    REASON_NONE = 0,
    /* nothing of that name */
    REASON_NO_SANDBOX,
    REASON_NO_TEMPLATE,
    REASON_NO_SNAPSHOT,
    REASON_NO_VOLUME,
    REASON_NO_SECRET,
    REASON_NO_KEY,
    REASON_NO_PROCESS,
    REASON_NO_FILE,
    REASON_NO_CONTEXT,
    REASON_NO_ROUTE,
    /* inside the sandbox */
    REASON_PROGRAM_MISSING,
    REASON_PROGRAM_DENIED,
    REASON_CWD_MISSING,
    REASON_STEP_FAILED,
    REASON_AGENT_SILENT,
    REASON_TRUST_STORE,
    REASON_DISK_FULL,
    REASON_FILE_DENIED,
    REASON_FILE_LARGE,
    /* states */
    REASON_PAUSED,
    REASON_FAILED,
    REASON_ENDED,
    REASON_BUSY,
    REASON_NAME_TAKEN,
    REASON_TEMPLATE_USED,
    REASON_VOLUME_USED,
    REASON_NO_MEMORY,
    /* the request */
    REASON_BAD_VALUE,
    REASON_BAD_POLICY,
    REASON_BAD_RECIPE,
    REASON_BAD_HOST,
    REASON_BAD_ORIGIN,
    REASON_SOCKET_ONLY,
    REASON_API_KEY,
    REASON_TOO_LARGE,
    /* the host */
    REASON_HOST_CANNOT,
    REASON_PRESET,
    REASON_LIMIT,
    REASON_TRY_AGAIN,
    REASON_TIMEOUT,
    REASON_INTERNAL,
    REASON_GUEST_BOOT,
    /* code */
    REASON_NO_LANGUAGE,
    REASON_CONTEXT_LIMIT,
    REASON_ISOLATE_LANGUAGE,
    REASON_ISOLATE_ENDED,
    REASON_ISOLATE_BUSY,
    /* rights */
    REASON_ROLE,
    REASON_SCOPE,
    REASON_MAX
};

/* Its layout crosses the spawner's channel, whose two ends may be of different versions. */
struct err {
    enum err_code code;
    int16_t sys;   /* errno, 0 if none */
    uint16_t why;  /* enum err_why */
    char msg[232]; /* NUL-terminated sentence */
};

/* All return -1 so that raising is one `return`. */
int err_set(struct err *e, enum err_code c, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_sys(struct err *e, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));  /* code from errno; ": strerror" appended */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));          /* "context: earlier message" */
int err_vset(struct err *e, enum err_code c, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* err_set with the reason. */
int err_why(struct err *e, enum err_why why, enum err_code c, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int err_because(struct err *e, enum err_why why); /* gives an error that was just made its reason */
const char *err_why_name(enum err_why why);       /* "name_taken"; "" for REASON_NONE */
enum err_why err_why_from_name(const char *s);    /* REASON_NONE if unknown */

/* The one table: code -> wire name, HTTP status, CLI exit code, retryable. */
const char *err_name(enum err_code c);       /* "not_found" */
enum err_code err_from_name(const char *s);  /* E_INTERNAL if unknown */
int err_http(enum err_code c);
int err_exit(enum err_code c);
int err_retryable(enum err_code c);
enum err_code err_from_errno(int sys);
/* For who does system calls on a client's behalf, at the door to the client: what the host refused as invalid or not
 * permitted is no fault of the request, which was checked before, but the host's or ours -> E_INTERNAL. */
void err_of_host(struct err *e);
