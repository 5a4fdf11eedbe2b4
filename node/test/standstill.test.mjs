// A test of a blocked event loop: a lock that is released meanwhile goes to other waiters.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Redlock } from "redlock-core";
import { PACKAGE, start } from "./scripts.mjs";
import { eventually, Server } from "./servers.mjs";

/** In ms. The loop is blocked for LONG if nobody else gets the lock. SOON is far less; others get it after some 5 s. */
const LONG = 40_000;
const SOON = 20_000;

/** A thread that acquires "gate", then "x", and then unblocks the loop. */
const THREAD = `
  import { workerData } from "node:worker_threads";
  import { Redlock } from "file://${PACKAGE}/dist/index.mjs";
  const client = new Redlock(workerData.url);
  await client.using("gate", () => {});
  await client.using("x", () => {});
  Atomics.store(workerData.over, 0, 1);
  Atomics.notify(workerData.over, 0);
`;

/** Waits for "x", and blocks its event loop when SIGUSR2 arrives. */
const LOOP = `
  import { Worker } from "node:worker_threads";
  import { Redlock } from "redlock-core";
  const [url, source] = process.argv.slice(1);
  const client = new Redlock(url);
  const over = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(new URL("data:text/javascript," + encodeURIComponent(source)), { workerData: { url, over } });
  const alive = setInterval(() => {}, 1000);
  process.on("SIGUSR2", () => {
    console.log("stands still");
    console.log(Atomics.wait(over, 0, 0, ${LONG}));
    clearInterval(alive);
  });
  const lease = await client.acquire("x");
  console.log(lease.held, await lease.release());
  await client.close();
`;

test("a blocked event loop holds up no other waiter, and gets the lock later", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url);
  const gate = await client.acquire("gate");
  const held = await client.acquire("x");
  const script = start(t, LOOP, { args: [server.url, THREAD] });
  await eventually(() => server.listeners("x") === 1 && server.listeners("gate") === 1);
  script.child.kill("SIGUSR2");
  await script.says("stands still");
  await held.release();
  const released = performance.now();
  await client.using("x", { wait: LONG }, () => {});
  assert(performance.now() - released < SOON);
  // Now it is the thread's turn.
  await gate.release();
  const { code, stdout, stderr } = await script.ended;
  assert.deepEqual([code, stdout, stderr], [0, "stands still\nok\ntrue released\n", ""]);
  assert.deepEqual(server.locks(), []);
  await client.close();
});
