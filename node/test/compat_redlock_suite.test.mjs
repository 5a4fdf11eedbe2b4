// The checks of node-redlock's own tests, as black-box tests. They run on the drop-in, with one and three servers and
// with one and three clusters. They also run on node-redlock itself, which shows that they describe its behaviour.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as ours from "redlock-core/compat/redlock";
import { Cluster, connected, Redis, theirs } from "./foreign.mjs";
import { cluster, eventually, freePort, Server } from "./servers.mjs";

/** The duration that stands for "for ever" in node-redlock's tests, in ms. */
const LONG = Math.floor(Number.MAX_SAFE_INTEGER / 10);
const ALL = 11;

/** A key with a hash tag, so that all keys are in one slot of a cluster. */
const key = (name) => `{redlock}${name}`;

// These two checks poll, because the last of several servers may get its request a little later.

async function holds(clients, names, lock, duration) {
  for (const client of clients) {
    for (const name of names) {
      await eventually(async () => {
        const [value, left] = [await client.get(name), await client.pttl(name)];
        return value === lock.value && left <= duration && left > duration - 10_000;
      });
    }
  }
}

async function free(clients, names) {
  for (const client of clients) {
    for (const name of names) await eventually(async () => (await client.get(name)) === null);
  }
}

async function refused(implementation, taking, check) {
  await assert.rejects(taking, (/** @type {any} */ error) => {
    assert(error instanceof implementation.ExecutionError, `${error}`);
    assert.equal(error.message, "The operation was unable to achieve a quorum during its retry window.");
    assert.equal(error.name, "ExecutionError");
    assert.equal(error.attempts.length, ALL);
    check.attempts = error.attempts;
    return true;
  });
  for (const stats of await Promise.all(check.attempts)) check(stats);
}

const isLocked = (implementation) =>
  function each({ votesAgainst }) {
    assert(votesAgainst.size > 0);
    for (const error of votesAgainst.values()) assert(error instanceof implementation.ResourceLockedError);
  };

/** The tests on one server or cluster. */
function single(implementation, client) {
  const make = () => new implementation.default([client()]);

  test("a duration that is no whole number is refused", async () => {
    const message = "Duration must be an integer value in milliseconds.";
    await assert.rejects(make().acquire([key("float")], Number.MAX_SAFE_INTEGER / 10), { message });
  });

  for (const names of [[key("a")], [key("a1"), key("a2")]]) {
    test(`acquires, extends and releases ${names}`, async () => {
      let lock = await make().acquire(names, LONG);
      assert.deepEqual(lock.resources, names);
      assert.match(lock.value, /^[0-9a-f]{32}$/);
      await holds([client()], names, lock, LONG);
      lock = await lock.extend(3 * LONG);
      await holds([client()], names, lock, 3 * LONG);
      await lock.release();
      await free([client()], names);
    });
  }

  test("fails when the server cannot be reached", async (t) => {
    const never = { maxRetriesPerRequest: 0, retryStrategy: () => null, reconnectOnError: () => false };
    const nobody = connected(t, { host: "127.0.0.1", port: await freePort(), ...never });
    await refused(
      implementation,
      new implementation.default([nobody]).acquire([key("b")], LONG),
      ({ votesAgainst }) => {
        assert.equal(votesAgainst.size, 1);
        assert(votesAgainst.get(nobody) instanceof Error);
        assert(!(votesAgainst.get(nobody) instanceof implementation.ResourceLockedError));
      },
    );
  });

  test("locks expire by themselves", async () => {
    const lock = await make().acquire([key("d")], 800);
    await holds([client()], [key("d")], lock, 800);
    await sleep(900);
    const next = await make().acquire([key("d")], 800);
    await holds([client()], [key("d")], next, 800);
    await next.release();
    await free([client()], [key("d")]);
  });

  test("locks are exclusive", async () => {
    const lock = await make().acquire([key("c")], LONG);
    await refused(implementation, make().acquire([key("c")], LONG), isLocked(implementation));
    await holds([client()], [key("c")], lock, LONG);
    await lock.release();
    await free([client()], [key("c")]);
  });

  test("locks that overlap are exclusive", async () => {
    const lock = await make().acquire([key("c1"), key("c2")], LONG);
    await refused(implementation, make().acquire([key("c2"), key("c3")], LONG), isLocked(implementation));
    await holds([client()], [key("c1"), key("c2")], lock, LONG);
    await free([client()], [key("c3")]);
    await lock.release();
    await free([client()], [key("c1"), key("c2"), key("c3")]);
  });

  const longer = async (signal, name) => {
    const value = await client().get(name);
    assert.match(value, /^[0-9a-f]{32}$/);
    // Longer than the lock's duration, so it must be extended meanwhile.
    await sleep(1_700);
    assert.equal(signal.aborted, false);
    assert.equal(signal.error, undefined);
    assert.equal(await client().get(name), value);
    return value;
  };

  test("using acquires, extends and releases", async () => {
    await make().using([key("x")], 1_200, { automaticExtensionThreshold: 900 }, async (signal) => {
      await longer(signal, key("x"));
    });
    await free([client()], [key("x")]);
  });

  test("using is exclusive", async () => {
    let locked = false;
    const block = async (signal) => {
      assert.equal(locked, false);
      locked = true;
      const value = await longer(signal, key("y"));
      locked = false;
      return value;
    };
    const settings = { automaticExtensionThreshold: 900 };
    // One after the other, as in node-redlock's own test: node-redlock fails it otherwise.
    const first = await make().using([key("y")], 1_200, settings, block);
    const second = await make().using([key("y")], 1_200, settings, block);
    assert.notEqual(first, second);
    await free([client()], [key("y")]);
  });
}

/** The tests on three servers or clusters. */
function multi(implementation, clients) {
  const make = () => new implementation.default(clients());

  test("acquires, extends and releases on all", async () => {
    const names = [key("ma")];
    let lock = await make().acquire(names, LONG);
    await holds(clients(), names, lock, LONG);
    lock = await lock.extend(3 * LONG);
    await holds(clients(), names, lock, 3 * LONG);
    await lock.release();
    await free(clients(), names);
  });

  test("succeeds when a minority fails", async () => {
    const names = [key("mb")];
    const [one, two, three] = clients();
    await three.set(key("mb"), "other");
    let lock = await make().acquire(names, LONG);
    await holds([one, two], names, lock, LONG);
    lock = await lock.extend(3 * LONG);
    await holds([one, two], names, lock, 3 * LONG);
    await lock.release();
    await free([one, two], names);
    assert.equal(await three.get(key("mb")), "other");
    assert.equal(await three.pttl(key("mb")), -1);
  });

  test("fails when a majority fails, and leaves nothing", async () => {
    const [one, two, three] = clients();
    await two.set(key("mc"), "other1");
    await three.set(key("mc"), "other2");
    await refused(implementation, make().acquire([key("mc")], LONG), ({ votesAgainst }) => {
      for (const error of votesAgainst.values()) {
        assert(error instanceof implementation.ResourceLockedError);
        assert.equal(error.message, "The operation was applied to: 0 of the 1 requested resources.");
      }
    });
    await free([one], [key("mc")]);
    assert.deepEqual([await two.get(key("mc")), await three.get(key("mc"))], ["other1", "other2"]);
  });
}

/** Clients of `count` servers or clusters, which `start` starts before the tests. */
function deployment(t, count, start) {
  let clients = [];
  t.before(async () => {
    clients = await Promise.all(Array.from({ length: count }, start));
  });
  t.after(() => {
    for (const client of clients) client.disconnect();
  });
  return () => clients;
}

const servers = [];
const ends = { after: (stop) => servers.push(stop) };
const server = async () => new Redis((await Server.of(ends)).port, "127.0.0.1");
const ofMasters = (masters) => async () => {
  const nodes = await cluster(ends, masters);
  return new Cluster(nodes.map(({ port }) => ({ host: "127.0.0.1", port })));
};

describe("compatible", { concurrency: true }, () => {
  const hooks = { before: (start) => test.before(start), after: (stop) => test.after(stop) };
  const on = (what, count, start, suite, implementation, kind) => {
    const clients = deployment(hooks, count, start);
    describe(`${kind} on ${what}`, { concurrency: true }, () => suite(implementation, clients));
  };
  const one = (suite) => (implementation, clients) => suite(implementation, () => clients()[0]);
  for (const [kind, implementation] of [
    ["node-redlock", theirs],
    ["the drop-in", ours],
  ]) {
    on("a server", 1, server, one(single), implementation, kind);
    on("three servers", 3, server, multi, implementation, kind);
  }
  on("a cluster", 1, ofMasters(3), one(single), ours, "the drop-in");
  on("three clusters", 3, ofMasters(1), multi, ours, "the drop-in");
  test.after(async () => {
    for (const stop of servers) await stop();
  });
});
