"""Memory eaten through tmpfs and memfd: the same limit counts it."""
import os

from attack import attack
from hutchtest import *


@attack("memory-tmpfs", memory_mib=256)
def tmpfs(t, a):
    r = a.attempts("user", """
        def first():  # the kernel may choose any process of the sandbox: not the one that reports
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write("1000")
        def fill(path):
            first()
            n = 0
            with open(path, "wb") as f:
                while n < 2048:
                    f.write(bytes(1 << 20)); n += 1
            return n
        tryit("shm", lambda: fill("/dev/shm/x"), 50)
        try: os.unlink("/dev/shm/x")
        except OSError: pass
        def memfd():
            first()
            fd = os.memfd_create("x")
            n = 0
            while n < 2048:
                os.write(fd, bytes(1 << 20)); n += 1
            return n
        tryit("memfd", memfd, 50)
    """, deadline=115, timeout_ms=110000)
    for k, v in r.items():
        true(not v.startswith("ok"), f"{k}: 2 GiB fitted into a sandbox of 256 MiB")
    a.alive(60)
