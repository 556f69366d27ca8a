#!/usr/bin/python3
"""make bench: one JSON line per row, each with a ratio to a baseline of the same run.

Machines are noisy: figures are medians (and p90) of interleaved samples, and
the ratio is what to compare. Nothing is asserted. The daemon is started three
times with different pools; baselines run on the same root file system.
"""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "lib"))

from daemon import BUILD, SEED, Daemon  # noqa: E402

N = int(os.environ.get("HUTCH_BENCH_N", "20"))
VM_N = max(4, N // 3)
TMP = tempfile.mkdtemp(prefix="hutch-bench-")
HB = os.path.join(TMP, "hb")
HELLO = ["/bin/echo", "hello"]


def row(name, samples, base=None, base_name=None, aim=None, unit="ms", note=None):
    r = {"row": name, "n": len(samples), "median": round(statistics.median(samples), 3),
         "p90": round(sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.9))], 3), "unit": unit}
    if base:
        r["baseline"], r["baseline_median"] = base_name, round(statistics.median(base), 3)
        r["ratio"] = round(statistics.median(samples) / statistics.median(base), 4)
    if aim:
        r["aim"] = aim
    if note:
        r["note"] = note
    print(json.dumps(r), flush=True)
    return r


def gate(n=3):
    """The network gate against a plain veth pair, both in one run of bench/gate_bench.c."""
    got = [json.loads(subprocess.run([os.path.join(BUILD, "bench/gate/gate_bench")], check=True, capture_output=True, text=True).stdout.splitlines()[-1]) for _ in range(n)]

    def of(key):
        return [g[key] for g in got]
    row("network gate: throughput of one connection", of("gate_mbit"), of("plain_mbit"), "plain veth", ">= 0.5 x", "Mbit/s")
    row("network gate: connections a second, one after the other", of("gate_rate"), of("plain_rate"), "plain veth", unit="1/s")
    row("network gate: a new connection and a byte back", of("gate_conn_ms"), of("plain_conn_ms"), "plain veth", "<= 1 ms more")
    row("network gate: a new TLS connection and a request", of("gate_tls_ms"), of("plain_tls_ms"), "plain veth", "<= 1 ms more")
    row("network gate: connections open at once", of("concurrent"), aim="1000", unit="connections")


def hb(*args):
    out = subprocess.run([HB, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"hb {args}: {out.stderr}")
    return [line.split() for line in out.stdout.splitlines()]


def sock(d):
    return os.path.join(d.run, "hutch.sock")


def lives(d, create, n, threads=1, cmd=HELLO):
    """[(create, exec, delete, path)] in ms, and the wall time of all."""
    lines = hb(sock(d), "life", json.dumps(create), json.dumps({"cmd": cmd}), n, threads)
    got = [(float(a) / 1e3, float(b) / 1e3, float(c) / 1e3, p) for k, a, b, c, p in (x for x in lines if x[0] == "life")]
    return got, float(next(x for x in lines if x[0] == "total")[1]) / 1e3


def with_path(d, create, path, n, cmd=HELLO):
    """Samples that started by `path` only; waits for the pool in between."""
    got = []
    for _ in range(n * 3):
        if path in ("pool", "prestarted", "slot"):
            d.wait_pools()
        got += [s for s in lives(d, create, 1, cmd=cmd)[0] if s[3] == path]
        if len(got) >= n:
            break
    return got


# ---- baselines -------------------------------------------------------------------------------------------------
def spawn_ms(argv, n):
    return [float(x[2]) / 1e3 for x in hb("spawn", n, "--", *argv) if x[0] == "spawn"]


class Root:
    """The template's own tree, mounted read-only in this process' private mount namespace."""

    def __init__(self, image):
        self.dir = os.path.join(TMP, "root")
        os.makedirs(self.dir)
        subprocess.run(["mount", "-o", "ro,loop,noload", image, self.dir], check=True)

    def runc(self):
        b = os.path.join(TMP, "bundle")
        os.makedirs(b, exist_ok=True)
        subprocess.run(["runc", "spec"], cwd=b, check=True)
        with open(os.path.join(b, "config.json")) as f:
            c = json.load(f)
        c["root"] = {"path": self.dir, "readonly": True}
        c["process"].update(terminal=False, args=HELLO, rlimits=[])
        with open(os.path.join(b, "config.json"), "w") as f:
            json.dump(c, f)
        return ["sh", "-c", f"exec runc run --bundle {b} hutch-bench-$$"]

    def bwrap(self):
        return ["bwrap", "--ro-bind", self.dir, "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "--die-with-parent", *HELLO]

    def nspawn(self):
        return ["systemd-nspawn", "-q", "--read-only", "--register=no", "--keep-unit", "-D", self.dir, *HELLO]


def works(argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    return p.returncode == 0 and "hello" in p.stdout, p.stderr.strip()[-120:]


def cpio(files):
    out = b""
    for i, (name, mode, data) in enumerate([*files, ("TRAILER!!!", 0, b"")]):
        head = [i + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        part = b"070701" + b"".join(b"%08X" % x for x in head) + name.encode() + b"\0"
        out += part + b"\0" * (-len(part) % 4) + data + b"\0" * (-len(data) % 4)
    return out


def cold_boot(home, image, n):
    """QEMU from nothing to an answering agent, on the same kernel, initrd and image: ([ms], [MiB of it then])."""
    k = os.path.join(home, "kernel")
    names = open(os.path.join(k, "modules.list")).read().split()
    read = lambda p: open(p, "rb").read()  # noqa: E731
    initrd = os.path.join(TMP, "initrd")
    with open(initrd, "wb") as f:
        f.write(cpio([("dev", 0o040755, b""), ("proc", 0o040755, b""), ("sys", 0o040755, b""), ("root", 0o040755, b""), ("modules", 0o040755, b""),
                      ("init", 0o100755, read(os.path.join(BUILD, "hutch-agent"))),
                      ("modules.list", 0o100644, ("\n".join(os.path.basename(x) for x in names) + "\n").encode()),
                      *((f"modules/{os.path.basename(x)}", 0o100644, read(os.path.join(k, "modules", os.path.basename(x)))) for x in names)]))
    khz = tsc_khz()
    got, memory = [], []
    for i in range(n):
        s = os.path.join(TMP, f"q{i}")
        disk = os.path.join(TMP, f"d{i}.qcow2")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "raw", disk], check=True)
        t0 = time.monotonic()
        p = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "microvm,x-option-roms=off,rtc=on,pit=off,pic=off", "-accel", "tcg,tb-size=128",
             "-cpu", "max,erms=off,la57=off", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "null",
             "-kernel", os.path.join(k, "vmlinux"), "-initrd", initrd, "-append",
             "console=ttyS0 reboot=t panic=-1 quiet cryptomgr.notests audit=0 i8042.noaux i8042.nokbd i8042.nomux i8042.nopnp "
             f"tsc=reliable tsc_early_khz={khz} mitigations=off norandmaps",
             "-drive", f"id=d0,file={disk},format=qcow2,if=none", "-device", "virtio-blk-device,drive=d0,serial=root",
             "-device", "virtio-serial-device", "-chardev", f"socket,id=c0,path={s},server=on,wait=off",
             "-device", "virtserialport,chardev=c0,name=agent",
             "-netdev", "hubport,id=n0,hubid=0", "-device", "virtio-net-device,netdev=n0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            c = socket.socket(socket.AF_UNIX)
            while True:
                try:
                    c.connect(s)
                    break
                except OSError:
                    time.sleep(0.005)
            c.settimeout(30)
            epoch = 0x0BE9C4 + i
            c.sendall(b"\xff\xff\xff\xffHUTS" + struct.pack("<II", 1, epoch))
            seen = b""
            while b"\xff\xff\xff\xffHUTA" + struct.pack("<II", 1, epoch) not in seen:
                x = c.recv(4096)
                if not x:
                    raise OSError("closed")
                seen += x
            got.append((time.monotonic() - t0) * 1e3)
            memory.append(pss_kib(p.pid) / 1024)
        except OSError as e:
            print(f"# cold boot {i}: {e}", file=sys.stderr)
        finally:
            p.kill()
            p.wait()
            os.unlink(disk)
    return got, memory


def tsc_khz():
    """The daemon's own log knows; measured here by its manifest so that bench needs no second probe."""
    for top, _, files in os.walk(os.path.join(SEED, "templates")):
        if "manifest.json" in files and os.path.basename(os.path.dirname(top)) == "vm":
            return json.load(open(os.path.join(top, "manifest.json")))["tsc_khz"]
    raise SystemExit("no VM snapshot in the seed home; run tools/run-e2e --seed-only")


def pss_kib(pid):
    try:
        return int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M).group(1))
    except (OSError, AttributeError):
        return 0


def isolates(d, root):
    """One program per call, against starting the same interpreter of the same tree for the same program."""
    native = {"python": (["/usr/bin/python3", "-c", "print(1)"], "python3 -c", "print(1)"), "js": (["/usr/bin/node", "-e", "console.log(1)"], "node -e", "console.log(1)")}
    for lang, (argv, name, code) in native.items():
        body = json.dumps({"language": lang, "code": code})
        hb(sock(d), "post", "/v1/eval", body, 3)  # the first one loads the interpreter
        x = [float(v[1]) / 1e3 for v in hb(sock(d), "post", "/v1/eval", body, 3 * N) if v[0] == "post"]
        base = spawn_ms(["chroot", root.dir, *argv], N)
        row(f"isolate eval, {lang}", x, base, f"{name}, started natively", "<= 0.5 x" if lang == "python" else None)
        began, n = time.monotonic(), 10 * N
        clients = [subprocess.Popen([HB, sock(d), "post", "/v1/eval", body, str(n)], stdout=subprocess.DEVNULL) for _ in range(4)]
        if any(p.wait() for p in clients):
            raise SystemExit("isolate: a call failed")
        row(f"isolate evals, {lang}, 4 clients", [4 * n / (time.monotonic() - began)], unit="per second", aim=">= 250" if lang == "python" else None)


def timed(fn):
    t0 = time.monotonic()
    got = fn()
    return (time.monotonic() - t0) * 1e3, got


def on_disk(d, box):
    return sum(os.lstat(os.path.join(top, f)).st_blocks * 512 for top, _, files in os.walk(os.path.join(d.home, "boxes", box)) for f in files)


def pauses(d, boots):
    """Through the API: a 512 MiB VM that made so much memory its own, to disk and back to an exec's answer."""
    c = d.client
    for mb, aims in ((20, ("<= 40 ms", "<= 50 ms")), (200, (None, None))):
        b = c.create(isolation="vm", memory_mib=512)
        b.ok(f"head -c {mb << 20} /dev/urandom > /dev/shm/dirty", deadline=120)
        down, up, size = [], [], []
        for _ in range(VM_N):
            ms, o = timed(b.pause)
            down.append(ms)
            size.append(on_disk(d, o["box"]) / 1e6)
            up.append(timed(lambda: (b.resume(), b.ok(["/bin/true"])))[0])
        row(f"vm pause, {mb} MB dirty", down, boots, "cold boot", aims[0])
        row(f"vm resume to exec answer, {mb} MB dirty", up, boots, "cold boot", aims[1])
        row(f"bytes on disk of a paused vm, {mb} MB dirty", size, [512 * 1.048576], "its whole memory", unit="MB", note="memory, devices and disk layer")
        if mb == 20:
            wake = []
            for _ in range(VM_N):
                b.pause(standby=True)
                wake.append(timed(b.resume)[0])
            row("vm standby resume", wake, boots, "cold boot", "<= 4 ms")
        b.kill()


def copied(d, snapshot):
    """What cp takes for the files of a snapshot, within the same file system: ms."""
    to = os.path.join(d.home, "tmp", "bench-copy")
    ms = timed(lambda: subprocess.run(["cp", "-a", "--sparse=always", os.path.join(d.home, "snapshots", snapshot), to], check=True))[0]
    shutil.rmtree(to)
    return ms


def snapshots(d, tier):
    """How long a running sandbox stands still for a snapshot, as the daemon reports it."""
    b = d.client.create(isolation=tier)
    b.ok("head -c 20971520 /dev/urandom > " + ("/dev/shm/dirty" if tier == "vm" else "/home/user/dirty"), deadline=120)
    down, whole, copy = [], [], []
    for _ in range(VM_N):
        ms, s = timed(b.snapshot)
        whole.append(ms)
        down.append(s["downtime_ms"])
        copy.append(copied(d, s["id"]))
        d.client.delete("/v1/snapshots/" + s["id"])
    what = "20 MB of memory dirty" if tier == "vm" else "20 MB of files"
    row(f"{tier} snapshot: downtime, {what}", down, copy, "cp of the snapshot's files")
    row(f"{tier} snapshot: call, {what}", whole, copy, "cp of the snapshot's files")
    b.kill()


def clones_pss(d, kids):
    mine = {k.info()["box"] for k in kids}
    return [pss_kib(p.pid) / 1024 for p in d.census.mine() if p.comm == "qemu-system-x86" and any(m in p.cgroups for m in mine)]


def forks(d, tier, base, base_name):
    """Through the API: from the call until every child has answered an exec, all of them asked at once."""
    c = d.client
    b = c.create(isolation=tier, memory_mib=512)
    b.ok("head -c 1048576 /dev/urandom > /home/user/f; sync")
    for count, aim in ((1, None), (10, None), (50, "<= 3000 ms" if tier == "vm" else None)):
        took, ready, down = [], [], []
        for _ in range(max(1, VM_N // count) if tier == "vm" else max(2, N // count)):
            t0 = time.monotonic()
            reply = b.fork(count=count, deadline=300)
            ready.append((time.monotonic() - t0) * 1e3)
            bad = [f["error"] for f in reply["forks"] if "error" in f]
            if bad:
                raise SystemExit(f"fork: {bad[0]}")
            kids = [c.box(f["sandbox"]["id"]) for f in reply["forks"]]
            if count == 10 and tier == "vm":
                idle = clones_pss(d, kids)
            with concurrent.futures.ThreadPoolExecutor(count) as at_once:
                list(at_once.map(lambda k: k.ok(["/bin/true"], deadline=120), kids))
            took.append((time.monotonic() - t0) * 1e3)
            down.append(reply["downtime_ms"])
            if count == 10 and tier == "vm":
                used = clones_pss(d, kids)
                disk = [on_disk(d, k.info()["box"]) / 1e6 for k in kids]
            for k in kids:
                k.kill()
        row(f"{tier} fork of {count}, all configured and running", ready, base, base_name, aim)
        row(f"{tier} fork of {count} to all first exec answers", took, base, base_name, note=f"the parent stood still {statistics.median(down):.1f} ms")
    if tier == "vm":
        row("memory of an idle clone of a fork of 10, vm", idle, aim="<= 28.6 MiB (30 MB)", unit="MiB PSS", note="as forked")
        row("memory of a clone of a fork of 10 after one command, vm", used, unit="MiB PSS", note="emulated: with what was translated for it")
        row("bytes on disk of a clone of a fork, vm", disk, unit="MB", note="its own disk layer")
        b.ok("head -c 209715200 /dev/urandom > /dev/shm/big", deadline=120)
        ms, reply = timed(lambda: b.fork(count=10, deadline=300))
        kids = [c.box(f["sandbox"]["id"]) for f in reply["forks"]]
        row("vm fork of 10, 200 MiB dirty, all configured and running", [ms], base, base_name)
        row("memory of an idle clone of a fork of 10, 200 MiB dirty, vm", clones_pss(d, kids), [200], "what its parent wrote", unit="MiB PSS")
        for k in kids:
            k.kill()
    b.kill()


CELL = "import pandas as pd; df = pd.DataFrame({'a': [1, 2, 3], 'b': [4.5, 5.5, 6.5]}); df.describe()"
JUPYTER = """
import json, sys, time
from jupyter_client.manager import start_new_kernel
cell, n = sys.argv[1], int(sys.argv[2])
t = time.monotonic()
manager, client = start_new_kernel(kernel_name="python3")
client.execute_interactive(cell, output_hook=lambda m: None)
first = time.monotonic() - t
warm = []
for _ in range(n):
    t = time.monotonic()
    client.execute_interactive("1 + 1", output_hook=lambda m: None)
    warm.append(time.monotonic() - t)
manager.shutdown_kernel(now=True)
print(json.dumps([first, warm]))
"""


def jupyter(n):
    """A native Jupyter kernel: from nothing to the answer of CELL, and a cell once it runs; or None."""
    first, warm = [], []
    for _ in range(n):
        p = subprocess.run(["/usr/bin/python3", "-c", JUPYTER, CELL, "20"], capture_output=True, text=True)
        if p.returncode:
            print(json.dumps({"row": "baseline Jupyter kernel", "skipped": (p.stderr.strip().splitlines() or ["?"])[-1][:120]}), flush=True)
            return None, None
        a, b = json.loads(p.stdout)
        first.append(a * 1e3)
        warm += [x * 1e3 for x in b]
    return first, warm


def cells():
    """Code contexts whose kernels waited, against a native Jupyter kernel."""
    first, warm = jupyter(5)
    d = Daemon(env={"HUTCH_POOL_VM": "2", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "2"}).start()
    try:
        names = [t["name"] for t in d.client.get("/v1/templates")["templates"] if "python" in t["kernels"]]
        if not names:
            print(json.dumps({"row": "cells", "skipped": "no template with kernels here"}), flush=True)
            return
        template = "code-interpreter" if "code-interpreter" in names else names[0]
        post = lambda b, code, n: [float(v[1]) / 1e3 for v in hb(sock(d), "post", f"/v1/sandboxes/{b.id}/eval", json.dumps({"code": code}), n) if v[0] == "post"]  # noqa: E731
        for tier, path, n, aim, warm_aim in (("container", "slot", N, "<= 1/20", "<= 2 ms"), ("vm", "pool", VM_N, "<= 1/4", "<= 5 ms")):
            whole, alone, again = [], [], []
            end = time.monotonic() + 600
            while len(alone) < n and time.monotonic() < end:
                time.sleep(3)  # the pool is refilled in quiet moments
                t0 = time.monotonic()
                b = d.client.create(template=template, isolation=tier)
                made = (time.monotonic() - t0) * 1e3
                if b.info()["start"]["path"] == path:
                    alone += post(b, CELL, 1)
                    whole.append(made + alone[-1])
                    again += post(b, "1 + 1", 10)
                b.kill()
            if not alone:
                print(json.dumps({"row": f"first pandas cell, {tier}", "skipped": f"no sandbox started by {path}"}), flush=True)
                continue
            row(f"first pandas cell in a fresh {template}, {tier}", alone, first, "native Jupyter start and the same cell", aim)
            row(f"create and first pandas cell, {tier}", whole, first, "native Jupyter start and the same cell")
            row(f"warm cell, {tier}", again, warm, "warm cell of native Jupyter", warm_aim)
    finally:
        d.stop()
        d.destroy()


def main():
    subprocess.run([os.path.join(HERE, "..", "tools", "run-e2e"), "--seed-only"], check=True)
    subprocess.run(["gcc", "-O2", "-o", HB, os.path.join(HERE, "hb.c"), "-lpthread"], check=True)
    image = next(os.path.join(os.path.dirname(m), "rootfs.ext4") for m in glob.glob(os.path.join(SEED, "templates", "*", "manifest.json")) if json.load(open(m))["name"] == "base")
    root = Root(image)
    base = {}
    for name, argv in (("bwrap", root.bwrap()), ("runc run", root.runc()), ("systemd-nspawn", root.nspawn())):
        ok, why = works(argv)
        if not ok:
            print(json.dumps({"row": f"baseline {name}", "skipped": why or "does not run here"}), flush=True)
            continue
        base[name] = spawn_ms(argv, N)
        row(f"baseline {name}: start, hello, end", base[name])
    bw = base.get("bwrap")
    echo = [float(x[1]) / 1e3 for x in hb("echo", 200) if x[0] == "echo"]
    boots, booted = cold_boot(SEED, image, VM_N)
    row("baseline cold QEMU boot to an answering agent", boots)

    container, vm = {"isolation": "container"}, {"isolation": "vm"}

    # 1. nothing prepared
    d = Daemon(env={"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "0"}).start()
    try:
        got, _ = lives(d, container, N)
        whole = [a + b + c for a, b, c, _ in got]
        for name, samples in base.items():
            row("container create, hello, destroy: from nothing", whole, samples, name, "<= 1 x bwrap" if name == "bwrap" else None)
        row("container create to first output: from nothing", [a + b for a, b, _, _ in got], bw, "bwrap")
        got = with_path(d, vm, "restore", VM_N)
        row("vm create to first exec answer: restore on demand", [a + b for a, b, _, _ in got], boots, "cold boot", "<= 60 ms")
        row("vm create: restore on demand", [a for a, _, _, _ in got], boots, "cold boot")
        one = [a for a, _, _, _ in lives(d, container, N)[0]]
        burst = [float(x[1]) / 1e3 for x in hb(sock(d), "burst", json.dumps(container), 10) if x[0] == "create"]
        row("container: each of 10 creates at the same moment", burst, one, "one create")
        _, ms = lives(d, container, 4 * N, 4)
        row("container create + hello + destroy, 4 clients", [4 * N / ms * 1e3], unit="per second", note="full life with one exec")
        n = 4 * N
        lines = hb(sock(d), "life", json.dumps(container), "-", n, 4)
        row("container create + destroy, 4 clients", [n / float(next(x for x in lines if x[0] == "total")[1]) * 1e6], unit="per second", aim=">= 250")
        vm1 = [a for a, _, _, _ in lives(d, vm, 4)[0]]
        burst = [float(x[1]) / 1e3 for x in hb(sock(d), "burst", json.dumps(vm), 10) if x[0] == "create"]
        row("vm: each of 10 creates at the same moment", burst, vm1, "one create")
    finally:
        d.stop()
        d.destroy()

    # 2. warm
    d = Daemon(env={"HUTCH_POOL_VM": "2", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "8"}).start()
    try:
        got = with_path(d, container, "slot", N)
        for name, samples in base.items():
            row("container create, hello, destroy: warm slot", [a + b + c for a, b, c, _ in got], samples, name, "<= 0.5 x bwrap" if name == "bwrap" else None)
        row("container create to first output: warm slot", [a + b for a, b, _, _ in got], bw, "bwrap")
        got = with_path(d, vm, "pool", VM_N)
        row("vm create to first exec answer: pool", [a + b for a, b, _, _ in got], boots, "cold boot", "<= 4 ms")
        row("vm create: pool", [a for a, _, _, _ in got], boots, "cold boot")
        c = d.client
        for tier in ("container", "vm"):
            b = c.create(isolation=tier)
            body = json.dumps({"cmd": ["/bin/true"]})
            x = [float(v[1]) / 1e3 for v in hb(sock(d), "exec", b.id, body, N) if v[0] == "exec"]
            row(f"exec of true, {tier}", x, spawn_ms(["/bin/true"], N), "fork+exec on the host", "<= 1.5 ms" if tier == "container" else None)
            if tier == "container":
                x = [float(v[1]) / 1e3 for v in hb(sock(d), "get", f"/v1/sandboxes/{b.id}", 200) if v[0] == "get"]
                row("GET /v1/sandboxes/{id}", x, echo, "a byte over a socketpair", "<= 0.1 ms")
            b.kill()
        x = [float(v[1]) / 1e3 for v in hb(sock(d), "get", "/healthz", 200) if v[0] == "get"]
        row("GET /healthz", x, echo, "a byte over a socketpair", "<= 0.1 ms")
        isolates(d, root)
        pauses(d, boots)
        for tier, before, name in (("vm", boots, "cold boot"), ("container", bw, "bwrap")):
            snapshots(d, tier)
            forks(d, tier, before, name)
        for tier, comm, count in (("container", "hutch-agent", 10), ("vm", "qemu-system-x86", 3)):
            before = set(d.pids(comm))
            boxes = [c.create(isolation=tier) for _ in range(count)]
            time.sleep(1)
            mine = {b.info()["box"] for b in boxes}
            pids = [p.pid for p in d.census.mine() if p.comm == comm and any(m in p.cgroups for m in mine)]
            row(f"memory of an idle {tier} sandbox", [pss_kib(p) / 1024 for p in pids] or [0], *((booted, "cold boot", "<= 30 MiB") if tier == "vm" else ()),
                unit="MiB PSS", note=f"{len(before)} pool members apart")
            for b in boxes:
                b.kill()
    finally:
        d.stop()
        d.destroy()

    gate()
    cells()

    # 3. emulators waiting for their snapshot
    d = Daemon(env={"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "2", "HUTCH_POOL_CONTAINER": "0"}).start()
    try:
        got = with_path(d, vm, "prestarted", VM_N)
        row("vm create to first exec answer: pre-started", [a + b for a, b, _, _ in got], boots, "cold boot", "<= 30 ms")
        row("vm create: pre-started", [a for a, _, _, _ in got], boots, "cold boot")
    finally:
        d.stop()
        d.destroy()
    subprocess.run(["umount", root.dir])
    shutil.rmtree(TMP, ignore_errors=True)


if __name__ == "__main__":
    if os.environ.get("HUTCH_BENCH_NS") != "1":  # mounts of the baselines stay private
        os.environ["HUTCH_BENCH_NS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, os.path.realpath(__file__), *sys.argv[1:]])
    main()
