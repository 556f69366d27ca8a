#include "base/err.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct { const char *name; int http, exit, retryable; } table[E_CODE_MAX] = {
    [E_OK]              = {"ok",              200, 0,   0},
    [E_INVALID]         = {"invalid",         400, 64,  0},
    [E_UNAUTHENTICATED] = {"unauthenticated", 401, 77,  0},
    [E_DENIED]          = {"denied",          403, 77,  0},
    [E_NOT_FOUND]       = {"not_found",       404, 66,  0},
    [E_CONFLICT]        = {"conflict",        409, 73,  0},
    [E_GONE]            = {"gone",            410, 66,  0},
    [E_TOO_LARGE]       = {"too_large",       413, 65,  0},
    [E_QUOTA]           = {"quota",           429, 75,  0},
    [E_RATE]            = {"rate",            429, 75,  1},
    [E_TIMEOUT]         = {"timeout",         504, 124, 1},
    [E_CANCELED]        = {"canceled",        499, 130, 0},
    [E_UNAVAILABLE]     = {"unavailable",     503, 69,  1},
    [E_UNSUPPORTED]     = {"unsupported",     501, 69,  0},
    [E_GUEST]           = {"guest",           502, 70,  0},
    [E_INTERNAL]        = {"internal",        500, 70,  0},
    [E_FORBIDDEN]       = {"forbidden",       403, 77,  0},
};
/* clang-format on */

static const char *const whys[REASON_MAX] = {
    [REASON_NONE] = "",
    [REASON_NO_SANDBOX] = "unknown_sandbox",
    [REASON_NO_TEMPLATE] = "unknown_template",
    [REASON_NO_SNAPSHOT] = "unknown_snapshot",
    [REASON_NO_VOLUME] = "unknown_volume",
    [REASON_NO_SECRET] = "unknown_secret",
    [REASON_NO_KEY] = "unknown_key",
    [REASON_NO_PROCESS] = "unknown_process",
    [REASON_NO_FILE] = "unknown_file",
    [REASON_NO_CONTEXT] = "unknown_context",
    [REASON_NO_ROUTE] = "unknown_route",
    [REASON_PROGRAM_MISSING] = "program_missing",
    [REASON_PROGRAM_DENIED] = "program_not_executable",
    [REASON_CWD_MISSING] = "cwd_missing",
    [REASON_STEP_FAILED] = "step_failed",
    [REASON_AGENT_SILENT] = "agent_silent",
    [REASON_TRUST_STORE] = "trust_store",
    [REASON_DISK_FULL] = "disk_full",
    [REASON_FILE_DENIED] = "file_denied",
    [REASON_FILE_LARGE] = "file_too_large",
    [REASON_PAUSED] = "sandbox_paused",
    [REASON_FAILED] = "sandbox_failed",
    [REASON_ENDED] = "sandbox_ended",
    [REASON_BUSY] = "sandbox_busy",
    [REASON_NAME_TAKEN] = "name_taken",
    [REASON_TEMPLATE_USED] = "template_in_use",
    [REASON_VOLUME_USED] = "volume_in_use",
    [REASON_NO_MEMORY] = "no_memory",
    [REASON_BAD_VALUE] = "bad_value",
    [REASON_BAD_POLICY] = "bad_policy",
    [REASON_BAD_RECIPE] = "bad_recipe",
    [REASON_BAD_HOST] = "bad_host",
    [REASON_BAD_ORIGIN] = "bad_origin",
    [REASON_SOCKET_ONLY] = "socket_only",
    [REASON_API_KEY] = "api_key",
    [REASON_TOO_LARGE] = "too_large",
    [REASON_HOST_CANNOT] = "host_cannot",
    [REASON_PRESET] = "preset",
    [REASON_LIMIT] = "limit",
    [REASON_TRY_AGAIN] = "try_again",
    [REASON_TIMEOUT] = "timeout",
    [REASON_INTERNAL] = "internal",
    [REASON_GUEST_BOOT] = "guest_boot",
    [REASON_NO_LANGUAGE] = "unknown_language",
    [REASON_CONTEXT_LIMIT] = "context_limit",
    [REASON_ISOLATE_LANGUAGE] = "isolate_language",
    [REASON_ISOLATE_ENDED] = "isolate_ended",
    [REASON_ISOLATE_BUSY] = "isolate_busy",
    [REASON_ROLE] = "role",
    [REASON_SCOPE] = "scope",
};

static unsigned idx(enum err_code c) { return (unsigned)c < E_CODE_MAX ? (unsigned)c : (unsigned)E_INTERNAL; }
const char *err_name(enum err_code c) { return table[idx(c)].name; }
int err_http(enum err_code c) { return table[idx(c)].http; }
int err_exit(enum err_code c) { return table[idx(c)].exit; }
int err_retryable(enum err_code c) { return table[idx(c)].retryable; }

enum err_code err_from_name(const char *s)
{
    for (unsigned i = 0; i < E_CODE_MAX; i++)
        if (!strcmp(table[i].name, s))
            return (enum err_code)i;
    return E_INTERNAL;
}

const char *err_why_name(enum err_why why) { return (unsigned)why < REASON_MAX ? whys[why] : ""; }

enum err_why err_why_from_name(const char *s)
{
    for (unsigned i = REASON_NONE + 1; i < REASON_MAX; i++)
        if (!strcmp(whys[i], s))
            return (enum err_why)i;
    return REASON_NONE;
}

enum err_code err_from_errno(int sys)
{
    switch (sys) {
    case ENOENT: case ESRCH: case ENODEV: case ENXIO:
        return E_NOT_FOUND;
    case EEXIST: case EBUSY: case ENOTEMPTY: case ETXTBSY:
        return E_CONFLICT;
    case EACCES: case EPERM: case EROFS:
        return E_DENIED;
    case EINVAL: case ENOTDIR: case EISDIR: case ENAMETOOLONG: case ELOOP: case EBADMSG: case EXDEV:
        return E_INVALID;
    case ENOSPC: case EDQUOT: case EMFILE: case ENFILE: case ENOMEM: case EAGAIN: case EFBIG:
        return E_QUOTA;
    case ETIMEDOUT:
        return E_TIMEOUT;
    case ECONNREFUSED: case ECONNRESET: case EPIPE: case ENOTCONN:
        return E_UNAVAILABLE;
    case ENOSYS: case EOPNOTSUPP: case EAFNOSUPPORT: case EPROTONOSUPPORT:
        return E_UNSUPPORTED;
    case ECANCELED: case EINTR:
        return E_CANCELED;
    default:
        return E_INTERNAL;
    }
}

void err_of_host(struct err *e)
{
    if (e->sys && (e->code == E_INVALID || e->code == E_DENIED))
        e->code = E_INTERNAL;
}

int err_vset(struct err *e, enum err_code c, const char *fmt, va_list ap)
{
    if (!e)
        return -1;
    e->code = c;
    e->sys = 0;
    e->why = REASON_NONE;
    (void)vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    return -1;
}

int err_set(struct err *e, enum err_code c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, c, fmt, ap);
    va_end(ap);
    return -1;
}

int err_because(struct err *e, enum err_why why)
{
    if (e)
        e->why = (uint16_t)why;
    return -1;
}

int err_why(struct err *e, enum err_why why, enum err_code c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, c, fmt, ap);
    va_end(ap);
    return err_because(e, why);
}

int err_sys(struct err *e, int sys, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, err_from_errno(sys), fmt, ap);
    va_end(ap);
    e->sys = (int16_t)sys;
    size_t n = strlen(e->msg);
    (void)snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(sys));
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    char out[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, sizeof out, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n > sizeof out - 4)
        return -1; /* no room: keep the cause, drop the context */
    size_t at = (size_t)n, tail = strlen(e->msg);
    out[at++] = ':', out[at++] = ' ';
    if (tail > sizeof out - 1 - at)
        tail = sizeof out - 1 - at;
    memcpy(out + at, e->msg, tail);
    out[at + tail] = 0;
    memcpy(e->msg, out, sizeof out);
    return -1;
}
