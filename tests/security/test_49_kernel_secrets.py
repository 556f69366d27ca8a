"""What the kernel would tell: kcore, kallsyms, dmesg, key files, timers of others."""
from attack import attack
from hutchtest import *


@attack("kernel-secrets")
def read_them(t, a):
    r = a.both("""
        def rd(p):
            with open(p, "rb") as f:
                b = f.read(4096)
            if not b.strip(b"\\0"): raise OSError(errno.ENODATA, "")
            return "%d bytes" % len(b)
        for p in ("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/sys/kernel/debug/sched/debug", "/sys/firmware/acpi/tables/DSDT",
                  "/proc/latency_stats", "/proc/kpagecount", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/iomem"):
            def go(p=p):
                v = rd(p)
                if p == "/proc/iomem" and not any(l.split("-")[0].strip("0 ") for l in open(p)): raise OSError(errno.EPERM, "")
                return v
            tryit(p, go)
        tryit("syslog", lambda: sc(103, 3, ctypes.create_string_buffer(4096), 4096))
        def kallsyms():
            for l in open("/proc/kallsyms"):
                if l.split()[0].strip("0"): return "addresses"
            raise OSError(errno.EPERM, "")
        tryit("kallsyms", kallsyms)
    """)
    serious = {k: v for k, v in r.items() if not k.startswith(("/proc/key-users", "/proc/iomem", "/proc/slabinfo"))}
    a.judge(serious)
    a.alive()
