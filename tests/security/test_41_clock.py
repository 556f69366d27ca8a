"""A clock set far ahead or back does not move the daemon's deadlines."""
from attack import attack
from hutchtest import *


@attack("clock", timeout_s=8)
def deadline_is_the_daemons(t, a):
    r = a.attempts("root", """
        tryit("forward", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time() + 10 * 365 * 86400))
        tryit("back", lambda: time.clock_settime(time.CLOCK_REALTIME, 86400))
        tryit("adjtimex", lambda: sc(159, ctypes.c_char_p(struct.pack("I", 0x8000) + bytes(204))) and None)
    """)
    a.judge({k: v for k, v in r.items() if k != "adjtimex"})
    r = None
    a.box.wait_state("gone", seconds=20)
    o = a.box.info()
    equal(o["end"]["reason"], "timeout")


@attack("clock")
def command_deadline_too(t, a):
    r = a.python("""
        try: time.clock_settime(time.CLOCK_REALTIME, 86400)
        except OSError: pass
        time.sleep(60)
    """, timeout_ms=4000, deadline=50)
    equal(r.exit["kind"], "timeout")
