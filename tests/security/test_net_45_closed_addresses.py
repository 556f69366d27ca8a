"""45: metadata services, link-local, the host's loopback and addresses, its LAN, neighbours, our own API: closed in mode open."""
import socket
import subprocess

from hutchtest import *
from outside import egress, gated, inside, logged


def host_addresses():
    got = set()
    for line in subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True).stdout.splitlines():
        a = line.split()[3].split("/")[0]
        if not a.startswith(("127.", "198.18.")):
            got.add(a)
    for line in subprocess.run(["ip", "route"], capture_output=True, text=True).stdout.splitlines():
        if line.startswith("default via"):
            got.add(line.split()[2])
    return sorted(got)


@tiers("vm", "container")
@gated
def closed_in_every_mode(t):
    o = t.outside
    box, neighbour = t.box(network={"mode": "open"}), t.box(network={"mode": "open"})
    neighbour.background(["python3", "-m", "http.server", "80"], user="root")
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen(8)
        port = s.getsockname()[1]
        addrs = ["169.254.169.254", "169.254.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "10.77.0.1", "0.0.0.0", "224.0.0.1",
                 "255.255.255.255", *host_addresses()]
        r = inside(box, """
            for a in O.addrs:
                for p in (80, O.port, O.api):
                    R["%s:%d" % (a, p)] = http(a, port=p, wait=4)
            for a in ("fd00:ec2::254", "fe80::1", "fc00::1", "::ffff:10.0.0.1"):
                R[a] = http(a, wait=4)
            for n in ("metadata.test", "private.test", "loop.test"):
                R[n] = query(n)
            R["own"] = http("10.77.0.2", port=80)
        """, addrs=addrs, port=port, api=t.d.port, deadline=110)
        equal({k: v for k, v in r.items() if isinstance(v[0], int) and v[0] == 200}, {}, "reached")
        for a in ("169.254.169.254:80", "10.0.0.1:80", "fd00:ec2::254"):
            equal(r[a][0], 403, a)
            contains(r[a][1], "network_denied")
        for n in ("metadata.test", "private.test", "loop.test"):
            equal(r[n][1], [], f"{n}: an answer that points inside is no answer")
        equal(r["own"], [0, "ECONNREFUSED"], "the neighbour has the same address and is not there")
        s.settimeout(0.1)
        try:
            s.accept()
            raise AssertionError("a connection reached the host")
        except (TimeoutError, socket.timeout):
            pass
    equal(o.hits, [])
    logged(t, box, kind="deny", addr="169.254.169.254", port=80, rule="closed")
    logged(t, box, kind="deny", addr="10.0.0.1", rule="closed")
    for a in host_addresses():
        logged(t, box, kind="deny", addr=a, verdict="deny")
    logged(t, box, kind="dns", name="metadata.test", reason=lambda x: x)
