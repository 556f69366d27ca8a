"""clone3 hides its flags from a filter: namespaces by clone3 must be refused all the same."""
import os

from attack import attack
from hutchtest import *


@attack("clone3")
def flags_by_pointer(t, a):
    r = a.both("""
        def c3(flags):
            args = struct.pack("<8Q", flags, 0, 0, 0, 17, 0, 0, 0) + bytes(24)
            p = sc(435, ctypes.c_char_p(args), 88)
            if p == 0: os._exit(0)
            os.waitpid(p, 0)
        for n, f in (("user", 0x10000000), ("mnt", 0x20000), ("net", 0x40000000), ("pid", 0x20000000), ("user+net", 0x50000000)):
            tryit(n, lambda f=f: c3(f))
    """)
    a.judge(r)
    out = a.box.ok(["python3", "-c", "import threading; t=threading.Thread(target=print, args=('threads work',)); t.start(); t.join()"])
    equal(out, "threads work\n", "glibc must be able to fall back to clone")
    a.alive()
