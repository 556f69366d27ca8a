// Type-checked and run by typescript.test.mjs: what a program with the generated types looks like.
import createClient from 'openapi-fetch'
import type { components, paths } from './hutch.js'

const client = createClient<paths>({ baseUrl: process.env.E2B_API_URL, headers: { 'X-API-Key': process.env.E2B_API_KEY } })
const isolation = (process.env.HUTCH_TIER ?? 'container') as 'vm' | 'container'
const same = (a: unknown, b: unknown) => { if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`) }

const made = await client.POST('/v1/sandboxes', { body: { isolation, metadata: { by: 'typescript' } } })
const box: components['schemas']['Sandbox'] | undefined = made.data
if (!box) throw new Error(made.error?.error.message)
const path = { id: box.id }
try {
  const run = await client.POST('/v1/sandboxes/{id}/exec', { params: { path }, body: { cmd: ['echo', 'hello'] } })
  same(run.response.status, 200)
  const out = run.data as components['schemas']['ExecResult']
  same([out.stdout, out.exit.code], ['hello\n', 0])

  const file = { path, query: { path: '/home/user/a.txt' } }
  const put = await client.PUT('/v1/sandboxes/{id}/files', { params: file, body: 'text', bodySerializer: (b) => b, headers: { 'Content-Type': 'application/octet-stream' } })
  same(put.data?.size, 4)
  const got = await client.GET('/v1/sandboxes/{id}/files', { params: file, parseAs: 'text' })
  same(got.data, 'text')

  const stream = await client.POST('/v1/sandboxes/{id}/exec', { params: { path }, body: { cmd: 'echo a; exit 3', stream: true }, parseAs: 'text' })
  const lines = (stream.data as unknown as string).trim().split('\n').map((l) => JSON.parse(l) as components['schemas']['ExecEvent'])
  same([lines[0].event, lines.at(-1)?.exit?.code], ['started', 3])

  const list = await client.GET('/v1/sandboxes', { params: { query: { meta: { by: 'typescript' }, limit: 5 } } })
  same(list.data?.sandboxes.map((b) => b.id), [box.id])

  const bad = await client.POST('/v1/sandboxes', { body: { memory_mib: 1 } })
  same([bad.response.status, bad.error?.error.code], [400, 'invalid'])

  // @ts-expect-error a member that no table has
  const body: components['schemas']['SandboxCreate'] = { memory_mb: 1 }
  const typo = await client.POST('/v1/sandboxes', { body })
  same(typo.error?.error.message, 'memory_mb: unknown member; did you mean memory_mib?')
} finally {
  const gone = await client.DELETE('/v1/sandboxes/{id}', { params: { path } })
  same(gone.response.status, 204)
}
console.log('all is well')
