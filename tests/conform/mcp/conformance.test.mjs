// The official conformance tool against hutch. It sends no key, so a proxy on loopback adds one and writes the daemon's
// port where the tool wrote the proxy's. Scenarios that need the tool's own fixtures are not asked for.
import { test } from "node:test";
import assert from "node:assert/strict";
import http from "node:http";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { spawn } from "node:child_process";
import { HUTCH, KEY } from "./hutch.mjs";

const target = new URL(HUTCH);
const scenarios = {
  "2025-11-25": ["server-initialize", "server-session-lifecycle", "ping", "logging-set-level", "tools-list", "resources-list", "resources-subscribe", "resources-unsubscribe",
    "server-sse-multiple-streams", "dns-rebinding-protection"],
  "2026-07-28": ["tools-list", "resources-list", "sep-2164-resource-not-found", "caching", "http-header-validation",
    "server-sse-multiple-streams", "dns-rebinding-protection"],
};

function proxy() {
  const mine = new RegExp(`^(https?://)?(localhost|127\\.0\\.0\\.1):PORT$`);
  const server = http.createServer((req, res) => {
    const headers = { ...req.headers, authorization: `Bearer ${KEY}` };
    for (const name of ["host", "origin"]) {
      const port = String(server.address().port);
      if (headers[name] && mine.test(headers[name].replace(`:${port}`, ":PORT"))) headers[name] = headers[name].replace(port, target.port);
    }
    const on = http.request({ host: target.hostname, port: target.port, path: req.url, method: req.method, headers }, (back) => {
      res.writeHead(back.statusCode, back.headers);
      back.pipe(res);
    });
    on.on("error", () => res.destroy());
    res.on("close", () => on.destroy());
    req.pipe(on);
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

function conformance(port, scenario, version) {
  const out = fs.mkdtempSync(path.join(os.tmpdir(), "conformance-"));
  const bin = path.join(import.meta.dirname, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js");
  return new Promise((done) => {
    let text = "";
    const p = spawn(process.execPath, [bin, "server", "--url", `http://127.0.0.1:${port}/mcp`, "--scenario", scenario, "--spec-version", version, "-o", out]);
    p.stdout.on("data", (b) => (text += b));
    p.stderr.on("data", (b) => (text += b));
    p.on("close", (code) => {
      const checks = [];
      for (const f of fs.readdirSync(out, { recursive: true })) if (f.endsWith("checks.json")) checks.push(...JSON.parse(fs.readFileSync(path.join(out, f))));
      fs.rmSync(out, { recursive: true });
      done({ code, text, checks });
    });
  });
}

for (const [version, names] of Object.entries(scenarios))
  for (const name of names)
    test(`${version} ${name}`, async () => {
      const server = await proxy();
      try {
        const { code, text, checks } = await conformance(server.address().port, name, version);
        const bad = checks.filter((c) => c.status === "FAILURE");
        assert.deepEqual(bad.map((c) => `${c.id}: ${c.errorMessage ?? c.description}`), [], text);
        assert.ok(checks.some((c) => c.status === "SUCCESS"), text);
        assert.equal(code, 0, text);
      } finally {
        server.closeAllConnections();
        server.close();
      }
    });
