"""/proc/sysrq-trigger: the host must not hear it."""
from attack import attack
from hutchtest import *


@attack("sysrq")
def trigger(t, a):
    r = a.both("""
        for c in "shmw":
            tryit("sysrq-" + c, lambda c=c: write("/proc/sysrq-trigger", c))
    """)
    a.judge(r, also=[k for k in r if k.endswith("as user")])
    a.alive()
