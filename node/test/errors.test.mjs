// Tests of errors: their classes, codes and stacks.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as redlock from "redlock-core";
import { LockError, LockLost, Redlock, Unavailable } from "redlock-core";
import { eventually, Server } from "./servers.mjs";

/** @type {Record<string, string>} */
const CODES = {
  LockTimeout: "timeout",
  LockLost: "lost",
  NotHeld: "not_held",
  Unavailable: "unavailable",
  KeyConflict: "conflict",
  WouldDeadlock: "deadlock",
  InvalidArgument: "invalid",
  Closed: "closed",
};

test("classes and codes", () => {
  for (const [name, code] of Object.entries(CODES)) {
    const Kind = /** @type {any} */ (redlock)[name];
    const error = new Kind("what happened");
    assert(error instanceof LockError && error instanceof Error);
    assert.deepEqual([error.name, error.code, error.message], [name, code, "what happened"]);
    assert.match(error.stack, new RegExp(`^${name}: what happened\n.*at `));
    assert.equal(String(error), `${name}: what happened`);
  }
  assert.equal(new LockLost("x", "taken").reason, "taken");
  assert.deepEqual(new Unavailable("x", { a: "down" }).causes, { a: "down" });
});

test("stacks have the lines of the caller", async () => {
  const client = new Redlock("memory://stacks");
  await client.acquire("x");
  async function theCaller(call) {
    await call();
  }
  const outcomes = [
    () => client.acquire("x", { wait: 0 }),
    () => client.lock("x", { wait: 0 }).acquire(),
    () => client.using("x", { wait: 0 }, () => {}),
    () => client.lock("never").release(),
    () => client.attach("nonsense"),
    () => Promise.all([client.acquire("x", { wait: 0 })]),
  ];
  for (const outcome of outcomes) {
    await assert.rejects(theCaller(outcome), (error) => {
      assert(error instanceof LockError);
      assert.match(error.stack, /at async theCaller \(.*errors\.test\.mjs:\d+:\d+\)/);
      return true;
    });
  }
  function direct() {
    client.lock("x", { ttl: 1 });
  }
  assert.throws(direct, (/** @type {Error} */ error) => /at direct \(.*errors\.test\.mjs/.test(error.stack));
  await client.close();
});
test("passwords appear in no message and no event", async (t) => {
  const server = await Server.of(t, "--requirepass", "s3cret");
  const client = new Redlock(`redis://:wr0ng@127.0.0.1:${server.port}`);
  const events = [];
  client.on("node_down", (event) => events.push(event));
  client.on("node_warning", (event) => events.push(event));
  await assert.rejects(client.acquire("x"), (/** @type {LockError} */ error) => {
    assert.equal(error.code, "unavailable");
    assert(!/wr0ng|s3cret/.test(error.stack + JSON.stringify(error)));
    return true;
  });
  await eventually(() => events.length > 0);
  assert(!/wr0ng|s3cret/.test(events.map((event) => event.message).join()));
  await client.close();
  const right = new Redlock(server.url, { password: "s3cret" });
  await (await right.acquire("x")).release();
  await right.close();
});
