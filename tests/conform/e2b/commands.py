"""The Python SDK (pip install e2b), synchronous and asynchronous, over the same ground as the *.test.mjs files.

    E2B_API_URL=… E2B_SANDBOX_URL=… E2B_API_KEY=… [HUTCH_TIER=vm|container] python3 commands.py

Exit 77: the SDK is not installed.
"""
import asyncio
import os
import sys
import time
import unittest

try:
    from e2b import AsyncSandbox, CommandExitException, FileType, PtySize, Sandbox
    from e2b.exceptions import AuthenticationException, InvalidArgumentException, NotFoundException, TimeoutException
except ImportError:
    sys.exit(77)

META = {"hutch.isolation": os.environ["HUTCH_TIER"]} if os.environ.get("HUTCH_TIER") else {}


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create(metadata=META, envs={"FROM": "sandbox"})

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_run(self):
        out = []
        r = self.sbx.commands.run("echo $FROM $OWN; echo e >&2", envs={"OWN": "1"}, on_stdout=out.append)
        self.assertEqual((r.stdout, r.stderr, r.exit_code), ("sandbox 1\n", "e\n", 0))
        self.assertEqual("".join(out), "sandbox 1\n")
        with self.assertRaises(CommandExitException) as c:
            self.sbx.commands.run("exit 3")
        self.assertEqual(c.exception.exit_code, 3)

    def test_refusals(self):
        with self.assertRaises(AuthenticationException):
            self.sbx.commands.run("true", user="nobody-here")
        with self.assertRaises(InvalidArgumentException):
            self.sbx.commands.run("true", cwd="/no/such")
        with self.assertRaises(TimeoutException):
            self.sbx.commands.run("sleep 60", timeout=1)

    def test_background(self):
        h = self.sbx.commands.run("cat", background=True, stdin=True)
        self.sbx.commands.send_stdin(h.pid, "x\n")
        self.assertIn(h.pid, [p.pid for p in self.sbx.commands.list()])
        self.assertTrue(h.kill())
        with self.assertRaises(CommandExitException) as c:
            h.wait()
        self.assertEqual(c.exception.exit_code, -1)
        self.assertFalse(self.sbx.commands.kill(h.pid))

    def test_files(self):
        f = self.sbx.files
        self.assertEqual(f.write("a.txt", "hello").path, "/home/user/a.txt")
        self.assertEqual(f.read("a.txt"), "hello")
        self.assertEqual(bytes(f.read("a.txt", format="bytes")), b"hello")
        infos = f.write_files([{"path": "d/1", "data": "1"}, {"path": "d/2", "data": b"\x00\xff"}])
        self.assertEqual([i.path for i in infos], ["/home/user/d/1", "/home/user/d/2"])
        self.assertEqual([(e.name, e.type, e.permissions) for e in f.list("d")], [("1", FileType.FILE, "-rw-r--r--"), ("2", FileType.FILE, "-rw-r--r--")])
        self.assertTrue(f.make_dir("new"))
        self.assertFalse(f.make_dir("new"))
        self.assertEqual(f.rename("a.txt", "b.txt").path, "/home/user/b.txt")
        self.assertFalse(f.exists("a.txt"))
        f.remove("b.txt")
        with self.assertRaises(NotFoundException):
            f.read("b.txt")

    def test_watch_by_polling(self):
        self.sbx.files.make_dir("w")
        w = self.sbx.files.watch_dir("w", recursive=True)
        self.sbx.files.write("w/f", "1")
        seen, until = [], time.monotonic() + 10
        while not any(e.type.value == "write" for e in seen) and time.monotonic() < until:
            seen += w.get_new_events()
        self.assertIn(("f", "create"), [(e.name, e.type.value) for e in seen])
        self.assertIn(("f", "write"), [(e.name, e.type.value) for e in seen])
        w.stop()

    def test_pty(self):
        out = []
        p = self.sbx.pty.create(PtySize(rows=30, cols=90))
        self.sbx.pty.send_stdin(p.pid, b"stty size; exit\n")
        p.wait(on_pty=out.append)
        self.assertIn(b"30 90", b"".join(out))


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_all(self):
        sbx = await AsyncSandbox.create(metadata=META)
        try:
            r = await asyncio.gather(*(sbx.commands.run(f"echo {i}") for i in range(10)))
            self.assertEqual([x.stdout for x in r], [f"{i}\n" for i in range(10)])
            await sbx.files.write("a", "1")
            self.assertEqual(await sbx.files.read("a"), "1")
            seen = asyncio.Event()
            w = await sbx.files.watch_dir("/home/user", on_event=lambda e: seen.set())
            await sbx.files.write("b", "1")
            await asyncio.wait_for(seen.wait(), 10)
            await w.stop()
        finally:
            await sbx.kill()
        self.assertFalse(await sbx.is_running())


if __name__ == "__main__":
    unittest.main(verbosity=2)
