// Sandbox.files.watchDir of the real SDK, and the polling calls the synchronous Python SDK uses.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { FileNotFoundError, FilesystemEventType as T, InvalidArgumentError, Sandbox, Volume } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}

async function watch(sbx, dir, opts) {
  const seen = [], wakers = new Set()
  const h = await sbx.files.watchDir(dir, (e) => { seen.push(e); wakers.forEach((f) => f()) }, opts)
  const until = (type, name) => new Promise((ok, no) => {
    const t = setTimeout(() => { wakers.delete(look); no(new Error(`no ${type} ${name} in ${JSON.stringify(seen)}`)) }, 15000)
    const look = () => {
      const e = seen.find((x) => x.type === type && x.name === name)
      if (e) { clearTimeout(t); wakers.delete(look); ok(e) }
    }
    wakers.add(look)
    look()
  })
  return { h, seen, until }
}

describe('watch', () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata }) })
  after(async () => { await sbx?.kill() })

  it('tells create, write, chmod, rename, remove', async () => {
    await sbx.files.makeDir('w')
    const w = await watch(sbx, 'w')
    await sbx.files.write('w/f', '1')
    await w.until(T.CREATE, 'f')
    await w.until(T.WRITE, 'f')
    await sbx.commands.run('chmod 600 w/f && mv w/f w/g && rm w/g')
    await w.until(T.CHMOD, 'f')
    await w.until(T.RENAME, 'f')
    await w.until(T.CREATE, 'g')
    await w.until(T.REMOVE, 'g')
    assert.ok(w.seen.every((e) => e.entry === undefined))
    await w.h.stop()
  })
  it('is recursive when asked, also into directories made later', async () => {
    await sbx.files.makeDir('r/old')
    const flat = await watch(sbx, 'r'), deep = await watch(sbx, 'r', { recursive: true })
    await sbx.files.write('r/old/f', '1')
    await deep.until(T.WRITE, 'old/f')
    await sbx.files.makeDir('r/new')
    await deep.until(T.CREATE, 'new')
    await sbx.files.write('r/new/g', '1')
    await deep.until(T.WRITE, 'new/g')
    assert.ok(!flat.seen.some((e) => e.name.includes('/')))
    await flat.h.stop()
    await deep.h.stop()
  })
  it('brings the entry when asked', async () => {
    await sbx.files.makeDir('e')
    const w = await watch(sbx, 'e', { includeEntry: true })
    await sbx.files.write('e/f', 'abc')
    const e = await w.until(T.WRITE, 'f')
    assert.equal(e.entry.path, '/home/user/e/f')
    await sbx.files.remove('e/f')
    assert.equal((await w.until(T.REMOVE, 'f')).entry, undefined)
    await w.h.stop()
  })
  it('refuses what is not a directory', async () => {
    await sbx.files.write('plain', '')
    await assert.rejects(sbx.files.watchDir('missing', () => {}), (e) => e instanceof FileNotFoundError)
    await assert.rejects(sbx.files.watchDir('plain', () => {}), (e) => e instanceof InvalidArgumentError)
  })
  it('refuses network mounts unless told to take them', async (t) => {
    if (process.env.HUTCH_TIER !== 'vm') return t.skip('a volume is a plain mount in a container')
    const vol = await Volume.create(`watch-${Date.now().toString(36)}`), other = await Sandbox.create({ metadata, volumeMounts: { '/mnt/v': vol } })
    try { // FUSE, there
      await assert.rejects(other.files.watchDir('/mnt/v', () => {}), (e) => e instanceof InvalidArgumentError && /network file system/.test(e.message))
      const w = await watch(other, '/mnt/v', { allowNetworkMounts: true })
      await other.files.write('/mnt/v/f', '1')
      await w.until(T.CREATE, 'f')
      await w.h.stop()
    } finally {
      await other.kill()
      await Volume.destroy(vol.volumeId)
    }
  })
  it('ends at its timeout', async () => {
    await sbx.files.makeDir('t')
    const end = new Promise((ok) => sbx.files.watchDir('t', () => {}, { timeoutMs: 1000, onExit: ok }))
    const err = await end
    assert.ok(err)
  })
  it('can be asked instead', async () => {
    const call = async (method, body) => {
      const r = await fetch(`${process.env.E2B_SANDBOX_URL}/filesystem.Filesystem/${method}`, {
        method: 'POST', body: JSON.stringify(body),
        headers: { 'content-type': 'application/json', 'connect-protocol-version': '1', 'e2b-sandbox-id': sbx.sandboxId, 'e2b-sandbox-port': '49983', 'x-access-token': sbx.envdAccessToken } })
      return { status: r.status, body: await r.json() }
    }
    await sbx.files.makeDir('p')
    const { body: { watcherId } } = await call('CreateWatcher', { path: 'p', recursive: true })
    assert.match(watcherId, /^w/)
    await sbx.files.write('p/f', '1')
    const all = []
    for (let i = 0; i < 50 && !all.some((e) => e.type === 'EVENT_TYPE_WRITE'); i++) {
      all.push(...(await call('GetWatcherEvents', { watcherId })).body.events)
      await new Promise((r) => setTimeout(r, 100))
    }
    assert.deepEqual(all[0], { name: 'f', type: 'EVENT_TYPE_CREATE' })
    assert.deepEqual((await call('RemoveWatcher', { watcherId })).body, {})
    const gone = await call('GetWatcherEvents', { watcherId })
    assert.equal(gone.status, 404)
    assert.equal(gone.body.code, 'not_found')
    assert.equal((await call('CreateWatcher', { path: 'missing' })).body.code, 'not_found')
  })
})
