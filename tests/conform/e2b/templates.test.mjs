// Templates of the real SDK: build, exists, tags, use. Slow: every build starts machines.
import assert from 'node:assert/strict'
import { mkdtempSync, mkdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { BuildError, Sandbox, Template } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY }
const name = `conform-${Date.now().toString(36)}`
const drop = (n) => fetch(`${api}/templates/${encodeURIComponent(n)}`, { method: 'DELETE', headers: key })

describe('a template', { timeout: 600_000 }, () => {
  let built
  const logs = []
  before(async () => {
    const dir = mkdtempSync(join(tmpdir(), 'e2b-'))
    writeFileSync(join(dir, 'one.txt'), 'one')
    mkdirSync(join(dir, 'folder'))
    writeFileSync(join(dir, 'folder', 'two.txt'), 'two')
    const t = Template({ fileContextPath: dir })
      .fromTemplate('base')
      .setEnvs({ GREETING: "it's $HOME", SECOND: '2' })
      .copy('one.txt', '/opt/app/')
      .copy('folder', 'inner')
      .runCmd('whoami > /tmp/who; pwd > /tmp/where; echo building "quoted"')
      .runCmd('id -un > /root/who', { user: 'root' })
      .setWorkdir('/opt/work')
      .setUser('worker')
    built = await Template.build(t, `${name}:v1`, { onBuildLogs: (l) => logs.push(l.message) })
  })
  after(async () => { await drop(name) })

  it('was built, with logs', () => {
    assert.ok(built.templateId && built.buildId)
    assert.ok(logs.some((l) => l.includes('building "quoted"')), logs.join('\n'))
  })
  it('exists', async () => {
    assert.equal(await Template.exists(name), true)
    assert.equal(await Template.exists(`${name}-not`), false)
    assert.equal(await Template.exists('base'), true)
  })
  it('has tags that can be set and removed', async () => {
    const tag = async () => (await Template.getTags(name)).map((t) => t.tag).sort()
    assert.deepEqual(await tag(), ['v1'])
    const r = await Template.assignTags(`${name}:v1`, ['stable', 'prod'])
    assert.equal(r.buildId, built.buildId)
    assert.deepEqual(await tag(), ['prod', 'stable', 'v1'])
    await Template.removeTags(name, 'prod')
    assert.deepEqual(await tag(), ['stable', 'v1'])
    await assert.rejects(Template.assignTags(`${name}:none`, 'x'))
    await assert.rejects(Template.assignTags(`${name}:v1`, 'bad tag'))
  })
  it('is what sandboxes start from', async () => {
    const sbx = await Sandbox.create(`${name}:stable`, { metadata })
    try {
      const r = await sbx.commands.run('cat /opt/app/one.txt /home/user/inner/two.txt /tmp/who /tmp/where; echo "$GREETING $SECOND"; whoami; pwd; sudo cat /root/who || true')
      assert.equal(r.stdout.split('\n').slice(0, 5).join('|'), "onetwouser|/home/user|it's $HOME 2|worker|/opt/work")
      const i = await sbx.getInfo()
      assert.equal(i.name, name)
      assert.equal(i.templateId, built.templateId)
      const l = await (await fetch(`${api}/v2/sandboxes?template=${name}`, { headers: key })).json()
      assert.deepEqual(l.map((s) => s.sandboxID), [sbx.sandboxId])
    } finally { await sbx.kill() }
    await assert.rejects(Sandbox.create(`${name}:v9`, { metadata }))
  })
})

describe('failures', { timeout: 300_000 }, () => {
  const n = `${name}-bad`
  after(async () => { await drop(n) })
  it('an image that is not here', async () => {
    await assert.rejects(Template.build(Template().fromImage('ubuntu:22.04'), n), (e) => {
      assert.ok(e instanceof BuildError, String(e))
      assert.match(e.message, /ubuntu:22.04/)
      return true
    })
  })
  it('a command that fails, and one as nobody', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('exit 7'), n), (e) => e instanceof BuildError && /exit 7.*exit status 7/.test(e.message))
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('true', { user: 'nobody-here' }), n), (e) => {
      assert.match(e.message, /failed to run command 'true': command failed: unauthenticated: invalid username: 'nobody-here'/)
      return true
    })
  })
  it('status is building at once, and pages end', async () => {
    const info = await Template.buildInBackground(Template().fromTemplate('base').runCmd('sleep 1'), n)
    const s = await Template.getBuildStatus(info)
    assert.equal(s.status, 'building')
    assert.ok(Array.isArray(s.logEntries))
    for (let i = 0; i < 600; i++) {
      const t = await Template.getBuildStatus(info)
      if (t.status !== 'building') break
      await new Promise((r) => setTimeout(r, 500))
    }
    const end = await Template.getBuildStatus(info, { logsOffset: 100000 })
    assert.equal(end.status, 'ready')
    assert.deepEqual(end.logEntries, [])
  })
})
