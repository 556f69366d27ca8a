"""Heap without end: the sandbox's own limit, reported as oom."""
import os

from attack import attack
from hutchtest import *


@attack("memory-heap", memory_mib=256)
def heap(t, a):
    before = a_host_memory()
    r = a.python("""
        x = []
        while True:
            x.append(bytearray(8 << 20))
    """, timeout_ms=60000, deadline=90)
    equal(r.exit["kind"], "oom", r)
    a.must_live()
    within(before - a_host_memory(), -100000, 700, "MiB the host lost")


@attack("memory-heap", memory_mib=256)
def many_processes_share_the_limit(t, a):
    r = a.python("""
        kids = []
        for i in range(12):
            p = os.fork()
            if p == 0:
                x = bytearray(60 << 20)
                for i in range(0, len(x), 4096): x[i] = 1
                time.sleep(6)
                os._exit(0)
            kids.append(p)
        dead = 0
        for p in kids:
            _, st = os.waitpid(p, 0)
            dead += os.WIFSIGNALED(st)
        print("dead", dead)
    """, timeout_ms=60000, deadline=90)
    if r.exit["kind"] == "exit":
        true(int(r.text.split()[1]) > 0, "720 MiB fitted into 256")
    else:
        true(r.exit["kind"] in ("oom", "signal", "timeout"), r)
    a.alive(60)


def a_host_memory():
    from attack import Host
    return Host.mem_available()
