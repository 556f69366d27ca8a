"""The commands in README.md and docs/*.md, page by page, as they are printed there; and what keeps the pages true.

A ```sh or ```python block is run, in order, in one folder per page, with a shared daemon whose default tier is the
container's. `<!-- not run: REASON -->` on the line above a block says why one is not. A page that another test runs says
`<!-- run by tests/e2e/FILE -->`. A command followed by `# => TEXT` must print that line.
"""
import glob
import os
import re
import shutil
import subprocess

from daemon import REPO, program
from hutchtest import *

RUN = ("sh", "python")
SHOWN = {"text", "json", "http", "ini", "nginx", "javascript"}  # not commands


def pages():
    return ["README.md"] + sorted(os.path.relpath(p, REPO) for p in glob.glob(os.path.join(REPO, "docs/*.md")))


def read(page):
    with open(os.path.join(REPO, page)) as f:
        return f.read()


def elsewhere(page):
    """The test file that runs this page, if it is another one."""
    m = re.search(r"^<!-- run by (tests/\S+) -->$", read(page), re.M)
    return m and m[1]


def blocks(page):
    """[(language, text, reason it is not run, line)]"""
    text, out, n = read(page).split("\n"), [], 0
    while n < len(text):
        if not text[n].startswith("```"):
            n += 1
            continue
        end = text.index("```", n + 1)
        m = re.fullmatch(r"<!-- not run: (\S.*) -->", text[n - 1]) if n else None
        out.append((text[n][3:], "\n".join(text[n + 1:end]) + "\n", m and m[1], n + 1))
        n = end + 1
    return out


def run(t, page, language, text, line, folder):
    env = {**t.d.env, "HUTCH_NO_START": "1", "PATH": f"{os.path.dirname(program('hutch'))}:{os.environ['PATH']}"}
    env.pop("HUTCH_API_KEY", None)
    env["HUTCH"], env["KEY"] = f"http://127.0.0.1:{t.d.port}", t.d.new_key("reader")["key"]  # as pages about the API say
    text = text.replace("127.0.0.1:4882", f"127.0.0.1:{t.d.port}").replace("/run/hutch/", t.d.run + "/")
    argv = ["sh", "-euc", text] if language == "sh" else ["python3", "-c", text]
    p = subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    equal(p.returncode, 0, f"{page}:{line}\n{text}\n{p.stdout[-2000:]}\n{p.stderr[-2000:]}")
    lines = p.stdout.splitlines()
    for want in re.findall(r"# => (.*)$", text, re.M):
        true(want in lines, f"{page}:{line} does not print {want!r} (in this place):\n{p.stdout}")
        del lines[:lines.index(want) + 1]


def tidy(t):
    """What a page leaves to its reader: sandboxes and keys."""
    for box in t.c.get("/v1/sandboxes")["sandboxes"]:
        t.c.delete("/v1/sandboxes/" + box["id"])
    for key in t.c.get("/v1/keys")["keys"]:
        t.c.delete("/v1/keys/" + key["id"])


def test_of(page):
    def walk(t):
        folder = os.path.join(t.tmp, "reader")
        os.makedirs(folder)
        t.cleanup_later(tidy, t)
        ran = 0
        for language, text, reason, line in blocks(page):
            if language in RUN and not reason:
                run(t, page, language, text, line, folder)
                ran += 1
        t.note(f"{ran} blocks")
    walk.__name__ = "page_" + re.sub(r"\W", "_", os.path.splitext(os.path.relpath(page, "docs") if page.startswith("docs") else "top")[0].lower())
    walk.__doc__ = page
    return walk


ENV = {"HUTCH_DEFAULT_ISOLATION": "container", "HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0"}

for _page in pages():
    _commands = [text for language, text, reason, _ in blocks(_page) if language in RUN and not reason]
    if _commands and not elsewhere(_page):
        # The jail of an isolate stays after its calls, so such a page has a daemon to itself.
        _daemon = own_daemon(**ENV) if any("--isolation isolate" in text for text in _commands) else shared_daemon("docs", **ENV)
        plain(_daemon(timeout(120)(test_of(_page))))


@plain
def every_block_is_run_or_says_why(t):
    """No command hides in a block that nobody runs."""
    found = 0
    for page in pages():
        by = elsewhere(page)
        if by:
            contains(read(by), os.path.basename(page), f"{page} is run by {by}")
            continue
        for language, text, reason, line in blocks(page):
            where = f"{page}:{line}"
            true(language in RUN or language in SHOWN, f"{where}: a block of '{language}': use sh or python for what can be run, else one of {sorted(SHOWN)}")
            true(language in RUN or not re.search(r"^(\$ )?(hutch|curl|make) ", text, re.M), f"{where}: commands in a block that is not sh")
            found += language in RUN
    true(found >= 30, f"only {found} blocks were found")


@plain
@timeout(180)
def lint_finds_what_drifted(t):
    """tools/lint-docs is green here, and red for each kind of mistake."""
    root = os.path.join(t.tmp, "tree")
    os.makedirs(root)
    for name in ("src", "tests", "tools", "bench", "share", "Makefile", "LICENSE"):
        os.symlink(os.path.join(REPO, name), os.path.join(root, name))

    def lint(page="", old="", new=""):
        shutil.rmtree(os.path.join(root, "docs"), ignore_errors=True)
        shutil.copytree(os.path.join(REPO, "docs"), os.path.join(root, "docs"))
        for top in glob.glob(os.path.join(REPO, "*.md")):
            shutil.copy(top, root)
        if page:
            path = os.path.join(root, page)
            with open(path) as f:
                text = f.read()
            contains(text, old, page)
            with open(path, "w") as f:
                f.write(text.replace(old, new))
        p = subprocess.run([os.path.join(REPO, "tools", "lint-docs"), root], capture_output=True, text=True, timeout=60)
        return p.returncode, p.stdout + p.stderr

    equal(lint(), (0, ""))
    settings = (
            ("docs/configuration.md", "| `HUTCH_STANDBY` | 300 |", "| `HUTCH_STANDBY` | 600 |", "the default of HUTCH_STANDBY is 300, not 600"),
            ("docs/configuration.md", "seconds, 1 … 86400 |", "seconds, 1 … 86401 |", "HUTCH_DEFAULT_TIMEOUT goes from 1 to 86400, not from 1 to 86401"),
            ("docs/configuration.md", "| `HUTCH_STANDBY` |", "| `HUTCH_LOG` |", "HUTCH_STANDBY has no row"))
    if "<!-- settings:begin -->" in read("docs/configuration.md"):
        settings = ()  # printed by the daemon itself
    for page, old, new, said in settings + (
            ("docs/wire.md", "`FRAME_FLUSH` = 262160", "`FRAME_FLUSH` = 65552", "FRAME_FLUSH is 262160, not 65552"),
            ("docs/wire.md", "`FRAME_FLUSH` = 262160", "`FRAME_FLOSH` = 1", "FRAME_FLOSH is not one constant"),
            ("docs/wire.md", "`src/wire/share.h`", "`src/wire/shore.h`", "there is no file src/wire/shore.h"),
            ("docs/cli.md", "](state.md#timers)", "](state.md#clocks)", "docs/state.md has no heading #clocks"),
            ("docs/cli.md", "](state.md#timers)", "](status.md)", "the link to status.md leads nowhere"),
            ("docs/configuration.md", "| `HUTCH_STANDBY` |", "| `HUTCH_" + "STANDING` |", "nothing reads HUTCH_" + "STANDING"),  # in two: tests are read too
            ("docs/state.md", "[decision 022]", "[decision 922]", "there is no decision 922"),
            ("docs/README.md", "[wire.md](wire.md)", "wire.md", "wire.md is not listed"),
            ("README.md", "## Two commands", "word " * 21 + "\n\n## Two commands", "105 columns")):
        rc, out = lint(page, old, new)
        equal(rc, 1, f"{page}: {new}")
        contains(out, said)
