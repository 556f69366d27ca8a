"""Kernel keyrings are not namespaced everywhere: closed."""
from attack import attack
from hutchtest import *


@attack("keyctl")
def keyrings(t, a):
    r = a.both("""
        tryit("add_key", lambda: sc(248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"hutch"), ctypes.c_char_p(b"x"), 1, -3))
        tryit("request_key", lambda: sc(249, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"hutch"), 0, -3))
        tryit("get_session", lambda: sc(250, 0, -3, 1))
        tryit("join", lambda: sc(250, 1, 0))
        def flood():
            for i in range(500):
                sc(248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"k%d" % i), ctypes.c_char_p(bytes(1000)), 1000, -3)
        tryit("flood", flood)
    """)
    if a.refused:
        for k, v in r.items():
            true(v in ("EPERM", "ENOSYS", "EACCES", "SIGSYS"), f"{k}: {v}")
    a.judge(r)
    a.alive()
