"""Device nodes made by hand, and what lies behind them."""
import os

from attack import attack
from hutchtest import *


@attack("mknod")
def nodes(t, a):
    st = os.stat(t.d.home).st_dev
    r = a.both("""
        import stat
        os.makedirs("/tmp/n", exist_ok=True)
        if os.getuid() == 0:
            os.chmod("/tmp/n", 0o777)
        for name, kind, ma, mi in (("host-disk", stat.S_IFBLK, %d, %d), ("vda", stat.S_IFBLK, 254, 0), ("sda", stat.S_IFBLK, 8, 0), ("loop0", stat.S_IFBLK, 7, 0),
                                   ("mem", stat.S_IFCHR, 1, 1), ("kmsg", stat.S_IFCHR, 1, 11), ("kvm", stat.S_IFCHR, 10, 232), ("loopctl", stat.S_IFCHR, 10, 237)):
            def go(name=name, kind=kind, ma=ma, mi=mi):
                p = "/tmp/n/" + name + str(os.getpid())
                os.mknod(p, 0o666 | kind, os.makedev(ma, mi))
                fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK)
                return "read %%d" %% len(os.read(fd, 512))
            tryit(name, go)
    """ % (os.major(st), os.minor(st)))
    a.judge(r, also=[k for k in r if k.endswith("as user")])
    a.alive()
