#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
static char prog[24] = "hutch";
static enum log_level limit = LOG_INFO;
static int out = 2;

void log_to(int fd) { out = fd; }

void log_init(const char *program, enum log_level level)
{
    (void)snprintf(prog, sizeof prog, "%s", program);
    limit = level;
    const char *s = getenv("HUTCH_LOG");
    for (int i = 0; s && i <= LOG_DEBUG; i++)
        if (!strcasecmp(s, names[i]))
            limit = (enum log_level)i;
}

void log_msg(enum log_level l, const char *fmt, ...)
{
    if (l > limit)
        return;
    char text[1024], line[2304];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);

    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s: ", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000, names[l], prog);
    if (n < 0)
        return;
    size_t at = (size_t)n;
    for (const unsigned char *p = (const unsigned char *)text; *p && at < sizeof line - 6; p++) {
        if (*p < 0x20 || *p == 0x7f)
            at += (size_t)snprintf(line + at, 5, "\\x%02x", *p);
        else
            line[at++] = (char)*p;
    }
    line[at++] = '\n';
    ssize_t w = write(out, line, at);
    (void)w; /* a log that cannot be written has nowhere to complain */
}
