// Sandbox.pty of the real SDK.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { CommandExitError, Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const bytes = (s) => new TextEncoder().encode(s)

async function open(sbx, opts = {}) {
  let text = ''
  const wakers = new Set()
  const h = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 60000, ...opts, onData: (d) => { text += Buffer.from(d).toString(); wakers.forEach((f) => f()) } })
  const until = (re) => new Promise((ok, no) => {
    const t = setTimeout(() => { wakers.delete(look); no(new Error(`no ${re} in ${JSON.stringify(text)}`)) }, 30000)
    const look = () => { if (re.test(text)) { clearTimeout(t); wakers.delete(look); ok(text) } }
    wakers.add(look)
    look()
  })
  return { h, until, text: () => text, type: (s) => sbx.pty.sendInput(h.pid, bytes(s)) }
}

describe('pty', () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata, envs: { BASE: 'b' } }) })
  after(async () => { await sbx?.kill() })

  it('is a terminal with input, environment and an end', async () => {
    const p = await open(sbx, { envs: { EXTRA: 'e' }, cwd: '/tmp' })
    await p.type('tty; echo "[$TERM $LANG $BASE $EXTRA $PWD]"\n')
    await p.until(/\/dev\/pts\/\d+/)
    await p.until(/\[xterm-256color C.UTF-8 b e \/tmp\]/)
    await p.type('exit 0\n')
    assert.equal((await p.h.wait()).exitCode, 0)
  })
  it('resizes', async () => {
    const p = await open(sbx)
    await p.type('stty size\n')
    await p.until(/24 80/)
    await sbx.pty.resize(p.h.pid, { cols: 120, rows: 40 })
    await p.type('stty size\n')
    await p.until(/40 120/)
    assert.equal(await sbx.pty.kill(p.h.pid), true)
    await assert.rejects(p.h.wait(), (e) => e instanceof CommandExitError && e.message === 'signal: killed')
    assert.equal(await sbx.pty.kill(p.h.pid), false)
  })
  it('can be left and joined again', async () => {
    const p = await open(sbx, { timeoutMs: 0 })
    await p.type('MARK=kept\n')
    await p.h.disconnect()
    let seen = ''
    const again = await sbx.pty.connect(p.h.pid, { onData: (d) => { seen += Buffer.from(d).toString() } })
    await sbx.pty.sendInput(p.h.pid, bytes('echo is-$MARK; exit 7\n'))
    await assert.rejects(again.wait(), (e) => e.exitCode === 7)
    assert.match(seen, /is-kept/)
  })
  it('runs as another user', async () => {
    const p = await open(sbx, { user: 'root' })
    await p.type('echo who-$(whoami)\n')
    await p.until(/who-root/)
    await sbx.pty.kill(p.h.pid)
  })
})
