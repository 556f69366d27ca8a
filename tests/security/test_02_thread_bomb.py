"""As many threads as the kernel gives: bounded, and nobody else notices."""
import os

from attack import attack
from hutchtest import *


@attack("thread-bomb")
def threads(t, a):
    r = a.python("""
        import threading
        threading.stack_size(32768)
        n = 0
        ev = threading.Event()
        try:
            while n < 200000:
                threading.Thread(target=ev.wait, daemon=True).start()
                n += 1
        except (RuntimeError, MemoryError) as e:
            print("stopped", n, flush=True)
            os._exit(0)
        print("unlimited", n, flush=True)
        os._exit(0)
    """, timeout_ms=20000, deadline=60)
    true(r.exit["kind"] in ("exit", "oom", "timeout"), r)
    lacks(r.text, "unlimited")
    a.must_live(60)
