"""The gate as a process, and what it does beside deciding: confinement, restarts, the resolver, trust stores."""
import os
import signal
import threading

from hutchtest import *
from outside import ENV, gated, inside

TIERS = tiers("vm", "container")


def gate_pid(t):
    return t.d.pids("hutch-egress")[0]


@plain
@gated
def confined(t):
    pid = gate_pid(t)
    st = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    uids, gids = set(st["Uid"].split()), set(st["Gid"].split())
    true(len(uids) == 1 and uids.isdisjoint({"0", str(os.stat(t.d.home).st_uid)}), f"a user of its own: {uids}")
    equal((gids, st["Groups"].split(), st["Seccomp"].strip(), st["NoNewPrivs"].strip()), (uids, [], "2", "1"))
    for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        equal(int(st[caps], 16), 0, caps)
    equal(os.path.realpath(f"/proc/{pid}/root"), os.path.realpath(os.path.join(t.d.home, "log", "egress")), "it sees its logs and nothing else")


@TIERS
@gated
def dies_and_comes_back(t):
    """Streams of the API do not notice; its boxes have their policies again, also new ones."""
    box = t.box(network={"mode": "open"})
    equal(inside(box, "R['x'] = http('allowed.test')[0]")["x"], 200)
    p = box.stream(["sh", "-c", "echo begun; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo ended"])
    p.wait_output(b"begun")
    pid = gate_pid(t)
    os.kill(pid, signal.SIGKILL)
    until(lambda: t.d.pids("hutch-egress") not in ([], [pid]), 15, "another hutch-egress")
    until(lambda: inside(box, "R['x'] = http('allowed.test')")["x"][0] == 200, 20, "its policy again")
    fresh = t.box(network={"allow": ["other.test"]})
    equal(inside(fresh, "R['x'] = [http('other.test')[0], query('allowed.test')]")["x"], [200, [3, []]])
    box.put("/tmp/go", b"")
    contains(p.collect()["stdout"], b"ended", "the stream that was open went on")


@TIERS
@gated
@timeout(90)
def what_cannot_be_set_starts_nothing(t):
    pid = gate_pid(t)
    os.kill(pid, signal.SIGSTOP)
    try:
        contains(str(refuses("unavailable", t.box, network={"mode": "open"})), "hutch-egress")
        equal(t.c.get("/v1/sandboxes")["sandboxes"], [])
        box = t.box()
        equal(box.exec(["echo", "closed"]).text, "closed\n", "one that may reach nothing needs nobody")
    finally:
        os.kill(pid, signal.SIGCONT)


@TIERS
@gated
@timeout(120)
def closing_is_not_said_to_be_done_while_a_gate_may_serve(t):
    """One that does not answer is killed: when the answer is there, no process is left that knows the old policy."""
    o = t.outside
    box = t.box(network={"mode": "open"})
    other = t.box(network={"mode": "open"})
    held = box.stream(["python3", "-uc", "import socket\ns = socket.create_connection(('allowed.test', 7), timeout=90)\ns.sendall(b'x')\nprint(s.recv(9))\ntry: print('then', s.recv(9))\nexcept OSError as e: print('then', e)"])
    held.wait_output(b"x")
    pid = gate_pid(t)
    os.kill(pid, signal.SIGSTOP)
    try:
        t.c.put(f"{box.p}/network", {"mode": "none"}, deadline=60)
        true(pid not in t.d.pids("hutch-egress"), "the gate that stood still is gone")
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
    contains(held.collect()["stdout"], b"then", "what was open was cut")
    equal(inside(box, "R['x'] = http(O.web, 'allowed.test', wait=5)[0]", web=o.ip())["x"], 403)
    until(lambda: inside(other, "R['x'] = http('allowed.test')[0]")["x"] == 200, 20, "others have their network again")
    contains(open(t.d.log_path).read(), "does not answer and is killed")


@TIERS
@gated
def questions_of_any_kind_keep_their_ttl(t):
    o = t.outside
    data = {15: b"\0\x0a\x01a\0", 33: bytes(6) + b"\x01a\0", 257: b"\0\x05issueca", 65: b"\0\x01\0", 65280: b"anything"}  # MX, SRV, CAA, HTTPS, one that nobody knows
    kinds = tuple(data)
    o.answer = lambda name, qtype: [(qtype, 4321, data[qtype])] if qtype in data else None
    o.ttl = 86399
    t.cleanup_later(lambda: setattr(o, "ttl", 60))
    box = t.box(network={"allow": ["allowed.test"]})
    r = inside(box, """
        R["a"] = (query("allowed.test"), TTLS[-1])
        R["kinds"] = [(query("allowed.test", k)[0], COUNTS[-1], TTLS[-1]) for k in O.kinds]
        R["other"] = [query("other.test", k) for k in O.kinds]
    """, kinds=kinds)
    equal(r["a"], [[0, [o.ip()]], 86399])
    equal(r["kinds"], [[0, 1, 4321]] * len(kinds))
    equal(r["other"], [[3, []]] * len(kinds), "no name that is not allowed, whatever is asked of it")
    equal(set(o.asked), {"allowed.test"})


@TIERS
@gated
def stores_that_programs_trust(t):
    """Where no program of that kind is in the template, its store stands in: what is put there is the same."""
    box = t.box(network={"allow": ["api.allowed.test"]})
    certifi = "/usr/local/lib/python3.11/dist-packages/certifi/cacert.pem"
    box.exec(["sh", "-c", f"""mkdir -p {os.path.dirname(certifi)} /etc/ssl/certs/java /usr/lib/jvm/x/lib/security; echo '# theirs' >{certifi}
printf 0 >/etc/ssl/certs/java/cacerts; printf 0 >/usr/lib/jvm/x/lib/security/cacerts; ln -s x /usr/lib/jvm/default
printf '#!/bin/sh\necho "$@" >>/tmp/keytool\n' >/usr/local/bin/keytool; chmod 755 /usr/local/bin/keytool"""], user="root")
    t.c.put(f"{box.p}/network", {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "a-value-7"}]})
    ca = box.exec(["cat", "/etc/hutch/ca.pem"]).text.strip()
    contains(ca, "BEGIN CERTIFICATE")
    for store in ("/etc/ssl/certs/ca-certificates.crt", certifi):
        contains(box.exec(["cat", store]).text, ca, store)
    contains(box.exec(["cat", certifi]).text, "# theirs")
    calls = box.exec(["cat", "/tmp/keytool"]).text
    # stores of another format than Java's own are keytool's: each once, whatever leads to it, and nothing is taken out first that was never in
    equal(sorted(calls.splitlines()), [f"-importcert -noprompt -alias hutch-gate -file /etc/hutch/ca.pem -keystore {store} -storepass changeit"
                                       for store in ("/etc/ssl/certs/java/cacerts", "/usr/lib/jvm/x/lib/security/cacerts")])
    env = dict(line.split("=", 1) for line in box.exec(["env"]).text.splitlines() if "=" in line)
    for k in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"):
        contains(box.exec(["cat", env[k]]).text, ca, k)
    r = box.exec(["sh", "-c", "openssl s_client -connect api.allowed.test:443 -servername api.allowed.test -verify_return_error </dev/null 2>&1 | grep -c 'Verify return code: 0'"])
    equal(r.text.strip(), "1", "OpenSSL itself")


@tiers("container")
@gated
def closing_waits_for_nobody(t):
    """A change that is still bringing the gate's certificate in does not keep the next one from closing the network."""
    box = t.box(network={"allow": ["api.allowed.test"]})
    box.exec(["sh", "-c", "mkdir -p /usr/lib/jvm/x/lib/security; printf 0 >/usr/lib/jvm/x/lib/security/cacerts; mkfifo -m 666 /tmp/wait\n"
                          "printf '#!/bin/sh\ntouch /tmp/started; read x </tmp/wait\n' >/usr/local/bin/keytool; chmod 755 /usr/local/bin/keytool"], user="root")
    inject = {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "a-value-7"}]}
    told = []

    def slow_one():
        try:
            told.append(t.c.put(f"{box.p}/network", inject, deadline=60))
        except ApiError as e:
            told.append(e)
    th = threading.Thread(target=slow_one)
    th.start()
    until(lambda: box.exec(["ls", "/tmp/started"]).code == 0, 30, "keytool runs")
    refuses("conflict", t.c.put, f"{box.p}/network", {"allow": ["other.test"]})
    t.c.put(f"{box.p}/network", {"mode": "none", "presets": ["pip"], "inject": inject["inject"]}, deadline=20)
    t.c.put(f"{box.p}/network", {"mode": "none"}, deadline=20)
    refuses("conflict", t.c.put, f"{box.p}/network", inject)
    true(th.is_alive(), "the first still waits")
    box.exec(["sh", "-c", "echo >/tmp/wait"])
    th.join(30)
    equal(told[0].code, "canceled")
    contains(told[0].message, "was closed before this change took effect")
    equal(box.info()["network"]["mode"], "none")
    equal(inside(box, 'R["q"] = query("api.allowed.test")[0]')["q"] == 0, False, "and closed it is")
    box.exec(["rm", "/usr/local/bin/keytool"], user="root")
    t.c.put(f"{box.p}/network", inject)
    equal(box.info()["network"]["mode"], "allow", "another one may open it again")


JAVA = """
import java.net.*;
public class T { public static void main(String[] a) throws Exception {
  HttpURLConnection c = (HttpURLConnection) new URL("https://api.allowed.test/").openConnection();
  System.out.println(c.getResponseCode()); } }
"""


STORE = """
import hashlib, os, struct
at = "/etc/ssl/certs/java/cacerts"
d = open(at, "rb").read()
magic, version, count = struct.unpack(">III", d[:12])
assert (magic, version) == (0xfeedfeed, 2), d[:12]
assert hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + d[:-20]).digest() == d[-20:], "its sum"
print(count, d.count(b"hutch-gate"), oct(os.stat(at).st_mode), os.path.islink("/usr/lib/jvm/default-java"), os.path.realpath("/usr/lib/jvm/default-java/lib/security/cacerts") == at)
"""


@TIERS
@gated
@timeout(170)
def a_java_key_store_needs_no_java(t):
    """The store of a template with a JDK is written without starting one: a sandbox starts as fast as without. keytool finds what was written right."""
    inject = {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "a-value-7"}]}
    box = t.box(template="notebook", network={"allow": ["api.allowed.test"]})
    look = lambda: box.exec(["python3", "-c", STORE], deadline=60).text.split()
    before = look()
    equal(before[1:], ["0", "0o100644", "True", "True"], "as Debian has it: one file, and links to it")
    box.exec(["sh", "-c", "printf '#!/bin/sh\necho \"$@\" >>/tmp/keytool\n' >/usr/local/bin/keytool; chmod 755 /usr/local/bin/keytool"], user="root", deadline=60)
    t.c.put(f"{box.p}/network", inject)
    equal(look(), [str(int(before[0]) + 1), "1"] + before[2:])
    equal(box.exec(["cat", "/tmp/keytool"], deadline=60).text, "", "nobody ran it")
    equal(box.exec(["sh", "-c", "ls /etc/ssl/certs/java"], deadline=60).text, "cacerts\n", "nothing lies beside it")
    if t.tier == "container":  # an emulated Java takes its time
        box.exec(["rm", "/usr/local/bin/keytool"], user="root")
        listed = box.exec(["keytool", "-list", "-alias", "hutch-gate", "-keystore", "/etc/ssl/certs/java/cacerts", "-storepass", "changeit"], deadline=60)
        contains(listed.text, "trustedCertEntry", listed.stderr)
        ours = box.exec(["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", "/etc/hutch/ca.pem"], deadline=60).text
        contains(listed.text, ours.strip().split("=")[1])
    other = t.box(template="notebook", network=inject)  # in the create
    equal(other.exec(["python3", "-c", STORE], deadline=60).text.split(), [str(int(before[0]) + 1), "1"] + before[2:])


@tiers("container")
@gated
@timeout(170)
def a_key_store_of_another_format_is_keytools(t):
    box = t.box(template="notebook", network={"allow": ["api.allowed.test"]})
    store = "/usr/lib/jvm/own/lib/security/cacerts"
    keytool = f"keytool -keystore {store} -storepass changeit"
    box.ok(["sh", "-ec", f"mkdir -p {os.path.dirname(store)}; ls /etc/ssl/certs/*.pem | head -n 1 >/tmp/one; {keytool} -importcert -noprompt -alias theirs -file $(cat /tmp/one) -storetype PKCS12; "
                         f"[ $(head -c 1 {store}) = 0 ]"], user="root", deadline=60)
    t.c.put(f"{box.p}/network", {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "a-value-7"}]})
    listed = box.ok(["sh", "-c", f"{keytool} -list"], user="root", deadline=60)
    contains(listed, "theirs, ")
    contains(listed, "hutch-gate, ")
    equal(box.ok(["cat", "/etc/hutch/keytool"]), store + "\n")


@tiers(*(("vm", "container") if SLOW else ("container",)))  # an emulated Java takes a minute to begin
@gated
@timeout(170)
def a_real_java_trusts_it(t):
    box = t.box(template="notebook", network={"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "a-value-7"}]})
    box.put("/tmp/T.java", JAVA.encode())
    r = box.exec(["java", "/tmp/T.java"], deadline=150)
    equal(r.text.strip(), "200", r.stderr)


@tiers("container")
@own_daemon(**{**ENV, "HUTCH_EGRESS_LOG_SANDBOXES": 2, "HUTCH_POOL_VM": 0, "HUTCH_POOL_CONTAINER": 0})
def logs_of_sandboxes_that_are_gone(t):
    """A bounded number of them stays, the latest."""
    logs = lambda: {n[:21] for n in os.listdir(os.path.join(t.d.home, "log", "egress")) if n.startswith("i") and ".log" in n}  # noqa: E731
    ids = []
    for _ in range(4):
        box = t.box(network={"mode": "open"})
        inside(box, "R['x'] = query('allowed.test')[0]")
        ids.append(box.id)
        box.kill()
    true(set(ids) <= logs(), "until they are looked through")
    alive = t.box(network={"mode": "open"})
    t.d.sigkill()
    t.d.start(settle=False)  # what a gate is told when it is met again has it look
    until(lambda: logs() == {*ids[-2:], alive.id}, 20, "the latest two, and one that runs")
