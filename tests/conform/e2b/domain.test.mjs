// An SDK that knows nothing but a domain and a key, over https: E2B_DOMAIN and NODE_EXTRA_CA_CERTS are all that is set.
// run.py gives this file a daemon with a certificate of its own (hutch tls self-signed).
import assert from 'node:assert/strict'
import dns from 'node:dns'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

// Names below localhost are this machine (RFC 6761). Browsers and systemd-resolved know that, plain glibc does not.
const lookup = dns.lookup
dns.lookup = (name, options, done) => lookup(name.endsWith('.localhost') ? '127.0.0.1' : name, options, done)

const tier = process.env.HUTCH_TIER
const metadata = tier ? { 'hutch.isolation': tier } : {}

describe('a domain and nothing else', () => {
  let sbx
  before(async () => {
    assert.ok(process.env.E2B_DOMAIN && !process.env.E2B_API_URL && !process.env.E2B_SANDBOX_URL)
    sbx = await Sandbox.create('base', { metadata, timeoutMs: 120_000 })
  })
  after(async () => { await sbx?.kill() })

  it('runs commands, with output as it comes', async () => {
    const seen = []
    const r = await sbx.commands.run('echo one; sleep 0.2; echo two', { onStdout: (s) => seen.push(s) })
    assert.equal(r.stdout, 'one\ntwo\n')
    assert.ok(seen.length >= 1)
  })
  it('moves files', async () => {
    const text = 'x'.repeat(3_000_000)
    await sbx.files.write('/tmp/big', text)
    assert.equal(await sbx.files.read('/tmp/big'), text)
  })
  it('has a terminal', async () => {
    let shown = ''
    const pty = await sbx.pty.create({ cols: 80, rows: 24, onData: (d) => { shown += new TextDecoder().decode(d) }, timeoutMs: 60_000 })
    await sbx.pty.sendInput(pty.pid, new TextEncoder().encode('echo answer-$((40+2)); exit\n'))
    await pty.wait()
    assert.match(shown, /answer-42/)
  })
  it('serves a port by its own name', async () => {
    await sbx.files.write('/tmp/www/index.html', 'inside')
    await sbx.commands.run('python3 -m http.server 8079 -d /tmp/www', { background: true })
    const host = sbx.getHost(8079)
    assert.equal(host, `8079-${sbx.sandboxId}.${process.env.E2B_DOMAIN}`)
    let text
    for (let i = 0; i < 50 && text !== 'inside'; i++) {
      const r = await fetch(`https://${host}/`)
      text = r.ok ? await r.text() : undefined
      if (text !== 'inside') await new Promise((ok) => setTimeout(ok, 200))
    }
    assert.equal(text, 'inside')
  })
  it('is refused without the authority', async () => {
    await assert.rejects(fetch('https://' + process.env.E2B_DOMAIN.replace(/^hutch\./, 'other.') + '/health'), /fetch failed/)
  })
})
