"""What every security test shares: a neighbour that must keep answering, a
host that must not change, and a way to try forbidden things inside.

    @attack("mount")
    def mount_calls(t, a):
        r = a.attempts("root", '''
            tryit("tmpfs", lambda: mount(b"none", b"/mnt", b"tmpfs", 0, None))
        ''')
        a.judge(r)

attack() runs the body on both tiers with a victim sandbox a.box, watches a
neighbour all the time, compares the host before and after, and fails the test
if any of it moved. What is expected per tier stands in tiers.ATTACKS.
"""
import glob
import json
import os
import re
import statistics
import threading
import time

import hutchtest as ht
import tiers

# ---- inside the sandbox -------------------------------------------------------------------------------------------
# Each attempt runs in a forked child, so a filter that kills counts as a refusal and not as a broken test.
PRELUDE = r'''
import ctypes, errno, json, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def sc(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r
def mount(src, dst, fs, flags, data):
    ctypes.set_errno(0)
    if libc.mount(src, dst, fs, ctypes.c_ulong(flags), data) != 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
def write(path, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data if isinstance(data, bytes) else data.encode())
    finally:
        os.close(fd)
R = {}
def tryit(name, fn, seconds=20):
    """"ok" or "ok:VALUE" if it worked, else the errno's name, or the signal that killed it."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        signal.alarm(seconds)
        try:
            v = fn()
            out = "ok" if v is None or isinstance(v, int) and not isinstance(v, bool) else "ok:" + str(v)
        except OSError as e:
            out = errno.errorcode.get(e.errno, "E%s" % e.errno)
        except BaseException as e:
            out = type(e).__name__ + ": " + str(e)[:200]
        try:
            os.write(w, out.encode()[:2000])
        except OSError:
            pass
        os._exit(0)
    os.close(w)
    got = b""
    while True:
        b = os.read(r, 4096)
        if not b:
            break
        got += b
    os.close(r)
    _, st = os.waitpid(pid, 0)
    if os.WIFSIGNALED(st):
        R[name] = signal.Signals(os.WTERMSIG(st)).name if not got else got.decode()
    else:
        R[name] = got.decode(errors="replace")
    return R[name]
def done():
    sys.stdout.write("\nREPORT " + json.dumps(R) + "\n")
    sys.stdout.flush()
'''


RESULT = re.compile(r"ok(:|$)|E[A-Z0-9-]|ENone|SIG[A-Z]")


def _dedent(code):
    import textwrap
    return textwrap.dedent(code)


class Host:
    """What an attack must not be able to change out here."""

    SKIP = ("/proc/sys/fs/binfmt_misc", "/proc/sys/net")
    VOLATILE = ("random/", "ns_last_pid", "pty/nr", "file-nr", "inode-nr", "inode-state", "dentry-state", "epoll", "cap_last_cap",
                "keys/", "numa_balancing", "spl/", "cad_pid", "sched_domain", "usermodehelper", "stat_refresh", "drop_caches",
                "compact_memory", "user/max", "tainted", "aio-nr", "quota/")

    def __init__(self, tmp):
        self.canary = os.path.join(tmp, "host-canary")
        with open(self.canary, "w") as f:
            f.write("untouched")
        self.before = self.look()
        self.available = self.mem_available()
        self.at = time.time() - time.monotonic()

    def look(self):
        got = {}
        for base in ("/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs"):
            for top, dirs, files in os.walk(base):
                for f in files:
                    p = os.path.join(top, f)
                    if any(v in p for v in self.VOLATILE) or p.startswith(self.SKIP):
                        continue
                    try:
                        with open(p) as r:
                            got[p] = r.read()
                    except OSError:
                        pass
        for p in ("/proc/modules", "/proc/sys/kernel/random/boot_id", "/etc/passwd", "/etc/hostname", "/proc/cmdline"):
            try:
                with open(p) as r:
                    # Use counts of modules move; names must not.
                    got[p] = "\n".join(l.split()[0] for l in r) if p == "/proc/modules" else r.read()
            except OSError:
                pass
        for p in glob.glob("/sys/fs/cgroup/*/release_agent"):
            try:
                with open(p) as r:
                    got[p] = r.read()
            except OSError:
                pass
        got["hostname"] = os.uname().nodename
        got["/"] = sorted(os.listdir("/"))
        got["/dev"] = sorted(x for x in os.listdir("/dev") if not x.startswith(("loop", "vcs")))
        return got

    @staticmethod
    def mem_available():
        with open("/proc/meminfo") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) // 1024
        return 0

    def unchanged(self):
        """Lines: what moved."""
        bad = []
        now = self.look()
        for k, v in self.before.items():
            if now.get(k) != v:
                bad.append(f"host {k}: was {str(v)[:120]!r}, is {str(now.get(k))[:120]!r}")
        with open(self.canary) as f:
            if f.read() != "untouched":
                bad.append("host canary file was changed")
        drift = abs((time.time() - time.monotonic()) - self.at)
        if drift > 2.0:
            bad.append(f"the host's clock moved by {drift:.1f} s against its monotonic clock")
        return bad


class Neighbour:
    """Another sandbox that runs `true` again and again. Only ratios to its own quiet time are judged."""

    def __init__(self, box, n=9):
        self.box = box
        for _ in range(3):
            self.once()
        self.base = statistics.median(self.once() for _ in range(n))
        self.times, self.error = [], None
        self._stop = threading.Event()
        self._thread = None

    def once(self):
        t0 = time.monotonic()
        r = self.box.exec(["true"], deadline=60)
        if r.code != 0:
            raise AssertionError(f"the neighbour's `true` ended with {r.exit}")
        return time.monotonic() - t0

    def _run(self):
        while not self._stop.is_set():
            try:
                self.times.append(self.once())
            except BaseException as e:
                self.error = e
                return
            self._stop.wait(0.05)

    def start(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join(70)
        if self._thread.is_alive():
            raise AssertionError("the neighbour does not answer any more")
        if self.error:
            raise AssertionError(f"the neighbour failed meanwhile: {type(self.error).__name__}: {self.error}")
        while len(self.times) < 3:
            self.times.append(self.once())
        return statistics.median(self.times) / self.base

    def again(self):
        """The ratio to the quiet time after the attack, if that is the slower one: others may have come to use the machine."""
        self.base = max(self.base, statistics.median(self.once() for _ in range(15)))
        return statistics.median(self.times) / self.base


class Attack:
    def __init__(self, t, name):
        self.t, self.name, self.tier = t, name, t.tier
        self.expect = tiers.expected(name, t.tier)
        self.box = None
        self.neighbour = None
        self.broke = None  # how a VM's root made its own guest unusable, if it did

    @property
    def refused(self):
        return self.expect == tiers.REFUSED

    def python(self, code, user="root", deadline=60, timeout_ms=50_000, **members):
        """Run a program inside; returns the Exec."""
        self.box.put("/tmp/attack.py", (PRELUDE + _dedent(code)).encode(), user="root", mode="0755")
        return self.box.exec(["python3", "/tmp/attack.py"], user=user, deadline=deadline, timeout_ms=timeout_ms, **members)

    def attempts(self, user, code, **kw):
        """Run tryit() lines inside; returns {name: result}. Root of a VM may bring its own kernel down with them: that is
        contained, counts as an empty report, and the daemon must have said it with a type."""
        try:
            r = self.python(_dedent(code) + "\ndone()\n", user=user, **kw)
        except ht.ApiError as e:
            if not self._own_doing(user, e):
                raise
            return {}
        for line in reversed(r.text.splitlines()):
            if line.startswith("REPORT "):
                report = json.loads(line[7:])
                # A typo in an attempt must not pass for a refusal: only the kernel's own answers count.
                odd = {k: v for k, v in report.items() if not RESULT.match(v)}
                if odd:
                    raise AssertionError(f"attempts that failed by themselves: {odd}")
                return report
        raise AssertionError(f"no report from the attempt as {user}: {r!r}")

    def _own_doing(self, user, e):
        if self.tier != "vm" or self.refused or user != "root" or e.code not in ("guest", "gone", "quota", "unavailable", "timeout"):
            return False
        self.broke = e.code
        self.t.note(f"root broke its own guest: {e.code}")
        return True

    def both(self, code, **kw):
        """The same attempts as user and then as root; names get a suffix."""
        got = {}
        for user in ("user", "root"):
            got.update({f"{k} as {user}": v for k, v in self.attempts(user, code, **kw).items()})
        return got

    def judge(self, report, also=()):
        """refused: nothing may have worked. contained: whatever worked only reached the guest (checked by attack())."""
        worked = sorted(k for k, v in report.items() if v.startswith("ok"))
        if self.refused and worked:
            raise AssertionError(f"{self.name}: must be refused, but worked: " + ", ".join(f"{k} ({report[k]})" for k in worked))
        for k in also:
            if report[k].startswith("ok"):
                raise AssertionError(f"{self.name}: {k} must be refused on every tier, but: {report[k]}")
        self.t.note(f"{len(report) - len(worked)}/{len(report)} refused")

    def alive(self, seconds=30):
        """The victim still answers, or ended with a typed reason. Returns its object."""
        o = self.box.info()
        if o["state"] == "running":
            try:
                self.box.ok(["true"], deadline=max(seconds, 60))
            except ht.ApiError as e:
                if not self._own_doing("root", e) and not self.broke:
                    raise
        else:
            ht.true(o["end"] and o["end"]["reason"] and o["end"]["message"], f"state {o['state']} without a typed end: {o['end']}")
        return o

    def must_live(self, seconds=30):
        o = self.alive(seconds)
        ht.equal(o["state"], "running", f"the sandbox ended: {o.get('end')}")


def attack(name, tier_names=("vm", "container"), limit=120, **box_members):
    """Decorator: body(t, a) with everything around it."""
    def mark(fn):
        def body(t):
            host = Host(t.tmp)
            a = Attack(t, name)
            a.box = t.box(**box_members)
            a.neighbour = Neighbour(t.box())
            a.neighbour.start()
            try:
                fn(t, a)
            finally:
                ratio = None
                try:
                    ratio = a.neighbour.stop()
                except AssertionError as e:
                    late = e
                else:
                    late = None
            if late:
                raise late
            if ratio > tiers.ratio(name):
                ratio = a.neighbour.again()
            t.note(f"neighbour x{ratio:.1f}")
            if ratio > tiers.ratio(name):
                raise AssertionError(f"the neighbour answered {ratio:.1f} times slower than its own baseline "
                                     f"(allowed {tiers.ratio(name)}); baseline {a.neighbour.base * 1000:.1f} ms")
            bad = host.unchanged()
            if bad:
                raise AssertionError("the host was changed:\n  " + "\n  ".join(bad))
            if t.c.health()["status"] != "ok":
                raise AssertionError("the daemon is not healthy any more")
        body.__name__ = fn.__name__
        body.__code__ = body.__code__.replace(co_firstlineno=fn.__code__.co_firstlineno)
        body.timeout = limit
        body.slow_on = ("vm",) if name in tiers.LONG_ON_VM else ()
        for k, v in fn.__dict__.items():
            setattr(body, k, v)
        test = ht.Test(body, tier_names)
        test.file = os.path.basename(fn.__code__.co_filename)[:-3]
        ht.REGISTRY.append(test)
        return fn
    return mark


def hold(seconds):
    """Let an attack burn for a while. The neighbour is measured meanwhile; this is the one wait that is about time itself."""
    time.sleep(seconds)
