"""Terminals and watches until there are no more."""
import os

from attack import attack
from hutchtest import *


@attack("pty-exhaustion")
def terminals(t, a):
    r = a.attempts("user", """
        def ptys():
            n = 0
            held = []
            try:
                while n < 20000:
                    held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)); n += 1
            except OSError as e:
                return "%d %s" % (n, errno.errorcode[e.errno])
            return "%d endless" % n
        tryit("ptmx", ptys)
        def watches():
            fd = libc.inotify_init1(0)
            n = 0
            os.makedirs("/tmp/w", exist_ok=True)
            while n < 200000:
                os.mkdir("/tmp/w/%d" % n) if n < 5000 else None
                if libc.inotify_add_watch(fd, b"/tmp/w/%d" % (n % 5000), 2) < 0: return "%d stopped" % n
                n += 1
            return "%d endless" % n
        tryit("inotify", watches, 40)
    """, deadline=100, timeout_ms=90000)
    t.note(str(r))
    lacks(r["ptmx"], "endless")
    ws = a.neighbour.box.pty(cmd=["/bin/echo", "neighbours-still-get-one"])
    got, _ = ws.drain()
    contains(got, b"neighbours-still-get-one")
    a.must_live()
