"""Takes an agent's place on its channel and lies.

    fakeagent.py PID LIE

On the host against a container's agent: stops it with SIGSTOP and duplicates
its channel descriptor (pidfd_getfd). As root inside a VM (PID 1): takes the
port away from it by unbinding and binding the virtio console driver, then
opens it. Then waits for the next request of the host and answers with LIE (see
LIES). Frame layout: src/wire/frame.h. Stays until it is killed, so that the
channel stays open.
"""
import ctypes
import glob
import os
import select
import signal
import struct
import sys
import time

FR_REQ, FR_RES, FR_EVENT, FR_DATA, FR_EOF, FR_CREDIT = 1, 2, 3, 4, 5, 6
EV_STARTED, EV_EXIT, EV_ENTRIES = 1, 2, 3
T_MESSAGE, T_PID, T_OFFSET, T_EXIT_KIND, T_EXIT_CODE, T_ENTRY, T_NAME = 1, 23, 24, 26, 27, 43, 31
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def sc(nr, *args):
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) for a in args])
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r


def frame(epoch, kind, stream, payload=b"", chan=0, length=None, zero=0):
    return struct.pack("<IBBHI", len(payload) if length is None else length, kind, chan, zero, stream) + payload + struct.pack("<I", epoch)


def field(tag, value):
    if isinstance(value, int):
        value = struct.pack("<Q", value & (1 << 64) - 1)
    return struct.pack("<BI", tag, len(value)) + value


def nested(depth):
    b = b""
    for _ in range(depth):
        b = field(T_ENTRY, b)
    return b


STARTED = bytes([EV_STARTED]) + field(T_PID, 77) + field(T_OFFSET, 0)
EXIT0 = bytes([EV_EXIT]) + field(T_EXIT_KIND, 1) + field(T_EXIT_CODE, 0) + field(T_OFFSET, 0)

# lie: function(epoch, stream) -> bytes to write, or an iterator of them
LIES = {
    "garbage": lambda e, s: os.urandom(200_000),
    "zeros": lambda e, s: bytes(200_000),
    "ones": lambda e, s: b"\xff" * 200_000,
    "huge-length": lambda e, s: frame(e, FR_DATA, s, b"x", 1, length=0xFFFFFFF0),
    "length-over-limit": lambda e, s: frame(e, FR_DATA, s, bytes((1 << 18) + 1), 1),
    "wrong-epoch": lambda e, s: frame(e ^ 0x5A5A5A5A, FR_RES, s, b"\0"),
    "unknown-type": lambda e, s: frame(e, 99, s, b"x"),
    "request-to-the-host": lambda e, s: frame(e, FR_REQ, 7, b"\x03" + field(16, b"/bin/true")),
    "reserved-bits": lambda e, s: frame(e, FR_EVENT, s, STARTED, zero=0xFFFF),
    "unknown-channel": lambda e, s: frame(e, FR_EVENT, s, STARTED) + frame(e, FR_DATA, s, b"x" * 100, 200),
    "broken-record": lambda e, s: frame(e, FR_EVENT, s, bytes([EV_STARTED]) + b"\x17\xff\xff\xff\x7f\x01"),
    "unknown-event": lambda e, s: frame(e, FR_EVENT, s, b"\xee" + field(T_PID, 1)),
    "empty-event": lambda e, s: frame(e, FR_EVENT, s, b""),
    "empty-result": lambda e, s: frame(e, FR_RES, s, b""),
    "unknown-error-code": lambda e, s: frame(e, FR_RES, s, b"\xc8" + field(T_MESSAGE, b"x")),
    "hostile-message": lambda e, s: frame(e, FR_RES, s, b"\x04" + field(T_MESSAGE, b"\x1b]0;owned\x07\xff\xfe\n{\"error\":" * 1500)),
    "result-without-exit": lambda e, s: frame(e, FR_EVENT, s, STARTED) + frame(e, FR_RES, s, b"\0"),
    "odd-exit": lambda e, s: frame(e, FR_EVENT, s, STARTED) + frame(e, FR_EVENT, s, bytes([EV_EXIT]) + field(T_EXIT_KIND, 99) + field(T_EXIT_CODE, 1 << 63))
    + frame(e, FR_RES, s, b"\0"),
    "odd-pid": lambda e, s: frame(e, FR_EVENT, s, bytes([EV_STARTED]) + field(T_PID, (1 << 64) - 1)) + frame(e, FR_RES, s, b"\0"),
    "exit-twice": lambda e, s: (frame(e, FR_EVENT, s, STARTED) + frame(e, FR_EVENT, s, EXIT0)) * 2 + frame(e, FR_RES, s, b"\0") * 3,
    "after-the-end": lambda e, s: frame(e, FR_EVENT, s, STARTED) + frame(e, FR_EVENT, s, EXIT0) + frame(e, FR_RES, s, b"\0")
    + frame(e, FR_DATA, s, b"late" * 1000, 1) * 20 + frame(e, FR_EOF, s) * 5,
    "unknown-streams": lambda e, s: b"".join(frame(e, k, x, b"\x01", 1) for k in (FR_RES, FR_EVENT, FR_DATA, FR_EOF) for x in (0, 0xDEADBEEF, s + 1000)),
    "endless-credit": lambda e, s: frame(e, FR_CREDIT, s, b"\xff\xff\xff\xff") * 5000,
    "short-credit": lambda e, s: frame(e, FR_CREDIT, s, b"\xff"),
    "deep-records": lambda e, s: frame(e, FR_EVENT, s, bytes([EV_ENTRIES]) + nested(9000)) + frame(e, FR_RES, s, b"\0"),
    "many-events": lambda e, s: (frame(e, FR_EVENT, s, STARTED) for _ in range(200_000)),
    "past-the-credit": lambda e, s: (frame(e, FR_EVENT, s, STARTED) if i == 0 else frame(e, FR_DATA, s, bytes(65536), 1) for i in range(3000)),
    "endless-data": lambda e, s: (frame(e, FR_EVENT, s, STARTED) if i == 0 else frame(e, FR_DATA, s, bytes(65536), 1) for i in range(40_000)),
    "torn": lambda e, s: frame(e, FR_EVENT, s, STARTED)[:9],
    "sync-again": lambda e, s: b"\xff\xff\xff\xffHUTA" + struct.pack("<II", 1, 0x41414141) + frame(0x41414141, FR_EVENT, s, STARTED),
    "old-version": lambda e, s: b"\xff\xff\xff\xffHUTA" + struct.pack("<II", 0xFFFF, e),
}


def steal(pid):
    """Our duplicate of the channel of a stopped agent: the connected socket it holds."""
    os.kill(pid, signal.SIGSTOP)
    pidfd = sc(434, pid, 0)
    for n in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
        if os.readlink(f"/proc/{pid}/fd/{n}").startswith("socket:"):
            return sc(438, pidfd, n, 0)
    raise OSError(2, "no channel")


def rebind():
    """The agent's port, taken from it: its driver goes and comes back, and we are first to open it."""
    drv = "/sys/bus/virtio/drivers/virtio_console"
    for name in [x for x in os.listdir(drv) if x.startswith("virtio")]:
        for what in ("unbind", "bind"):
            with open(f"{drv}/{what}", "w") as f:
                f.write(name)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        for p in sorted(glob.glob("/dev/vport*")):
            try:
                return os.open(p, os.O_RDWR | os.O_NONBLOCK)
            except OSError:
                pass
        time.sleep(0.02)
    raise OSError(2, "no port")


class Pipe:
    def __init__(self, fd):
        self.fd, self.buf = fd, b""

    def need(self, n, seconds=60):
        end = time.monotonic() + seconds
        while len(self.buf) < n:
            r, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
            if not r:
                raise TimeoutError("no request")
            b = os.read(self.fd, 65536)
            if not b:
                raise EOFError
            self.buf += b

    def request(self):
        """(epoch, stream, op) of the next FR_REQ; other frames are skipped."""
        while True:
            self.need(12)
            n, kind, _, _, stream = struct.unpack("<IBBHI", self.buf[:12])
            if n > 1 << 18:
                self.buf = self.buf[1:]
                continue
            self.need(12 + n + 4)
            payload, tail = self.buf[12:12 + n], self.buf[12 + n:16 + n]
            self.buf = self.buf[16 + n:]
            if kind == FR_REQ:
                return struct.unpack("<I", tail)[0], stream, payload[0]

    def write(self, b):
        view = memoryview(b)
        while view:
            r, w, _ = select.select([self.fd], [self.fd], [], 30)
            if r:
                os.read(self.fd, 65536)
            if w:
                try:
                    view = view[os.write(self.fd, view[:65536]):]
                except BlockingIOError:
                    pass
            if not r and not w:
                raise TimeoutError("the host takes nothing")


def main():
    pid, lie = int(sys.argv[1]), LIES[sys.argv[2]]
    if pid == 1:
        time.sleep(1)  # our own start must have been answered
    p = Pipe(rebind() if pid == 1 else steal(pid))
    print("ready", flush=True)
    epoch, stream, _ = p.request()
    what = lie(epoch, stream)
    try:
        for b in [what] if isinstance(what, bytes) else what:
            p.write(b)
    except (OSError, TimeoutError, EOFError):
        pass
    print("lied", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
