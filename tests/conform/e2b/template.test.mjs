// The builder's helpers: Dockerfiles, package managers, git, and a cache that can be told to step aside.
import assert from 'node:assert/strict'
import { mkdtempSync, mkdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { BuildError, Sandbox, Template } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
const vm = process.env.HUTCH_TIER === 'vm'
const api = process.env.E2B_API_URL
const key = { 'X-API-KEY': process.env.E2B_API_KEY }
const name = `helpers-${Date.now().toString(36)}`
const drop = (n) => fetch(`${api}/templates/${encodeURIComponent(n)}`, { method: 'DELETE', headers: key })
const inside = async (n, cmd) => {
  const sbx = await Sandbox.create(n, { metadata })
  try { return (await sbx.commands.run(cmd)).stdout } finally { await sbx.kill() }
}

describe('a Dockerfile and helpers that need no registry', { timeout: 800_000 }, () => {
  const logs = []
  before(async () => {
    const dir = mkdtempSync(join(tmpdir(), 'e2b-'))
    mkdirSync(join(dir, 'pkg'))
    writeFileSync(join(dir, 'one.txt'), 'one\n')
    writeFileSync(join(dir, 'pkg', 'package.json'), '{"name":"conform-pkg","version":"1.0.0","bin":{"conform-bin":"run.js"}}')
    writeFileSync(join(dir, 'pkg', 'run.js'), '#!/usr/bin/env node\nconsole.log("from npm")\n')
    let t = Template({ fileContextPath: dir })
      .fromDockerfile(`FROM debian:12\nARG MADE=${name}\nENV FIRST=a SECOND=b\nWORKDIR /app\nCOPY --chown=user one.txt ./\nCOPY pkg /srv/pkg/\nRUN cat one.txt > two.txt && \\\n    echo "$SECOND" >> two.txt\nUSER user\n`)
      .runCmd('git init -q -b main /tmp/repo && cd /tmp/repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first')
      .gitClone('file:///tmp/repo', '/tmp/clone', { branch: 'main', depth: 1 })
    if (!vm) // package managers take minutes in an emulated machine, and are commands like any other
      t = t.npmInstall('/srv/pkg', { g: true })
        .pipInstall('pip')
        .runCmd('rm -rf /etc/apt/sources.list*', { user: 'root' }) // no lists to fetch
        .aptInstall(['curl', 'git'], { noInstallRecommends: true })
    assert.match(Template.toDockerfile(t), /^FROM debian:12\n[^]*COPY .*one\.txt[^]*RUN git clone file:\/\/\/tmp\/repo/)
    assert.equal(JSON.parse(await Template.toJSON(t)).fromImage, 'debian:12')
    await Template.build(t, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => logs.push(l.message) })
  })
  after(() => drop(name))
  it('did what they say', async () => {
    assert.equal(await inside(name, 'pwd; whoami; cat two.txt; stat -c %U one.txt two.txt; echo $FIRST $MADE; git -C /tmp/clone log --format=%s'), `/app\nuser\none\nb\nuser\nroot\na ${name}\nfirst\n`)
    if (vm) return
    assert.equal(await inside(name, 'conform-bin'), 'from npm\n')
    assert.ok(logs.some((l) => /Requirement already satisfied: pip/.test(l)) && logs.some((l) => /curl is already the newest version/.test(l)), logs.join('\n'))
  })
})

describe('the cache of steps', { timeout: 800_000 }, () => {
  const n = `${name}-cache`
  const uuid = `: ${n}; cat /proc/sys/kernel/random/uuid` // not what an earlier try has left
  after(() => drop(n))
  it('is used, stepped over from one step on, and left aside', async () => {
    const make = (skip) => {
      const t = Template().fromTemplate('base').runCmd(`${uuid} > /home/user/a`)
      return (skip ? t.skipCache() : t).runCmd(`${uuid} > /home/user/b`)
    }
    const look = async () => (await inside(n, 'cat ~/a ~/b')).trim().split('\n')
    const said = []
    await Template.build(make(false), n)
    const first = await look()
    await Template.build(make(true), n, { onBuildLogs: (l) => said.push(l.message) })
    const second = await look()
    assert.deepEqual([second[0], second[1] !== first[1]], [first[0], true])
    assert.equal(said.filter((l) => /^CACHED RUN/.test(l)).length, 1, said.join('\n'))
    if (vm) return // a build less
    await Template.build(make(false), n, { skipCache: true })
    const third = await look()
    assert.ok(third[0] !== first[0] && third[1] !== first[1] && third[1] !== second[1])
  })
})

describe('what cannot be had here', { timeout: 200_000 }, () => {
  const n = `${name}-none`
  after(() => drop(n))
  it('images of registries are named, with what to do', async () => {
    for (const [t, image] of [[Template().fromUbuntuImage('24.04'), 'ubuntu:24.04'], [Template().fromPythonImage('3.13'), 'python:3.13'], [Template().fromNodeImage('24'), 'node:24'],
      [Template().fromBunImage('1'), 'oven/bun:1'], [Template().fromFedoraImage('44'), 'fedora:44'], [Template().fromAlpineImage('3'), 'alpine:3'],
      [Template().fromArchImage('latest'), 'archlinux:latest'], [Template().fromDebianImage('sid'), 'debian:sid'],
      [Template().fromImage('registry.example.org/app:1', { username: 'u', password: 'p' }), 'registry.example.org/app:1'],
      [Template().fromAWSRegistry('1.dkr.ecr.example.org/app:1', { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' }), '1.dkr.ecr.example.org/app:1'],
      [Template().fromGCPRegistry('gcr.example.org/app:1', { serviceAccountJSON: { a: 1 } }), 'gcr.example.org/app:1']])
      await assert.rejects(Template.build(t, n), (e) => e instanceof BuildError && e.message.includes(`'${image}'`) && /hutch template import/.test(e.message), image)
  })
  it('templates of E2B are named', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('mcp-gateway').addMcpServer('exa'), n), (e) => e instanceof BuildError && /mcp-gateway/.test(e.message))
    await assert.rejects(Template.build(Template().fromTemplate('devcontainer').betaDevContainerPrebuild('/x').betaSetDevContainerStart('/x'), n), (e) => e instanceof BuildError && /devcontainer/.test(e.message))
  })
  it('a program that is not there is a step that failed', async () => {
    await assert.rejects(Template.build(Template().fromTemplate('base').bunInstall('left-pad'), n), (e) => e instanceof BuildError && /bun install left-pad.*status 127/.test(e.message))
  })
})
