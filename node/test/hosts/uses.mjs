// Typical uses of the package, in a host other than Node: HOST uses.mjs URL. Prints a line for each use.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { LockLost, LockTimeout, Redlock } from "redlock-core";

const WATCHDOG = 600;

const uses = {
  async "excludes others, and wakes them"(client, other) {
    const lease = await client.acquire("x");
    assert.equal(await other.tryAcquire("x"), null);
    await assert.rejects(other.acquire("x", { wait: 20 }), LockTimeout);
    const next = other.acquire("x");
    assert.equal(await lease.release(), "released");
    const { token, held } = await next;
    assert(held && token > lease.token);
    assert.equal(await (await next).release(), "released");
  },

  async "releases at the end of a function, also of one that throws"(client, other) {
    assert.equal(await client.using("x", (signal, lease) => lease.held && !signal.aborted), true);
    const failure = new Error("of the body");
    await assert.rejects(
      client.using("x", () => Promise.reject(failure)),
      failure,
    );
    await (await other.acquire("x", { wait: 0 })).release();
  },

  async "gives up when its signal is aborted"(client, other) {
    const lease = await client.acquire("x");
    const controller = new AbortController();
    const waits = other.acquire("x", { signal: controller.signal });
    const reason = new Error("enough");
    queueMicrotask(() => controller.abort(reason));
    await assert.rejects(waits, reason);
    assert.equal(await lease.release(), "released");
    assert.equal(await client.lock("x").locked(), false);
  },

  async "tells of a loss"(client, other) {
    const lease = await client.acquire("x");
    const lost = new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    assert.equal(await other.forceRelease("x"), true);
    // Only this timer keeps the process alive.
    const alive = setInterval(() => {}, 1000);
    await lost;
    clearInterval(alive);
    assert(lease.signal.reason instanceof LockLost && !lease.held);
    assert.equal(await lease.release(), "lost");
  },

  async "renews a lease"(client, other) {
    const lease = await client.acquire("x");
    // Longer than the lease lasts without a renewal.
    await sleep(3 * WATCHDOG);
    lease.check();
    assert.equal(await other.tryAcquire("x"), null);
    assert.equal(await lease.release(), "released");
  },

  async "renews a lease while its event loop is blocked"(client, other) {
    const lease = await client.acquire("x");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3 * WATCHDOG);
    lease.check();
    assert.equal(await other.tryAcquire("x"), null);
    assert.equal(await lease.release(), "released");
  },

  async "serves a hundred callers at once, each with a lock of its own"(client) {
    const caller = async (_, each) => {
      for (let round = 0; round < 20; round++) await client.using(`independent ${each}`, () => {});
    };
    await Promise.all(Array.from({ length: 100 }, caller));
  },

  async "serves a hundred callers of one lock, one at a time"(client, other) {
    let inside = 0;
    let uses = 0;
    const caller = async (_, each) =>
      (each % 2 ? client : other).using("x", async () => {
        assert.equal(++inside, 1);
        await Promise.resolve();
        inside--;
        uses++;
      });
    await Promise.all(Array.from({ length: 100 }, caller));
    assert.equal(uses, 100);
  },

  async "rejects calls of a closed client"(client) {
    const held = await client.acquire("x");
    await client.close();
    assert.equal(held.held, false);
    await assert.rejects(client.acquire("x"), { code: "closed" });
  },
};

const [url] = process.argv.slice(2);
const client = () => new Redlock(url, { watchdog: WATCHDOG });
for (const [what, use] of Object.entries(uses)) {
  const [one, other] = [client(), client()];
  await use(one, other);
  await Promise.all([one.close(), other.close()]);
  console.log(what);
}
console.log("done");
