"""userfaultfd: the tool that makes kernel races easy."""
import os

from attack import attack
from hutchtest import *


@attack("userfaultfd")
def uffd(t, a):
    r = a.both("""
        tryit("plain", lambda: sc(323, 0))
        tryit("user-mode-only", lambda: sc(323, 1))
        tryit("device", lambda: os.close(os.open("/dev/userfaultfd", os.O_RDWR)))
    """)
    a.judge(r)
    a.alive()
