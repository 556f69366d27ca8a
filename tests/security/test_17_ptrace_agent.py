"""The agent (PID 1) as a target: ptrace, its memory, its descriptors."""
import os

from attack import attack
from hutchtest import *


@attack("ptrace-agent")
def pid1(t, a):
    r = a.both("""
        libc.ptrace.restype = ctypes.c_long
        def ptrace(req, pid):
            ctypes.set_errno(0)
            if libc.ptrace(req, pid, None, None) == -1:
                e = ctypes.get_errno(); raise OSError(e, os.strerror(e))
        def attach():
            ptrace(16, 1)
            os.waitpid(1, 0x40000000)
            ptrace(17, 1)
        tryit("attach", attach)
        tryit("seize", lambda: ptrace(0x4206, 1))
        tryit("mem-read", lambda: os.close(os.open("/proc/1/mem", os.O_RDONLY)))
        tryit("mem-write", lambda: os.close(os.open("/proc/1/mem", os.O_RDWR)))
        tryit("maps", lambda: open("/proc/1/maps").read(1))
        tryit("environ", lambda: open("/proc/1/environ").read())
        tryit("fd-list", lambda: os.listdir("/proc/1/fd"))
        tryit("root", lambda: os.listdir("/proc/1/root"))
        def vmread():
            buf = ctypes.create_string_buffer(64)
            class iov(ctypes.Structure): _fields_ = [("b", ctypes.c_void_p), ("l", ctypes.c_size_t)]
            l = iov(ctypes.addressof(buf), 64); rr = iov(0x400000, 64)
            sc(310, 1, ctypes.byref(l), 1, ctypes.byref(rr), 1, 0)
        tryit("process_vm_readv", vmread)
        def getfd():
            p = sc(434, 1, 0)
            for n in range(64):
                try:
                    return os.close(sc(438, p, n, 0))
                except OSError as e:
                    last = e
                    if e.errno != errno.EBADF: raise
            raise last
        tryit("pidfd_getfd", getfd)
        tryit("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
        tryit("sched_affinity", lambda: os.sched_setaffinity(1, {0}))
        tryit("rlimit", lambda: sc(302, 1, 7, ctypes.c_char_p(struct.pack("QQ", 3, 3)), 0))
    """)
    serious = {k: v for k, v in r.items() if k.split()[0] in ("attach", "seize", "mem-read", "mem-write", "process_vm_readv", "pidfd_getfd", "rlimit", "environ")}
    a.judge(serious, also=[k for k in serious if k.endswith("as user")])
    a.alive()
