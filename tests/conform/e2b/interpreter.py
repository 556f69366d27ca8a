"""The Python package e2b-code-interpreter, synchronous and asynchronous, on template base. Like commands.py."""
import os
import sys
import unittest

try:
    from e2b_code_interpreter import AsyncSandbox, Sandbox
except ImportError:
    sys.exit(77)

META = {"hutch.isolation": os.environ["HUTCH_TIER"]} if os.environ.get("HUTCH_TIER") else {}


class Sync(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create("base", metadata=META, envs={"FOO": "bar"})

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_cells(self):
        self.sbx.run_code("x = 40")
        out = []
        r = self.sbx.run_code("print('hello'); x + 2", on_stdout=lambda m: out.append(m.line))
        self.assertEqual((r.text, r.logs.stdout, r.error), ("42", ["hello\n"], None))
        self.assertEqual(out, ["hello\n"])
        self.assertEqual(self.sbx.run_code("'bar'").text, "bar")
        self.assertEqual(self.sbx.run_code("import os; print(os.getcwd(), os.environ['FOO'])").logs.stdout, ["/home/user bar\n"])

    def test_errors(self):
        r = self.sbx.run_code("undefined_name")
        self.assertEqual((r.error.name, r.error.value), ("NameError", "name 'undefined_name' is not defined"))
        self.assertNotIn("\x1b", r.error.traceback)

    def test_unicode(self):
        text = "grüße \u2028 \U0001f4cb"
        self.assertEqual("".join(self.sbx.run_code(f"print({text!r})").logs.stdout), text + "\n")

    def test_contexts(self):
        c = self.sbx.create_code_context(cwd="/tmp")
        self.sbx.run_code("y = 1", context=c)
        self.assertEqual(self.sbx.run_code("import os; (y, os.getcwd())", context=c).text, "(1, '/tmp')")
        self.assertEqual(self.sbx.run_code("y").error.name, "NameError")
        self.assertIn(c.id, [x.id for x in self.sbx.list_code_contexts()])
        self.sbx.restart_code_context(c)
        self.assertEqual(self.sbx.run_code("y", context=c).error.name, "NameError")
        self.sbx.remove_code_context(c)
        self.assertNotIn(c.id, [x.id for x in self.sbx.list_code_contexts()])

    def test_env(self):
        self.assertEqual(self.sbx.run_code("import os; os.environ['FOO']", envs={"FOO": "once"}).text, "once")
        self.assertEqual(self.sbx.run_code("import os; os.environ['FOO']").text, "bar")


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_all(self):
        sbx = await AsyncSandbox.create("base", metadata=META)
        try:
            r = await sbx.run_code("1 + 1")
            self.assertEqual((r.text, r.execution_count), ("2", 1))
        finally:
            await sbx.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
