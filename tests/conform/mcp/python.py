"""The official Python SDK, over HTTP and stdio, in every mode it has."""
import asyncio
import os
import unittest

import httpx2 as httpx  # what the SDK itself is built on
import mcp
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

URL, KEY, SOCK = os.environ["HUTCH_URL"], os.environ["E2B_API_KEY"], os.environ["HUTCH_SOCK"]


async def session(client):
    tools = await client.list_tools()
    names = [t.name for t in tools.tools]
    assert names[:2] == ["run_code", "run_command"], names
    r = await client.call_tool("run_code", {"code": "x = 6 * 7\nx"})
    got, sandbox = r.structured_content, r.structured_content["sandbox"]
    assert (got["status"], got["result"]) == ("exited", "42"), got
    try:
        seen = []

        async def progress(*args):
            seen.append(args)
        r = await client.call_tool("run_command", {"command": "for i in 1 2 3; do echo $i; sleep 1; done", "sandbox": sandbox}, progress_callback=progress)
        assert r.structured_content["stdout"] == "1\n2\n3\n" and seen, (r, seen)
        r = await client.call_tool("write_file", {"path": "a.txt", "content": "text", "sandbox": sandbox})
        uri = f"hutch://{sandbox}/files{r.structured_content['path']}"
        read = await client.read_resource(uri)
        assert read.contents[0].text == "text", read
        assert uri in [str(x.uri) for x in (await client.list_resources()).resources]
        r = await client.call_tool("run_command", {"comand": "x"})
        assert r.is_error and "did you mean" in r.content[0].text, r
    finally:
        await client.call_tool("kill_sandbox", {"sandbox": sandbox})


async def over_http(mode):
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
        async with mcp.Client(streamable_http_client(f"{URL}/mcp", http_client=http), mode=mode) as client:
            await session(client)


async def over_stdio(mode):
    env = {**os.environ, "HUTCH_URL": f"unix:{SOCK}"}
    async with mcp.Client(StdioServerParameters(command=os.environ["HUTCH_CLI"], args=["mcp"], env=env), mode=mode) as client:
        await session(client)


class Sdk(unittest.TestCase):
    def test_http_legacy(self):
        asyncio.run(over_http("legacy"))

    def test_http_auto(self):
        asyncio.run(over_http("auto"))

    def test_http_modern(self):
        asyncio.run(over_http("2026-07-28"))

    def test_stdio_legacy(self):
        asyncio.run(over_stdio("legacy"))

    def test_stdio_auto(self):
        asyncio.run(over_stdio("auto"))
