"""Abstract unix sockets of the host and of the neighbour."""
import os
import socket

from attack import attack
from hutchtest import *


@attack("abstract-socket")
def hosts_sockets(t, a):
    name = "hutch-test-" + os.urandom(4).hex()
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0" + name)
    s.listen(4)
    code = """
        def go(n):
            s = socket.socket(socket.AF_UNIX); s.settimeout(5)
            s.connect("\\0" + n)
        tryit("host", lambda: go("%s"))
        tryit("neighbour", lambda: go("%s"))
        def path(p):
            s = socket.socket(socket.AF_UNIX); s.settimeout(5)
            s.connect(p)
        for p in ("%s/hutch.sock", "%s/spawn.sock", "/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private"):
            tryit(p, lambda p=p: path(p))
    """ % (name, name + "-n", t.d.run, t.d.run)
    n = a.neighbour.box
    pid = n.background(["python3", "-c", f"import socket,time\ns=socket.socket(socket.AF_UNIX)\ns.bind('\\0{name}-n')\ns.listen()\nprint('up',flush=True)\ntime.sleep(60)"])
    n.attach(pid, 0, deadline=20).wait_output(b"up")
    r = a.both(code)
    a.judge(r)
    n.signal(pid, 9)
    s.settimeout(0.1)
    try:
        s.accept()
        raise AssertionError("the sandbox reached an abstract socket of the host")
    except (TimeoutError, socket.timeout):
        pass
    s.close()
