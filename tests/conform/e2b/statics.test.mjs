// What the SDK offers beside the objects: calls by id, old names, the MCP gateway's address, helpers that only make text. And what is refused.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { ALL_TRAFFIC, FileNotFoundError, getSignature, Sandbox, SandboxNotFoundError, Secret, waitForFile, waitForPort, waitForProcess, waitForTimeout, waitForURL } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const nobody = 'i00000000000000000000'

describe('calls by id', { timeout: 120_000 }, () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata }) })
  after(async () => { await sbx?.kill() })

  it('info, metrics, timeout', async () => {
    const i = await Sandbox.getInfo(sbx.sandboxId)
    assert.deepEqual([i.sandboxId, i.state], [sbx.sandboxId, 'running'])
    assert.ok(Array.isArray(await Sandbox.getMetrics(sbx.sandboxId)))
    await Sandbox.setTimeout(sbx.sandboxId, 1_000_000)
    assert.ok((await Sandbox.getInfo(sbx.sandboxId)).endAt > i.endAt)
    for (const call of [() => Sandbox.getInfo(nobody), () => Sandbox.getMetrics(nobody), () => Sandbox.setTimeout(nobody, 1000), () => Sandbox.pause(nobody),
      () => Sandbox.fork(nobody), () => Sandbox.createSnapshot(nobody), () => Sandbox.updateNetwork(nobody, {}), () => Sandbox.connect(nobody)])
      await assert.rejects(call(), SandboxNotFoundError, call.toString())
  })
  it('egress is replaced as a whole, and what is left out is cleared', async () => {
    const egress = async () => { const n = (await sbx.getInfo()).network ?? {}; return [n.allowOut ?? [], n.denyOut ?? []] }
    await sbx.updateNetwork({ allowOut: ['192.0.2.7', '*.example.org'], denyOut: [ALL_TRAFFIC] })
    assert.deepEqual(await egress(), [['192.0.2.7', '*.example.org'], [ALL_TRAFFIC]])
    const denied = async () => (await sbx.commands.run('curl -sS -m 20 -o /dev/null -w "%{http_code}" http://198.51.100.1/')).stdout
    assert.equal(await denied(), '403')
    await Sandbox.updateNetwork(sbx.sandboxId, { denyOut: ['198.51.100.0/24'] })
    assert.deepEqual([await egress(), await denied()], [[[], ['198.51.100.0/24']], '403'])
    await sbx.updateNetwork({ allowInternetAccess: false })
    assert.equal((await sbx.getInfo()).allowInternetAccess, false)
    await sbx.updateNetwork({})
    assert.deepEqual(await egress(), [[], []])
    await assert.rejects(sbx.updateNetwork({ denyOut: ['example.org'] }), /400: .*invalid denied CIDR example\.org/)
    await assert.rejects(sbx.updateNetwork({ allowOut: ['example.org'] }), /400/)
    assert.deepEqual(await egress(), [[], []])
  })
  it('the address of an MCP gateway, and its token', async () => {
    assert.equal(sbx.getMcpUrl(), `https://${sbx.getHost(50005)}/mcp`)
    await assert.rejects(sbx.getMcpToken(), FileNotFoundError)
    await sbx.files.write('/etc/mcp-gateway/.token', 'the-token', { user: 'root' })
    assert.equal(await sbx.getMcpToken(), 'the-token')
  })
  it('snapshots and forks', async () => {
    const snap = await Sandbox.createSnapshot(sbx.sandboxId)
    const [child] = await Sandbox.fork(sbx.sandboxId)
    try {
      assert.notEqual(child.sandboxId, sbx.sandboxId)
      assert.equal((await child.commands.run('echo child')).stdout, 'child\n')
    } finally { await child.kill() }
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
  })
  it('pause, under both names', async () => {
    assert.equal(await sbx.betaPause(), true)
    assert.equal(await Sandbox.betaPause(sbx.sandboxId), false)
    assert.equal(await Sandbox.pause(sbx.sandboxId), false)
    await sbx.connect()
    assert.equal((await sbx.commands.run('echo on')).stdout, 'on\n')
    assert.equal(sbx.commands.supportsStdinClose, true)
  })
})

describe('what is not here says so', () => {
  for (const [name, opts] of Object.entries({
    'workload identity': { iam: { tokens: { aws: Secret.iamToken({ audience: 'sts.example.org', tokenType: 'JWT-SVID' }) } } },
    'a SOCKS proxy': { network: { egressProxy: { address: 'proxy.example.org:1080' } } },
    'TLS to a port inside': { network: { httpsPorts: [3000] } },
  }))
    it(name, () => assert.rejects(Sandbox.create({ metadata, ...opts }), /400: /))
})

describe('text', () => {
  it('ready commands', () => {
    assert.equal(waitForProcess('nginx').getCmd(), 'pgrep nginx > /dev/null')
    assert.match(waitForPort(80).getCmd(), /:80/)
    assert.match(waitForURL('http://localhost/', 204).getCmd(), /204/)
    assert.match(waitForFile('/x').getCmd(), /\/x/)
    assert.equal(waitForTimeout(3000).getCmd(), 'sleep 3')
  })
  it('signatures', async () => {
    const { signature } = await getSignature({ path: 'notes/a b.txt', operation: 'read', envdAccessToken: 'Kq3hutch0demo0token0' })
    assert.equal(signature, 'v1_KB/TFPCoJT/tXo6QU3BI2teJtyHOiHdHR0MHRJERiq4')
  })
})
