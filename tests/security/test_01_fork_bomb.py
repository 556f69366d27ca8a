"""A fork bomb: the process limit stops it, the neighbour answers, the sandbox can be removed."""
import os

from attack import attack, hold
from hutchtest import *


@attack("fork-bomb", limit=150)
def bomb(t, a):
    pid = a.box.background(["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 30"], timeout_ms=8000)
    hold(6)
    # The victim itself may be slow to answer; removing it must work while the bomb still burns.
    a.box.kill()
    equal(a.box.info()["state"], "gone")


@attack("fork-bomb", limit=150)
def bomb_ends_with_its_deadline(t, a):
    r = a.python("""
        n = 0
        while True:
            try:
                if os.fork() == 0:
                    while True:
                        try: os.fork()
                        except OSError: time.sleep(0.01)
                n += 1
            except OSError:
                time.sleep(0.01)
    """, timeout_ms=4000, deadline=100)
    true(r.exit["kind"] in ("timeout", "oom"), r)
    until(lambda: quiet(a), 60, "the sandbox answers again once the bomb's deadline has passed")


def quiet(a):
    try:
        return a.box.exec(["true"], deadline=30).code == 0
    except ApiError as e:
        return a.box.info()["state"] != "running" or e.code not in ("gone", "not_found")
