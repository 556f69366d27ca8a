"""The Python SDK for code (pip install e2b-code-interpreter), over the same ground as interpreter.test.mjs."""
import asyncio
import os
import sys
import unittest
import urllib.error
import urllib.request

try:
    from e2b.exceptions import NotFoundException
    from e2b_code_interpreter import AsyncSandbox, Sandbox
except ImportError:
    sys.exit(77)

META = {"hutch.isolation": os.environ["HUTCH_TIER"]} if os.environ.get("HUTCH_TIER") else {}
NOTEBOOK = os.environ.get("HUTCH_NOTEBOOK")
LONG = {"timeout": 180, "request_timeout": 180}


class OnBase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create("base", metadata=META, envs={"FROM_SANDBOX": "yes"}, request_timeout=180)
        cls.run_code = lambda self, code, **kw: cls.sbx.run_code(code, **{**LONG, **kw})

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def test_state_and_numbers(self):
        ctx = self.sbx.create_code_context(cwd="/tmp", request_timeout=180)
        self.assertEqual((ctx.language, ctx.cwd), ("python", "/tmp"))
        self.assertEqual(self.run_code("x = 1; x", context=ctx).text, "1")
        r = self.run_code("x += 1; x", context=ctx)
        self.assertEqual((r.text, r.execution_count), ("2", 2))
        self.assertEqual(self.run_code("import os; os.getcwd()", context=ctx).text, "/tmp")
        self.sbx.restart_code_context(ctx)
        self.assertEqual(self.run_code("x", context=ctx).error.name, "NameError")
        self.assertEqual(self.sbx.list_code_contexts()[-1].id, ctx.id)
        self.sbx.remove_code_context(ctx)
        self.assertNotIn(ctx.id, [c.id for c in self.sbx.list_code_contexts()])
        with self.assertRaises(NotFoundException):
            self.run_code("x", context=ctx)

    def test_callbacks(self):
        out, err, results, errors = [], [], [], []
        r = self.run_code("import sys\nprint('a\u2028\u00fc')\nprint('b', file=sys.stderr)\n{'k': [1]}", on_stdout=out.append, on_stderr=err.append,
                          on_result=results.append, on_error=errors.append)
        self.assertEqual(([o.line for o in out], [e.line for e in err], errors), (["a\u2028\u00fc\n"], ["b\n"], []))
        self.assertEqual((len(results), results[0].json, r.results[0].is_main_result), (1, {"k": [1]}, True))
        self.assertIsInstance(out[0].timestamp, (int, str))
        self.assertEqual(self.run_code("1 / 0", on_error=errors.append).error.name, "ZeroDivisionError")
        self.assertEqual(len(errors), 1)

    def test_languages_and_environment(self):
        self.assertEqual(self.run_code("import os; os.getenv('FROM_SANDBOX')").text, "yes")
        self.assertEqual(self.run_code("os.getenv('FROM_SANDBOX')", envs={"FROM_SANDBOX": "cell"}).text, "cell")
        self.assertEqual(self.run_code("process.env.FROM_SANDBOX", language="js").text, "yes")
        self.assertEqual(self.run_code("echo $FROM_SANDBOX", language="bash").logs.stdout, ["yes\n"])
        self.assertEqual(self.run_code("    y = 1\n    y + 1").text, "2")

    def test_interrupted_when_the_client_leaves(self):
        self.run_code("z = 5")
        with self.assertRaises(Exception):
            self.sbx.run_code("import time; time.sleep(1000)", timeout=2)
        self.assertEqual(self.run_code("z").text, "5")
        self.assertEqual(Sandbox.connect(self.sbx.sandbox_id).run_code("z", **LONG).text, "5")

    def test_asynchronously(self):
        async def go():
            sbx = await AsyncSandbox.connect(self.sbx.sandbox_id)
            got = []

            async def on_stdout(m):
                got.append(m.line)
            r = await sbx.run_code("print('hi'); 6 * 7", on_stdout=on_stdout, **LONG)
            return r.text, got
        self.assertEqual(asyncio.run(go()), ("42", ["hi\n"]))


class Tokens(unittest.TestCase):
    """The SDK as it is gets through every door, also where E2B's own would be open, and nobody gets through without what it sends."""

    def check(self, sbx):
        self.assertEqual(sbx.run_code("6 * 7", **LONG).text, "42")
        ctx = sbx.create_code_context(request_timeout=180)
        self.assertIn(ctx.id, [c.id for c in sbx.list_code_contexts()])
        sbx.restart_code_context(ctx)
        sbx.remove_code_context(ctx)
        sbx.files.write("a.txt", "hello")
        self.assertEqual(urllib.request.urlopen(sbx.download_url("a.txt")).read(), b"hello")
        for path, body in (("/execute", b'{"code":"1"}'), ("/contexts", None)):
            ask = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + path, body, {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": "49999", "Content-Type": "application/json"})
            with self.assertRaises(urllib.error.HTTPError) as e:
                urllib.request.urlopen(ask)
            self.assertEqual(e.exception.code, 401)
            e.exception.close()

    def test_insecure(self):
        sbx = Sandbox.create("base", metadata=META, secure=False, request_timeout=180)
        self.addCleanup(sbx.kill)
        self.check(sbx)
        self.check(Sandbox.connect(sbx.sandbox_id))

    def test_private_ports(self):
        sbx = Sandbox.create("base", metadata=META, network={"allow_public_traffic": False}, request_timeout=180)
        self.addCleanup(sbx.kill)
        self.assertEqual(sbx.run_code("6 * 7", **LONG).text, "42")
        self.assertTrue(Sandbox.connect(sbx.sandbox_id).list_code_contexts())


@unittest.skipUnless(NOTEBOOK, "no template with pandas and matplotlib here")
class WithKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sbx = Sandbox.create(NOTEBOOK, metadata=META, request_timeout=180)

    @classmethod
    def tearDownClass(cls):
        cls.sbx.kill()

    def result(self, code):
        r = self.sbx.run_code("import matplotlib.pyplot as plt\n" + code, **LONG)
        self.assertIsNone(r.error)
        return r.results[-1]

    def test_charts_are_typed(self):
        line = self.result("plt.plot([1, 2], [3, 4], label='a'); plt.title('T'); plt.xlabel('Time (s)'); plt.show()")
        self.assertTrue(line.png.startswith("iVBOR"))
        self.assertEqual((line.chart.type.value, line.chart.title, line.chart.x_unit, line.chart.elements[0].points), ("line", "T", "s", [(1.0, 3.0), (2.0, 4.0)]))
        bar = self.result("plt.bar(['A', 'B'], [1, 2]); plt.show()").chart
        self.assertEqual([(e.label, e.group, e.value) for e in bar.elements], [("A", "Group 1", 1), ("B", "Group 1", 2)])
        pie = self.result("plt.pie([75, 25], labels=['x', 'y']); plt.show()").chart
        self.assertEqual([(e.label, e.angle) for e in pie.elements], [("x", 270), ("y", 90)])
        box = self.result("plt.boxplot([[1, 2, 3, 4, 5]], labels=['b'], patch_artist=True); plt.show()").chart
        self.assertEqual((box.type.value, box.elements[0].median, box.elements[0].outliers), ("box_and_whisker", 3, []))
        two = self.result("fig, ax = plt.subplots(1, 2); ax[0].plot([1]); ax[1].scatter([1], [2]); plt.show()").chart
        self.assertEqual([c.type.value for c in two.elements], ["line", "scatter"])

    # What the SDK's classes hold, by class: every member they declare, so that none is missing or invented.
    CHARTS = {
        "LineChart": ("plt.plot([1, 2], [3, 4], label='a')", {"type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit", "x_ticks", "x_tick_labels", "x_scale",
                                                             "y_ticks", "y_tick_labels", "y_scale"}, {"label", "points"}),
        "ScatterChart": ("plt.scatter([1, 2], [3, 4])", {"type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit", "x_ticks", "x_tick_labels", "x_scale",
                                                        "y_ticks", "y_tick_labels", "y_scale"}, {"label", "points"}),
        "BarChart": ("plt.bar(['A', 'B'], [1, 2])", {"type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit"}, {"label", "group", "value"}),
        "PieChart": ("plt.pie([1, 2], labels=['A', 'B'])", {"type", "title", "elements"}, {"label", "angle", "radius"}),
        "BoxAndWhiskerChart": ("plt.boxplot([[1, 2, 3, 4, 9]], labels=['b'], patch_artist=True)", {"type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit"},
                               {"label", "min", "first_quartile", "median", "third_quartile", "max", "outliers"}),
    }

    def test_charts_field_by_field(self):
        for name, (code, members, of_element) in self.CHARTS.items():
            chart = self.result("plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Load [kg]'); " + code + "; plt.show()").chart
            self.assertEqual(type(chart).__name__, name)
            self.assertEqual(set(chart.to_dict()), members, name)
            self.assertEqual({frozenset(e) for e in chart.to_dict()["elements"]}, {frozenset(of_element)}, name)
            self.assertEqual(set(vars(chart)) - {"_raw_data"}, members, name)
            for e, raw in zip(chart.elements, chart.to_dict()["elements"]):
                self.assertEqual({k: [list(p) for p in v] if k == "points" else v for k, v in vars(e).items()}, raw, name)
            self.assertEqual(chart.title, "T")
            if "x_unit" in members:
                self.assertEqual((chart.x_label, chart.x_unit, chart.y_label, chart.y_unit), ("Time (s)", "s", "Load [kg]", "kg"), name)
            if "x_ticks" in members:
                self.assertEqual((len(chart.x_ticks), len(chart.y_ticks)), (len(chart.x_tick_labels), len(chart.y_tick_labels)), name)
                self.assertEqual((chart.x_scale.value, chart.y_scale.value), ("linear", "linear"), name)
        two = self.result("fig, ax = plt.subplots(1, 2); fig.suptitle('S'); ax[0].bar(['A'], [1]); ax[1].pie([1, 2]); plt.show()").chart
        self.assertEqual((type(two).__name__, set(two.to_dict()), two.title, [type(c).__name__ for c in two.elements]),
                         ("SuperChart", {"type", "title", "elements"}, "S", ["BarChart", "PieChart"]))

    def test_six_languages(self):
        for language, code, want in (("python", "6 * 7", "42"), ("javascript", "6 * 7", "42"), ("typescript", "const n: number = 6\nn * 7", "42"), ("bash", "echo $((6 * 7))", "42"),
                                     ("r", "6 * 7", "[1] 42"), ("java", "6 * 7", "42")):
            r = self.sbx.run_code(code, language=language, **LONG)
            self.assertIsNone(r.error, language)
            self.assertEqual((r.text or "".join(r.logs.stdout)).strip(), want, language)

    def test_tables(self):
        df = self.result("import pandas as pd\npd.DataFrame({'a': [1, 2], 't': pd.to_datetime(['2024-01-01', '2024-01-02'])})")
        self.assertEqual(df.data, {"a": [1, 2], "t": ["2024-01-01T00:00:00", "2024-01-02T00:00:00"]})
        self.assertIn("<table", df.html)
        self.assertEqual(set(df.formats()) >= {"text", "html", "data"}, True)


if __name__ == "__main__":
    unittest.main()
