// Secrets of the real SDK, and the rules that use them.
import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { Sandbox, Secret, SecretError, SecretNotFoundError } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY }
const name = `Conform_${Date.now().toString(36)}.key`

describe('secrets', () => {
  let info
  after(async () => { for (let i = 0; i < 4; i++) await Secret.destroy(i ? `${name}-${i}` : name) })
  it('are made, found by name and id, never shown', async () => {
    info = await Secret.create(name, 's3cret-value', { metadata: { team: 'a' } })
    assert.deepEqual([info.name, info.version, info.metadata], [name, 1, { team: 'a' }])
    assert.ok(info.secretId && info.createdAt instanceof Date && info.updatedAt instanceof Date)
    assert.deepEqual(await Secret.getInfo(name), info)
    assert.deepEqual(await Secret.getInfo(info.secretId), info)
    assert.equal(await Secret.exists(name), true)
    assert.ok(!JSON.stringify(await (await fetch(`${api}/secrets`, { headers: key })).json()).includes('s3cret-value'))
  })
  it('get new versions', async () => {
    const two = await Secret.update(name, 'another')
    assert.deepEqual([two.secretId, two.version, two.metadata], [info.secretId, 2, { team: 'a' }])
    const three = await Secret.update(info.secretId, 'third', { metadata: { team: 'b' } })
    assert.deepEqual([three.version, three.metadata], [3, { team: 'b' }])
    assert.ok(three.updatedAt >= info.updatedAt)
  })
  it('are listed in pages', async () => {
    for (let i = 1; i < 4; i++) await Secret.create(`${name}-${i}`, 'x')
    const seen = []
    for (const p = Secret.list({ limit: 2 }); p.hasNext;) {
      const page = await p.nextItems()
      assert.ok(page.length <= 2)
      seen.push(...page.map((s) => s.name))
    }
    assert.deepEqual(seen.filter((n) => n.startsWith(name)).sort(), [name, `${name}-1`, `${name}-2`, `${name}-3`])
    assert.equal(new Set(seen).size, seen.length)
  })
  it('are refused when taken, empty or unknown', async () => {
    await assert.rejects(Secret.create(name, 'x'), (e) => e instanceof SecretError && /^409/.test(e.message))
    await assert.rejects(Secret.create('a b', 'x'), (e) => /^400/.test(e.message))
    await assert.rejects(Secret.create('empty', ''), (e) => /^400/.test(e.message))
    await assert.rejects(Secret.getInfo('none-such'), SecretNotFoundError)
    await assert.rejects(Secret.update('none-such', 'x'), SecretNotFoundError)
    assert.equal(await Secret.exists('none-such'), false)
    assert.equal(await Secret.destroy('none-such'), false)
    assert.equal((await fetch(`${api}/secrets?limit=0`, { headers: key })).status, 400)
  })
  it('are named in rules, and shown there by name only', async () => {
    const sbx = await Sandbox.create({ metadata, network: { rules: { 'api.example.org': [{ transform: { headers: { Authorization: `Bearer ${Secret.fill(name)}` } } }] } } })
    try {
      const raw = await (await fetch(`${api}/sandboxes/${sbx.sandboxId}`, { headers: key })).json()
      assert.equal(raw.network.rules['api.example.org'][0].transform.headers.Authorization, `Bearer \${e2b.secrets.${name}}`)
    } finally { await sbx.kill() }
    await assert.rejects(Sandbox.create({ metadata, network: { rules: { 'api.example.org': [{ transform: { headers: { A: Secret.fill('none-such') } } }] } } }), /^SandboxError: 400|400/)
  })
  it('are destroyed once', async () => {
    assert.equal(await Secret.destroy(info.secretId), true)
    assert.equal(await Secret.destroy(name), false)
  })
})
