"""io_uring: a second way into the kernel past a syscall filter."""
from attack import attack
from hutchtest import *


@attack("io-uring")
def rings(t, a):
    r = a.both("""
        params = ctypes.create_string_buffer(120)
        tryit("setup", lambda: sc(425, 8, ctypes.byref(params)))
        tryit("enter", lambda: sc(426, 0, 0, 0, 0, 0, 0))
        tryit("register", lambda: sc(427, 0, 0, 0, 0))
    """)
    if a.refused:
        for k, v in r.items():
            true(v in ("EPERM", "ENOSYS", "EACCES", "SIGSYS"), f"{k}: {v}")
    a.judge(r)
    a.alive()
