"""Templates built from recipes in tests."""
import io
import tarfile

import oci
from hutchtest import true


def build(t, name, recipe, context=None, force=False, deadline=170):
    """All events of a build; the template is removed after the test."""
    kind, body = oci.recipe_form(recipe, context)
    t.cleanup_later(t.c.delete, f"/v1/templates/{name}")
    s = t.c.stream("POST", f"/v1/templates/{name}/build" + ("?force=1" if force else ""), body=body, headers={"Content-Type": kind}, deadline=deadline)
    evs = list(s.events())
    true(evs and evs[-1]["event"] in ("done", "error"), f"a build ends with done or error, not {evs[-1:]}")
    return evs


def built(t, name, recipe, context=None, **kw):
    evs = build(t, name, recipe, context, **kw)
    if evs[-1]["event"] != "done":
        raise AssertionError(f"build failed: {evs[-1]['error']}\n" + "\n".join(e.get("line", "") for e in evs[-30:]))
    return evs[-1]["template"], evs


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tf:
        for name, data in files.items():
            i = tarfile.TarInfo(name)
            i.size, i.mode = len(data), 0o755 if name.endswith(".sh") else 0o644
            tf.addfile(i, io.BytesIO(data))
    return out.getvalue()
