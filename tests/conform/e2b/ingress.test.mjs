// Ports of the guest: HTTP, WebSocket, tokens, and what a closed port or a dead sandbox answers.
import assert from 'node:assert/strict'
import http from 'node:http'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'
import { WebSocket } from 'undici'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const base = new URL(process.env.E2B_API_URL)
const ask = (headers, { path = '/', method = 'GET', body } = {}) => new Promise((done, fail) => {
  const q = http.request({ host: base.hostname, port: base.port, path, method, headers, agent: false }, (r) => {
    const b = []
    r.on('data', (d) => b.push(d)).on('end', () => done({ status: r.statusCode, headers: r.headers, body: Buffer.concat(b) })).on('error', fail)
  })
  q.on('error', fail)
  if (body) q.write(body)
  q.end()
})

const server = `
import base64, hashlib, http.server, socketserver, struct, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get('Upgrade', '').lower() == 'websocket': return self.ws()
        if self.path == '/endless':
            self.send_response(200); self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
            self.wfile.write(b'1\\r\\nx\\r\\n'); self.wfile.flush(); self.rfile.read(1); return
        if self.path == '/stream':
            self.send_response(200); self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
            for i in range(200): self.wfile.write(b'2710\\r\\n' + b'x' * 10000 + b'\\r\\n')
            self.wfile.write(b'0\\r\\n\\r\\n'); return
        b = ('host=%s fwd=%s path=%s tok=%s' % (self.headers['Host'], self.headers.get('X-Forwarded-Host'), self.path, self.headers.get('e2b-traffic-access-token'))).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(b))); self.send_header('X-Two', 'a'); self.send_header('X-Two', 'b'); self.end_headers(); self.wfile.write(b)
    do_HEAD = lambda self: (self.send_response(200), self.send_header('Content-Length', '7'), self.end_headers())
    def do_POST(self):
        n, h = self.headers.get('Content-Length'), hashlib.sha256()
        if n is not None: h.update(self.rfile.read(int(n)))
        else:
            while True:
                k = int(self.rfile.readline(), 16); d = self.rfile.read(k); self.rfile.readline(); h.update(d)
                if not k: break
        b = h.hexdigest().encode()
        self.send_response(201); self.send_header('Content-Length', str(len(b))); self.end_headers(); self.wfile.write(b)
    def ws(self):
        a = base64.b64encode(hashlib.sha1((self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()).decode()
        self.send_response(101); self.send_header('Upgrade', 'websocket'); self.send_header('Connection', 'Upgrade'); self.send_header('Sec-WebSocket-Accept', a); self.end_headers()
        while True:
            h = self.rfile.read(2); n = h[1] & 127
            if n == 126: n = struct.unpack('>H', self.rfile.read(2))[0]
            m = self.rfile.read(4); d = bytes(c ^ m[i % 4] for i, c in enumerate(self.rfile.read(n)))
            if h[0] & 15 == 8: self.wfile.write(b'\\x88\\x00'); self.close_connection = True; return
            self.wfile.write(bytes([h[0]]) + (bytes([n]) if n < 126 else b'\\x7e' + struct.pack('>H', n)) + d)
class S(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
S(('127.0.0.1', int(sys.argv[1])), H).serve_forever()
`

describe('ingress', () => {
  let sbx, h
  before(async () => {
    sbx = await Sandbox.create({ metadata })
    await sbx.files.write('/tmp/server.py', server)
    await sbx.commands.run('python3 /tmp/server.py 3000', { background: true })
    h = (port = 3000) => ({ 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': String(port) })
    for (let i = 0; i < 60 && (await ask(h())).status !== 200; i++);
  })
  after(async () => { await sbx?.kill() })

  it('reaches a server by headers', async () => {
    const r = await ask(h(), { path: '/a/b?c=d%20e' })
    assert.equal(r.status, 200)
    assert.match(r.body.toString(), /path=\/a\/b\?c=d%20e/)
    assert.equal(r.headers['x-two'], 'a, b')
  })
  it('reaches it by host name', async () => {
    const host = sbx.getHost(3000)
    assert.ok(host.startsWith(`3000-${sbx.sandboxId}.`))
    const r = await ask({ Host: `3000-${sbx.sandboxId}.example.org` })
    assert.equal(r.status, 200)
    assert.match(r.body.toString(), new RegExp(`host=3000-${sbx.sandboxId}.example.org`))
  })
  it('passes bodies, sized and chunked', async () => {
    const { createHash } = await import('node:crypto')
    const body = Buffer.alloc(3_000_000, 'abcdefg'), want = createHash('sha256').update(body).digest('hex')
    const sized = await ask({ ...h(), 'Content-Length': String(body.length) }, { method: 'POST', body })
    assert.equal(sized.status, 201)
    assert.equal(sized.body.toString(), want)
    assert.equal((await ask(h(), { method: 'POST', body })).body.toString(), want)
  })
  it('streams an answer without a length', async () => {
    const r = await ask(h(), { path: '/stream' })
    assert.equal(r.body.length, 2_000_000)
  })
  it('answers HEAD', async () => {
    const r = await ask(h(), { method: 'HEAD' })
    assert.equal(r.status, 200)
    assert.equal(r.headers['content-length'], '7')
  })
  it('carries a WebSocket', async () => {
    const ws = new WebSocket(`ws://${base.host}/ws`, { headers: h() })
    const got = await new Promise((done, fail) => {
      const seen = []
      ws.onopen = () => { ws.send('hello'); ws.send('y'.repeat(2000)) }
      ws.onmessage = (m) => { seen.push(m.data); if (seen.length === 2) done(seen) }
      ws.onerror = (e) => fail(e.error ?? new Error('websocket'))
    })
    assert.deepEqual(got, ['hello', 'y'.repeat(2000)])
    const closed = new Promise((r) => { ws.onclose = r })
    ws.close()
    await closed
  })
  it('waits a moment for a server that starts', async () => {
    const r = ask(h(3001))
    await sbx.commands.run('python3 /tmp/server.py 3001', { background: true })
    assert.ok([200, 502].includes((await r).status))
  })
  it('says when nothing listens', async () => {
    const r = await ask(h(3999))
    assert.equal(r.status, 502)
    assert.deepEqual(JSON.parse(r.body), { message: 'The sandbox is running but port is not open', sandboxId: sbx.sandboxId, port: 3999, code: 502 })
  })
  it('shows a browser a page', async () => {
    const r = await ask({ ...h(3999), Accept: 'text/html,application/xhtml+xml,*/*;q=0.8', 'Sec-Fetch-Mode': 'navigate' })
    assert.equal(r.status, 502)
    assert.match(r.headers['content-type'], /^text\/html/)
    assert.match(r.body.toString(), new RegExp(`port is not open[^]*${sbx.sandboxId}[^]*3999`))
    const gone = await ask({ Host: '80-i00000000000000000000.example.org', Accept: 'text/html' })
    assert.deepEqual([gone.status, /was not found/.test(gone.body)], [502, true])
    assert.match((await ask({ ...h(3999), Accept: '*/*', 'User-Agent': 'Mozilla/5.0' })).headers['content-type'], /^application\/json/)
  })
  it('refuses what it cannot place', async () => {
    for (const [headers, message] of [[{ 'E2b-Sandbox-Id': sbx.sandboxId }, 'missing header'], [{ 'E2b-Sandbox-Port': '1' }, 'missing header'],
      [{ 'E2b-Sandbox-Id': 'A_b', 'E2b-Sandbox-Port': '1' }, 'Invalid sandbox ID'], [{ ...h(), Host: 'evil.example' }, 'Invalid host']]) {
      const r = await ask(headers)
      assert.equal(r.status, 400)
      assert.equal(JSON.parse(r.body).message, message)
    }
  })
  it('does not believe headers on a host of another form', async () => {
    const r = await ask({ ...h(), Host: '3999-i00000000000000000000.example.org' })
    assert.equal(r.status, 502)
    assert.deepEqual(JSON.parse(r.body), { sandboxId: 'i00000000000000000000', message: 'The sandbox was not found', code: 502 })
  })
})

describe('private ingress', () => {
  let sbx
  before(async () => {
    sbx = await Sandbox.create({ metadata, network: { allowPublicTraffic: false, maskRequestHost: 'app.local:${PORT}' } })
    await sbx.files.write('/tmp/server.py', server)
    await sbx.commands.run('python3 /tmp/server.py 3000', { background: true })
    const own = { ...h(), 'e2b-traffic-access-token': sbx.trafficAccessToken }
    for (let i = 0; i < 60 && (await ask(own)).status !== 200; i++);
  })
  after(async () => { await sbx?.kill() })
  const h = () => ({ 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '3000' })

  it('needs the token', async () => {
    assert.ok(sbx.trafficAccessToken)
    for (const extra of [{}, { 'e2b-traffic-access-token': 'x' }]) {
      const r = await ask({ ...h(), ...extra }), j = JSON.parse(r.body)
      assert.equal(r.status, 403)
      assert.equal(j.code, 403)
      assert.equal(j.sandboxId, sbx.sandboxId)
    }
  })
  it('shows the service the masked host and keeps the token to itself', async () => {
    const r = await ask({ ...h(), 'e2b-traffic-access-token': sbx.trafficAccessToken })
    assert.equal(r.status, 200)
    assert.equal(r.body.toString(), `host=app.local:3000 fwd=${base.host} path=/ tok=None`)
  })
  it('is 502 as soon as the sandbox is killed, streams are cut', async () => {
    const cut = new Promise((done) => {
      http.get({ host: base.hostname, port: base.port, path: '/endless', headers: { ...h(), 'e2b-traffic-access-token': sbx.trafficAccessToken } }, (r) => {
        r.on('data', () => sbx.kill().then(() => {})).on('end', () => done('ended')).on('error', () => done('cut'))
        setTimeout(() => done('still open'), 10_000).unref()
      })
    })
    assert.equal(await cut, 'cut')
    const r = await ask(h())
    assert.equal(r.status, 502)
    assert.deepEqual(JSON.parse(r.body), { sandboxId: sbx.sandboxId, message: 'The sandbox was not found', code: 502 })
  })
})
