"""What kernels before 6.15 make necessary, on a kernel of any age: mounts hang
on a shelf (src/jail/shelf.h). The real old kernels are in tests/stock."""
import oci
from hutchtest import *
from olderkernel import OlderKernel


def mounts(t):
    return [c for c in t.c.get("/v1/doctor")["checks"] if c["name"] == "mounts"]


def all_that_mounts(t):
    found = mounts(t)
    true(found and found[0]["status"] == "ok" and "before 6.15" in found[0]["found"], found)
    # a container, and one whose disk lives on
    box = t.create(isolation="container")
    box.ok("echo kept > ~/file; sudo rm /etc/debian_version; mkdir /tmp/dir")
    (kid,) = t.fork(box)[1]
    equal(kid.ok("cat ~/file; test ! -e /etc/debian_version && echo gone"), "kept\ngone\n")
    v = t.c.post("/v1/volumes", {"name": "shared", "size_mib": 64})
    for say in ("one", "two"):
        lent = t.create(isolation="container", volumes=[{"name": "shared", "path": "/data"}])
        lent.ok(f"echo {say} >> /data/x")
        lent.kill()
    t.c.delete("/v1/volumes/" + v["id"], deadline=30)  # nothing keeps it busy
    # an image, an isolate
    t.cleanup_later(t.c.delete, "/v1/templates/tiny")
    s = t.c.stream("POST", "/v1/templates/tiny/import", body=oci.docker_archive(oci.tiny_tree(), env=["COLOR=red"]),
                   headers={"Content-Type": "application/x-tar"}, deadline=120)
    equal(list(s.events())[-1]["event"], "done")
    equal(t.create(template="tiny", isolation="container").ok(["/bin/cat", "/marker"]), "imported\n")
    equal(t.c.post("/v1/eval", {"language": "python", "code": "2**64"}, deadline=60)["value"], 2 ** 64)


@plain
@own_daemon(HUTCH_SHELF="1")
@timeout(180)
def as_before_6_15(t):
    all_that_mounts(t)


def under(t, kernel):
    t.d.shutdown()
    t.d.kernel = kernel
    t.d.start(settle=False)


@plain
@own_daemon()
@timeout(180)
def what_an_old_kernel_refuses(t):
    """Nobody tells the daemon: it finds out, and no place that mounts forgets it."""
    kernel = OlderKernel()
    under(t, kernel)
    all_that_mounts(t)
    true(kernel.refused > 0, "it was an old one")


@plain
@own_daemon(HUTCH_POOL_CONTAINER="0")
@timeout(90)
def a_kernel_that_clones_nothing(t):
    """Doctor has tried it, and does not call it well; a caller is not told that the request was wrong."""
    under(t, OlderKernel(no_clones=True))
    found = mounts(t)
    true(found and found[0]["status"] == "fail" and "open_tree" in found[0]["found"], found)
    contains(refuses("internal", t.create, isolation="container").message, "open_tree")
