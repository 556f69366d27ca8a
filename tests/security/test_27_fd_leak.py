"""A fresh process has 0, 1 and 2, and nothing of ours."""
import os

from attack import attack
from hutchtest import *


@attack("fd-leak")
def three_and_no_more(t, a):
    for kw in ({}, {"user": "root"}, {"stdin": "x"}):
        out = a.box.ok(["python3", "-c", "import os\nfor f in sorted(map(int, os.listdir('/proc/self/fd'))):\n  try: print(f, os.readlink('/proc/self/fd/%d' % f))\n  except OSError: pass"], **kw)
        rows = [l.split(" ", 1) for l in out.splitlines()]
        # listdir's own descriptor is closed before readlink runs, so it does not show.
        equal([r[0] for r in rows], ["0", "1", "2"], out)
        for _, to in rows:
            true(to.startswith(("pipe:", "/dev/null")), to)
    ws = a.box.pty(cmd=["/bin/sh", "-c", "ls -l /proc/self/fd; echo en''d"])
    got = ws.wait_for(b"end").decode()
    ws.close()
    fds = [l for l in got.splitlines() if "->" in l and "/proc/" not in l]
    equal(len(fds), 3, got)
    for l in fds:
        contains(l, "/dev/pts/")


@attack("fd-leak")
def not_by_working_directory(t, a):
    """CVE-2024-21626: a working directory inside /proc/self/fd must not lead to the host."""
    for n in range(3, 24):
        try:
            r = a.box.exec(["sh", "-c", "pwd -P; ls ../../../../work 2>/dev/null"], cwd=f"/proc/self/fd/{n}")
            lacks(r.text, "main")
            lacks(r.text, t.d.home)
        except ApiError as e:
            true(e.code in ("not_found", "invalid", "denied", "guest"), e)


@attack("fd-leak")
def agent_holds_nothing_of_the_host(t, a):
    out = a.box.exec("ls -l /proc/1/fd 2>/dev/null", user="root").text
    for word in (t.d.home, t.d.run, "/work", "state.db", "hutch.sock"):
        lacks(out, word)
