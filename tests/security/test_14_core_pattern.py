"""core_pattern as a way to run a program on the host."""
import os

from attack import attack
from hutchtest import *


@attack("core-pattern")
def pipe_handler(t, a):
    mark = "hutch-core-" + os.urandom(4).hex()
    r = a.attempts("root", """
        tryit("core_pattern", lambda: write("/proc/sys/kernel/core_pattern", "|/usr/bin/touch /tmp/%s"))
        def crash():
            import resource
            if os.fork() == 0:
                try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
                except (ValueError, OSError): pass
                os.kill(os.getpid(), 11)
            os.wait()
        tryit("crash", crash)
    """ % mark)
    true(not os.path.exists("/tmp/" + mark), "the host ran a sandbox's core handler")
    a.judge({"core_pattern": r["core_pattern"]})
    a.alive()
