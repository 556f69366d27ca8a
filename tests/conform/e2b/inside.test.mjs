// What users of E2B find inside a sandbox, and the corners of commands, files and terminals.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { CommandExitError, FileNotFoundError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, TimeoutError } from 'e2b'

const metadata = process.env.HUTCH_TIER ? { 'hutch.isolation': process.env.HUTCH_TIER } : {}
let sbx
const out = async (cmd, opts) => (await sbx.commands.run(cmd, opts)).stdout.trimEnd()

before(async () => { sbx = await Sandbox.create({ metadata, envs: { FOO: 'bar', SPACED: 'a b', E2B_SANDBOX: 'no', E2B_SANDBOX_ID: 'no', E2B_TEMPLATE_ID: 'no' } }) })
after(async () => { await sbx?.kill() })

describe('the place', () => {
  it('is for user, who may become root', async () => {
    assert.equal(await out('whoami; pwd; echo $HOME $USER $LOGNAME $SHELL; id -gn; umask'), 'user\n/home/user\n/home/user user user /bin/bash\nuser\n0022')
    assert.equal(await out('sudo whoami'), 'root')
    assert.equal(await out('sudo -n true && echo yes'), 'yes')
    assert.equal(await out('stat -c "%U %G %a" /home/user'), 'user user 755')
    assert.equal(await out('stat -c "%a" /usr/local /code', { user: 'root' }), '777\n777')
    assert.match(await out('id -nG'), /\bsudo\b/)
  })
  it('has E2B\'s variables and files, which nobody overrides', async () => {
    const raw = await (await fetch(`${process.env.E2B_API_URL}/sandboxes/${sbx.sandboxId}`, { headers: { 'X-API-KEY': process.env.E2B_API_KEY } })).json()
    assert.equal(await out('echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID'), `true ${sbx.sandboxId} ${raw.templateID}`)
    assert.equal(await out('cat /run/e2b/.E2B_SANDBOX; echo; cat /run/e2b/.E2B_SANDBOX_ID; echo; cat /run/e2b/.E2B_TEMPLATE_ID'), `true\n${sbx.sandboxId}\n${raw.templateID}`)
    assert.match(await out('cat /.e2b'), new RegExp(`^TEMPLATE_ID=${raw.templateID}\nBUILD_ID=[0-9a-f-]{36}$`))
    const envs = await (await fetch(`${process.env.E2B_SANDBOX_URL}/envs`, { headers: { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': raw.envdAccessToken } })).json()
    assert.equal(envs.FOO, 'bar')
    assert.equal(envs.E2B_TEMPLATE_ID, raw.templateID)
  })
  it('has the tools people expect', async () => {
    for (const tool of ['python', 'python3', 'pip', 'node', 'npm', 'git', 'curl', 'sudo', 'tput', 'ss', 'pgrep', 'tar', 'ps'])
      assert.match(await out(`command -v ${tool} || echo "${tool} is missing"`), /^\//)
    assert.equal(await out('python -c "print(1+1)"'), '2')
  })
})

describe('environment', () => {
  it('of the sandbox reaches every process', async () => {
    assert.equal(await out('echo "$FOO|$SPACED"'), 'bar|a b')
    assert.equal(await out('echo "$FOO"', { user: 'root' }), 'bar')
    assert.equal(await out('python3 -c "import os; print(os.environ[\'FOO\'])"'), 'bar')
  })
  it('of a command wins, and does not leak', async () => {
    assert.equal(await out('echo "$FOO $ONE"', { envs: { FOO: 'baz', ONE: '1' } }), 'baz 1')
    assert.equal(await out('echo "$FOO $ONE"'), 'bar')
    assert.equal(await out('sudo printenv ONE || echo none', { envs: { ONE: '1' } }), 'none')
  })
  it('has the PATH it was given, also in a login shell', async (t) => {
    if (/id -u/.test((await out('grep "^if.*id -u" /etc/profile || true')))) return t.skip('this template base was built by an earlier version')
    assert.equal(await out('echo $PATH', { envs: { PATH: '/opt/mine:/usr/bin:/bin' } }), '/opt/mine:/usr/bin:/bin')
    assert.match(await out('echo $PATH'), /\/usr\/local\/bin:.*\/usr\/sbin/)
  })
})

describe('commands', () => {
  it('special characters, several lines, broken UTF-8', async () => {
    const text = '!@#$%^&*()_+'
    assert.equal(await out(`echo "${text}"`), text)
    assert.equal(await out('echo "Hello,\nWorld!"'), 'Hello,\nWorld!')
    const long = 'a'.repeat(8191) + '📋'
    assert.equal(await out(`echo "${long}"`), long)
    assert.equal((await sbx.commands.run('printf "\\xff\\xfe ok"')).stdout, '\ufffd\ufffd ok')
  })
  it('an empty command, a very long one', async () => {
    assert.equal((await sbx.commands.run('')).exitCode, 0)
    const long = 'x'.repeat(100_000)
    assert.equal((await out(`echo ${long} | wc -c`)), '100001')
  })
  it('a timeout of 0 is none; a short one ends it', async () => {
    assert.equal((await sbx.commands.run('sleep 0.3; echo done', { timeoutMs: 0 })).stdout, 'done\n')
    await assert.rejects(sbx.commands.run('sleep 30', { timeoutMs: 500 }), TimeoutError)
  })
  it('ends with the signal it got', async () => {
    const h = await sbx.commands.run('kill -TERM $$', { background: true })
    await assert.rejects(h.wait(), (e) => e instanceof CommandExitError && e.exitCode === -1 && /signal: terminated/.test(e.error))
  })
  it('stdin: empty, special, several lines', async () => {
    for (const text of ['', '!@#$%^&*()_+', 'Hello\nWorld\n', 'ünï\n']) {
      let got = ''
      const h = await sbx.commands.run('cat', { background: true, stdin: true, onStdout: (d) => { got += d } })
      await sbx.commands.sendStdin(h.pid, text)
      await sbx.commands.closeStdin(h.pid)
      await h.wait()
      assert.equal(got, text)
    }
  })
  it('sendStdin to a handle, to nobody, without stdin', async () => {
    await assert.rejects(sbx.commands.sendStdin(999_999, 'x'), NotFoundError)
    const h = await sbx.commands.run('sleep 30', { background: true })
    await assert.rejects(sbx.commands.sendStdin(h.pid, 'x'), SandboxError)
    assert.equal(await h.kill(), true)
    await assert.rejects(h.wait(), CommandExitError)
    assert.equal(await h.kill(), false)
  })
  it('list tells command, arguments, environment, directory', async () => {
    const h = await sbx.commands.run('sleep 30', { background: true, envs: { LISTED: '1' }, cwd: '/tmp' })
    const p = (await sbx.commands.list()).find((x) => x.pid === h.pid)
    assert.deepEqual([p.cmd, p.args, p.cwd], ['/bin/bash', ['-l', '-c', 'sleep 30'], '/tmp'])
    assert.equal(p.envs.LISTED, '1')
    await h.kill()
    await sbx.commands.run('true')
    assert.ok(!(await sbx.commands.list()).some((x) => x.pid === h.pid))
  })
  it('an aborted request, and a handle that lets go', async () => {
    const h = await sbx.commands.run('sleep 1; echo late > /tmp/late', { background: true })
    await h.disconnect()
    await sbx.commands.run('for i in $(seq 100); do [ -s /tmp/late ] && exit; sleep 0.1; done; exit 1')
    await assert.rejects(sbx.commands.connect(999_999), NotFoundError)
  })
  it('output handed to async callbacks, in order', async () => {
    const seen = []
    const r = await sbx.commands.run('for i in 1 2 3 4 5; do echo $i; echo e$i >&2; done', { onStdout: async (d) => { seen.push(d) }, onStderr: async (d) => { seen.push(d) } })
    assert.equal(r.stdout, '1\n2\n3\n4\n5\n')
    assert.equal(r.stderr, 'e1\ne2\ne3\ne4\ne5\n')
    assert.equal(seen.join('').replace(/e\d\n/g, ''), '1\n2\n3\n4\n5\n')
  })
})

describe('files', () => {
  it('every way to name a home', async () => {
    for (const p of ['rel.txt', '~/rel.txt', './rel.txt', '/home/user/rel.txt', '/home/user//./rel.txt']) {
      await sbx.files.write(p, p)
      assert.equal(await sbx.files.read('/home/user/rel.txt'), p)
    }
    assert.equal((await sbx.files.write('r.txt', 'x', { user: 'root' })).path, '/root/r.txt')
    await assert.rejects(sbx.files.read('~nobody/x'), InvalidArgumentError)
  })
  it('info of a file, a directory, a link, a dangling link', async () => {
    await sbx.commands.run('mkdir -p i && cd i && echo -n hello > f && ln -s f l && ln -s nowhere d && mkfifo p')
    const f = await sbx.files.getInfo('i/f')
    assert.deepEqual([f.name, f.type, f.path, f.size, f.mode, f.permissions, f.owner, f.group, f.symlinkTarget], ['f', 'file', '/home/user/i/f', 5, 0o644, '-rw-r--r--', 'user', 'user', undefined])
    assert.ok(f.modifiedTime instanceof Date)
    const d = await sbx.files.getInfo('i')
    assert.deepEqual([d.type, d.mode, d.permissions], ['dir', 0o755, 'drwxr-xr-x'])
    assert.ok(d.size > 0)
    const l = await sbx.files.getInfo('i/l')
    assert.deepEqual([l.name, l.type, l.symlinkTarget, l.permissions, l.mode], ['l', 'file', '/home/user/i/f', 'Lrwxrwxrwx', 0o644])
    assert.equal(await sbx.files.exists('i/d'), true)
    assert.deepEqual((await sbx.files.list('i')).map((e) => e.name), ['f', 'l'])
    await assert.rejects(sbx.files.getInfo('i/none'), FileNotFoundError)
  })
  it('list: depth, links to directories, errors', async () => {
    await sbx.commands.run('mkdir -p t/a/b/c t/z && touch t/a/1 t/a/b/2 t/a/b/c/3 t/B && ln -s a t/link && chmod 700 t/z')
    const names = async (p, depth) => (await sbx.files.list(p, { depth })).map((e) => e.path.replace('/home/user/', ''))
    assert.deepEqual(await names('t'), ['t/B', 't/a', 't/link', 't/z'])
    assert.deepEqual(await names('t', 2), ['t/B', 't/a', 't/a/1', 't/a/b', 't/link', 't/z'])
    assert.deepEqual(await names('t', 99), ['t/B', 't/a', 't/a/1', 't/a/b', 't/a/b/2', 't/a/b/c', 't/a/b/c/3', 't/link', 't/z'])
    assert.deepEqual(await names('t/link'), ['t/link/1', 't/link/b'])
    assert.equal((await sbx.files.list('t')).find((e) => e.name === 'link').type, 'dir')
    await assert.rejects(sbx.files.list('none'), FileNotFoundError)
    await assert.rejects(sbx.files.list('t/B'), InvalidArgumentError)
    await assert.rejects(sbx.files.list('t', { depth: 0 }), InvalidArgumentError)
  })
  it('remove, rename, makeDir as documented', async () => {
    await sbx.files.remove('never-was')
    await sbx.files.write('m/one', '1')
    assert.equal((await sbx.files.rename('m/one', 'm/sub/two')).path, '/home/user/m/sub/two')
    await sbx.files.write('m/three', '3')
    await sbx.files.rename('m/three', 'm/sub/two')
    assert.equal(await sbx.files.read('m/sub/two'), '3')
    await assert.rejects(sbx.files.rename('m/none', 'm/x'), FileNotFoundError)
    assert.equal(await sbx.files.makeDir('m/new/deep'), true)
    assert.equal(await sbx.files.makeDir('m/new/deep'), false)
    await assert.rejects(sbx.files.makeDir('m/sub/two'), InvalidArgumentError)
    await sbx.files.remove('m')
    assert.equal(await sbx.files.exists('m'), false)
  })
  it('a link that leads to itself is an error, not a hang', async () => {
    await sbx.commands.run('ln -s loop loop')
    await assert.rejects(sbx.files.read('loop'), Error)
  })
  it('many files in one call, some of them large', async () => {
    const files = Array.from({ length: 40 }, (_, i) => ({ path: `many/${i}.bin`, data: new Uint8Array(i * 5000).fill(i).buffer }))
    const infos = await sbx.files.write(files)
    assert.equal(infos.length, 40)
    assert.deepEqual({ ...infos[3] }, { name: '3.bin', type: 'file', path: '/home/user/many/3.bin', metadata: undefined })
    assert.equal((await sbx.files.read('many/39.bin', { format: 'bytes' })).length, 39 * 5000)
    assert.deepEqual(await sbx.files.write([]), [])
  })
  it('metadata: set inside, seen outside; replaced and cleared by uploads', async () => {
    await sbx.files.write('meta.txt', 'x', { metadata: { Author: 'me', purpose: 'test' } })
    assert.deepEqual((await sbx.files.getInfo('meta.txt')).metadata, { author: 'me', purpose: 'test' })
    await sbx.commands.run('python3 -c "import os; os.setxattr(\'meta.txt\', \'user.e2b.author\', b\'inside\')"')
    assert.equal((await sbx.files.getInfo('meta.txt')).metadata.author, 'inside')
    await sbx.files.rename('meta.txt', 'meta2.txt')
    assert.equal((await sbx.files.getInfo('meta2.txt')).metadata.author, 'inside')
    await sbx.files.write('meta2.txt', 'y')
    assert.equal((await sbx.files.getInfo('meta2.txt')).metadata, undefined)
    await assert.rejects(sbx.files.write('meta2.txt', 'y', { metadata: { k: 'v'.repeat(5000) } }), InvalidArgumentError)
  })
})

describe('terminals', () => {
  const text = (chunks) => Buffer.concat(chunks).toString()
  it('environment, directory, exit code', async () => {
    const chunks = []
    const t = await sbx.pty.create({ cols: 80, rows: 24, envs: { ABC: '123' }, cwd: '/', onData: (d) => chunks.push(d) })
    await sbx.pty.sendInput(t.pid, new TextEncoder().encode('echo $ABC $PWD $TERM $LANG; exit 3\n'))
    await assert.rejects(t.wait(), (e) => e instanceof CommandExitError && e.exitCode === 3)
    assert.match(text(chunks), /123 \/ xterm-256color C\.UTF-8/)
  })
  it('tput knows the size, also after a resize', async () => {
    const chunks = []
    const t = await sbx.pty.create({ cols: 80, rows: 24, onData: (d) => chunks.push(d) })
    const until = async (re) => { for (let i = 0; i < 300 && !re.test(text(chunks)); i++) await new Promise((r) => setTimeout(r, 50)); assert.match(text(chunks), re) }
    await sbx.pty.sendInput(t.pid, new TextEncoder().encode('echo "<$(tput cols)x$(tput lines)>"\n'))
    await until(/<80x24>/)
    await sbx.pty.resize(t.pid, { cols: 100, rows: 40 })
    await sbx.pty.sendInput(t.pid, new TextEncoder().encode('echo "<$(tput cols)x$(tput lines)>"\n'))
    await until(/<100x40>/)
    assert.equal(await sbx.pty.kill(t.pid), true)
    await assert.rejects(t.wait(), CommandExitError)
    assert.equal(await sbx.pty.kill(t.pid), false)
    await assert.rejects(sbx.pty.resize(t.pid, { cols: 1, rows: 1 }), NotFoundError)
  })
  it('of nobody, in no directory', async () => {
    await assert.rejects(sbx.pty.create({ cols: 80, rows: 24, cwd: '/none', onData: () => {} }), InvalidArgumentError)
    await assert.rejects(sbx.pty.connect(999_999, { onData: () => {} }), NotFoundError)
    await assert.rejects(sbx.pty.sendInput(999_999, new Uint8Array([10])), NotFoundError)
  })
})
