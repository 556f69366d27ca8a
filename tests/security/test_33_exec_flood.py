"""Many tiny execs, one after the other and at once."""
from attack import attack
from hutchtest import *


@attack("exec-flood", limit=150)
def tiny(t, a):
    n = 3000 if SLOW else 300
    th = Threads()
    for _ in range(6):
        th.go(lambda: [a.box.exec(["true"], deadline=100).code for _ in range(n // 6)])
    equal(sum(len(x) for x in th.join(140)), n)
    # Kept exits are bounded: the table does not grow for ever.
    true(len(a.box.processes()) <= 100, f"{len(a.box.processes())} processes are remembered")
    a.must_live()


@attack("exec-flood", limit=150)
def many_that_stay(t, a):
    """Background processes until something says no: a typed no, and the sandbox still works."""
    made, no = [], None
    for _ in range(400):
        try:
            made.append(a.box.background(["sleep", "60"]))
        except ApiError as e:
            no = e
            break
    if no:
        true(no.code in ("quota", "guest", "rate", "unavailable"), no)
    t.note(f"{len(made)} at once, then {no.code if no else 'no limit met'}")
    for p in made:
        a.box.signal(p, 9)
    a.must_live()
