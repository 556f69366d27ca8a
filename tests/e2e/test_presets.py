"""Package tools through presets: this host's own registries where it reaches them, and stand-ins that the host is set to."""
import atexit
import http.server
import os
import re
import shutil
import subprocess
import tempfile
import threading
from urllib.parse import urlsplit

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


# ---- what decides where a preset leads --------------------------------------------------------------------------------

SCRIPT = os.path.join(daemon.REPO, "share/tools/presets.sh")
TOOLS = ("pip", "pip3", "npm", "git", "apt-get", "curl", "wget")
FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/gitconfig")


def mask(bare=True):
    """Commands of a shell that take the settings away, bare: the tools too; in a mount namespace of its own."""
    hide = [p for t in TOOLS if bare for d in "/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin".split() if os.path.exists(p := f"{d}/{t}")]
    hide += [f for f in FILES if os.path.exists(f)]
    return "".join(f"mount --bind /dev/null {os.path.realpath(p)} && " for p in dict.fromkeys(hide))


def bare_run(name, home, defaults, bare=True, **env):
    return subprocess.run(["unshare", "-m", "sh", "-c", f'{mask(bare)}exec sh "$0" "$1" "$2"', SCRIPT, name, defaults], capture_output=True, text=True, timeout=60,
                          env={"PATH": os.environ["PATH"], "HOME": home, **env})


def said(name, home, bare=False, defaults="", **env):
    """The script's lines on this host; bare: on one that has none of the tools, and no settings but those in `home`."""
    r = bare_run(name, home, defaults, bare, **env)
    equal(r.returncode, 0, r.stderr)
    return r.stdout.splitlines()


def folder(t, **files):
    for name, text in files.items():
        with open(os.path.join(t.tmp, name.replace("_", ".", 1)), "w") as f:
            f.write(text)
    return t.tmp


@plain
def what_the_template_knows_on_a_bare_host(t):
    """Neither pip, npm nor git, and nothing configured: pip and npm of the template base know where to go."""
    home, defaults = folder(t), "npm https://npm.example.org/\npip http://127.0.0.1:9/simple\n"
    lines = {name: said(name, home, bare=True, defaults=defaults) for name in ("pip", "npm", "git")}
    contains(lines["pip"][0], "source pip's own default")
    equal([x for x in lines["pip"][1:] if not x.startswith("page ")], ["allow http://127.0.0.1:9/simple", "env PIP_INDEX_URL http://127.0.0.1:9/simple"])
    contains(lines["npm"][0], "source npm's own default")
    equal(lines["npm"][1:3], ["allow https://npm.example.org/", "env npm_config_registry https://npm.example.org/"])
    contains(lines["git"][0], "source built in: ")
    equal(lines["git"][1:], ["allow https://github.com/", "allow https://gitlab.com/"])
    for name in ("pip", "npm"):  # and before there is a template
        r = bare_run(name, home, "")
        true(r.returncode == 1 and "hutch template build base" in r.stderr, r)


@plain
def the_template_is_asked_when_it_is_built(t):
    with open(os.path.join(t.d.home, "root-cache", "apt", "defaults")) as f:
        noted = dict(line.split() for line in f)
    equal(sorted(noted), ["npm", "pip"])
    for url in noted.values():
        true(re.fullmatch(r"https://[a-z0-9.-]+/[a-z/]*", url), url)
    equal(os.stat(f.name).st_uid, 0)


@plain
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
def presets_on_a_bare_host(t):
    """The daemon itself on such a host: what the template noted comes all the way to a policy."""
    with open(os.path.join(t.d.home, "root-cache", "apt", "defaults")) as f:
        want = {urlsplit(line.split()[1]).hostname for line in f} | {"github.com", "gitlab.com"}
    t.d.shutdown()
    wrapper = os.path.join(t.tmp, "hutchd")
    with open(wrapper, "w") as f:
        f.write(f"#!/bin/sh\nexec unshare -m sh -c '{mask()}exec \"$0\"' {daemon.program('hutchd')}\n")
    os.chmod(wrapper, 0o755)
    t.d.bin = t.tmp
    t.d.env = {**{k: v for k, v in t.d.env.items() if not k.lower().startswith(("pip_", "npm_", "git_"))}, "HOME": t.tmp}
    t.d.start(settle=False)
    box = t.create(isolation="container", network={"presets": ["pip", "npm", "git"]})
    equal(set(box.info()["network"]["leads_to"]), want)


PIP_CONF = """# a comment
[global]
index-url = https://not-this.example.org/simple
trusted-host = a.example.org
    b.example.org
; another
[install]
index_url: http://user:secret@127.0.0.1:9/simple/
extra-index-url =
    http://me:p@ss@127.0.0.1:9/one
    http://127.0.0.1:9/two
[freeze]
timeout = 10
"""
NPMRC = """; a comment
//npm.example.org/:_authToken=secret
registry = "https://me:secret@npm.example.org/base/"
https-proxy=http://u:p@127.0.0.1:3128
"""
GITCONFIG = """[user]
\tname = A = B
[url "https://git.example.org/mirror/"]
\tinsteadOf = https://code.test/
[credential "https://Forge.example.org"]
\thelper = store
[http]
\tproxy = http://127.0.0.1:3128
"""


@plain
def settings_of_a_tool_that_is_not_installed(t):
    """Files are read as the tool itself reads them: with it and without it the same comes out."""
    home = folder(t, _npmrc=NPMRC, _gitconfig=GITCONFIG, pip_conf=PIP_CONF)
    env = {"PIP_CONFIG_FILE": os.path.join(home, "pip.conf")}
    want = {
        "pip": ["source this host's pip configuration", "allow http://127.0.0.1:9/simple/", "allow http://127.0.0.1:9/one", "allow http://127.0.0.1:9/two", "env PIP_INDEX_URL http://127.0.0.1:9/simple/",
                "env PIP_EXTRA_INDEX_URL http://127.0.0.1:9/one http://127.0.0.1:9/two", "env PIP_TRUSTED_HOST a.example.org b.example.org"],
        "npm": ["source this host's npm configuration", "allow https://npm.example.org/base/", "via 127.0.0.1:3128 Basic dTpw", "env npm_config_registry https://npm.example.org/base/",
                "env npm_config_update_notifier false", "env npm_config_audit false"],
        "git": ["source this host's git configuration", "allow https://Forge.example.org", "allow https://git.example.org/mirror/", "via 127.0.0.1:3128",
                "env GIT_CONFIG_KEY_0 url.https://git.example.org/mirror/.insteadOf", "env GIT_CONFIG_VALUE_0 https://code.test/", "env GIT_CONFIG_COUNT 1"],
    }
    for name, lines in want.items():
        for bare in (True, False):
            got = [line for line in said(name, home, bare=bare, **env) if not line.startswith("page ")]
            equal(got, lines, f"{name}, {'bare' if bare else 'with the tool'}")
    for bare in (True, False):
        contains(said("npm", home, bare=bare, npm_config_registry="https://other.example.org/"), "allow https://other.example.org/")


EVIL = """<!DOCTYPE html><html><head><title><a href="https://evil1.test/pip-1.0.tar.gz">x</a></title></head><body>
<h1>Links for pip</h1> https://evil2.test/pip-1.0.tar.gz
<a href="../../files/pip-1.0.tar.gz#sha256=00" data-yanked="See https://evil3.test/pip-1.0.tar.gz">pip-1.0.tar.gz</a><br/>
<a href="http://files.index.test:8081/pip-1.1.tar.gz" data-yanked='> <a href="https://evil4.test/pip-1.0.tar.gz">'>pip-1.1.tar.gz</a><br/>
<!-- <a href="https://evil5.test/pip-1.0.tar.gz">x</a> -->
<script>"<a href='https://evil6.test/pip-1.0.tar.gz'>"</script>
<a rel="homepage" href="https://evil7.test/pip-1.0.tar.gz">home</a> <a href="https://evil8.test/">about</a>
<a title="https://evil9.test/pip-1.0.tar.gz">x</a> href="https://evil10.test/pip-1.0.tar.gz"
</body></html>"""


PACKAGE = '{"name":"npm","homepage":"https://evil11.test/","repository":{"url":"https://evil12.test/"},"dist":{"tarball":"https://evil13.test/npm-1.0.0.tgz"}}'


class _Index:
    """A private index, and registry, on this host whose owners of packages are hostile; its address once it is asked for."""
    server = None

    def __str__(self):
        if not self.server:
            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    page = {"/simple/pip/": EVIL, "/simple/npm/latest": PACKAGE}.get(self.path, "").encode()
                    self.send_response(200 if page else 404)
                    self.send_header("Content-Type", "text/html")
                    self.send_header("Content-Length", str(len(page)))
                    self.end_headers()
                    self.wfile.write(page)

                def log_message(self, *a):
                    pass
            _Index.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
            atexit.register(self.server.server_close)
        return f"http://127.0.0.1:{self.server.server_port}/simple"


class _NoIndex(_Index):
    def __str__(self):
        return super().__str__() + "/none"


CONTAINER = {"HUTCH_DEFAULT_ISOLATION": "container", "HUTCH_POOL_VM": 0, "HUTCH_POOL_PRESTARTED": 0, "HUTCH_POOL_CONTAINER": 0}


def rows(t):
    return {c["name"]: c for c in t.c.get("/v1/doctor", deadline=60)["checks"] if c["name"].startswith("preset ")}


@plain
@own_daemon(**CONTAINER, PIP_INDEX_URL=_Index(), npm_config_registry=_Index())
def packages_do_not_say_where_a_preset_leads(t):
    """What stands in an index's page but is no link to a file opens nothing; its files are found where it keeps them."""
    box = t.box(isolation="container", network={"presets": ["pip", "npm"]})
    equal(sorted(set(box.info()["network"]["leads_to"])), ["127.0.0.1", "files.index.test"])
    contains(rows(t)["preset pip"]["found"], "127.0.0.1, files.index.test (this host's pip configuration)")


@plain
@own_daemon(**CONTAINER, PIP_INDEX_URL="file:///srv/wheels", HUTCH_PRESET_GIT="git.example.org", HUTCH_PRESET_MY_OWN="a.example.org,*.b.example.org", GIT_CONFIG_GLOBAL="/dev/null")
def doctor_says_where_presets_lead(t):
    got = rows(t)
    equal(sorted(got), ["preset apt", "preset git", "preset my-own", "preset npm", "preset pip"])
    equal((got["preset git"]["status"], got["preset git"]["found"]), ("ok", "git.example.org (HUTCH_PRESET_GIT)"))
    equal(got["preset my-own"]["found"], "a.example.org,*.b.example.org (HUTCH_PRESET_MY_OWN)")
    true(re.fullmatch(r".+ \((npm's own default: |this host's ).+\)", got["preset npm"]["found"]), got["preset npm"])
    pip = got["preset pip"]
    equal(pip["status"], "warn")
    contains(pip["found"], "not available: ")
    contains(pip["fix"], "HUTCH_PRESET_PIP=")
    e = refuses("unsupported", t.box, isolation="container", network={"presets": ["pip"]})
    contains(e.message, "pip on this host uses an index that is not http or https; set HUTCH_PRESET_PIP=")
    contains(e.hint, "GET /v1/doctor")
    p = subprocess.run([daemon.program("hutch"), "doctor"], env={**t.d.env, "HUTCH_NO_START": "1"}, capture_output=True, text=True, timeout=60)
    contains(p.stdout, "git.example.org (HUTCH_PRESET_GIT)")
    contains(p.stdout, "preset pip: affects `--net allow=@pip`, which is refused")


@plain
@own_daemon(**CONTAINER, PIP_INDEX_URL=_NoIndex())
def doctor_says_that_an_index_names_no_files(t):
    """Its files may be elsewhere, which nobody could tell: installs would fail, and doctor must not say that all is well."""
    pip = rows(t)["preset pip"]
    equal(pip["status"], "warn")
    contains(pip["found"], "127.0.0.1 (this host's pip configuration)")
    contains(pip["lost"], "installs, which may fail: ")
    contains(pip["lost"], "/simple/none/pip/ links to no files, so their host is unknown")
    contains(pip["fix"], "HUTCH_PRESET_PIP=")


class _Pipe:
    """Settings that never come: whoever opens it waits for ever."""
    path = None

    def __str__(self):
        if not self.path:
            _Pipe.path = os.path.join(tempfile.mkdtemp(), "gitconfig")
            os.mkfifo(self.path)
            atexit.register(shutil.rmtree, os.path.dirname(self.path))
        return self.path


@slow  # a tool has a minute and a half
@plain
@timeout(200)
@own_daemon(**CONTAINER, GIT_CONFIG_GLOBAL=_Pipe())
def a_tool_that_hangs_is_ended(t):
    e = refuses("timeout", t.box, isolation="container", network={"presets": ["git"]}, deadline=150)
    contains(e.message, "preset 'git': this host's tool did not answer")
    until(lambda: not [p for p in t.d.census.mine() if b"presets.sh" in p.cmd], 10, "nothing of it is left")


# ---- Java's key store -------------------------------------------------------------------------------------------------

SUM = "sha256sum /etc/ssl/certs/java/cacerts; stat -c '%a %U %Y' /etc/ssl/certs/java/cacerts; ls /etc/hutch 2>/dev/null; ls /etc/ssl/certs/java; grep -c hutch-gate /etc/ssl/certs/java/cacerts"


@plain
@shared_daemon("standins-container", **{**ENV, **CONTAINER, "HUTCH_POOL_CONTAINER": 1, "PIP_INDEX_URL": BASE + "/simple"})
@timeout(LONG)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def a_build_leaves_javas_key_store_as_it_was(t):
    look = lambda box: box.exec(["sh", "-c", SUM], deadline=60).text
    before = look(t.create(template="notebook", isolation="container"))
    contains(before, "/etc/ssl/certs/java/cacerts")
    t.cleanup_later(t.c.delete, "/v1/templates/with-java")
    recipe = "FROM notebook\nUSER root\nRUN grep -c hutch-gate /etc/ssl/certs/java/cacerts && printf '#!/bin/sh\\ntouch /ran\\n' >/usr/local/bin/keytool && chmod 755 /usr/local/bin/keytool\nUSER user\n"
    kind, body = oci.recipe_form(recipe, network={"presets": ["pip"]})
    evs = list(t.c.stream("POST", "/v1/templates/with-java/build", body=body, headers={"Content-Type": kind}, deadline=LONG - 20).events())
    equal(evs[-1]["event"], "done", evs[-3:])
    box = t.create(template="with-java", isolation="container")
    equal(look(box), before)
    equal(run(box, "ls /ran 2>/dev/null || echo keytool was not needed").strip(), "keytool was not needed")


@TIERS
@standins
def the_real_code_interpreter(t):
    """What a user types: `hutch create -t code-interpreter --net allow=@pip`. HUTCH_TEST_CI=1 makes a seed home that has it."""
    if "code-interpreter" not in [x["name"] for x in t.c.get("/v1/templates")["templates"]]:
        skip("the seed home has no template code-interpreter")
    box = t.box(template="code-interpreter", network={"presets": ["pip"]})
    t.note(f"created in {box.info()['start']['ms']:.0f} ms")
    equal(run(box, "grep -c hutch-gate /etc/ssl/certs/java/cacerts").strip(), "1")
    contains(run(box, "pip install --no-input --target /tmp/p standin && PYTHONPATH=/tmp/p python3 -c 'import standin; print(\"got\", standin.answer)'"), "got 42")
    if t.tier == "container":
        contains(run(box, "keytool -list -alias hutch-gate -keystore /etc/ssl/certs/java/cacerts -storepass changeit"), "trustedCertEntry")


# ---- the recipe that docs/templates.md prints ---------------------------------------------------------------------------

@plain
@shared_daemon("standins-container", **{**ENV, **CONTAINER, "HUTCH_POOL_CONTAINER": 1, "PIP_INDEX_URL": BASE + "/simple"})
@timeout(LONG)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def the_recipe_in_the_docs(t):
    """As printed, with the commands printed below it."""
    o = outside()
    o.reset()
    if not _site:
        _site.append(Site(BASE, FOLDER))
    o.site = _site[0]
    with open(os.path.join(daemon.REPO, "docs/templates.md")) as f:
        recipe, commands = re.search(r"## Recipes\n.*?\n```text\n(FROM .*?)```\n.*?```sh\n(.*?)```\n", f.read(), re.S).groups()
    contains(recipe, "PATH=/srv/app/bin:$PATH")
    here = folder(t, requirements_txt="standin\n")
    os.makedirs(os.path.join(here, "bin"))
    with open(os.path.join(here, "recipe"), "w") as f:
        f.write(recipe)
    with open(os.path.join(here, "bin", "answer"), "w") as f:
        f.write("#!/usr/bin/python3\nimport standin\nprint('answer', standin.answer)\n")
    os.chmod(os.path.join(here, "bin", "answer"), 0o755)
    t.cleanup_later(t.c.delete, "/v1/templates/my-app")
    env = {**t.d.env, "HUTCH_NO_START": "1", "PATH": f"{os.path.dirname(daemon.program('hutch'))}:{os.environ['PATH']}"}
    p = subprocess.run(["sh", "-ec", commands], cwd=here, env=env, capture_output=True, text=True, timeout=LONG - 20)
    equal(p.returncode, 0, p.stdout[-1000:] + p.stderr[-2000:])
    box = Box(t.c, t.c.get("/v1/sandboxes/" + p.stdout.split()[-1]))
    t.boxes.append(box)
    equal(run(box, "answer; id -un; pwd; curl -fs http://localhost:8000/requirements.txt"), "answer 42\nuser\n/srv/app\nstandin\n")
    equal(run(box, "echo $PATH").strip(), "/srv/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
