// JavaScript in an isolate: node, one thread, no compiler. Loads, then forks
// once per call (serve() of src/zygote/zygote.c) and in the child runs one
// program. Descriptors and records are those of driver.py.
'use strict';
const native = { exports: {} };
process.dlopen(native, '/run/zygote.so');
const { serve, exit } = native.exports;
const fs = require('fs');
const vm = require('vm');
const util = require('util');
const v8 = require('v8');
const { Readable, Writable } = require('stream');
const crypto = require('crypto');
const { builtinModules } = require('module');
const { processTopLevelAwait } = (() => {
  try {
    return require('internal/repl/await');
  } catch {
    return {};
  }
})();

const NAME = '<program>';
const { stringify, parse } = JSON;
const { readSync, writeSync } = fs;
const own = Error.prepareStackTrace;

function writeAll(fd, data) {
  for (let at = 0; at < data.length;) at += writeSync(fd, data, at);
}
const send = (kind, text) => writeAll(3, Buffer.from(kind + text));

let leaving = false;
function leave(status) {
  if (!leaving) { // what the program wants done at its end, once
    leaving = true;
    try {
      process.emit('exit', status);
    } catch {}
  }
  exit(status & 255);
}

function fail(kind, error) {
  let type = '', message = '', stack = '';
  try {
    type = error && error.constructor && error.constructor.name ? String(error.constructor.name) : typeof error;
    message = String(error && error.message !== undefined ? error.message : error);
    stack = error && typeof error.stack === 'string' ? error.stack : '';
  } catch {}
  if (kind === 'exception' && type === 'RangeError' && /allocation failed/.test(message)) kind = 'memory';
  // frames of the driver and of node itself tell the caller nothing
  stack = stack.split('\n').filter((line) => !/^\s+at .*(\/run\/driver|node:)/.test(line)).join('\n');
  send('E', stringify({ kind, type, message: message.slice(0, 4096), traceback: stack.slice(0, 16384) }));
  leave(1);
}

// -> JSON text. What JSON.stringify would pass over in silence is said, as in the other languages.
function form(value) {
  if (value && typeof value === 'object' && /^(Timeout|Immediate)$/.test(value.constructor?.name) && typeof value.hasRef === 'function') return 'null'; // a program that ends in setTimeout(…)
  const text = stringify(value);
  if (value === undefined || value === null) return 'null';
  if (text === undefined || (typeof value === 'number' && text === 'null')) throw new TypeError(`${typeof value === 'number' ? value : `a ${typeof value}`} has no JSON form`);
  return text;
}

// What a program may require: parts of node itself. Whether they can do anything here is the kernel's business.
const parts = new Set(builtinModules);
function load(id) {
  const name = String(id).replace(/^node:/, '');
  if (parts.has(name) && !name.startsWith('internal/')) return require(name);
  const error = new Error(`Cannot find module '${id}' (nothing can be installed in an isolate)`);
  error.code = 'MODULE_NOT_FOUND';
  throw error;
}

// console and the two streams, written at once: there is no loop to wait for.
function text(args) {
  return util.formatWithOptions({ depth: 4 }, ...args) + '\n';
}
const print = (fd) => (...args) => writeAll(fd, Buffer.from(text(args)));
const out = print(1), err = print(2);
const streams = [1, 2].map((fd) => Object.assign(new Writable({
  write(chunk, encoding, done) { writeAll(fd, chunk); done(); },
}), { fd, isTTY: false }));

function prepareGlobals() {
  const counts = new Map(), timers = new Map();
  Object.assign(console, {
    log: out, info: out, debug: out, dir: (value) => out(value), table: (value) => out(value),
    error: err, warn: err, trace: (...args) => err('Trace:', ...args),
    assert: (ok, ...args) => { if (!ok) err('Assertion failed' + (args.length ? ':' : ''), ...args); },
    count: (label = 'default') => { counts.set(label, (counts.get(label) || 0) + 1); out(`${label}: ${counts.get(label)}`); },
    group: out, groupEnd: () => {},
    time: (label = 'default') => { timers.set(label, performance.now()); },
    timeEnd: (label = 'default') => { out(`${label}: ${(performance.now() - (timers.get(label) || 0)).toFixed(3)}ms`); },
  });
  Object.defineProperty(process, 'stdout', { value: streams[0], configurable: true });
  Object.defineProperty(process, 'stderr', { value: streams[1], configurable: true });
  Object.defineProperty(process, 'stdin', { value: Readable.from([]), configurable: true });
  process.reallyExit = process.exit = (status) => leave(status === undefined ? process.exitCode || 0 : Number(status) || 0);
  process.argv = ['node', NAME];
  process.execArgv = [];
  process.env = { LANG: 'C.UTF-8', TZ: 'UTC' };
  globalThis.require = load;
  if (!globalThis.crypto) globalThis.crypto = crypto.webcrypto;
}

// V8 seeds Math.random once, before the fork: every call would draw the same numbers. In contexts that the program makes
// itself it is V8's own, seeded by that flag.
function seedRandom() {
  const bytes = crypto.randomBytes(20);
  v8.setFlagsFromString(`--random-seed=${bytes.readUInt32LE(16) >>> 1 | 1}`);
  let [a, b, c, d] = [0, 4, 8, 12].map((at) => bytes.readUInt32LE(at) | 0);
  d |= 1;
  const next = () => { // xoshiro128**
    const r = Math.imul(rotl(Math.imul(b, 5), 7), 9), t = b << 9;
    c ^= a; d ^= b; b ^= c; a ^= d; c ^= t; d = rotl(d, 11);
    return r >>> 0;
  };
  const rotl = (x, k) => (x << k) | (x >>> (32 - k));
  const random = { random() { return (next() * 2097152 + (next() >>> 11)) / 9007199254740992; } }.random;
  Object.defineProperty(Math, 'random', { value: random, writable: true, configurable: true });
}

function compile(code) {
  try {
    return [new vm.Script(code, { filename: NAME }), false];
  } catch (error) {
    const wrapped = processTopLevelAwait && /\bawait\b/.test(code) ? processTopLevelAwait(code) : null;
    if (!wrapped) throw error;
    return [new vm.Script(wrapped, { filename: NAME }), true];
  }
}

function readAll() {
  const pieces = [], piece = Buffer.allocUnsafe(1 << 16);
  for (let n; (n = readSync(0, piece, 0, piece.length, null)) > 0;) pieces.push(Buffer.from(piece.subarray(0, n)));
  return Buffer.concat(pieces).toString();
}

async function run(request) {
  const [script, wrapped] = compile(request.code);
  let value = await script.runInThisContext();
  if (wrapped && value && typeof value === 'object' && 'value' in value) value = await value.value;
  if (!request.function) return value;
  const f = vm.runInThisContext(`typeof ${request.function} === 'function' ? ${request.function} : undefined`);
  if (!f) throw new ReferenceError(`the program defines no function '${request.function}'`);
  return await f(request.input);
}

// As under node itself, a program ends when nothing is left to be done, timers and promises nobody waited for included. Not
// by 'beforeExit': before it node waits for threads that this process does not have.
const active = process.getActiveResourcesInfo;
const { setTimeout: later, setImmediate: soon } = globalThis;
function whenIdle(done) {
  if (!active) return process.on('beforeExit', done); // node before 17.3
  const before = active.call(process).length;
  let timer, wait = 2;
  const look = () => {
    if (timer) timer.unref(); // else it counts as well
    if (active.call(process).length <= before) return done();
    timer = later(look, wait);
    wait = Math.min(wait * 1.5, 20);
  };
  soon(look);
}

function main() {
  for (const name of ['assert', 'buffer', 'events', 'path', 'querystring', 'string_decoder', 'url', 'util', 'zlib', 'timers', 'perf_hooks'])
    require(name);
  prepareGlobals();
  text(['%s %d %j', 'warm', 1, {}, [1, { a: new Map([[1, 2]]) }]]);
  void crypto.randomUUID;
  vm.runInThisContext('(async () => 1)()');
  Error.prepareStackTrace = own;
  new Date(0).toString();
  new Date(0).toLocaleString('de', { timeZone: 'Europe/Berlin' });
  (1234.5).toLocaleString('en');
  'ä'.localeCompare('b', 'de');
  if (active) active.call(process);
  form({ a: [1] });
  if (global.gc) { global.gc(); global.gc(); }
  serve();
  process.on('uncaughtException', (error) => fail('exception', error));
  process.on('unhandledRejection', (error) => fail('exception', error));
  const request = parse(readAll());
  seedRandom();
  globalThis.input = request.input;
  let result;
  whenIdle(() => {
    if (result === undefined) fail('exception', new Error('the program waits for something that never comes'));
    send('V', result);
    leave(process.exitCode || 0);
  });
  run(request).then((value) => {
    try {
      result = form(value);
    } catch (error) {
      fail('not_json', error);
    }
  }, (error) => fail('exception', error));
}

main();
