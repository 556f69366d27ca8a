"""Mounts of every kind."""
import os

from attack import attack
from hutchtest import *


@attack("mount")
def mounts(t, a):
    r = a.both("""
        os.makedirs("/tmp/m", exist_ok=True)
        tryit("tmpfs", lambda: mount(b"none", b"/tmp/m", b"tmpfs", 0, None))
        tryit("proc", lambda: mount(b"none", b"/tmp/m", b"proc", 0, None))
        tryit("sysfs", lambda: mount(b"none", b"/tmp/m", b"sysfs", 0, None))
        tryit("overlay", lambda: mount(b"o", b"/tmp/m", b"overlay", 0, b"lowerdir=/etc:/usr"))
        tryit("bind", lambda: mount(b"/etc", b"/tmp/m", None, 4096, None))
        tryit("remount-root", lambda: mount(None, b"/", None, 32, None))
        tryit("devtmpfs", lambda: mount(b"none", b"/tmp/m", b"devtmpfs", 0, None))
        tryit("debugfs", lambda: mount(b"none", b"/tmp/m", b"debugfs", 0, None))
        tryit("bpffs", lambda: mount(b"none", b"/tmp/m", b"bpf", 0, None))
        tryit("umount-proc", lambda: sc(166, ctypes.c_char_p(b"/proc"), 2))
        tryit("pivot_root", lambda: sc(155, ctypes.c_char_p(b"/"), ctypes.c_char_p(b"/tmp")))
        tryit("open_tree", lambda: sc(428, -100, ctypes.c_char_p(b"/etc"), 1))
        tryit("fsopen", lambda: sc(430, ctypes.c_char_p(b"tmpfs"), 0))
        tryit("move_mount", lambda: sc(429, -100, ctypes.c_char_p(b"/proc"), -100, ctypes.c_char_p(b"/tmp/m"), 0))
        tryit("mount_setattr", lambda: sc(442, -100, ctypes.c_char_p(b"/proc"), 0, ctypes.c_char_p(bytes(32)), 32))
        tryit("swapon", lambda: sc(167, ctypes.c_char_p(b"/etc/passwd"), 0))
    """)
    # An all-zero mount_setattr changes nothing and may be allowed.
    a.judge({k: v for k, v in r.items() if not k.startswith("mount_setattr")}, also=[k for k in r if k.endswith("as user") and not k.startswith("mount_setattr")])
    a.alive()


@attack("mount")
def host_paths_are_not_in_the_table(t, a):
    text = a.box.ok(["cat", "/proc/self/mountinfo"], user="root")
    for word in (t.d.home, t.d.run, "/work/", "boxes/", ".ext4"):
        lacks(text, word, "a host path in the mount table")
