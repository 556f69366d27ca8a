"""What the systemd unit asks of hutchd: it tells when it is ready, and it works under the unit's limits."""
import os
import re
import socket
import tempfile

from hutchtest import *
from daemon import BUILD, REPO, Daemon

UNIT = os.path.join(REPO, "tools/hutchd.service.in")

# The unit's limits by hand, as far as they have a meaning without systemd; PrivateTmp is left out, since the tests live in /tmp.
WRAPPER = r"""#!/bin/sh
exec unshare --mount --propagation slave sh -ec '
    for d in {readonly}; do
        [ ! -d $d ] || {{ mount --rbind $d $d && mount -o remount,bind,ro $d; }}
    done
    ! touch /etc/hutch-test-write 2>/dev/null
    exec setpriv --no-new-privs --bounding-set {caps} {hutchd}'
"""


def setting(name):
    with open(UNIT) as f:
        return re.search(rf"^{name}=(.*)$", f.read(), re.M)[1]


def limited(bin_dir):
    equal((setting("NoNewPrivileges"), setting("ProtectSystem"), setting("ProtectHome")), ("yes", "full", "read-only"))
    caps = setting("CapabilityBoundingSet")
    true(caps.startswith("~"))
    drop = ",".join("-" + c.removeprefix("CAP_").lower() for c in caps[1:].split())
    path = os.path.join(bin_dir, "hutchd")
    with open(path, "w") as f:
        f.write(WRAPPER.format(readonly="/usr /boot /etc /home /root", caps=drop, hutchd=os.path.join(BUILD, "hutchd")))
    os.chmod(path, 0o755)


def spawner(d):
    """pid of the hutch-spawn of this daemon"""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                argv = f.read().split(b"\0")
        except OSError:
            continue
        if argv[0].endswith(b"hutch-spawn") and d.run.encode() in argv:
            return int(pid)
    raise AssertionError("no hutch-spawn")


@tiers("vm", "container")
@timeout(150)
def works_under_the_limits_of_the_unit(t):
    with tempfile.TemporaryDirectory() as top:
        limited(top)
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind(os.path.join(top, "notify"))
        told.settimeout(10)
        os.chmod(top, 0o755)  # as systemd's: the daemon has given root up when it tells
        os.chmod(os.path.join(top, "notify"), 0o777)
        d = Daemon(env={"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "0", "NOTIFY_SOCKET": os.path.join(top, "notify")}, name="unit")
        d.bin = top
        try:
            d.start(settle=False)
            equal(told.recv(100), b"READY=1")
            pid = spawner(d)
            with open(f"/proc/{pid}/status") as f:
                status = f.read()
            equal(re.search(r"NoNewPrivs:\t(\d)", status)[1], "1")
            bound = int(re.search(r"CapBnd:\t(\w+)", status)[1], 16)
            equal(bound & (1 << 16 | 1 << 22 | 1 << 25), 0)  # modules, reboot, clock
            true(bound & (1 << 21))
            with open(f"/proc/{pid}/environ", "rb") as f:
                true(b"NOTIFY_SOCKET" not in f.read())
            box = d.client.post("/v1/sandboxes", {"isolation": t.tier, "template": "base"}, deadline=100.0)
            got = d.client.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["sh", "-c", "echo hello; id -u; mount -t tmpfs x /mnt 2>&1 | head -c 1; touch /tmp/f && echo wrote"]})
            true("hello" in got["stdout"] and "wrote" in got["stdout"], got)
            left = d.stop()
            equal(told.recv(100), b"STOPPING=1")
            equal(left, [])
        except BaseException:
            d.kill_everything()
            d.scrub()
            raise
        finally:
            d.destroy()
            told.close()
