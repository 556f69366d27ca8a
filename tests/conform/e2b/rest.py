"""The rest of the Python SDK: what commands.py and control.py leave out, and what it has that the JavaScript SDK has not. Like commands.py."""
import asyncio
import os
import sys
import tempfile
import threading
import time
import unittest

try:
    import httpx
    from e2b import AsyncSandbox, BuildException, CommandExitException, PtySize, Sandbox, SandboxQuery, SandboxState, Secret, Template
    from e2b.exceptions import InvalidArgumentException, NotFoundException, SandboxException
except ImportError:
    sys.exit(77)

TIER = os.environ.get("HUTCH_TIER")
META = {"hutch.isolation": TIER} if TIER else {}
NOW = format(time.time_ns(), "x")
URL, KEY = os.environ["E2B_API_URL"], {"X-API-KEY": os.environ["E2B_API_KEY"]}


class Create(unittest.TestCase):
    def test_one_key_one_sandbox(self):
        args = {"metadata": {**META, "once": NOW}, "idempotency_key": "key-" + NOW}
        one = Sandbox.create(**args)
        try:
            self.assertEqual(Sandbox.create(**args).sandbox_id, one.sandbox_id)
            with self.assertRaises(SandboxException) as c:
                Sandbox.create(**{**args, "timeout": 77})
            self.assertEqual(c.exception.status_code, 422)
            self.assertEqual(len(Sandbox.list(query=SandboxQuery(metadata={"once": NOW})).next_items()), 1)
            r = httpx.post(URL + "/v2/sandboxes", headers={**KEY, "Idempotency-Key": "NO"}, json={"templateID": "base"})
            self.assertEqual((r.status_code, r.json()["code"]), (400, 400))
        finally:
            one.kill()

    def test_at_the_same_time(self):
        args, got = {"metadata": META, "idempotency_key": "race-" + NOW}, []
        threads = [threading.Thread(target=lambda: got.append(Sandbox.create(**args).sandbox_id)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((len(got), len(set(got))), (4, 1))
        self.assertTrue(Sandbox.kill(got[0]))

    def test_what_cannot_be_had(self):
        for network in ({"dns_servers": ["1.1.1.1"]}, {"egress_proxy": {"address": "proxy.example.org:1080", "tls": True}}, {"https_ports": [3000]}):
            with self.assertRaises(SandboxException) as c:
                Sandbox.create(metadata=META, network=network)
            self.assertEqual(c.exception.status_code, 400)
            self.assertIn("not supported", str(c.exception))
        with self.assertRaises(SandboxException) as c:
            Sandbox.create(metadata=META, iam={"tokens": {"aws": Secret.iam_token(audience="a", token_type="JWT-SVID")}})
        self.assertEqual(c.exception.status_code, 400)


class One(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create(metadata=META, timeout=300)

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_input(self):
        h = self.sbx.commands.run("cat", background=True, stdin=True)
        self.sbx.commands.stream_input(h.pid, ["a\n", b"b\n", "y" * 300_000 + "\n"])
        self.sbx.commands.send_stdin(h.pid, "c\n")
        self.sbx.commands.close_stdin(h.pid)
        self.assertEqual(h.wait().stdout, "a\nb\n" + "y" * 300_000 + "\nc\n")
        with self.assertRaises(NotFoundException):
            self.sbx.commands.stream_input(999_999, ["x"])
        with self.assertRaises(NotFoundException):
            self.sbx.commands.send_stdin(999_999, "x")

    def test_joining(self):
        h = self.sbx.commands.run("read x; echo got $x", background=True, stdin=True)
        h.disconnect()
        again = self.sbx.commands.connect(h.pid)
        again.send_stdin("it\n")
        self.assertEqual(again.wait().stdout, "got it\n")

    def test_terminal(self):
        p, out = self.sbx.pty.create(PtySize(rows=24, cols=80), envs={"A": "b"}, cwd="/tmp"), []
        self.sbx.pty.resize(p.pid, PtySize(rows=40, cols=120))
        self.sbx.pty.stream_input(p.pid, ["stty size; ", b"echo [$A $PWD]; ", "exit 3\n"])
        with self.assertRaises(CommandExitException) as c:
            p.wait(on_pty=out.append)
        self.assertEqual(c.exception.exit_code, 3)
        self.assertIn(b"40 120", b"".join(out))
        self.assertIn(b"[b /tmp]", b"".join(out))
        again = self.sbx.pty.create(PtySize(rows=24, cols=80))
        joined = self.sbx.pty.connect(again.pid)
        self.assertTrue(joined.pid == again.pid and self.sbx.pty.kill(again.pid))
        with self.assertRaises(CommandExitException):
            joined.wait()
        self.assertFalse(self.sbx.pty.kill(again.pid))

    def test_files(self):
        f, text = self.sbx.files, "squeeze me " * 100_000
        f.write("z.txt", text, gzip=True)
        self.assertEqual(f.read("z.txt", gzip=True), text)
        self.assertEqual(b"".join(f.read("z.txt", format="stream", gzip=True)).decode(), text)
        ask = {"E2b-Sandbox-Id": self.sbx.sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.sbx._envd_access_token}
        r = httpx.get(URL + "/files", params={"path": "z.txt"}, headers={**ask, "Accept-Encoding": "gzip"})
        self.assertEqual((r.headers.get("content-encoding"), len(r.text)), ("gzip", len(text)))
        self.assertLess(r.num_bytes_downloaded, len(text) // 10)
        r = httpx.get(URL + "/files", params={"path": "z.txt"}, headers={**ask, "Accept-Encoding": "gzip, deflate"})
        self.assertEqual(r.headers["content-length"], str(len(text)))
        f.write("empty", "", gzip=True)
        self.assertEqual(f.read("empty", gzip=True), "")
        f.write("o.bin", iter([b"one", b"two"]))
        self.assertEqual(f.read("o.bin"), "onetwo")
        f.write("m.txt", "x", metadata={"author": "me"})
        self.assertEqual(f.get_info("m.txt").metadata, {"author": "me"})
        self.assertEqual([e.name for e in f.write_files([{"path": "d/a", "data": "1"}, {"path": "d/b", "data": "2"}], gzip=True)], ["a", "b"])
        with self.assertRaises(InvalidArgumentException):
            f.write("bad", "x", metadata={"a b": "c"})

    def test_compose(self):
        ask = {"E2b-Sandbox-Id": self.sbx.sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.sbx._envd_access_token}
        f = self.sbx.files
        f.write_files([{"path": "part/1", "data": "one"}, {"path": "part/2", "data": ""}, {"path": "part/3", "data": "3" * 200_000}])
        r = httpx.post(URL + "/files/compose", headers=ask, json={"source_paths": ["part/1", "/home/user/part/2", "part/3"], "destination": "whole/file"})
        self.assertEqual((r.status_code, r.json()), (200, {"path": "/home/user/whole/file", "name": "file", "type": "file"}))
        self.assertEqual(f.read("whole/file"), "one" + "3" * 200_000)
        self.assertEqual(f.list("part"), [])
        r = httpx.post(URL + "/files/compose", headers=ask, json={"source_paths": ["whole/file", "none"], "destination": "x"})
        self.assertEqual((r.status_code, r.json()["message"]), (404, "path '/home/user/none' does not exist"))
        self.assertTrue(f.exists("whole/file") and not f.exists("x"))
        for body in ({"source_paths": [], "destination": "x"}, {"source_paths": ["a"]}, {"source_paths": "a", "destination": "x"}):
            self.assertEqual(httpx.post(URL + "/files/compose", headers=ask, json=body).status_code, 400)
        self.assertEqual(httpx.post(URL + "/files/compose", headers={**ask, "X-Access-Token": "no"}, json={}).status_code, 401)

    def test_watch(self):
        f = self.sbx.files
        f.make_dir("watched")
        w = f.watch_dir("watched", include_entry=True, allow_network_mounts=True)
        f.write("watched/f", "1")
        seen, until = [], time.monotonic() + 20
        while not any(e.entry for e in seen) and time.monotonic() < until:
            seen += w.get_new_events()
        self.assertEqual([e.entry.path for e in seen if e.entry][0], "/home/user/watched/f")
        w.stop()

    def test_git(self):
        g, at = self.sbx.git, "/home/user/rest-repo"
        self.sbx.commands.run("git init -q --bare -b main /tmp/rest.git")
        g.init(at, initial_branch="main")
        g.set_config("user.name", "One", scope="local", path=at)
        g.set_config("user.email", "o@example.org", scope="local", path=at)
        self.assertEqual(g.get_config("user.name", scope="local", path=at), "One")
        self.assertIsNone(g.get_config("no.such"))
        self.sbx.files.write(at + "/f", "1\n")
        g.add(at)
        g.commit(at, "first")
        g.remote_add(at, "origin", "file:///tmp/rest.git")
        self.assertEqual((g.remote_get(at, "origin"), g.remote_get(at, "none")), ("file:///tmp/rest.git", None))
        g.push(at, remote="origin", branch="main")
        g.clone("file:///tmp/rest.git", path="/home/user/rest-copy", depth=1)
        g.pull("/home/user/rest-copy")
        g.create_branch(at, "side")
        g.checkout_branch(at, "main")
        g.delete_branch(at, "side")
        self.sbx.files.write(at + "/f", "2\n")
        self.assertEqual([x.name for x in g.status(at).file_status], ["f"])
        g.restore(at, ["f"])
        g.reset(at, mode="hard", target="HEAD")
        self.assertEqual(self.sbx.files.read(at + "/f"), "1\n")
        g.dangerously_authenticate("someone", "s3cret")
        self.assertIn("someone", self.sbx.commands.run("cat ~/.git-credentials").stdout)

    def test_network(self):
        self.sbx.update_network({"deny_out": lambda ctx: [ctx.all_traffic]})
        self.assertEqual(self.sbx.get_info().network["deny_out"], ["0.0.0.0/0"])
        self.sbx.update_network({"allow_internet_access": False})
        self.assertIs(self.sbx.get_info().allow_internet_access, False)
        self.sbx.update_network({})
        self.assertNotIn("deny_out", self.sbx.get_info().network or {})
        with self.assertRaises(SandboxException) as c:
            self.sbx.update_network({"egress_proxy": {"address": "p.example.org:1"}})
        self.assertEqual(c.exception.status_code, 400)

    def test_addresses(self):
        self.assertTrue(self.sbx.get_host(3000).startswith(f"3000-{self.sbx.sandbox_id}."))
        self.assertTrue(self.sbx.get_mcp_url().endswith("/mcp"))


class State(unittest.TestCase):
    def test_snapshot_of_files(self):
        sbx, made = Sandbox.create(metadata=META), []
        try:
            sbx.files.write("f", "then")
            h = sbx.commands.run("sleep 1000", background=True, timeout=0)
            snap = sbx.create_snapshot(name="rest-" + NOW, mode="filesystem")
            self.assertEqual(snap.names, ["hutch/rest-" + NOW])
            self.assertEqual([s.snapshot_id for s in sbx.list_snapshots().next_items()], [snap.snapshot_id])
            made.append(Sandbox.create(snap.snapshot_id, metadata=META))
            self.assertEqual(made[0].files.read("f"), "then")
            self.assertNotIn(h.pid, [p.pid for p in made[0].commands.list()])
            self.assertTrue(sbx.is_running())
        finally:
            for s in made + [sbx]:
                s.kill()
            Sandbox.delete_snapshot("rest-" + NOW)

    def test_fork_and_pause(self):
        sbx, kids = Sandbox.create(metadata=META), []
        try:
            sbx.files.write("f", "then")
            kids = sbx.fork(count=2, timeout=120)
            self.assertEqual([k.files.read("f") for k in kids], ["then", "then"])
            boot = sbx.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
            self.assertTrue(sbx.pause(mode="filesystem", strict=True))
            self.assertFalse(sbx.pause())
            self.assertEqual(sbx.get_info().state, SandboxState.PAUSED)
            sbx.connect(on_resume="reboot")
            self.assertNotEqual(sbx.commands.run("cat /proc/sys/kernel/random/boot_id").stdout, boot)
        finally:
            for s in kids + [sbx]:
                s.kill()


class Templates(unittest.TestCase):
    def test_in_the_background(self):
        name = "rest-bg-" + NOW
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "f.txt"), "w") as f:
                f.write("copied")
            t = Template(file_context_path=folder).from_dockerfile("FROM e2bdev/base\nCOPY f.txt /opt/\nENV A=1\nWORKDIR /srv\nRUN echo hi > note\nUSER root\n")
            info = Template.build_in_background(t.set_envs({"E": "v"}), name, tags=["one"])
        until = time.monotonic() + 400
        self.assertEqual(Template.get_build_status(info).status.value, "building")
        while (s := Template.get_build_status(info)).status.value in ("building", "waiting") and time.monotonic() < until:
            time.sleep(0.5)
        self.assertEqual(s.status.value, "ready", s.reason)
        self.assertEqual(Template.get_build_status(info, logs_offset=100_000).log_entries, [])
        self.assertTrue(Template.exists(name) and Template.alias_exists(name) and s.log_entries)
        self.assertEqual([x.tag for x in Template.get_tags(name)], ["one"])
        self.assertEqual(Template.assign_tags(f"{name}:one", ["two"]).build_id, info.build_id)
        self.assertEqual(sorted(x.tag for x in Template.get_tags(name)), ["one", "two"])
        Template.remove_tags(name, "one")
        sbx = Sandbox.create(f"{name}:two", metadata=META)
        try:
            self.assertEqual(sbx.commands.run("whoami; pwd; echo $A $E; cat note /opt/f.txt").stdout, "root\n/srv\n1 v\nhi\ncopied")
            self.assertEqual(sbx.get_info().template_id, info.template_id)
        finally:
            sbx.kill()
        self.assertTrue(Sandbox.delete_snapshot(name))

    def test_error(self):
        with self.assertRaises(BuildException):
            Template.build(Template().from_template("base").run_cmd("exit 9"), "rest-bad-" + NOW)
        Sandbox.delete_snapshot("rest-bad-" + NOW)

    def test_images_that_are_not_here(self):
        for t in (Template().from_ubuntu_image(), Template().from_image("quay.io/some/thing:1", username="u", password="p"),
                  Template().from_aws_registry("1.dkr.ecr.us-east-1.amazonaws.com/x:1", "a", "b", "us-east-1")):
            with self.assertRaises(Exception) as c:
                Template.build(t.run_cmd("true"), "rest-none-" + NOW)
            self.assertIn("hutch template import", str(c.exception))
        Sandbox.delete_snapshot("rest-none-" + NOW)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_input(self):
        sbx = await AsyncSandbox.create(metadata=META)
        try:
            h = await sbx.commands.run("cat", background=True, stdin=True)
            async with sbx.commands.stream_input(h.pid) as pipe:
                for i in range(20):
                    await pipe.send(f"{i}\n")
            await h.close_stdin()
            self.assertEqual((await h.wait()).stdout, "".join(f"{i}\n" for i in range(20)))
            gone = sbx.commands.stream_input(999_999)
            with self.assertRaises(NotFoundException):
                await gone.close()
            data = bytearray()
            t = await sbx.pty.create(PtySize(rows=24, cols=80), on_data=data.extend)
            pipe = sbx.pty.stream_input(t.pid)
            await pipe.send("echo typed-$((6*7)); exit\n")
            await pipe.close()
            await asyncio.wait_for(t.wait(), 30)
            self.assertIn(b"typed-42", data)
        finally:
            await sbx.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
