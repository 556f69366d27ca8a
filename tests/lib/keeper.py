"""Processes that hold state in memory alone and show it on request."""

KEEPER = r"""
import hashlib, os, sys
secret = os.urandom(16).hex()
blob = bytearray(os.urandom(1 << 20)) * 4
n = 0
print("ready", secret, flush=True)
for line in sys.stdin:
    n += 1
    print(n, secret, hashlib.sha256(blob).hexdigest(), flush=True)
"""


def background(box, name, text, *args, **members):
    """Start a Python program that says a line when it is ready and then answers lines. Returns its pid."""
    box.put(f"/home/user/{name}.py", text.encode())
    pid = box.background(["python3", "-u", f"/home/user/{name}.py", *args], keep_stdin=True, **members)
    box.attach(pid, 0, deadline=30).wait_output(b"\n")
    return pid


def told(box, pid, text):
    """Say a line to such a process; what it answers."""
    before = box.process(pid)["output_bytes"]
    box.stdin(pid, text.encode() + b"\n")
    s = box.attach(pid, before, deadline=60)
    out = s.wait_output(b"\n").decode().strip()
    s.abort()
    return out


def keeper(box):
    """(pid, ask): ask() returns [count, secret, hash of 4 MiB of memory]."""
    pid = background(box, "keeper", KEEPER, tag="keeper")
    return pid, lambda: told(box, pid, "?").split()
