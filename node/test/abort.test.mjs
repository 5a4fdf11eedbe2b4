// Tests of aborted acquires: they leave nothing behind, whenever the abort happens.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { InvalidArgument, Redlock } from "redlock-core";
import { eventually, Server } from "./servers.mjs";

/** Waits for a number of milliseconds, fractions included, which timers cannot. */
async function pause(milliseconds) {
  const end = performance.now() + milliseconds;
  if (milliseconds > 2) await sleep(milliseconds - 2);
  while (performance.now() < end) await new Promise((resolve) => setImmediate(resolve));
}

/** Acquires, and aborts after a pause. Resolves with true if the abort came before the grant. */
async function abortedAfter(milliseconds, lock) {
  const controller = new AbortController();
  const reason = new Error("never mind");
  const acquired = lock.acquire({ signal: controller.signal }).then(
    async (lease) => {
      assert.equal(lease.held, true);
      await lease.release();
      return false;
    },
    (error) => {
      assert.equal(error, reason);
      return true;
    },
  );
  await pause(milliseconds);
  controller.abort(reason);
  return await acquired;
}

test("an acquire aborted at 200 different moments leaves no key", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url);
  await client.ping();
  let took = 0;
  for (let turn = 0; turn < 20; turn++) {
    const start = performance.now();
    await (await client.acquire("x")).release();
    took = Math.max(took, performance.now() - start);
  }
  let aborted = 0;
  for (let moment = 0; moment < 200; moment++) {
    aborted += await abortedAfter((moment / 200) * took, client.lock(`x${moment}`));
  }
  assert(aborted > 0 && aborted < 200, `${aborted} of 200 were aborted in time`);
  await eventually(() => server.locks().length === 0);
  await client.close();
});

test("a waiting acquire aborted at 200 different moments leaves no key and no subscription", async (t) => {
  const server = await Server.of(t);
  const [holder, client] = [new Redlock(server.url), new Redlock(server.url)];
  const lease = await holder.acquire("x");
  // The aborts come 0 to 50 ms after the calls; the lock is released after 25 ms, in the middle of them.
  const waits = Array.from({ length: 200 }, (_, moment) => abortedAfter(moment / 4, client.lock("x")));
  await pause(25);
  await lease.release();
  const aborted = (await Promise.all(waits)).filter(Boolean).length;
  assert(aborted > 50, `${aborted} of 200 were aborted in time`);
  await eventually(() => server.locks().length === 0 && server.listeners("x") === 0);
  // The next acquire gets the lock at once.
  await (await client.acquire("x", { wait: 0 })).release();
  await Promise.all([holder.close(), client.close()]);
});

test("a signal that is aborted already: nothing is sent", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url);
  await client.ping();
  const sent = () => Number(/total_commands_processed:(\d+)/.exec(server.cli("INFO", "stats"))[1]);
  const before = sent();
  const reason = { any: "thing" };
  await assert.rejects(client.acquire("x", { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  const body = () => assert.fail("not held");
  await assert.rejects(client.using("x", { signal: AbortSignal.abort(reason) }, body), (error) => error === reason);
  await assert.rejects(client.acquire("x", { signal: AbortSignal.abort() }), { name: "AbortError" });
  // The second INFO counts the first one.
  assert.equal(sent(), before + 1);
  await client.close();
});

test("a time-out as a signal", async () => {
  const client = new Redlock("memory://timeout");
  await client.acquire("x");
  await assert.rejects(client.acquire("x", { signal: AbortSignal.timeout(30) }), { name: "TimeoutError" });
  await client.close();
});

test("1000 acquires on one signal have one listener, and print no warning", async (t) => {
  const warnings = [];
  const listener = (warning) => warnings.push(warning);
  process.on("warning", listener);
  t.after(() => process.off("warning", listener));
  const client = new Redlock("memory://crowd");
  const holder = await client.acquire("x");
  const controller = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = controller.signal;
  controller.signal.addEventListener = (...given) => {
    listeners++;
    addEventListener.apply(controller.signal, given);
  };
  controller.signal.removeEventListener = (...given) => {
    listeners--;
    removeEventListener.apply(controller.signal, given);
  };
  const lock = client.lock("x");
  const waiting = Promise.allSettled(Array.from({ length: 1000 }, () => lock.acquire({ signal: controller.signal })));
  assert.equal(listeners, 1);
  await (await client.acquire("y", { signal: controller.signal })).release();
  assert.equal(listeners, 1);
  controller.abort();
  for (const each of await waiting) {
    assert(each.status === "rejected" && each.reason === controller.signal.reason);
  }
  assert.equal(listeners, 0);
  const quiet = new AbortController().signal;
  await (await client.acquire("z", { signal: quiet })).release();
  assert.deepEqual(warnings, []);
  await holder.release();
  await client.close();
});

test("what is no signal is refused", async () => {
  const client = new Redlock("memory://");
  // @ts-expect-error no signal
  await assert.rejects(client.lock("x").acquire({ signal: new AbortController() }), InvalidArgument);
  // @ts-expect-error no signal
  await assert.rejects(client.acquire("x", { signal: 5 }), /^InvalidArgument: signal: must be an AbortSignal, not 5$/);
  await client.close();
});
