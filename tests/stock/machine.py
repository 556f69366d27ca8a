"""A Debian machine with Debian's own kernel, on a host that may have neither.

  machine.py [--debian 12|13] [--bare] [--tree DIR] [--home DIR] [--keep] COMMAND

Runs COMMAND (a line for bash) as root in the machine and ends with its status.
Its output is shown as it comes; `machine.py --keep` leaves the machine running.

The machine is QEMU without any help of the host's processor. It emulates AMD's
virtualisation with nested paging, so the machine has a genuine /dev/kvm, only
slow; it has systemd and the unified control groups (version 2), as installed
Debians have. Everything comes from Debian packages, by the mirror that this
host's apt is set to. What was made is kept in the cache of the tests (see
tools/test-home) and is used again; writes of the machine to its disks are
forgotten when it ends.

  --debian N   12: kernel 6.1, the default; 13: kernel 6.12
  --bare       nothing installed but git, make and ca-certificates: what
               `make demo` promises to begin with. Otherwise what tools/deps
               lists for running hutch, and what the tests need.
  --tree DIR   put this built tree of hutch at /hutch/hutch
  --home DIR   and this seed home of the tests at /hutch/home
"""
import argparse
import base64
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
REPO = os.path.realpath(os.path.join(HERE, "..", ".."))
SUITES = {"12": "bookworm", "13": "trixie"}
BARE = ["git", "make", "ca-certificates"]
MACHINE = ["linux-image-amd64", "systemd-sysv", "udev", "dbus", "kmod", "iproute2"]  # what makes a tree of packages a machine
TESTS = ["python3", "busybox-static", "procps", "util-linux", "mount", "openssl", "qemu-utils", "strace", "git", "make"]
QEMU_PACKAGES = ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"]
PORT = 7000  # inside
STATUS = re.compile(rb"^@@status (\d+)$")


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def run(*argv, **kw):
    return subprocess.run(argv, check=True, **kw)


def output(*argv):
    return run(*argv, stdout=subprocess.PIPE, text=True).stdout


def cache():
    return os.path.join(output(os.path.join(REPO, "tools", "test-home")).strip(), "stock")


def host_suite():
    with open("/etc/os-release") as f:
        return dict(line.rstrip().split("=", 1) for line in f if "=" in line).get("VERSION_CODENAME", "").strip('"')


def mirror():
    """Where this host's apt finds Debian itself."""
    rows = output("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT) $(CREATED_BY)")
    for row in rows.splitlines():
        uri, suite, component, kind = row.split()
        if suite == host_suite() and component == "main" and kind == "Packages":
            return uri
    raise SystemExit("stock machine: apt on this host has no source of Debian's main section")


def sources(*suites):
    return "".join(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {s} main\n" for s in suites)


# ---- the emulator -----------------------------------------------------------------------------------------------

def version(qemu):
    return int(re.search(r"version (\d+)", output(qemu, "--version")).group(1))


def fetch_qemu(to):
    """Releases before 10 do not intercept XSETBV for a guest's guest, which then loses its floating point state. Where the
    host has such a one the backports of its Debian have a newer; it is unpacked, not installed."""
    suite = host_suite() + "-backports"
    say(f"QEMU of {suite}")
    work = to + ".apt"
    shutil.rmtree(work, ignore_errors=True)
    for d in ("parts", "lists/partial", "cache/archives/partial", "debs"):
        os.makedirs(os.path.join(work, d))
    with open(os.path.join(work, "parts", "b.list"), "w") as f:
        f.write(sources(suite))
    o = ["-qq", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={work}/parts", "-o", f"Dir::State::lists={work}/lists",
         "-o", f"Dir::Cache={work}/cache", "-o", "APT::Sandbox::User=root"]
    run("apt-get", *o, "update")
    run("apt-get", *o, "download", *[f"{p}/{suite}" for p in QEMU_PACKAGES], cwd=os.path.join(work, "debs"))
    for deb in sorted(os.listdir(os.path.join(work, "debs"))):
        run("dpkg-deb", "-x", os.path.join(work, "debs", deb), to + ".new")
    shutil.rmtree(work)
    os.rename(to + ".new", to)


# helper_vmrun of QEMU 10.0 notes the vector of an interrupt that it hands to a guest's guest in a field that nobody clears. If the
# execution loop is left before the next exit, the interrupt comes a second time, with interrupts off, and the guest's guest
# deadlocks in its timer code. The note is of no use to anyone; it is six bytes, and a no-op of six bytes takes its place.
# movzbl r12b,esi; mov r13d,error_code; [mov esi,exception_index]; movl 0,exception_is_int; movq -1,exception_next_eip
VMRUN = re.compile(rb"\x41\x0f\xb6\xf4\x44\x89\xab....(\x89\xb3....)\xc7\x83....\0\0\0\0\x48\xc7\x83....\xff\xff\xff\xff", re.S)
NOP6 = b"\x66\x0f\x1f\x44\0\0"


def mend(src, dst):
    with open(src, "rb") as f:
        code = bytearray(f.read())
    places = list(VMRUN.finditer(code))
    if len(places) == 1:
        code[places[0].start(1):places[0].end(1)] = NOP6
    else:
        say(f"warning: this QEMU could not be mended ({len(places)} places look right); a VM may hang now and then")
    with open(dst + ".new", "wb") as f:
        f.write(code)
    os.chmod(dst + ".new", 0o755)
    os.rename(dst + ".new", dst)


def emulator(top):
    """-> the command line's beginning"""
    have = "/usr/bin/qemu-system-x86_64"
    own = os.path.exists(have) and version(have) >= 10
    tree = "/" if own else os.path.join(top, "qemu")
    if not own and not os.path.isdir(tree):
        fetch_qemu(tree)
    src = os.path.join(tree, "usr/bin/qemu-system-x86_64")
    dst = os.path.join(top, "qemu-" + hashlib.sha256(open(src, "rb").read()).hexdigest()[:12])
    if not os.path.exists(dst):
        mend(src, dst)
    data = []
    for d in ("usr/share/seabios", "usr/share/qemu"):
        data += ["-L", os.path.join(tree, d), "-L", "/" + d]
    return [dst, *data]


# ---- the machine's disk -------------------------------------------------------------------------------------------

INSIDE = f"""[Unit]
Description=commands from outside
[Socket]
ListenStream={PORT}
Accept=yes
[Install]
WantedBy=sockets.target
"""
INSIDE_SERVICE = """[Unit]
Description=a command from outside
CollectMode=inactive-or-failed
[Service]
ExecStart=-/usr/local/sbin/stock-inside
StandardInput=socket
StandardOutput=socket
StandardError=socket
KillMode=process
TasksMax=infinity
LimitNOFILE=1048576
"""
INSIDE_SCRIPT = """#!/bin/bash
# One command per connection: a greeting, a line with the command in base64 comes, then its output goes and its status.
echo @@ready
read -r line || exit 0
f=$(mktemp /run/stock-XXXXXX)
base64 -d <<<"$line" >"$f"
export HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /root
bash "$f" </dev/null 2>&1
printf '\\n@@status %d\\n' $?
rm -f "$f"
"""
FILES = {
    "etc/hostname": "stock\n",
    "etc/hosts": "127.0.0.1 localhost stock\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/fstab": "/dev/vda / ext4 defaults 0 0\n/dev/vdb /hutch ext4 nofail 0 0\ntmpfs /tmp tmpfs mode=1777 0 0\n",
    "etc/systemd/network/eth0.network": "[Match]\nName=eth0\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n",
    "etc/systemd/system/stock.socket": INSIDE,
    "etc/systemd/system/stock@.service": INSIDE_SERVICE,
    "usr/local/sbin/stock-inside": INSIDE_SCRIPT,
}
IDLE = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "getty@tty1.service",
        "serial-getty@ttyS0.service", "systemd-networkd-wait-online.service")


def needed():
    return output(os.path.join(REPO, "tools", "deps"), "--list", "run").split() + TESTS


def put(root, name, text):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path):
        os.unlink(path)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755 if "/sbin/" in name else 0o644)


def make_root(at, debian, bare):
    """at.img, at.kernel, at.initrd"""
    suite = SUITES[debian]
    packages = MACHINE + (BARE if bare else needed())
    say(f"Debian {debian}: {len(packages)} packages and what they need")
    root = at + ".d"
    shutil.rmtree(root, ignore_errors=True)
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=" + ",".join(packages), "--aptopt=Apt::Install-Recommends false",
        suite, at + ".tar", "-", input=sources(suite, suite + "-updates"), text=True)
    os.mkdir(root)
    run("tar", "-C", root, "--numeric-owner", "-xf", at + ".tar")
    os.unlink(at + ".tar")
    for name, text in FILES.items():
        put(root, name, text)
    os.makedirs(os.path.join(root, "hutch"), exist_ok=True)
    run("systemctl", f"--root={root}", "--quiet", "enable", "stock.socket", "systemd-networkd.service")
    run("systemctl", f"--root={root}", "--quiet", "mask", *IDLE)
    boot = os.path.join(root, "boot")
    kernel = [f for f in os.listdir(boot) if f.startswith("vmlinuz-")][0]
    shutil.copy(os.path.join(boot, kernel), at + ".kernel")
    shutil.copy(os.path.join(boot, kernel.replace("vmlinuz-", "initrd.img-")), at + ".initrd")
    image(at + ".img", root, "24G")
    shutil.rmtree(root)


def image(to, tree, size):
    if os.path.exists(to + ".new"):
        os.unlink(to + ".new")
    run("truncate", "-s", size, to + ".new")
    run("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1", "-d", tree, to + ".new")
    os.rename(to + ".new", to)


def root_of(top, debian, bare):
    packages = MACHINE + (BARE if bare else needed())
    with open(os.path.realpath(__file__)) as f:
        form = hashlib.sha256((" ".join(packages) + f.read().split("# ---- the machine's disk")[1].split("# ---- hutch's disk")[0]).encode()).hexdigest()[:8]
    at = os.path.join(top, f"debian{debian}-{'bare' if bare else 'ready'}-{form}")
    if not os.path.exists(at + ".img"):
        make_root(at, debian, bare)
    return at


# ---- hutch's disk ---------------------------------------------------------------------------------------------------

def tar_into(src, dst, *excluded):
    os.makedirs(dst)
    a = subprocess.Popen(["tar", "-C", src, "--numeric-owner", "--sparse", *[f"--exclude={x}" for x in excluded], "-cf", "-", "."], stdout=subprocess.PIPE)
    run("tar", "-C", dst, "--numeric-owner", "--sparse", "-xf", "-", stdin=a.stdout)
    if a.wait() > 1:  # 1: a file changed meanwhile; tests that run beside us make links to the seed's files, which counts as that
        raise SystemExit(f"stock machine: {src} could not be copied")


def disk_of(top, tree, home):
    """A new one each time: it holds what is tested. VMs' snapshots of the seed stay behind, they are of another machine."""
    work = os.path.join(top, f"disk-{os.getpid()}")
    try:
        if tree:
            tar_into(tree, os.path.join(work, "hutch"), "./.git", "./.cache", "./build-*", "./build/obj", "./build/sobj", "./build/unit", "./build/fuzz",
                     "./build/*.a", "node_modules")
        if home:
            tar_into(home, os.path.join(work, "home"), "./templates/*/vm/*", "./fs/ready-*", "./boxes/*", "./log/*", "*.deb")
        os.makedirs(work, exist_ok=True)
        os.chmod(work, 0o755)
        image(work + ".img", work, "24G")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return work + ".img"


# ---- a machine that runs ----------------------------------------------------------------------------------------------

def prepare(debian, bare=False):
    """-> the emulator's command line, the machine's disk: made if need be"""
    top = cache()
    os.makedirs(top, exist_ok=True)
    with open(os.path.join(top, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one that is being made meanwhile is waited for
        return emulator(top), root_of(top, debian, bare)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    def __init__(self, debian="12", bare=False, tree=None, home=None, memory=6144):
        self.top = cache()
        start, at = prepare(debian, bare)
        self.disk = disk_of(self.top, tree, home)
        self.port = free_port()
        self.console = os.path.join(self.top, f"console-{os.getpid()}.log")
        drive = "format=raw,if=virtio,cache=unsafe,snapshot=on"
        argv = [*start, "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,vgif=off", "-smp", "2", "-m", str(memory),
                "-kernel", at + ".kernel", "-initrd", at + ".initrd",
                "-append", "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 mitigations=off quiet",
                "-nodefaults", "-display", "none", "-serial", f"file:{self.console}", "-no-reboot",
                "-drive", f"file={at}.img,{drive}", "-drive", f"file={self.disk},{drive}",
                "-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{self.port}-:{PORT}", "-device", "virtio-net-pci,netdev=n,romfile=",
                "-device", "virtio-rng-pci"]
        self.vm = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": self.top})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.vm.poll() is None:
            self.vm.kill()  # its disks forget everything: nothing to put in order
        self.vm.wait()
        for path in (self.disk, self.console):
            if os.path.exists(path):
                os.unlink(path)

    def connect(self, seconds):
        """The port answers before the machine does: only a greeting counts."""
        end = time.monotonic() + seconds
        while True:
            if self.vm.poll() is not None:
                raise SystemExit(f"stock machine: QEMU ended with {self.vm.returncode}")
            try:
                s = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                f = s.makefile("rb")
                if f.readline() == b"@@ready\n":
                    return s, f
                s.close()
            except OSError:
                pass
            if time.monotonic() > end:
                with open(self.console, errors="replace") as log:
                    raise SystemExit(f"stock machine: nothing answers in it after {seconds} s; its console ends with:\n{log.read()[-3000:]}")
            time.sleep(0.5)

    def run(self, command, seconds=3600, boot=900):
        """Its output as it comes -> its status; 124 after that many seconds."""
        s, f = self.connect(boot)
        s.sendall(base64.b64encode(command.encode()) + b"\n")
        end = time.monotonic() + seconds
        held = b""  # an empty line: the one before the status is ours
        try:
            while True:
                s.settimeout(max(1, end - time.monotonic()))
                line = f.readline()
                found = STATUS.match(line.rstrip())
                if found:
                    return int(found.group(1))
                if not line:
                    raise SystemExit("stock machine: it ended before the command did")
                sys.stdout.buffer.write(held + (b"" if line == b"\n" else line))
                sys.stdout.flush()
                held = line if line == b"\n" else b""
        except TimeoutError:
            say(f"the command has not ended after {seconds} s")
            return 124
        finally:
            s.close()


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--debian", choices=SUITES, default="12")
    p.add_argument("--bare", action="store_true")
    p.add_argument("--tree")
    p.add_argument("--home")
    p.add_argument("--keep", action="store_true")
    p.add_argument("--seconds", type=float, default=3600)
    p.add_argument("command", nargs="?", default="uname -a")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    m = Machine(o.debian, o.bare, o.tree, o.home)
    try:
        status = m.run(o.command, o.seconds)
        if o.keep:
            say(f"the machine stays: pid {m.vm.pid}, port {m.port}")
            m.vm.wait()
    finally:
        m.close()
    sys.exit(status)


if __name__ == "__main__":
    main()
