"""The control plane and volumes of the Python SDK, synchronous and asynchronous. Like commands.py."""
import datetime
import os
import sys
import time
import unittest

try:
    from e2b import (AsyncSandbox, AsyncVolume, Sandbox, SandboxQuery, SandboxState, Volume, VolumeException, VolumeNotFoundException,
                     VolumePathNotFoundException)
    from e2b.exceptions import AuthenticationException, InvalidArgumentException, NotFoundException, SandboxException, TimeoutException
except ImportError:
    sys.exit(77)

META = {"hutch.isolation": os.environ["HUTCH_TIER"]} if os.environ.get("HUTCH_TIER") else {}
NOW = format(time.time_ns(), "x")


def everything(paginator):
    got = []
    while paginator.has_next:
        got += paginator.next_items()
    return got


class Control(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mark = {**META, "run": NOW, "odd key": "a=b&c d%"}
        cls.sbx = Sandbox.create(metadata=cls.mark, envs={"A": "1"}, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_info(self):
        i = self.sbx.get_info()
        self.assertEqual((i.sandbox_id, i.metadata, i.state, i.name), (self.sbx.sandbox_id, self.mark, SandboxState.RUNNING, "base"))
        self.assertTrue(i.cpu_count >= 1 and i.memory_mb >= 128 and i.envd_version)
        self.assertGreater(i.end_at, i.started_at)
        self.assertTrue(self.sbx.is_running())

    def test_list(self):
        for query in (SandboxQuery(metadata={"run": NOW}), SandboxQuery(metadata={"odd key": "a=b&c d%", "run": NOW}),
                      SandboxQuery(state=[SandboxState.RUNNING], metadata={"run": NOW})):
            self.assertEqual([s.sandbox_id for s in everything(Sandbox.list(query=query))], [self.sbx.sandbox_id])
        self.assertEqual(everything(Sandbox.list(query=SandboxQuery(metadata={"run": "none"}))), [])
        self.assertEqual(everything(Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED], metadata={"run": NOW}))), [])

    def test_pages(self):
        more = [Sandbox.create(metadata={**META, "page": NOW}) for _ in range(3)]
        try:
            p = Sandbox.list(query=SandboxQuery(metadata={"page": NOW}), limit=2)
            first = p.next_items()
            self.assertTrue(p.has_next and p.next_token)
            second = p.next_items()
            self.assertFalse(p.has_next)
            self.assertEqual([s.sandbox_id for s in first + second], [s.sandbox_id for s in reversed(more)])
            up = everything(Sandbox.list(query=SandboxQuery(metadata={"page": NOW}), limit=1, order="asc"))
            self.assertEqual([s.sandbox_id for s in up], [s.sandbox_id for s in more])
        finally:
            for s in more:
                s.kill()

    def test_timeouts(self):
        left = lambda: self.sbx.get_info().end_at - datetime.datetime.now(datetime.timezone.utc)
        self.sbx.set_timeout(600)
        self.assertGreater(left().total_seconds(), 400)
        Sandbox.connect(self.sbx.sandbox_id, timeout=60)  # never shortens
        self.assertGreater(left().total_seconds(), 400)
        self.sbx.set_timeout(200)
        self.assertLess(left().total_seconds(), 300)

    def test_connect(self):
        other = Sandbox.connect(self.sbx.sandbox_id)
        self.assertEqual(other.commands.run("echo $A").stdout, "1\n")
        with self.assertRaises(NotFoundException):
            Sandbox.connect("i00000000000000000000")

    def test_metrics(self):
        until = time.monotonic() + 60
        while not (m := self.sbx.get_metrics()) and time.monotonic() < until:
            time.sleep(0.5)
        self.assertTrue(m and m[0].cpu_count >= 1 and m[0].mem_total > 0 and m[0].disk_total > 0)
        long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
        self.assertEqual(self.sbx.get_metrics(start=long_ago, end=long_ago + datetime.timedelta(hours=1)), [])

    def test_ends(self):
        sbx = Sandbox.create(metadata=META)
        self.assertTrue(sbx.kill())
        self.assertFalse(sbx.kill())
        self.assertFalse(Sandbox.kill(sbx.sandbox_id))
        self.assertFalse(sbx.is_running())
        with self.assertRaises(TimeoutException):
            sbx.commands.run("true")
        with self.assertRaises(NotFoundException):
            sbx.get_info()

    def test_refusals(self):
        with self.assertRaises(SandboxException):
            Sandbox.create("none-such-at-all")
        with self.assertRaises(AuthenticationException):
            Sandbox.create(api_key="e2b_" + "0" * 40)

    def test_pause(self):
        sbx = Sandbox.create(metadata=META)
        try:
            sbx.files.write("kept", "yes")
            sbx.pause()
            self.assertFalse(sbx.is_running())
            self.assertEqual(sbx.get_info().state, SandboxState.PAUSED)
            self.assertEqual(sbx.connect().files.read("kept"), "yes")
        finally:
            sbx.kill()

    def test_urls(self):
        import httpx
        self.sbx.files.write("signed.txt", "signed")
        self.assertEqual(httpx.get(self.sbx.download_url("signed.txt", use_signature_expiration=60)).text, "signed")
        r = httpx.post(self.sbx.upload_url("up.txt"), files={"file": b"up"})
        self.assertEqual(r.status_code, 200)
        self.assertEqual(self.sbx.files.read("up.txt"), "up")

    def test_git(self):
        g = self.sbx.git
        g.init("/home/user/repo", initial_branch="main")
        g.configure_user("Some One", "one@example.org")
        self.sbx.files.write("repo/f", "1")
        g.add("/home/user/repo")
        g.commit("/home/user/repo", "first")
        self.assertEqual(g.status("/home/user/repo").current_branch, "main")
        self.assertEqual(g.branches("/home/user/repo").branches, ["main"])


class Volumes(unittest.TestCase):
    def test_all(self):
        vol = Volume.create("py-" + NOW)
        try:
            self.assertIn(vol.volume_id, [v.volume_id for v in Volume.list()])
            self.assertEqual(Volume.connect(vol.volume_id).name, vol.name)
            self.assertEqual(vol.write_file("/f", "text", uid=1000, gid=1000, mode=0o600).mode, 0o600)
            self.assertEqual(vol.write_file("/g", b"\x00\xff").size, 2)
            self.assertEqual((vol.read_file("/f"), bytes(vol.read_file("/g", format="bytes"))), ("text", b"\x00\xff"))
            self.assertEqual(b"".join(vol.read_file("/f", format="stream")), b"text")
            with self.assertRaises(VolumeException):
                vol.write_file("/f", "again")
            vol.write_file("/f", "again", force=True)
            vol.make_dir("/d/e", force=True)
            self.assertEqual(sorted(e.name for e in vol.list("/")), ["d", "f", "g"])
            self.assertTrue(vol.exists("/d/e"))
            vol.remove("/d")
            with self.assertRaises(VolumePathNotFoundException):
                vol.get_info("/d")
            self.assertEqual(vol.update_metadata("/g", mode=0o640).mode, 0o640)
            sbx = Sandbox.create(metadata=META, volume_mounts={"/mnt/v": vol})
            try:
                self.assertEqual(sbx.commands.run("cat /mnt/v/f; echo inside > /mnt/v/h").stdout, "again")
            finally:
                sbx.kill()
            self.assertEqual(vol.read_file("/h"), "inside\n")
        finally:
            self.assertTrue(Volume.destroy(vol.volume_id))
        self.assertFalse(Volume.destroy(vol.volume_id))
        with self.assertRaises(VolumeNotFoundException):
            Volume.get_info(vol.volume_id)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_all(self):
        sbx = await AsyncSandbox.create(metadata={**META, "run": "async-" + NOW}, timeout=120)
        try:
            self.assertTrue(await sbx.is_running())
            p = AsyncSandbox.list(query=SandboxQuery(metadata={"run": "async-" + NOW}))
            self.assertEqual([s.sandbox_id for s in await p.next_items()], [sbx.sandbox_id])
            await sbx.set_timeout(300)
            self.assertEqual((await sbx.get_info()).state, SandboxState.RUNNING)
            with self.assertRaises(InvalidArgumentException):
                await sbx.files.list("/etc/passwd")
            vol = await AsyncVolume.create("pya-" + NOW)
            await vol.write_file("/f", "x")
            self.assertEqual(await vol.read_file("/f"), "x")
            self.assertTrue(await AsyncVolume.destroy(vol.volume_id))
        finally:
            self.assertTrue(await sbx.kill())
        self.assertFalse(await sbx.kill())


if __name__ == "__main__":
    unittest.main(verbosity=2)
