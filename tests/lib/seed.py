"""Builds the templates of a seed home through the real daemon: seed.py HOME RUN.

`base`, and `notebook` and `isolate` where their packages can be had (debs.py).
HUTCH_TEST_CI=1 adds the real `code-interpreter`, HUTCH_TEST_ISOLATE=1 makes the
real `isolate`. Both tiers are warmed, and one sandbox of each has run a command,
before the home counts as a seed."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import debs  # noqa: E402
from client import ApiError, Client, Deadline, Late  # noqa: E402
from daemon import free_port, program  # noqa: E402


def warm(c, name):
    for tier in ("container", "vm"):
        b = c.create(template=name, isolation=tier, deadline=900)
        b.ok(["python3", "-c", "print(1)"], deadline=60)
        b.kill()


def main(home, run):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before the templates were ready"))  # the daemon goes with us
    os.makedirs(home, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("HUTCH_") or k == "HUTCH_ACCEL"}
    env.update(HUTCH_HOME=home, HUTCH_RUN=run, HUTCH_LISTEN=f"127.0.0.1:{free_port()}",
               HUTCH_DEFAULT_ISOLATION="container", HUTCH_POOL_CONTAINER="0", HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0",
               HUTCH_BUILD_CACHE="0")  # recipes run fast, and nothing is built twice
    log = open(os.path.join(os.path.dirname(run), "log"), "wb")
    d = subprocess.Popen([program("hutchd")], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)
    c = Client(sock=os.path.join(run, "hutch.sock"))
    ok = False
    try:
        end = Deadline(60)
        while True:
            try:
                c.health()
                break
            except Exception:
                if d.poll() not in (None, 0) or end.over:
                    raise SystemExit("hutchd does not start:\n" + open(log.name).read()[-3000:])
                time.sleep(0.05)
        began = time.monotonic()
        p = subprocess.run([program("hutch"), "template", "build", "base"], env=env, stdin=subprocess.DEVNULL)
        if p.returncode:
            raise SystemExit(f"hutch template build base: {p.returncode}\n" + open(log.name).read()[-3000:])
        templates = ["base"]
        image = os.path.join(home, "templates", c.get("/v1/templates/base")["id"], "rootfs.ext4")
        wished = [name for name, wish in ((debs.ISOLATE, "HUTCH_TEST_ISOLATE"), ("code-interpreter", "HUTCH_TEST_CI")) if os.environ.get(wish) == "1"]
        for name in debs.PACKAGES:
            if name in wished:
                continue
            try:
                at = time.monotonic()
                debs.build(c, image, name)
                print(f"# template {name}: {time.monotonic() - at:.0f} s", file=sys.stderr)
                templates.append(name)
            except debs.Unavailable as e:
                print(f"# no template {name}: {e}", file=sys.stderr)
        for name in wished:
            subprocess.run([program("hutch"), "template", "build", name], env=env, stdin=subprocess.DEVNULL, check=True)
            templates.append(name)
        for name in [n for n in templates if n != debs.ISOLATE]:  # sandboxes are made of the others
            try:
                warm(c, name)
            except (ApiError, Late, AssertionError) as e:
                if name != debs.NOTEBOOK:
                    raise
                templates.remove(name)
                c.delete(f"/v1/templates/{name}")
                print(f"# no template {name}: {e}", file=sys.stderr)
        print(f"# templates {', '.join(templates)} are ready after {time.monotonic() - began:.0f} s", file=sys.stderr)
        ok = True
    finally:
        try:
            c.call("POST", "/v1/shutdown", json_body={"keep": False}, deadline=60)
            d.wait(60)
        except Exception as e:
            d.kill()
            if ok:
                raise SystemExit(f"hutchd did not stop: {e}\n" + open(log.name).read()[-3000:]) from None
    # Nothing of this life may be left: the home is about to be copied.
    def left():
        for p in os.listdir("/proc"):
            if not p.isdigit() or int(p) in (os.getpid(), os.getppid()):
                continue
            try:
                with open(f"/proc/{p}/cmdline", "rb") as f:
                    if run.encode() in f.read():
                        return True
            except OSError:
                pass
        return False
    end = Deadline(15)
    while left() and not end.over:
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
