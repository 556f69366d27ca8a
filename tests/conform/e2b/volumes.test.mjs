// Volumes of the real SDK: every method, and what sandboxes see of them.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { Sandbox, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY }
const unique = (what) => `${what}-${Date.now().toString(36)}`

describe('volumes', () => {
  const name = unique('vol')
  let vol
  before(async () => { vol = await Volume.create(name) })
  after(async () => { await Volume.destroy(vol.volumeId) })

  it('are made, listed, found, connected to', async () => {
    assert.equal(vol.name, name)
    assert.ok(vol.volumeId && vol.token)
    assert.ok((await Volume.list()).some((v) => v.volumeId === vol.volumeId && v.name === name))
    assert.deepEqual((({ volumeId, name, token }) => ({ volumeId, name, token }))(await Volume.getInfo(vol.volumeId)), { volumeId: vol.volumeId, name, token: vol.token })
    const again = await Volume.connect(vol.volumeId)
    assert.equal(again.token, vol.token)
    await again.writeFile('/connected.txt', 'yes')
    assert.equal(await vol.readFile('/connected.txt'), 'yes')
  })
  it('are listed without their tokens', async () => {
    const list = await (await fetch(`${api}/volumes`, { headers: key })).json()
    for (const v of list) assert.deepEqual(Object.keys(v).sort(), ['name', 'volumeID'])
  })
  it('refuse a taken and an impossible name with 400', async () => {
    for (const n of [name, 'a b', 'ä', '', 'x'.repeat(300)])
      await assert.rejects(Volume.create(n), (e) => e instanceof VolumeError && /^400/.test(e.message), n)
  })
  it('that do not exist', async () => {
    const none = 'v' + '0'.repeat(20)
    await assert.rejects(Volume.getInfo(none), VolumeNotFoundError)
    await assert.rejects(Volume.connect(none), VolumeNotFoundError)
    assert.equal(await Volume.destroy(none), false)
  })
  it('are destroyed once', async () => {
    const v = await Volume.create(unique('short'))
    assert.equal(await Volume.destroy(v.volumeId), true)
    assert.equal(await Volume.destroy(v.volumeId), false)
    assert.ok(!(await Volume.list()).some((x) => x.volumeId === v.volumeId))
  })
})

describe('content', () => {
  let vol
  before(async () => { vol = await Volume.create(unique('content')) })
  after(async () => { await Volume.destroy(vol.volumeId) })

  it('text, bytes, blob, stream; also nothing at all', async () => {
    const s = await vol.writeFile('/a b.txt', 'grüße')
    assert.equal(s.name, 'a b.txt')
    assert.equal(s.path, '/a b.txt')
    assert.equal(s.type, 'file')
    assert.equal(s.size, 7)
    assert.equal(s.mode, 0o644)
    assert.ok(s.mtime instanceof Date && s.atime instanceof Date && s.ctime instanceof Date && Math.abs(Date.now() - s.mtime) < 600_000)
    assert.equal(await vol.readFile('/a b.txt'), 'grüße')
    assert.deepEqual(await vol.readFile('/a b.txt', { format: 'bytes' }), new TextEncoder().encode('grüße'))
    assert.equal(await (await vol.readFile('/a b.txt', { format: 'blob' })).text(), 'grüße')
    assert.equal(await new Response(await vol.readFile('/a b.txt', { format: 'stream' })).text(), 'grüße')
    await vol.writeFile('/empty', '')
    assert.equal(await vol.readFile('/empty'), '')
    assert.equal((await vol.readFile('/empty', { format: 'bytes' })).length, 0)
    assert.equal(await (await vol.readFile('/empty', { format: 'blob' })).text(), '')
  })
  it('from buffers, blobs and streams', async () => {
    const big = new Uint8Array(3_000_000).map((_, i) => i % 251)
    await vol.writeFile('/buffer', big.buffer)
    await vol.writeFile('/blob', new Blob([big]))
    await vol.writeFile('/stream', new Blob([big]).stream())
    for (const f of ['/buffer', '/blob', '/stream'])
      assert.ok(Buffer.from(await vol.readFile(f, { format: 'bytes' })).equals(Buffer.from(big)), f)
  })
  it('exists only once, unless forced', async () => {
    await vol.writeFile('/once', '1')
    await assert.rejects(vol.writeFile('/once', '2'), (e) => e instanceof VolumeError && /^409/.test(e.message))
    assert.equal(await vol.readFile('/once'), '1')
    await vol.writeFile('/once', '22', { force: true })
    assert.equal(await vol.readFile('/once'), '22')
    await assert.rejects(vol.writeFile('/no/such/dir', 'x'), VolumePathNotFoundError)
    await assert.rejects(vol.writeFile('/no/such/dir', 'x', { force: true }), VolumePathNotFoundError)
  })
  it('has owners and modes', async () => {
    const s = await vol.writeFile('/owned', 'x', { uid: 1234, gid: 4321, mode: 0o600 })
    assert.deepEqual([s.uid, s.gid, s.mode], [1234, 4321, 0o600])
    const d = await vol.makeDir('/owned-dir', { uid: 7, gid: 8, mode: 0o700 })
    assert.deepEqual([d.uid, d.gid, d.mode, d.type], [7, 8, 0o700, 'directory'])
    const u = await vol.updateMetadata('/owned', { mode: 0o640 })
    assert.deepEqual([u.uid, u.gid, u.mode], [1234, 4321, 0o640])
    const v = await vol.updateMetadata('/owned', { uid: 5, gid: 6 })
    assert.deepEqual([v.uid, v.gid, v.mode], [5, 6, 0o640])
    await assert.rejects(vol.updateMetadata('/none', { mode: 0o600 }), VolumePathNotFoundError)
    await assert.rejects(vol.updateMetadata('/owned', { mode: 0o77777 }), (e) => /^400/.test(e.message))
  })
  it('directories', async () => {
    const d = await vol.makeDir('/dir')
    assert.deepEqual([d.name, d.path, d.type, d.mode], ['dir', '/dir', 'directory', 0o755])
    await assert.rejects(vol.makeDir('/dir'), (e) => /^409/.test(e.message))
    assert.equal((await vol.makeDir('/dir', { force: true })).path, '/dir')
    await assert.rejects(vol.makeDir('/x/y/z'), VolumePathNotFoundError)
    assert.equal((await vol.makeDir('/x/y/z', { force: true })).path, '/x/y/z')
    await vol.writeFile('/x/f', '1')
    await vol.writeFile('/x/y/g', '2')
    assert.deepEqual((await vol.list('/x')).map((e) => e.path), ['/x/f', '/x/y'])
    assert.deepEqual((await vol.list('/x', { depth: 2 })).map((e) => e.path), ['/x/f', '/x/y', '/x/y/g', '/x/y/z'])
    assert.deepEqual(await vol.list('/x/y/z'), [])
    await assert.rejects(vol.list('/none'), VolumePathNotFoundError)
    await assert.rejects(vol.list('/x/f'), (e) => /^400/.test(e.message))
    assert.ok((await vol.list('/')).some((e) => e.name === 'x'))
  })
  it('info, existence, removal', async () => {
    await vol.makeDir('/gone/deep', { force: true })
    await vol.writeFile('/gone/deep/f', 'x')
    assert.equal(await vol.exists('/gone/deep/f'), true)
    assert.equal((await vol.getInfo('/gone')).type, 'directory')
    await vol.remove('/gone')
    assert.equal(await vol.exists('/gone'), false)
    await assert.rejects(vol.getInfo('/gone'), VolumePathNotFoundError)
    await assert.rejects(vol.remove('/gone'), VolumePathNotFoundError)
    await assert.rejects(vol.readFile('/gone'), VolumePathNotFoundError)
    await assert.rejects(vol.readFile('/gone', { format: 'stream' }), VolumePathNotFoundError)
    await assert.rejects(vol.readFile('/'), (e) => /^400/.test(e.message))
  })
  it('only with its own token, and never with the key', async () => {
    const at = `${process.env.E2B_VOLUME_API_URL}/volumecontent/${vol.volumeId}/path?path=/`
    for (const headers of [{}, key, { Authorization: `Bearer ${process.env.E2B_API_KEY}` }, { Authorization: `Bearer ${vol.token}0` }])
      assert.equal((await fetch(at, { headers })).status, 401)
    assert.equal((await fetch(at, { headers: { Authorization: `Bearer ${vol.token}` } })).status, 200)
    assert.equal((await fetch(at.replace('?path=/', ''), { headers: { Authorization: `Bearer ${vol.token}` } })).status, 400)
    assert.equal((await fetch(at.replace('/path?', '/other?'), { headers: { Authorization: `Bearer ${vol.token}` } })).status, 404)
    const other = await Volume.create(unique('other'))
    assert.equal((await fetch(at, { headers: { Authorization: `Bearer ${other.token}` } })).status, 401)
    await Volume.destroy(other.volumeId)
  })
})

describe('in sandboxes', () => {
  let vol, one, two
  before(async () => {
    vol = await Volume.create(unique('shared'))
    await vol.writeFile('/before.txt', 'from outside')
    ;[one, two] = await Promise.all([1, 2].map((n) => Sandbox.create({ metadata, volumeMounts: { '/mnt/data': n === 1 ? vol : vol.name } })))
  })
  after(async () => {
    await Promise.all([one, two].map((s) => s?.kill()))
    await Volume.destroy(vol.volumeId)
  })

  it('appears at its path, for the default user to write', async () => {
    assert.equal(await one.files.read('/mnt/data/before.txt'), 'from outside')
    await one.commands.run('echo inside > /mnt/data/inside.txt')
    assert.equal(await vol.readFile('/inside.txt'), 'inside\n')
    await one.files.write('/mnt/data/sub/f.txt', 'by the files API')
    assert.equal(await vol.readFile('/sub/f.txt'), 'by the files API')
  })
  it('is shared', async () => {
    await one.commands.run('echo shared > /mnt/data/shared.txt')
    assert.equal((await two.commands.run('cat /mnt/data/shared.txt')).stdout, 'shared\n')
  })
  it('is told of', async () => {
    const raw = await (await fetch(`${api}/sandboxes/${one.sandboxId}`, { headers: key })).json()
    assert.deepEqual(raw.volumeMounts, [{ name: vol.name, path: '/mnt/data' }])
    const listed = await (await fetch(`${api}/v2/sandboxes`, { headers: key })).json()
    assert.deepEqual(listed.find((s) => s.sandboxID === two.sandboxId).volumeMounts, [{ name: vol.name, path: '/mnt/data' }])
    assert.deepEqual((await one.getInfo()).volumeMounts, [{ name: vol.name, path: '/mnt/data' }])
  })
  it('outlives them', async () => {
    await one.commands.run('echo kept > /mnt/data/kept.txt')
    await one.kill()
    await two.kill()
    assert.equal(await vol.readFile('/kept.txt'), 'kept\n')
    const three = await Sandbox.create({ metadata, volumeMounts: { '/elsewhere': vol } })
    assert.equal((await three.commands.run('cat /elsewhere/kept.txt')).stdout, 'kept\n')
    await three.kill()
  })
  it('refused as a whole when one is wrong', async () => {
    for (const [mounts, why] of [
      [[{ name: 'none-such', path: '/a' }], /none-such/], [[{ name: vol.name, path: 'rel' }], /rel/], [[{ name: vol.name, path: '/a/../b' }], /\.\./],
      [[{ name: vol.name, path: '/a' }, { name: vol.name, path: '/a' }], /\/a/], [[{ name: vol.name }], /path/],
    ]) {
      const r = await fetch(`${api}/v2/sandboxes`, { method: 'POST', headers: { ...key, 'Content-Type': 'application/json' }, body: JSON.stringify({ templateID: 'base', metadata, volumeMounts: mounts }) })
      const j = await r.json()
      assert.equal(r.status, 400, JSON.stringify(j))
      assert.match(j.message, /^invalid mounts:/)
      assert.match(j.message, why)
    }
  })
})
