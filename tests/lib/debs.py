"""Templates made of base and a few Debian packages, by a recipe: cheap enough for every seed home.

`notebook` has what `code-interpreter` has for its six languages, less the larger libraries, and kernels that run before
anybody asks; `isolate` the interpreters that base lacks. The packages come from the host's own apt; where that cannot be,
there is no such template and its tests are skipped."""
import glob
import os
import shutil
import subprocess
import tarfile
import tempfile

import oci

NOTEBOOK, ISOLATE = "notebook", "isolate"
PACKAGES = {
    NOTEBOOK: ("python3-ipython", "python3-pandas", "python3-jinja2", "python3-matplotlib", "esbuild", "r-base-core", "default-jdk-headless"),
    ISOLATE: ("php-cli", "ruby"),
}
RECIPE = """FROM base
USER root
COPY debs /tmp/debs
RUN mkdir -p /usr/share/man/man1 && dpkg -i /tmp/debs/*.deb >/dev/null && rm -rf /tmp/debs
USER user
"""
KERNELS = {NOTEBOOK: "KERNELS python javascript\n"}


class Unavailable(Exception):
    """The packages cannot be had here."""


def fetch(image, packages, to):
    """What the packages need beyond what the image has, as .deb files in `to`."""
    status = os.path.join(to, "status")
    archives = os.path.join(to, "debs")
    os.makedirs(os.path.join(archives, "partial"))
    subprocess.run(["debugfs", "-R", f"dump /var/lib/dpkg/status {status}", image], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    p = subprocess.run(["apt-get", "-q", "-y", "--no-install-recommends", "--download-only", "-o", f"Dir::State::status={status}",
                        "-o", f"Dir::Cache::archives={archives}/", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=true", "install", *packages],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if p.returncode or not glob.glob(os.path.join(archives, "*.deb")):
        raise Unavailable((p.stdout.strip().splitlines() or ["apt-get said nothing"])[-1][:200])
    os.rmdir(os.path.join(archives, "partial"))
    return archives


def build(client, image, name):
    top = tempfile.mkdtemp(prefix="hutch-debs-")
    try:
        debs = fetch(image, PACKAGES[name], top)
        context = os.path.join(top, "context.tar")
        with tarfile.open(context, "w") as tf:
            for deb in sorted(glob.glob(os.path.join(debs, "*.deb"))):
                tf.add(deb, "debs/" + os.path.basename(deb))
        with open(context, "rb") as f:
            kind, body = oci.recipe_form(RECIPE + KERNELS.get(name, ""), f.read())
        last = {}
        for last in client.stream("POST", f"/v1/templates/{name}/build", body=body, headers={"Content-Type": kind}, deadline=900).events():
            pass
        if last.get("event") != "done":
            raise Unavailable(f"its build ended with {last.get('error')}")
    except (OSError, subprocess.SubprocessError) as e:
        raise Unavailable(str(e)) from None
    finally:
        shutil.rmtree(top, ignore_errors=True)
