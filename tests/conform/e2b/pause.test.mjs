// Pause, connect, auto-pause and auto-resume of the real SDK. A container keeps its files only; see docs/e2b.md.
import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { NotFoundError, Sandbox } from 'e2b'

const vm = process.env.HUTCH_TIER !== 'container'
const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' }
const post = (path, body) => fetch(api + path, { method: 'POST', headers: key, body: JSON.stringify(body) })
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
const until = async (fn, ms = 30_000) => {
  for (const end = Date.now() + ms; ;) {
    const v = await fn()
    if (v) return v
    if (Date.now() > end) throw new Error('not in time')
    await sleep(100)
  }
}
const made = []
const create = async (opts = {}) => {
  const s = await Sandbox.create('base', { metadata, timeoutMs: 120_000, ...opts })
  made.push(s)
  return s
}
after(async () => { for (const s of made) await s.kill().catch(() => {}) })

describe('pause and connect', () => {
  it('files, environment and processes are there again', async () => {
    const sbx = await create({ envs: { A: '1' } })
    await sbx.files.write('/home/user/f', 'kept')
    const cmd = await sbx.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    const token = (await sbx.getInfo()).envdAccessToken
    assert.equal(await sbx.pause(), true)
    assert.equal(await sbx.isRunning(), false)
    assert.equal(await sbx.pause(), false, 'paused already')
    const info = await sbx.getInfo()
    assert.equal(info.state, 'paused')
    const list = async (state) => (await Sandbox.list({ query: { state } }).nextItems()).some((s) => s.sandboxId === sbx.sandboxId)
    assert.ok(await list(['paused']))
    assert.ok(!(await list(['running'])))
    await assert.rejects(sbx.setTimeout(10_000), NotFoundError)
    await assert.rejects(sbx.commands.run('true'))
    const again = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 60_000 })
    assert.equal(await again.isRunning(), true)
    assert.equal(await again.files.read('/home/user/f'), 'kept')
    assert.equal((await again.commands.run('echo $A')).stdout, '1\n')
    assert.equal((await again.getInfo()).envdAccessToken, token)
    const pids = (await again.commands.list()).map((p) => p.pid)
    assert.equal(pids.includes(cmd.pid), vm, 'a machine keeps its processes')
    assert.equal((await again.getInfo()).startedAt.getTime(), info.startedAt.getTime())
  })

  it('several times in a row', async () => {
    const sbx = await create()
    for (let i = 0; i < 4; i++) {
      await sbx.files.write(`/home/user/${i}`, String(i))
      assert.equal(await sbx.pause(), true)
      await sbx.connect()
      for (let k = 0; k <= i; k++) assert.equal(await sbx.files.read(`/home/user/${k}`), String(k))
    }
  })

  it('without memory it is a reboot', async () => {
    const sbx = await create()
    const boot = (await sbx.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout
    await sbx.files.write('/home/user/f', 'kept')
    assert.equal(await sbx.pause({ keepMemory: false }), true)
    await sbx.connect()
    assert.equal(await sbx.files.read('/home/user/f'), 'kept')
    assert.notEqual((await sbx.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout, boot)
  })

  it('kill removes a paused one', async () => {
    const sbx = await create()
    await sbx.pause()
    assert.equal(await sbx.kill(), true)
    assert.equal(await sbx.kill(), false)
    await assert.rejects(Sandbox.connect(sbx.sandboxId), NotFoundError)
  })

  it('old resume: 201, then 409', async () => {
    const sbx = await create()
    assert.equal((await post(`/sandboxes/${sbx.sandboxId}/pause`, {})).status, 204)
    const twice = await post(`/sandboxes/${sbx.sandboxId}/pause`, {})
    assert.equal(twice.status, 409)
    assert.equal((await twice.json()).code, 409)
    const r = await post(`/sandboxes/${sbx.sandboxId}/resume`, { timeout: 60 })
    assert.equal(r.status, 201)
    assert.equal((await r.json()).sandboxID, sbx.sandboxId)
    assert.equal((await post(`/sandboxes/${sbx.sandboxId}/resume`, { timeout: 60 })).status, 409)
    assert.equal((await post('/sandboxes/i00000000000000000000/pause', {})).status, 404)
  })

  it('a stream is cut, not ended', async () => {
    const sbx = await create()
    const cmd = await sbx.commands.run('while :; do echo x; sleep 0.1; done', { background: true, timeoutMs: 0 })
    const end = cmd.wait().then(() => 'ended', (e) => e.name)
    await sleep(500)
    await sbx.pause()
    assert.notEqual(await end, 'ended')
  })
})

describe('by itself', () => {
  it('pauses at its timeout', async () => {
    const sbx = await create({ timeoutMs: 2_000, lifecycle: { onTimeout: 'pause' } })
    assert.equal((await sbx.getInfo()).lifecycle.onTimeout, 'pause')
    await sbx.files.write('/home/user/f', 'kept')
    await until(async () => (await sbx.getInfo()).state === 'paused')
    assert.equal(await sbx.isRunning(), false)
    await sbx.connect({ timeoutMs: 60_000 })
    assert.equal(await sbx.files.read('/home/user/f'), 'kept')
  })

  it('wakes by traffic', { skip: !vm && 'a container that is paused keeps no memory' }, async () => {
    const sbx = await create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    await sbx.commands.run('python3 -m http.server 3000', { background: true, timeoutMs: 0 })
    await sbx.files.write('/home/user/hello', 'hi there')
    const ask = () => fetch(`${api}/hello`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '3000' } })
    await until(async () => (await ask()).status === 200)
    await sbx.pause()
    assert.equal((await sbx.getInfo()).state, 'paused')
    const r = await ask()
    assert.equal(r.status, 200)
    assert.equal(await r.text(), 'hi there')
    const info = await sbx.getInfo()
    assert.equal(info.state, 'running')
    assert.ok(info.endAt - Date.now() > 200_000, 'at least five minutes from now')
    await sbx.pause()
    assert.equal(await sbx.files.read('/home/user/hello'), 'hi there')
  })

  it('does not wake without having asked for it', async () => {
    const sbx = await create()
    await sbx.pause()
    const r = await fetch(`${api}/`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '3000' } })
    assert.equal(r.status, 502)
    assert.deepEqual(await r.json(), { sandboxId: sbx.sandboxId, message: 'The sandbox was not found', code: 502 })
    assert.equal((await sbx.getInfo()).state, 'paused')
  })

  it('a pause without memory is not woken by traffic', async () => {
    const r = await post('/v2/sandboxes', { templateID: 'base', metadata, autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } })
    assert.equal(r.status, 400)
    assert.equal((await post('/v2/sandboxes', { templateID: 'base', metadata, autoPauseMemory: false })).status, 400)
  })
})
