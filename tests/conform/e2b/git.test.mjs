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
