// Tests of read/write locks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { configure, Redlock, readWriteLock } from "redlock-core";
import { Server } from "./servers.mjs";

test("many read or one writes", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  const config = client.readWriteLock("config");
  assert.deepEqual([config.name, config.read.name, config.write.name], ["config", "config", "config"]);
  const readers = await Promise.all([config.read.acquire(), config.read.acquire()]);
  const info = await config.read.inspect();
  assert.deepEqual([info?.kind, info?.owners.length], ["read", 2]);
  assert.equal(info?.token, readers[0].token);
  assert.equal(readers[1].token, readers[0].token);
  assert.equal(await config.write.tryAcquire(), null);
  assert.equal(await client.lock("config").tryAcquire(), null);
  const writing = config.write.acquire();
  for (const lease of readers) assert.equal(await lease.release(), "released");
  const lease = await writing;
  assert(lease.token > readers[0].token);
  assert.equal(await config.read.tryAcquire(), null);
  assert.deepEqual((await config.write.inspect())?.kind, "write");
  assert.equal(await lease.release(), "released");
  assert.equal(await config.read.locked(), false);
  await client.close();
});

test("a writer becomes a reader and a reader a writer", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  const config = client.readWriteLock("config", { wait: 0 });
  const lease = await config.write.acquire();
  const { token } = lease;
  await lease.downgrade();
  assert.equal(lease.token, token + 1n);
  const reader = await config.read.acquire();
  assert.equal(await lease.tryUpgrade(), false);
  assert.equal(lease.held, true);
  await reader.release();
  assert.equal(await lease.tryUpgrade(), true);
  assert(lease.token > token + 1n);
  await assert.rejects(config.read.acquire(), { code: "timeout" });
  await lease.release();
  const plain = await client.acquire("plain");
  await assert.rejects(plain.downgrade(), { code: "invalid" });
  await assert.rejects(plain.tryUpgrade(), { code: "invalid", message: /: tryUpgrade is for those$/ });
  await client.close();
});

test("a read/write lock of the default client", async (t) => {
  const server = await Server.of(t);
  const config = readWriteLock("config", { ttl: 5000 });
  configure(server.url);
  assert.match(inspect(config), /^ReadWriteLock 'config'/);
  await config.read.using(async () => {
    assert.equal(await config.write.tryAcquire(), null);
  });
});

test("what makes no sense is refused", async (t) => {
  const client = new Redlock((await Server.of(t)).url);
  for (const make of [client.readWriteLock.bind(client), readWriteLock]) {
    assert.throws(() => make("config", { fair: true }), { code: "invalid", message: /^fair: / });
    assert.throws(() => make("config", { owner: "me" }), { code: "invalid", message: /^owner: / });
    assert.throws(() => make("", {}), { code: "invalid", message: /^name: / });
  }
  await client.close();
});
