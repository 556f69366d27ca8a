"""Kernel modules, kexec, and asking the kernel to load them."""
import os
import socket

from attack import attack
from hutchtest import *


@attack("module-load")
def modules(t, a):
    r = a.both("""
        tryit("init_module", lambda: sc(175, ctypes.c_char_p(b"\\x7fELF" + bytes(60)), 64, ctypes.c_char_p(b"")))
        def finit():
            fd = os.memfd_create("m")
            os.write(fd, b"\\x7fELF" + bytes(200))
            sc(313, fd, ctypes.c_char_p(b""), 0)
        tryit("finit_module", finit)
        tryit("delete_module", lambda: sc(176, ctypes.c_char_p(b"loop"), 0))
        tryit("kexec_load", lambda: sc(246, 0, 0, 0, 0))
        tryit("kexec_file_load", lambda: sc(320, -1, -1, 0, ctypes.c_char_p(b""), 0))
        def autoload():
            for fam in range(1, 46):
                try: socket.socket(fam, socket.SOCK_RAW, 0).close()
                except OSError: pass
            raise OSError(errno.EPERM, "only tried")
        tryit("autoload", autoload)
    """)
    # The bytes are no module: even where loading is allowed (vm) it fails. What counts is that the filter refuses first.
    if a.refused:
        for k, v in r.items():
            if k.split()[0] in ("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"):
                true(v in ("EPERM", "ENOSYS", "EACCES", "SIGSYS"), f"{k}: {v}")
    else:
        a.judge(r, also=[k for k in r if k.endswith("as user")])
    a.alive()
