// The wire itself, where the SDK shows only half of it: bodies, codes, framing, odd input. What E2B's servers answer, byte for byte where that is known.
import assert from 'node:assert/strict'
import http from 'node:http'
import { after, before, describe, it } from 'node:test'
import { Sandbox } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const auth = { 'X-API-KEY': process.env.E2B_API_KEY }
const control = async (method, path, body, headers = auth) => {
  const r = await fetch(api + path, { method, headers: body === undefined ? headers : { 'Content-Type': 'application/json', ...headers }, body: typeof body === 'object' ? JSON.stringify(body) : body })
  const text = await r.text()
  let json
  try { json = JSON.parse(text) } catch { json = undefined }
  return { status: r.status, text, json, headers: r.headers }
}
const refused = async (status, method, path, body, re) => {
  const r = await control(method, path, body)
  assert.deepEqual([r.status, r.json?.code], [status, status], `${method} ${path} ${JSON.stringify(body)}: ${r.status} ${r.text}`)
  assert.equal(typeof r.json.message, 'string')
  if (re) assert.match(r.json.message, re)
}
let sbx, raw
const envd = (over = {}) => ({ 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': raw.envdAccessToken, ...over })
const nobody = 'i00000000000000000000'

before(async () => {
  sbx = await Sandbox.create({ metadata, timeoutMs: 600_000 })
  raw = (await control('GET', `/sandboxes/${sbx.sandboxId}`)).json
})
after(async () => { await sbx?.kill() })

describe('control plane', { timeout: 120_000 }, () => {
  it('bodies that are none, or odd', async () => {
    for (const body of ['', '{', '[]', 'null', '{}', '{"templateID":7}', '{"templateID":""}', '{"templateID":null}']) await refused(400, 'POST', '/v2/sandboxes', body)
    const t = (more) => ({ templateID: 'base', ...more })
    for (const more of [{ metadata: { a: 1 } }, { metadata: 'x' }, { envVars: { A: 1 } }, { envVars: { 'A=B': '1' } }, { timeout: 'x' }, { timeout: 1.5 }, { autoPause: 'yes' }, { network: 7 }, { volumeMounts: {} }, { autoResume: true }])
      await refused(400, 'POST', '/v2/sandboxes', t(more))
    await refused(400, 'POST', '/v2/sandboxes', t({ timeout: -1 }), /^Timeout must be greater than 0$/)
    await refused(400, 'POST', '/v2/sandboxes', '{"templateID":"base","timeout":99999999999999999999}')
    for (const [what, re] of [['a/b/c', /^Invalid template reference/], [':v1', /^Invalid template reference/], ['base:', /^Invalid template reference/], ['x'.repeat(300), /./]]) await refused(400, 'POST', '/v2/sandboxes', { templateID: what }, re)
  })
  it('takes what it does not know, in bodies and queries', async () => {
    const r = await control('POST', '/v2/sandboxes?source=x&y', { templateID: 'base', metadata: { ...metadata, 'clé ☃': 'värde 💡' }, later: { x: [1] }, timeout: 60 })
    assert.equal(r.status, 201, r.text)
    try {
      assert.deepEqual(Object.keys(r.json).sort().filter((k) => !['alias', 'domain', 'trafficAccessToken', 'envdAccessToken'].includes(k)), ['clientID', 'envdVersion', 'sandboxID', 'templateID'])
      const i = (await control('GET', `/sandboxes/${r.json.sandboxID}?z=1`)).json
      assert.equal(i.metadata['clé ☃'], 'värde 💡')
      for (const k of ['templateID', 'sandboxID', 'clientID', 'startedAt', 'endAt', 'cpuCount', 'memoryMB', 'diskSizeMB', 'state', 'envdVersion']) assert.ok(i[k] !== undefined && i[k] !== null, k)
      assert.match(i.startedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z$/)
      const q = encodeURIComponent(new URLSearchParams({ [encodeURIComponent('clé ☃')]: encodeURIComponent('värde 💡') }).toString())
      assert.deepEqual((await control('GET', `/v2/sandboxes?metadata=${q}&unknown=1`)).json.map((s) => s.sandboxID), [r.json.sandboxID])
    } finally { assert.equal((await control('DELETE', `/sandboxes/${r.json.sandboxID}`)).status, 204) }
    await refused(404, 'DELETE', `/sandboxes/${r.json.sandboxID}`)
  })
  it('calls on what is not there', async () => {
    for (const [method, path, body] of [['GET', ''], ['DELETE', ''], ['POST', '/timeout', { timeout: 10 }], ['POST', '/refreshes', {}], ['POST', '/pause', {}], ['POST', '/fork', {}],
      ['POST', '/snapshots', {}], ['POST', '/connect', { timeout: 10 }], ['POST', '/resume', {}], ['GET', '/metrics'], ['GET', '/logs'], ['PUT', '/network', {}]])
      for (const id of [nobody, 'nonsense']) await refused(404, method, `/sandboxes/${id}${path}`, body)
    await refused(404, 'POST', `/v2/sandboxes/${nobody}/connect`, {})
  })
  it('timeouts: missing, odd, shorter, longer', async () => {
    const id = sbx.sandboxId, end = async () => Date.parse((await control('GET', `/sandboxes/${id}`)).json.endAt)
    for (const body of ['', '{}', '{"timeout":"x"}', '{"timeout":1e30}']) await refused(400, 'POST', `/sandboxes/${id}/timeout`, body)
    assert.equal((await control('POST', `/sandboxes/${id}/timeout`, { timeout: 900 })).status, 204)
    const long = await end()
    assert.equal((await control('POST', `/sandboxes/${id}/refreshes`, { duration: 10 })).status, 204)
    assert.equal(await end(), long)
    assert.equal((await control('POST', `/v2/sandboxes/${id}/connect`, '')).status, 200)
    assert.equal((await control('POST', `/v2/sandboxes/${id}/connect`, {})).status, 200)
    assert.equal(await end(), long)
    await refused(400, 'POST', `/v2/sandboxes/${id}/connect`, { timeout: 'x' })
    await refused(400, 'POST', `/sandboxes/${id}/fork`, { count: 0 })
    await refused(400, 'POST', `/sandboxes/${id}/fork`, { count: 101 })
    await refused(400, 'GET', '/v2/sandboxes?limit=x')
    assert.ok((await control('GET', '/v2/sandboxes?state=&order=&metadata=&nextToken=&startedAfter=')).json.some((s) => s.sandboxID === id)) // empty is not asked for
    await refused(400, 'GET', `/sandboxes/${id}/metrics?start=x`)
    assert.deepEqual((await control('GET', `/sandboxes/${id}/metrics?start=9999999999`)).json, [])
  })
  it('secure: false gets its token all the same, and needs it', async () => {
    const r = await control('POST', '/sandboxes', { templateID: 'base', metadata, secure: false, timeout: 60 })
    assert.equal(r.status, 201, r.text)
    try {
      const list = (token) => fetch(`${api}/process.Process/List`, { method: 'POST', headers: { 'E2b-Sandbox-Id': r.json.sandboxID, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/json', ...token }, body: '{}' })
      assert.equal((await list({})).status, 401)
      assert.equal((await list({ 'X-Access-Token': r.json.envdAccessToken })).status, 200)
    } finally { await control('DELETE', `/sandboxes/${r.json.sandboxID}`) }
  })
  it('paused: what then is 409, what still works, and many connects at once', async () => {
    const one = (await control('POST', '/v2/sandboxes', { templateID: 'base', metadata })).json.sandboxID
    try {
      assert.equal((await control('POST', `/sandboxes/${one}/pause`)).status, 204) // no body at all
      await refused(409, 'POST', `/sandboxes/${one}/pause`, {})
      await refused(409, 'POST', `/sandboxes/${one}/fork`, {})
      await refused(404, 'POST', `/sandboxes/${one}/timeout`, { timeout: 10 })
      assert.equal((await control('GET', `/sandboxes/${one}`)).json.state, 'paused')
      assert.equal((await fetch(`${api}/health`, { headers: { 'E2b-Sandbox-Id': one, 'E2b-Sandbox-Port': '49983' } })).status, 502)
      const all = await Promise.all(Array.from({ length: 8 }, () => control('POST', `/v2/sandboxes/${one}/connect`, {})))
      assert.deepEqual(all.map((r) => r.status).filter((s) => s !== 200 && s !== 201), [], all.map((r) => r.text).join())
      assert.equal(new Set(all.map((r) => r.json.envdAccessToken)).size, 1)
      await refused(409, 'POST', `/sandboxes/${one}/resume`, {})
    } finally { assert.equal((await control('DELETE', `/sandboxes/${one}`)).status, 204) }
  })
  it('snapshots by name', async () => {
    const n = `Wire-${Date.now().toString(36)}`, low = n.toLowerCase()
    await refused(400, 'POST', `/sandboxes/${sbx.sandboxId}/snapshots`, { name: 'bad name!' })
    const r = await control('POST', `/sandboxes/${sbx.sandboxId}/snapshots`, { name: `${n}:V1` })
    assert.deepEqual([r.status, r.json], [201, { snapshotID: `hutch/${low}:v1`, names: [`hutch/${low}`] }], r.text)
    for (const q of [low, `hutch/${low}`, `${low}:v1`]) assert.deepEqual((await control('GET', `/snapshots?name=${encodeURIComponent(q)}`)).json.map((s) => s.snapshotID), [`hutch/${low}:v1`], q)
    assert.deepEqual((await control('GET', '/snapshots?name=none-such')).json, [])
    assert.deepEqual((await control('GET', `/snapshots?sandboxID=${nobody}`)).json, [])
    assert.equal((await control('DELETE', `/templates/${encodeURIComponent(`hutch/${low}:v1`)}`)).status, 204)
    await refused(404, 'DELETE', `/templates/${encodeURIComponent(`hutch/${low}:v1`)}`)
  })
  it('a snapshot has tags of its own', async () => {
    const n = `tag-${Date.now().toString(36)}`
    assert.equal((await control('POST', `/sandboxes/${sbx.sandboxId}/snapshots`, { name: `${n}:a` })).status, 201)
    await refused(404, 'POST', '/v2/sandboxes', { templateID: `${n}:b` }, new RegExp(`^tag 'b' does not exist for template '${n}'`))
    assert.equal((await control('DELETE', `/templates/${n}%3Aa`)).status, 204)
  })
  it('logs: levels, directions, pages of time', async () => {
    const logs = async (q) => (await control('GET', `/v2/sandboxes/${sbx.sandboxId}/logs?${q}`)).json.logs
    for (const bad of ['cursor=x', 'limit=1001', 'direction=up', 'level=loud']) await refused(400, 'GET', `/v2/sandboxes/${sbx.sandboxId}/logs?${bad}`)
    const all = await logs('level=info'), back = await logs('direction=backward')
    assert.ok(all.length >= 1 && all.every((l) => l.level === 'info' && l.message && l.fields))
    assert.deepEqual(back, [...all].reverse())
    assert.deepEqual(await logs('limit=1'), all.slice(0, 1))
    assert.deepEqual(await logs('limit=1&direction=backward'), all.slice(-1))
    for (const none of ['level=error', 'search=no-such-thing', 'cursor=99999999999999', 'cursor=1&direction=backward', 'limit=0']) assert.deepEqual(await logs(none), [], none)
    assert.deepEqual(await logs(`search=${all[0].message.toUpperCase()}&limit=1`), all.slice(0, 1))
    assert.deepEqual(await logs('cursor=99999999999999&direction=backward'), back)
    const old = async (q) => (await control('GET', `/sandboxes/${sbx.sandboxId}/logs?${q}`)).json
    assert.deepEqual((await old('')).logs.map((l) => l.line), all.map((l) => l.message))
    assert.deepEqual(await old('start=99999999999999'), { logs: [], logEntries: [] })
  })
  it('tokens of pages that nobody gave out', async () => {
    for (const path of ['/v2/sandboxes', '/snapshots', '/secrets']) await refused(400, 'GET', `${path}?nextToken=xyz`)
    for (const path of ['/nodes', '/api-keys', '/access-tokens', '/teams']) await refused(404, 'GET', path)
    await refused(400, 'POST', '/v2/sandboxes', { templateID: 'base', mcp: 7 })
  })
  it('templates: what is announced, and what is not', async () => {
    for (const body of ['', '{}', { name: '' }, { name: 'Bad Name' }, { name: 'a:b:c' }, { name: 'ok', tags: ['x y'] }, { name: 'ok', cpuCount: 0 }, { name: 'ok', memoryMB: 1 }]) await refused(400, 'POST', '/v3/templates', body)
    const n = `wire-${Date.now().toString(36)}`
    const r = await control('POST', '/v3/templates', { name: `${n}:One`, tags: ['TWO'] })
    assert.deepEqual([r.status, r.json.public, r.json.names, r.json.aliases, r.json.tags.sort()], [202, false, [`hutch/${n}`], [n], ['one', 'two']])
    assert.match(r.json.buildID, /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/)
    const { templateID: t, buildID: b } = r.json
    assert.equal((await control('GET', `/templates/${t}/builds/${b}/status`)).json.status, 'waiting')
    await refused(404, 'GET', `/templates/${t}/builds/00000000-0000-4000-8000-000000000000/status`)
    await refused(400, 'GET', `/templates/${t}/files/abc`)
    const f = await control('GET', `/templates/${t}/files/${'0'.repeat(64)}`)
    assert.deepEqual([f.status, f.json.present, typeof f.json.url], [201, false, 'string'])
    const bad = await fetch(f.json.url.replace(/signature=./, 'signature=x'), { method: 'PUT', body: 'x' })
    assert.ok(bad.status >= 400 && bad.status < 500)
    await refused(400, 'POST', `/v2/templates/${t}/builds/${b}`, { steps: [{ type: 'FLY', args: ['x'] }] })
    await refused(400, 'POST', `/v2/templates/${t}/builds/${b}`, { steps: [{ type: 'RUN', args: [] }] })
    const go = await control('POST', `/v2/templates/${t}/builds/${b}`, { fromImage: 'none/such:1', steps: [] })
    assert.deepEqual([go.status, go.text, go.headers.get('content-length')], [202, '', '0'])
    await refused(400, 'POST', `/v2/templates/${t}/builds/${b}`, { fromImage: 'none/such:1', steps: [] })
    const status = async () => (await control('GET', `/templates/${t}/builds/${b}/status?logsOffset=100000`)).json
    const first = await status() // has failed at once, but who looks right after the start must see it build
    assert.deepEqual([first.status, first.reason], ['building', undefined])
    const s = await status()
    assert.deepEqual([s.status, s.logs, s.logEntries, s.reason.step], ['error', [], [], 'base'])
    const one = (await control('GET', `/templates/${n}`)).json
    assert.deepEqual([one.templateID, one.names, one.builds.map((x) => [x.buildID, x.status])], [t, [`hutch/${n}`], [[b, 'error']]])
    assert.deepEqual((await control('GET', '/templates/base')).json.builds.map((x) => x.status), ['ready'])
    const logs = async (q) => (await control('GET', `/templates/${t}/builds/${b}/logs?${q}`)).json.logs
    assert.deepEqual((await logs('')).map((l) => l.level), ['info', 'error'])
    assert.deepEqual((await logs('direction=backward&limit=1')).map((l) => [l.step, l.message === s.reason.message]), [['base', true]])
    assert.deepEqual([(await logs('level=warn')).length, (await logs('cursor=99999999999999')).length, (await logs('limit=0')).length], [1, 0, 0])
    await refused(400, 'GET', `/templates/${t}/builds/${b}/logs?limit=101`)
    assert.equal((await control('DELETE', `/templates/${t}`)).status, 204)
    await refused(404, 'DELETE', `/templates/${t}`)
  })
})

describe('volumes', { timeout: 120_000 }, () => {
  it('names, tokens, paths', async () => {
    for (const name of ['', 'a b', 'a/b', 'é']) await refused(400, 'POST', '/volumes', { name })
    const name = `wire-${Date.now().toString(36)}`
    const v = (await control('POST', '/volumes', { name })).json
    const c = (method, path, body, headers = { Authorization: `Bearer ${v.token}` }) => control(method, `/volumecontent/${v.volumeID}${path}`, body, headers)
    try {
      await refused(400, 'POST', '/volumes', { name })
      assert.deepEqual((await control('GET', '/volumes')).json.find((x) => x.name === name), { volumeID: v.volumeID, name })
      for (const h of [{}, auth, { Authorization: 'Bearer nope' }]) assert.equal((await c('GET', '/dir?path=/', undefined, h)).status, 401)
      assert.equal((await c('GET', '/dir')).status, 400)
      assert.deepEqual((await c('GET', '/dir?path=/&depth=1')).json, [])
      const oct = { Authorization: `Bearer ${v.token}`, 'Content-Type': 'application/octet-stream' }
      assert.equal((await c('PUT', '/file?path=/no/parent', 'x', oct)).status, 404)
      const made = await c('PUT', '/file?path=/f%20%C3%BC&mode=384', 'hello', oct)
      assert.deepEqual([made.status, made.json.name, made.json.type, made.json.path, made.json.size, made.json.mode], [201, 'f ü', 'file', '/f ü', 5, 0o600], made.text)
      for (const k of ['uid', 'gid']) assert.equal(typeof made.json[k], 'number')
      for (const k of ['atime', 'mtime', 'ctime']) assert.ok(Date.parse(made.json[k]), k)
      assert.equal((await c('PUT', '/file?path=/f%20%C3%BC', 'again', oct)).status, 409)
      assert.equal((await c('PUT', '/file?path=/f%20%C3%BC&force=true', '', oct)).status, 201)
      const empty = await c('GET', '/file?path=/f%20%C3%BC')
      assert.deepEqual([empty.status, empty.text, empty.headers.get('content-length')], [200, '', '0'])
      assert.equal((await c('POST', '/dir?path=/a/b')).status, 404)
      assert.equal((await c('POST', '/dir?path=/a/b&force=true')).status, 201)
      assert.equal((await c('POST', '/dir?path=/a')).status, 409)
      assert.equal((await c('POST', '/dir?path=/a&force=true')).status, 201)
      assert.deepEqual((await c('GET', '/dir?path=/&depth=2')).json.map((x) => [x.path, x.type]), [['/a', 'directory'], ['/a/b', 'directory'], ['/f ü', 'file']])
      assert.equal((await c('PATCH', '/path?path=/a', { mode: 0o711, uid: 7, gid: 8 })).json.mode, 0o711)
      assert.deepEqual([(await c('GET', '/path?path=/a')).json.uid, (await c('GET', '/path?path=/a')).json.gid], [7, 8])
      assert.equal((await c('GET', '/file?path=/a')).status, 400)
      assert.equal((await c('GET', '/path?path=/none')).status, 404)
      assert.equal((await c('GET', '/dir?path=/none')).status, 404)
      assert.equal((await c('DELETE', '/path?path=/none')).status, 404)
      assert.equal((await c('DELETE', '/path?path=/a')).status, 204)
      for (const p of ['../x', '/a/../../etc/passwd']) assert.ok([400, 404].includes((await c('GET', `/path?path=${encodeURIComponent(p)}`)).status), p)
    } finally { assert.equal((await control('DELETE', `/volumes/${v.volumeID}`)).status, 204) }
    await refused(404, 'DELETE', `/volumes/${v.volumeID}`)
    await refused(404, 'GET', `/volumes/${v.volumeID}`)
  })
})

// One request with a Host of our choice, which fetch does not allow.
const host = (name, headers = {}, path = '/health') => new Promise((resolve, reject) => {
  const u = new URL(api)
  http.get({ host: u.hostname, port: u.port, path, headers: { Host: name, ...headers } }, (r) => {
    let text = ''
    r.on('data', (d) => { text += d }).on('end', () => resolve({ status: r.statusCode, text }))
  }).on('error', reject)
})

describe('ingress', () => {
  it('names what is wrong with an address', async () => {
    const h = async (headers, path = '/x') => { const r = await fetch(api + path, { headers }); return [r.status, await r.text()] }
    for (const id of [nobody, 'abc']) {
      const [status, text] = await h({ 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '3000' })
      assert.deepEqual([status, JSON.parse(text)], [502, { sandboxId: id, message: 'The sandbox was not found', code: 502 }])
    }
    const [status, text] = await h({ 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '3999' })
    assert.deepEqual([status, JSON.parse(text)], [502, { sandboxId: sbx.sandboxId, message: 'The sandbox is running but port is not open', port: 3999, code: 502 }])
    assert.equal((await h({ 'E2b-Sandbox-Id': sbx.sandboxId }))[0], 400)
    assert.match((await h({ 'E2b-Sandbox-Id': 'Not-One', 'E2b-Sandbox-Port': '3000' })).join(' '), /^400 .*Invalid sandbox ID/)
    for (const port of ['0', '70000', 'x', '-1']) assert.equal((await h({ 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': port }))[0], 400, port)
    assert.equal((await host(`49983-${sbx.sandboxId}.some.domain`)).status, 204)
    assert.equal((await host(`49983-${nobody}.some.domain`)).status, 502)
    assert.equal((await host('nonsense.some.domain', { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983' })).status, 400)
  })
})

describe('envd over HTTP', { timeout: 120_000 }, () => {
  const files = async (method, query, body, headers = {}) => {
    const r = await fetch(`${api}/files${query}`, { method, headers: envd(headers), body })
    const text = await r.text()
    return { status: r.status, text, message: (() => { try { return JSON.parse(text).message } catch { return undefined } })(), headers: r.headers, json: () => JSON.parse(text) }
  }
  const oct = { 'Content-Type': 'application/octet-stream' }
  it('asks for the token', async () => {
    const want = { code: 401, message: 'unauthorized access, please provide a valid access token or method signing if supported' }
    for (const [path, method] of [['/metrics', 'GET'], ['/envs', 'GET'], ['/process.Process/List', 'POST'], ['/filesystem.Filesystem/Stat', 'POST']])
      for (const token of [undefined, 'wrong']) {
        const h = envd({ 'Content-Type': 'application/json' })
        delete h['X-Access-Token']
        const r = await fetch(api + path, { method, headers: token ? { ...h, 'X-Access-Token': token } : h, body: method === 'POST' ? '{}' : undefined })
        assert.deepEqual([r.status, r.headers.get('content-type').split(';')[0], await r.json()], [401, 'application/json', want], path)
      }
    const h = envd()
    delete h['X-Access-Token']
    assert.equal((await fetch(`${api}/health`, { headers: h })).status, 204)
    assert.deepEqual(await (await fetch(`${api}/files?path=x`, { headers: h })).json(), { code: 401, message: 'missing signature query parameter' })
    for (const path of ['/init', '/freeze']) assert.equal((await fetch(api + path, { method: 'POST', headers: envd(), body: '{}' })).status, 404, path)
  })
  it('metrics have their names', async () => {
    const m = await (await fetch(`${api}/metrics`, { headers: envd() })).json()
    for (const k of ['ts', 'cpu_count', 'cpu_used_pct', 'mem_total', 'mem_used', 'mem_cache', 'mem_total_mib', 'mem_used_mib', 'disk_used', 'disk_total']) assert.equal(typeof m[k], 'number', k)
  })
  it('uploads: keys, kinds, refusals', async () => {
    const r = await files('POST', '?path=w/a.txt', 'x', oct)
    assert.deepEqual([r.status, r.json()], [200, [{ path: '/home/user/w/a.txt', name: 'a.txt', type: 'file' }]])
    const form = (...parts) => { const f = new FormData(); for (const [field, data, name] of parts) name === undefined ? f.append(field, data) : f.append(field, new Blob([data]), name); return f }
    assert.deepEqual((await files('POST', '', form(['file', '1', 'w/m1.txt'], ['other', 'x', 'w/never'], ['file', '2', '/tmp/w/m2.txt']))).json(),
      [{ path: '/home/user/w/m1.txt', name: 'm1.txt', type: 'file' }, { path: '/tmp/w/m2.txt', name: 'm2.txt', type: 'file' }])
    assert.equal((await files('GET', '?path=w/never')).status, 404)
    assert.equal((await files('POST', '?path=w/plain', form(['file', 'no name']))).status, 200)
    assert.equal((await files('GET', '?path=w/plain')).text, 'no name')
    assert.equal((await files('POST', '', form(['file', '1', 'w/same'], ['file', '2', 'w/same']))).status, 400)
    assert.equal((await files('POST', '?path=w/t', 'x', { 'Content-Type': 'text/plain' })).status, 400)
    assert.equal((await files('POST', '', 'x', oct)).status, 400)
    const dir = await files('POST', '?path=w', 'x', oct)
    assert.equal(dir.status, 400, dir.text)
    assert.equal((await files('POST', '?path=w/a.txt/below', 'x', oct)).status, 400)
    assert.equal((await files('POST', '?path=w/bad.gz', 'not gzip', { ...oct, 'Content-Encoding': 'gzip' })).status, 400)
    const who = await files('POST', '?path=x&username=no-such', 'x', oct)
    assert.deepEqual([who.status, /^error looking up user 'no-such'/.test(who.message)], [401, true], who.text)
  })
  it('downloads: empty files, directories, nothing', async () => {
    await files('POST', '?path=w/empty', '', oct)
    const e = await files('GET', '?path=w/empty')
    assert.deepEqual([e.status, e.text, e.headers.get('content-length')], [200, '', '0'])
    assert.deepEqual([(await files('GET', '?path=w')).status, (await files('GET', '?path=w')).message], [400, "path '/home/user/w' is a directory"])
    assert.equal((await files('GET', '')).message, "path '/home/user' is a directory")
    assert.equal((await files('GET', '?path=~')).message, "path '/home/user' is a directory")
    assert.equal((await files('GET', '?path=nope&username=root')).message, "path '/root/nope' does not exist")
    assert.equal((await files('GET', '?path=~other/x')).status, 400)
    assert.equal((await files('GET', '?path=w/a.txt&unknown=1')).text, 'x')
  })
  it('metadata that cannot be kept', async () => {
    assert.equal((await files('POST', '?path=w/m', 'x', { ...oct, [`X-Metadata-${'k'.repeat(247)}`]: 'v' })).status, 400)
    assert.equal((await files('POST', '?path=w/m', 'x', { ...oct, 'X-Metadata-A': 'v'.repeat(4097) })).status, 400)
    assert.deepEqual((await files('POST', '?path=w/m', 'x', { ...oct, 'X-Metadata-Key': 'v 1' })).json()[0].metadata, { key: 'v 1' })
    assert.ok([200, 507].includes((await files('POST', '?path=w/m', 'x', { ...oct, 'X-Metadata-A': 'v'.repeat(4086) })).status), 'all that is allowed; a file system may have less room')
  })
})

const b64 = (s) => Buffer.from(s).toString('base64')
const unary = async (method, body, headers = {}) => {
  const r = await fetch(`${api}/${method}`, { method: 'POST', headers: envd({ 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...headers }), body: typeof body === 'string' ? body : JSON.stringify(body) })
  const text = await r.text()
  return { status: r.status, body: text ? JSON.parse(text) : undefined }
}
const fails = async (status, code, method, body, headers, re) => {
  const r = await unary(method, body, headers)
  assert.deepEqual([r.status, r.body.code], [status, code], `${method} ${JSON.stringify(body)}: ${JSON.stringify(r.body)}`)
  if (re) assert.match(r.body.message, re)
}
// A stream's messages, and how it ended. `on` sees each message as it comes.
const stream = async (method, body, headers = {}, on = () => {}) => {
  const json = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)), head = Buffer.alloc(5)
  head.writeUInt32BE(json.length, 1)
  const r = await fetch(`${api}/${method}`, { method: 'POST', headers: envd({ 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', ...headers }), body: Buffer.concat([head, json]) })
  assert.deepEqual([r.status, r.headers.get('content-type')], [200, 'application/connect+json'])
  let rest = Buffer.alloc(0), end
  const messages = []
  for await (const chunk of r.body) {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const m = JSON.parse(rest.subarray(5, 5 + rest.readUInt32BE(1)))
      if (rest[0] === 2) end = m
      else { assert.equal(rest[0], 0); messages.push(m); await on(m) }
      rest = rest.subarray(5 + rest.readUInt32BE(1))
    }
  }
  assert.ok(end, 'the end envelope is missing')
  return { messages, end }
}
const P = 'process.Process/', F = 'filesystem.Filesystem/'
const sh = (cmd, more) => ({ process: { cmd: '/bin/bash', args: ['-c', cmd] }, stdin: false, ...more })

describe('RPC', { timeout: 120_000 }, () => {
  it('unary: what is malformed, unknown, not for it', async () => {
    await fails(400, 'invalid_argument', `${F}Stat`, '{')
    await fails(400, 'invalid_argument', `${F}Stat`, '{"path":7}')
    assert.equal((await unary(`${F}Stat`, { path: '/tmp', later: 1 })).body.entry.path, '/tmp')
    assert.equal((await fetch(`${api}/${F}Stat`, { method: 'POST', headers: envd({ 'Content-Type': 'text/plain' }), body: '{}' })).status, 415)
    assert.ok([404, 501].includes((await fetch(`${api}/${F}Fly`, { method: 'POST', headers: envd({ 'Content-Type': 'application/json' }), body: '{}' })).status))
    assert.equal((await fetch(`${api}/${F}Stat`, { headers: envd() })).status, 405)
    await fails(401, 'unauthenticated', `${F}Stat`, { path: '/tmp' }, { Authorization: `Basic ${b64('no-such:')}` }, /^invalid username: 'no-such'/)
    assert.equal((await unary(`${F}Stat`, { path: '' }, { Authorization: `Basic ${b64('root:')}` })).body.entry.path, '/root')
  })
  it('entries, to the field', async () => {
    await sbx.commands.run('mkdir -p q/d && cd q && printf 12345 > f && chmod 640 f && ln -s /home/user/q/f abs && ln -s ../q/d dl && ln -s none gone && mkfifo pipe && touch "a b" $\'bad\\xff\' && sudo chown 4242:4243 "a b" && chmod 1777 d')
    const stat = async (p) => (await unary(`${F}Stat`, { path: p })).body.entry
    const f = await stat('q/f')
    assert.deepEqual({ ...f, modifiedTime: '' }, { name: 'f', type: 'FILE_TYPE_FILE', path: '/home/user/q/f', size: '5', mode: 0o640, permissions: '-rw-r-----', owner: 'user', group: 'user', modifiedTime: '' })
    assert.match(f.modifiedTime, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/)
    const a = await stat('q/abs')
    assert.deepEqual([a.type, a.mode, a.permissions, a.symlinkTarget, a.size], ['FILE_TYPE_FILE', 0o640, 'Lrwxrwxrwx', '/home/user/q/f', String('/home/user/q/f'.length)])
    const d = await stat('q/dl')
    assert.deepEqual([d.type, d.symlinkTarget], ['FILE_TYPE_DIRECTORY', '/home/user/q/d'])
    const g = await stat('q/gone')
    assert.deepEqual([g.name, g.type ?? 'FILE_TYPE_UNSPECIFIED'], ['gone', 'FILE_TYPE_UNSPECIFIED'])
    const o = await stat('q/a b')
    assert.deepEqual([o.owner, o.group], ['4242', '4243'])
    const names = (await unary(`${F}ListDir`, { path: 'q' })).body.entries.map((e) => e.name)
    assert.deepEqual(names, ['a b', 'abs', 'bad\ufffd', 'd', 'dl', 'f', 'gone', 'pipe'])
    assert.deepEqual((await unary(`${F}ListDir`, { path: 'q/d' })).body.entries ?? [], [])
    assert.equal((await unary(`${F}ListDir`, { path: '/home/user/q/', depth: 4294967295 })).status, 200)
    await fails(400, 'invalid_argument', `${F}ListDir`, { path: 'q/abs' })
    await fails(400, 'invalid_argument', `${F}ListDir`, { path: 'q', depth: -1 })
    await fails(404, 'not_found', `${F}ListDir`, { path: 'q/none' })
    await fails(400, 'invalid_argument', `${F}Stat`, { path: '~other' })
  })
  it('moving, making, removing', async () => {
    await sbx.commands.run('mkdir -p v/full v/empty v/dir && touch v/full/x v/file v/dir/y')
    await fails(409, 'already_exists', `${F}MakeDir`, { path: 'v/full' })
    await fails(400, 'invalid_argument', `${F}MakeDir`, { path: 'v/file' })
    await fails(400, 'invalid_argument', `${F}MakeDir`, { path: 'v/file/below' })
    assert.equal((await unary(`${F}MakeDir`, { path: 'v/n/e/w' })).body.entry.permissions, 'drwxr-xr-x')
    assert.equal((await unary(`${F}Move`, { source: 'v/dir', destination: 'v/empty' })).body.entry.path, '/home/user/v/empty') // as rename(2)
    const over = await unary(`${F}Move`, { source: 'v/empty', destination: 'v/full' })
    assert.ok(over.status >= 400 && typeof over.body.code === 'string')
    await fails(404, 'not_found', `${F}Move`, { source: 'v/none', destination: 'v/x' })
    assert.deepEqual((await unary(`${F}Remove`, { path: 'v/none' })).body, {})
    assert.deepEqual((await unary(`${F}Remove`, { path: 'v' })).body, {})
    await fails(404, 'not_found', `${F}GetWatcherEvents`, { watcherId: 'w0' })
    await fails(404, 'not_found', `${F}RemoveWatcher`, { watcherId: 'w0' })
    await fails(400, 'invalid_argument', `${F}CreateWatcher`, { path: 'q/f' })
  })
  it('a process from start to end', async () => {
    let r = await stream(`${P}Start`, sh('printf out; printf err >&2; exit 3'))
    assert.equal(typeof r.messages[0].event.start.pid, 'number')
    assert.deepEqual([r.messages.at(-1).event.end, r.end], [{ exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' }, {}])
    const data = (k) => r.messages.map((m) => m.event.data?.[k]).filter(Boolean).map((s) => Buffer.from(s, 'base64').toString()).join('')
    assert.deepEqual([data('stdout'), data('stderr')], ['out', 'err'])
    r = await stream(`${P}Start`, sh('true'))
    const { exitCode = 0, ...end } = r.messages.at(-1).event.end
    assert.deepEqual([exitCode, end], [0, { exited: true, status: 'exit status 0' }])
    for (const [signal, word] of [['KILL', 'killed'], ['HUP', 'hangup'], ['PIPE', 'broken pipe'], ['INT', 'interrupt']]) { // nothing is ignored that the process did not ignore
      r = await stream(`${P}Start`, sh(`kill -${signal} $$`))
      assert.deepEqual(r.messages.at(-1).event.end, { exitCode: -1, status: `signal: ${word}`, error: `signal: ${word}` })
    }
  })
  it('starts that fail say so in the end envelope', async () => {
    for (const [body, code] of [['{', 'invalid_argument'], [{}, 'invalid_argument'], [{ process: { cmd: '/none/such' } }, 'invalid_argument'], [{ process: { cmd: '/tmp' } }, 'invalid_argument'],
      [sh('true', { process: { cmd: '/bin/true', cwd: '/none' } }), 'invalid_argument'], [{ process: { cmd: '/bin/true', cwd: '/etc/passwd' } }, 'invalid_argument'], [{ process: { cmd: '' } }, 'invalid_argument']]) {
      const r = await stream(`${P}Start`, body)
      assert.deepEqual([r.messages, r.end.error?.code], [[], code], JSON.stringify(body))
    }
    assert.deepEqual((await stream(`${P}Start`, sh('true'), { Authorization: `Basic ${b64('no-such:')}` })).end.error, { code: 'unauthenticated', message: "invalid username: 'no-such'" })
    assert.equal((await stream(`${P}Connect`, { process: { pid: 999_999 } })).end.error.code, 'not_found')
    assert.equal((await stream(`${P}Connect`, { process: { tag: 'none' } })).end.error.code, 'not_found')
    assert.equal((await stream(`${P}Connect`, {})).end.error.code, 'invalid_argument')
    assert.equal((await stream(`${F}WatchDir`, { path: 'none' })).end.error.code, 'not_found')
  })
  it('tags, signals by name and number', async () => {
    for (const signal of ['SIGNAL_SIGKILL', 'SIGNAL_SIGTERM', 15]) {
      const r = await stream(`${P}Start`, sh('sleep 60', { tag: `t-${signal}` }), {}, async (m) => {
        if (!m.event.start) return
        const p = (await unary(`${P}List`, {})).body.processes.find((x) => x.tag === `t-${signal}`)
        assert.deepEqual(p, { pid: m.event.start.pid, tag: `t-${signal}`, config: { cmd: '/bin/bash', args: ['-c', 'sleep 60'], ...(p.config.envs ? { envs: p.config.envs } : {}), ...(p.config.cwd ? { cwd: p.config.cwd } : {}) } })
        assert.deepEqual((await unary(`${P}SendSignal`, { process: { tag: `t-${signal}` }, signal })).body, {})
      })
      assert.match(r.messages.at(-1).event.end.status, signal === 'SIGNAL_SIGKILL' ? /^signal: killed$/ : /^signal: terminated$/)
    }
    await fails(404, 'not_found', `${P}SendSignal`, { process: { pid: 999_999 }, signal: 'SIGNAL_SIGKILL' })
    await fails(404, 'not_found', `${P}SendInput`, { process: { pid: 999_999 }, input: { stdin: b64('x') } })
    await fails(404, 'not_found', `${P}Update`, { process: { pid: 999_999 }, pty: { size: { cols: 1, rows: 1 } } })
    await fails(404, 'not_found', `${P}CloseStdin`, { process: { pid: 999_999 } })
    await fails(400, 'invalid_argument', `${P}SendSignal`, { process: { pid: 1 }, signal: 'SIGNAL_NONE' })
    await fails(400, 'invalid_argument', `${P}SendInput`, {})
  })
  it('input: base64 of both kinds, in order, to the right thing', async () => {
    let out = ''
    const r = await stream(`${P}Start`, { process: { cmd: '/bin/cat' }, stdin: true }, {}, async (m) => {
      if (m.event.data?.stdout) out += Buffer.from(m.event.data.stdout, 'base64')
      if (!m.event.start) return
      const process = { pid: m.event.start.pid }
      await unary(`${P}SendInput`, { process, input: { stdin: 'YQ==' } })
      await unary(`${P}SendInput`, { process, input: { stdin: 'YWI' } })
      await fails(400, 'invalid_argument', `${P}SendInput`, { process, input: { stdin: '!' } })
      const size = await unary(`${P}Update`, { process, pty: { size: { cols: 10, rows: 10 } } })
      assert.ok(size.status >= 400, 'resize of a process without a terminal')
      await unary(`${P}CloseStdin`, { process })
    })
    assert.deepEqual([out, r.messages.at(-1).event.end.status], ['aab', 'exit status 0'])
    const process = { pid: r.messages[0].event.start.pid } // it has ended; Connect still knows it
    assert.ok((await stream(`${P}Connect`, { process })).messages.at(-1).event.end)
    for (const [method, more] of [['SendInput', { input: { stdin: '' } }], ['SendInput', { input: { stdin: 'YQ==' } }], ['CloseStdin', {}], ['SendSignal', { signal: 'SIGNAL_SIGKILL' }], ['Update', { pty: { size: { cols: 1, rows: 1 } } }]])
      await fails(404, 'not_found', P + method, { process, ...more })
  })
  it('terminals: sizes at the edge, no stdin to close', async () => {
    const pty = (size) => ({ process: { cmd: '/bin/bash', args: ['-c', 'read x; stty size; exit 0'] }, pty: { size } })
    let text = ''
    const r = await stream(`${P}Start`, pty({ cols: 1, rows: 1 }), {}, async (m) => {
      if (m.event.data?.pty) text += Buffer.from(m.event.data.pty, 'base64')
      if (!m.event.start) return
      const process = { pid: m.event.start.pid }
      assert.ok((await unary(`${P}CloseStdin`, { process })).status >= 400)
      assert.equal((await unary(`${P}Update`, { process, pty: { size: { cols: 65535, rows: 500 } } })).status, 200)
      await fails(400, 'invalid_argument', `${P}Update`, { process, pty: { size: { cols: 65536, rows: 1 } } })
      assert.equal((await unary(`${P}SendInput`, { process, input: { pty: b64('go\n') } })).status, 200)
    })
    assert.match(text, /500 65535/)
    assert.equal(r.messages.at(-1).event.end.status, 'exit status 0')
  })
  it('keepalives and deadlines', async () => {
    const r = await stream(`${P}Start`, sh('sleep 2.5'), { 'Keepalive-Ping-Interval': '1' })
    assert.ok(r.messages[0].event.start && r.messages.filter((m) => m.event.keepalive).length >= 1, JSON.stringify(r.messages))
    let pid
    const late = await stream(`${P}Start`, sh('sleep 60'), { 'Connect-Timeout-Ms': '700' }, (m) => { pid = m.event.start?.pid ?? pid })
    assert.equal(late.end.error.code, 'deadline_exceeded')
    assert.ok(!(await unary(`${P}List`, {})).body.processes?.some((p) => p.pid === pid), 'it was killed')
    const w = await stream(`${F}WatchDir`, { path: '/tmp' }, { 'Connect-Timeout-Ms': '500' })
    assert.deepEqual([w.messages[0], w.end.error?.code], [{ start: {} }, 'deadline_exceeded'])
  })
})
