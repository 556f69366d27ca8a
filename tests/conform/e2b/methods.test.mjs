// Every public method of the SDK's classes is called by one of the scripts here. The list is the SDK's own, of its type declarations:
// a new version with a method that nobody tries fails here.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { describe, it } from 'node:test'

const dts = readFileSync(new URL('./node_modules/e2b/dist/index.d.ts', import.meta.url), 'utf8')
const interpreter = readFileSync(new URL('./node_modules/@e2b/code-interpreter/dist/index.d.ts', import.meta.url), 'utf8')
const scripts = readdirSync(new URL('.', import.meta.url)).filter((f) => f.endsWith('.test.mjs')).map((f) => readFileSync(new URL(f, import.meta.url), 'utf8')).join('\n')

function methods(text, name) {
  const from = text.search(new RegExp(`^declare class ${name}\\b`, 'm'))
  assert.ok(from >= 0, `the SDK has no class ${name} any more`)
  const body = text.slice(from, text.indexOf('\n}', from)).replace(/\/\*[^]*?\*\//g, '')
  const all = [...new Set([...body.matchAll(/^ {2,4}(static )?(?:get )?([a-z]\w*)(?=[(<])/gm)].map((m) => (m[1] ?? '') + m[2]))].filter((m) => m !== 'constructor')
  assert.ok(all.length, `${name}: the declarations are not read right`)
  return all
}

// class -> how an object of it is called in the scripts
const classes = {
  Sandbox: 'Sandbox|\\w+', SandboxApi: 'Sandbox', Commands: 'commands', Filesystem: 'files', Pty: 'pty', Git: 'git', Volume: 'Volume|\\w+', Secret: 'Secret',
  TemplateBase: '\\w+|\\)', CommandHandle: '\\w+', WatchHandle: '\\w+', SandboxPaginator: '\\w+', SnapshotPaginator: '\\w+', SecretPaginator: '\\w+', ReadyCmd: '\\w+',
}
// not for callers: parts that other methods are made of
const inner = ['static getFullInfo', 'static createSandbox', 'static forkSandbox', 'static connectSandbox', 'static resolveOpts', 'static boundOpts', 'static clientOpts']

describe('methods of the SDK that no script calls', () => {
  for (const [name, called] of Object.entries(classes))
    it(name, () => {
      const missing = methods(dts, name).filter((m) => !inner.includes(m)).filter((m) => {
        const [, fixed, word] = /^(static )?(\w+)$/.exec(m)
        return !new RegExp(`(?:\\b(?:${fixed && name !== 'TemplateBase' ? called.split('|')[0] : called})|\\))\\s*\\??\\.${word}\\b`).test(scripts)
      })
      assert.deepEqual(missing, [])
    })
  it('code interpreter', () => {
    const missing = methods(interpreter, 'Sandbox').filter((m) => !new RegExp(`\\.${m.replace('static ', '')}\\b`).test(scripts))
    assert.deepEqual(missing, [])
  })
})
