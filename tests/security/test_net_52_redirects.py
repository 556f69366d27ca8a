"""52: a redirect from an allowed host to a denied one; an allowed host as open proxy."""
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def redirect_leads_nowhere(t):
    o = t.outside
    t.c.put("/v1/secrets/redir", {"value": "do-not-carry-me"})
    t.cleanup_later(lambda: t.c.delete("/v1/secrets/redir"))
    box = t.box(network={"mode": "allow", "allow": ["api.allowed.test", "www.allowed.test"],
                         "inject": [{"domain": "api.allowed.test", "secret": "redir", "header": "authorization", "format": "Bearer {secret}"}]})
    r = box.exec(["sh", "-c", "curl -sSL -o /dev/null -w '%{http_code} ' 'https://api.allowed.test/redirect?http://other.test/'; "
                  "curl -sSL -o /dev/null -w '%{http_code} ' 'https://api.allowed.test/redirect?http://169.254.169.254/latest'; "
                  "curl -sSL --location-trusted 'https://api.allowed.test/redirect?http://www.allowed.test/seen'"], deadline=60)
    codes = r.text.split(" ")
    lacks(codes[:2], "200")
    contains(r.text, "/seen", "to an allowed host it is followed")
    seen = [h["data"] for h in o.hits if h["data"].startswith(b"GET /seen")]
    equal(len(seen), 1)
    lacks(seen[0], b"do-not-carry-me", "without the credential")
    true(any(b"do-not-carry-me" in h["data"] for h in o.hits), "which the first host did get")
    equal([h for h in o.hits if h["addr"] == o.ip(20)], [])
    logged(t, box, kind="dns", name="other.test", verdict="deny")
    logged(t, box, kind="deny", addr="169.254.169.254")
