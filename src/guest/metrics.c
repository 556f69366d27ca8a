#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/agent.h"
#include "wire/msg.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

static uint64_t meminfo(const char *s, const char *key)
{
    const char *at = s ? strstr(s, key) : NULL;
    return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* user nice system idle iowait irq softirq steal, in clock ticks; busy = all but idle and iowait */
static uint64_t cpu_ns(void)
{
    auto_free char *s = fd_slurp_at(AT_FDCWD, "/proc/stat", 256 << 10, NULL);
    uint64_t sum = 0;
    if (!s || strncmp(s, "cpu ", 4))
        return 0;
    char *at = s + 4;
    for (int i = 0; i < 8; i++) {
        uint64_t v = strtoull(at, &at, 10);
        if (i != 3 && i != 4)
            sum += v;
    }
    return sum * (uint64_t)(NS_PER_S / sysconf(_SC_CLK_TCK));
}

void op_metrics(const struct req *q)
{
    struct buf *b = reply_begin(q->a);
    struct statvfs v;
    struct sysinfo si;
    if (q->a->vm) { /* in a container these files show the host, which knows better itself */
        auto_free char *m = fd_slurp_at(AT_FDCWD, "/proc/meminfo", 64 << 10, NULL);
        uint64_t total = meminfo(m, "MemTotal:"), avail = meminfo(m, "MemAvailable:");
        rec_put_u64(b, T_CPU_NS, cpu_ns());
        rec_put_u64(b, T_MEM_BYTES, total);
        rec_put_u64(b, T_MEM_USED, total > avail ? total - avail : 0);
        rec_put_u64(b, T_MEM_CACHE, meminfo(m, "\nCached:") + meminfo(m, "Buffers:"));
    }
    rec_put_u64(b, T_CPUS, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    if (!statvfs("/", &v)) {
        rec_put_u64(b, T_DISK_BYTES, (uint64_t)v.f_blocks * v.f_frsize);
        rec_put_u64(b, T_DISK_USED, (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize);
    }
    if (!sysinfo(&si))
        rec_put_u64(b, T_NPROC, si.procs);
    reply_send(q->a, q->id);
}
