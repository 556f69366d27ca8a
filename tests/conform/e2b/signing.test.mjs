// Signed file URLs of the real SDK, used without any header.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}

describe('signing', () => {
  let sbx
  before(async () => {
    sbx = await Sandbox.create({ metadata })
    await sbx.files.write('a b+c.txt', 'hello')
  })
  after(async () => { await sbx?.kill() })
  const refused = async (url, message, init) => {
    const r = await fetch(url, init)
    assert.equal(r.status, 401)
    assert.deepEqual(await r.json(), { code: 401, message })
  }

  it('downloads', async () => {
    for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'user' }, { user: 'user', useSignatureExpiration: 60 }]) {
      const r = await fetch(await sbx.downloadUrl('a b+c.txt', opts))
      assert.equal(r.status, 200, JSON.stringify(opts))
      assert.equal(await r.text(), 'hello')
    }
  })
  it('uploads', async () => {
    for (const [opts, path] of [[{}, 'up.txt'], [{ useSignatureExpiration: 60 }, 'up2.txt'], [{ user: 'root' }, '/root/up.txt']]) {
      const form = new FormData()
      form.append('file', new Blob(['sent']), 'ignored.txt')
      const r = await fetch(await sbx.uploadUrl(path, opts), { method: 'POST', body: form })
      assert.equal(r.status, 200)
      const abs = path.startsWith('/') ? path : `/home/user/${path}`
      assert.deepEqual(await r.json(), [{ path: abs, name: abs.split('/').pop(), type: 'file' }])
      assert.equal(await sbx.files.read(abs), 'sent')
    }
  })
  it('uploads without a path by the names of the parts', async () => {
    const form = new FormData()
    form.append('file', new Blob(['1']), 'named.txt')
    const r = await fetch(await sbx.uploadUrl(), { method: 'POST', body: form })
    assert.equal((await r.json())[0].path, '/home/user/named.txt')
  })
  it('refuses an expired one', async () => {
    await refused(await sbx.downloadUrl('a b+c.txt', { useSignatureExpiration: -120 }), 'signature is already expired')
  })
  it('refuses a changed one', async () => {
    const url = new URL(await sbx.downloadUrl('a b+c.txt'))
    url.searchParams.set('path', '/etc/passwd')
    await refused(url, 'invalid signature')
    url.searchParams.delete('signature')
    await refused(url, 'missing signature query parameter')
    await refused(await sbx.downloadUrl('a b+c.txt'), 'invalid signature', { method: 'POST', body: 'x' })
  })
})
