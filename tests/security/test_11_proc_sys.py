"""Kernel settings through /proc/sys."""
from attack import attack
from hutchtest import *


@attack("proc-sys")
def write_settings(t, a):
    r = a.both("""
        for p, v in (("kernel/hostname", "owned"), ("kernel/domainname", "owned"), ("kernel/panic", "1"), ("kernel/modprobe", "/tmp/x"), ("kernel/randomize_va_space", "0"),
                     ("vm/overcommit_memory", "1"), ("vm/drop_caches", "3"), ("fs/protected_symlinks", "0"), ("kernel/sysrq", "1"), ("kernel/unprivileged_bpf_disabled", "0"),
                     ("kernel/yama/ptrace_scope", "0"), ("fs/file-max", "10"), ("kernel/pid_max", "301"), ("kernel/threads-max", "100"), ("vm/swappiness", "1")):
            tryit(p, lambda p=p, v=v: write("/proc/sys/" + p, v))
    """)
    a.judge(r)
    for k, v in r.items():
        if k.endswith("as user"):
            true(not v.startswith("ok"), f"{k} worked")
    a.alive()
