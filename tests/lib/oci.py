"""Makes small container images for import tests, from what this machine has.

The tree is busybox if a static one is installed, otherwise Debian's dash and a
few tools with the libraries they are linked to. Images come as an OCI layout
tar (image-layout 1.0.0) or as a docker-archive tar; helpers bend them into
hostile shapes.
"""
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile

TOOLS = ("sh", "bash", "date", "touch", "cat", "true", "echo", "ls", "id", "env", "sleep", "uname", "mkdir", "rm", "tar", "cp", "mv", "ln", "chmod", "chown",
         "find", "dirname", "basename", "stat", "mktemp", "sync", "head", "test")


def _libs(path):
    out = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(/\S+\.so\S*)", out)))


def tiny_tree():
    """{path: (mode, bytes) or (mode, "-> target")}, paths relative, without directories."""
    tree = {
        "etc/passwd": (0o644, b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"),
        "etc/group": (0o644, b"root:x:0:\nuser:x:1000:\n"),
        "etc/hostname": (0o644, b"tiny\n"),
        "home/user/.keep": (0o644, b""),
        "tmp/.keep": (0o644, b""),
        "marker": (0o644, b"imported\n"),
    }
    box = "/bin/busybox"
    if os.path.exists(box) and not _libs(box):
        with open(box, "rb") as f:
            tree["bin/busybox"] = (0o755, f.read())
        for t in TOOLS:
            tree[f"bin/{t}"] = (0o777, "-> busybox")
        tree["bin/bash"] = (0o755, b'#!/bin/sh\nexec /bin/sh "$@"\n')
        return tree
    for t in TOOLS:
        real = os.path.realpath({"sh": "/bin/dash"}.get(t, ""))
        if t != "sh":
            for d in ("/bin", "/usr/bin"):
                if os.path.exists(f"{d}/{t}"):
                    real = os.path.realpath(f"{d}/{t}")
                    break
        with open(real, "rb") as f:
            tree[f"bin/{t}"] = (0o755, f.read())
        for lib in _libs(real):
            with open(os.path.realpath(lib), "rb") as f:
                tree.setdefault(lib.lstrip("/"), (0o755, f.read()))
    return tree


def layer(tree, extra=()):
    """An uncompressed layer tar. extra: ready-made (TarInfo, bytes) members, for odd shapes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        dirs = sorted({"/".join(p.split("/")[:i]) for p in tree for i in range(1, p.count("/") + 1)})
        for d in dirs:
            i = tarfile.TarInfo(d)
            i.type, i.mode = tarfile.DIRTYPE, 0o755
            if d == "tmp":
                i.mode = 0o1777
            if d == "home/user":
                i.uid = i.gid = 1000
            t.addfile(i)
        for path, (mode, data) in sorted(tree.items()):
            i = tarfile.TarInfo(path)
            i.mode = mode
            if isinstance(data, str):
                i.type, i.linkname = tarfile.SYMTYPE, data[3:]
                t.addfile(i)
            else:
                i.size = len(data)
                t.addfile(i, io.BytesIO(data))
        for info, data in extra:
            t.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def _config(layers, env, workdir, user, cmd):
    return json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Env": env or [], "WorkingDir": workdir or "", "User": user or "", "Cmd": cmd or []},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(l).hexdigest() for l in layers]},
    }).encode()


def _tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files.items():
            i = tarfile.TarInfo(name)
            i.size = len(data)
            t.addfile(i, io.BytesIO(data))
    return out.getvalue()


def oci_files(layers, env=None, workdir=None, user=None, cmd=None):
    """The files of an OCI layout, to be bent before _tar()."""
    blobs, descs = {}, []
    for l in layers:
        z = gzip.compress(l, 1, mtime=0)
        d = hashlib.sha256(z).hexdigest()
        blobs[d] = z
        descs.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:" + d, "size": len(z)})
    cfg = _config(layers, env, workdir, user, cmd)
    cd = hashlib.sha256(cfg).hexdigest()
    blobs[cd] = cfg
    man = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                      "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:" + cd, "size": len(cfg)},
                      "layers": descs}).encode()
    md = hashlib.sha256(man).hexdigest()
    blobs[md] = man
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
             "index.json": json.dumps({"schemaVersion": 2, "manifests": [
                 {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + md, "size": len(man)}]}).encode()}
    files.update({f"blobs/sha256/{d}": b for d, b in blobs.items()})
    return files


def oci_layout(tree, extra_layers=(), **config):
    return _tar(oci_files([layer(tree), *extra_layers], **config))


def docker_archive(tree, extra_layers=(), **config):
    layers = [layer(tree), *extra_layers]
    files, names = {}, []
    for l in layers:
        n = hashlib.sha256(l).hexdigest() + "/layer.tar"
        files[n] = l
        names.append(n)
    cfg = _config(layers, config.get("env"), config.get("workdir"), config.get("user"), config.get("cmd"))
    cn = hashlib.sha256(cfg).hexdigest() + ".json"
    files[cn] = cfg
    files["manifest.json"] = json.dumps([{"Config": cn, "RepoTags": ["tiny:latest"], "Layers": names}]).encode()
    return _tar(files)


def member(name, data=b"", type=tarfile.REGTYPE, link="", mode=0o644, size=None, dev=(0, 0)):
    i = tarfile.TarInfo(name)
    i.type, i.mode, i.linkname = type, mode, link
    i.size = len(data) if size is None else size
    i.devmajor, i.devminor = dev
    return i, (data if type == tarfile.REGTYPE else None)


def recipe_form(recipe, context=None, network=None):
    """multipart/form-data for a template build: (content type, body)."""
    mark = "hutch-test-boundary-7f3a9c"
    parts = [f'--{mark}\r\nContent-Disposition: form-data; name="recipe"\r\nContent-Type: text/plain\r\n\r\n'.encode(),
             recipe.encode() if isinstance(recipe, str) else recipe, b"\r\n"]
    if context is not None:
        parts += [f'--{mark}\r\nContent-Disposition: form-data; name="context"; filename="context.tar"\r\n'
                  f'Content-Type: application/x-tar\r\n\r\n'.encode(), context, b"\r\n"]
    if network is not None:
        parts.append(f'--{mark}\r\nContent-Disposition: form-data; name="network"\r\n\r\n{json.dumps(network)}\r\n'.encode())
    parts.append(f"--{mark}--\r\n".encode())
    return f"multipart/form-data; boundary={mark}", b"".join(parts)
