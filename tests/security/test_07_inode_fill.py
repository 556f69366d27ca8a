"""Empty files without end: inodes are capped too."""
import os

from attack import attack
from hutchtest import *


@attack("inode-fill", limit=130, disk_mib=2048)
def inodes(t, a):
    r = a.python("""
        os.makedirs("/var/i")
        n = 0
        end = time.monotonic() + 25
        try:
            while time.monotonic() < end:
                os.close(os.open("/var/i/%d" % n, os.O_CREAT | os.O_WRONLY)); n += 1
            print("time", n)
        except OSError as e:
            print(errno.errorcode[e.errno], n)
    """, timeout_ms=100000, deadline=110)
    true(r.text.startswith(("ENOSPC", "EDQUOT", "time")) or r.exit["kind"] != "exit", r)
    t.note(r.text.strip())
    # Whatever was made inside lies in one image: the host's own table holds a handful of files for this sandbox.
    held = sum(len(f) + len(d) for _, d, f in os.walk(os.path.join(t.d.home, "boxes")))
    true(held < 200, f"{held} files on the host")
    a.must_live(60)
