// The control plane of the real SDK: create, list, pages, metadata, info, connect, kill. HUTCH_TIER picks the isolation.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, describe, it } from 'node:test'
import { AuthenticationError, NotFoundError, Sandbox, SandboxError } from 'e2b'

const tier = process.env.HUTCH_TIER
const metadata = tier ? { 'hutch.isolation': tier } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY }
const get = (path, headers = key) => fetch(api + path, { headers })
const post = (path, body, method = 'POST') => fetch(api + path, { method, headers: { ...key, 'Content-Type': 'application/json' }, body: JSON.stringify(body) })
const all = async (opts) => {
  const p = Sandbox.list(opts), out = []
  while (p.hasNext) out.push(...await p.nextItems())
  return out
}

describe('one sandbox', () => {
  let sbx
  before(async () => { sbx = await Sandbox.create('base', { metadata: { ...metadata, who: 'a b&c=d/é%20' }, timeoutMs: 60_000, envs: { X: '1', E2B_SANDBOX_ID: 'mine' } }) })
  after(async () => { await sbx?.kill() })

  it('has an id that fits a host label', () => assert.match(sbx.sandboxId, /^[a-z0-9]{1,40}$/))
  it('is described by getInfo', async () => {
    const i = await sbx.getInfo()
    assert.equal(i.sandboxId, sbx.sandboxId)
    assert.equal(i.name, 'base')
    assert.equal(i.metadata.who, 'a b&c=d/é%20')
    assert.equal(i.state, 'running')
    assert.ok(i.startedAt instanceof Date && i.endAt > i.startedAt)
    assert.ok(i.cpuCount >= 1 && i.memoryMB >= 128)
    assert.equal(i.envdVersion, '0.6.13')
    assert.ok(Math.abs(i.endAt - i.startedAt - 60_000) < 5_000)
    assert.equal(i.lifecycle?.onTimeout ?? 'kill', 'kill')
  })
  it('runs', async () => assert.equal(await sbx.isRunning(), true))
  it('is in the list, by metadata and by template', async () => {
    const hit = (l) => l.some((s) => s.sandboxId === sbx.sandboxId)
    assert.ok(hit(await all()))
    assert.ok(hit(await all({ query: { metadata: { who: 'a b&c=d/é%20' } } })))
    assert.ok(!hit(await all({ query: { metadata: { who: 'other' } } })))
    assert.ok(hit(await all({ query: { state: ['running'] } })))
    assert.ok(!hit(await all({ query: { state: ['paused'] } })))
    const info = await sbx.getInfo()
    for (const t of ['base', info.templateId]) {
      const r = await (await get(`/v2/sandboxes?template=${t}`)).json()
      assert.ok(r.some((s) => s.sandboxID === sbx.sandboxId))
    }
    assert.deepEqual(await (await get('/v2/sandboxes?template=none-such')).json(), [])
  })
  it('knows where it is', async () => {
    const r = await sbx.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID $X; cat /run/e2b/.E2B_SANDBOX /run/e2b/.E2B_SANDBOX_ID; echo; cat /.e2b')
    const i = await sbx.getInfo()
    assert.match(r.stdout, new RegExp(`^true ${sbx.sandboxId} ${i.templateId} 1\ntrue${sbx.sandboxId}\nTEMPLATE_ID=${i.templateId}\nBUILD_ID=`))
  })
  it('connects, with the same tokens', async () => {
    const again = await Sandbox.connect(sbx.sandboxId)
    assert.equal(again.sandboxId, sbx.sandboxId)
    assert.equal((await again.commands.run('echo hi')).stdout, 'hi\n')
  })
  it('connect extends and never shortens', async () => {
    await sbx.setTimeout(600_000)
    const long = (await sbx.getInfo()).endAt
    await Sandbox.connect(sbx.sandboxId, { timeoutMs: 10_000 })
    assert.equal(+(await sbx.getInfo()).endAt, +long)
    await Sandbox.connect(sbx.sandboxId, { timeoutMs: 900_000 })
    assert.ok((await sbx.getInfo()).endAt > long)
    await sbx.setTimeout(120_000)
    assert.ok((await sbx.getInfo()).endAt < long)
  })
  it('has metrics, and none before it existed', async () => {
    const m = await sbx.getMetrics()
    assert.ok(m.length >= 1)
    assert.ok(m[0].memTotal > 0 && m[0].diskTotal > 0 && m[0].cpuCount >= 1)
    assert.deepEqual(await sbx.getMetrics({ start: new Date(0), end: new Date(1000) }), [])
    const batch = await (await get(`/sandboxes/metrics?sandbox_ids=${sbx.sandboxId},ixxxxxxxxxxxxxxxxxxxx`)).json()
    assert.ok(batch.sandboxes[sbx.sandboxId].memTotal > 0)
  })
  it('has logs', async () => {
    const r = await (await get(`/sandboxes/${sbx.sandboxId}/logs`)).json()
    assert.ok(Array.isArray(r.logs) && Array.isArray(r.logEntries))
  })
  it('refuses to resume what runs', async () => {
    assert.equal((await post(`/sandboxes/${sbx.sandboxId}/resume`, {})).status, 409)
  })
})

describe('ends', () => {
  it('kill is true once, false then', async () => {
    const sbx = await Sandbox.create({ metadata })
    assert.equal(await sbx.kill(), true)
    assert.equal(await sbx.kill(), false)
    assert.equal(await Sandbox.kill(sbx.sandboxId), false)
    assert.equal(await sbx.isRunning(), false)
    await assert.rejects(sbx.getInfo(), NotFoundError)
    await assert.rejects(Sandbox.connect(sbx.sandboxId), NotFoundError)
    await assert.rejects(sbx.setTimeout(10_000), NotFoundError)
    assert.ok(!(await all()).some((s) => s.sandboxId === sbx.sandboxId))
  })
  it('at its timeout', async () => {
    const sbx = await Sandbox.create({ metadata, timeoutMs: 2_000 })
    await new Promise((r) => setTimeout(r, 3_000))
    assert.equal(await sbx.isRunning(), false)
    assert.equal(await sbx.kill(), false)
  })
  it('when the timeout is set to nothing', async () => {
    const sbx = await Sandbox.create({ metadata })
    const r = await post(`/sandboxes/${sbx.sandboxId}/timeout`, { timeout: -5 })
    assert.equal(r.status, 204)
    await new Promise((t) => setTimeout(t, 1_000))
    assert.equal(await sbx.isRunning(), false)
  })
})

describe('list', () => {
  const tag = randomUUID(), boxes = []
  before(async () => { for (let i = 0; i < 3; i++) boxes.push(await Sandbox.create({ metadata: { ...metadata, tag, n: String(i) } })) })
  after(async () => { await Promise.all(boxes.map((b) => b.kill())) })
  const ids = (l) => l.map((s) => s.sandboxId)
  const q = encodeURIComponent(new URLSearchParams({ tag: encodeURIComponent(tag) }).toString())

  it('pages without losing or repeating', async () => {
    const p = Sandbox.list({ query: { metadata: { tag } }, limit: 1 }), seen = []
    for (let i = 0; i < 3; i++) {
      assert.equal(p.hasNext, true)
      const page = await p.nextItems()
      assert.equal(page.length, 1)
      seen.push(...page)
    }
    assert.equal(p.hasNext, false)
    assert.deepEqual(ids(seen), boxes.map((b) => b.sandboxId).reverse())
  })
  it('has an order, and the pages keep it', async () => {
    const up = await get(`/v2/sandboxes?order=asc&limit=2&metadata=${q}`)
    assert.equal(up.headers.get('x-total-running'), '3')
    const token = up.headers.get('x-next-token'), first = await up.json()
    const rest = await get(`/v2/sandboxes?order=asc&limit=2&metadata=${q}&nextToken=${encodeURIComponent(token)}`)
    assert.equal(rest.headers.get('x-next-token'), null)
    assert.deepEqual([...first, ...await rest.json()].map((s) => s.sandboxID), boxes.map((b) => b.sandboxId))
  })
  it('begins where startedAfter says, itself included', async () => {
    const mid = await boxes[1].getInfo()
    const r = await (await get(`/v2/sandboxes?metadata=${q}&startedAfter=${encodeURIComponent(mid.startedAt.toISOString())}`)).json()
    assert.deepEqual(r.map((s) => s.sandboxID), [boxes[2], boxes[1]].map((b) => b.sandboxId))
    const py = mid.startedAt.toISOString().replace('Z', '000+00:00')
    assert.equal((await (await get(`/v2/sandboxes?metadata=${q}&startedAfter=${encodeURIComponent(py)}`)).json()).length, 2)
  })
  it('refuses nonsense', async () => {
    for (const bad of ['order=up', 'limit=0', 'limit=101', 'nextToken=xyz', 'state=dead', 'startedAfter=now'])
      assert.equal((await get(`/v2/sandboxes?${bad}`)).status, 400, bad)
  })
  it('old form: running, no pages', async () => {
    const r = await (await get('/sandboxes')).json()
    for (const b of boxes) assert.ok(r.some((s) => s.sandboxID === b.sandboxId && s.state === 'running'))
  })
})

describe('refusals', () => {
  const bad = async (body, status, text) => {
    const r = await post('/v2/sandboxes', body), j = await r.json()
    assert.equal(r.status, status, JSON.stringify(j))
    assert.equal(j.code, status)
    if (text) assert.match(j.message, text)
  }
  it('no key, wrong key', async () => {
    assert.equal((await get('/v2/sandboxes', {})).status, 401)
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  })
  it('unknown and malformed templates', async () => {
    await bad({ templateID: 'none-such' }, 404, /^template 'none-such' not found/)
    await bad({ templateID: 'base:v9' }, 404, /^tag 'v9' does not exist for template 'base'/)
    await bad({ templateID: 'a b' }, 400, /^Invalid template reference: /)
    await assert.rejects(Sandbox.create('none-such'), SandboxError)
  })
  it('timeouts', async () => {
    await bad({ templateID: 'base', timeout: 0 }, 400, /^Timeout must be greater than 0$/)
    await bad({ templateID: 'base', timeout: 100_000_000 }, 400, /^Timeout cannot be greater than \d+ hours$/)
  })
  it('what cannot be enforced', async () => {
    await bad({ templateID: 'base', network: { allowOut: ['example.org'] } }, 400, /denyOut must contain 0\.0\.0\.0\/0/)
    await bad({ templateID: 'base', network: { denyOut: ['example.org'] } }, 400, /^invalid denied CIDR example\.org/)
    await bad({ templateID: 'base', network: { maskRequestHost: 'ä' } }, 400)
    await bad({ templateID: 'base', network: { httpsPorts: [443] } }, 400)
    await bad({ templateID: 'base', network: { egressProxy: { address: 'p:1' } } }, 400)
    await bad({ templateID: 'base', volumeMounts: [{ name: 'none-such', path: '/v' }] }, 400, /^invalid mounts:/)
    await bad({ templateID: 'base', iam: { tokens: { a: {} } } }, 400)
    await bad({ templateID: 'base', autoPauseMemory: false }, 400)
    await bad({ templateID: 'base', autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } }, 400)
  })
  it('unknown paths have E2B\'s form', async () => {
    const r = await get('/sandboxes/x/y/z')
    assert.equal(r.status, 404)
    assert.equal((await r.json()).code, 404)
  })
  it('pages of other sites may ask, with a key', async () => {
    const r = await fetch(api + '/v2/sandboxes', { method: 'OPTIONS', headers: { Origin: 'https://x.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'x-api-key' } })
    assert.equal(r.headers.get('access-control-allow-origin'), '*')
    assert.match(r.headers.get('access-control-allow-headers'), /x-api-key|\*/)
    for (const path of ['/process.Process/List', '/filesystem.Filesystem/Stat', '/files', '/execute']) { // the question has none of the headers it asks about
      const p = await fetch(api + path, { method: 'OPTIONS', headers: { Origin: 'https://x.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type,e2b-sandbox-id,e2b-sandbox-port' } })
      assert.deepEqual([p.status, p.headers.get('access-control-allow-origin'), p.headers.get('access-control-allow-headers')], [204, '*', 'content-type,e2b-sandbox-id,e2b-sandbox-port'], path)
    }
    const l = await get('/v2/sandboxes', { ...key, Origin: 'https://x.example' })
    assert.equal(l.status, 200)
  })
})

describe('v1', () => {
  it('creates as Python does, and connects', async () => {
    const r = await post('/sandboxes', { templateID: 'base', metadata, envVars: {}, secure: true, allow_internet_access: true, timeout: 300 })
    const b = await r.json()
    assert.equal(r.status, 201)
    assert.ok(b.envdAccessToken)
    const c = await post(`/sandboxes/${b.sandboxID}/connect`, { timeout: 300 })
    assert.equal(c.status, 200)
    assert.equal((await c.json()).envdAccessToken, b.envdAccessToken)
    assert.equal((await (await get(`/sandboxes/${b.sandboxID}`)).json()).allowInternetAccess, true)
    assert.equal((await post(`/sandboxes/${b.sandboxID}/refreshes`, {})).status, 204)
    assert.equal((await fetch(`${api}/sandboxes/${b.sandboxID}`, { method: 'DELETE', headers: key })).status, 204)
  })
})
