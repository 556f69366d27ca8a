"""A kernel before 6.15, played on a newer one: what such a kernel refuses is refused.

Mounts that hang nowhere (fsmount, open_tree) cannot be cloned there, nothing
can be mounted on them, and an overlay does not take its layers by descriptor.
A seccomp filter of the processes under test asks a thread here about the three
system calls, with listener and answers as in seccomp_unotify(2). The real old
kernels are in tests/stock; this costs seconds.
"""
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading

OPEN_TREE, MOVE_MOUNT, FSCONFIG = 428, 429, 431  # the same on every architecture
CLONE, SET_FD = 1, 5
SECCOMP = {"x86_64": 317, "aarch64": 277}
NOTIF, RESP = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
RECV, SEND, GO_ON = 0xC0502100, 0xC0182101, 1


def _program():
    """Load the number; one of the three: ask; else: allowed."""
    asked = (OPEN_TREE, MOVE_MOUNT, FSCONFIG)
    rows = [(0x20, 0, 0, 0)] + [(0x15, len(asked) - i, 0, nr) for i, nr in enumerate(asked)] + [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x7FC00000)]
    return b"".join(struct.pack("=HBBI", *r) for r in rows), len(rows)


class OlderKernel:
    """enter() in a child before its exec, and listen() here; whatever the child starts lives under that kernel too.
    no_clones: one that clones nothing by its descriptor alone, wherever it hangs; hutch has no way around that."""

    def __init__(self, no_clones=False):
        self.no_clones, self.refused = no_clones, 0
        self.ours, self.childs = socket.socketpair()
        self.libc = ctypes.CDLL(None, use_errno=True)

    def enter(self):
        code, n = _program()
        held = ctypes.create_string_buffer(code)
        prog = ctypes.create_string_buffer(struct.pack("@HP", n, ctypes.addressof(held)))
        fd = self.libc.syscall(SECCOMP[os.uname().machine], 1, 8, prog)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "seccomp")
        socket.send_fds(self.childs, [b"x"], [fd])
        os.close(fd)

    def listen(self):
        _, fds, _, _ = socket.recv_fds(self.ours, 1, 1)
        self.ours.close()
        self.childs.close()
        threading.Thread(target=self._serve, args=(fds[0],), daemon=True).start()

    def _serve(self, fd):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not poll.poll()[0][1] & select.POLLHUP:  # until the last of them is gone
            room = bytearray(NOTIF.size)
            try:
                fcntl.ioctl(fd, RECV, room)
                call, pid, _, nr, _, _, *args = NOTIF.unpack(room)
                bad = self._refuses(pid, nr, args)
                self.refused += bad
                fcntl.ioctl(fd, SEND, RESP.pack(call, 0, -errno.EINVAL if bad else 0, 0 if bad else GO_ON))
            except OSError as e:
                if e.errno not in (errno.ENOENT, errno.EINTR):  # ENOENT: it died meanwhile
                    raise
        os.close(fd)

    def _refuses(self, pid, nr, args):
        if nr == FSCONFIG:
            return args[1] & 0xFFFFFFFF == SET_FD
        if nr == OPEN_TREE:
            return bool(args[2] & CLONE) and (self._hangs_nowhere(pid, args[0]) or self.no_clones and self._is_empty(pid, args[1]))
        return self._hangs_nowhere(pid, args[2])  # what a mount is moved to

    @staticmethod
    def _is_empty(pid, path):
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
            f.seek(path)
            return f.read(1) == b"\0"

    @staticmethod
    def _hangs_nowhere(pid, arg):
        fd = ctypes.c_int(arg & 0xFFFFFFFF).value
        if fd < 0:
            return False  # AT_FDCWD
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}") as f:
                mnt = next(line.split()[1] for line in f if line.startswith("mnt_id:"))
            with open(f"/proc/{pid}/mountinfo") as f:
                return not any(line.split(" ", 1)[0] == mnt for line in f)
        except OSError:
            return False  # no such descriptor: the real kernel says so
