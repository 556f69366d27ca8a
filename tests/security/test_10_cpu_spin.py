"""All the CPU there is: the quota holds it, the neighbour still answers."""
from attack import attack, hold
from hutchtest import *


@attack("cpu-spin")
def spin(t, a):
    for _ in range(6):
        a.box.background("while :; do :; done", timeout_ms=9000)
    m = a.box.metrics()
    hold(6)
    used = (a.box.metrics()["cpu_ns"] - m["cpu_ns"]) / 1e9
    within(used, 1.0, 9.5, "CPU seconds in at least 6 s at one core")
