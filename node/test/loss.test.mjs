// Tests of losses: how a holder learns of them, by signals, errors, events and warnings.

import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LockLost, NotHeld, Redlock, Unavailable } from "redlock-core";
import { run } from "./scripts.mjs";
import { eventually, Server } from "./servers.mjs";

/** Blocks the event loop. */
function block(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

/** Waits until a signal is aborted. It polls, because a signal alone does not keep the process alive. */
async function aborted(signal) {
  const reason = new Promise((resolve) => signal.addEventListener("abort", () => resolve(signal.reason)));
  await eventually(() => signal.aborted);
  return await reason;
}

test("an event loop blocked for twice the lease keeps its lock", async (t) => {
  const server = await Server.of(t);
  const [client, other] = [new Redlock(server.url, { watchdog: 1500 }), new Redlock(server.url)];
  await client.using("x", async (signal, lease) => {
    block(3000);
    assert.equal(lease.held, true);
    lease.check();
    assert.equal(await other.tryAcquire("x"), null);
    assert.equal(signal.aborted, false);
  });
  await (await other.acquire("x", { wait: 0 })).release();
  await Promise.all([client.close(), other.close()]);
});

test("a loss aborts the signal, with the error as its reason", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url, { watchdog: 3000 });
  const lease = await client.acquire("x");
  const { signal } = lease;
  assert.equal(lease.signal, signal);
  server.cli("DEL", "x");
  const reason = await aborted(signal);
  assert(reason instanceof LockLost);
  assert.deepEqual([reason.code, reason.reason, reason.message], ["lost", "deleted", 'lock "x" was lost: deleted']);
  assert.equal(signal.reason, reason);
  assert.deepEqual([lease.held, lease.lostReason, lease.remaining()], [false, "deleted", 0]);
  assert.throws(() => lease.check(), LockLost);
  await assert.rejects(lease.extend(1000), LockLost);
  assert.equal(await lease.release(), "lost");
  // The signal is first read after the loss.
  const late = await client.acquire("y");
  server.cli("DEL", "y");
  await eventually(() => !late.held);
  assert.equal(late.signal.aborted, true);
  assert.equal(late.signal.reason.reason, "deleted");
  await client.close();
});

test("a release aborts nothing", async () => {
  const client = new Redlock("memory://clean");
  const lease = await client.acquire("x");
  const { signal } = lease;
  await lease.release();
  const silent = await client.acquire("y");
  silent.signal;
  silent.detach();
  await sleep(20);
  assert.deepEqual([signal.aborted, lease.signal.aborted, silent.signal.aborted], [false, false, false]);
  await client.close();
});

test("close aborts the signal of what it ends", async () => {
  const client = new Redlock("memory://closing");
  const lease = await client.acquire("x");
  const reason = aborted(lease.signal);
  await client.close();
  assert.equal((await reason).reason, "closed");
});

test("the end of a block", async () => {
  const client = new Redlock("memory://blocks");
  const lost = async (_signal, lease) => {
    await client.forceRelease(lease.name);
    return "done";
  };
  await assert.rejects(client.using("x", lost), { name: "LockLost", code: "lost", reason: "released" });
  const own = new Error("my own");
  const fails = async (signal, lease) => {
    await lost(signal, lease);
    throw own;
  };
  await assert.rejects(client.using("x", fails), (error) => error === own);
  const throws = () => {
    throw own;
  };
  await assert.rejects(client.using("x", throws), (error) => error === own);
  assert.equal(await client.lock("x").locked(), false);
  // Released or detached inside the block: its end has nothing to release.
  assert.equal(await client.using("x", (_, lease) => lease.release()), "released");
  const text = await client.using("x", (_, lease) => lease.detach());
  await (await client.attach(text)).release();
  await client.close();
});

test("await using: disposal releases, and rejects after a loss", async () => {
  const client = new Redlock("memory://disposal");
  const lease = await client.acquire("x");
  await lease[Symbol.asyncDispose]();
  assert.equal(await client.lock("x").locked(), false);
  assert.throws(() => lease.check(), NotHeld);
  await lease[Symbol.asyncDispose]();
  const lost = await client.acquire("x");
  await client.forceRelease("x");
  await assert.rejects(lost[Symbol.asyncDispose](), LockLost);
  await client[Symbol.asyncDispose]();
  await assert.rejects(client.acquire("x"), { code: "closed" });
});

test("events reach their listeners, and warnings the process", async (t) => {
  const server = await Server.of(t);
  const warnings = [];
  const listener = (warning) => warnings.push([warning.name, warning.code, warning.message]);
  process.on("warning", listener);
  t.after(() => process.off("warning", listener));
  const client = new Redlock(server.url);
  const seen = [];
  const note = (event) => seen.push(event);
  /** @type {import("redlock-core").EventKind[]} */
  const kinds = [
    "acquired",
    "released",
    "at_risk",
    "lost",
    "orphaned",
    "node_down",
    "node_up",
    "node_warning",
    "events_dropped",
  ];
  for (const kind of kinds) assert.equal(client.on(kind, note), client);
  const find = (kind) => seen.find((event) => event.kind === kind);
  const lease = await client.acquire("x");
  await lease.release();
  await eventually(() => find("released"));
  assert.deepEqual(
    seen.map((event) => [event.kind, event.name, event.token, event.warning]),
    [
      ["acquired", "x", lease.token, false],
      ["released", "x", lease.token, false],
    ],
  );
  assert.match(seen[0].message, /^lock "x" acquired with token \d+ after /);
  const lost = await client.acquire("y");
  server.cli("DEL", "y");
  await assert.rejects(lost.extend(1000), LockLost);
  await eventually(() => find("lost") && warnings.length > 0);
  assert.deepEqual([find("lost").name, find("lost").reason, find("lost").warning], ["y", "deleted", true]);
  assert.deepEqual(warnings, [["RedlockWarning", "lost", find("lost").message]]);
  await server.kill();
  await assert.rejects(client.acquire("z", { wait: 0 }), (/** @type {Unavailable} */ error) => {
    assert(error instanceof Unavailable);
    assert.deepEqual(Object.keys(error.causes), client.nodes);
    return true;
  });
  await eventually(() => find("node_down"));
  assert.equal(find("node_down").node, client.nodes[0]);
  for (const kind of kinds) assert.equal(client.off(kind, note), client);
  const before = seen.length;
  await server.start();
  await (await client.acquire("z")).release();
  await client.close();
  assert.equal(seen.length, before);
  // @ts-expect-error no such event
  assert.throws(() => client.on("atRisk", note), /^InvalidArgument: kind: there is no event "atRisk", only acquired, /);
  // @ts-expect-error no listener
  assert.throws(() => client.on("lost"), /^InvalidArgument: listener: /);
});

test("events that are dropped while the event loop is blocked are counted", async (t) => {
  const client = new Redlock("memory://dropped");
  t.after(() => client.close());
  let [made, told, dropped] = [0, 0, 0];
  const count = () => told++;
  client.on("acquired", count);
  /** @param {import("redlock-core").RedlockEvent<"events_dropped">} event */
  const add = (event) => {
    dropped += event.count ?? Number.NaN;
  };
  client.on("events_dropped", add);
  while (dropped === 0) {
    // In one turn of the event loop, which fetches one batch of events.
    const names = Array.from({ length: 25_000 }, () => `lock ${made++}`);
    await Promise.all(names.map((name) => client.acquire(name)));
    await eventually(() => told + dropped === made);
  }
  client.off("acquired", count);
  client.off("events_dropped", add);
});

test("a listener that throws is an uncaught exception, and does not stop the events", async (t) => {
  const script = `
    import { Redlock } from "redlock-core";
    const errors = [];
    process.on("uncaughtException", (error) => errors.push(error.message));
    const client = new Redlock("memory://");
    let seen = 0;
    const both = new Promise((resolve) => {
      client.on("acquired", (event) => { throw new Error("bad listener of " + event.name); });
      client.on("acquired", () => { if (++seen === 2) resolve(); });
    });
    await (await client.acquire("a")).release();
    await (await client.acquire("b")).release();
    await both;
    setImmediate(() => console.log(JSON.stringify(errors)));
    await new Promise((resolve) => setImmediate(resolve));
  `;
  const { code, stdout } = await run(t, script);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), ["bad listener of a", "bad listener of b"]);
});

const FORGET = `
  import { Redlock } from "redlock-core";
  import { setTimeout as sleep } from "node:timers/promises";
  const [url] = process.argv.slice(1);
  const warned = new Promise((resolve) => process.on("warning", resolve));
  const collect = async () => {
    for (;;) {
      gc();
      const warning = await Promise.race([warned, sleep(20)]);
      if (warning) return warning;
    }
  };
`;

test("a forgotten watchdog lease is no longer renewed, and warns", async (t) => {
  const server = await Server.of(t);
  const script = `${FORGET}
    const client = new Redlock(url, { watchdog: 1500 });
    await (async () => {
      const lease = await client.acquire("forgotten");
      lease.signal.aborted;
    })();
    const warning = await collect();
    console.log(warning.name, warning.code, warning.message);
    await client.ping();
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url], flags: ["--expose-gc"] });
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^RedlockWarning orphaned lock "forgotten" with token \d+ was never released/);
});

test("a forgotten client warns too", async (t) => {
  const server = await Server.of(t);
  const script = `${FORGET}
    await (async () => {
      const client = new Redlock(url, { watchdog: 1500 });
      client.on("lost", () => client);
      await client.acquire("forgotten");
    })();
    const warning = await collect();
    console.log(warning.code);
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url], flags: ["--expose-gc"] });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, "orphaned\n");
});

test("listeners are called for as long as a lock of the client is in use", async (t) => {
  const server = await Server.of(t);
  const script = `${FORGET}
    let tell;
    const told = new Promise((resolve) => (tell = resolve));
    let collected;
    const gone = new FinalizationRegistry(() => (collected = true));
    const lock = (() => {
      const client = new Redlock(url).on("acquired", (event) => tell(event.name));
      gone.register(client);
      return client.lock("kept");
    })();
    // Bun may never collect it.
    for (let turn = 0; turn < 50 && !collected; turn++) {
      gc();
      await sleep(5);
    }
    if (!collected && !process.versions.bun) throw new Error("the client was not collected");
    const lease = await lock.acquire();
    console.log(await Promise.race([told, sleep(3_000)]));
    await lease.release();
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url], flags: ["--expose-gc"] });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, "kept\n");
});

test("a lease whose signal is still in use is not forgotten", async (t) => {
  const server = await Server.of(t);
  const script = `${FORGET}
    const client = new Redlock(url, { watchdog: 1500 });
    const signal = await (async () => (await client.acquire("kept")).signal)();
    for (let turn = 0; turn < 40; turn++) {
      gc();
      await sleep(75);
    }
    console.log(await client.lock("kept").locked(), signal.aborted);
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url], flags: ["--expose-gc"] });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, "true false\n");
});

test("garbage collection loses no call", async (t) => {
  const server = await Server.of(t);
  const script = `${FORGET}
    const client = new Redlock(url);
    const held = await client.acquire("x");
    const waiting = client.acquire("x");
    for (let turn = 0; turn < 5; turn++) {
      gc();
      await sleep(5);
    }
    await held.release();
    console.log(await (await waiting).release());
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url], flags: ["--expose-gc"] });
  assert.equal(code, 0, stderr);
  assert.equal(stdout, "released\n");
});

test("a call resolves in the async context of its caller", async () => {
  const client = new Redlock("memory://contexts");
  const storage = new AsyncLocalStorage();
  const users = Array.from({ length: 10 }, (_, user) =>
    storage.run(user, () => client.using("x", () => assert.equal(storage.getStore(), user))),
  );
  await Promise.all(users);
  await client.close();
});
