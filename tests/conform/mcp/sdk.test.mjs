// The official TypeScript SDKs, the first and the second, over HTTP and stdio.
import { test } from "node:test";
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import * as second from "@modelcontextprotocol/client";
import { HUTCH, KEY, STDIO } from "./hutch.mjs";

const url = () => new URL(`${HUTCH}/mcp?tools=full`);
const withKey = { requestInit: { headers: { Authorization: `Bearer ${KEY}` } } };

async function work(client, call) {
  const { tools } = await client.listTools(); // compiles the output schemas: every result below is held against them
  assert.ok(tools.length >= 12);
  const first = await call({ name: "run_code", arguments: { code: "6 * 7" } });
  assert.equal(first.structuredContent.result, "42");
  const sandbox = first.structuredContent.sandbox;
  try {
    const seen = [];
    const r = await call({ name: "run_command", arguments: { sandbox, command: "for i in 1 2 3; do echo $i; sleep 1; done" } }, (p) => seen.push(p.progress));
    assert.equal(r.structuredContent.stdout, "1\n2\n3\n");
    assert.ok(seen.length >= 2 && seen.every((n, i) => !i || n > seen[i - 1]), String(seen));
    const some = [["write_file", { path: "a", content: "b" }], ["read_file", { path: "a" }], ["edit_file", { path: "a", edits: [{ old: "b", new: "c" }] }], ["list_files", {}], ["expose_port", { port: 80 }]];
    for (const [name, args] of some) assert.ok(!(await call({ name, arguments: { sandbox, ...args } })).isError, name);
    const read = await client.readResource({ uri: `hutch://${sandbox}/files/home/user/a` });
    assert.equal(read.contents[0].text, "c");
    await assert.rejects(call({ name: "nope", arguments: {} }));
  } finally {
    await call({ name: "kill_sandbox", arguments: { sandbox } });
  }
}

const v1 = (client) => (params, onprogress) => client.callTool(params, undefined, onprogress ? { onprogress, resetTimeoutOnProgress: true } : {});
const v2 = (client) => (params, onprogress) => client.callTool(params, onprogress ? { onprogress } : {});

test("the first SDK over HTTP", async () => {
  const client = new Client({ name: "t", version: "1" }), transport = new StreamableHTTPClientTransport(url(), withKey);
  await client.connect(transport);
  await work(client, v1(client));
  await transport.terminateSession();
  await client.close();
});

test("the first SDK over stdio", async () => {
  const client = new Client({ name: "t", version: "1" });
  await client.connect(new StdioClientTransport(STDIO));
  await work(client, v1(client));
  await client.close();
});

test("the first SDK cancels", async () => {
  const client = new Client({ name: "t", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(url(), withKey));
  const { structuredContent: { sandbox } } = await client.callTool({ name: "run_command", arguments: { command: "true" } });
  const stop = new AbortController();
  const call = client.callTool({ name: "run_command", arguments: { sandbox, command: "sleep 7551" } }, undefined, { signal: stop.signal });
  setTimeout(() => stop.abort(), 1000);
  await assert.rejects(call);
  let left = "1";
  for (let i = 0; i < 50 && left !== "0"; i++) left = (await client.callTool({ name: "run_command", arguments: { sandbox, command: "pgrep -c -x sleep || true" } })).structuredContent.stdout.trim();
  assert.equal(left, "0");
  await client.callTool({ name: "kill_sandbox", arguments: { sandbox } });
  await client.close();
});

for (const mode of ["legacy", "auto", { pin: "2026-07-28" }])
  test(`the second SDK over HTTP, ${JSON.stringify(mode)}`, async () => {
    const client = new second.Client({ name: "t", version: "1" }, { versionNegotiation: { mode } });
    await client.connect(new second.StreamableHTTPClientTransport(url(), withKey));
    await work(client, v2(client));
    await client.close();
  });
