/* One error value for every process: no allocation, so it works in a jailed
 * child and crosses pipes and threads by copy. Functions return 0/-1 (or an
 * fd, or a pointer/NULL) and take `struct err *e` last; e is only written on
 * failure and may be NULL when the caller does not care.
 *
 * A message is for the user: it names the object, the limit, the remedy.
 * Host paths and errno text go to the log, not into msg. */
#pragma once
#include <stdarg.h>

enum err_code {
    E_OK = 0,
    E_INVALID,         /* the request is malformed or names an impossible value */
    E_UNAUTHENTICATED, /* no key, or a wrong one */
    E_DENIED,          /* known caller, not allowed */
    E_NOT_FOUND,
    E_CONFLICT,        /* exists already, or in a state that forbids this */
    E_GONE,            /* was here, is not any more */
    E_TOO_LARGE,
    E_QUOTA,           /* a named limit is reached */
    E_RATE,
    E_TIMEOUT,
    E_CANCELED,
    E_UNAVAILABLE,     /* may work later */
    E_UNSUPPORTED,     /* this host or tier cannot do it */
    E_GUEST,           /* the inside of a sandbox misbehaved */
    E_INTERNAL,
    E_CODE_MAX
};

struct err {
    enum err_code code;
    int sys;       /* errno, 0 if none */
    char msg[232]; /* NUL-terminated sentence */
};

/* All three return -1 so that raising is one `return`. */
int err_set(struct err *e, enum err_code c, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_sys(struct err *e, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));  /* code from errno; ": strerror" appended */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));          /* "context: earlier message" */
int err_vset(struct err *e, enum err_code c, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

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
