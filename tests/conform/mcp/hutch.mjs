// Where the daemon of this run is (tests/conform/run.py says).
export const HUTCH = process.env.HUTCH_URL;
export const KEY = process.env.E2B_API_KEY;
export const STDIO = { command: process.env.HUTCH_CLI, args: ["mcp"], env: { ...process.env, HUTCH_URL: `unix:${process.env.HUTCH_SOCK}` } };
