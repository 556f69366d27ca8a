"""The devices that are there: few, and none that leads out."""
import os

from attack import attack
from hutchtest import *


@attack("device-nodes")
def list_of_devices(t, a):
    names = set(a.box.ok("find /dev \\( -type b -o -type c \\) -printf '%P %y\\n'", user="root").splitlines())
    t.note(f"{len(names)} device nodes")
    if t.tier == "container":
        blocks = [n for n in names if n.endswith(" b")]
        equal(blocks, [], "block devices in a container")
        allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/ptmx", "console"}
        odd = [n for n in names if n.split()[0] not in allowed and not n.startswith("pts/")]
        equal(odd, [], "device nodes in a container")
    r = a.both("""
        for p in ("mem", "kmem", "port", "kvm", "vhost-net", "vhost-vsock", "vsock", "fuse", "net/tun", "loop-control", "mapper/control", "kmsg", "vda", "vda1", "loop0", "nvram", "cpu/0/msr", "rtc0", "hpet", "snapshot", "uinput"):
            tryit(p, lambda p=p: os.close(os.open("/dev/" + p, os.O_RDWR)))
    """)
    a.judge(r)
    a.alive()
