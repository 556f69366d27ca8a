// One SDK process that asks for a lot: no stall, no leak; and what a round trip costs beside the native API's.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' }
const vm = process.env.HUTCH_TIER === 'vm'
const median = (x) => [...x].sort((a, b) => a - b)[x.length >> 1]
const timed = async (fn) => { const t = performance.now(); await fn(); return performance.now() - t }
const ms = (x) => `${x.toFixed(1)} ms`

describe('load', { timeout: 580_000 }, () => {
  let sbx
  before(async () => { sbx = await Sandbox.create({ metadata, timeoutMs: 900_000 }) })
  after(async () => { await sbx?.kill() })
  const nothingRuns = async () => {
    let left
    for (let i = 0; i < 100 && (left = await sbx.commands.list()).length; i++) await new Promise((r) => setTimeout(r, 100))
    assert.deepEqual(left, [])
  }

  it('200 commands at once', async () => {
    const all = await Promise.all(Array.from({ length: 200 }, (_, i) => sbx.commands.run(`echo ${i}`, { timeoutMs: 0 })))
    all.forEach((r, i) => assert.equal(r.stdout, `${i}\n`))
    await nothingRuns()
  })
  const rounds = vm && !process.env.HUTCH_SLOW ? 300 : 1000 // an emulated machine takes its time: all of them on request
  it(`${rounds} one after the other, against the native API in turns`, async () => {
    const native = (argv) => fetch(`${api}/v1/sandboxes/${sbx.sandboxId}/exec`, { method: 'POST', headers: key, body: JSON.stringify({ cmd: argv }) }).then(async (r) => {
      const j = await r.json()
      assert.equal(j.exit?.code, 0, JSON.stringify(j))
    })
    const sdk = [], same = [], plain = []
    for (let i = 0; i < rounds; i++) {
      sdk.push(await timed(() => sbx.commands.run('true')))
      if (i % 10) continue
      same.push(await timed(() => native(['/bin/bash', '-l', '-c', 'true'])))
      plain.push(await timed(() => native(['/bin/true'])))
    }
    console.log(`figure: commands.run('true') ${ms(median(sdk))}; native exec of the same bash -l ${ms(median(same))} (${(median(sdk) / median(same)).toFixed(2)} x), of /bin/true alone ${ms(median(plain))}`)
    assert.ok(median(sdk) <= 2 * median(same), 'the SDK takes more than twice the native API\'s time for the same shell')
    await nothingRuns()
  })
  it('50 terminals at once', async () => {
    const seen = Array.from({ length: 50 }, () => '')
    const all = await Promise.all(seen.map((_, i) => sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (d) => { seen[i] += Buffer.from(d).toString() } })))
    await Promise.all(all.map((t, i) => sbx.pty.sendInput(t.pid, Buffer.from(`echo "<$((${i} * 3))>"; exit\n`))))
    await Promise.all(all.map((t) => t.wait()))
    seen.forEach((s, i) => assert.match(s, new RegExp(`<${i * 3}>`)))
    await nothingRuns()
  })
  it('50 streams of output at once, and a command beside them', async () => {
    const n = vm ? 20 : 50
    const big = Array.from({ length: n }, () => sbx.commands.run('head -c 1000000 /dev/zero | tr "\\0" x', { timeoutMs: 0 }))
    assert.equal((await sbx.commands.run('echo beside', { timeoutMs: 0 })).stdout, 'beside\n')
    for (const r of await Promise.all(big)) assert.equal(r.stdout.length, 1_000_000)
    await nothingRuns()
  })
})
