"""Writing to /sys."""
from attack import attack
from hutchtest import *


@attack("sysfs")
def write_sysfs(t, a):
    r = a.both("""
        for p, v in (("kernel/uevent_helper", "/tmp/x"), ("kernel/mm/transparent_hugepage/enabled", "never"), ("power/state", "mem"), ("power/disk", "reboot"),
                     ("module/printk/parameters/time", "N"), ("block/vda/queue/nr_requests", "1"), ("devices/system/cpu/cpu0/online", "0"), ("kernel/profiling", "1"),
                     ("fs/cgroup/memory/memory.limit_in_bytes", "1"), ("fs/cgroup/cgroup.procs", "1"), ("kernel/slab/kmalloc-64/validate", "1")):
            tryit(p, lambda p=p, v=v: write("/sys/" + p, v))
        tryit("remount", lambda: mount(b"none", b"/sys", b"sysfs", 32, None))
    """)
    a.judge(r, also=[k for k in r if k.endswith("as user")])
    a.alive()
