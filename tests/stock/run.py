"""Does hutch work on a Debian as Debian ships it? In an emulated machine (machine.py):

  run.py [--debian 12|13] [--long] [-k WORDS]… [TEST FILE…]
  run.py [--debian 12|13] --demo       only `make demo` on a machine with nothing installed
  run.py [--debian 12|13] --prepare    only make the machine

Short: a container, an isolate and a microVM on genuine KVM by the command line,
then the end-to-end tests named in `slice`. --long: first `make demo` on a
machine with nothing installed, then whole files of end-to-end tests. Files and
-k choose other tests, as for tests/lib/runner.py.
"""
import argparse
import os
import shlex
import signal
import subprocess
import sys

from machine import HERE, REPO, Machine, prepare, say

LONG = ["test_lifecycle.py", "test_exec.py", "test_templates.py", "test_isolate.py", "test_volumes.py", "test_snapshots.py", "test_pause.py", "test_fork.py",
        "test_limits.py", "test_network.py", "test_recovery.py", "test_owners.py"]
PATIENCE = "8"
SMOKE_S, SLICE_S, LONG_S, DEMO_S = 1500, 3000, 6 * 3600, 2 * 3600

# In the machine; the home of the seed gets its VM snapshot here, because those of another machine and accelerator are not used.
# HUTCH_ACCEL: /dev/kvm is genuine, but too slow for what the probe asks of one.
SMOKE = """
set -eu
export HUTCH_HOME=/hutch/home HUTCH_RUN=/run/smoke HUTCH_ACCEL=kvm HUTCH_POOL_VM=0 HUTCH_POOL_PRESTARTED=0 HUTCH_POOL_CONTAINER=0 PATH=/hutch/hutch/build:$PATH
hutch up
hutch doctor | grep -vE '^$'
hutch run --isolation container -- sh -c 'echo container on $(uname -r); test "$(id -un)" = user; touch ~/written'
test "$(hutch eval --isolation isolate '2**64')" = 18446744073709551616
vm() { hutch run --timeout 600 -- "$@"; }
vm sh -c 'echo microVM on $(uname -r)' || vm sh -c 'echo microVM on $(uname -r), the second time'
vm true || vm true
hutch down
ours() { ps -eo comm= | grep -xE 'hutchd|hutch-(spawn|egress|watch|agent)'; }
for i in $(seq 300); do ours >/dev/null || break; sleep 0.1; done
! ours
rm -rf /hutch/home/boxes/* /hutch/home/log/*
"""
DEMO = """
set -eu
cp -r /hutch/hutch /root/hutch; cd /root/hutch; rm -rf build
export HUTCH_ACCEL=kvm HUTCH_POOL_VM=0 HUTCH_POOL_PRESTARTED=0
apt-get -qq update
make demo
build/hutch run --isolation container -- uname -a
build/hutch eval 'sum(range(10))'
build/hutch down
"""


def tests(args):
    words = ["python3", "tests/lib/runner.py", "--retry", *args]  # the outer emulator hangs a guest's guest now and then
    return f"cd /hutch/hutch; HUTCH_ACCEL=kvm HUTCH_TEST_PATIENCE={PATIENCE} HUTCH_BUILD=/hutch/hutch/build HUTCH_TEST_HOME=/hutch/home {shlex.join(words)}"


def seed():
    subprocess.run([os.path.join(REPO, "tools", "run-e2e"), "--seed-only"], check=True)
    return os.path.join(subprocess.run([os.path.join(REPO, "tools", "test-home")], capture_output=True, check=True, text=True).stdout.strip(), "home")


def must(rc, what):
    if rc:
        print(f"not ok - {what} (ended with {rc})\n0 passed, 1 failed", flush=True)
        sys.exit(1)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--debian", choices=("12", "13"), default="12")
    p.add_argument("--long", action="store_true")
    p.add_argument("--demo", action="store_true")
    p.add_argument("--prepare", action="store_true")
    p.add_argument("-k", action="append", default=[])
    p.add_argument("files", nargs="*")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if o.prepare:
        return prepare(o.debian)
    if o.long or o.demo:
        with Machine(o.debian, bare=True, tree=REPO) as m:
            say(f"make demo on a bare Debian {o.debian}")
            must(m.run(DEMO, DEMO_S), f"make demo on Debian {o.debian}")
    if o.demo:
        return print("1 passed, 0 failed")
    with Machine(o.debian, tree=REPO, home=seed()) as m:
        # udev loads the module by itself, but perhaps later than we are let in.
        must(m.run("modprobe kvm_amd; udevadm settle -t 120; uname -sr; test -c /dev/kvm", 300), "boot, with /dev/kvm")
        must(m.run(SMOKE, SMOKE_S), "a container, an isolate and a microVM")
        if o.files or o.k:
            chosen = [x for k in o.k for x in ("-k", k)] + (o.files or ["tests/e2e"])
        elif o.long:
            chosen = [os.path.join("tests/e2e", f) for f in LONG]
        else:
            chosen = ["--names", os.path.join(os.path.relpath(HERE, REPO), "slice"), "tests/e2e"]
        sys.exit(m.run(tests(chosen), LONG_S if o.long else SLICE_S))


if __name__ == "__main__":
    main()
