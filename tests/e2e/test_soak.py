"""Pause and resume over and over, over mixed sandboxes (one plain, one made by a fork): a tree of files by checksum, and memory, verified each time."""
import os
import random

from hutchtest import *
from keeper import keeper

CYCLES = int(os.environ.get("HUTCH_TEST_CYCLES", "1000" if SLOW else "10"))

# Says the checksum of a tree, changes it as a seed tells, and says what it is now. It stays small however often that is done.
TREE = r"""
import hashlib, os, random, sys
top, r = sys.argv[1], random.Random(sys.argv[2])
def checksum():
    h = hashlib.sha256()
    for d, dirs, files in os.walk(top):
        dirs.sort()
        for n in sorted(files):
            p = os.path.join(d, n)
            h.update(f"{p} {os.stat(p).st_mode:o}\n".encode() + open(p, "rb").read())
    return h.hexdigest()
print(checksum())
for i in range(30):
    d = os.path.join(top, *(str(r.randrange(3)) for _ in range(r.randrange(3))))
    os.makedirs(d, exist_ok=True)
    p = os.path.join(d, f"f{r.randrange(12)}")
    if r.random() < 0.3 and os.path.exists(p):
        os.unlink(p)
    else:
        with open(p, "wb") as f:
            f.write(r.randbytes(r.randrange(20000)))
print(checksum())
"""


class Patient:
    """One sandbox: what it should hold, and how often that was found so."""

    def __init__(self, t, rng, n, box):
        self.t, self.rng, self.n, self.box = t, rng, n, box
        self.box.put("/home/user/tree.py", TREE.encode())
        self.wake()
        self.tree = self.change()[1]

    def wake(self):
        _, self.ask = keeper(self.box)
        self.memory = self.ask()

    def change(self):
        """(its checksum before, and after)"""
        return self.box.ok(["python3", "/home/user/tree.py", "/home/user/t", str(self.rng.random())], deadline=120).split()

    def cycle(self, kind):
        how = {"disk": {}, "standby": {"standby": True}, "files": {"memory": False}}[kind]
        o = self.box.pause(**how)
        equal(o["state"], "paused")
        o = self.box.resume(deadline=120)
        equal(o["state"], "running")
        what = f"sandbox {self.n}, {kind}, generation {o['generation']}"
        before, after = self.change()
        equal(before, self.tree, f"{what}: its files")
        self.tree = after
        if kind == "files" or (kind == "disk" and self.t.tier == "container"):
            self.wake()
        else:
            now = self.ask()
            equal(now, [str(int(self.memory[0]) + 1)] + self.memory[1:], f"{what}: its memory")
            self.memory = now


@tiers("vm", "container")
@timeout(36000 if SLOW else 600)
def pause_and_resume_over_and_over(t):
    rng = random.Random(CYCLES)
    plain = t.box(name="soak", timeout_s=86400 if SLOW else 3600)
    plain.put("/home/user/of-the-parent", b"x" * 100000)
    _, (child,) = t.fork(plain, count=1)
    patients = [Patient(t, rng, n, box) for n, box in enumerate((plain, child))]
    kinds = ["disk", "standby"] * 4 + ["files"]
    for i in range(CYCLES):
        rng.choice(patients).cycle(kinds[i % len(kinds)])
    t.note(f"{CYCLES} cycles, generations {[p.box.info()['generation'] for p in patients]}")
