/* Every deadline is monotonic int64_t nanoseconds; wall time is for people. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL
static inline int64_t clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}
static inline int64_t clock_mono(void) { return clock_read(CLOCK_MONOTONIC); }
static inline int64_t clock_wall(void) { return clock_read(CLOCK_REALTIME); }
/* RFC 3339 in UTC with milliseconds: "2026-01-02T03:04:05.678Z" */
static inline void clock_rfc3339(int64_t wall_ns, char out[32])
{
    time_t s = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&s, &tm);
    (void)snprintf(out, 32, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                   tm.tm_min, tm.tm_sec, (int)(wall_ns % NS_PER_S / NS_PER_MS));
}
/* The same form back; 0 if it is not one. */
static inline int64_t clock_parse_rfc3339(const char *s)
{
    struct tm tm = {0};
    int ms = 0;
    if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms) < 6)
        return 0;
    tm.tm_year -= 1900, tm.tm_mon -= 1;
    return (int64_t)timegm(&tm) * NS_PER_S + ms * NS_PER_MS;
}
