"""Typing into somebody else's terminal."""
import os

from attack import attack
from hutchtest import *


@attack("tiocsti")
def inject(t, a):
    """A program on a PTY may at most feed its own terminal; never one of the host (there is none inside)."""
    ws = a.box.pty(cmd=["/bin/bash", "--norc"], **{"env.PS1": "$ "})
    ws.send(b"python3 -c \"import fcntl,termios,sys\nfor c in 'echo in''jected\\\\n': fcntl.ioctl(0,termios.TIOCSTI,c.encode())\"; echo do''ne\n")
    ws.wait_for(b"done")
    ws.close()
    r = a.both("""
        import fcntl, termios
        tryit("ctty", lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
        tryit("console", lambda: fcntl.ioctl(os.open("/dev/console", os.O_RDWR), termios.TIOCSTI, b"x"))
        tryit("tty0", lambda: os.close(os.open("/dev/tty0", os.O_RDWR)))
        tryit("ttyS0", lambda: os.close(os.open("/dev/ttyS0", os.O_RDWR | os.O_NONBLOCK)))
    """)
    for k, v in r.items():
        if k.startswith("ctty"):
            true(not v.startswith("ok"), "an exec without PTY has a controlling terminal")
    if t.tier == "container":
        for k, v in r.items():
            true(not v.startswith("ok"), f"{k}: {v}")
    a.must_live()
