"""32-bit and x32 system calls slip past a filter that only knows x86-64."""
from attack import attack
from hutchtest import *


@attack("foreign-abi")
def int80_and_x32(t, a):
    r = a.both("""
        import mmap
        def code(raw):
            m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            m.write(raw)
            return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
        # mov eax,20 (getpid); int 0x80; ret
        def int80():
            v = code(bytes.fromhex("b814000000cd80c3"))
            v = ctypes.c_int(v).value
            if v < 0: raise OSError(-v, "")
            return v
        tryit("int80-getpid", int80)
        # mov eax,21 (mount) with zero arguments; int 0x80; ret
        def m80():
            v = ctypes.c_int(code(bytes.fromhex("53b81500000031db31c931d231f631ffcd805bc3"))).value
            if v < 0: raise OSError(-v, "")
        tryit("int80-mount", m80)
        # socketcall(SYS_SOCKET, …) and socket(AF_VSOCK, SOCK_STREAM, 0) of the 32-bit table: another way to a family
        def s80(raw):
            v = ctypes.c_int(code(bytes.fromhex(raw))).value
            if v < 0: raise OSError(-v, "")
        tryit("int80-socketcall", lambda: s80("53b866000000bb01000000b900000000cd805bc3"))
        tryit("int80-socket", lambda: s80("53b867010000bb28000000b90100000031d2cd805bc3"))
        tryit("x32-socket", lambda: sc(0x40000000 | 41, 40, 1, 0))
        tryit("x32-getpid", lambda: sc(0x40000000 | 39))
        tryit("x32-execve", lambda: sc(0x40000000 | 520, 0, 0, 0))
        tryit("x32-mount", lambda: sc(0x40000000 | 165, 0, 0, 0, 0, 0))
        tryit("personality-32", lambda: sc(135, 0x0008))
        tryit("high-bits", lambda: sc(39 | (1 << 40)))
        tryit("nr-huge", lambda: sc(0x7fffffff))
    """)
    # getpid is harmless; what must not happen is that a foreign number reaches a forbidden call.
    bad = {k: v for k, v in r.items() if "mount" in k or "execve" in k or (a.refused and "socket" in k)}
    for k, v in bad.items():
        true(not v.startswith("ok"), f"{k}: {v}")
    if a.refused:
        for k, v in r.items():
            if k.startswith(("int80", "x32")):
                true(v in ("SIGSYS", "ENOSYS", "EPERM", "SIGSEGV", "EACCES", "SIGKILL"), f"{k}: {v} (a foreign ABI works)")
    a.must_live()
