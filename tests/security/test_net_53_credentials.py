"""53: getting an injected credential out: echo, reflected headers, own copies, placeholders elsewhere, after a policy change."""
from hutchtest import *
from outside import gated, inside, logged

SECRET = "correct-horse-battery"


@tiers("vm", "container")
@gated
def credential_stays_outside(t):
    o = t.outside
    t.c.put("/v1/secrets/horse", {"value": SECRET})
    t.cleanup_later(lambda: t.c.delete("/v1/secrets/horse"))
    policy = {"mode": "allow", "allow": ["api.allowed.test", "www.allowed.test", "other.test"],
              "inject": [{"domain": "api.allowed.test", "secret": "horse", "header": "authorization", "format": "Bearer {secret}"},
                         {"domain": "api.allowed.test", "secret": "horse", "placeholder": "PLACEHOLDER-HORSE"}]}
    box = t.box(network=policy)
    script = r"""
c() { curl -sS "$@" || echo "failed $?"; echo; }
c https://api.allowed.test/reflect
c -H 'Authorization: mine' -H 'authorization: twice' https://api.allowed.test/reflect
c 'https://api.allowed.test/q?key=PLACEHOLDER-HORSE'
c -H 'X-Key: PLACEHOLDER-HORSE' https://api.allowed.test/h
c -d 'body=PLACEHOLDER-HORSE' https://api.allowed.test/b
c -H 'X-Key: PLACEHOLDER-HORSE' https://www.allowed.test/elsewhere -k
c -H 'Host: other.test' https://api.allowed.test/hostswap
c -H 'X-Key: PLACEHOLDER-HORSE' http://api.allowed.test/plain
getent hosts PLACEHOLDER-HORSE.other.test
grep -rl 'correct-horse' /etc /run /tmp /home /proc/*/environ 2>/dev/null
"""
    r = box.exec(["bash", "-c", script], deadline=90, timeout_ms=80000)
    lacks(r.text + r.stderr.decode(errors="replace"), SECRET, "inside, in whatever came back")
    saw = lambda path: [h["data"] for h in o.hits if path in h["data"].split(b"\r\n")[0]]  # noqa: E731
    equal([d.lower().count(b"authorization:") for d in saw(b"/reflect")], [1, 1], "one, ours")
    true(all(SECRET.encode() in d for d in saw(b"/reflect")))
    true(SECRET.encode() in saw(b"/q?")[0] and SECRET.encode() in saw(b"/h")[0], "placeholders replaced on the way")
    for path in (b"/elsewhere", b"/hostswap"):
        for d in saw(path):
            lacks(d, SECRET.encode(), path.decode())
    for d in saw(b"/plain"):
        lacks(d, SECRET.encode(), "not over plain HTTP")
    equal([n for n in o.asked if "horse" in n], [])
    # told byte by byte, and asked for packed: the gate asks for it plain, and masks what is told in pieces
    r = box.exec(["curl", "-sSi", "--compressed", "https://api.allowed.test/tell", "https://api.allowed.test/tell"], deadline=30)
    equal(r.text.lower().count("bearer " + "*" * len(SECRET)), 4, r.text)
    lacks(r.text, SECRET)
    # asked for four bytes at a time: it comes whole, and masked
    r = box.exec(["bash", "-c", "for i in 0 4 8 12 16 20 24; do curl -sS -r $i-$((i+3)) https://api.allowed.test/ranged; echo; done"], deadline=60)
    equal(r.text.split("\n")[:7], ["Bearer " + "*" * len(SECRET)] * 7)
    # a connection that is kept over a change of the policy: what is asked on it afterwards goes without the secret, or not at all
    p = box.stream(["python3", "-uc", """
import os, socket, ssl, time
s = ssl._create_unverified_context().wrap_socket(socket.create_connection(("api.allowed.test", 443), timeout=30), server_hostname="api.allowed.test")
for path in (b"/kept1", b"/kept2"):
    try:
        s.sendall(b"GET %s HTTP/1.1\\r\\nHost: api.allowed.test\\r\\n\\r\\n" % path); print(path, len(s.recv(9999)), flush=True)
    except OSError as e: print("cut", e, flush=True)
    while not os.path.exists("/tmp/go"): time.sleep(0.1)
"""])
    p.wait_output(b"kept1")
    true(SECRET.encode() in saw(b"/kept1")[0])
    t.c.put(f"{box.p}/network", {**policy, "inject": policy["inject"][1:]})
    box.put("/tmp/go", b"")
    p.collect()
    for d in saw(b"/kept2"):
        lacks(d, SECRET.encode(), "on a kept connection")
    # a policy without the rule: the next request goes without it
    t.c.put(f"{box.p}/network", {"mode": "allow", "allow": ["api.allowed.test"]})
    box.exec(["sh", "-c", "curl -ksS https://api.allowed.test/after"], deadline=30)
    for d in saw(b"/after"):
        lacks(d, SECRET.encode(), "replay after the change")
    logged(t, box, kind="http", name="api.allowed.test", secret="horse")
