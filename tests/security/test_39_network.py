"""No network means none: loopback of the host, its addresses, metadata, neighbours, raw packets."""
import os
import socket
import subprocess

from attack import attack
from hutchtest import *


@attack("network")
def nowhere(t, a):
    s = socket.socket()
    s.bind(("0.0.0.0", 0))
    s.listen(8)
    port = s.getsockname()[1]
    addrs = {"127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "1.1.1.1", "0.0.0.0", "255.255.255.255"}
    try:
        for l in subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True).stdout.splitlines():
            addrs.add(l.split()[3].split("/")[0])
        for l in subprocess.run(["ip", "route"], capture_output=True, text=True).stdout.splitlines():
            if l.startswith("default via"):
                addrs.add(l.split()[2])
    except OSError:
        pass
    r = a.both("""
        def tcp(h, p, fam=socket.AF_INET):
            s = socket.socket(fam, socket.SOCK_STREAM); s.settimeout(3)
            try:
                s.connect((h, p))
                s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                d = s.recv(4096)
            except (TimeoutError, socket.timeout): raise OSError(errno.ETIMEDOUT, "")
            # the gate takes a connection to say why it goes nowhere
            if not d or b"network_denied" in d: raise OSError(errno.ECONNREFUSED, "")
        def udp(h, p):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.sendto(b"x", (h, p))
            try: s.recv(10)
            except (TimeoutError, socket.timeout): raise OSError(errno.ETIMEDOUT, "")
        for h in %r:
            for p in (%d, %d, 80, 53):
                tryit("tcp %%s:%%d" %% (h, p), lambda h=h, p=p: tcp(h, p))
            tryit("udp %%s" %% h, lambda h=h: udp(h, 53))
        tryit("tcp6 ::1", lambda: tcp("::1", %d, socket.AF_INET6))
        tryit("tcp6 metadata", lambda: tcp("fd00:ec2::254", 80, socket.AF_INET6))
        tryit("mapped", lambda: tcp("::ffff:127.0.0.1", %d, socket.AF_INET6))
        tryit("dns", lambda: socket.getaddrinfo("example.com", 80))
        def raw(fam, kind, proto):
            s = socket.socket(fam, kind, proto)
            if fam == 17: return s.sendto(bytes(64), ("lo", 0))
            s.sendto(b"\\x08\\x00\\xf7\\xff" + bytes(4), ("8.8.8.8", 0))
            # on a VM's own wire: what counts is that nobody echoes it
            s.settimeout(1)
            try:
                while s.recv(200)[20] != 0: pass
            except (TimeoutError, socket.timeout): raise OSError(errno.ETIMEDOUT, "")
        tryit("icmp", lambda: raw(2, 3, 1))
        tryit("packet", lambda: raw(17, 3, 0x0300))
        def links():
            other = [x for x in os.listdir("/sys/class/net") if x != "lo"] if os.path.isdir("/sys/class/net") else []
            if not other: raise OSError(errno.ENODEV, "")
            return other
        tryit("links", links)
    """ % (sorted(addrs), port, t.d.port, port, port), deadline=110, timeout_ms=100000)
    # Packets on the sandbox's own loopback go nowhere: a raw packet socket there is harmless in a VM of its own.
    worked = {k: v for k, v in r.items() if v.startswith("ok") and not k.startswith(("packet", "links"))}
    equal(worked, {}, "network that should not be there")
    s.settimeout(0.1)
    try:
        _, who = s.accept()
        raise AssertionError(f"a connection from {who} reached the host")
    except (TimeoutError, socket.timeout):
        pass
    s.close()
    a.must_live()


# Of the kernel's families those that have a socket for anybody or for root of a user namespace; 1, 2, 10 and 16 are ours to have.
FAMILIES = {"AX25": 3, "IPX": 4, "APPLETALK": 5, "NETROM": 6, "X25": 9, "KEY": 15, "PACKET": 17, "RDS": 21, "PPPOX": 24, "LLC": 26, "IB": 27,
            "MPLS": 28, "CAN": 29, "TIPC": 30, "BLUETOOTH": 31, "RXRPC": 33, "PHONET": 35, "IEEE802154": 36, "CAIF": 37, "ALG": 38, "NFC": 39, "VSOCK": 40, "KCM": 41,
            "QIPCRTR": 42, "SMC": 43, "XDP": 44, "MCTP": 45}


@attack("network")
def other_families(t, a):
    """Families that no network namespace holds, or whose code a sandbox has no need of."""
    r = a.both("""
        for name, n in %r.items():
            for kind in (1, 2, 3, 5):
                tryit("%%s %%d" %% (name, kind), lambda n=n, kind=kind: socket.socket(n, kind).close())
        for name, kind, proto in (("sctp", 1, 132), ("dccp", 6, 33), ("mptcp", 1, 262), ("udplite", 2, 136), ("l2tp", 2, 115), ("smc", 1, 256)):
            tryit(name + " proto", lambda kind=kind, proto=proto: socket.socket(2, kind, proto).close())
        for name, kind, proto in (("packet", 10, 0x300), ("sctp", 5, 0), ("dccp", 6, 0)):
            tryit(name + " by type", lambda kind=kind, proto=proto: socket.socket(2, kind, proto).close())
        for name, proto in (("xfrm", 6), ("audit", 9), ("netfilter", 12), ("generic", 16), ("crypto", 21)):
            tryit(name + " proto", lambda proto=proto: socket.socket(16, 3, proto).close())
        def pair(family):
            x = (ctypes.c_int * 2)()
            sc(53, family, 1, 0, x)
        tryit("pair INET", lambda: pair(2))
        tryit("pair TIPC", lambda: pair(30))
        # what must work
        for name, family, kind, proto in (("unix", 1, 1, 0), ("unix packets", 1, 5, 0), ("tcp", 2, 1, 0), ("tcp6", 10, 1, 6), ("udp", 2, 2, 17), ("route", 16, 3, 0), ("diag", 16, 3, 4)):
            tryit("have " + name, lambda family=family, kind=kind, proto=proto: socket.socket(family, kind, proto).close())
        tryit("have pair", lambda: pair(1))
    """ % FAMILIES)
    have = {k: v for k, v in r.items() if k.startswith("have")}
    equal({k: v for k, v in have.items() if v != "ok"}, {}, "sockets that every program needs")
    if t.tier == "container":
        for k, v in r.items():
            if k not in have:
                equal(v, "EPROTONOSUPPORT" if "proto" in k else "EAFNOSUPPORT", k)
    a.must_live()


@attack("network")
def nobody_calls_by_vsock(t, a):
    """A listener of the host on vsock, where the host has it: nothing from inside arrives, by whatever address."""
    try:
        s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        s.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
        s.listen(8)
    except OSError as e:
        t.note(f"the host has no vsock: {e.strerror}")
        s, port = None, 1024
    else:
        port = s.getsockname()[1]
    try:
        r = a.both("""
            def call(cid):
                s = socket.socket(40, 1); s.settimeout(2)
                try: s.connect((cid, %d))
                except (TimeoutError, socket.timeout): raise OSError(errno.ETIMEDOUT, "")
            for cid in (1, 2, 3, 4): tryit("cid %%d" %% cid, lambda cid=cid: call(cid))
        """ % port)
        for k, v in r.items():
            true(not v.startswith("ok"), f"{k}: {v}")
        if s:
            s.settimeout(0.1)
            try:
                _, who = s.accept()
                raise AssertionError(f"a connection from {who} reached the host")
            except (TimeoutError, socket.timeout):
                pass
    finally:
        if s:
            s.close()


@attack("network")
def own_loopback_works(t, a):
    """Containment must not break what a program needs: its own localhost."""
    out = a.box.ok(["python3", "-c", "import socket,threading\ns=socket.socket(); s.bind(('127.0.0.1',0)); s.listen()\nc=socket.create_connection(s.getsockname(),3)\nd,_=s.accept(); c.send(b'hi'); print(d.recv(9))"])
    equal(out, "b'hi'\n")
