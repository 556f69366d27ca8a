// Sandbox.git of the real SDK, with a bare repository inside the sandbox as the other side.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}

describe('git', () => {
  let sbx
  before(async () => {
    sbx = await Sandbox.create({ metadata })
    await sbx.commands.run('git init -q --bare -b main /tmp/origin.git && git init -q -b main /tmp/seed && cd /tmp/seed && ' +
      'git config user.email a@b && git config user.name n && echo one > f && git add f && git commit -qm first && git push -q /tmp/origin.git main')
  })
  after(async () => { await sbx?.kill() })

  it('clones, changes, commits, pushes', async () => {
    await sbx.git.clone('file:///tmp/origin.git', { path: '/home/user/copy' })
    assert.equal(await sbx.files.read('copy/f'), 'one\n')
    await sbx.git.configureUser('Some One', 'one@example.org')
    await sbx.files.write('copy/g', 'two\n')
    const status = await sbx.git.status('/home/user/copy')
    assert.equal(status.currentBranch, 'main')
    await sbx.git.add('/home/user/copy')
    await sbx.git.commit('/home/user/copy', 'second')
    await sbx.git.push('/home/user/copy')
    assert.equal((await sbx.commands.run('git --git-dir=/tmp/origin.git log --format=%s main')).stdout, 'second\nfirst\n')
  })
  it('branches', async () => {
    await sbx.git.createBranch('/home/user/copy', 'side')
    const b = await sbx.git.branches('/home/user/copy')
    assert.equal(b.currentBranch, 'side')
    assert.deepEqual([...b.branches].sort(), ['main', 'side'])
    await sbx.git.checkoutBranch('/home/user/copy', 'main')
  })
  it('says when there is nothing to clone', async () => {
    await assert.rejects(sbx.git.clone('file:///tmp/missing.git', { path: '/home/user/none' }))
  })
})

describe('git, the rest of it', () => {
  let sbx
  const at = '/home/user/repo'
  before(async () => {
    sbx = await Sandbox.create({ metadata })
    await sbx.git.init(at, { initialBranch: 'main' })
    await sbx.git.configureUser('Some One', 'one@example.org')
    await sbx.files.write(`${at}/f`, '1\n')
    await sbx.git.add(at)
    await sbx.git.commit(at, 'first')
  })
  after(async () => { await sbx?.kill() })

  it('status tells what changed', async () => {
    await sbx.files.write(`${at}/f`, '2\n')
    await sbx.files.write(`${at}/new`, 'n\n')
    const s = await sbx.git.status(at)
    assert.equal(s.currentBranch, 'main')
    assert.deepEqual(s.fileStatus.map((f) => f.name).sort(), ['f', 'new'])
  })
  it('restores and resets', async () => {
    await sbx.git.restore(at, { paths: ['f'] })
    assert.equal(await sbx.files.read(`${at}/f`), '1\n')
    await sbx.git.add(at, { files: ['new'] })
    await sbx.git.commit(at, 'second', { authorName: 'Other', authorEmail: 'o@example.org' })
    await sbx.git.reset(at, { mode: 'hard', target: 'HEAD~1' })
    assert.equal(await sbx.files.exists(`${at}/new`), false)
  })
  it('remotes, push with upstream, pull', async () => {
    await sbx.commands.run('git init -q --bare -b main /tmp/other.git')
    await sbx.git.remoteAdd(at, 'origin', 'file:///tmp/other.git')
    assert.equal(await sbx.git.remoteGet(at, 'origin'), 'file:///tmp/other.git')
    assert.equal(await sbx.git.remoteGet(at, 'none'), undefined)
    await sbx.git.push(at, { remote: 'origin', branch: 'main', setUpstream: true })
    await sbx.commands.run('git clone -q /tmp/other.git /tmp/w && cd /tmp/w && echo 3 > f && git commit -qam third && git push -q')
    await sbx.git.pull(at)
    assert.equal(await sbx.files.read(`${at}/f`), '3\n')
  })
  it('branches go', async () => {
    await sbx.git.createBranch(at, 'gone')
    await sbx.git.checkoutBranch(at, 'main')
    await sbx.git.deleteBranch(at, 'gone')
    assert.deepEqual((await sbx.git.branches(at)).branches, ['main'])
  })
  it('configuration', async () => {
    await sbx.git.setConfig('pull.rebase', 'true', { scope: 'local', path: at })
    assert.equal(await sbx.git.getConfig('pull.rebase', { scope: 'local', path: at }), 'true')
    assert.equal(await sbx.git.getConfig('user.name'), 'Some One')
    assert.equal(await sbx.git.getConfig('no.such'), undefined)
    await sbx.git.dangerouslyAuthenticate({ username: 'someone', password: 's3cret' })
    assert.match((await sbx.commands.run('cat ~/.git-credentials')).stdout, /someone:s3cret@github\.com/)
  })
})
