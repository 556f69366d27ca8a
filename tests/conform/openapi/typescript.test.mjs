// openapi-typescript makes types of this daemon's document; client.ts is checked against them and runs with openapi-fetch.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'

const here = import.meta.dirname
const tool = (name, ...args) => execFileSync(process.execPath, [join(here, 'node_modules', ...name.split('/')), ...args], { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
let dir, doc

describe('typescript', () => {
  before(async () => {
    dir = mkdtempSync(join(tmpdir(), 'ts-'))
    const r = await fetch(process.env.E2B_API_URL + '/v1/openapi.json', { headers: { 'X-API-Key': process.env.E2B_API_KEY } })
    assert.equal(r.status, 200)
    doc = await r.json()
    writeFileSync(join(dir, 'openapi.json'), JSON.stringify(doc))
    writeFileSync(join(dir, 'package.json'), '{"type":"module"}')
    cpSync(join(here, 'client.ts'), join(dir, 'client.ts'))
    symlinkSync(join(here, 'node_modules'), join(dir, 'node_modules'))
  })
  after(() => rmSync(dir, { recursive: true, force: true }))

  it('has types for every operation', () => {
    tool('openapi-typescript/bin/cli.js', 'openapi.json', '-o', 'hutch.d.ts', '--default-non-nullable=false')
    const types = readFileSync(join(dir, 'hutch.d.ts'), 'utf8')
    for (const ops of Object.values(doc.paths)) for (const op of Object.values(ops)) assert.match(types, new RegExp(`operations\\["${op.operationId}"\\]`))
    assert.match(types, /"application\/octet-stream": string/)
    assert.match(types, /"application\/x-ndjson": string/)
  })
  it('type-checks', () => {
    writeFileSync(join(dir, 'node.d.ts'), 'declare const process: { env: Record<string, string | undefined> }\n')
    const compilerOptions = { strict: true, target: 'es2022', module: 'nodenext', lib: ['es2023', 'dom'], skipLibCheck: true, types: [], outDir: '.' }
    writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['client.ts', 'node.d.ts'] }))
    try {
      tool('typescript/bin/tsc', '--project', '.')
    } catch (e) {
      assert.fail(e.stdout)
    }
  })
  it('runs', () => {
    assert.match(execFileSync(process.execPath, ['client.js'], { cwd: dir, encoding: 'utf8', timeout: 120_000 }), /all is well/)
  })
})
