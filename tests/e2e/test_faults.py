"""The daemon killed at every named step (src/base/fault.h), alone or with everything else (a power cut as far as processes
go). Afterwards every sandbox is whole in its old or its new state, and nothing is left over."""
import os
import re

from hutchtest import *
from keeper import keeper, told
from packs import export, take

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
        "snapshot": ("snapshot.begun", "snapshot.frozen", "snapshot.copied", "snapshot.thawed", "snapshot.published", "snapshot.stored"),
        "asleep": ("snapshot.copied", "snapshot.stored"),
        "stands": ("snapshot.frozen", "snapshot.copied", "snapshot.stored"),
        "fork": ("snapshot.copied", "snapshot.published", "fork.taken", "create.started", "create.stored", "fork.born"),
        "rollback": ("rollback.started", "rollback.configured", "rollback.stored"),
        "import": ("import.whole", "import.template", "import.placed", "import.stored"),
        "unlist": ("forget.unlisted",),
        "forget": ("forget.stored", "forget.moved", "forget.removed"),
        "last": ("delete.removed", "ended.stored", "forget.stored", "forget.moved"),
    },
    "container": {
        "create": ("create.started", "create.configured", "create.stored"),
        "pause": ("pause.on-disk", "pause.stored", "pause.released"),
        "standby": ("pause.standby",),
        "wake": ("resume.awake", "resume.stored"),
        "resume": ("resume.booted", "resume.awake", "resume.stored"),
        "recover": ("recover.stored",),
        "delete": ("delete.begun", "delete.removed", "ended.stored"),
        "snapshot": ("snapshot.begun", "snapshot.copied", "snapshot.published", "snapshot.stored"),
        "asleep": ("snapshot.copied", "snapshot.stored"),
        "fork": ("snapshot.copied", "snapshot.published", "fork.taken", "create.started", "create.stored", "fork.born", "forget.stored"),
        "rollback": ("rollback.started", "rollback.configured", "rollback.stored"),
        "import": ("import.whole", "import.template", "import.placed", "import.built", "import.stored"),
        "forget": ("forget.stored", "forget.moved", "forget.removed"),
    },
}
COPIES = ("snapshot", "asleep", "stands", "fork", "rollback", "import", "unlist", "forget", "last")
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
        self.pid, self.ask = keeper(self.box)
        self.first = self.ask()
        self.obj = self.box.info()
        if self.op in ("resume", "boot"):
            self.box.pause()
        elif self.op == "wake":
            self.box.pause(standby=True)
        elif self.op == "recover":
            os.kill(self.t.d.init_of(self.obj["box"]), 9)
            self.box.wait_state("failed", seconds=20)

    def call(self):
        {"create": lambda: self.t.c.create(isolation=self.t.tier), "pause": lambda: self.box.pause(), "standby": lambda: self.box.pause(standby=True),
         "resume": lambda: self.box.resume(), "wake": lambda: self.box.resume(), "boot": lambda: self.box.resume(memory=False, deadline=90),
         "recover": lambda: self.box.recover(), "delete": lambda: self.box.kill()}[self.op]()

    def run(self):
        pid = self.t.d.pid
        self.t.d.census.mine()
        self.name(self.step)
        try:
            self.call()
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


class CopyFault(Fault):
    """Snapshots and what is made of them. After the fault: the sandbox, every copy and every snapshot that is listed is
    whole, and snapshots/ holds what they need and no more."""

    def prepare(self):
        super().prepare()
        c = self.t.c
        self.kids = []
        if self.op in ("rollback", "unlist", "forget"):
            self.box.snapshot(name="s")
            self.box.put("/home/user/tree/later", b"later")
            self.box.ok("sync")
        if self.op == "import":
            self.box.snapshot(name="s")
            self.pack = os.path.join(self.t.d.top, "pack")
            export(self.t.d, "s", self.pack)
            c.delete("/v1/snapshots/s")
            self.templates = self.has_templates()
        if self.op == "asleep":
            self.box.pause()
        elif self.op == "stands":
            self.box.pause(standby=True)
        elif self.op == "unlist":
            self.kids = [c.create(snapshot="s")]
        elif self.op == "last":
            self.kids = [c.box(f["sandbox"]["id"]) for f in self.box.fork(count=1)["forks"]]

    def call(self):
        c = self.t.c
        {"snapshot": lambda: self.box.snapshot(name="s"), "asleep": lambda: self.box.snapshot(name="s"), "stands": lambda: self.box.snapshot(name="s"), "fork": lambda: self.box.fork(count=2), "rollback": lambda: self.box.rollback("s"),
         "import": lambda: take(c, self.pack), "unlist": lambda: c.delete("/v1/snapshots/s"), "forget": lambda: c.delete("/v1/snapshots/s"), "last": lambda: self.kids[0].kill()}[self.op]()

    def has_templates(self):
        return sorted(os.listdir(os.path.join(self.t.d.home, "templates")))

    def held(self):
        return sorted(os.listdir(os.path.join(self.t.d.home, "snapshots")))

    def back(self, box):
        """Awake again, whatever it became; True if its processes are the ones it had."""
        o = box.info()
        what = f"{self.what}: {o['state']}"
        if self.op == "asleep":
            equal(o["state"], "paused", what)
            box.resume()
            return self.t.tier == "vm"
        if self.op == "stands" and box is self.box and not self.power:
            equal((o["state"], o["paused"]["kind"]), ("paused", "standby"), what)
            contains(refuses("conflict", box.snapshot).message, "resume it")  # nobody has spoken to its agent since
            box.resume()
            return True
        contains(("running", "failed") if self.power else ("running",), o["state"], what)
        if o["state"] == "failed":
            true(o["end"]["reason"] == "host-fault" and o["end"]["message"], what)
            box.recover()
        return o["state"] == "running"

    def check(self, box, memory):
        for path, data in FILES.items():
            equal(sha(box.get(path)), sha(data), f"{self.what}: {path}")
        if memory:
            equal(told(box, self.pid, "?").split()[1:], self.first[1:], f"{self.what}: its memory")

    def whole(self):
        c, before = self.t.c, self.step.split(".")[1] in ("begun", "frozen", "copied", "thawed", "published", "whole", "template", "placed", "built")
        listed = [s["id"] for s in c.get("/v1/snapshots")["snapshots"]]
        if self.op in ("snapshot", "asleep", "stands", "rollback", "import"):
            equal(len(listed), 0 if self.op != "rollback" and before else 1, f"{self.what}: whether there is a snapshot")
        else:
            equal(listed, [], f"{self.what}: snapshots")
        alive = self.back(self.box)
        new = self.op == "rollback" and self.box.info()["box"] != self.obj["box"]
        equal(new, self.step == "rollback.stored", f"{self.what}: which of its two machines it has")
        self.check(self.box, memory=alive and not (new and self.t.tier == "container"))
        if self.op in ("rollback", "unlist", "forget"):
            names = [e["name"] for e in self.box.ls("/home/user/tree")]
            equal("later" in names, not new, f"{self.what}: the files of {'its snapshot' if new else 'its own time'}")
        self.kids = [c.box(o["id"]) for o in c.sandboxes() if o["id"] != self.box.id]
        if self.op == "fork" and self.step in ("create.stored", "fork.born"):
            true(self.kids, f"{self.what}: a child that was stored is there")
        for kid in self.kids:
            self.check(kid, memory=self.back(kid) and self.t.tier == "vm")
        if self.op in ("snapshot", "asleep", "stands", "import") and listed:
            kid = c.create(snapshot="s")
            self.check(kid, memory=self.t.tier == "vm")
            kid.kill()
        needed = listed if self.t.tier == "container" else sorted({*listed} | {k.info()["snapshot"] for k in self.kids} | ({self.box.info()["snapshot"]} if new else set()))
        until(lambda: self.held() == needed, 20, f"{self.what}: what snapshots/ holds")
        for s in listed:
            c.delete("/v1/snapshots/" + s)
        for b in (self.box, *self.kids):
            b.kill()
        until(lambda: self.held() == [], 20, f"{self.what}: the files of snapshots go")
        if self.op == "import":
            until(lambda: self.has_templates() == self.templates, 20, f"{self.what}: its template goes")
            os.unlink(self.pack)
        until(lambda: not os.listdir(os.path.join(self.t.d.home, "boxes")), 20, f"{self.what}: the folders go")


def turns(t):
    """All steps with both deaths when there is time; otherwise each with one of them, and of a VM's every other step, of its copies
    and of packs one each."""
    for n, (op, steps) in enumerate(STEPS[t.tier].items()):
        for i, step in enumerate(steps):
            if SLOW:
                yield from ((op, step, False), (op, step, True))
            elif t.tier == "container" and op != "import":
                yield op, step, i % 2 == 1
            elif op in COPIES:
                if i == len(steps) // 2:
                    yield op, step, n % 2 == 1
            elif len(steps) == 1 or i % 2:
                yield op, step, i // 2 % 2 == 1


@tiers("vm", "container")
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0", HUTCH_POOL_CONTAINER="0")
@timeout(3600 if SLOW else 900)
def killed_at_every_step(t):
    t.d.shutdown()
    t.d.env["HUTCH_FAULT"] = os.path.join(t.d.top, "fault")
    t.d.start(settle=False)
    for op, step, power in turns(t):
        f = (CopyFault if op in COPIES else Fault)(t, op, step, power)
        f.prepare()
        f.run()
        f.whole()
    equal(t.c.sandboxes(), [])
    t.box().ok(["true"])
