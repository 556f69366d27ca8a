"""Where packages come from: the servers this host's own tools go to, as the
presets see them, and small stand-ins for a host that reaches none."""
import base64
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import tarfile
import urllib.parse
import zipfile

from daemon import REPO

_asked = {}


def servers(name):
    """Addresses of the servers that preset `name` leads to on this host; [] if its tool names none or none answers."""
    if name not in _asked:
        r = subprocess.run(["sh", os.path.join(REPO, "share/tools/presets.sh"), name], capture_output=True, text=True, timeout=90)
        found = set()
        lines = r.stdout.splitlines()
        page = "".join(line[5:] for line in lines if line.startswith("html "))  # of an index that may keep its files elsewhere
        for url in [line[6:] for line in lines if line.startswith("allow ")] + sorted(set(re.findall(r'href="(https?://[^/"]+)', page))):
            u = urllib.parse.urlsplit(url)
            try:
                with socket.create_connection((u.hostname, u.port or (443 if u.scheme == "https" else 80)), timeout=5) as s:
                    found.add(s.getpeername()[0])
            except OSError:
                pass  # a page may name servers that have nothing to do with it
        _asked[name] = sorted(found)
    return _asked[name]


class Ceiling:
    """The operator's part: servers on addresses that are closed otherwise (a mirror of one's own) are named."""

    def __str__(self):
        return json.dumps({"mode": "open", "private": sorted({a for n in ("apt", "pip", "npm") for a in servers(n)})})


# ---- stand-ins ----------------------------------------------------------------------------------------------------

def wheel(name):
    b = io.BytesIO()
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(b, "w") as z:
        z.writestr(f"{name}.py", "answer = 42\n")
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return b.getvalue()


def tarball(name):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w:gz") as t:
        for path, text in (("package/package.json", json.dumps({"name": name, "version": "1.0.0", "main": "index.js"})), ("package/index.js", "module.exports = 42\n")):
            i = tarfile.TarInfo(path)
            i.size = len(text)
            t.addfile(i, io.BytesIO(text.encode()))
    return b.getvalue()


def repository(folder):
    """A git repository with one commit, to be served."""
    path = os.path.join(folder, "thing.git")
    work = os.path.join(folder, "work")
    env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t.test", "GIT_COMMITTER_NAME": "t",
           "GIT_COMMITTER_EMAIL": "t@t.test"}

    def git(*args):
        subprocess.run(["git", *args], check=True, capture_output=True, env=env)
    git("init", "-q", "-b", "main", work)
    with open(os.path.join(work, "hello"), "w") as f:
        f.write("from the repository\n")
    git("-C", work, "add", "hello")
    git("-C", work, "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", work, path)
    return path


class Site:
    """Answers for tests/lib/outside.py: /simple (pip), /npm (npm), /git (git, by its own http-backend)."""

    def __init__(self, base, folder):
        self.base, self.folder = base, folder
        repository(folder)
        self.wheel, self.tarball = wheel("standin"), tarball("standin")

    def __call__(self, method, path, headers, body):
        plain = path.split("?")[0]
        if plain.startswith("/simple/"):
            digest = hashlib.sha256(self.wheel).hexdigest()
            return "text/html", f'<a href="{self.base}/files/standin-1.0-py3-none-any.whl#sha256={digest}">standin-1.0-py3-none-any.whl</a>'.encode()
        if plain.startswith("/files/"):
            return "application/octet-stream", self.wheel
        if plain == "/npm/standin":
            sha = "sha512-" + base64.b64encode(hashlib.sha512(self.tarball).digest()).decode()
            version = {"name": "standin", "version": "1.0.0", "dist": {"tarball": f"{self.base}/npm/standin/-/standin-1.0.0.tgz", "integrity": sha}}
            return "application/json", json.dumps({"name": "standin", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}).encode()
        if plain.endswith(".tgz"):
            return "application/octet-stream", self.tarball
        if plain.startswith("/git/"):
            return self._git(method, path, headers, body)
        return None

    def _git(self, method, path, headers, body):
        plain, _, query = path.partition("?")
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.folder, "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "anybody", "PATH_INFO": plain[4:], "QUERY_STRING": query, "REQUEST_METHOD": method,
               "CONTENT_TYPE": headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
               "GIT_PROTOCOL": headers.get("git-protocol", ""), "HOME": self.folder, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        out = subprocess.run(["git", "http-backend"], input=body if isinstance(body, bytes) else body.encode("latin-1"), env=env, capture_output=True).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        kind = [line.split(b": ", 1)[1].decode() for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:")]
        return kind[0] if kind else "text/plain", rest
