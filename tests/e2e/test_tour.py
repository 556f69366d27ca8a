"""The examples of docs/interpreter.md, as they stand there: cells in order in one sandbox, commands with `hutch`."""
import base64
import os
import re
import subprocess

import debs
from daemon import REPO, program
from hutchtest import *

FULL = "code-interpreter"


def blocks():
    """[(kind, text, expected)] of the page's fenced examples."""
    with open(os.path.join(REPO, "docs", "interpreter.md")) as f:
        found = re.findall(r"^```(\w+)\n(.*?)^```$", f.read(), re.M | re.S)
    out = []
    for kind, text in found:
        if kind == "output":
            out[-1][2] = text
        else:
            out.append([kind, text, None])
    return out


def shown(r):
    """What `hutch eval` would print, and the error's last line."""
    text = r["stdout"] + "".join(x["data"]["text/plain"] + "\n" for x in r["results"] if "text/plain" in x["data"])
    if r["error"]:
        text += f"{r['error']['name']}: {r['error']['value']}\n"
    return text


@tiers("container")
@timeout(300)
def cells_do_what_the_page_says(t):
    there = [x["name"] for x in t.c.get("/v1/templates")["templates"]]
    template = next((n for n in (FULL, debs.NOTEBOOK) if n in there), None)
    if not template:
        skip("the seed home has no template with IPython and pandas")
    box = t.box(template=template, timeout_s=600)
    cells = [b for b in blocks() if b[0] != "console"]
    true(len(cells) >= 14, f"only {len(cells)} cells were found on the page")
    figures = 0
    for language, code, want in cells:
        r = box.eval(code, language=language, deadline=120)
        equal(shown(r), want, f"{language}: {code}")
        for x in r["results"]:
            if "image/png" in x["data"]:
                figures += 1
                chart = x["data"]["e2b/chart"]
                equal((chart["type"], chart["title"], chart["x_unit"], chart["y_unit"], [e["label"] for e in chart["elements"]]), ("line", "Two waves", "s", "m", ["sine", "cosine"]))
                true(len(base64.b64decode(x["data"]["image/png"])) > 10000, "an empty picture")
    equal(figures, 1)


@tiers("container")
@timeout(180)
def commands_print_what_the_page_says(t):
    console = [b[1] for b in blocks() if b[0] == "console"]
    true(console, "no commands were found on the page")
    env = {**t.d.env, "PATH": os.path.dirname(program("hutch")) + ":" + os.environ["PATH"]}
    for text in console:
        for command, want in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
            p = subprocess.run(["sh", "-c", command.replace("hutch eval", "hutch eval --isolation container")], env=env, cwd=t.tmp, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            equal((p.stdout, p.returncode), (want, 0), command + p.stderr)
