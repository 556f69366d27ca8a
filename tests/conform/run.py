"""Other people's SDKs, unmodified, against the built daemon. Called by tools/run-conform.

    run.py [--tier vm|container] [-j N] [FILE…]     default: both tiers, all of tests/conform/e2b

Per tier a daemon of its own serves every script: the *.test.mjs files run under `node --test` with the locked npm
packages, the *.py files under unittest with the locked PyPI packages. An SDK that cannot be had here is skipped, and the
reason is said. Afterwards no sandbox may be left, and nothing at all once the daemon has stopped. Ends with
`N passed, N failed[, N skipped]`.
"""
import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
REPO = os.path.realpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(REPO, "tests", "lib"))

from daemon import Daemon  # noqa: E402

E2B = os.path.join(HERE, "e2b")
CACHE = os.path.join(REPO, ".cache", "conform")
TIERS = ("vm", "container")
LIMIT = int(os.environ.get("HUTCH_CONFORM_TIMEOUT", "1200"))  # seconds per tier and SDK


class Unavailable(Exception):
    """This SDK cannot be had here."""


def stamp(*paths):
    h = hashlib.sha256()
    for p in paths:
        with open(p, "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:16]


def fetch(what, cmd, **kw):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **kw)
    if p.returncode:
        last = [line for line in p.stdout.splitlines() if line.strip()][-1:] or ["no output"]
        raise Unavailable(f"{what} cannot be installed here: {last[0][:200]}")


def npm():
    """Installs the locked packages beside the scripts (where node looks for them); returns the node program."""
    node, tool = shutil.which("node"), shutil.which("npm")
    if not node or not tool:
        raise Unavailable("needs node and npm")
    major = int(subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True).stdout.lstrip("v").split(".")[0] or 0)
    if major < 20:
        raise Unavailable(f"needs node 20 or newer, this is {major}")
    mark, want = os.path.join(E2B, "node_modules", ".installed"), stamp(os.path.join(E2B, "package-lock.json"))
    if not os.path.exists(mark) or open(mark).read() != want:
        fetch("the npm SDK", [tool, "ci", "--no-audit", "--no-fund"], cwd=E2B)
        with open(mark, "w") as f:
            f.write(want)
    return node


def pypi():
    """Installs the locked packages into a folder of their own; returns (python, folder)."""
    lock = os.path.join(E2B, "requirements.txt")
    for python in (shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            break
    else:
        raise Unavailable("needs pip")
    to = os.path.join(CACHE, "py-" + stamp(lock))
    if not os.path.isdir(to):
        tmp = f"{to}.{os.getpid()}.tmp"
        try:
            fetch("the PyPI SDK", [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-warn-script-location", "--target", tmp, "-r", lock])
            os.rename(tmp, to)
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    return python, to


class Part:
    """One SDK on one tier: what it printed and how many tests that was."""

    def __init__(self, name):
        self.name, self.passed, self.failed, self.skipped, self.text = name, 0, 0, 0, ""

    def run(self, cmd, env, cwd):
        t0 = time.monotonic()
        p = subprocess.Popen(cmd, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True)
        ring = threading.Timer(LIMIT, lambda: os.killpg(p.pid, 9))
        ring.start()
        out = p.stdout.read()
        rc = p.wait()
        ring.cancel()
        self.text = out
        return rc, out, time.monotonic() - t0


def run_node(node, tier, files, env):
    part = Part(f"e2b npm [{tier}]")
    rc, out, seconds = part.run([node, "--test", "--test-concurrency=1", "--test-reporter=spec", *files], env, E2B)
    number = {k: int(n) for k, n in re.findall(r"^\S* ?(pass|fail|cancelled|skipped) (\d+)$", out, re.M)}
    part.passed, part.failed, part.skipped = number.get("pass", 0), number.get("fail", 0) + number.get("cancelled", 0), number.get("skipped", 0)
    if rc and not part.failed or not number:
        part.failed += 1
        part.text += f"\nnode ended with {rc} after {seconds:.0f} s"
    return part, seconds


def run_python(sdk, tier, files, env):
    python, folder = sdk
    part, total, text = Part(f"e2b pypi [{tier}]"), 0.0, []
    env = {**env, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    for f in files:
        rc, out, seconds = part.run([python, "-m", "unittest", "-v", os.path.basename(f)[:-3]], env, E2B)
        text.append(out)
        total += seconds
        ran = re.search(r"^Ran (\d+) tests?", out, re.M)
        odd = {k: int(n) for k, n in re.findall(r"(failures|errors|skipped)=(\d+)", out)}
        bad = odd.get("failures", 0) + odd.get("errors", 0)
        if not ran or rc and not bad:
            bad += 1
            text.append(f"{f}: ended with {rc}")
        part.failed += bad
        part.skipped += odd.get("skipped", 0)
        part.passed += max(0, int(ran[1]) - bad - odd.get("skipped", 0)) if ran else 0
    part.text = "\n".join(text)
    return part, total


def left_sandboxes(d):
    """Those that the scripts did not remove. A deadline or an idle wait may still be at work on the last ones."""
    end = time.monotonic() + 10
    while True:
        left = [f"{x['id']} ({x['state']}, {x['metadata']})" for x in d.client.get("/v1/sandboxes")["sandboxes"] if x["state"] not in ("gone", "stopping")]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)


class Run:
    def __init__(self):
        self.lock = threading.Lock()
        self.passed = self.failed = self.skipped = 0

    def say(self, text):
        print(text, flush=True)

    def count(self, name, passed=0, failed=0, skipped=0, text=""):
        with self.lock:
            self.passed, self.failed, self.skipped = self.passed + passed, self.failed + failed, self.skipped + skipped
            self.say(f"{'not ok' if failed else 'ok'} - {name}")
            if failed:
                self.say("\n".join("#   " + line for line in text.splitlines()[-150:]))

    def tier(self, tier, node, py, mjs, pys):
        d = Daemon(env={"HUTCH_DEFAULT_ISOLATION": tier, "HUTCH_POOL_VM": "1" if tier == "vm" else "0", "HUTCH_POOL_PRESTARTED": "0"}, name="conform")
        try:
            d.start(settle=False)
            url = f"http://127.0.0.1:{d.port}"
            env = {k: v for k, v in os.environ.items() if not k.startswith(("HUTCH_", "E2B_"))}
            env.update({"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url, "E2B_API_KEY": d.new_key("conform")["key"],
                        "HUTCH_TIER": tier, "HUTCH_SOCK": os.path.join(d.run, "hutch.sock")})
            for sdk, files, how in ((node, mjs, run_node), (py, pys, run_python)):
                if not sdk or not files:
                    continue
                part, seconds = how(sdk, tier, files, env)
                for line in re.findall(r"^.*?(figure: .*)$", part.text, re.M):
                    self.say(f"# {tier}: {line}")
                self.count(f"{part.name}: {part.passed} passed, {part.failed} failed, {part.skipped} skipped, {seconds:.0f} s",
                           part.passed, part.failed, part.skipped, part.text + "\nlast lines of the daemon's log:\n" + d.log_tail(20))
            left = left_sandboxes(d)
            self.count(f"no sandbox is left [{tier}]", not left, bool(left), text="\n".join(left))
            left = d.stop()
            self.count(f"nothing is left after the daemon stopped [{tier}]", not left, bool(left), text="\n".join(left) + "\n" + d.log_tail())
        except BaseException as e:
            self.count(f"daemon [{tier}]", failed=1, text=f"{type(e).__name__}: {e}\n{d.log_tail()}")
            d.kill_everything()
            d.scrub()
        d.destroy()


def main(argv):
    ap = argparse.ArgumentParser(prog="run-conform")
    ap.add_argument("--tier", choices=TIERS)
    ap.add_argument("-j", type=int, default=1, help="2: both tiers at once")
    ap.add_argument("files", nargs="*")
    opts = ap.parse_args([a for a in argv if a != "e2b"])
    names = [os.path.basename(f) for f in opts.files] or sorted(os.listdir(E2B))
    mjs, pys = [f for f in names if f.endswith(".test.mjs")], [f for f in names if f.endswith(".py")]
    run, got = Run(), {}
    for what, files, get in (("npm", mjs, npm), ("pypi", pys, pypi)):
        try:
            got[what] = get() if files else None
        except Unavailable as e:
            got[what] = None
            run.count(f"e2b {what} # SKIP {e}", skipped=1)
    if any(got.values()):
        work = [threading.Thread(target=run.tier, args=(tier, got["npm"], got["pypi"], mjs, pys)) for tier in ([opts.tier] if opts.tier else TIERS)]
        for i in range(0, len(work), max(opts.j, 1)):
            for th in work[i:i + max(opts.j, 1)]:
                th.start()
            for th in work[i:i + max(opts.j, 1)]:
                th.join()
    print(f"{run.passed} passed, {run.failed} failed" + (f", {run.skipped} skipped" if run.skipped else ""), flush=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
