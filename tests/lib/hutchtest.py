"""What a test file imports.

    from hutchtest import *

    @tiers("vm", "container")
    def exit_status_is_passed_on(t):
        box = t.box()
        equal(box.exec(["sh", "-c", "exit 3"]).exit, {"kind": "exit", "code": 3})

A test is a function with @tiers(...) or @plain. `t` is its context: t.tier,
t.d (daemon), t.c (client on the unix socket), t.box(...) (a sandbox of the
tier, removed afterwards). Tests share a daemon, over all files, unless they say
@own_daemon; a failure throws the shared one away. After every test a leak
census runs; a leak is a failure. See runner.py for how they are found and run.
"""
import contextlib
import hashlib
import inspect
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from client import (ApiError, Box, Client, Deadline, ExecStream, Late, Response, Stream, Untyped, WebSocket,  # noqa: E402,F401
                    error_of, event_bytes, readable, until)
import tiers as _table  # noqa: E402
from tiers import diff  # noqa: E402,F401

SLOW = os.environ.get("HUTCH_TEST_SLOW") == "1"
REGISTRY = []


class Skip(Exception):
    pass


class TestTimeout(BaseException):
    """Not an Exception: a test's own `except Exception` must not swallow it."""


class Test:
    def __init__(self, fn, tier_names):
        self.fn = fn
        self.name = fn.__name__
        self.file = os.path.basename(inspect.getsourcefile(fn))[:-3]
        self.tiers = _table.on_gvisor(tier_names, self.file, self.name)
        self.asked = set(self.tiers) - set(tier_names)  # only where --tier names it
        self.line = fn.__code__.co_firstlineno


def tiers(*names):
    def mark(fn):
        REGISTRY.append(Test(fn, names))
        return fn
    return mark


def plain(fn):
    """A test that has no tier of its own; t.tier is the container's where it needs a sandbox."""
    REGISTRY.append(Test(fn, (None,)))
    return fn


def _attr(name, value):
    def mark(fn):
        setattr(fn, name, value)
        return fn
    return mark


def timeout(seconds):
    """Time limit of the test (default 60 s)."""
    return _attr("timeout", seconds)


def own_daemon(**env):
    """A daemon for this test alone, with these environment variables."""
    return _attr("own_daemon", env)


def shared_daemon(name, **env):
    """One daemon with these environment variables for all tests that name it (beside the ordinary shared one)."""
    return _attr("shared_daemon", (name, env))


def leak_slack(kind, label, n, reason):
    """Growth this test is allowed to leave behind, with the reason."""
    def mark(fn):
        extra = dict(getattr(fn, "slack", {}))
        extra[(kind, label)] = (n, reason)
        fn.slack = extra
        return fn
    return mark


def slow(fn):
    """A soak variant: only with HUTCH_TEST_SLOW=1."""
    fn.slow = True
    return fn


def skip(reason):
    raise Skip(reason)


# ---- assertions: short names, values in the message ---------------------------------------------------------------

def _fail(msg, note):
    raise AssertionError(f"{note}: {msg}" if note else msg)


def equal(got, want, note=""):
    if got != want:
        _fail(f"got {_short(got)}, want {_short(want)}", note)


def true(cond, note="condition"):
    if not cond:
        raise AssertionError(f"not true: {note}")


def within(got, low, high, note=""):
    if not low <= got <= high:
        _fail(f"{got!r} is not within {low!r} … {high!r}", note)


def contains(hay, needle, note=""):
    if needle not in hay:
        _fail(f"{_short(needle)} not in {_short(hay)}", note)


def lacks(hay, needle, note=""):
    if needle in hay:
        _fail(f"{_short(needle)} in {_short(hay)}", note)


def _short(x, n=600):
    s = repr(x)
    return s if len(s) <= n else f"{s[:n]}… ({len(s)} characters)"


@contextlib.contextmanager
def _raises(codes):
    try:
        yield
    except ApiError as e:
        if e.code not in codes:
            raise AssertionError(f"got error {e.code!r} ({e.message}), want {' or '.join(codes)}") from None
    else:
        raise AssertionError(f"no error, want {' or '.join(codes)}")


def refuses(codes, fn=None, *args, **kw):
    """refuses("not_found", f, x) returns the ApiError; or `with refuses("invalid"):`. Several codes: "a b"."""
    names = codes.split()
    if fn is None:
        return _raises(names)
    try:
        got = fn(*args, **kw)
    except ApiError as e:
        if e.code not in names:
            raise AssertionError(f"got error {e.code!r} ({e.message}), want {' or '.join(names)}") from None
        return e
    raise AssertionError(f"no error but {_short(got)}, want {' or '.join(names)}")


def clock_is_within_50_ms(box, obj):
    """The guest's clock against the host's, right after `obj` (the sandbox as a create or resume answered it).

    A reading lies between two of the host's, so only what falls outside of them counts as an offset, and of a few readings the
    tightest: load widens the interval, it cannot make an offset. What a guest is told is as old as the telling took; that the
    start as a whole took longer than 50 ms on a busy host is therefore allowed for, by as much as it did.
    """
    offset = None
    for _ in range(5):
        t0 = time.time()
        g = float(box.ok(["date", "+%s.%N"]))
        t1 = time.time()
        now = max(t0 - g, g - t1, 0.0)
        offset = now if offset is None else min(offset, now)
    within(offset, 0, 0.05 + obj["start"]["ms"] / 1000, f"seconds outside what the host's clock allows ({obj['start']})")
    return offset


def clock_is_right(box):
    """Its wall clock is the host's, however long the question takes."""
    before = time.time()
    now = float(box.ok("date +%s.%N"))
    within(now, before - 0.5, time.time() + 0.5, "its clock")


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Pattern:
    """Reproducible bytes of any length, without holding them: blocks of a counter-keyed digest stream."""

    BLOCK = 1 << 16

    def __init__(self, size, seed=b"hutch"):
        self.size, self.seed = size, seed

    def _block(self, i):
        return hashlib.shake_128(self.seed + i.to_bytes(8, "big")).digest(self.BLOCK)

    def __iter__(self):
        left, i = self.size, 0
        base = self._block(0)
        while left > 0:
            # One expensive block, varied by its number: enough to catch lost, doubled and reordered pieces.
            b = i.to_bytes(8, "big") + base[8:]
            yield b[:left] if left < len(b) else b
            left -= len(b)
            i += 1

    def sha(self):
        h = hashlib.sha256()
        for b in self:
            h.update(b)
        return h.hexdigest()


class Threads:
    """Run functions at once; join() raises the first failure, with a deadline."""

    def __init__(self):
        self.items = []

    def go(self, fn, *args):
        box = {"done": False}

        def run():
            try:
                box["value"] = fn(*args)
            except BaseException as e:  # handed to join()
                box["error"] = e
            box["done"] = True
        th = threading.Thread(target=run, daemon=True)
        th.start()
        self.items.append((th, box))
        return box

    def join(self, seconds=60.0):
        end = Deadline(seconds)
        for th, box in self.items:
            th.join(max(end.left, 0.01))
            if th.is_alive():
                raise Late(f"a thread did not end within {seconds:.0f} s")
        for _, box in self.items:
            if "error" in box:
                raise box["error"]
        return [box["value"] for _, box in self.items]


# ---- the context of one test ----------------------------------------------------------------------------------------

class Context:
    def __init__(self, test, tier, daemon):
        self.test, self._tier, self.d = test, tier, daemon
        self.boxes = []
        self.undo = []
        self.notes = []
        self._tmp = None

    @property
    def tier(self):
        return self._tier or "container"

    @property
    def c(self):
        return self.d.client

    @property
    def tmp(self):
        if not self._tmp:
            self._tmp = tempfile.TemporaryDirectory(prefix="hutch-test-")
        return self._tmp.name

    def diff(self, name):
        return _table.diff(name, self.tier)

    def note(self, text):
        """A line for the log of a passing test (a measured ratio, a path taken)."""
        self.notes.append(text)

    def create(self, **members):
        """Exactly what the caller says; the sandbox is removed after the test."""
        box = self.c.create(**members)
        self.boxes.append(box)
        return box

    def box(self, **members):
        """A running sandbox of this test's tier."""
        return self.create(**{"isolation": self.tier, **members})

    def snapshot(self, box, **members):
        """A snapshot that is deleted after the test."""
        s = box.snapshot(**members)
        self.cleanup_later(self.c.delete, "/v1/snapshots/" + s["id"])
        return s

    def fork(self, box, partly=False, **members):
        """(the reply, its sandboxes); they are removed after the test. partly: some may have failed."""
        reply = box.fork(**members)
        bad = [f["error"] for f in reply["forks"] if "error" in f]
        if bad and not partly:
            raise AssertionError(f"a child of a fork failed: {bad}")
        kids = [Box(self.c, f["sandbox"]) for f in reply["forks"] if "sandbox" in f]
        self.boxes += kids
        return reply, kids

    def cleanup_later(self, fn, *args):
        self.undo.append((fn, args))

    def cleanup(self):
        """Remove what the test made. Returns what went wrong, as lines."""
        bad = []
        for box in self.boxes:
            try:
                box.kill()
            except ApiError as e:
                if e.code not in ("not_found", "gone"):
                    bad.append(f"removing {box.id}: {e}")
            except Exception as e:
                bad.append(f"removing {box.id}: {type(e).__name__}: {e}")
        for fn, args in reversed(self.undo):
            try:
                fn(*args)
            except ApiError as e:
                if e.code not in ("not_found", "gone"):
                    bad.append(f"cleanup: {e}")
            except Exception as e:
                bad.append(f"cleanup: {type(e).__name__}: {e}")
        if self._tmp:
            self._tmp.cleanup()
        return bad


__all__ = [n for n in dir() if not n.startswith("_")]
