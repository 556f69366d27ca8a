"""perf_event_open."""
from attack import attack
from hutchtest import *


@attack("perf-event")
def perf(t, a):
    r = a.both("""
        attr = struct.pack("<IIQ", 1, 112, 0) + bytes(96)
        for name, pid, cpu in (("self", 0, -1), ("all-cpu0", -1, 0), ("pid1", 1, -1)):
            tryit(name, lambda p=pid, c=cpu: sc(298, ctypes.c_char_p(attr), p, c, -1, 0))
    """)
    a.judge(r)
    a.alive()
