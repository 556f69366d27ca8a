"""A private hutchd for a run of tests (or for one test), in temporary folders.

The home of a test daemon starts as a copy of the seed home ($HUTCH_TEST_HOME,
default .cache/home, prepared by tools/run-e2e): templates, kernel and
formatted images are immutable and come as hard links, the database as a real
copy. Nothing is built here.
"""
import errno
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import census as _census
import tiers as _tiers
from client import Client, Deadline, Late, until

REPO = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.realpath(os.environ.get("HUTCH_BUILD", os.path.join(REPO, "build")))
CACHE = subprocess.run([os.path.join(REPO, "tools", "test-home")], capture_output=True, check=True, text=True).stdout.strip()
SEED = os.path.realpath(os.environ.get("HUTCH_TEST_HOME", os.path.join(CACHE, "home")))
# Homes must lie on the seed's file system (hard links); sockets need a short path.
SCRATCH = os.environ.get("HUTCH_TEST_TMP", os.path.join(CACHE, "t"))

# With sanitizers (tools/run-asan): where they report, and with which exit status. Programs that get no environment of
# ours (hutch-egress) report to their own log.
SANITIZED = os.environ.get("HUTCH_TEST_SANITIZED") == "1"
REPORT = re.compile(rb"ERROR: \w+Sanitizer|runtime error: |SUMMARY: \w+Sanitizer")

PRIVATE = ("boxes", "log", "tmp", "admin.key")  # of a home: never shared with another


def program(name):
    return os.path.join(BUILD, name)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _take(path):
    with open(path, "rb") as f:
        text = f.read()
    os.unlink(path)
    return text


def link_copy(src, dst):
    """Copy a home: directories anew, immutable files by hard link, the database by bytes."""
    for top, dirs, files in os.walk(src):
        rel = os.path.relpath(top, src)
        if rel == ".":
            dirs[:] = [d for d in dirs if d not in PRIVATE]
            files = [f for f in files if f not in PRIVATE]
        to = os.path.normpath(os.path.join(dst, rel))
        os.makedirs(to, exist_ok=True)
        st = os.stat(top)
        os.chmod(to, st.st_mode & 0o7777)
        try:
            os.chown(to, st.st_uid, st.st_gid)
        except PermissionError:
            pass
        for f in files:
            if f.startswith("ready-"):
                continue  # writable layers in reserve belong to the daemon that made them
            a, b = os.path.join(top, f), os.path.join(to, f)
            if not os.path.isfile(a) or os.path.islink(a):
                if os.path.islink(a):
                    os.symlink(os.readlink(a), b)
                continue
            if f.startswith("state.db"):
                shutil.copy2(a, b)
                own = os.stat(a)
                os.chown(b, own.st_uid, own.st_gid)
                continue
            try:
                os.link(a, b)
            except OSError as e:
                if e.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                    raise
                subprocess.run(["cp", "--reflink=auto", "--sparse=always", "-p", a, b], check=True)


class Daemon:
    def __init__(self, env=None, seed=SEED, name="d", listen=True):
        os.makedirs(SCRATCH, exist_ok=True)
        self.home = tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH)
        os.chmod(self.home, 0o755)
        self.top = tempfile.mkdtemp(prefix="ht-")
        os.chmod(self.top, 0o755)
        self.run = os.path.join(self.top, "run")  # the daemon makes it
        if seed and os.path.isdir(seed):
            link_copy(seed, self.home)
        self.port = free_port() if listen else None
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HUTCH_")}
        self.env.update({k: os.environ[k] for k in ("HUTCH_ACCEL",) if k in os.environ})
        if _tiers.runsc():
            self.env["HUTCH_RUNSC"] = _tiers.runsc()
        self.env.update({"HUTCH_HOME": self.home, "HUTCH_RUN": self.run, "HUTCH_BUILD_CACHE": "0"})  # kept steps would be files left behind
        if self.port:
            self.env["HUTCH_LISTEN"] = f"127.0.0.1:{self.port}"
        self.env.update(env or {})
        self.log_path = os.path.join(self.top, "log")
        self.reports = os.path.join(self.top, "reports")
        if SANITIZED:
            os.mkdir(self.reports)
            os.chmod(self.reports, 0o1777)  # hutchd has its own uid
            common = f"log_path={self.reports}/r:exitcode=99"
            self.env.update(ASAN_OPTIONS=common + ":quarantine_size_mb=16:detect_stack_use_after_return=1", UBSAN_OPTIONS=common + ":print_stacktrace=1")
        self.proc = None
        self.bin = BUILD
        self.census = _census.Census(self.home, self.run)
        self.baseline, self.base_places = None, {}
        self.starts = 0
        self.kernel = None  # an OlderKernel that it lives under

    # -- clients

    @property
    def client(self):
        return Client(sock=os.path.join(self.run, "hutch.sock"))

    def tcp(self, key=None):
        return Client(addr=("127.0.0.1", self.port), key=key)

    def new_key(self, name="test", role="admin", tenant=None, **more):
        """Of a tenant that is called like the key, unless told otherwise; admin, so that tests can look at what the socket made."""
        return self.client.post("/v1/keys", {"name": name, "role": role, "tenant": tenant or name, **more})

    # -- life

    def start(self, seconds=60.0, settle=True):
        self.starts += 1
        log = open(self.log_path, "ab")
        log.write(b"--- start %d ---\n" % self.starts)
        log.flush()
        self.proc = subprocess.Popen([os.path.join(self.bin, "hutchd")], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     cwd="/", start_new_session=True, preexec_fn=self.kernel and self.kernel.enter)
        log.close()
        if self.kernel:
            self.kernel.listen()
        end = Deadline(seconds)
        while True:
            try:
                self.client.health(deadline=2.0)
                break
            except (OSError, Late, Exception) as e:
                rc = self.proc.poll()
                if rc is not None and rc != 0:
                    raise AssertionError(f"hutchd ended with {rc} before it answered:\n{self.log_tail()}") from None
                if end.over:
                    raise Late(f"hutchd does not answer /healthz within {seconds:.0f} s ({e}):\n{self.log_tail()}") from None
                time.sleep(0.02)
        if settle:
            self.wait_pools()
            self.base_places = self.places()
            self.baseline = self.census.settled(quiet=0.3)
        return self

    def pools(self):
        """{kind: ready} as the daemon reports it."""
        text = self.client.call("GET", "/metrics").body.decode()
        return {m[1]: int(float(m[2])) for m in re.finditer(r'^hutch_pool_ready\{kind="(\w+)"\} (\S+)', text, re.M)}

    def places(self):
        """Warm places by kind, those in the works included."""
        text = self.client.call("GET", "/metrics").body.decode()
        return {kind: int(float(n)) for kind, n in re.findall(r"^hutch_pool_(ready\{kind=\"\w+\"\}|making) (\S+)", text, re.M)}

    def members(self):
        """How many more places the pools hold than when the baseline was taken. By kind: one kind's pool may have been
        given up for lack of use while another grew."""
        return sum(max(0, n - self.base_places.get(kind, 0)) for kind, n in self.places().items())

    def wait_pools(self, seconds=30.0):
        """Until the warm pools are full: only then is there a quiet state to compare with."""
        want = {kind: int(self.env.get(var, default)) for kind, var, default in
                (("vm", "HUTCH_POOL_VM", 2), ("prestarted", "HUTCH_POOL_PRESTARTED", 1), ("container", "HUTCH_POOL_CONTAINER", 4))}
        if self.env.get("HUTCH_MIN_ISOLATION") == "vm":
            want["container"] = 0
        until(lambda: all(n >= want[k] for k, n in self.pools().items() if k in want), seconds, f"pools filled to {want}")

    @property
    def pid(self):
        """Of hutchd itself, by its own word."""
        return self.client.health()["pid"]

    def pids(self, comm):
        return sorted(p.pid for p in self.census.mine() if p.comm == comm and p.state != "Z")

    def pids_of(self, box):
        """Processes in the control group of a box."""
        return sorted(p.pid for p in self.census.mine() if p.state != "Z" and _census.in_box(p, box))

    def init_of(self, box):
        """The process that is a sandbox: QEMU, a container's PID 1, or runsc."""
        def find():
            got = {p.pid: p.ppid for p in self.census.mine()
                   if p.comm in ("qemu-system-x86", "hutch-agent", "runsc") and p.state != "Z" and _census.in_box(p, box)}
            tops = [pid for pid, parent in got.items() if parent not in got]  # the others are runsc's own; numbers wrap around
            return min(tops) if tops else None
        return until(find, 10, f"the process of box {box}")

    def cpu_of(self, box):
        """Clock ticks its processes have used."""
        total = 0
        for pid in self.pids_of(box):
            f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            total += int(f[11]) + int(f[12])
        return total

    @property
    def spawn_pid(self):
        got = self.pids("hutch-spawn")
        return got[0] if got else None

    def shutdown(self, keep=False, seconds=30.0):
        """The polite end: POST /v1/shutdown; waits until hutchd is gone."""
        self.census.mine()
        pid = self.pid
        self.client.call("POST", "/v1/shutdown", json_body={"keep": keep}, deadline=seconds)
        self.wait_gone(pid, seconds)

    def wait_gone(self, pid, seconds=30.0):
        def gone():
            if self.proc and self.proc.pid == pid:
                self.proc.poll()
            try:
                # a leader may be a zombie while a thread of it still waits for the disk, and holds its locks
                return _census.Proc(pid).state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
            except (ProcessLookupError, FileNotFoundError):
                return True
        until(gone, seconds, f"process {pid} to end")
        if self.proc:
            self.proc.poll()

    def signal(self, sig):
        self.census.mine()
        os.kill(self.pid, sig)

    def sigkill(self):
        """kill -9 of hutchd alone."""
        self.census.mine()
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self.wait_gone(pid)

    def kill_everything(self):
        """As a power cut: every process of this daemon dies at once; the disk stays."""
        for _ in range(50):
            ours = [p for p in self.census.mine() if p.state != "Z"]
            if not ours:
                break
            # Parents first, so that nobody reacts to a child's death.
            for p in sorted(ours, key=lambda p: (p.comm != "hutchd", p.comm != "hutch-watch", p.comm != "hutch-spawn", p.pid)):
                try:
                    os.kill(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if self.proc:
                self.proc.poll()
            time.sleep(0.02)
        if self.proc:
            self.proc.poll()

    def stop(self, seconds=30.0):
        """Shut down and report what is left behind, as readable lines."""
        try:
            self.shutdown(seconds=seconds)
        except Exception as e:  # whatever is broken, clean up and say so
            self.kill_everything()
            self.scrub()
            return [f"daemon did not stop cleanly: {type(e).__name__}: {e}\n{self.sanitizer_reports()}"]
        left = _census.wait_clean(self.census, {}, seconds=10.0, stopped=True)
        if left:
            self.kill_everything()
        self.scrub()
        if self.proc and (self.proc.returncode or 0) > 0:
            left.append(f"hutchd ended with {self.proc.returncode}")
        said = self.sanitizer_reports()  # leaks are reported at the end
        return left + [said] if said else left

    def scrub(self):
        """Remove what the daemon should have removed, so that one bad test does not spoil the next."""
        for line in _census.Census._loops_all():
            dev, path = line.split(" ", 1)
            if self.home in path:
                subprocess.run(["losetup", "-d", "/dev/" + dev], capture_output=True)
        for c in sorted(self.census.known_cgroups, key=len, reverse=True):
            try:
                os.rmdir(c)
            except OSError:
                pass
        for line in open("/proc/self/mountinfo"):
            point = line.split()[4]
            if point.startswith((self.home, self.run)):
                subprocess.run(["umount", "-l", point], capture_output=True)

    def sanitizer_reports(self):
        """What sanitizers said of this daemon and what it started, once each, as text; empty if nothing."""
        if not SANITIZED:
            return ""
        said = []
        for path in glob.glob(self.reports + "/*"):
            said.append(_take(path))
        for path in [self.log_path, *glob.glob(os.path.join(self.home, "log", "*.log"))]:
            with open(path, "rb") as f:
                text = f.read()
            m = REPORT.search(text)
            if m:
                said.append(text[max(0, m.start() - 200):m.start() + 6000])
                os.truncate(path, 0)
        return "\n".join(x.decode(errors="replace") for x in said)

    def destroy(self):
        """Remove the folders. Call after stop()."""
        shutil.rmtree(self.home, ignore_errors=True)
        if not os.environ.get("HUTCH_TEST_KEEP_LOGS"):
            shutil.rmtree(self.top, ignore_errors=True)

    def log_tail(self, n=40):
        try:
            with open(self.log_path, "rb") as f:
                f.seek(0, 2)
                f.seek(max(0, f.tell() - 16384))
                return "\n".join(f.read().decode(errors="replace").splitlines()[-n:])
        except OSError:
            return "(no log)"
