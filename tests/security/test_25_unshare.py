"""Namespaces in namespaces: new user namespaces reopen kernel surface and are refused in a container."""
import os

from attack import attack
from hutchtest import *


@attack("unshare")
def chains(t, a):
    r = a.both("""
        flags = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
        for n, f in flags.items():
            tryit("unshare-" + n, lambda f=f: sc(272, f))
            tryit("user+" + n, lambda f=f: sc(272, f | 0x10000000))
        def deep():
            for i in range(33):
                sc(272, 0x10000000)
            return "32 levels"
        tryit("deep", deep)
        def cl(f):
            p = sc(56, f | 17, 0, 0, 0, 0)
            if p == 0: os._exit(0)
            os.waitpid(p, 0)
        for n, f in flags.items():
            if n != "time": tryit("clone-" + n, lambda f=f: cl(f))
    """)
    a.judge(r)
    a.alive()
