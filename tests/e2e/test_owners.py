"""Several hutches on one host: each has its own, none touches another's, and a start that fails leaves nothing behind."""
import contextlib
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess

import daemon as _daemon
from hutchtest import *


def run_to_end(env, before=(), root="", seconds=50):
    """What a hutchd says that is expected to fail. before: commands of a shell in a mount namespace of its own; root: what it is
    put into with chroot."""
    argv = [_daemon.program("hutchd")]
    if before:
        argv = ["unshare", "-m", "sh", "-ec", "; ".join(before) + f'; exec {"chroot " + root if root else ""} "$0"', *argv]
    p = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
    said = p.stdout.decode(errors="replace")
    true(p.returncode > 0, f"hutchd ended with {p.returncode}: {said}")
    return said


def living(d):
    return sorted((p.comm, p.pid) for p in d.census.mine() if p.state != "Z")


def programs(d):
    """Those that live as long as the daemon; boxes in reserve come and go."""
    return [x for x in living(d) if x[0] in ("hutchd", "hutch-watch", "hutch-spawn", "hutch-egress")]


def bind(what, over):
    return f"mount --bind {what} {over}"


class Twin:
    """A second hutch in another root: its home and run folder have the paths of the first one's, with other folders behind them.
    Host and control groups are the same. kinds: namespaces besides that of mounts."""

    def __init__(self, t, *kinds, **env):
        self.d = _daemon.Daemon(name="twin")
        self.env = dict(self.d.env, HUTCH_HOME=t.d.home, HUTCH_RUN=t.d.run, HUTCH_TEST_TWIN=self.d.home, **env)
        self.over = [bind(self.d.home, t.d.home), bind(self.d.top, t.d.top)]
        self.kinds = kinds

    def start(self):
        log = open(self.d.log_path, "ab")
        self.d.proc = subprocess.Popen(["unshare", "-m", *self.kinds, "sh", "-ec", "; ".join(self.over) + '; exec "$0"', _daemon.program("hutchd")],
                                       env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)
        log.close()

        def up():
            true(self.d.proc.poll() is None, f"the twin ended: {self.d.log_tail()}")
            try:
                return self.d.client.health(deadline=2.0)
            except (OSError, Late):
                return None
        until(up, 60, "the twin answers")
        return self.d.client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.d.kill_everything()
        self.d.scrub()
        self.d.destroy()


def untouched(t, box, pid, before):
    equal(t.d.init_of(box.info()["box"]), pid, "the first one's sandbox")
    equal([x for x in programs(t.d) if x in before], before, "the first one's programs")
    box.ok(["true"])


@tiers("container")
@own_daemon()
@timeout(200)
def the_same_paths_in_another_root(t):
    box = t.box(name="mine", network={"mode": "allow", "allow": ["example.org"]})
    pid, before = t.d.init_of(box.info()["box"]), programs(t.d)
    contains([x[0] for x in before], "hutch-egress")
    # With the first one's address as well: refused before anything is touched.
    with Twin(t, HUTCH_LISTEN=t.d.env["HUTCH_LISTEN"]) as twin:
        said = run_to_end(twin.env, twin.over)
        untouched(t, box, pid, before)
        contains(said, f"HUTCH_LISTEN: 127.0.0.1:{t.d.port} is taken by hutchd, pid {t.d.pid}, with the home {t.d.home}")
        equal(programs(t.d), before, "nothing of the second is left")
    # With one of its own they live side by side.
    with Twin(t) as twin:
        c = twin.start()
        other = c.create(isolation="container", name="mine")
        other.put("who", b"second")
        untouched(t, box, pid, before)
        # What the first leaves behind is the first one's to sweep, and nothing else is.
        pid2 = twin.d.init_of(other.info()["box"])
        spawner = [p for c, p in before if c == "hutch-spawn"][0]
        os.kill(spawner, signal.SIGKILL)
        box.wait_state("failed", seconds=30)

        def again():
            try:
                return t.box()
            except ApiError as e:
                equal(e.code, "unavailable")
                return None
        until(again, 60, "a sandbox under the first one's new spawner").ok(["true"])
        equal(twin.d.init_of(other.info()["box"]), pid2)
        equal(other.get("who"), b"second")
        # Its end takes nothing of the first along.
        left = twin.d.stop()
        equal(left, [], "leaks of the second")
    t.box().ok(["true"])


@tiers("container")
@own_daemon()
@timeout(120)
def the_same_paths_in_another_container(t):
    """Other namespaces of processes and network too, as a privileged container with the host's control groups has."""
    box = t.box()
    pid, before = t.d.init_of(box.info()["box"]), programs(t.d)
    with Twin(t, "-n", "-p", "-f", HUTCH_LISTEN=t.d.env["HUTCH_LISTEN"]) as twin:
        twin.over += ["mount -t proc proc /proc", "ip link set lo up"]
        other = twin.start().create(isolation="container")
        other.ok(["true"])
        untouched(t, box, pid, before)
        twin.d.client.call("POST", "/v1/shutdown", json_body={"keep": False})
        equal(twin.d.proc.wait(30), 0)
        equal(living(twin.d), [])
    untouched(t, box, pid, before)


@tiers("container")
@own_daemon()
@timeout(120)
def one_home_in_two_containers_is_refused(t):
    box = t.box()
    pid, before = t.d.init_of(box.info()["box"]), programs(t.d)
    top = os.path.join(t.tmp, "x")
    os.makedirs(top + "/home")
    os.makedirs(top + "/run")
    os.chmod(t.tmp, 0o755)
    env = dict(t.d.env, HUTCH_HOME=top + "/home", HUTCH_RUN=top + "/run", HUTCH_LISTEN=f"127.0.0.1:{_daemon.free_port()}", HUTCH_UID="64999")
    owner = os.stat(t.d.home + "/boxes").st_uid
    said = run_to_end(env, [bind(t.d.home, top + "/home")])
    equal(os.stat(t.d.home + "/boxes").st_uid, owner, "its files keep their owner")
    untouched(t, box, pid, before)
    contains(said, f"the home {top}/home is in use by another hutch")
    equal(programs(t.d), before)


@tiers("container")
@own_daemon()
@timeout(120)
def a_run_folder_of_another_home_is_refused(t):
    box = t.box()
    pid, before = t.d.init_of(box.info()["box"]), programs(t.d)
    other = os.path.join(t.tmp, "other")
    os.chmod(t.tmp, 0o755)
    env = dict(t.d.env, HUTCH_HOME=other, HUTCH_LISTEN=f"127.0.0.1:{_daemon.free_port()}")
    said = run_to_end(env)
    untouched(t, box, pid, before)
    contains(said, f"the run directory {t.d.run} is in use by the hutch with the home {t.d.home}")
    # The spawner alone, with sandboxes that wait for the next hutchd of their own home.
    t.d.shutdown(keep=True)
    contains(run_to_end(env), "set HUTCH_RUN")
    t.d.start(settle=False)
    equal(box.info()["state"], "running")
    equal(t.d.init_of(box.info()["box"]), pid)
    true(not os.path.exists(other), "nothing was made in the other home")


@tiers("container")
@own_daemon()
@timeout(120)
def a_spawner_of_another_version_is_not_taken_over(t):
    """It would be told what it does not know, and what it makes would be taken for something else."""
    box = t.box()
    pid = t.d.init_of(box.info()["box"])
    t.d.shutdown(keep=True)
    with open(t.d.run + "/spawn.lock", "r+") as f:
        text = f.read()
        true(re.fullmatch(r"v\d+ [0-9a-f]+:[0-9a-f]+ /.*\n", text), text)
        for other in ("", re.sub(r"^v(\d+)", lambda m: f"v{int(m[1]) + 1}", text)):
            f.seek(0)
            f.truncate()
            f.write(other)
            f.flush()
            contains(run_to_end(t.d.env), f"a hutch-spawn of another version is still running for the home {t.d.home}")
        f.seek(0)
        f.truncate()
        f.write(text)
    t.d.start(settle=False)
    equal(t.d.init_of(box.info()["box"]), pid)
    box.ok(["true"])


# ---- leftovers of versions that named their control groups by the home's path ------------------------------------------


def old_tag(home):
    h = 2166136261
    for c in home.encode():
        h = (h ^ c) * 16777619 & 0xffffffff
    return f"hutch-{h:08x}"


def old_groups(tag):
    """A group of that tag in every hierarchy that hutch uses, with a box in it."""
    names = ("cpu", "memory", "pids", "unified" if os.path.isdir("/sys/fs/cgroup/unified") else "freezer")
    tops = [p for p in ("/sys/fs/cgroup/" + n for n in names) if os.path.isdir(p)] or ["/sys/fs/cgroup"]
    got = [os.path.join(p, tag, "i00000000000000000000") for p in tops]
    for p in got:
        os.makedirs(p)
    return got


def drop_groups(groups):
    for p in groups:
        for x in (p, os.path.dirname(p)):
            try:
                os.rmdir(x)
            except OSError:
                pass  # of a test that failed: the next rmdir is the operator's


@plain
@timeout(120)
def control_groups_of_an_older_version(t):
    d = _daemon.Daemon(name="old")
    procs, groups = [], []

    def orphan(cmd):
        """In the old groups, with a parent that is nobody's spawner."""
        p = subprocess.Popen(cmd, executable="/usr/bin/python3" if cmd[0] == "hutch-spawn" else None)
        procs.append(p)
        return p

    def put_in(p):
        for g in groups:
            with open(g + "/cgroup.procs", "w") as f:
                f.write(str(p.pid))
    try:
        groups += old_groups(old_tag(d.home))
        # Somebody runs an older hutch with this home's path in another root: its groups are its own.
        sleeper = orphan(["sleep", "600"])
        put_in(sleeper)
        elsewhere = orphan(["hutch-spawn", "-c", "import time; time.sleep(600)", "--home", d.home])
        d.start(settle=False)
        true(all(os.path.isdir(g) for g in groups) and sleeper.poll() is None, "another one's groups are left alone")
        d.shutdown()
        elsewhere.kill()
        elsewhere.wait()
        # Nobody does: they are of this home's earlier life.
        d.start(settle=False)
        until(lambda: sleeper.poll() is not None, 10, "what ran there was ended")
        equal([g for g in groups if os.path.exists(os.path.dirname(g))], [], "and the groups are gone")
        equal(d.stop(), [])
        # It cannot be seen who runs there: left alone.
        old_groups(old_tag(d.home))
        sleeper = orphan(["sleep", "600"])
        put_in(sleeper)
        p = subprocess.Popen(["unshare", "-m", "-p", "-f", "sh", "-ec", 'mount -t proc proc /proc; exec "$0"', _daemon.program("hutchd")],
                             env=d.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            until(lambda: os.path.exists(d.run + "/hutch.sock"), 60, "one that sees no process but its own is up")
            true(all(os.path.isdir(g) for g in groups) and sleeper.poll() is None, "groups with processes it cannot see are left alone")
        finally:
            d.kill_everything()
            p.wait()
        # What that one left, and the old ones, the next start sweeps.
        d.start(settle=False)
        until(lambda: sleeper.poll() is not None, 10, "what ran there was ended")
        equal(d.stop(), [])
        equal([g for g in groups if os.path.exists(os.path.dirname(g))], [])
    finally:
        for p in procs:
            p.kill()
            p.wait()
        d.kill_everything()
        drop_groups(groups)
        d.scrub()
        d.destroy()


# ---- starts that fail -------------------------------------------------------------------------------------------------


def damage(home):
    path = os.path.join(home, "state.db")
    for x in ("-wal", "-shm"):
        if os.path.exists(path + x):
            os.unlink(path + x)
    with open(path, "r+b") as f:
        good = f.read()
        f.seek(0)
        f.write(b"this is not a database" * 1000)

    def undo():
        with open(path, "wb") as f:
            f.write(good)
    return undo


@plain
@timeout(200)
def a_start_that_fails_leaves_no_process(t):
    d = _daemon.Daemon(name="failing")
    try:
        def fails(want, **env):
            said = run_to_end(dict(d.env, **env))
            equal(living(d), [], f"processes left by a start that failed: {said}")
            contains(said, want)
            equal([g for g in _daemon._census.cgroup_dirs() if d.census.tags & set(_daemon._census.TAG.findall(g))], [], "control groups")
            lacks(os.listdir(d.run) if os.path.isdir(d.run) else [], "spawn.sock")

        with socket.socket() as s:
            s.bind(("127.0.0.1", d.port))
            s.listen()
            fails(f"HUTCH_LISTEN: 127.0.0.1:{d.port} is taken by python3, pid {os.getpid()}")
            true(not os.path.exists(d.run), "nothing was made before the address was sure")
        fails("HUTCH_POOL_VM", HUTCH_POOL_VM="-1")
        fails("HUTCH_LISTEN", HUTCH_LISTEN="nonsense")
        # In words, and not only in a log.
        fails("hutch-spawn did not start: /", HUTCH_BIN=t.tmp)
        fails("hutch-spawn did not start: seccomp", HUTCH_SHARE=t.tmp)
        root = os.path.join(t.tmp, "root")
        os.mkdir(root)
        said = run_to_end(d.env, [f'for d in /*; do [ ! -d "$d" ] || [ -L "$d" ] || {{ mkdir "{root}$d"; mount --rbind "$d" "{root}$d"; }}; [ ! -L "$d" ] || cp -a "$d" "{root}$d"; done'], root=root)
        contains(said, "hutch-spawn did not start: its root directory is not a mount point, as in a plain chroot")
        equal(living(d), [])
        # After hutch-spawn, hutch-egress and all are up.
        undo = damage(d.home)
        fails("database")
        undo()
        os.makedirs(d.run, exist_ok=True)
        with open(d.run + "/hutch.sock", "w"):
            fails("hutch.sock")
        os.unlink(d.run + "/hutch.sock")
        os.makedirs(t.tmp + "/closed/home")
        os.chmod(t.tmp + "/closed", 0o700)
        fails(f"cannot reach {t.tmp}/closed/home", HUTCH_HOME=t.tmp + "/closed/home")
        # And the home is as good as before.
        d.start(settle=False)
        d.client.create(isolation="container").ok(["true"])
        equal(d.stop(), [])
    finally:
        d.kill_everything()
        d.scrub()
        d.destroy()


@tiers("vm", "container")
@own_daemon()
@timeout(200)
def a_start_that_fails_spares_what_was_there(t):
    box = t.box()
    pid = t.d.init_of(box.info()["box"])
    t.d.shutdown(keep=True)
    before = programs(t.d)
    undo = damage(t.d.home)
    contains(run_to_end(t.d.env), "database")
    undo()
    with socket.socket() as s:
        s.bind(("127.0.0.1", t.d.port))
        s.listen()
        contains(run_to_end(t.d.env), "HUTCH_LISTEN")
    with open(t.d.run + "/hutch.sock", "w"):
        contains(run_to_end(t.d.env), "hutch.sock")
    os.unlink(t.d.run + "/hutch.sock")
    equal([x for x in programs(t.d) if x[0] != "hutch-egress"], [x for x in before if x[0] != "hutch-egress"])
    t.d.start(settle=False)
    equal(box.info()["state"], "running")
    equal(t.d.init_of(box.info()["box"]), pid)
    box.ok(["true"])


@contextlib.contextmanager
def owned_by_another(d):
    """The control groups of its home are locked, as by one that still runs on a home that was deleted (its inode may be used again)."""
    st, h = os.stat(d.home), 14695981039346656037
    for c in struct.pack("=QQ", st.st_dev, st.st_ino):
        h = (h ^ c) * 1099511628211 & 0xffffffffffffffff
    top = "/sys/fs/cgroup/memory" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
    group = f"{top}/hutch-{h:016x}"
    os.makedirs(group + "/box", exist_ok=True)
    fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield group
        true(os.path.isdir(group + "/box"), "what is locked is not swept")
    finally:
        os.close(fd)


@plain
@timeout(100)
def a_start_that_is_killed_leaves_no_process(t):
    """It cannot clean up after itself; hutch-spawn sees that it is gone. The next start does not rely on that one."""
    d = _daemon.Daemon(name="killed")

    def killed():
        with owned_by_another(d):  # hutch-spawn waits a moment for them, and hutchd for it
            p = subprocess.Popen([_daemon.program("hutchd")], env=d.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            until(lambda: d.pids("hutch-spawn"), 30, "hutch-spawn")
            p.kill()
            p.wait()
            true(not os.path.exists(d.run + "/hutch.sock"), "hutchd was caught while it started")
    try:
        killed()
        until(lambda: not living(d), 20, "everything has ended")
        killed()
        d.start(settle=False)
        d.client.create(isolation="container").ok(["true"])
        equal(d.stop(), [])
        with owned_by_another(d) as group:
            contains(run_to_end(d.env), "belong to another hutch that is still running")
        equal(living(d), [])
        os.rmdir(group + "/box")
        os.rmdir(group)
    finally:
        d.kill_everything()
        d.scrub()
        d.destroy()
