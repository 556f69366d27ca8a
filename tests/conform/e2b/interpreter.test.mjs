// The real @e2b/code-interpreter. On template base everywhere; figures, tables and all six languages where a template
// has them (HUTCH_NOTEBOOK).
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { NotFoundError, TimeoutError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const wait = (ms) => new Promise((r) => setTimeout(r, ms))
const slow = { timeout: 240_000 }
const long = { requestTimeoutMs: 180_000, timeoutMs: 180_000 }
const create = (template, more = {}) => Sandbox.create(template, { metadata, timeoutMs: 1_800_000, requestTimeoutMs: 180_000, ...more })

describe('code interpreter on base', slow, () => {
  let sbx
  before(async () => { sbx = await create('base', { envs: { FROM_SANDBOX: 'yes' } }) }, slow)
  after(async () => { await sbx?.kill() })
  const run = (code, o = {}) => sbx.runCode(code, { ...long, ...o })

  it('runs a cell and keeps its state', slow, async () => {
    assert.equal((await run('x = 1; x')).text, '1')
    const r = await run('x + 1')
    assert.equal(r.text, '2')
    assert.equal(r.executionCount, 2)
    assert.deepEqual(r.results[0].extra, {})
    assert.equal((await run("'bar'")).text, 'bar')
  })
  it('streams to callbacks, one call a print', slow, async () => {
    const out = [], err = [], results = [], errors = []
    const r = await run('import sys\nprint("héllo\\u2028")\nprint("e", file=sys.stderr)\nx', {
      onStdout: (m) => out.push(m), onStderr: (m) => err.push(m), onResult: (m) => results.push(m), onError: (m) => errors.push(m) })
    assert.deepEqual(r.logs.stdout, ['héllo\u2028\n'])
    assert.deepEqual(r.logs.stderr, ['e\n'])
    assert.deepEqual([out.length, err.length, results.length, errors.length], [1, 1, 1, 0])
    assert.ok(out[0].timestamp)
    const e = await run('xyz', { onError: (m) => errors.push(m) })
    assert.equal(errors.length, 1)
    assert.deepEqual([e.error.name, e.error.value], ['NameError', "name 'xyz' is not defined"])
  })
  it('takes indented code, shell lines and environment variables', slow, async () => {
    assert.equal((await run('    y = 1\n    y + 1')).text, '2')
    assert.equal((await run('!pwd')).logs.stdout.join('').trim(), '/home/user')
    assert.equal((await run("import os; os.getenv('FROM_SANDBOX')")).text, 'yes')
    assert.equal((await run("os.getenv('FROM_SANDBOX')", { envs: { FROM_SANDBOX: 'no' } })).text, 'no')
    assert.equal((await run("os.getenv('FROM_SANDBOX')")).text, 'yes')
    assert.deepEqual((await run("{'a': [1, 2]}")).results[0].json, { a: [1, 2] })
  })
  it('has contexts', slow, async () => {
    const before = await sbx.listCodeContexts()
    assert.ok(['python', 'javascript'].every((l) => before.some((c) => c.language === l)))
    const ctx = await sbx.createCodeContext({ cwd: '/tmp', ...long })
    assert.deepEqual([ctx.language, ctx.cwd], ['python', '/tmp'])
    assert.equal((await sbx.listCodeContexts()).at(-1).id, ctx.id)
    assert.equal((await run('import os; os.getcwd()', { context: ctx })).text, '/tmp')
    assert.equal((await run('x', { context: ctx })).error.value, "name 'x' is not defined")
    await run('mine = 1', { context: ctx })
    await sbx.restartCodeContext(ctx, long)
    assert.equal((await run('mine', { context: ctx })).error.name, 'NameError')
    await sbx.removeCodeContext(ctx)
    assert.ok(!(await sbx.listCodeContexts()).some((c) => c.id === ctx.id))
    await assert.rejects(run('1', { context: ctx }), NotFoundError)
  })
  it('speaks javascript and bash', slow, async () => {
    assert.deepEqual((await run('console.log("Hello World!")', { language: 'js' })).logs.stdout, ['Hello World!\n'])
    assert.equal((await run('async function main() { return "hi" }\nawait main()', { language: 'javascript' })).text, 'hi')
    assert.equal((await run('const z = 1', { language: 'js' })).error, undefined)
    assert.equal((await run('z', { language: 'js' })).text, '1')
    assert.equal((await run('process.cwd()', { language: 'js' })).text, '/home/user')
    assert.deepEqual((await run('echo $FOO', { language: 'bash', envs: { FOO: 'bar' } })).logs.stdout, ['bar\n'])
    assert.deepEqual((await run('echo ${FOO:-default}', { language: 'bash' })).logs.stdout, ['default\n'])
    const left = await run('process.exit(3)', { language: 'js', timeoutMs: 60_000 })
    assert.deepEqual([left.error.name, left.error.value], ['KernelEnded', 'exited with status 3'])
    assert.equal((await run('typeof z', { language: 'js' })).text, 'undefined')
  })
  it('interrupts what a client left behind', slow, async () => {
    await assert.rejects(sbx.runCode('import time; time.sleep(1000)', { timeoutMs: 2000 }))
    assert.equal((await run('x', { timeoutMs: 60_000 })).text, '1')
  })
  it('waits for its turn longer than a request may go unanswered', { ...slow, skip: process.env.HUTCH_TIER === 'vm' ? 'on the container tier' : false }, async () => {
    const before = run('import time; time.sleep(32)')
    await wait(500)
    assert.equal((await run('x', { requestTimeoutMs: 27_000 })).text, '1')
    await before
  })
  it('is there for another client', slow, async () => {
    const again = await Sandbox.connect(sbx.sandboxId)
    assert.equal((await again.runCode('x', long)).text, '1')
  })
  it('says so when the sandbox is killed under a cell', slow, async () => {
    const other = await create('base')
    const cell = assert.rejects(other.runCode('import time; time.sleep(1000)', long), TimeoutError)
    await wait(2000)
    await other.kill()
    await cell
  })
})

const notebook = process.env.HUTCH_NOTEBOOK, full = notebook === 'code-interpreter'
describe('a template with kernels', { timeout: 900_000, skip: notebook ? false : 'no template with pandas and matplotlib here' }, () => {
  let sbx
  before(async () => { sbx = await create(full ? 'code-interpreter-v1' : notebook, { envs: { TEST_ENV_VAR: 'supertest' } }) }, slow)
  after(async () => { await sbx?.kill() })
  const run = (code, o = {}) => sbx.runCode(code, { ...long, ...o })
  const chart = async (code) => (await run('import matplotlib.pyplot as plt\n' + code + '\nplt.show()')).results[0]

  it('is told whose it is', slow, async () => {
    const r = await run("import os; os.getenv('TEST_ENV_VAR')")
    assert.deepEqual([r.text, r.executionCount], ['supertest', 1])
    assert.equal((await run('process.env.TEST_ENV_VAR', { language: 'js' })).text, 'supertest')
    const [python, javascript] = await sbx.listCodeContexts()
    assert.deepEqual([python.language, javascript.language, python.cwd], ['python', 'javascript', '/home/user'])
  })
  it('shows figures with their data', slow, async () => {
    const line = await chart("plt.plot([1, 2], [3, 4], label='a'); plt.xlabel('Time (s)'); plt.title('T')")
    assert.ok(line.png.startsWith('iVBOR') && line.text.startsWith('<Figure size'))
    assert.deepEqual([line.chart.type, line.chart.title, line.chart.x_unit, line.chart.elements[0].label], ['line', 'T', 's', 'a'])
    assert.deepEqual(line.chart.elements[0].points, [[1, 3], [2, 4]])
    const bar = (await chart("plt.bar(['A', 'B'], [100, 200])")).chart
    assert.deepEqual(bar.elements.map((e) => [e.label, e.value]), [['A', 100], ['B', 200]])
    assert.equal((await chart('plt.scatter([1], [2])')).chart.type, 'scatter')
    const pie = (await chart("plt.pie([90, 10], labels=['No', 'Yes'])")).chart
    assert.deepEqual(pie.elements[0], { label: 'No', angle: 324, radius: 1 })
    const box = (await chart("plt.boxplot([[95, 89, 76, 91, 84, 87]], labels=['B'], patch_artist=True)")).chart
    assert.deepEqual(box.elements, [{ label: 'B', min: 84, first_quartile: 84.75, median: 88, third_quartile: 90.5, max: 95, outliers: [76] }])
    const lying = (await chart("plt.boxplot([[1, 2, 3, 4, 10], [2, 3, 4, 5, 6]], labels=['A', 'B'], vert=False, patch_artist=True)")).chart
    assert.deepEqual(lying.elements.map((e) => [e.label, e.min, e.median, e.max, e.outliers]), [['A', 1, 3, 4, [10]], ['B', 2, 4, 6, []]])
    const two = (await chart("fig, a = plt.subplots(1, 2); fig.suptitle('S'); a[0].plot([1, 2]); a[1].scatter([1], [2])")).chart
    assert.deepEqual([two.type, two.title, two.elements.map((e) => e.type)], ['superchart', 'S', ['line', 'scatter']])
    assert.equal((await chart("plt.plot([1, 10, 100]); plt.yscale('log')")).chart.y_scale, 'log')
    const dates = (await chart("import datetime; plt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])")).chart
    assert.deepEqual([dates.x_scale, dates.elements[0].points[0]], ['datetime', ['2024-01-01T00:00:00+00:00', 1]])
    const words = (await chart("plt.plot(['a', 'b'], [1, 2])")).chart
    assert.deepEqual([words.x_scale, words.elements[0].points], ['categorical', [['a', 1], ['b', 2]]])
    assert.deepEqual((await chart('plt.figure(); plt.text(0, 0, "only text")')).chart ?? {}, {})
  })
  it('shows tables and images', slow, async () => {
    const df = (await run('import pandas as pd\npd.DataFrame({"a": [1, 2, 3]})')).results[0]
    assert.deepEqual(df.data, { a: [1, 2, 3] })
    assert.ok(df.html.includes('<table') && df.text.includes('a'))
    const r = await run('import numpy\nfrom PIL import Image\nim = Image.fromarray(numpy.zeros((4, 4, 3), "uint8"))\nim.show()\nim.save("/tmp/x.png")\nim')
    assert.ok(r.results.length === 3 && r.results.every((x) => x.png))
    const latex = await run("from IPython.display import display\ndisplay({'text/latex': r'\\text{x}'}, raw=True)")
    assert.deepEqual(latex.results[0].formats(), ['latex'])
    const bundle = { 'text/plain': 't', 'text/html': '<b>h</b>', 'text/markdown': '# m', 'image/svg+xml': '<svg/>', 'image/png': 'iVBO', 'image/jpeg': '/9j/',
      'application/pdf': 'JVBE', 'text/latex': '$l$', 'application/json': { j: [1] }, 'application/javascript': '1', 'application/x-own': 'o' }
    const all = (await run(`display(${JSON.stringify(bundle)}, raw=True)`)).results[0]
    assert.deepEqual(all.formats().sort(), ['html', 'javascript', 'jpeg', 'json', 'latex', 'markdown', 'pdf', 'png', 'svg'])
    assert.deepEqual([all.text, all.html, all.markdown, all.svg, all.png, all.jpeg, all.pdf, all.latex, all.json, all.javascript, all.raw.extra],
      ['t', '<b>h</b>', '# m', '<svg/>', 'iVBO', '/9j/', 'JVBE', '$l$', { j: [1] }, '1', { 'application/x-own': 'o' }])
    assert.equal(JSON.parse(JSON.stringify(all)).markdown, '# m')
  })
  it('speaks all six languages', slow, async () => {
    assert.equal((await run('function f(x: number): number { return x - 2 }\nf(1)', { language: 'ts' })).text, '-1')
    assert.deepEqual((await run('print("Hello, World!")', { language: 'r' })).logs.stdout, ['[1] "Hello, World!"\n'])
    assert.equal((await run('Sys.getenv("TEST_ENV_VAR")', { language: 'r' })).results[0].text.trim(), '[1] "supertest"')
    assert.equal((await run('getwd()', { language: 'r' })).results[0].text, '[1] "/home/user"')
    assert.equal((await run('System.out.println("Hello, World!")', { language: 'java' })).logs.stdout[0], 'Hello, World!')
    assert.equal((await run('System.getProperty("TEST_ENV_VAR")', { language: 'java' })).text, 'supertest')
    assert.equal((await run('System.getProperty("FOO")', { language: 'java', envs: { FOO: 'bar' } })).text, 'bar')
    assert.equal((await run('System.getProperty("FOO", "default")', { language: 'java' })).text, 'default')
    assert.equal((await run('System.getProperty("user.dir")', { language: 'java' })).text, '/home/user')
  })
  for (const [language, set, get, want, bad, name] of [
    ['python', 'kept = 41', 'kept + 1', '42', '1 / 0', 'ZeroDivisionError'],
    ['javascript', 'const kept = 41', 'kept + 1', '42', 'throw new RangeError("no")', 'RangeError'],
    ['typescript', 'const kept: number = 41', 'kept + 1', '42', 'throw new RangeError("no")', 'RangeError'],
    ['bash', 'kept=41', 'echo $((kept + 1))', '42', 'exit 3', 'ExitStatus'],
    ['r', 'kept <- 41', 'kept + 1', '[1] 42', 'stop("no")', ''],
    ['java', 'int kept = 41;', 'kept + 1', '42', 'throw new IllegalStateException("no");', ''],
  ]) {
    const long_there = process.env.HUTCH_TIER === 'vm' && ['r', 'java'].includes(language) // two more starts of each under emulation: on request
    it(`a context of ${language}`, { timeout: long_there ? 900_000 : slow.timeout, skip: long_there && !process.env.HUTCH_SLOW ? 'on the container tier; a VM speaks it above' : false }, async () => {
      const ctx = await sbx.createCodeContext({ language, cwd: '/tmp', ...long })
      assert.deepEqual([ctx.language, ctx.cwd], [language, '/tmp'])
      const value = async (code) => { const r = await run(code, { context: ctx }); return r.text ?? r.logs.stdout.join('').trim() }
      assert.equal((await run(set, { context: ctx })).error, undefined)
      assert.equal(await value(get), want)
      const e = (await run(bad, { context: ctx })).error
      assert.ok(e && e.name.includes(name) && e.traceback, JSON.stringify(e))
      await sbx.restartCodeContext(ctx, long)
      const lost = await run(get, { context: ctx })
      assert.notEqual(lost.text ?? lost.logs.stdout.join('').trim(), want)
      await sbx.removeCodeContext(ctx, long)
      assert.ok(!(await sbx.listCodeContexts()).some((c) => c.id === ctx.id))
    })
  }
  it('is as it was after a pause', { ...slow, skip: process.env.HUTCH_TIER === 'vm' ? false : 'a container keeps its files only' }, async () => {
    const ctx = await sbx.createCodeContext({ language: 'bash', ...long })
    await run('x=7', { context: ctx })
    await run('kept = [1, 2]')
    assert.equal(await sbx.pause(), true)
    const again = await Sandbox.connect(sbx.sandboxId, { requestTimeoutMs: 180_000 })
    assert.equal((await again.runCode('kept', long)).text, '[1, 2]')
    assert.deepEqual((await again.runCode('echo $x', { context: ctx, ...long })).logs.stdout, ['7\n'])
    assert.ok((await again.listCodeContexts()).some((c) => c.id === ctx.id))
  })
})
