"""Sandboxes that break themselves: panic, power off, a frozen agent, a lying clock."""
import array
import fcntl
import os
import resource

from hutchtest import *
from packs import hutch


def ends(t, box, cmd, reasons, user="root", codes="gone guest unavailable canceled"):
    s = box.stream(cmd, user=user, deadline=40)
    got = s.collect()
    true(got["last"] is not None, "a stream must end with a reason")
    equal(got["last"]["event"], "interrupted", f"an exit status is never invented: {got['last']}")
    true(got["last"]["error"]["code"] in codes.split(), got["last"])
    o = box.wait_state("gone", "failed", seconds=20)
    true(o["end"]["reason"] in reasons, o["end"])
    true(o["end"]["message"])
    return o


@tiers("vm")
def kernel_panic(t):
    box = t.box()
    ends(t, box, "echo 1 > /proc/sys/kernel/sysrq; sync; echo c > /proc/sysrq-trigger; sleep 60", ("guest-exit", "host-fault"))


@tiers("vm")
def power_off(t):
    box = t.box()
    ends(t, box, ["python3", "-c", "import ctypes,time; ctypes.CDLL(None).reboot(0x4321fedc); time.sleep(60)"], ("guest-exit",))


@tiers("vm")
def reboot(t):
    """A guest that reboots does not come back with its clone's old identity: it ends."""
    box = t.box()
    ends(t, box, ["python3", "-c", "import ctypes,time; ctypes.CDLL(None).reboot(0x01234567); time.sleep(60)"], ("guest-exit",))


@tiers("vm")
def halt_is_noticed(t):
    """A halted kernel answers nothing any more; removing it still works and is quick."""
    box = t.box()
    s = box.stream(["python3", "-c", "import ctypes,time; ctypes.CDLL(None).reboot(0xcdef0123); time.sleep(60)"], user="root", deadline=40)
    s.started()
    try:
        box.exec(["true"], timeout_ms=2000, deadline=70)
    except ApiError as e:
        true(e.code in ("timeout", "guest", "unavailable", "gone", "not_found"), e)
    s.abort()
    if box.info()["state"] == "running":
        box.kill()


@tiers("vm", "container")
def killing_everything_inside(t):
    """kill -9 -1 as root: PID 1 lives on and serves."""
    box = t.box()
    box.background(["sleep", "999"])
    r = None
    try:
        r = box.exec(["sh", "-c", "kill -9 -1; echo left"], user="root", deadline=30)
        equal(r.text, "left\n", "kill -1 spares its caller and PID 1")
    except ApiError as e:
        true(e.code in ("gone", "guest"), e)
    o = box.info()
    if o["state"] == "running":
        box.ok(["echo", "alive"])
    else:
        true(o["end"]["reason"] in ("guest-exit",), o["end"])


@tiers("vm", "container")
def broken_system_inside(t):
    """Root deletes libc, shell and python: typed errors, files still work, other sandboxes do not notice."""
    box, other = t.box(), t.box()
    try:
        box.exec("rm -rf /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /bin/bash /usr/bin/python3*", user="root", deadline=40)
    except ApiError:
        pass
    refuses("not_found guest denied", box.exec, ["python3", "-c", "1"])
    box.put("/home/user/still", b"works")
    equal(box.get("/home/user/still"), b"works")
    other.ok(["python3", "-c", "print(1)"])
    t.box().ok(["python3", "-c", "print(1)"])


@tiers("vm", "container")
def no_passwd_file(t):
    box = t.box()
    box.ok("rm /etc/passwd /etc/group", user="root")
    try:
        box.exec(["id", "-u"])
    except ApiError as e:
        true(e.code in ("not_found", "invalid", "guest"), e)
    equal(box.info()["state"], "running")


@tiers("vm", "container")
def tmp_is_a_file_and_home_is_gone(t):
    box = t.box()
    box.ok("rm -rf /home/user && touch /home/user && rm -rf /tmp && touch /tmp", user="root", cwd="/")
    try:
        box.exec(["true"])
    except ApiError as e:
        true(e.code in ("not_found", "invalid", "guest"), e)
    box.ok(["true"], cwd="/")
    refuses("invalid conflict not_found", box.put, "/home/user/x", b"x")


@tiers("vm", "container")
def command_line_as_long_as_it_gets(t):
    box = t.box()
    r = None
    try:
        r = box.exec(["true", "x" * 140_000])
    except ApiError as e:
        true(e.code in ("invalid", "too_large", "quota", "guest"), e)
    true(r is None or r.code == 0, r)
    box.ok(["true"], env={f"V{i}": "y" * 50 for i in range(100)})


@tiers("vm", "container")
def loop_of_short_lives(t):
    """Create, use and remove again and again: nothing may add up (the census looks)."""
    for _ in range(60 if SLOW else 12):
        b = t.box()
        equal(b.ok(["echo", "x"]), "x\n")
        b.kill()


@tiers("vm")
def disk_scribbling(t):
    """Root writes garbage over its own block device: its own problem only; the template is untouched."""
    box = t.box()
    dev = box.ok("findmnt -no SOURCE / 2>/dev/null || awk '$2==\"/\"{print $1}' /proc/mounts", user="root").strip().split("[")[0]
    if not dev.startswith("/dev/") or box.exec(["test", "-b", dev]).code != 0:
        dev = box.ok("ls /dev/vda /dev/vdb 2>/dev/null | head -1", user="root").strip()
    try:
        box.exec(["dd", "if=/dev/urandom", f"of={dev}", "bs=1M", "count=64", "conv=notrunc"], user="root", deadline=40, timeout_ms=30000)
    except ApiError:
        pass
    fresh = t.box()
    fresh.ok(["python3", "-c", "import json,ssl; print(1)"])
    fresh.ok("dpkg --verify coreutils bash || true")
    if box.info()["state"] == "running":
        box.kill()


@tiers("vm", "container")
def stdout_closed_and_processes_that_live_on(t):
    box = t.box()
    mark = "daemonized-" + os.urandom(3).hex()
    r = box.exec(f"setsid bash -c 'exec -a {mark} sleep 999' >/dev/null 2>&1 </dev/null & exit 0")
    equal(r.code, 0, "a proper daemon does not hold its starter up")


def group_of(t):
    """The daemon's own directory in the hierarchy that limits memory."""
    t.d.census.mine()
    for tag in t.d.census.tags:
        for top in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
            for name in ("memory.limit_in_bytes", "memory.max"):
                if os.path.exists(os.path.join(top, tag, name)):
                    return os.path.join(top, tag), name
    raise Skip("no memory controller")


def put_text(path, text):
    try:
        with open(path, "w") as f:
            f.write(text)
        return True
    except OSError:  # a limit below what is used
        return False


def refused_for_memory(t, codes, words=("memory",)):
    e = refuses(codes, t.box, deadline=60)
    true(any(w in e.message for w in words), f"the reason is named: {e.message}")
    equal([b for b in t.c.get("/v1/sandboxes")["sandboxes"] if b["state"] != "gone"], [])


NOTHING_WAITS = {"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "0"}


@plain
def more_memory_than_there_is(t):
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") >> 20
    if total >= 65536:
        raise Skip("this host has more than a sandbox may ask for")
    for tier in ("vm", "container"):
        e = refuses("quota", t.c.create, isolation=tier, memory_mib=total + 1)
        contains(e.message, str(total))


@tiers("vm")
@own_daemon(**NOTHING_WAITS)
def host_without_memory(t):
    """What all sandboxes together may have is used up: a typed error that names memory, nothing left, and right again afterwards."""
    t.box().kill()
    group, limit = group_of(t)
    try:
        until(lambda: put_text(os.path.join(group, limit), str(8 << 20)), 20, "what the last one left in the cache goes")
        refused_for_memory(t, "unavailable guest")
    finally:
        put_text(os.path.join(group, limit), "-1" if limit == "memory.limit_in_bytes" else "max")
    t.box().ok(["echo", "again"])


def as_owner(pid, do):
    """Whoever owns the user namespace of a process has all rights over it; root of a host that took CAP_SYS_RESOURCE away has not."""
    with open(f"/proc/{pid}/ns/user") as f:
        uid = array.array("I", [0])
        fcntl.ioctl(f, 0xB704, uid)  # NS_GET_OWNER_UID
    child = os.fork()
    if not child:
        try:
            os.seteuid(uid[0])
            do()
            os._exit(0)
        finally:
            os._exit(1)
    equal(os.waitpid(child, 0)[1], 0, f"as uid {uid[0]}")


@tiers("container")
@own_daemon(**NOTHING_WAITS)
def agent_without_memory(t):
    """The program of a container cannot be mapped: likewise. A kernel that has begun to load a program when memory runs out can
    only end it with a signal; then that is the reason."""
    t.box().kill()
    jails = until(lambda: [p for p in [t.d.pids("hutch-ready")] if len(p) == 4], 20, "jails are made ahead")[0]
    for pid in jails:
        as_owner(pid, lambda: resource.prlimit(pid, resource.RLIMIT_AS, (1 << 12, resource.prlimit(pid, resource.RLIMIT_AS)[1])))
    codes = {"unavailable": "memory", "internal": "was killed by signal 11"}
    refused_for_memory(t, " ".join(codes), codes.values())
    for _ in jails:  # those that are left may be taken as well
        try:
            return t.box().ok(["echo", "again"])
        except ApiError as e:
            contains(e.message, codes.get(e.code, "another code"))
    t.box().ok(["echo", "again"])


@tiers("vm")
@own_daemon(**NOTHING_WAITS)
def emulator_without_memory(t):
    """QEMU cannot map what it needs: likewise."""
    t.box().kill()
    spawner = t.d.pids("hutch-spawn")[0]
    soft, hard = resource.prlimit(spawner, resource.RLIMIT_AS)
    resource.prlimit(spawner, resource.RLIMIT_AS, (400 << 20, hard))
    try:
        refused_for_memory(t, "unavailable")
    finally:
        resource.prlimit(spawner, resource.RLIMIT_AS, (soft, hard))
    t.box().ok(["echo", "again"])


@tiers("vm")
def console_is_kept(t):
    """What a guest's kernel prints can be seen from outside, also after it was restored, and never raw."""
    box = t.box()
    box.ok(["sh", "-c", "echo '<0>from the kernel' > /dev/kmsg; printf 'odd \\033[31m\\377 bytes\\n' > /dev/console"], user="root")
    text = lambda: "\n".join(box.console())  # noqa: E731
    until(lambda: "from the kernel" in text() and "odd \\x1b[31m\\xff bytes" in text(), 20, "it is printed by and by")
    rc, out, _ = hutch(t.d, "logs", "--console", box.id)
    equal(rc, 0)
    contains(out, "from the kernel")
    lacks(out, "\x1b")
    box.pause()
    refuses("conflict", box.console)


@tiers("container")
def a_container_has_no_console(t):
    refuses("unsupported", t.box().console)


@tiers("vm")
@timeout(200)
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")
def guest_that_does_not_come_up(t):
    """A first boot that fails is tried again, loudly; the message has the line that says why, the log the rest."""
    t.d.shutdown()
    kernel = os.path.join(t.d.home, "kernel")
    for name, text in (("modules.list", ""), ("SHA256SUMS", "of another kernel\n")):
        os.unlink(os.path.join(kernel, name))  # linked to the seed's
        with open(os.path.join(kernel, name), "w") as f:
            f.write(text)
    t.d.start()
    e = refuses("gone guest unavailable", t.box)  # whichever end of it is noticed first
    contains(e.message, "hutch-agent: root disk /dev/vda did not appear")
    contains(e.message, "log/console.log in HUTCH_HOME")
    text = open(os.path.join(t.d.home, "log", "console.log")).read()
    first, second = text.split("boot 2 of 2")
    contains(first, "boot 1 of 2")
    contains(first, "hutch-agent: root disk")
    true("Run /init as init process" in second and "Run /init" not in first, "the second boot says all it does")
