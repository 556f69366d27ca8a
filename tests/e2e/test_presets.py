"""Package tools through presets: this host's own registries where it reaches them, and stand-ins that the host is set to."""
import atexit
import os
import shutil
import subprocess
import tempfile

import daemon
import oci
from hutchtest import *
from outside import ENV, egress, logged, outside
from registries import Ceiling, Site, servers

TIERS = tiers("vm", "container")
LONG = 280


def real(fn):
    return shared_daemon("registries", HUTCH_NETWORK_CEILING=Ceiling(), HUTCH_POOL_VM=1, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=1)(timeout(LONG + 20)(fn))


def run(box, script, **members):
    r = box.exec(["sh", "-c", script], deadline=LONG, timeout_ms=(LONG - 10) * 1000, **members)
    equal(r.exit, {"kind": "exit", "code": 0}, f"{script}: {r.text[-1500:]} {r.stderr[-1500:]!r}")
    return r.text


def need(name):
    if not servers(name):
        skip(f"this host reaches no server of its own {name}; the stand-in is tested")


@TIERS
@real
def pip_from_the_hosts_index(t):
    need("pip")
    box = t.box(network={"presets": ["pip"]})
    contains(run(box, "pip install --no-input --target /tmp/p six && PYTHONPATH=/tmp/p python3 -c 'import six; print(\"got\", six.__version__)'"), "got ")
    logged(t, box, kind="http", rule="allow preset-pip", method="GET")
    # an index is for fetching: what is sent there is refused
    text = run(box, 'curl -s -o /dev/null -w "%{http_code}" -X POST --data secret "${PIP_INDEX_URL%/}/"')
    equal(text, "403")


@TIERS
@real
def npm_from_the_hosts_registry(t):
    need("npm")
    box = t.box(network={"presets": ["npm"]})
    contains(run(box, "mkdir /tmp/n && cd /tmp/n && npm install --no-fund ms && node -e 'console.log(\"got\", require(\"ms\")(\"2 days\"))'"), "got 172800000")
    logged(t, box, kind="http", rule="allow preset-npm", method="GET")
    equal(egress(t, box, kind="fail"), [], "no complaint of one that was served")


@tiers("container")
@real
def apt_from_the_hosts_mirror(t):
    need("apt")
    box = t.box(network={"presets": ["apt"]})
    run(box, "apt-get update && apt-get install -y --no-install-recommends hello", user="root")
    contains(run(box, "hello"), "Hello, world!")
    logged(t, box, kind="http", rule="allow preset-apt", method="GET")
    equal(run(box, "python3 -c 'import socket; socket.getaddrinfo(\"elsewhere.test\", 80)' 2>/dev/null || echo closed").strip(), "closed")


@plain
@shared_daemon("registries-container", HUTCH_NETWORK_CEILING=Ceiling(), HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=1, HUTCH_DEFAULT_ISOLATION="container")
@timeout(LONG)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def build_steps_install_packages(t):
    need("apt")
    need("pip")
    recipe = "FROM base\nUSER root\nRUN apt-get update && apt-get install -y --no-install-recommends hello && rm -rf /var/lib/apt/lists/*\nRUN pip install --break-system-packages six && update-ca-certificates\nUSER user\n"
    t.cleanup_later(t.c.delete, "/v1/templates/installed")

    def build(network):
        kind, body = oci.recipe_form(recipe, network=network)
        return list(t.c.stream("POST", "/v1/templates/installed/build", body=body, headers={"Content-Type": kind}, deadline=LONG - 20).events())
    equal(build(None)[-1]["event"], "error", "closed unless it is given a network")
    equal(build({"allow": ["elsewhere.test"]})[-1]["event"], "error")
    refuses("invalid", build, {"presets": ["nosuch"]})
    p = subprocess.run([daemon.program("hutch"), "template", "build", "installed", "-f", "-", "--net", "allow=@apt,@pip"], input=recipe.encode(), env={**t.d.env, "HUTCH_NO_START": "1"},
                       capture_output=True, timeout=LONG - 20)
    equal(p.returncode, 0, p.stderr.decode()[-2000:])
    box = t.create(template="installed", isolation="container")
    contains(run(box, "hello; python3 -c 'import six; print(\"got\", six.__version__)'"), "got ")
    # nothing of the build's own gate stays: not its certificate, wherever a step has spread it, nor where the tools went
    equal(run(box, "find /etc /usr/local/share -name '*hutch-gate*' -o -path /etc/hutch/ca.pem; grep -l 'hutch gate' -r /etc/ssl; for f in /etc/ssl/certs/ca-certificates.crt; do "
              "openssl crl2pkcs7 -nocrl -certfile $f | openssl pkcs7 -print_certs -noout | grep 'hutch gate'; done; env | grep -i 'PIP_\\|CERT'; true").strip(), "")
    equal(box.info()["network"], {"mode": "none"})


# ---- a host whose tools are set to servers of the test ---------------------------------------------------------------

BASE = "https://api.allowed.test"


def _folder():
    path = tempfile.mkdtemp(prefix="hutch-site-")
    atexit.register(shutil.rmtree, path, True)
    os.chmod(path, 0o755)
    with open(os.path.join(path, "gitconfig"), "w") as f:
        f.write(f'[url "{BASE}/git/"]\n\tinsteadOf = https://code.test/\n')
    return path


FOLDER = _folder()
_site = []


def standins(fn):
    def body(t):
        t.outside = outside()
        t.outside.reset()
        if not _site:
            _site.append(Site(BASE, FOLDER))
        t.outside.site = _site[0]
        fn(t)
    body.__name__ = fn.__name__
    body.__code__ = body.__code__.replace(co_firstlineno=fn.__code__.co_firstlineno, co_filename=fn.__code__.co_filename)
    return shared_daemon("standins", **{**ENV, "PIP_INDEX_URL": BASE + "/simple", "npm_config_registry": BASE + "/npm/", "GIT_CONFIG_GLOBAL": os.path.join(FOLDER, "gitconfig")})(
        timeout(LONG + 20)(body))


@slow  # the lists of a whole distribution take minutes without hardware virtualization
@tiers("vm")
@real
def apt_with_all_lists_in_a_vm(t):
    apt_from_the_hosts_mirror(t)


@tiers("vm")
@real
def apt_in_a_vm(t):
    """Of a small suite only: the smallest package of it whose dependencies are there or in it as well."""
    need("apt")
    box = t.box(network={"presets": ["apt"]})
    run(box, "sed -i '/-updates /!d' /etc/apt/sources.list && apt-get update", user="root")
    small = "awk '/^Package:/ { p = $2 } /^Size:/ { print $2, p }' /var/lib/apt/lists/*-updates_*_Packages | sort -n | cut -d' ' -f2"
    text = run(box, f"for p in $({small}); do if ! dpkg -s $p >&2 && apt-get install -y --no-install-recommends $p >&2; then dpkg -s $p; dpkg -V $p; exit 0; fi; done; exit 1", user="root")
    contains(text, "Status: install ok installed")
    logged(t, box, kind="http", rule="allow preset-apt", method="GET")


@TIERS
@standins
def tools_follow_the_hosts_settings(t):
    box = t.box(network={"presets": ["pip", "npm", "git"]})
    equal(run(box, "echo $npm_config_registry").strip(), BASE + "/npm/")
    contains(run(box, "pip install --no-input --target /tmp/p standin && PYTHONPATH=/tmp/p python3 -c 'import standin; print(\"got\", standin.answer)'"), "got 42")
    if t.tier == "container":  # node takes its time without hardware virtualization, and has had its turn above
        contains(run(box, "mkdir /tmp/n && cd /tmp/n && npm install --no-fund standin && node -e 'console.log(\"got\", require(\"standin\"))'"), "got 42")
    equal(run(box, "git clone -q https://code.test/thing.git /tmp/g && cat /tmp/g/hello"), "from the repository\n")
    logged(t, box, kind="http", rule="allow preset-git", method="POST", path="/git/thing.git/git-upload-pack")
    r = box.exec(["sh", "-c", "cd /tmp/g && git -c user.name=u -c user.email=u@u.test commit -q --allow-empty -m more && git push -q 2>&1"], deadline=60)
    contains(r.text, "403", "a preset is for fetching")
    logged(t, box, kind="deny", method="POST", path="/git/thing.git/git-receive-pack")
    true(not any(b"POST" in h["data"] and b"receive-pack" in h["data"] for h in t.outside.hits), "nothing was pushed")
