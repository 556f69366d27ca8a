"""All file descriptors a process, many processes and the kernel will give."""
import os

from attack import attack
from hutchtest import *


@attack("fd-exhaustion")
def descriptors(t, a):
    r = a.python("""
        import resource
        kids = []
        for k in range(40):
            p = os.fork()
            if p == 0:
                fds = []
                try:
                    while True: fds.append(os.pipe())
                except OSError: pass
                time.sleep(3)
                os._exit(0)
            kids.append(p)
        time.sleep(2)
        print("held")
    """, timeout_ms=40000, deadline=60)
    true(r.exit["kind"] in ("exit", "oom", "timeout"), r)
    a.must_live()


@attack("fd-exhaustion")
def agent_keeps_its_own(t, a):
    """Streams and watches that are opened and left: the agent must not run out of descriptors."""
    for _ in range(150):
        a.box.stream(["sleep", "100"]).abort()
    a.must_live()
    equal(a.box.ok(["echo", "x"]), "x\n")
