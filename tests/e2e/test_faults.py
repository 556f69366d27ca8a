"""The daemon killed at every named step (src/base/fault.h), alone or with everything else (a power cut as far as processes
go). Afterwards every sandbox is whole in its old or its new state, and nothing is left over."""
import os
import re

from hutchtest import *
from keeper import keeper

# step -> what leads there: the operation under which the daemon dies
STEPS = {
    "vm": {
        "create": ("create.started", "create.configured", "create.stored"),
        "pause": ("pause.frozen", "pause.stopped", "pause.taken", "pause.on-disk", "pause.stored", "pause.released"),
        "standby": ("pause.standby",),
        "wake": ("resume.awake", "resume.stored"),
        "resume": ("resume.started", "resume.restored", "resume.committed", "resume.awake", "resume.stored"),
        "boot": ("resume.forgotten", "resume.booted"),
        "recover": ("recover.stored",),
        "delete": ("delete.begun", "delete.removed", "ended.stored"),
    },
    "container": {
        "create": ("create.started", "create.configured", "create.stored"),
        "pause": ("pause.on-disk", "pause.stored", "pause.released"),
        "standby": ("pause.standby",),
        "wake": ("resume.awake", "resume.stored"),
        "resume": ("resume.booted", "resume.awake", "resume.stored"),
        "recover": ("recover.stored",),
        "delete": ("delete.begun", "delete.removed", "ended.stored"),
    },
}
FILES = {f"/home/user/tree/{i}": os.urandom(5000 * i) for i in range(1, 4)}


@plain
def every_step_has_its_turn(t):
    src = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../src")
    named = set()
    for folder, _, files in os.walk(src):
        for f in files:
            named |= set(re.findall(r'\bfault\("([^"]+)"\)', open(os.path.join(folder, f), errors="replace").read()))
    equal(named, {s for tier in STEPS.values() for steps in tier.values() for s in steps})


class Fault:
    def __init__(self, t, op, step, power):
        self.t, self.op, self.step, self.power = t, op, step, power
        self.path = os.path.join(t.d.top, "fault")
        self.what = f"{step}, {'everything' if power else 'hutchd'} killed"

    def name(self, step):
        with open(self.path + ".new", "w") as f:
            f.write(step)
        os.chmod(self.path + ".new", 0o644)
        os.rename(self.path + ".new", self.path)

    def prepare(self):
        """A sandbox with files and, if it has memory to lose, a process; in the state that the operation starts from."""
        self.ask = None
        if self.op == "create":
            return
        self.box = self.t.box()
        for path, data in FILES.items():
            self.box.put(path, data)
        self.box.ok("sync")
        _, self.ask = keeper(self.box)
        self.first = self.ask()
        self.obj = self.box.info()
        if self.op in ("resume", "boot"):
            self.box.pause()
        elif self.op == "wake":
            self.box.pause(standby=True)
        elif self.op == "recover":
            os.kill(self.t.d.init_of(self.obj["box"]), 9)
            self.box.wait_state("failed", seconds=20)

    def run(self):
        pid = self.t.d.pid
        self.t.d.census.mine()
        self.name(self.step)
        calls = {"create": lambda: self.t.c.create(isolation=self.t.tier), "pause": lambda: self.box.pause(), "standby": lambda: self.box.pause(standby=True),
                 "resume": lambda: self.box.resume(), "wake": lambda: self.box.resume(), "boot": lambda: self.box.resume(memory=False, deadline=90),
                 "recover": lambda: self.box.recover(), "delete": lambda: self.box.kill()}
        try:
            calls[self.op]()
        except (OSError, Late, ApiError, Untyped):
            pass  # the connection broke with the daemon
        except Exception as e:  # http.client says it in its own ways
            true("http" in type(e).__module__, repr(e))
        self.t.d.wait_gone(pid, 60)
        if self.power:
            self.t.d.kill_everything()
        os.unlink(self.path)
        self.t.d.start(settle=False)

    def whole(self):
        """Old or new, nothing between; then gone without a trace."""
        if self.op == "create":
            for o in self.t.c.sandboxes():
                self.works(self.t.c.box(o["id"]), files=False)
            return
        o = until(lambda: (lambda x: x if x["state"] not in ("pausing", "stopping") else None)(self.box.info()), 30, self.what)
        if o["state"] == "gone":
            equal(self.op, "delete", self.what)
            equal(o["end"]["reason"], "killed")
        else:
            self.works(self.box, files=True)
        until(lambda: not os.path.exists(os.path.join(self.t.d.home, "boxes", self.obj["box"])), 20, f"{self.what}: its folder goes")

    def works(self, box, files):
        o = box.info()
        t, what = self.t, f"{self.what}: {o['state']}"
        kept = {"running", "paused"} if not self.power else {"running", "paused", "failed"}
        if self.op in ("recover", "delete"):
            kept = {"running", "paused", "failed"}
        contains(kept, o["state"], what)
        memory = o["state"] == "running" or (o["state"] == "paused" and o["paused"]["memory"])
        if o["state"] == "paused":
            box.resume(deadline=120)
        elif o["state"] == "failed":
            true(o["end"]["reason"] == "host-fault" and o["end"]["message"], what)
            box.recover()
        box.ok(["true"], deadline=60)
        if files:
            for path, data in FILES.items():
                equal(sha(box.get(path)), sha(data), f"{what}: {path}")
        if files and self.ask and memory and self.op not in ("boot", "recover") and not (t.tier == "container" and self.op == "resume"):
            equal(self.ask()[1:], self.first[1:], f"{what}: its memory")
        box.kill()


def turns(t):
    """All steps with both deaths when there is time; otherwise each with one of them, and of a VM's every other step."""
    for op, steps in STEPS[t.tier].items():
        for i, step in enumerate(steps):
            if SLOW:
                yield from ((op, step, False), (op, step, True))
            elif t.tier == "container" or len(steps) == 1 or i % 2:
                yield op, step, (i // 2 if t.tier == "vm" else i) % 2 == 1


@tiers("vm", "container")
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0", HUTCH_POOL_CONTAINER="0")
@timeout(3600 if SLOW else 900)
def killed_at_every_step(t):
    t.d.shutdown()
    t.d.env["HUTCH_FAULT"] = os.path.join(t.d.top, "fault")
    t.d.start(settle=False)
    for op, step, power in turns(t):
        f = Fault(t, op, step, power)
        f.prepare()
        f.run()
        f.whole()
    equal(t.c.sandboxes(), [])
    t.box().ok(["true"])
