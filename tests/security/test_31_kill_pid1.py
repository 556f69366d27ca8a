"""Signals to PID 1 from inside."""
import os

from attack import attack
from hutchtest import *


@attack("kill-pid1")
def signals(t, a):
    r = a.attempts("root", """
        for s in list(range(1, 32)) + [34, 50, 64]:
            tryit(str(s), lambda s=s: os.kill(1, s))
        tryit("tgkill", lambda: sc(234, 1, 1, 9))
        tryit("pidfd", lambda: sc(424, sc(434, 1, 0), 9, 0, 0))
    """)
    a.must_live()
    u = a.attempts("user", """
        for s in (9, 15, 19): tryit(str(s), lambda s=s: os.kill(1, s))
    """)
    for k, v in u.items():
        equal(v, "EPERM", f"signal {k} to PID 1 as user")
    a.must_live()
