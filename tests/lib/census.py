"""The leak census: everything on this machine that belongs to one test daemon.

A sample is a multiset per kind (process, cgroup, mount, loop, netns, link,
nft, fd, file). Generated ids are replaced by <id>, because warm pools swap
their members: what counts is that after a test there is no more of anything
than before, and nothing at all once the daemon has stopped.

Several daemons may live on one machine, so ownership is proven, not guessed:
by HUTCH_HOME/HUTCH_RUN in the environment or arguments, by ancestry, by
cgroup, or because it was seen as ours before (pid and start time).
"""
import collections
import glob
import os
import re
import stat
import subprocess
import time

from client import PATIENCE

ID = re.compile(r"(?<![a-z0-9])[a-z][a-z0-9]{20}(?![a-z0-9])")
NUM = re.compile(r"(?<=[-_/.])\d+(?![a-z0-9])")
TAG = re.compile(r"/(hutch-[^/]+)")
READY = re.compile(r"/ready-\d+")  # the cgroup2 of a container, named before anybody knew its box
READY_UP = re.compile(r".*/ready-\d+")  # a process may be in a group below
CG_ROOT = "/sys/fs/cgroup"
PF_KTHREAD = 0x00200000
OURS = ("hutchd", "hutch-watch", "hutch-spawn", "hutch-ready", "hutch-agent", "hutch-untar", "hutch-egress", "qemu-system-x86", "runsc")


def norm(s):
    return ID.sub("<id>", s)


def _read(path, mode="r"):
    try:
        with open(path, mode) as f:
            return f.read()
    except (OSError, ValueError):
        return "" if mode == "r" else b""


class Proc:
    __slots__ = ("pid", "ppid", "start", "comm", "cmd", "env", "state", "cgroups", "kernel")

    def __init__(self, pid):
        raw = _read(f"/proc/{pid}/stat")
        close = raw.rfind(")")
        if close < 0:
            raise ProcessLookupError(pid)
        rest = raw[close + 2:].split()
        self.pid, self.comm = pid, raw[raw.find("(") + 1:close]
        if self.comm.startswith("memfd:hutch-age"):
            self.comm = "hutch-agent"  # a container's PID 1 runs from a sealed copy
        if self.comm == "exe":
            self.comm = "runsc"  # its halves, and the processes that guest code runs in, are started through /proc/self/exe
        self.state, self.ppid, self.start = rest[0], int(rest[1]), int(rest[19])
        self.kernel = bool(int(rest[6]) & PF_KTHREAD)
        self.cmd = _read(f"/proc/{pid}/cmdline", "rb")
        self.env = _read(f"/proc/{pid}/environ", "rb")
        self.cgroups = _read(f"/proc/{pid}/cgroup")

    @property
    def key(self):
        return (self.pid, self.start)


def processes():
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                p = Proc(int(name))
            except ProcessLookupError:
                continue
            table[p.pid] = p
    return table


def in_box(p, box):
    """Is its control group that box's? By name; cgroup2 cannot rename one that was made ahead, there an attribute says it."""
    if box in p.cgroups:
        return True
    for line in p.cgroups.splitlines():
        path = line.split(":", 2)[2]
        if line.startswith("0::") and READY.search(path):
            for top in (CG_ROOT, f"{CG_ROOT}/unified"):
                try:
                    return os.getxattr(top + READY_UP.match(path)[0], "trusted.hutch.box").decode() == box
                except OSError:
                    continue
    return False


def cgroup_dirs():
    """Every cgroup below the mount points whose own name starts with hutch, or that lies below such a one."""
    got = []
    for top, dirs, _ in os.walk(CG_ROOT):
        if "/hutch" in top:
            got.append(top)
    return got


class Census:
    def __init__(self, home, run):
        self.home, self.run = os.path.realpath(home), os.path.realpath(run)
        self.marks = [s.encode() for s in {home, run, self.home, self.run}]
        self.known = set()          # (pid, start) seen as ours
        self.known_cgroups = set()
        self.tags = set()           # hutch-<tag>: this daemon's subtree in every hierarchy
        self.me = os.getpid()
        # What was on the machine before the daemon started.
        self.before = {"cgroup": set(cgroup_dirs()), "loop": set(self._loops_all()), "netns": set(self._named_netns()),
                       "link": set(self._links()), "nft": self._nft(), "mount": set(self._mounts_self()),
                       "orphans": {p.key for p in processes().values() if p.comm in OURS}}

    # -- ownership

    def mine(self, table=None):
        """Living processes of this daemon, without the test itself and its helpers."""
        table = table or processes()
        helpers = self._helpers(table)
        roots = set()
        for p in table.values():
            if p.pid in helpers:
                continue
            if p.key in self.known or any(m in p.cmd or m in p.env for m in self.marks) or self._in_known_cgroup(p):
                roots.add(p.pid)
        kids = collections.defaultdict(list)
        for p in table.values():
            kids[p.ppid].append(p.pid)
        todo, got = list(roots), set()
        while todo:
            pid = todo.pop()
            if pid in got or pid in helpers or pid not in table:
                continue
            got.add(pid)
            todo += kids.get(pid, [])
        ours = [table[pid] for pid in got]
        for p in ours:
            self.known.add(p.key)
            for path in self._own_cgroups(p):
                self.known_cgroups.add(path)
                self.tags.update(TAG.findall(path))
        return ours

    def _helpers(self, table):
        """The test process and its ancestors; command-line clients the tests start are found by name."""
        got, pid = set(), self.me
        while pid and pid in table:
            got.add(pid)
            pid = table[pid].ppid
        for p in table.values():
            argv0 = os.path.basename(p.cmd.split(b"\0", 1)[0].decode(errors="replace"))
            if argv0 in ("hutch", "hb") or (p.ppid == self.me and argv0.startswith("python")):
                got.add(p.pid)
        return got

    def _own_cgroups(self, p):
        for line in p.cgroups.splitlines():
            _, names, path = line.split(":", 2)
            if "/hutch" not in path:
                continue
            if names == "":
                bases = [f"{CG_ROOT}/unified", CG_ROOT]
            else:
                bases = [f"{CG_ROOT}/{n.replace('name=', '')}" for n in [names, *names.split(",")]]
            for base in bases:
                full = base + path
                if os.path.isdir(full):
                    yield full
                    break

    def _in_known_cgroup(self, p):
        if "/hutch" not in p.cgroups or not self.known_cgroups:
            return False
        return any(c in self.known_cgroups for c in self._own_cgroups(p))

    # -- the kinds

    @staticmethod
    def _loops_all():
        got = []
        for f in glob.glob("/sys/block/loop*/loop/backing_file"):
            path = _read(f).strip()
            if path:
                got.append(f"{f.split('/')[3]} {path}")
        return got

    @staticmethod
    def _named_netns():
        try:
            return os.listdir("/run/netns")
        except OSError:
            return []

    @staticmethod
    def _links():
        return [l for l in os.listdir("/sys/class/net") if not l.startswith("outside")]  # of tests/lib/outside.py

    @staticmethod
    def _nft():
        try:
            return subprocess.run(["nft", "list", "ruleset"], capture_output=True, timeout=10).stdout.decode(errors="replace")
        except (OSError, subprocess.TimeoutExpired):
            return ""

    @staticmethod
    def _mounts_self():
        got = []
        for line in _read("/proc/self/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            f, r = left.split(), right.split()
            got.append(f"{f[4]} {r[0]} {r[1]}")
        return got

    def _mounts_of(self, pid):
        n = collections.Counter()
        for line in _read(f"/proc/{pid}/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            f, r = left.split(), right.split()
            n[NUM.sub("<n>", norm(f"{r[0]} at {f[4]}").replace(self.home, "HOME").replace(self.run, "RUN"))] += 1
        return n

    def fds(self, pid):
        n = collections.Counter()
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            return n
        for name in names:
            try:
                to = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            to = norm(re.sub(r":\[\d+\]", "", to))
            to = NUM.sub("<n>", to.replace(self.home, "HOME").replace(self.run, "RUN"))
            n[to] += 1
        return n

    def sample(self, stopped=False):
        """{kind: Counter}. stopped: the daemon is down, so nothing of it may be anywhere."""
        table = processes()
        ours = self.mine(table)
        got = collections.defaultdict(collections.Counter)
        nets, inner = set(), set()  # runsc's halves have more of their own
        for p in ours:
            if p.kernel or p.state == "Z" and p.ppid in (self.me, 0):
                continue  # a thread of the kernel's: KVM has one for each VM, in the VM's cgroup, and ends it with the VM
            label = p.comm + (" (zombie)" if p.state == "Z" else "")
            got["process"][label if p.comm in OURS else f"guest process {p.comm}"] += 1
            try:
                (inner if p.comm == "runsc" else nets).add(os.readlink(f"/proc/{p.pid}/ns/net"))
            except OSError:
                pass
            if p.comm in ("hutchd", "hutch-spawn") and not stopped:
                for what, n in self.fds(p.pid).items():
                    got["fd"][f"{p.comm}: {what}"] += n
                if p.comm == "hutch-spawn":
                    for what, n in self._mounts_of(p.pid).items():
                        got["mount"][f"in hutch-spawn: {what}"] += n
        got["netns"]["in use by our processes"] = len(nets)
        got["netns"]["in use by runsc"] = len(inner - nets)
        if stopped:
            del got["netns"]
        # Orphans nobody owns any more: their spawner died and they were handed to init.
        for p in table.values():
            if p.comm in OURS and p.ppid == 1 and p.key not in self.before["orphans"] and p.key in self.known:
                got["process"][f"orphan {p.comm}"] += 1
        for c in cgroup_dirs():
            if c in self.known_cgroups or self.tags & set(TAG.findall(c)):
                self.known_cgroups.add(c)
                got["cgroup"][READY.sub("/ready-<n>", TAG.sub("/hutch-<tag>", norm(c)))] += 1
        for l in self._loops_all():
            if l not in self.before["loop"] and (self.home in l or self.run in l):
                got["loop"][NUM.sub("<n>", norm(l.split(" ", 1)[1]).replace(self.home, "HOME"))] += 1
        for m in self._mounts_self():
            if m not in self.before["mount"] and (self.home in m or self.run in m or "hutch" in m):
                got["mount"][norm(m)] += 1
        for n in self._named_netns():
            if n not in self.before["netns"] and "hutch" in n:
                got["netns"][norm(n)] += 1
        for l in self._links():
            if l not in self.before["link"]:
                got["link"][re.sub(r"\d+", "<n>", l)] += 1
        nft = self._nft()
        if nft != self.before["nft"]:
            for line in nft.splitlines():
                if line.strip() and line not in self.before["nft"]:
                    got["nft"][norm(line.strip())] += 1
        for what in self._files():
            got["file"][what] += 1
        return {k: +v for k, v in got.items() if +v}

    def _files(self):
        for sub in ("boxes", "templates", "snapshots", "volumes"):
            base = os.path.join(self.home, sub)
            for top, dirs, files in os.walk(base):
                depth = top[len(base):].count("/")
                if sub == "templates" and depth >= 1:
                    dirs[:] = []
                    continue
                for x in files if sub != "templates" else []:
                    yield norm(f"{sub}{top[len(base):]}/{x}")
                for x in dirs:
                    if sub != "templates" or "." in x:  # a template is no leak, an unfinished one is
                        yield norm(f"{sub}{top[len(base):]}/{x}/")
        for top, dirs, files in os.walk(self.run):
            for x in files:
                if x.endswith(".lock"):  # removing a lock file is a race; it may stay
                    continue
                path = os.path.join(top, x)
                kind = "socket " if stat.S_ISSOCK(self._mode(path)) else ""
                yield norm(f"{kind}RUN{path[len(self.run):]}")

    @staticmethod
    def _mode(path):
        try:
            return os.lstat(path).st_mode
        except OSError:
            return 0

    def settled(self, seconds=20.0, quiet=0.6):
        """The sample once it has stayed the same for `quiet` seconds (pools fill in the background)."""
        end = time.monotonic() + seconds * PATIENCE
        last, since = self.sample(), time.monotonic()
        while time.monotonic() < end:
            time.sleep(0.15)
            now = self.sample()
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since >= quiet:
                break
        return last


# Growth that is no leak, per kind and label prefix: what is cached once and then stays.
SLACK = {
    ("fd", "hutchd: anon_inode:[eventpoll]"): (1, "an event base more once a worker thread ran"),
    ("fd", "hutchd: anon_inode:[eventfd]"): (2, "wake-up descriptors of worker threads"),
    ("fd", "hutchd: HOME/state.db"): (2, "SQLite opens its WAL and shared memory on first write"),
    ("fd", "hutchd: /memfd:"): (4, "RAM of a template size is kept after its first use"),
    ("fd", "hutchd: HOME/templates/"): (6, "template images stay open after their first use"),
    ("fd", "hutchd: HOME/kernel/"): (3, "the guest kernel stays open after its first use"),
    ("fd", "hutch-spawn: HOME/templates/"): (3, "template images stay open after their first use"),
    # A disk size that was used once gets a reserve of 8 formatted layers; at most 4 sizes, one of them from the start.
    ("fd", "hutch-spawn: /"): (24 + 3, "detached mounts of reserve layers, and of templates"),
    ("loop", "HOME/fs/ready-"): (24, "reserve layers"),
    ("fd", "hutch-spawn: HOME/fs/"): (24, "reserve layers"),
    # Once a container was started, four jails wait for the next.
    ("process", "hutch-ready"): (4, "jails made ahead"),
    ("cgroup", "/sys/fs/cgroup/unified/hutch-<tag>/ready-"): (4, "of jails made ahead"),
    ("cgroup", "/sys/fs/cgroup/hutch-<tag>/ready-"): (4, "of jails made ahead"),
    ("netns", "in use by"): (4, "of jails made ahead"),
    ("fd", "hutch-spawn: anon_inode:[pidfd]"): (4, "of jails made ahead"),
    ("fd", "hutch-spawn: pidfd"): (4, "of jails made ahead"),
    ("fd", "hutch-spawn: socket"): (4, "of jails made ahead"),
    ("fd", "hutch-spawn: user"): (4, "of jails made ahead"),
    ("fd", "hutch-spawn: mnt"): (4, "of jails made ahead"),
    ("mount", "in hutch-spawn:"): (1, "a template's image stays mounted after its first use"),
    ("loop", "HOME/templates/"): (1, "a template's image stays attached after its first use"),
}


def _slack(kind, label, extra):
    n = 0
    for (k, prefix), (m, _) in SLACK.items():
        if k == kind and label.startswith(prefix):
            n = max(n, m)
    for (k, prefix), (m, _) in (extra or {}).items():
        if k == kind and label.startswith(prefix):
            n = max(n, m)
    return n


# How many of a label one member of a warm pool holds. (With kernels in it: two of Python, one of node.)
PER_MEMBER = {"hutchd: socket": 4, "hutch-spawn: socket": 3, "guest process python3": 2,  # of a VM: channel, QMP, volumes
              "in use by runsc": 6, "runsc": 8}  # itself, its two halves, and one to hold guest code for each process of the guest's


def leaks(before, after, extra=None, members=0):
    """Readable lines: what there is more of. Empty = clean. members: how many more warm places the pools hold by now
    (a size that was used once gets a pool of its own)."""
    out = []
    for kind in sorted(after):
        base = before.get(kind, collections.Counter())
        for label, n in sorted(after[kind].items()):
            more = n - base.get(label, 0)
            pool = members * PER_MEMBER.get(label, 1) if kind in ("process", "cgroup", "fd", "netns", "file", "loop", "mount") else 0
            if more > _slack(kind, label, extra) + pool:
                out.append(f"{kind}: {label}: {base.get(label, 0)} before, {n} after")
    return out


def wait_clean(census, before, seconds=10.0, stopped=False, extra=None, members=lambda: 0):
    """Leaks that are still there after `seconds`; returns as soon as there are none."""
    end = time.monotonic() + seconds * PATIENCE
    while True:
        now = census.sample(stopped)
        found = leaks(before, now, extra, members())
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)
