// hutch's JavaScript and TypeScript kernel. Driven by ../relay.py over descriptors 3, 4 and 5; see ../README.md.
import fs from "node:fs"
import net from "node:net"
import util from "node:util"
import v8 from "node:v8"
import vm from "node:vm"
import { createRequire } from "node:module"
import { setImmediate } from "node:timers"
import { pathToFileURL } from "node:url"
import { Worker } from "node:worker_threads"
import { rewrite } from "./rewrite.mjs"

const language = process.argv[2] ?? "javascript"
const JSON_MAX = 1 << 20

// ---- out ----
function writeAll(b) {
    for (let at = 0; at < b.length;) {
        try {
            at += fs.writeSync(4, b, at)
        } catch (e) {
            if (e.code !== "EAGAIN") process.exit(0)
        }
    }
}
function sendError(name, value, traceback) {
    const parts = [name, value, traceback].map((s) => Buffer.from(String(s)))
    writeAll(Buffer.concat([Buffer.from(`error ${parts.map((p) => p.length).join(" ")}\n`), ...parts]))
}
function sendResult(main, data) {
    const parts = [], types = Object.keys(data).filter((t) => /^[\x21-\x7e]+$/.test(t))
    parts.push(Buffer.from(`result ${main ? 1 : 0} ${types.length}\n`))
    for (const type of types) {
        let v = data[type]
        if (typeof v !== "string") v = Buffer.isBuffer(v) || v instanceof Uint8Array ? Buffer.from(v).toString("base64") : JSON.stringify(v)
        const b = Buffer.from(type === "application/json" || type.endsWith("+json") ? ascii(typeof data[type] === "string" ? data[type] : v) : v)
        parts.push(Buffer.from(`${type} ${b.length}\n`), b)
    }
    writeAll(Buffer.concat(parts))
}
const ascii = (s) => s.replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"))

// ---- values ----
const DISPLAY = Symbol.for("Jupyter.display")
function bundle(value) {
    if (value !== null && typeof value === "object" && typeof value[DISPLAY] === "function") {
        const own = value[DISPLAY]()
        if (own && typeof own === "object") return own
    }
    const data = { "text/plain": util.inspect(value, { depth: 6, maxArrayLength: 10000, maxStringLength: 1 << 20, breakLength: 80 }) }
    const proto = value !== null && typeof value === "object" ? Object.getPrototypeOf(value) : undefined
    if (Array.isArray(value) || proto === Object.prototype || proto === null) {
        try {
            const text = JSON.stringify(value)
            if (text && text.length < JSON_MAX) data["application/json"] = text
        } catch { /* cycles, big integers */ }
    }
    return data
}
globalThis.display = (value, options) => { sendResult(false, options?.raw ? value : bundle(value)) }

// ---- modules, seen from the working directory ----
const here = () => pathToFileURL(process.cwd() + "/cell.js").href
globalThis.require = Object.assign((name) => createRequire(here())(name), { resolve: (name) => createRequire(here()).resolve(name) })
Object.defineProperties(globalThis, {
    __dirname: { get: () => process.cwd(), configurable: true },
    __filename: { get: () => process.cwd() + "/cell.js", configurable: true },
    module: { value: { exports: {} }, writable: true, configurable: true },
    exports: { value: {}, writable: true, configurable: true },
    __hutch_import: { value: importFromHere, configurable: true },
})
async function importFromHere(name) {
    name = String(name).replace(/^npm:/, "")
    let url
    if (/^\.{0,2}\//.test(name)) {
        url = new URL(name, here()).href
    } else {
        try {
            url = await import.meta.resolve(name, here())
        } catch (e) {
            try {
                const path = createRequire(here()).resolve(name)
                url = path.startsWith("/") ? pathToFileURL(path).href : path
            } catch {
                throw e
            }
        }
    }
    return import(url)
}

// ---- TypeScript ----
const { execFileSync } = createRequire(import.meta.url)("node:child_process")
let typescript
function strip(code) {
    const args = ["--loader=ts", "--target=es2022", "--log-level=error", "--color=false",
        '--tsconfig-raw={"compilerOptions":{"preserveValueImports":true,"importsNotUsedAsValues":"preserve"}}']
    try {
        return execFileSync("esbuild", args, { input: code, stdio: ["pipe", "pipe", "pipe"], maxBuffer: 64 << 20, encoding: "utf8" })
    } catch (e) {
        if (e.code !== "ENOENT") throw new SyntaxError(String(e.stderr || e.message).trim().replace(/^.*\[ERROR\] /, ""))
    }
    try {
        typescript ??= createRequire(here())("typescript")
    } catch {
        throw new Error("TypeScript needs esbuild or the package typescript; template code-interpreter has one")
    }
    return typescript.transpileModule(code, { compilerOptions: { target: "ES2022", module: "ESNext", verbatimModuleSyntax: true } }).outputText
}

// ---- running ----
const busy = new Int32Array(new SharedArrayBuffer(4)) // the number of the cell that runs, 0 between cells
class KeyboardInterrupt extends Error {
    constructor() {
        super("")
        this.name = "KeyboardInterrupt"
        this.stack = "KeyboardInterrupt"
    }
}
const interrupted = (e) => e instanceof KeyboardInterrupt || e?.signal === "SIGINT" // a command that the cell waited for heard it first

async function cell(code, number) {
    const text = rewrite(language === "typescript" ? strip(code) : code)
    const script = new vm.Script(text.code, { filename: `cell-${number}.js`, importModuleDynamically: importFromHere })
    let value = script.runInThisContext({ displayErrors: false })
    if (text.awaits) value = (await value)?.[0]
    return text.shows ? value : undefined
}

function report(e) {
    if (interrupted(e)) return sendError("KeyboardInterrupt", "", "KeyboardInterrupt")
    if (!(e instanceof Error) && !(e && typeof e.stack === "string")) return sendError("Error", util.inspect(e), "Uncaught " + util.inspect(e))
    sendError(e.name ?? "Error", e.message ?? "", trace(e))
}

// Its stack as far as the cell, and what caused it.
function trace(e, depth = 0) {
    let lines = String(e.stack ?? e).split("\n")
    const bottom = lines.findLastIndex((l) => /^\s+at .*\bcell-\d+\.js:/.test(l))
    if (bottom >= 0) lines = lines.slice(0, bottom + 1)
    lines = lines.filter((l) => !/^\s+at .*(kernel\.mjs|rewrite\.mjs|node:vm|node:internal|^\s+at acorn|\(acorn)/.test(l) && (bottom >= 0 || !/^\s+at .*\(node:/.test(l)))
    if (e.cause !== undefined && depth < 8) {
        const cause = e.cause instanceof Error ? trace(e.cause, depth + 1) : util.inspect(e.cause)
        lines.push("  [cause]: " + cause.replaceAll("\n", "\n  "))
    }
    return lines.join("\n")
}

let number = 0, active = false, kept = {}
async function run(code, env) {
    active = true
    kept = {}
    for (const [k, v] of Object.entries(env)) {
        kept[k] = process.env[k]
        process.env[k] = v
    }
    const mine = ++number
    Atomics.store(busy, 0, mine)
    writeAll(Buffer.from("begun\n"))
    try {
        const value = await cell(code, mine)
        if (value !== undefined && active && mine === number) {
            globalThis._ = value
            sendResult(true, bundle(value))
        }
        await new Promise(setImmediate) // a promise that the cell left rejected is reported before this turn of the loop ends
        settle(mine)
    } catch (e) {
        settle(mine, e)
    }
}

// The end of a cell, once: by itself, or by force, after which nothing of it runs any more.
function settle(mine, error) {
    if (!active || mine !== number) return
    if (error !== undefined) report(error)
    active = false
    Atomics.store(busy, 0, 0)
    Atomics.notify(busy, 0)
    for (const [k, v] of Object.entries(kept)) {
        if (v === undefined) delete process.env[k]
        else process.env[k] = v
    }
    writeAll(Buffer.from("done\n"))
    setImmediate(next)
}

const described = (e) => e instanceof Error ? trace(e) : util.inspect(e)
process.on("uncaughtException", (e) => console.error("Uncaught " + described(e)))
process.on("unhandledRejection", (e) => console.error("Uncaught (in promise) " + described(e)))

// ---- whom we work for ----
// The memory of this process may be a copy that others have as well. OpenSSL seeds itself anew after a restore, because the clock jumps
// (core/variant.c); V8 never does, but a context that is made under a new seed begins with it.
function adopt(env) {
    Object.assign(process.env, env)
    const seed = fs.openSync("/dev/urandom", "r"), b = Buffer.alloc(4)
    fs.readSync(seed, b)
    fs.closeSync(seed)
    v8.setFlagsFromString(`--random-seed=${(b.readUInt32LE() >>> 1) || 1}`)
    Math.random = vm.runInNewContext("Math.random(); Math.random")
    v8.setFlagsFromString("--random-seed=0")
}

// ---- in ----
let pending = Buffer.alloc(0)
// Not a chain of promises: what was queued when a cell is stopped the hard way is lost, and the chain with it.
const waiting = []
function next() {
    if (!active && waiting.length) run(...waiting.shift())
}
function takeRequest() {
    const end = pending.indexOf(10)
    if (end < 0) return false
    const [what, ...numbers] = pending.subarray(0, end).toString().split(" ")
    const [size, count] = numbers.map(Number)
    let at = end + 1
    if (pending.length < at + size) return false
    const code = pending.subarray(at, at + size).toString()
    at += size
    const env = {}
    for (let i = 0; i < count; i++) {
        const nl = pending.indexOf(10, at)
        if (nl < 0) return false
        const n = Number(pending.subarray(at, nl))
        if (pending.length < nl + 1 + n) return false
        const kv = pending.subarray(nl + 1, nl + 1 + n).toString()
        env[kv.slice(0, kv.indexOf("="))] = kv.slice(kv.indexOf("=") + 1)
        at = nl + 1 + n
    }
    pending = pending.subarray(at)
    if (what === "adopt") adopt(env)
    else waiting.push([code, env])
    return true
}
new net.Socket({ fd: 3, readable: true, writable: false }).on("data", (b) => {
    pending = Buffer.concat([pending, b])
    while (takeRequest());
    next()
}).on("close", () => process.exit(0))

// An interrupt is a byte on descriptor 5. The thread that waits for it names the cell that ran then, until that has ended: on the loop
// first, where a cell that awaits something is; code that gives the loop no turn is stopped wherever it is. The signal that comes along is
// for the commands a cell has started.
process.on("SIGINT", () => {})
const watch = new Worker(`
    const net = require("net"), inspector = require("inspector"), { parentPort, workerData: busy } = require("worker_threads")
    new net.Socket({ fd: 5, readable: true, writable: false }).on("data", () => { // not a read that waits: process.exit() would wait for it
        const cell = Atomics.load(busy, 0)
        for (let patience = 100; cell && Atomics.load(busy, 0) === cell; patience = 1000) {
            parentPort.postMessage(cell)
            if (Atomics.wait(busy, 0, cell, patience) !== "timed-out") break
            const session = new inspector.Session()
            session.connectToMainThread()
            session.post("Runtime.terminateExecution", () => {})
            session.disconnect()
        }
    })`, { eval: true, workerData: busy, execArgv: [], stdout: true, stderr: true })
watch.on("message", (cell) => settle(cell, new KeyboardInterrupt()))
watch.unref()

writeAll(Buffer.from(`ready ${process.version}\n`))
