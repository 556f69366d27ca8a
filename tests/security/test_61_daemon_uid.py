"""Whoever has taken hutchd over has its uid and its group. From there to root: every name that root uses in HOME and RUN, by
links, renames, planted files, images and locks, before root comes by and while it works."""
import contextlib
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
import textwrap
import time

import daemon as _daemon
from hutchtest import *

UID = 64882
thief = shared_daemon("thief", HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")

PRELUDE = """
import errno, os, sys
HOME, RUN, VICTIM, TMP = sys.argv[1:5]
REST = sys.argv[5:]
def tries(name, fn, *args):
    try:
        fn(*args)
    except OSError as e:
        print(name, errno.errorcode[e.errno], flush=True)
    else:
        print(name, "done", flush=True)
"""


class Taker:
    """Runs code as the daemon's uid, against one daemon; what it wants is a folder and a file of root's that it cannot write to."""

    def __init__(self, t, d=None):
        self.t, self.d = t, d or t.d
        os.chmod(t.tmp, 0o755)
        self.victim, self.tmp = os.path.join(t.tmp, "victim"), os.path.join(t.tmp, "thief")
        os.mkdir(self.victim, 0o700)
        os.mkdir(self.tmp)
        os.chown(self.tmp, UID, UID)
        with open(self.victim + "/file", "w") as f:
            f.write("root's\n")
        os.chmod(self.victim + "/file", 0o644)
        self.before = self.look()

    def look(self):
        got = {}
        for top, dirs, files in os.walk(self.victim):
            for x in [top] + [os.path.join(top, f) for f in files + dirs]:
                st = os.lstat(x)
                got[x] = (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode), st.st_size)
        return got

    def unharmed(self, note):
        equal(self.look(), self.before, note)

    def popen(self, code, *args):
        def drop():
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
        return subprocess.Popen(["/usr/bin/python3", "-c", PRELUDE + textwrap.dedent(code), self.d.home, self.d.run, self.victim, self.tmp, *args], cwd="/", preexec_fn=drop,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})

    def run(self, code, *args):
        """-> {what was tried: "done" or the name of the error}"""
        p = self.popen(code, *args)
        out, _ = p.communicate(timeout=60)
        equal(p.returncode, 0, out)
        return dict(line.split(" ", 1) for line in out.splitlines())

    @contextlib.contextmanager
    def meanwhile(self, code, *args):
        """In an endless loop beside what is done here."""
        p = self.popen(code, *args)
        try:
            equal(p.stdout.readline(), "up\n")
            yield
            equal(p.poll(), None, "the attack went on all the time")
        finally:
            p.kill()
            p.communicate()


def denied(got, note=""):
    equal({k: v for k, v in got.items() if v not in ("EPERM", "EACCES")}, {}, note)


def planted_image(path, word, mib):
    """An ext4 as a container's writable layer is, with a file in it that the container would see."""
    top = path + ".d"
    os.makedirs(top + "/upper")
    os.makedirs(top + "/work")
    with open(f"{top}/upper/{word}", "w") as f:
        f.write("planted\n")
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-O", "^resize_inode", "-J", "size=8", "-E", "nodiscard", "-d", top, path, f"{mib}m"], check=True)
    os.chown(path, UID, UID)


# ---- what lies there ----------------------------------------------------------------------------------------------------


# Every name in HOME and RUN that root opens, makes, mounts, links or runs something in.
ROOTS = ("log", "log/spawn.log", "log/egress", "log/egress.log", "templates", "snapshots", "boxes", "fs", "volumes", "kernel", "root-cache", "root-cache/apt")
ROOTS_RUN = ("spawn", "spawn.lock", "egress.lock")


@tiers("container")
@thief
@timeout(120)
def names_of_root_stay(t):
    """None can be renamed, removed, written to or replaced; nor can the folder of a container. Locks cannot be held."""
    box = t.box(network={"mode": "allow", "allow": ["example.org"]})
    a = Taker(t)
    names = [os.path.join(t.d.home, n) for n in ROOTS] + [os.path.join(t.d.run, n) for n in ROOTS_RUN]
    names += [os.path.join(t.d.home, "boxes", box.info()["box"])]
    names += [os.path.join(t.d.home, "fs", x) for x in os.listdir(t.d.home + "/fs") if not x.startswith("ready-")]
    for n in names:
        true(os.path.lexists(n), f"{n} is there")
    got = a.run("""
        for p in REST:
            tries("rename:" + p, os.rename, p, p + ".away")
            tries("over:" + p, lambda: (os.symlink(VICTIM, TMP + "/link"), os.rename(TMP + "/link", p)))
            if os.path.lexists(TMP + "/link"): os.unlink(TMP + "/link")
            tries("remove:" + p, os.unlink if not os.path.isdir(p) else os.rmdir, p)
            tries("chmod:" + p, os.chmod, p, 0o777)
        """, *names)
    # a link over a folder is refused for what it is, before it is looked whose the folder is
    denied({k: v for k, v in got.items() if not (k.startswith("over:") and v == "EISDIR")})
    denied(a.run("""
        import fcntl
        def hold(p):
            fcntl.flock(os.open(p, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        for p in REST:
            tries("hold:" + p, hold, p)
        """, *(os.path.join(t.d.run, x) for x in ("spawn.lock", "egress.lock")), *(os.path.join(t.d.home, x) for x in ("log/spawn.log", "log/egress.log", "root-cache/apt"))))
    denied(a.run("""
        for d in ("log", "fs", "volumes", "kernel", "root-cache", "root-cache/apt"):
            tries("plant:" + d, os.symlink, VICTIM, f"{HOME}/{d}/x")
        tries("plant:spawn", os.symlink, VICTIM, RUN + "/spawn/x")
        """))
    for n in names:
        true(os.path.lexists(n) and not os.path.islink(n), f"{n} is still there")
    a.unharmed("after it all")
    box.ok(["true"])


@tiers("container")
@thief
@timeout(120)
def a_home_of_before_is_taken_over(t):
    """Everything in it belonged to the daemon, and nothing is lost: the home of this test began as such a one."""
    def owner(p):
        st = os.lstat(p)
        return st.st_uid, st.st_gid, oct(stat.S_IMODE(st.st_mode))
    a = Taker(t)
    box = t.box(name="kept")
    box.put("/home/user/kept", b"1")
    box.pause()
    key = open(t.d.home + "/admin.key").read() if os.path.exists(t.d.home + "/admin.key") else None
    t.d.shutdown()
    for top, dirs, _ in os.walk(t.d.home):  # as earlier versions had it
        if top == t.d.home:
            dirs[:] = [x for x in dirs if x in ("log", "templates", "boxes", "tmp", "snapshots", "cache", "fs")]
            for x in dirs:
                os.chown(os.path.join(top, x), UID, UID)
                os.chmod(os.path.join(top, x), 0o711)
    for p in (t.d.home, t.d.run):
        os.chown(p, UID, UID)
        os.chmod(p, 0o711 if p == t.d.home else 0o755)
    debs = t.d.home + "/root-cache/apt"
    with open(debs + "/kept_1_all.deb", "w") as f:
        f.write("x")
    os.chmod(debs, 0o755)
    os.rename(debs, t.d.home + "/cache/apt")
    os.rmdir(t.d.home + "/root-cache")
    t.d.start(settle=False)
    equal(owner(t.d.home), (0, UID, "0o1771"))
    equal(owner(t.d.run), (0, UID, "0o1775"))
    for name, want in {"templates": (0, UID, "0o771"), "snapshots": (0, UID, "0o771"), "boxes": (0, UID, "0o1771"), "log": (0, 0, "0o711"),
                       "tmp": (UID, UID, "0o711"), "cache": (UID, UID, "0o711"), "fs": (0, 0, "0o700"), "volumes": (0, 0, "0o700"),
                       "kernel": (0, 0, "0o755"), "root-cache": (0, 0, "0o711"), "root-cache/apt": (0, 0, "0o700")}.items():
        equal(owner(os.path.join(t.d.home, name)), want, name)
    true(os.path.exists(debs + "/kept_1_all.deb"), "the packages were moved along")
    true(not os.path.exists(t.d.home + "/cache/apt"))
    box.resume()
    equal(box.get("/home/user/kept"), b"1")
    if key:
        equal(open(t.d.home + "/admin.key").read(), key)
    a.unharmed("after the take-over")


# ---- what root meets when it starts -------------------------------------------------------------------------------------


def start_refused(a):
    """What a start says that is to fail; in no case does it harm."""
    p = subprocess.Popen([_daemon.program("hutchd")], env=a.d.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said = p.communicate(timeout=15)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        a.d.kill_everything()
        said = p.communicate()[0].decode(errors="replace")
    a.unharmed(f"a start that said: {said}")
    true(p.returncode > 0, said)
    return said


@tiers("container")
@thief
@timeout(200)
def a_start_follows_nothing(t):
    """Links in place of the daemon's own folders, which it can replace: the next start as root stops at them, by name."""
    a = Taker(t)
    t.box().ok(["true"])
    t.d.shutdown()
    a.unharmed("before")
    for name in ("tmp", "cache"):
        got = a.run("""
            tries("away", os.rename, f"{HOME}/{REST[0]}", f"{HOME}/{REST[0]}.away")
            tries("link", os.symlink, VICTIM, f"{HOME}/{REST[0]}")
            """, name)
        equal(got, {"away": "done", "link": "done"}, "these are its own")
        contains(start_refused(a), f"HUTCH_HOME: {name} is not a directory")
        a.run('os.unlink(f"{HOME}/{REST[0]}"); os.rename(f"{HOME}/{REST[0]}.away", f"{HOME}/{REST[0]}")', name)
    # A home of earlier versions, where it could replace everything.
    for name in ("log", "templates", "boxes", "tmp", "snapshots", "cache", "fs"):
        path = os.path.join(t.d.home, name)
        os.rename(path, path + ".away")
        os.chown(t.d.home, UID, UID)
        os.symlink(a.victim, path)
        os.lchown(path, UID, UID)
        contains(start_refused(a), f"HUTCH_HOME: {name} is not a directory")
        os.unlink(path)
        os.mkdir(path)
        os.chown(path, 1234, 1234)
        contains(start_refused(a), f"HUTCH_HOME: {name} belongs to uid 1234")
        os.rmdir(path)
        os.rename(path + ".away", path)
    # The database under another name: an image of root's must not become the daemon's.
    image = os.path.join(t.d.home, "state.db-wal")
    with contextlib.suppress(FileNotFoundError):
        os.rename(image, image + ".away")
    with open(image, "w"):
        pass
    contains(start_refused(a), "state.db-wal belongs to uid 0")
    equal(os.stat(image).st_uid, 0)
    os.unlink(image)
    with contextlib.suppress(FileNotFoundError):
        os.rename(image + ".away", image)
    t.d.start(settle=False)
    t.box().ok(["true"])


@tiers("container")
@thief
@timeout(200)
def logs_and_locks_are_roots_own(t):
    """What was put where root writes a log or takes a lock is not written to, and the log is there all the same."""
    a = Taker(t)
    plants = {"link": lambda p: os.symlink(a.victim + "/file", p), "dangling": lambda p: os.symlink(a.victim + "/new", p), "pipe": os.mkfifo,
              "second name": lambda p: os.link(a.victim + "/file", p), "own": lambda p: open(p, "w").close()}
    for what, plant in plants.items():
        t.d.shutdown()
        for name in ("log/spawn.log", "log/egress.log"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(t.d.home, name))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(t.d.run + "/egress.lock")
        for p in (t.d.home + "/log/spawn.log", t.d.home + "/log/egress.log", t.d.run + "/egress.lock", t.d.run + "/spawn.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(p)
            plant(p)
            if what != "second name":
                os.lchown(p, UID, UID)
        if what == "second name":
            a.before = a.look()
        t.d.start(settle=False)
        t.box(network={"mode": "allow", "allow": ["example.org"]}).ok(["true"])
        a.unharmed(what)
        with open(a.victim + "/file") as f:
            equal(f.read(), "root's\n", what)
        for p in (t.d.home + "/log/spawn.log", t.d.home + "/log/egress.log", t.d.run + "/egress.lock", t.d.run + "/spawn.lock"):
            st = os.lstat(p)
            equal((stat.S_ISREG(st.st_mode), st.st_uid, st.st_nlink, stat.S_IMODE(st.st_mode)), (True, 0, 1, 0o600), f"{what}: {p}")
        contains(open(t.d.home + "/log/spawn.log").read(), "ready: cgroup", what)


# ---- images -------------------------------------------------------------------------------------------------------------


@tiers("container")
@thief
@timeout(150)
def planted_images_are_never_mounted(t):
    """Empty disks, layers of sandboxes and of snapshots, templates: the host's kernel reads none that the daemon wrote."""
    a = Taker(t)
    size = -(-t.c.get("/v1/templates/base")["disk_min_mib"] // 64) * 64 + 64
    image = a.tmp + "/image"
    planted_image(image, "planted", size)
    # an empty disk of a size that nobody asked for yet
    got = a.run('import shutil\ntries("disk", shutil.copyfile, TMP + "/image", f"{HOME}/fs/{REST[0]}.ext4")', str(size))
    box = t.box(disk_mib=size)
    equal(box.exec(["test", "-e", "/planted"]).code, 1, "the empty disk was the planted one")
    denied(got)
    # one that lay there when the folder was the daemon's
    size += 64
    old = f"{t.d.home}/fs/{size}.ext4"
    subprocess.run(["cp", "--sparse=always", image, old], check=True)
    os.truncate(old, size << 20)
    os.chown(old, UID, UID)
    box = t.box(disk_mib=size)
    equal(box.exec(["test", "-e", "/planted"]).code, 1, "the empty disk was the planted one")
    equal(os.stat(old).st_uid, 0, "it was made anew")
    # the layer of a sandbox that is paused
    box = t.box(disk_mib=size)
    box.put("/home/user/kept", b"1")
    box.pause()
    folder = box.info()["box"]
    got = a.run("""
        import shutil
        p = f"{HOME}/boxes/{REST[0]}"
        tries("away", os.rename, p, p + ".away")
        tries("folder", os.mkdir, p, 0o755)
        tries("layer", shutil.copyfile, TMP + "/image", p + "/upper.ext4")
        """, folder)
    try:
        box.resume()
        equal(box.exec(["test", "-e", "/planted"]).code, 1, "the layer was the planted one")
        equal(box.get("/home/user/kept"), b"1")
    except ApiError as e:
        t.note(f"resume: {e.code}: {e.message}")
        raise
    equal(got, {"away": "EPERM", "folder": "EEXIST", "layer": "EACCES"})
    # … and if it got there all the same
    box.pause()
    layer = f"{t.d.home}/boxes/{folder}/upper.ext4"
    os.rename(layer, layer + ".away")
    subprocess.run(["cp", "--sparse=always", image, layer], check=True)
    os.chown(layer, UID, UID)
    e = refuses("denied", box.resume)
    contains(e.message, "was not written by root")
    os.rename(layer + ".away", layer)
    # a template: the daemon may put what it likes into its folder
    tid = t.c.get("/v1/templates/base")["id"]
    t.d.shutdown()
    root = f"{t.d.home}/templates/{tid}/rootfs.ext4"
    got = a.run('tries("away", os.rename, REST[0], REST[0] + ".away")\nimport shutil\ntries("template", shutil.copyfile, TMP + "/image", REST[0])', root)
    equal(got, {"away": "done", "template": "done"})
    t.d.start(settle=False)
    e = refuses("unsupported", t.c.create, isolation="container")
    contains(e.message, "use isolation vm")
    os.rename(root + ".away", root)
    t.d.shutdown()
    t.d.start(settle=False)
    t.box().ok(["true"])
    a.unharmed("after it all")


# ---- tools of root ------------------------------------------------------------------------------------------------------


@plain
@thief
@timeout(60)
def tools_work_only_where_root_is_alone(t):
    """bootstrap.sh and kernel.sh do not begin in a home that is another's, whatever is planted there."""
    home = os.path.join(t.tmp, "home")
    tools = os.path.join(_daemon.REPO, "share/tools")

    def says(*argv):
        p = subprocess.run(["sh", *argv], capture_output=True, text=True, timeout=30)
        true(p.returncode != 0, f"{argv}: {p.stderr}")
        return p.stderr
    os.mkdir(home)
    os.makedirs(home + "/cache/apt")
    for mode in (0o755, 0o711):
        os.chown(home, UID, UID)
        os.chmod(home, mode)
        contains(says(tools + "/bootstrap.sh", "base", home), "error denied")
        contains(says(tools + "/kernel.sh", home + "/kernel"), "must belong to root")
    os.chown(home, 0, UID)
    os.chmod(home, 0o775)
    contains(says(tools + "/bootstrap.sh", "base", home), "error denied")
    contains(says(tools + "/kernel.sh", home + "/kernel"), "must belong to root")
    os.chmod(home, 0o1775)  # root's entries stay, and these are not root's
    os.mkdir(home + "/root-cache")
    os.chown(home + "/root-cache", UID, UID)
    contains(says(tools + "/bootstrap.sh", "base", home), "error denied")
    contains(says(tools + "/kernel.sh", home + "/kernel", home + "/root-cache"), "must belong to root")
    equal([x for x in os.listdir(home) if x.startswith(".kernel")] + os.listdir(home + "/root-cache") + os.listdir(home + "/cache/apt"), [], "nothing was begun")


# ---- while root works ---------------------------------------------------------------------------------------------------


SWAP = """
names = [f"{HOME}/{x}" for x in REST] + [f"{RUN}/{x}" for x in ("spawn", "spawn.sock", "spawn.lock", "egress.sock", "egress.new", "egress.lock")]
print("up", flush=True)
n = 0
while True:
    n += 1
    for p in names:
        to = VICTIM + ("/file" if n % 2 else "")
        for fn in (lambda: os.symlink(to, TMP + "/swap"), lambda: os.rename(TMP + "/swap", p), lambda: os.rename(p, p + ".away"), lambda: os.symlink(to, p)):
            try: fn()
            except OSError: pass
        for x in (p, p + ".away"):
            try:
                if os.path.islink(x): os.unlink(x)
                elif x.endswith(".away") and not os.path.lexists(p): os.rename(x, p)
            except OSError: pass
"""


@tiers("container")
@thief
@timeout(250)
def swapping_while_root_works(t):
    """Sandboxes, layers, the gate and whole starts, with links put over every name that root uses as fast as it goes."""
    a = Taker(t)
    box = t.box(name="busy", network={"mode": "allow", "allow": ["example.org"]})
    with a.meanwhile(SWAP, *ROOTS, "boxes/" + box.info()["box"]):
        for _ in range(5):
            try:
                b = t.c.create(isolation="container")
                b.ok(["true"])
                b.pause()
                b.resume()
                b.kill()
            except ApiError as e:  # what belongs to the daemon is its own to lose
                t.note(f"{e.code}: {e.message}")
        for _ in range(12):  # the gate binds its socket anew
            for pid in t.d.pids("hutch-egress"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.15)
        a.unharmed("while it served")
        t.d.kill_everything()
        for _ in range(3):
            with open(t.tmp + "/said", "ab") as log:
                p = subprocess.Popen([_daemon.program("hutchd")], env=t.d.env, stdout=log, stderr=log, start_new_session=True)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(4)  # it may or may not come up: what counts is what it leaves
                t.d.kill_everything()
                p.wait()
            a.unharmed("after a start")
    for name in ROOTS:
        true(not os.path.islink(os.path.join(t.d.home, name)), name)
    for name in os.listdir(t.d.run):
        if os.path.islink(os.path.join(t.d.run, name)):
            os.unlink(os.path.join(t.d.run, name))
    t.d.start(settle=False)
    t.box().ok(["true"])


# ---- ids ----------------------------------------------------------------------------------------------------------------


@plain
@thief
@timeout(120)
def anybody_else_cannot_take_the_ids(t):
    """Names and locks that every local user can have keep no hutch from starting."""
    code = textwrap.dedent("""
        import fcntl, glob, os, socket, struct, time
        held = []
        for n in range(32):
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                s = socket.socket(socket.AF_UNIX, kind)
                try: s.bind(f"\\0hutch-ids-{n}")
                except OSError: pass
                held.append(s)
        for p in glob.glob("/sys/fs/cgroup/cgroup.procs") + glob.glob("/sys/fs/cgroup/*/cgroup.procs") + ["/sys/bus/cpu/uevent"]:
            for how in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
                try: fd = os.open(p, how)
                except OSError: continue
                for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
                    try: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", kind, 0, 0, 0, 0))
                    except OSError: pass
                held.append(fd)
        print("up", flush=True)
        time.sleep(600)
        """)
    os.chmod(t.tmp, 0o755)
    p = subprocess.Popen(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, text=True)
    d = _daemon.Daemon(name="ids")
    try:
        equal(p.stdout.readline(), "up\n")
        d.start(settle=False)
        d.client.create(isolation="container").ok(["true"])
        # Those that root holds are respected.
        base = int(open(d.home + "/log/spawn.log").read().split("ids from ")[1].split()[0])
        window = (base - 0x70000000) >> 26
        fd = os.open("/sys/bus/cpu/uevent", os.O_WRONLY)
        with contextlib.suppress(BlockingIOError):
            fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, window, 1, 0))
            true(False, "its window is locked")
        os.close(fd)
        equal(d.stop(), [])
    finally:
        p.kill()
        p.communicate()
        d.kill_everything()
        d.scrub()
        d.destroy()
