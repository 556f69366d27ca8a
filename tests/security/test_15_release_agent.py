"""cgroup v1 release_agent and notify_on_release."""
import os

from attack import attack
from hutchtest import *


@attack("release-agent")
def agent(t, a):
    mark = "/tmp/hutch-release-" + os.urandom(4).hex()
    r = a.attempts("root", """
        os.makedirs("/tmp/cg", exist_ok=True)
        for kind, opt in ((b"cgroup", b"memory"), (b"cgroup", b"rdma"), (b"cgroup", b"none,name=x"), (b"cgroup2", None)):
            tryit("mount-" + kind.decode() + str(opt), lambda k=kind, o=opt: mount(b"cg", b"/tmp/cg", k, 0, o))
        def agent():
            import glob
            hit = glob.glob("/tmp/cg/release_agent") + glob.glob("/sys/fs/cgroup/*/release_agent") + glob.glob("/sys/fs/cgroup/release_agent")
            if not hit: raise OSError(errno.ENOENT, "none")
            for h in hit: write(h, "%s")
        tryit("release_agent", agent)
    """ % mark)
    true(not os.path.exists(mark))
    a.judge(r)
    a.alive()
