// Tests of locks and leases when nothing fails.

import assert from "node:assert/strict";
import { hostname } from "node:os";
import { basename } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import { acquire, configure, InvalidArgument, LockTimeout, lock, NotHeld, Redlock, using } from "redlock-core";
import { Server } from "./servers.mjs";

test("a lease and its lock", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url);
  const report = client.lock("report");
  assert.equal(report.name, "report");
  assert.equal(report.owned(), false);
  const lease = await report.acquire();
  assert.equal(lease.name, "report");
  assert.equal(typeof lease.token, "bigint");
  assert.match(lease.owner, /^[0-9a-f-]{36}:\d+$/);
  assert.equal(lease.held, true);
  assert.equal(lease.lostReason, undefined);
  assert(lease.remaining() > 20_000 && lease.remaining() <= 27_000);
  assert.equal(report.owned(), true);
  assert.equal(await report.locked(), true);
  const info = await report.inspect();
  assert.equal(info?.owner, lease.owner);
  assert.equal(info?.token, lease.token);
  assert(typeof info?.ttl === "number" && info.ttl > 20_000 && info.ttl <= 30_000);
  assert.equal(info.host, hostname());
  assert.equal(info.pid, process.pid);
  // Bun and Deno run several tests in one process, which has the name of the first.
  const isInNode = !(process.versions.bun || process.versions.deno);
  if (isInNode) assert.equal(info.app, basename(process.argv[1]));
  else assert.match(info.app, /\.test\.mjs$/);
  assert(info.since instanceof Date && Math.abs(Date.now() - info.since.getTime()) < 60_000);
  const explicit = client.lock("explicit", { owner: "me" });
  await explicit.acquire();
  const { host, pid, app } = (await explicit.inspect()) ?? {};
  assert.deepEqual({ host, pid, app }, { host: null, pid: null, app: null });
  await explicit.release();
  lease.check();
  await lease.extend(60_000);
  assert(lease.remaining() > 50_000);
  assert.match(inspect(lease), /^Lease 'report' of 127\.0\.0\.1:\d+ \{ token: \d+n, held \}$/);
  assert.equal(String(lease), inspect(lease));
  const { name, owner, token } = lease;
  assert.deepEqual(JSON.parse(JSON.stringify(lease)), { name, owner, token: String(token), held: true });
  assert.match(inspect(report), /^Lock 'report' of 127\.0\.0\.1:\d+$/);
  assert.equal(await lease.release(), "released");
  assert.equal(await lease.release(), "released");
  assert.equal(lease.held, false);
  assert.equal(lease.remaining(), 0);
  assert.throws(() => lease.check(), NotHeld);
  await assert.rejects(lease.extend(1000), NotHeld);
  assert.equal(await report.locked(), false);
  assert.equal(await report.inspect(), null);
  await client.close();
});
test("a lock that is held", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  const lease = await client.acquire("x");
  const other = client.lock("x", { wait: 50 });
  assert.equal(await other.tryAcquire(), null);
  await assert.rejects(other.acquire(), LockTimeout);
  await assert.rejects(client.lock("x").acquire({ wait: 30 }), LockTimeout);
  await assert.rejects(client.acquire("x", { wait: 30 }), LockTimeout);
  assert.equal(await client.tryAcquire("x"), null);
  await assert.rejects(other.release(), NotHeld);
  const waiting = client.lock("x").acquire();
  assert.equal(await lease.release(), "released");
  await (await waiting).release();
  await client.close();
});

test("every concurrent acquire on a shared lock object excludes the others", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  const shared = client.lock("shared");
  let inside = 0;
  let passed = 0;
  const user = async () => {
    const lease = await shared.acquire();
    assert.equal(++inside, 1);
    await sleep(1);
    assert(lease.held);
    inside--;
    passed++;
    await shared.release();
  };
  await Promise.all(Array.from({ length: 50 }, user));
  assert.equal(passed, 50);
  await client.close();
});

test("a body gets the signal and the lease, however it names them", async () => {
  const client = new Redlock("memory://bodies");
  const given = [
    (signal, lease) => [signal, lease],
    async (signal, lease) => [signal, lease],
    (...all) => all,
    (signal = undefined, lease = undefined) => [signal, lease],
    function () {
      // biome-ignore lint/complexity/noArguments: that is the point
      return [...arguments];
    },
    (/* nothing */ ...all) => all,
    Array.of.bind(Array),
    { body: (...all) => all }.body,
  ];
  for (const body of given) {
    const [signal, lease] = await client.using("x", body);
    assert(signal instanceof AbortSignal, String(body));
    assert.equal(lease.name, "x", String(body));
    assert.equal(signal, lease.signal);
  }
  const takesNothing = () => client.lock("x").locked();
  assert.equal(await client.using("x", takesNothing), true);
  await client.close();
});

test("1000 using calls in parallel on one name never overlap", async (t) => {
  const server = await Server.of(t);
  const clients = [new Redlock(server.url), new Redlock(server.url)];
  let inside = 0;
  let last = 0n;
  const results = await Promise.all(
    Array.from({ length: 1000 }, (_, index) =>
      clients[index % 2].using("crowd", async (signal, lease) => {
        assert.equal(++inside, 1);
        assert(lease.token > last);
        last = lease.token;
        await null;
        assert.equal(signal.aborted, false);
        inside--;
        return index;
      }),
    ),
  );
  assert.deepEqual(
    results,
    Array.from({ length: 1000 }, (_, index) => index),
  );
  assert.deepEqual(server.locks(), []);
  await Promise.all(clients.map((client) => client.close()));
});
test("a detach aborts nothing", async () => {
  const client = new Redlock("memory://detached");
  const lease = await client.acquire("job");
  const { signal } = lease;
  const attached = await client.attach(lease.detach());
  assert.equal(await attached.release(), "released");
  await client.close();
  assert.equal(signal.aborted, false);
});
test("the functions of the package use the default client, found at the first acquire", async (t) => {
  const server = await Server.of(t);
  const early = lock("x");
  assert.throws(() => lock("x", { ttl: 1 }), InvalidArgument);
  configure(server.url, { prefix: "app:" });
  const lease = await early.acquire();
  assert.deepEqual(server.locks(), ["app:x"]);
  await assert.rejects(acquire("x", { wait: 0 }), LockTimeout);
  await lease.release();
  await (await acquire("x")).release();
  assert.equal(await using("x", () => 1), 1);
  assert.equal(await using("x", { wait: 1000 }, async () => 2), 2);
  // A lock keeps the client of its first acquire.
  configure("memory://other");
  const again = await early.acquire();
  assert.deepEqual(server.locks(), ["app:x"]);
  await again.release();
});

test("the default client without configuration is that of REDLOCK_URL", async (t) => {
  const server = await Server.of(t);
  process.env.REDLOCK_URL = `${server.url} , memory://one,memory://two`;
  t.after(() => {
    delete process.env.REDLOCK_URL;
  });
  configure();
  const lease = await acquire("x");
  assert.deepEqual(server.locks(), ["x"]);
  await lease.release();
});

test("forceRelease, ping and nodes", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock([server.url, "memory://b", "memory://c"], { quorum: 3 });
  assert.deepEqual(client.nodes, [`127.0.0.1:${server.port}`, "memory://b", "memory://c"]);
  await client.initNodes();
  const nodes = await client.ping();
  assert.deepEqual(
    nodes.map(({ node, ok }) => [node, ok]),
    client.nodes.map((node) => [node, true]),
  );
  assert.equal(typeof nodes[0].version, "string");
  const lease = await client.acquire("x");
  assert.equal(await client.forceRelease("x"), true);
  assert.equal(await client.forceRelease("x"), false);
  assert.equal(await lease.release(), "lost");
  await server.kill();
  const [down] = await client.ping();
  assert.deepEqual([down.ok, typeof down.cause], [false, "string"]);
  await client.close();
  await assert.rejects(client.ping(), { code: "closed" });
  assert.throws(() => new Redlock(client.nodes[0]), InvalidArgument);
});

test("close releases what is held; a reservation lives on", async (t) => {
  const server = await Server.of(t);
  const client = new Redlock(server.url);
  const lease = await client.acquire("mine");
  await client.acquire("reserved", { owner: "user", ttl: 60_000 });
  const detached = await client.acquire("detached");
  detached.detach();
  const waiting = client.acquire("mine");
  const refused = assert.rejects(waiting, { name: "Closed", code: "closed" });
  await client.close();
  await client.close();
  await refused;
  assert.deepEqual(server.locks(), ["detached", "reserved"]);
  assert.deepEqual([lease.held, lease.lostReason], [false, "closed"]);
  await assert.rejects(client.acquire("mine"), { code: "closed" });
});

test("`import` and `require` share one implementation", async () => {
  const { createRequire } = await import("node:module");
  const required = createRequire(import.meta.url)("redlock-core");
  const imported = await import("redlock-core");
  const names = Object.keys(required).sort();
  assert.deepEqual(Object.keys(imported).sort(), names);
  for (const name of names) assert.equal(imported[name], required[name], name);
  assert.deepEqual(names, [
    ...["Closed", "InvalidArgument", "KeyConflict", "LockError", "LockLost", "LockTimeout", "NotHeld", "Redlock"],
    ...["Unavailable", "WouldDeadlock", "acquire", "configure", "lock", "readWriteLock", "semaphore", "using"],
  ]);
});
