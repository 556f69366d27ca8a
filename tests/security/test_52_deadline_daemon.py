"""A daemon that leaves no trace of where it came from does not outlive the deadline of its command."""
from attack import attack
from hutchtest import *

# Two forks, a session of its own, no environment, no descriptor, another name; as deep as one likes.
DAEMON = r"""
import os, sys, time
def away():
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
if os.fork() == 0:
    away(); away()
    for fd in range(3): os.close(fd)
    os.chdir("/")
    os.execve("/bin/sleep", ["innocent", "987"], {})
time.sleep(1)
print("up", flush=True)
time.sleep(600)
"""


def innocents(box):
    return box.ok("pgrep -x -f 'innocent 987' | wc -l", user="root").strip()


@attack("deadline-daemon")
def deadline(t, a):
    for user in ("user", "root"):
        r = a.box.exec(["python3", "-c", DAEMON], user=user, timeout_ms=4000, deadline=60)
        equal(r.exit["kind"], "timeout")
        contains(r.text, "up")
        equal(innocents(a.box), "0", f"daemons of {user} that survived")
    a.must_live()


@attack("deadline-daemon")
def only_its_own(t, a):
    """The same daemon of another command is left alone; the tree's kill by hand finds it as well."""
    with a.box.stream(["python3", "-c", DAEMON], user="user", deadline=60) as s:
        s.wait_output(b"up")
        r = a.box.exec("sleep 30", user="user", timeout_ms=300, deadline=30)
        equal(r.exit["kind"], "timeout")
        equal(innocents(a.box), "1", "of the other command")
    a.must_live()


@attack("deadline-daemon", tier_names=("container",))
def the_mark_cannot_be_left(t, a):
    """It is a cgroup namespace: nobody inside may make or join another."""
    r = a.both("""
        tryit("unshare", lambda: sc(272, 0x2000000))
        tryit("setns", lambda: sc(308, os.open("/proc/1/ns/cgroup", os.O_RDONLY), 0x2000000))
        tryit("clone", lambda: sc(56, 0x2000000 | 17, 0, 0, 0, 0) and None)
    """)
    equal({k: v for k, v in r.items() if v.startswith("ok")}, {})
    a.must_live()
