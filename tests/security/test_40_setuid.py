"""Setuid binaries and file capabilities: inside they may matter (sudo works), outside they never do."""
import os

from attack import attack
from hutchtest import *


@attack("setuid")
def inside_only(t, a):
    a.box.ok("cp /bin/bash /home/user/rootsh; chown root:root /home/user/rootsh; chmod 6755 /home/user/rootsh; cp /usr/bin/id /home/user/rid; chown root /home/user/rid; chmod 4755 /home/user/rid", user="root")
    a.box.exec(["/home/user/rid", "-u"])
    # Root inside is nobody outside: no process of this sandbox runs with a uid of the host's users.
    for p in t.d.census.mine():
        if p.comm.startswith("hutch") and p.comm != "hutch-agent":
            continue
        try:
            with open(f"/proc/{p.pid}/status") as f:
                uids = next(l for l in f if l.startswith("Uid:")).split()[1:]
        except OSError:
            continue
        true(all(int(u) >= 1000 for u in uids), f"{p.comm} runs as {uids} on the host")


@attack("setuid")
def files_stay_foreign(t, a):
    """Nothing a sandbox writes becomes a setuid file of root on the host's disk."""
    a.box.ok("cp /bin/true /home/user/s; chmod 6777 /home/user/s; sync", user="root")
    for top, _, files in os.walk(os.path.join(t.d.home, "boxes")):
        for f in files:
            st = os.lstat(os.path.join(top, f))
            true(not (st.st_mode & 0o6000), f"{f} is setuid on the host")


@attack("setuid")
def no_capabilities_outside(t, a):
    text = a.box.ok(["cat", "/proc/self/status"], user="root")
    t.note("CapEff " + text.split("CapEff:")[1].split()[0])
    if t.tier == "container":
        for p in t.d.census.mine():
            if p.comm.startswith("hutch") and p.comm != "hutch-agent":
                continue
            try:
                with open(f"/proc/{p.pid}/status") as f:
                    st = f.read()
                ns, mine = os.readlink(f"/proc/{p.pid}/ns/user"), os.readlink("/proc/self/ns/user")
            except OSError:
                continue
            true(ns != mine or "CapEff:\t0000000000000000" in st, f"{p.comm} holds capabilities in the host's user namespace")
            contains(st, "NoNewPrivs:\t1" if p.comm == "qemu-system-x86" else "Seccomp:\t2")
