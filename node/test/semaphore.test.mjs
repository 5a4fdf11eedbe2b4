// Tests of semaphores: numbered slots, granted in the order of the acquires.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { InvalidArgument, LockTimeout, Redlock } from "redlock-core";
import { Server } from "./servers.mjs";

test("there are as many slots as it has", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  const gpu = client.semaphore("gpu", { permits: 2 });
  assert.deepEqual([gpu.name, gpu.permits, await gpu.available(), await gpu.locked()], ["gpu", 2, 2, false]);
  const one = await gpu.acquire();
  assert.deepEqual([one.slots, one.tokens], [[0], [one.token]]);
  await gpu.using(async (signal, other) => {
    assert.deepEqual(other.slots, [1]);
    assert.equal(signal.aborted, false);
    assert.equal(await gpu.locked(), true);
    assert.equal(await gpu.tryAcquire(), null);
    await assert.rejects(gpu.acquire({ wait: 0 }), LockTimeout);
    await assert.rejects(gpu.acquire({ signal: AbortSignal.abort(new Error("given up")) }), /given up/);
  });
  assert.equal(await one.release(), "released");
  const both = await gpu.acquire({ n: 2 });
  assert.deepEqual(both.slots, [0, 1]);
  assert.ok(both.tokens[0] > one.token);
  const waiting = gpu.acquire();
  await both.release();
  await (await waiting).release();
  assert.equal(await gpu.available(), 2);
  assert.match(inspect(gpu), /Semaphore of 2.*gpu/);
  await client.close();
});
test("what makes no sense is refused", () => {
  const client = new Redlock("memory://");
  for (const permits of [0, -1, 1.5, "2", null, undefined, 65_537, Number.NaN]) {
    const refused = (error) => error instanceof InvalidArgument && /permits/.test(error.message);
    assert.throws(() => client.semaphore("gpu", /** @type {any} */ ({ permits })), refused);
  }
  for (const options of [{ owner: "me" }, { fair: true }, { ttl: 0 }]) {
    assert.throws(() => client.semaphore("gpu", { permits: 1, ...options }), InvalidArgument);
  }
  assert.throws(() => client.semaphore("gpu", /** @type {any} */ (undefined)), InvalidArgument);
});

test("the permits of many callers never exceed it", async () => {
  const client = new Redlock("memory://semaphore");
  const gpu = client.semaphore("gpu", { permits: 3 });
  let [inside, most] = [0, 0];
  const taken = new Set();
  const work = () =>
    gpu.using(async (_, permit) => {
      const [slot] = permit.slots;
      assert.equal(taken.has(slot), false);
      taken.add(slot);
      inside += 1;
      most = Math.max(most, inside);
      await new Promise(setImmediate);
      inside -= 1;
      taken.delete(slot);
    });
  await Promise.all(Array.from({ length: 30 }, work));
  assert.equal(most, 3);
  await client.close();
});
