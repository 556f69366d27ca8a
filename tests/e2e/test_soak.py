"""Pause and resume over and over, over mixed sandboxes: a tree of files by checksum, and memory, verified each time."""
import os
import random

from hutchtest import *
from keeper import keeper

CYCLES = int(os.environ.get("HUTCH_TEST_CYCLES", "1000" if SLOW else "10"))

# Writes a tree from a seed and says its checksum; or only says it.
TREE = r"""
import hashlib, os, random, sys
top, seed = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
if seed:
    r = random.Random(seed)
    for i in range(40):
        d = os.path.join(top, *(str(r.randrange(4)) for _ in range(r.randrange(4))))
        os.makedirs(d, exist_ok=True)
        p = os.path.join(d, f"f{r.randrange(60)}")
        if r.random() < 0.2 and os.path.exists(p):
            os.unlink(p)
        else:
            with open(p, "wb") as f:
                f.write(r.randbytes(r.randrange(20000)))
h = hashlib.sha256()
for d, dirs, files in os.walk(top):
    dirs.sort()
    for n in sorted(files):
        p = os.path.join(d, n)
        h.update(f"{p} {os.stat(p).st_mode:o}\n".encode() + open(p, "rb").read())
print(h.hexdigest())
"""


class Patient:
    """One sandbox: what it should hold, and how often that was found so."""

    def __init__(self, t, rng, n):
        self.t, self.rng, self.n = t, rng, n
        self.box = t.box(name=f"soak-{n}", timeout_s=86400 if SLOW else 3600)
        self.box.put("/home/user/tree.py", TREE.encode())
        self.wake()
        self.change()

    def wake(self):
        _, self.ask = keeper(self.box)
        self.memory = self.ask()

    def change(self):
        self.tree = self.box.ok(["python3", "/home/user/tree.py", "/home/user/t", str(self.rng.random())]).strip()

    def cycle(self, kind):
        how = {"disk": {}, "standby": {"standby": True}, "files": {"memory": False}}[kind]
        o = self.box.pause(**how)
        equal(o["state"], "paused")
        o = self.box.resume(deadline=120)
        equal(o["state"], "running")
        what = f"sandbox {self.n}, {kind}, generation {o['generation']}"
        equal(self.box.ok(["python3", "/home/user/tree.py", "/home/user/t"]).strip(), self.tree, f"{what}: its files")
        if kind == "files" or (kind == "disk" and self.t.tier == "container"):
            self.wake()
        else:
            now = self.ask()
            equal(now, [str(int(self.memory[0]) + 1)] + self.memory[1:], f"{what}: its memory")
            self.memory = now
        self.change()


@tiers("vm", "container")
@timeout(36000 if SLOW else 600)
def pause_and_resume_over_and_over(t):
    rng = random.Random(CYCLES)
    patients = [Patient(t, rng, n) for n in range(2)]
    kinds = ["disk", "standby"] * 4 + ["files"]
    for i in range(CYCLES):
        rng.choice(patients).cycle(kinds[i % len(kinds)])
    t.note(f"{CYCLES} cycles, generations {[p.box.info()['generation'] for p in patients]}")
