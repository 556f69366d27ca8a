"""Snapshots as signed files: out of a home and into one."""
import json
import os
import struct
import subprocess

import daemon as _daemon

HEAD = 108  # before the manifest


def hutch(d, *args, seconds=300):
    p = subprocess.run([_daemon.program("hutch"), *args], env=d.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def export(d, name, to):
    """What its manifest says."""
    rc, _, err = hutch(d, "snapshot", "export", name, "-o", to)
    if (rc, err) != (0, ""):
        raise AssertionError(f"export: {rc} {err}")
    with open(to, "rb") as f:
        head = f.read(HEAD)
        if head[:8] != b"HUTCHPK\1":
            raise AssertionError("not a pack")
        return json.loads(f.read(struct.unpack("<I", head[8:12])[0]))


def take(c, path, **query):
    with open(path, "rb") as f:
        return c.call("POST", "/v1/snapshots/import", query=query, body=f, headers={"Content-Length": str(os.path.getsize(path))}, deadline=300).json()
