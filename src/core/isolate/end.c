#include "base/sysnr.h"
#include "core/isolate/isolate.h"
#include "wire/isolate.h"
#include "wire/zygote.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char *isolate_end_name(enum isolate_end x)
{
    static const char *const names[] = {"value", "exception", "not_json", "exit",      "timeout",
                                        "cpu",   "memory",    "output",   "forbidden", "crashed"};
    return x < ISOLATE_END_MAX ? names[x] : "crashed";
}

/* The number of the \uXXXX at p; 0x10000: there is none. */
static unsigned escape_at(const char *p, const char *end)
{
    static const char digits[] = "0123456789abcdef";
    unsigned v = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return 0x10000;
    for (int i = 2; i < 6; i++) {
        const char *at = memchr(digits, p[i] >= 'A' && p[i] <= 'F' ? p[i] | 0x20 : p[i], 16);
        if (!at)
            return 0x10000;
        v = v << 4 | (unsigned)(at - digits);
    }
    return v;
}

void isolate_mend(char *text, size_t n)
{
    char *end = text + n;
    for (char *p = text; p < end; p++) {
        if (*p != '\\')
            continue;
        unsigned v = escape_at(p, end);
        if (v >> 10 == 0xd800 >> 10 && escape_at(p + 6, end) >> 10 == 0xdc00 >> 10)
            p += 11; /* a whole pair */
        else if (v == 0 || (v >= 0xd800 && v < 0xe000))
            memcpy(p + 2, "fffd", 4);
        else
            p++; /* whatever is escaped, a backslash too */
    }
}

static int settle(struct isolate_verdict *v, enum isolate_end end, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int settle(struct isolate_verdict *v, enum isolate_end end, const char *fmt, ...)
{
    va_list ap;
    v->end = end;
    va_start(ap, fmt);
    (void)vsnprintf(v->message, sizeof v->message, fmt, ap);
    va_end(ap);
    return 0;
}

static int out_of_memory(const struct isolate_facts *f, struct isolate_verdict *v)
{
    return settle(v, ISOLATE_MEMORY, "it needed more than %u MiB", f->memory_mib);
}
static int out_of_cpu(const struct isolate_facts *f, struct isolate_verdict *v)
{
    return settle(v, ISOLATE_CPU, "it used more than %u ms of processor time", f->cpu_ms);
}

/* An interpreter that cannot go on aborts, with whatever signal: if it was about to exceed its memory then that was why. */
static bool was_full(const struct isolate_facts *f)
{
    return f->rss >= ((uint64_t)f->memory_mib << 20) / 4 * 3;
}

/* … or said so: one allocation may be so large that nothing of it was ever used. */
static bool said(const struct isolate_facts *f, const char *words)
{
    return f->err.n && memmem(f->err.p, f->err.n, words, strlen(words));
}
static bool said_memory(const struct isolate_facts *f)
{
    return said(f, "out of memory") || said(f, "bad_alloc");
}
/* PHP's last words; it leaves with a status */
static bool said_mmap(const struct isolate_facts *f)
{
    return said(f, "mmap() failed: [12] Cannot allocate memory");
}

static int crashed(const struct isolate_facts *f, struct isolate_verdict *v, int sig)
{
    if (was_full(f) || said_memory(f))
        return out_of_memory(f, v);
    return settle(v, ISOLATE_CRASHED, "the interpreter crashed with signal %d (%s)", sig,
                  strsignal(sig));
}

static int trapped(const struct isolate_facts *f, struct isolate_verdict *v, struct str *rest)
{
    struct zy_trap t;
    if (rest->n < sizeof t || memcmp(rest->p + rest->n - sizeof t, ZY_TRAP_MAGIC, 4))
        return settle(
            v, ISOLATE_FORBIDDEN,
            "it made a system call of another architecture, which an isolate does not allow");
    memcpy(&t, rest->p + rest->n - sizeof t, sizeof t);
    rest->n -= sizeof t;
    if ((int)t.nr == sysnr("tgkill") && (uint32_t)t.arg[2] == SIGABRT) /* abort(3) */
        return crashed(f, v, SIGABRT);
    const char *name = sysnr_name((int)t.nr);
    if (name)
        (void)snprintf(v->syscall, sizeof v->syscall, "%s", name);
    else
        (void)snprintf(v->syscall, sizeof v->syscall, "%u", t.nr);
    return settle(v, ISOLATE_FORBIDDEN,
                  "it made the system call %s, which an isolate does not allow", v->syscall);
}

static int signaled(const struct isolate_facts *f, struct isolate_verdict *v, struct str *rest)
{
    int sig = WTERMSIG(f->status);
    switch (sig) {
    case SIGSYS: return trapped(f, v, rest);
    case SIGXCPU: return out_of_cpu(f, v);
    case SIGKILL: /* not by the warden, and nobody else inside may: the kernel, for one of two reasons */
        return f->cpu_ns / 1000000 >= f->cpu_ms ? out_of_cpu(f, v) : out_of_memory(f, v);
    default: return crashed(f, v, sig);
    }
}

int isolate_judge(const struct isolate_facts *f, struct isolate_verdict *v, struct err *e)
{
    struct str rest = f->result;
    *v = (struct isolate_verdict){0};
    bool locked = rest.n && rest.p[0] == 'L';
    if (locked)
        rest.p++, rest.n--;
    switch (f->cut) {
    case ISO_CUT_WALL: return settle(v, ISOLATE_TIMEOUT, "it ran longer than %u ms", f->timeout_ms);
    case ISO_CUT_CPU: return out_of_cpu(f, v);
    case ISO_CUT_OUTPUT:
        return settle(v, ISOLATE_OUTPUT_LIMIT, "it printed more than max_output allows");
    case ISO_CUT_RESULT:
        return settle(v, ISOLATE_OUTPUT_LIMIT, "its value is larger than %u KiB",
                      ISOLATE_VALUE_MAX >> 10);
    default: break;
    }
    if (!locked)
        return err_set(e, E_GUEST, "the call's process could not be set up (wait status 0x%x)",
                       (unsigned)f->status);
    if (WIFSIGNALED(f->status))
        return signaled(f, v, &rest);
    int code = WEXITSTATUS(f->status);
    v->detail = rest.n ? (struct str){rest.p + 1, rest.n - 1} : (struct str){0};
    if (rest.n && rest.p[0] == 'E')
        return settle(v, ISOLATE_EXCEPTION, "the program failed");
    if (rest.n && rest.p[0] == 'V' && !code) {
        v->value = true;
        return settle(v, ISOLATE_VALUE, "%s", "");
    }
    v->detail.n = 0;
    if (!code)
        return settle(v, ISOLATE_VALUE, "%s", "");
    if ((said_memory(f) && was_full(f)) || said_mmap(f))
        return out_of_memory(f, v);
    return settle(v, ISOLATE_EXIT, "it exited with status %d", code);
}
