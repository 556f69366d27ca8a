"""Finds and runs the tests: runner.py [options] FILE|FOLDER…

  -k WORDS      only tests whose "file.name[tier]" contains every word (!word: does not)
  --tier T      only this tier (vm, gvisor, container)
  -j N          N tests at once (default 1); each worker has daemons of its own
  --names FILE  only the tests named in FILE, one a line; each must exist
  --list        print the names
  --repeat N    run each test N times
  --fail-fast   stop at the first failure
  --no-census   do not look for leaks (for debugging)

Prints TAP lines as they come, failures with their reason and the daemon's last
log lines, then every skip with its reason, and last `N passed, N failed`.
"""
import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import census as _census  # noqa: E402
import hutchtest as ht  # noqa: E402
import tiers as _table  # noqa: E402
from client import PATIENCE  # noqa: E402
from daemon import Daemon, REPORT  # noqa: E402

DEFAULT_TIMEOUT = 60


def find(paths):
    files = []
    for p in paths:
        if os.path.isdir(p):
            files += sorted(os.path.join(p, f) for f in os.listdir(p) if f.startswith("test_") and f.endswith(".py"))
        else:
            files.append(p)
    return files


def load(path):
    name = os.path.basename(path)[:-3]
    before = len(ht.REGISTRY)
    spec = importlib.util.spec_from_file_location(name, path)
    mod = importlib.util.module_from_spec(spec)
    sys.modules[name] = mod
    spec.loader.exec_module(mod)
    return sorted(ht.REGISTRY[before:], key=lambda x: x.line)


def label(test, tier):
    return f"{test.file}.{test.name}" + (f"[{tier}]" if tier else "")


def chosen(name, words):
    for w in words:
        if w.startswith("!"):
            if w[1:] in name:
                return False
        elif w not in name:
            return False
    return True


def named(path):
    with open(path) as f:
        return {line.strip() for line in f if line.strip() and not line.startswith("#")}


class Shared:
    """The daemon that tests share, over all files: each finds it as quiet as the first did, or the census says why not.
    A failure throws it away."""

    MEMBERS = 16  # a new sandbox size gets a pool of its own; beyond this many places start afresh

    def __init__(self, name="shared", env=None):
        self.d = None
        self.name, self.env = name, env

    def get(self):
        if self.d is not None and self.d.members() > self.MEMBERS:
            left = self.finish()
            if left:
                raise AssertionError("left behind after the daemon stopped:\n  " + "\n  ".join(left))
        if self.d is None:
            self.d = Daemon(env={k: str(v) for k, v in (self.env or {}).items()}, name=self.name)
            try:
                self.d.start()
            except BaseException:
                self.drop()
                raise
        return self.d

    def drop(self):
        d, self.d = self.d, None
        if d:
            d.kill_everything()
            d.scrub()
            d.destroy()

    def finish(self):
        """Stop it cleanly; returns leaks."""
        d, self.d = self.d, None
        if d is None:
            return []
        left = d.stop()
        tail = d.log_tail() if left else ""
        d.destroy()
        return left + ([tail] if tail else [])


LATE = "# failed, will be tried again: "


class Runner:
    def __init__(self, opts):
        self.opts = opts
        self.n = self.passed = self.failed = 0
        self.skips = []
        self.failures = []
        self.reported = False  # a sanitizer spoke in the last test that failed
        self.first = False  # what fails now has its second try when all others are through
        self.late = []  # names of those
        self.twice = []
        self.shared = Shared()
        self.others = {}  # by name: those of shared_daemon

    def say(self, line):
        print(line, flush=True)

    def ok(self, name, seconds, notes):
        self.n += 1
        self.passed += 1
        self.say(f"ok {self.n} - {name} {seconds:.2f}s" + (f"  ({'; '.join(notes)})" if notes else ""))

    def bad(self, name, seconds, why):
        if self.first and not self.reported:
            self.late.append(name)
            self.say(f"{LATE}{name} {seconds:.2f}s")
        else:
            self.n += 1
            self.failed += 1
            self.failures.append(name)
            self.say(f"not ok {self.n} - {name} {seconds:.2f}s")
        for line in why.splitlines():
            self.say(f"#   {line}")

    def skipped(self, name, reason):
        self.n += 1
        if not reason.startswith(_table.ALLOWED_SKIPS):
            return self.bad(name, 0, f"skip that is not allowed: {reason}")
        self.skips.append((name, reason))
        self.say(f"ok {self.n} - {name} # SKIP {reason}")

    def one(self, test, tier, shared):
        name = label(test, tier)
        if (getattr(test.fn, "slow", False) or tier in getattr(test.fn, "slow_on", ())) and not ht.SLOW:
            return self.skipped(name, "slow: set HUTCH_TEST_SLOW=1")
        if tier == "gvisor" and not _table.runsc():
            return self.skipped(name, "runsc is not installed")
        own = getattr(test.fn, "own_daemon", None)
        special = getattr(test.fn, "shared_daemon", None)
        if special:
            shared = self.others.setdefault(special[0], Shared(*special))
        limit = getattr(test.fn, "timeout", DEFAULT_TIMEOUT) * PATIENCE
        start = time.monotonic()
        why, d, ctx, census_on = None, None, None, not self.opts.no_census

        def ring(*_):
            raise ht.TestTimeout(f"the test took longer than its {limit} s")
        old = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 90 * PATIENCE)
            if own is not None:
                d = Daemon(env={k: str(v) for k, v in own.items()}, name=test.file[5:17])
                d.start(settle=False)  # judged by what is left after its stop, so no quiet state is needed
            else:
                d = shared.get()
            ctx = ht.Context(test, tier, d)
            start = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, limit)
            test.fn(ctx)
            d.census.mine()  # remember what is ours before it goes
        except ht.Skip as e:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.skipped(name, str(e))
            why = None
            limit = None
        except (KeyboardInterrupt, SystemExit):
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._abandon(own, d, shared)
            raise
        except BaseException as e:
            why = self._explain(e)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.monotonic() - start
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(ht.TestTimeout("cleaning up took longer than 90 s")))
        signal.setitimer(signal.ITIMER_REAL, 90 * PATIENCE)
        try:
            if ctx:
                trouble = ctx.cleanup()
                if trouble and why is None:
                    why = "\n".join(trouble)
            if why is None and census_on and d and own is None:
                left = _census.wait_clean(d.census, d.baseline, extra=getattr(test.fn, "slack", None), members=d.members)
                if left:
                    why = "leak after the sandboxes are gone:\n  " + "\n  ".join(left)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            why = (why + "\n" if why else "") + self._explain(e)
        tail = d.log_tail() if (why and d) else ""
        said = d.sanitizer_reports() if d else ""
        if said:
            why = (why + "\n" if why else "") + "a sanitizer reported:\n" + said
        try:
            if own is not None and d:
                if why is None and census_on:
                    left = d.stop()
                    if left:
                        why = "leak after the daemon stopped:\n  " + "\n  ".join(left)
                        tail = d.log_tail()
                    d.destroy()
                else:
                    self._abandon(own, d, shared)
            elif why:
                self._abandon(own, d, shared)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            why = (why + "\n" if why else "") + self._explain(e)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        if limit is None and why is None:
            return
        if why is None:
            self.ok(name, seconds, ctx.notes if ctx else [])
        else:
            self.reported = REPORT.search(why.encode()) is not None
            if tail:
                why += "\nlast lines of the daemon's log:\n  " + tail.replace("\n", "\n  ")
            self.bad(name, seconds, why)

    def _abandon(self, own, d, shared):
        if own is not None:
            if d:
                d.kill_everything()
                d.scrub()
                d.destroy()
        else:
            shared.drop()

    @staticmethod
    def _explain(e):
        frames = [f for f in traceback.extract_tb(e.__traceback__)]
        mine = [f for f in frames if "/tests/e2e/" in f.filename or "/tests/security/" in f.filename] or frames[-3:]
        where = "\n".join(f"at {os.path.basename(f.filename)}:{f.lineno}: {f.line}" for f in mine[-4:])
        return f"{type(e).__name__}: {e}\n{where}"

    def plan(self, files, quiet=False):
        """What is to run: (test, tier) in order. A file that cannot be loaded is a failure."""
        got = []
        for path in files:
            try:
                tests = load(path)
            except Exception as e:
                if not quiet:
                    self.bad(os.path.basename(path), 0, "cannot be loaded:\n" + self._explain(e))
                continue
            got += [(test, tier) for test in tests for tier in test.tiers
                    if not (tier and self.opts.tier and tier != self.opts.tier) and not (tier in test.asked and tier != self.opts.tier) and chosen(label(test, tier), self.opts.k)]
        if self.opts.names:
            wanted = named(self.opts.names)
            for name in [] if quiet else sorted(wanted - {label(*x) for x in got}):
                self.bad(name, 0, f"{self.opts.names} names it, but there is no such test")
            got = [x for x in got if label(*x) in wanted]
        return got

    def none(self, todo):
        """Words that match no test are a mistake, not a success."""
        if not todo and not self.failed:
            self.bad("no test matches", 0, " ".join(self.opts.k + ([self.opts.tier] if self.opts.tier else [])) or "there are none")

    def attempt(self, test, tier):
        """With --retry a failure is only noted: a shared machine stalls now and then. A sanitizer's word counts at once."""
        for _ in range(self.opts.repeat):
            self.first = self.opts.retry
            self.one(test, tier, self.shared)
            self.first = False
            if self.failed and self.opts.fail_fast:
                return

    def once_more(self, known):
        for name in dict.fromkeys(self.late):
            self.twice.append(name)
            self.one(*known[name], self.shared)

    def finish(self):
        left = sum((s.finish() for s in [self.shared, *self.others.values()]), [])
        if left and not self.opts.no_census:
            self.bad("census-after-stop", 0, "left behind after the daemon stopped:\n  " + "\n  ".join(left))

    def summary(self, seconds):
        if self.skips:
            self.say("# skipped:")
            for name, reason in self.skips:
                self.say(f"#   {name}: {reason}")
        if self.twice:
            self.say("# needed a second try: " + ", ".join(self.twice))
        if self.failures:
            self.say("# failed:")
            for name in self.failures:
                self.say(f"#   {name}")
        self.say(f"# {seconds:.0f} s")
        line = f"{self.passed} passed, {self.failed} failed"
        if self.skips:
            line += f", {len(self.skips)} skipped"
        self.say(line)


NEXT = "# next"  # what a worker says when it has finished a test


class Workers:
    """opts.j processes, each with daemons of its own, are handed one test after another, long ones first; their TAP lines
    are renumbered and added up."""

    def __init__(self, opts, files, argv):
        self.opts, self.total = opts, Runner(opts)
        todo = self.total.plan(files)
        todo.sort(key=lambda x: -max(getattr(x[0].fn, "timeout", DEFAULT_TIMEOUT), DEFAULT_TIMEOUT))  # stable: else as in the files
        self.todo = [label(*x) for x in todo]
        self.total.none(todo)
        self.lock = threading.Lock()
        self.argv = argv
        self.live = []

    def start(self, n, argv):
        cmd = [sys.executable, os.path.realpath(__file__), "--worker"] + argv
        self.live = [subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(n)]
        return [threading.Thread(target=self.serve, args=(p,)) for p in self.live]

    def feed(self, p):
        """The next test for this worker, or the end of its input."""
        with self.lock:
            name = self.todo.pop(0) if self.todo and not (self.opts.fail_fast and self.total.failed) else None
        try:
            if name:
                p.stdin.write(name + "\n")
                p.stdin.flush()
            else:
                p.stdin.close()
        except BrokenPipeError:
            pass

    def take(self, line):
        """One line of a worker, counted and said."""
        total = self.total
        m = re.match(r"(not ok|ok) \d+ - (.*)", line)
        if line.startswith(LATE):
            total.late.append(line.removeprefix(LATE).split()[0])
        elif m:
            total.n += 1
            if m[1] == "not ok":
                total.failed += 1
                total.failures.append(re.sub(r" [\d.]+s.*$", "", m[2]))
            elif " # SKIP " in m[2]:
                total.skips.append(tuple(m[2].split(" # SKIP ", 1)))
            else:
                total.passed += 1
            line = f"{m[1]} {total.n} - {m[2]}"
        total.say(line)

    def serve(self, p):
        block, counted, name = [], False, None
        self.feed(p)
        for line in p.stdout:
            line = line.rstrip("\n")
            if line == NEXT:
                with self.lock:
                    for x in block:
                        self.take(x)
                block = []
                self.feed(p)
            elif re.fullmatch(r"\d+ passed, \d+ failed.*", line):
                counted = True
            elif line in ("# skipped:", "# failed:"):
                name = line  # lists of names that we keep ourselves
            elif not (name and line.startswith("#   ")) and not re.fullmatch(r"# \d+ s", line):
                block.append(line)
        p.wait()
        with self.lock:
            for x in block:
                self.take(x)
            if not counted:
                self.total.bad("worker", 0, f"a worker ended with {p.returncode} without a summary")

    def crew(self, n, argv):
        threads = self.start(n, argv)
        for th in threads:
            th.start()
        try:
            for th in threads:
                th.join()
        except KeyboardInterrupt:
            for p in self.live:
                p.send_signal(signal.SIGINT)
            for th in threads:
                th.join()

    def run(self):
        started = time.monotonic()
        self.crew(min(self.opts.j, max(len(self.todo), 1)), self.argv)
        if self.total.late:  # alone
            self.total.twice = list(dict.fromkeys(self.total.late))
            self.todo = list(self.total.twice)
            self.crew(1, [a for a in self.argv if a != "--retry"])
        self.total.summary(time.monotonic() - started)
        return 1 if self.total.failed else 0


def serial(r, todo):
    for test, tier in todo:
        r.attempt(test, tier)
        if r.failed and r.opts.fail_fast:
            return
    if r.opts.late:
        with open(r.opts.late, "w") as f:
            f.writelines(name + "\n" for name in dict.fromkeys(r.late))
    else:
        r.once_more({label(*x): x for x in todo})


def worker(r, todo):
    """Tests by name from standard input."""
    known = {label(*x): x for x in todo}
    for line in sys.stdin:
        r.attempt(*known[line.strip()])
        r.say(NEXT)


def main(argv):
    ap = argparse.ArgumentParser(description="hutch end-to-end tests")
    ap.add_argument("paths", nargs="+")
    ap.add_argument("-k", action="append", default=[])
    ap.add_argument("--names")
    ap.add_argument("--tier", choices=_table.TIERS)
    ap.add_argument("-j", type=int, default=int(os.environ.get("HUTCH_TEST_JOBS", "1")))
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--repeat", type=int, default=1)
    ap.add_argument("--fail-fast", action="store_true")
    ap.add_argument("--retry", action="store_true", help="a failed test gets a second try when the others are through, which is reported")
    ap.add_argument("--late", metavar="FILE", help="with --retry and one job: the names of those that failed go there, for --names; who asks tries them again")
    ap.add_argument("--no-census", action="store_true")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    opts = ap.parse_args(argv)
    opts.k = [w for k in opts.k for w in k.split()]
    files = find(opts.paths)
    if opts.j > 1 and not opts.worker and not opts.list:
        return Workers(opts, files, argv).run()
    r = Runner(opts)
    todo = r.plan(files, quiet=opts.worker)
    if not opts.worker:
        r.none(todo)
    if opts.list:
        for x in todo:
            r.say(label(*x))
        return 1 if r.failed else 0
    started = time.monotonic()
    try:
        (worker if opts.worker else serial)(r, todo)
    except KeyboardInterrupt:
        r.say("# interrupted")
        r.failed += 1
    r.finish()
    r.summary(time.monotonic() - started)
    return 1 if r.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
