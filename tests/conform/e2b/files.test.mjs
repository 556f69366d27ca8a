// Sandbox.files of the real SDK.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { AuthenticationError, FileNotFoundError, InvalidArgumentError, Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}

describe('files', () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata }) })
  after(async () => { await sbx?.kill() })
  const sh = async (cmd, opts) => (await sbx.commands.run(cmd, opts)).stdout

  it('writes and reads text', async () => {
    const info = await sbx.files.write('t.txt', 'grüße\n')
    assert.deepEqual([info.path, info.name, info.type], ['/home/user/t.txt', 't.txt', 'file'])
    assert.equal(await sbx.files.read('t.txt'), 'grüße\n')
    assert.equal(await sh('stat -c "%a %U %G" t.txt'), '644 user user\n')
  })
  it('handles bytes, blobs and streams', async () => {
    const bytes = Uint8Array.from({ length: 100000 }, (_, i) => i % 256)
    await sbx.files.write('b.bin', bytes.buffer)
    assert.deepEqual(await sbx.files.read('b.bin', { format: 'bytes' }), bytes)
    await sbx.files.write('blob.bin', new Blob([bytes]))
    const blob = await sbx.files.read('blob.bin', { format: 'blob' })
    assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), bytes)
    await sbx.files.write('s.bin', new Blob([bytes]).stream())
    const chunks = []
    for await (const c of await sbx.files.read('s.bin', { format: 'stream' })) chunks.push(c)
    assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes)
  })
  it('handles octet-stream and gzip', async () => {
    await sbx.files.write('o.txt', 'plain', { useOctetStream: true })
    assert.equal(await sbx.files.read('o.txt'), 'plain')
    const text = 'abc'.repeat(500000)
    await sbx.files.write('z.txt', text, { gzip: true })
    assert.equal((await sbx.files.read('z.txt')).length, text.length)
    assert.equal(await sbx.files.read('z.txt', { gzip: true }), text)
    assert.equal((await sbx.files.read('z.txt', { gzip: true, format: 'bytes' })).length, text.length)
    await sbx.files.write('empty.txt', '', { gzip: true })
    assert.equal(await sbx.files.read('empty.txt', { gzip: true }), '')
    const both = await sbx.files.writeFiles([{ path: 'z1', data: 'one' }, { path: 'z2', data: 'two' }], { gzip: true })
    assert.deepEqual([both.map((f) => f.name), await sbx.files.read('z2')], [['z1', 'z2'], 'two'])
    assert.equal(await sh('md5sum < z.txt; printf "abc%.0s" $(seq 500000) | md5sum'), await sh('md5sum < z.txt; md5sum < z.txt'))
  })
  it('moves a large file both ways', async () => {
    const data = new Uint8Array(12 << 20).fill(7)
    await sbx.files.write('big', data.buffer)
    assert.equal(await sh('stat -c %s big'), `${12 << 20}\n`)
    assert.equal((await sbx.files.read('big', { format: 'bytes' })).length, 12 << 20)
  })
  it('writes several files, makes parents, truncates', async () => {
    const infos = await sbx.files.write([
      { path: 'many/a b.txt', data: 'A' }, { path: '/home/user/many/"q".txt', data: 'Q' }, { path: '/tmp/deep/er/ü.txt', data: 'U' }])
    assert.deepEqual(infos.map((x) => x.path), ['/home/user/many/a b.txt', '/home/user/many/"q".txt', '/tmp/deep/er/ü.txt'])
    assert.equal(await sbx.files.read('/tmp/deep/er/ü.txt'), 'U')
    assert.equal(await sbx.files.read('many/"q".txt'), 'Q')
    assert.equal(await sh('stat -c "%a %U" /tmp/deep /tmp/deep/er'), '755 user\n755 user\n')
    await sbx.files.write('many/a b.txt', '')
    assert.equal(await sbx.files.read('many/a b.txt'), '')
    assert.deepEqual(await sbx.files.write([]), [])
  })
  it('obeys the user', async () => {
    const info = await sbx.files.write('r.txt', 'root', { user: 'root' })
    assert.equal(info.path, '/root/r.txt')
    assert.equal(await sbx.files.read('/root/r.txt'), 'root')
    await sbx.files.write('/home/user/mine', 'x', { user: 'root' })
    assert.equal(await sh('stat -c %U mine'), 'root\n')
    await sbx.files.write('/home/user/mine', 'y')
    assert.equal(await sh('stat -c %U mine'), 'user\n')
    await assert.rejects(sbx.files.write('x', 'x', { user: 'nobody-here' }), (e) => e instanceof AuthenticationError && /error looking up user 'nobody-here'/.test(e.message))
    await assert.rejects(sbx.files.list('x', { user: 'nobody-here' }), (e) => e instanceof AuthenticationError)
  })
  it('tells what is wrong', async () => {
    await assert.rejects(sbx.files.read('nope'), (e) => e instanceof FileNotFoundError && e.message.includes("path '/home/user/nope' does not exist"))
    await assert.rejects(sbx.files.read('/tmp'), (e) => e instanceof InvalidArgumentError && e.message.includes("path '/tmp' is a directory"))
    await assert.rejects(sbx.files.list('nope'), (e) => e instanceof FileNotFoundError)
    await assert.rejects(sbx.files.list('t.txt'), (e) => e instanceof InvalidArgumentError)
    await assert.rejects(sbx.files.getInfo('nope'), (e) => e instanceof FileNotFoundError)
    await assert.rejects(sbx.files.rename('nope', 'other'), (e) => e instanceof FileNotFoundError)
    await assert.rejects(sbx.files.getInfo('~root/x'), (e) => e instanceof InvalidArgumentError)
  })
  it('exists, removes', async () => {
    assert.equal(await sbx.files.exists('t.txt'), true)
    assert.equal(await sbx.files.exists('nope'), false)
    await sbx.files.makeDir('rm/a/b')
    await sbx.files.write('rm/a/f', 'x')
    await sbx.files.remove('rm')
    assert.equal(await sbx.files.exists('rm'), false)
    await sbx.files.remove('rm')
  })
  it('makes directories once', async () => {
    assert.equal(await sbx.files.makeDir('mk/x/y'), true)
    assert.equal(await sbx.files.makeDir('mk/x/y'), false)
    assert.equal(await sh('stat -c "%a %U" mk mk/x/y'), '755 user\n755 user\n')
    await assert.rejects(sbx.files.makeDir('t.txt'), (e) => e instanceof InvalidArgumentError)
  })
  it('renames over what is there, into new directories', async () => {
    await sbx.files.write('from', '1')
    await sbx.files.write('to', '2')
    const info = await sbx.files.rename('from', 'to')
    assert.equal(info.path, '/home/user/to')
    assert.equal(await sbx.files.read('to'), '1')
    assert.equal(await sbx.files.exists('from'), false)
    await sbx.files.rename('to', 'new/dir/to')
    assert.equal(await sbx.files.read('new/dir/to'), '1')
  })
  it('shows entries as E2B does', async () => {
    await sbx.commands.run('mkdir -p e/d && echo -n 13-characters > e/f && chmod 600 e/f && ln -s f e/l && ln -s nowhere e/dangling && ln -s d e/ld')
    const f = await sbx.files.getInfo('e/f')
    assert.deepEqual([f.name, f.type, f.path, f.size, f.mode, f.permissions, f.owner, f.group, f.symlinkTarget],
      ['f', 'file', '/home/user/e/f', 13, 0o600, '-rw-------', 'user', 'user', undefined])
    assert.ok(Math.abs(f.modifiedTime.getTime() - Date.now()) < 120000)
    const l = await sbx.files.getInfo('e/l')
    assert.deepEqual([l.type, l.mode, l.permissions, l.symlinkTarget, l.size], ['file', 0o600, 'Lrwxrwxrwx', '/home/user/e/f', 1])
    const d = await sbx.files.getInfo('e/d')
    assert.deepEqual([d.type, d.permissions, d.mode], ['dir', 'drwxr-xr-x', 0o755])
    assert.ok(d.size > 0)
    const names = (await sbx.files.list('e')).map((x) => x.name)
    assert.deepEqual(names, ['d', 'f', 'l', 'ld']) // the SDK leaves out what leads nowhere
  })
  it('lists in depth, in order', async () => {
    await sbx.commands.run('mkdir -p tree/b/c tree/a.d && touch tree/a tree/b/1 tree/b/c/2 tree/B tree/a.d/z && ln -s tree treelink')
    const list = async (p, depth) => (await sbx.files.list(p, { depth })).map((x) => x.path.replace('/home/user/', ''))
    assert.deepEqual(await list('tree', 1), ['tree/B', 'tree/a', 'tree/a.d', 'tree/b'])
    assert.deepEqual(await list('tree', 2), ['tree/B', 'tree/a', 'tree/a.d', 'tree/a.d/z', 'tree/b', 'tree/b/1', 'tree/b/c'])
    assert.deepEqual(await list('tree', 3), ['tree/B', 'tree/a', 'tree/a.d', 'tree/a.d/z', 'tree/b', 'tree/b/1', 'tree/b/c', 'tree/b/c/2'])
    assert.deepEqual(await list('treelink', 1), ['treelink/B', 'treelink/a', 'treelink/a.d', 'treelink/b'])
  })
  it('keeps metadata', async () => {
    const info = await sbx.files.write('m.txt', 'x', { metadata: { Author: 'me', purpose: 'a test' } })
    assert.deepEqual(info.metadata, { author: 'me', purpose: 'a test' })
    assert.deepEqual((await sbx.files.getInfo('m.txt')).metadata, { author: 'me', purpose: 'a test' })
    await sbx.files.rename('m.txt', 'm2.txt')
    assert.deepEqual((await sbx.files.getInfo('m2.txt')).metadata, { author: 'me', purpose: 'a test' })
    assert.deepEqual((await sbx.files.list('.')).find((x) => x.name === 'm2.txt').metadata, { author: 'me', purpose: 'a test' })
    await sbx.files.write('m2.txt', 'y', { metadata: { only: 'this' } })
    assert.deepEqual((await sbx.files.getInfo('m2.txt')).metadata, { only: 'this' })
    await sbx.commands.run(`python3 -c 'import os; os.setxattr("m2.txt", "user.e2b.author", b"inside")'`)
    assert.deepEqual((await sbx.files.getInfo('m2.txt')).metadata, { only: 'this', author: 'inside' })
    await sbx.files.write('m2.txt', 'z')
    assert.equal((await sbx.files.getInfo('m2.txt')).metadata, undefined)
  })
})
