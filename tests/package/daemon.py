"""A daemon that answers lists: daemon.py SOCKET. Prints "up" when it listens."""
import json
import socketserver
import sys

ANSWERS = {
    "/healthz": {"status": "ok", "version": "7.7.7", "pid": 1},
    "/v1/sandboxes": {"sandboxes": [{"id": "iaaaaaaaaaaaaaaaaaaaa", "name": "web", "template": "base"},
                                    {"id": "ibbbbbbbbbbbbbbbbbbbb", "name": None, "template": "base"}], "next": None},
    "/v1/templates": {"templates": [{"name": "base"}, {"name": "notebook"}]},
    "/v1/snapshots": {"snapshots": [{"id": "saaaaaaaaaaaaaaaaaaaa", "name": "before", "sandbox": "web"}]},
    "/v1/volumes": {"volumes": [{"name": "data"}]},
    "/v1/secrets": {"secrets": [{"name": "token"}]},
    "/v1/keys": {"keys": [{"id": "kaaaaaaaaaaaaaaaaaaaa", "name": "ci"}]},
}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        path = self.rfile.readline().split()[1].decode().split("?")[0]
        while self.rfile.readline().strip():
            pass
        body = json.dumps(ANSWERS[path]).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


with socketserver.ThreadingUnixStreamServer(sys.argv[1], Handler) as s:
    print("up", flush=True)
    s.serve_forever()
