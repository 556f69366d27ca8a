// Sandbox.commands of the real SDK. HUTCH_TIER picks the isolation (vm, container).
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { AuthenticationError, CommandExitError, InvalidArgumentError, Sandbox, TimeoutError } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const wait = (ms) => new Promise((r) => setTimeout(r, ms))

describe('commands', () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata, envs: { FROM_SANDBOX: 'yes', SHADOWED: 'sandbox' } }) })
  after(async () => { await sbx?.kill() })

  it('returns output and status', async () => {
    const r = await sbx.commands.run('printf out; printf err >&2')
    assert.equal(r.exitCode, 0)
    assert.equal(r.stdout, 'out')
    assert.equal(r.stderr, 'err')
    assert.equal(r.error, undefined)
  })
  it('throws on a non-zero status', async () => {
    await assert.rejects(sbx.commands.run('echo x; exit 3'), (e) => {
      assert.ok(e instanceof CommandExitError)
      assert.equal(e.exitCode, 3)
      assert.equal(e.message, 'exit status 3')
      assert.equal(e.stdout, 'x\n')
      return true
    })
  })
  it('says 127 for what bash does not find', async () => {
    await assert.rejects(sbx.commands.run('no-such-program-at-all'), (e) => e.exitCode === 127)
  })
  it('streams to callbacks', async () => {
    const out = [], err = []
    await sbx.commands.run('for i in 1 2 3; do echo $i; echo e$i >&2; sleep 0.05; done', { onStdout: (d) => out.push(d), onStderr: (d) => err.push(d) })
    assert.equal(out.join(''), '1\n2\n3\n')
    assert.equal(err.join(''), 'e1\ne2\ne3\n')
  })
  it('keeps characters that were split on the way', async () => {
    const r = await sbx.commands.run("printf '\\xe2\\x82'; sleep 0.2; printf '\\xac'")
    assert.equal(r.stdout, '€')
  })
  it('passes a lot of output', async () => {
    const r = await sbx.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert.equal(r.stdout.length, 3000000)
  })
  it('has the environment in the right order', async () => {
    const r = await sbx.commands.run('echo $FROM_SANDBOX $SHADOWED $OWN $HOME $USER $LOGNAME $E2B_SANDBOX $E2B_SANDBOX_ID', { envs: { SHADOWED: 'request', OWN: '1' } })
    assert.equal(r.stdout, `yes request 1 /home/user user user true ${sbx.sandboxId}\n`)
    assert.equal((await sbx.commands.run('echo $SHADOWED $OWN')).stdout, 'sandbox\n')
  })
  it('obeys cwd', async () => {
    assert.equal((await sbx.commands.run('pwd')).stdout, '/home/user\n')
    assert.equal((await sbx.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    await sbx.files.makeDir('deep/er')
    assert.equal((await sbx.commands.run('pwd', { cwd: 'deep/er' })).stdout, '/home/user/deep/er\n')
    assert.equal((await sbx.commands.run('pwd', { cwd: '~/deep' })).stdout, '/home/user/deep\n')
  })
  it('refuses a cwd that is not there', async () => {
    await assert.rejects(sbx.commands.run('pwd', { cwd: '/no/such' }), (e) => {
      assert.ok(e instanceof InvalidArgumentError, e.name)
      assert.match(e.message, /cwd '\/no\/such' does not exist/)
      return true
    })
  })
  it('runs as the named user', async () => {
    assert.equal((await sbx.commands.run('whoami; pwd', { user: 'root' })).stdout, 'root\n/root\n')
    assert.equal((await sbx.commands.run('whoami')).stdout, 'user\n')
    assert.equal((await sbx.commands.run('sudo whoami')).stdout, 'root\n')
  })
  it('refuses an unknown user', async () => {
    await assert.rejects(sbx.commands.run('true', { user: 'nobody-here' }), (e) => {
      assert.ok(e instanceof AuthenticationError, e.name)
      assert.match(e.message, /invalid username: 'nobody-here'/)
      return true
    })
  })
  it('kills at the timeout', async () => {
    await assert.rejects(sbx.commands.run('echo $$ > /tmp/timed; exec sleep 300', { timeoutMs: 1500 }), (e) => e instanceof TimeoutError)
    await wait(500)
    await assert.rejects(sbx.commands.run('kill -0 $(cat /tmp/timed)'), (e) => e instanceof CommandExitError)
  })
  it('runs in the background, lists, kills', async () => {
    const h = await sbx.commands.run('sleep 300', { background: true })
    assert.ok(h.pid > 0)
    await sbx.commands.run(`kill -0 ${h.pid}`)
    const p = (await sbx.commands.list()).find((x) => x.pid === h.pid)
    assert.equal(p.cmd, '/bin/bash')
    assert.deepEqual(p.args, ['-l', '-c', 'sleep 300'])
    assert.equal(await sbx.commands.kill(h.pid), true)
    await assert.rejects(h.wait(), (e) => {
      assert.ok(e instanceof CommandExitError)
      assert.equal(e.exitCode, -1)
      assert.equal(e.message, 'signal: killed')
      return true
    })
    assert.equal(await sbx.commands.kill(h.pid), false)
    assert.equal((await sbx.commands.list()).some((x) => x.pid === h.pid), false)
  })
  it('says false for a process that never was', async () => {
    assert.equal(await sbx.commands.kill(999999), false)
    await assert.rejects(sbx.commands.connect(999999), /process with pid 999999 not found/)
  })
  it('leaves the process alone when the client goes', async () => {
    const h = await sbx.commands.run('sleep 1; echo done > /home/user/left; sleep 300', { background: true })
    await h.disconnect()
    await wait(1800)
    assert.equal(await sbx.files.read('left'), 'done\n')
    assert.equal((await sbx.commands.list()).some((x) => x.pid === h.pid), true)
    assert.equal(await sbx.commands.kill(h.pid), true)
  })
  it('connects several listeners to one process', async () => {
    const h = await sbx.commands.run('read x; echo got $x; exit 4', { background: true, stdin: true })
    const a = await sbx.commands.connect(h.pid), b = await sbx.commands.connect(h.pid)
    assert.equal(a.pid, h.pid)
    await sbx.commands.sendStdin(h.pid, 'one\n')
    for (const x of [h, a, b])
      await assert.rejects(x.wait(), (e) => e.exitCode === 4 && e.stdout === 'got one\n')
  })
  it('still answers for a process that ended a moment ago', async () => {
    const h = await sbx.commands.run('exit 5', { background: true })
    await assert.rejects(h.wait(), (e) => e.exitCode === 5)
    const again = await sbx.commands.connect(h.pid)
    await assert.rejects(again.wait(), (e) => e.exitCode === 5)
  })
  it('feeds stdin in order and closes it', async () => {
    const h = await sbx.commands.run('cat', { background: true, stdin: true })
    for (let i = 0; i < 20; i++) await sbx.commands.sendStdin(h.pid, `line ${i}\n`)
    await sbx.commands.closeStdin(h.pid)
    const r = await h.wait()
    assert.equal(r.stdout, [...Array(20).keys()].map((i) => `line ${i}\n`).join(''))
  })
  it('takes more stdin than a pipe holds', async () => {
    const h = await sbx.commands.run('sleep 0.3; wc -c', { background: true, stdin: true })
    await sbx.commands.sendStdin(h.pid, 'y'.repeat(300000))
    await sbx.commands.closeStdin(h.pid)
    assert.equal((await h.wait()).stdout.trim(), '300000')
  })
  it('has no stdin unless asked', async () => {
    assert.equal((await sbx.commands.run('cat; echo end')).stdout, 'end\n')
    const h = await sbx.commands.run('sleep 300', { background: true })
    await assert.rejects(sbx.commands.sendStdin(h.pid, 'x'))
    await h.kill()
  })
  it('waits for whoever holds the output', async () => {
    const t0 = Date.now()
    const r = await sbx.commands.run('(sleep 1; echo late) &')
    assert.equal(r.stdout, 'late\n')
    assert.ok(Date.now() - t0 >= 900)
  })
  it('runs many at once', async () => {
    const all = await Promise.all([...Array(40).keys()].map((i) => sbx.commands.run(`echo ${i}`)))
    all.forEach((r, i) => assert.equal(r.stdout, `${i}\n`))
  })
  it('cuts a running command when the sandbox is killed', async () => {
    const other = await Sandbox.create({ metadata })
    const run = other.commands.run('sleep 300', { timeoutMs: 0 })
    const check = assert.rejects(run, (e) => {
      assert.ok(e instanceof TimeoutError, `${e.name}: ${e.message}`)
      return true
    })
    await wait(700)
    await other.kill()
    await check
    assert.equal(await other.isRunning(), false)
  })
})
