"""10,000 orphans handed to PID 1: it reaps them all."""
import os

from attack import attack
from hutchtest import *


@attack("zombie-flood", limit=150)
def orphans(t, a):
    r = a.python("""
        n = 0
        for i in range(10000):
            while True:
                try:
                    p = os.fork()
                    break
                except OSError:
                    time.sleep(0.005)
            if p == 0:
                try:
                    if os.fork() == 0:
                        os._exit(0)
                except OSError: pass
                os._exit(0)
            os.waitpid(p, 0)
            n += 1
        print(n)
    """, timeout_ms=120000, deadline=130)
    equal(r.text.strip(), "10000", r)
    until(lambda: a.box.ok(["sh", "-c", "ps -eo stat= | grep -c Z || true"]).strip() == "0", 30, "no zombie is left")
    a.must_live()
