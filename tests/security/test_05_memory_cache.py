"""The page cache of a sandbox is its own memory: reading and writing much does not push others out."""
from attack import attack
from hutchtest import *


@attack("memory-cache", memory_mib=256)
def cache(t, a):
    from attack import Host
    before = Host.mem_available()
    r = a.box.exec("dd if=/dev/zero of=big bs=1M count=%d 2>/dev/null; cat big > /dev/null; cat big > /dev/null; ls -l big | awk '{print $5}'" % (400 if t.tier == "vm" else 900), deadline=80, timeout_ms=60000)
    true(r.exit["kind"] in ("exit", "timeout"), r)
    a.must_live(60)
    a.box.ok(["rm", "-f", "big"])
    within(before - Host.mem_available(), -100000, 1500, "MiB of the host taken by one sandbox of 256")
