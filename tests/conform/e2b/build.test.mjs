// Building templates with everything the real SDK's builder has that needs no network. Slow: every build starts machines.
import assert from 'node:assert/strict'
import { mkdtempSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { BuildError, Sandbox, Template, TemplateError, waitForFile, waitForPort } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' }
const name = `build-${Date.now().toString(36)}`
const drop = (n) => fetch(`${api}/templates/${encodeURIComponent(n)}`, { method: 'DELETE', headers: key })

describe('a build of many steps', { timeout: 600_000 }, () => {
  let info, sbx
  const logs = []
  before(async () => {
    const dir = mkdtempSync(join(tmpdir(), 'e2b-'))
    mkdirSync(join(dir, 'folder', 'sub'), { recursive: true })
    writeFileSync(join(dir, 'folder', 'test.txt'), 'This is a test file.')
    writeFileSync(join(dir, 'folder', 'other.md'), 'other')
    writeFileSync(join(dir, 'folder', 'sub', 'deep.txt'), 'deep')
    symlinkSync('test.txt', join(dir, 'folder', 'symlink.txt'))
    writeFileSync(join(dir, 'run.sh'), '#!/bin/sh\necho ran\n')
    const t = Template({ fileContextPath: dir, fileIgnorePatterns: ['**/*.md'] })
      .fromBaseImage()
      .copy('folder/*', 'globbed', { forceUpload: true })
      .copy('folder', '/opt/whole/')
      .copy('run.sh', '/usr/local/bin/run-it', { user: 'root', mode: 0o755, gzip: false })
      .copyItems([{ src: 'folder/test.txt', dest: 'a.txt' }, { src: 'folder/sub', dest: 'moved' }])
      .copy('folder/*', 'resolved', { resolveSymlinks: true })
      .runCmd(['echo one > list.txt', 'echo two >> list.txt'])
      .runCmd('cat globbed/test.txt && test -L globbed/symlink.txt && ! test -L resolved/symlink.txt')
      .makeDir(['made/deep', 'made/other'], { mode: 0o700 })
      .makeSymlink('/opt/whole', 'link')
      .rename('a.txt', 'b.txt')
      .remove('globbed/sub', { recursive: true, force: true })
      .setEnvs({ ONE: '1', TWO: 'two words', 'QUOTED': `it's "$HOME"` })
      .runCmd('test "$TWO" = "two words"')
      .runCmd('touch /root/by-root', { user: 'root' })
      .setUser('root')
      .runCmd('test "$(whoami)" = root')
      .setUser('worker')
      .runCmd('whoami > /tmp/made-user; echo building "quoted"')
      .setUser('user')
      .setWorkdir('/srv/app')
      .runCmd('pwd > where; whoami > who')
      .setWorkdir('inner')
      .setStartCmd('python3 -m http.server 8123 --directory /opt/whole', waitForPort(8123))
    info = await Template.build(t, `${name}:v1`, { tags: ['first', 'second'], cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => logs.push(l) })
    sbx = await Sandbox.create(name + ':first', { metadata })
  })
  after(async () => { await sbx?.kill(); await drop(name) })

  it('says what it built', async () => {
    assert.equal(info.name, `${name}:v1`)
    assert.ok(info.templateId && info.buildId)
    assert.ok(logs.some((l) => l.level && l.timestamp instanceof Date && l.message.includes('building "quoted"')))
    assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['first', 'second', 'v1'])
    for (const t of await Template.getTags(name)) assert.deepEqual([t.buildId, t.createdAt instanceof Date], [info.buildId, true])
    assert.equal(await Template.exists(name), true)
    assert.equal(await Template.exists(`${name}:v1`), true)
    assert.equal(await Template.exists(`${name}:v2`), false)
    assert.equal(await Template.aliasExists(name), true)
    assert.equal(await Template.exists(`hutch/${name}`), true)
    assert.equal(await Template.exists('base'), true)
  })
  it('has tags that can be set, moved and removed', async () => {
    const tags = async () => (await Template.getTags(name)).map((t) => t.tag).sort()
    const r = await Template.assignTags(`${name}:v1`, ['stable', 'prod'])
    assert.deepEqual([r.buildId, r.tags.sort()], [info.buildId, ['prod', 'stable']])
    await Template.assignTags(`${name}:stable`, 'prod')
    await Template.assignTags(`${name}:v1`, 'Upper') // letters have no size, in tags as in names
    assert.equal((await Template.getTags(name)).some((t) => t.tag === 'upper') && await Template.exists(`${name}:UPPER`), true)
    await Template.removeTags(name, 'uPPer')
    assert.deepEqual(await tags(), ['first', 'prod', 'second', 'stable', 'v1'])
    await Template.removeTags(name, ['prod', 'stable'])
    assert.deepEqual(await tags(), ['first', 'second', 'v1'])
    assert.deepEqual((await Template.getTags(info.templateId)).length, 3)
    await assert.rejects(Template.assignTags(`${name}:none`, 'x'), TemplateError)
    await assert.rejects(Template.assignTags(`${name}:v1`, 'bad tag'), TemplateError)
    await assert.rejects(Sandbox.create(`${name}:v9`, { metadata }), /404: tag 'v9' does not exist/)
  })
  it('is what lists can be asked for', async () => {
    for (const t of [name, info.templateId])
      assert.deepEqual((await (await fetch(`${api}/v2/sandboxes?template=${t}`, { headers: key })).json()).map((s) => s.sandboxID), [sbx.sandboxId])
    assert.equal((await sbx.getInfo()).templateId, info.templateId)
    assert.equal((await sbx.commands.run('cat /tmp/made-user')).stdout, 'worker\n')
    const patch = await fetch(`${api}/v2/templates/${name}`, { method: 'PATCH', headers: key, body: '{"public":false}' })
    assert.deepEqual([patch.status, await patch.json()], [200, { names: [`hutch/${name}`] }])
  })
  it('copied what was asked for, and only that', async () => {
    const r = await sbx.commands.run('cd ~ && cat list.txt b.txt && ls globbed moved made && stat -c "%U %G %a %N" globbed/test.txt /usr/local/bin/run-it made/deep link && run-it && cat /opt/whole/sub/deep.txt')
    assert.equal(r.stdout, `one
two
This is a test file.globbed:
symlink.txt
test.txt

made:
deep
other

moved:
deep.txt
user user 644 'globbed/test.txt'
root root 755 '/usr/local/bin/run-it'
user user 700 'made/deep'
user user 777 'link' -> '/opt/whole'
ran
deep`)
  })
  it('keeps environment, user and directory for sandboxes', async () => {
    assert.equal((await sbx.commands.run('echo "$ONE|$TWO|$QUOTED|$(whoami)|$PWD"; cat ../where ../who')).stdout, `1|two words|it's "$HOME"|user|/srv/app/inner\n/srv/app\nuser\n`)
    for (const user of ['root', 'worker']) assert.equal((await sbx.commands.run('whoami; pwd', { user })).stdout, `${user}\n/srv/app/inner\n`)
    await sbx.files.write('rel.txt', 'x', { user: 'root' })
    assert.deepEqual([(await sbx.files.getInfo('/root/rel.txt')).owner, (await sbx.files.list('')).length], ['root', 0]) // but files are looked for at home
    const i = await sbx.getInfo()
    assert.deepEqual([i.cpuCount, i.memoryMB, i.name], [1, 512, name])
  })
  it('runs the start command', async () => {
    const r = await sbx.commands.run('curl -s http://localhost:8123/test.txt')
    assert.equal(r.stdout, 'This is a test file.')
  })
  it('is built again at once from the cache, and anew when told', async () => {
    const t = () => Template().fromTemplate(`${name}:v1`).setStartCmd('echo started > /tmp/started', waitForFile('/tmp/started'))
    const one = await Template.build(t(), `${name}-again`)
    const two = await Template.build(t(), `${name}-again`)
    assert.equal(one.templateId, two.templateId)
    assert.notEqual(one.buildId, two.buildId)
    const child = await Sandbox.create(`${name}-again`, { metadata })
    assert.equal((await child.commands.run('echo $TWO; pwd')).stdout, 'two words\n/srv/app/inner\n')
    await child.kill()
    await drop(`${name}-again`)
  })
})

describe('errors', { timeout: 300_000 }, () => {
  const n = `${name}-err`
  after(async () => { await drop(n) })
  it('an image that is not here', async () => {
    await assert.rejects(Template.build(Template().fromImage('ubuntu:22.04'), n), (e) => e instanceof BuildError && /ubuntu:22\.04/.test(e.message) && /hutch template import/.test(e.message))
  })
  it('a command that fails, and one as nobody', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('exit 7'), n), (e) => e instanceof BuildError && /exit 7.*exit status 7/.test(e.message))
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('true', { user: 'nobody-here' }), n),
      (e) => /failed to run command 'true': command failed: unauthenticated: invalid username: 'nobody-here'/.test(e.message))
  })
  it('name the step', async () => {
    const info = await Template.buildInBackground(Template().fromTemplate('base').runCmd('true').runCmd('echo about to fail; ls /none-such'), n)
    let s
    do { s = await Template.getBuildStatus(info); await new Promise((r) => setTimeout(r, 100)) } while (s.status === 'building')
    assert.equal(s.status, 'error')
    assert.equal(s.reason.step, '2')
    assert.match(s.reason.message, /ls \/none-such/)
    assert.ok(s.logEntries.some((l) => /about to fail/.test(l.message)))
  })
  it('templates that are not there, and files', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('none-such-at-all'), n), BuildError)
    await assert.rejects(Template.build(Template().fromTemplate('base').copy('none-such.txt', '/x'), n), Error)
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('sleep 1 &').setReadyCmd('exit 1'), 'Bad Name!'), Error)
  })
  it('a start command that fails', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('base').setStartCmd('./none-such', waitForPort(10_000)), n), (e) => {
      assert.ok(e instanceof BuildError)
      assert.match(e.message, /none-such.*status 127/)
      return true
    })
  })
  it('tags: unknown, malformed', async () => {
    await assert.rejects(Template.assignTags('none-such-at-all:v1', 'x'), TemplateError)
    for (const target of [':v1', `${n}:`]) {
      const r = await fetch(`${api}/templates/tags`, { method: 'POST', headers: key, body: JSON.stringify({ target, tags: ['x'] }) })
      assert.equal(r.status, 400, target)
    }
    assert.equal((await fetch(`${api}/templates/tags`, { method: 'DELETE', headers: key, body: JSON.stringify({ name: 'none-such-at-all', tags: ['x'] }) })).status, 404)
    assert.equal((await fetch(`${api}/templates/none-such-at-all/tags`, { headers: key })).status, 404)
    assert.equal((await fetch(`${api}/templates/aliases/none-such-at-all`, { headers: key })).status, 404)
  })
  it('logs come by pages of 100 from the offset, until one is empty', async () => {
    const info = await Template.buildInBackground(Template().fromTemplate('base').runCmd('seq 1 250; exit 1'), n)
    let s
    do { s = await Template.getBuildStatus(info); await new Promise((r) => setTimeout(r, 100)) } while (s.status === 'building')
    const all = []
    for (;;) {
      const page = (await Template.getBuildStatus(info, { logsOffset: all.length })).logEntries
      assert.ok(page.length <= 100)
      if (!page.length) break
      all.push(...page.map((l) => l.message))
    }
    assert.deepEqual(all.filter((m) => /^\d+$/.test(m)).map(Number), Array.from({ length: 250 }, (_, i) => i + 1))
  })
})

describe('names of templates that E2B has', () => {
  it('base is there; the interpreter\'s name is known; mcp-gateway is honestly not', async () => {
    assert.equal(await Template.exists('base'), true)
    await assert.rejects(Sandbox.create('mcp-gateway', { metadata }), /404: template 'mcp-gateway' not found/)
    await assert.rejects(Sandbox.create('base', { metadata, mcp: { x: {} } }), /Failed to start MCP gateway/)
  })
})
