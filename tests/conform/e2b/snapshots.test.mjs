// Snapshots and forks of the real SDK. A container's hold its files only; see docs/e2b.md.
import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

const vm = process.env.HUTCH_TIER !== 'container'
const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const headers = { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' }
const call = (method, path, body) => fetch(api + path, { method, headers, body: body && JSON.stringify(body) })
const made = []
const keep = (s) => { made.push(s); return s }
const create = async (template = 'base', opts = {}) => keep(await Sandbox.create(template, { metadata, timeoutMs: 120_000, ...opts }))
after(async () => { for (const s of made) await s.kill().catch(() => {}) })

describe('snapshots', () => {
  it('are made, used many times, also when the source is gone, and deleted once', async () => {
    const sbx = await create()
    await sbx.files.write('/home/user/f', 'then')
    const snap = await sbx.createSnapshot()
    assert.match(snap.snapshotId, /^s[a-z0-9]{20}:default$/)
    assert.deepEqual(await sbx.listSnapshots().nextItems(), [{ snapshotId: snap.snapshotId, names: [] }])
    assert.ok((await Sandbox.listSnapshots({ limit: 1 }).nextItems()).length === 1)
    await sbx.files.write('/home/user/f', 'now')
    const one = await create(snap.snapshotId)
    await sbx.kill()
    const two = await create(snap.snapshotId, { envs: { A: '1' } })
    for (const s of [one, two]) assert.equal(await s.files.read('/home/user/f'), 'then')
    assert.equal((await two.commands.run('echo $A')).stdout, '1\n')
    const names = await Promise.all([one, two].map(async (s) => (await s.commands.run('hostname; echo $E2B_SANDBOX_ID')).stdout))
    assert.deepEqual(names, [one, two].map((s) => `${s.sandboxId}\n${s.sandboxId}\n`))
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
    await assert.rejects(Sandbox.create(snap.snapshotId, { metadata }))
    assert.equal(await one.files.read('/home/user/f'), 'then', 'what stands on it goes on')
  })
  it('have names and tags; the same name again is the newer one', async () => {
    const sbx = await create()
    const take = async (name) => (await call('POST', `/sandboxes/${sbx.sandboxId}/snapshots`, { name })).json()
    await sbx.files.write('/home/user/f', '1')
    assert.deepEqual(await take('my_snap'), { snapshotID: 'hutch/my_snap:default', names: ['hutch/my_snap'] })
    await sbx.files.write('/home/user/f', '2')
    assert.deepEqual(await take('My_Snap:v1'), { snapshotID: 'hutch/my_snap:v1', names: ['hutch/my_snap'] })
    await sbx.files.write('/home/user/f', '3')
    await take('my_snap')
    const list = async (query) => (await (await call('GET', '/snapshots?' + query)).json()).map((s) => s.snapshotID)
    assert.deepEqual(await list('name=my_snap'), ['hutch/my_snap:default', 'hutch/my_snap:v1'])
    assert.deepEqual(await list('name=hutch%2Fmy_snap%3Av1'), ['hutch/my_snap:v1'])
    assert.deepEqual(await list('name=nothing'), [])
    assert.equal((await list(`sandboxID=${sbx.sandboxId}`)).length, 2)
    const page = await call('GET', `/snapshots?limit=1&sandboxID=${sbx.sandboxId}`)
    assert.ok(page.headers.get('x-next-token'))
    assert.deepEqual(await list(`limit=1&sandboxID=${sbx.sandboxId}&nextToken=${page.headers.get('x-next-token')}`), ['hutch/my_snap:v1'])
    assert.equal((await call('GET', '/snapshots?nextToken=x')).status, 400)
    const a = await create('my_snap')
    const b = await create('hutch/my_snap:v1')
    assert.deepEqual([await a.files.read('/home/user/f'), await b.files.read('/home/user/f')], ['3', '2'])
    for (const id of ['hutch/my_snap:v1', 'my_snap']) {
      assert.equal((await call('DELETE', `/templates/${encodeURIComponent(id)}`)).status, 204)
      assert.equal((await call('DELETE', `/templates/${encodeURIComponent(id)}`)).status, 404)
    }
    assert.equal((await call('POST', `/sandboxes/${sbx.sandboxId}/snapshots`, { name: 'a b' })).status, 400)
    assert.equal((await call('POST', '/sandboxes/i00000000000000000000/snapshots', {})).status, 404)
  })
})

describe('fork', () => {
  it('gives running copies; the original goes on as it was', async () => {
    const sbx = await create()
    await sbx.files.write('/home/user/f', 'then')
    const cmd = await sbx.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    const before = await sbx.getInfo()
    const kids = await sbx.fork({ count: 2, timeoutMs: 100_000 })
    kids.forEach(keep)
    assert.equal(kids.length, 2)
    for (const kid of kids) {
      assert.equal(await kid.files.read('/home/user/f'), 'then')
      assert.equal((await kid.commands.list()).some((p) => p.pid === cmd.pid), vm, 'processes come along in a microVM')
      assert.equal((await kid.commands.run('hostname')).stdout, kid.sandboxId + '\n')
    }
    const token = async (k) => (await (await call('GET', `/sandboxes/${k.sandboxId}`)).json()).envdAccessToken
    assert.notEqual(await token(kids[0]), await token(kids[1]))
    assert.deepEqual((await sbx.getInfo()).endAt, before.endAt)
    for (const count of [0, 101]) assert.equal((await call('POST', `/sandboxes/${sbx.sandboxId}/fork`, { count })).status, 400)
    assert.equal((await call('POST', '/sandboxes/i00000000000000000000/fork', {})).status, 404)
    await sbx.pause()
    assert.equal((await call('POST', `/sandboxes/${sbx.sandboxId}/fork`, {})).status, 409)
  })
})
