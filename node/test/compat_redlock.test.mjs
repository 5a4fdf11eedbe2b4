// @ts-nocheck: passes what the types forbid
// Tests of the drop-in for node-redlock: together with node-redlock itself, during failures, and where it is
// deliberately better.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { InvalidArgument } from "redlock-core";
import Redlock, { ExecutionError, Lock, ResourceLockedError } from "redlock-core/compat/redlock";
import { Cluster, connected, Redis, theirs } from "./foreign.mjs";
import { run, start } from "./scripts.mjs";
import { cluster, eventually, freePort, Server } from "./servers.mjs";

/** A client that has not connected. The test fails if the drop-in sends anything through it. */
function silent(test, server, options = {}) {
  const client = new Redis({ port: server.port, lazyConnect: true, ...options });
  test.after(() => assert.equal(client.status, "wait", "the given client was used"));
  return client;
}

async function servers(test, count) {
  return await Promise.all(Array.from({ length: count }, () => Server.of(test)));
}

/** A Redlock on these servers. */
function on(test, all, settings) {
  return new Redlock(
    [all].flat().map((server) => silent(test, server)),
    settings,
  );
}

/** Checks that a call rejects with an ExecutionError, and resolves with that error. */
async function fails(doing) {
  const error = await doing.then(
    () => assert.fail("did not fail"),
    (error) => error,
  );
  assert(error instanceof ExecutionError, error.stack);
  return error;
}

const ONCE = { retryCount: 0 };

test("nothing is sent through the given client", async (t) => {
  const server = await Server.of(t);
  const client = connected(t, { port: server.port, connectionName: "theirs" });
  await client.ping();
  const redlock = new Redlock([client]);
  await (await redlock.acquire(["a", "b"], 5_000)).release();
  await redlock.using(["a"], 5_000, async () => {});
  const connections = server.cli("CLIENT", "LIST").split("\n");
  const theirsNow = connections.find((line) => line.includes("name=theirs"));
  assert.match(theirsNow, / cmd=ping /, "the last thing that it sent");
  assert(connections.some((line) => / cmd=eval/.test(line)));
  // Redlocks with equal settings share a connection.
  const count = () => server.cli("CLIENT", "LIST").split("\n").length;
  const before = count();
  for (let each = 0; each < 10; each++) await (await on(t, server).acquire([`x${each}`], 5_000)).release();
  assert(count() <= before + 1);
});

// On several servers, node-redlock keeps its votes of a split vote until its retries are over, and blocks itself until
// these votes expire. So the duration is short there.
for (const [count, duration, enough] of [
  [1, 10_000, 300],
  [3, 300, 30],
]) {
  test(`on ${count} server(s): excludes node-redlock, and is excluded by it`, async (t) => {
    const all = await servers(t, count);
    const peers = [
      new theirs.default(
        all.map((server) => connected(t, server.port)),
        { retryCount: 20_000, retryDelay: 1, retryJitter: 1 },
      ),
      on(t, all, { retryCount: -1 }),
    ];
    let [holder, last, handOffs] = [undefined, 0, 0];
    const contender = async (which) => {
      while (handOffs < enough) {
        const lock = await peers[which].acquire(["shared"], duration);
        assert.equal(holder, undefined);
        holder = lock;
        handOffs += Number(last !== which);
        last = which;
        await new Promise(setImmediate);
        assert.equal(holder, lock);
        holder = undefined;
        await lock.release();
        // The last holder pauses, so that the other one goes first.
        await sleep(5);
      }
    };
    await Promise.all([0, 1].map(contender));
    await eventually(() => all.every((server) => server.locks().length === 0));
  });
}

test("does not touch what node-redlock holds, nor node-redlock what is held here", async (t) => {
  const server = await Server.of(t);
  const [ours, other] = [on(t, server, ONCE), new theirs.default([connected(t, server.port)], ONCE)];
  const mine = await ours.acquire(["x"], 10_000);
  const guessed = new theirs.Lock(other, ["x"], "0".repeat(32), [], Date.now() + 10_000);
  await assert.rejects(guessed.extend(20_000), theirs.ExecutionError);
  await assert.rejects(guessed.release(), theirs.ExecutionError);
  assert.equal(server.cli("GET", "x"), mine.value);
  await mine.release();

  const its = await other.acquire(["x"], 10_000);
  const wrong = new Lock(ours, ["x"], "0".repeat(32), [], Date.now() + 10_000);
  await fails(wrong.extend(20_000));
  await fails(wrong.release());
  assert.equal(server.cli("GET", "x"), its.value);
  assert(Number(server.cli("PTTL", "x")) <= 10_000);
  // To extend and release, the value is enough, as between processes of node-redlock.
  const moved = await new Lock(ours, ["x"], its.value, [], its.expiration).extend(20_000);
  assert(Number(server.cli("PTTL", "x")) > 15_000);
  const back = await new theirs.Lock(other, ["x"], moved.value, [], moved.expiration).extend(30_000);
  assert(Number(server.cli("PTTL", "x")) > 25_000);
  await new Lock(ours, ["x"], back.value, [], back.expiration).release();
  assert.deepEqual(server.locks(), []);
});

test("is woken by a release, without polling", async (t) => {
  const server = await Server.of(t);
  const [holder, waiter] = [on(t, server), on(t, server, { retryCount: 1, retryDelay: 60_000 })];
  const lock = await holder.acquire(["x"], 30_000);
  const waiting = waiter.acquire(["x"], 30_000);
  await eventually(() => server.listeners("x") > 0);
  const released = performance.now();
  await lock.release();
  const next = await waiting;
  assert(performance.now() - released < 10_000);
  assert.equal(next.attempts.length, 1);
  await next.release();
});

test("a lock that was waited for is not over already", async (t) => {
  const server = await Server.of(t);
  // There is only the key, so nobody announces its end.
  server.cli("SET", "x", "other", "PX", 1_500);
  const lock = await on(t, server).acquire(["x"], 500);
  assert(lock.expiration > Date.now());
  const longer = await lock.extend(5_000);
  assert.equal(lock.expiration, 0);
  assert(longer.expiration > Date.now() + 4_000);
  await longer.release();
});

test("the wait is as long as the retries", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server, { retryCount: 3, retryDelay: 100, retryJitter: 0 });
  server.cli("SET", "x", "other");
  for (const [settings, attempts, least] of [
    [undefined, 4, 300],
    [{ retryCount: 0 }, 1, 0],
    [{ retryDelay: 50, retryCount: undefined }, 4, 150],
    [{ retryCount: 2, retryDelay: 0 }, 3, 0],
  ]) {
    const begin = performance.now();
    const error = await fails(redlock.acquire(["x"], 5_000, settings));
    assert.equal(error.attempts.length, attempts);
    // The core's clock and this one may differ a little.
    assert(performance.now() - begin >= least - 5);
  }
  const forEver = redlock.acquire(["x"], 5_000, { retryCount: -1 });
  await eventually(() => server.listeners("x") > 0);
  server.cli("DEL", "x");
  await (await forEver).release();
});

test("stats name the clients", async (t) => {
  const all = await servers(t, 3);
  const clients = all.map((server) => silent(t, server));
  const redlock = new Redlock(clients, ONCE);
  const errors = [];
  redlock.on("error", (error) => errors.push(error));
  const lock = await redlock.acquire(["x"], 5_000);
  assert.deepEqual(await lock.attempts[0], {
    membershipSize: 3,
    quorumSize: 2,
    votesFor: new Set(clients),
    votesAgainst: new Map(),
  });
  assert.deepEqual(errors, []);
  const busy = await fails(redlock.acquire(["x"], 5_000));
  assert(errors.length > 0 && errors.every((error) => error instanceof ResourceLockedError));
  assert.deepEqual([...(await busy.attempts[0]).votesAgainst.keys()], clients);
  const { attempts, start: begun } = await lock.release();
  assert.equal((await attempts[0]).quorumSize, 2);
  assert(begun <= Date.now());
});

test("an even number of clients that is split settles, and leaves nothing", async (t) => {
  const [one, two] = await servers(t, 2);
  const redlock = on(t, [one, two], { retryCount: 2, retryDelay: 50 });
  two.cli("SET", "x", "other");
  assert.equal((await fails(redlock.acquire(["x"], 5_000, ONCE))).attempts.length, 1);
  const error = await fails(redlock.acquire(["x"], 5_000));
  assert.equal((await error.attempts[0]).quorumSize, 2);
  await eventually(() => one.locks().length === 0);
  two.cli("DEL", "x");
  await (await redlock.acquire(["x"], 5_000)).release();
});

test("a minority that is frozen changes nothing", async (t) => {
  const all = await servers(t, 3);
  const clients = all.map((server) => silent(t, server));
  const redlock = new Redlock(clients);
  const errors = [];
  redlock.on("error", (error) => errors.push(error));
  await (await redlock.acquire(["warm"], 5_000)).release();
  all[1].freeze();
  let lock = await redlock.acquire(["x"], 30_000);
  lock = await lock.extend(40_000);
  await lock.release();
  await redlock.using(["y"], 30_000, async (signal) => assert(!signal.aborted));
  // Once the client notices that the server does not answer, it emits an error, and counts it among the votes against.
  await eventually(() => errors.some((error) => error.message.includes(`:${all[1].port} `)));
  lock = await redlock.acquire(["z"], 30_000);
  const { votesFor, votesAgainst } = await lock.attempts[0];
  assert.deepEqual([[...votesFor], [...votesAgainst.keys()]], [[clients[0], clients[2]], [clients[1]]]);
  await lock.release();
  all[1].thaw();
  await eventually(() => all.every((server) => server.locks().length === 0));
});

test("a majority that is frozen fails within the time of the retries", async (t) => {
  const all = await servers(t, 3);
  const redlock = on(t, all, { retryCount: 2, retryDelay: 50 });
  // The first acquire connects, which may take longer on a busy machine.
  const lock = await redlock.acquire(["x"], 30_000, { retryCount: 100 });
  all[0].freeze();
  all[1].freeze();
  const error = await fails(redlock.acquire(["y"], 30_000));
  const stats = await error.attempts[0];
  assert(stats.votesAgainst.size >= stats.quorumSize);
  assert(![...stats.votesAgainst.values()].some((each) => each instanceof ResourceLockedError));
  await fails(lock.release(ONCE));
  all[0].thaw();
  all[1].thaw();
  // The releases that were not confirmed are completed in the background.
  await eventually(() => all.every((server) => server.locks().length === 0));
});

test("a lock that is over is released at once, with an error", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server, { retryCount: 10, retryDelay: 60_000 });
  const lock = await redlock.acquire(["x"], 400);
  await sleep(450);
  const message = "Cannot extend an already-expired lock.";
  const expired = await fails(lock.extend(5_000));
  assert.deepEqual([expired.message, expired.attempts], [message, []]);
  const error = await fails(lock.release());
  assert.equal(error.attempts.length, 11);
  const other = await redlock.acquire(["x"], 5_000);
  await other.release();
  await fails(other.release());
  // The key was replaced before its end. The first request finds that, and is not retried.
  const stolen = await redlock.acquire(["x", "y"], 5_000);
  server.cli("SET", "x", "other");
  const left = Number(server.cli("PTTL", "y"));
  await fails(stolen.extend(50_000));
  assert(Number(server.cli("PTTL", "y")) <= left, "not extended without the other");
  await fails(stolen.release());
  assert.deepEqual([server.locks(), server.cli("GET", "x")], [["x"], "other"]);
});

test("several resources: all or none, in any order", async (t) => {
  const server = await Server.of(t);
  const names = ["a", "b", "c", "d"];
  const holders = new Map();
  const contender = async (rotation) => {
    const redlock = on(t, server, { retryCount: -1 });
    const mine = [0, 1, 2].map((each) => names[(rotation + each) % names.length]);
    for (let round = 0; round < 40; round++) {
      const lock = await redlock.acquire(rotation % 2 ? mine : mine.toReversed(), 10_000);
      for (const name of mine) {
        assert.equal(holders.get(name), undefined);
        holders.set(name, lock);
      }
      await new Promise(setImmediate);
      for (const name of mine) holders.delete(name);
      await lock.release();
    }
  };
  await Promise.all([0, 1, 2, 3].map(contender));
  assert.deepEqual(server.locks(), []);
  const redlock = on(t, server, { retryCount: 1, retryDelay: 50 });
  server.cli("SET", "b", "other");
  await fails(redlock.acquire(["a", "b", "c"], 5_000));
  assert.deepEqual(server.locks(), ["b"]);
  // While an acquire waits for one resource, it does not hold the others.
  const waiting = redlock.acquire(["a", "b", "c"], 5_000, { retryCount: -1 });
  await (await redlock.acquire(["a", "c"], 5_000, { retryCount: 1_000 })).release();
  server.cli("DEL", "b");
  const lock = await waiting;
  assert.deepEqual(server.locks(), ["a", "b", "c"]);
  await lock.release();
  const twice = await redlock.acquire(["a", "a"], 5_000);
  await twice.release();
});

test("using: the routine's own error is what is seen", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server);
  for (const happens of [async () => {}, async () => server.cli("DEL", "x")]) {
    const mine = new Error("mine");
    const used = redlock.using(["x"], 5_000, async () => {
      await happens();
      throw mine;
    });
    await assert.rejects(used, (error) => error === mine);
    assert.deepEqual(server.locks(), []);
  }
  const lost = fails(redlock.using(["x"], 5_000, async () => server.cli("DEL", "x")));
  assert.equal((await lost).message, "The operation was unable to achieve a quorum during its retry window.");
  assert.equal(await redlock.using(["x"], 5_000, async () => "result"), "result");
});

test("using: the signal is aborted when the lock is lost", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server);
  const settings = { automaticExtensionThreshold: 800 };
  let seen;
  const used = redlock.using(["x"], 1_000, settings, async (signal, context) => {
    const { lock } = context;
    server.cli("SET", "x", "other");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    seen = signal;
    assert(signal.error instanceof ExecutionError);
    assert.equal(signal.reason.name, "AbortError");
    assert.equal(lock.expiration, 0);
  });
  const error = await fails(used);
  assert.equal(error.cause, seen.error);
  assert.equal(server.cli("GET", "x"), "other");
});

test("using: a server that stops answering is known of before the lock is over", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server, { automaticExtensionThreshold: 700 });
  const used = redlock.using(["x"], 1_000, async (signal, context) => {
    server.freeze();
    const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
    // However late the event loop is, the abort comes first, because it is due first.
    await Promise.race([aborted, sleep(context.lock.expiration - Date.now() + 300)]);
    server.thaw();
    assert(signal.error instanceof ExecutionError);
  });
  await fails(used);
});

test("using: survives a server that stops for a while, and extends with its own settings", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server, { automaticExtensionThreshold: 500 });
  const settings = { automaticExtensionThreshold: 2_500 };
  const extensions = await redlock.using(["x"], 3_000, settings, async (signal, context) => {
    const value = context.lock.value;
    await eventually(() => context.extensions > 0);
    server.freeze();
    await sleep(1_200);
    server.thaw();
    const before = context.extensions;
    await eventually(() => context.extensions > before);
    assert(!signal.aborted);
    assert(context.lock.expiration > Date.now());
    assert.equal(server.cli("GET", "x"), value);
    return context.extensions;
  });
  assert(extensions >= 2);
  assert.deepEqual(server.locks(), []);
});

test("using refuses what node-redlock refuses", async (t) => {
  const server = await Server.of(t);
  const redlock = on(t, server);
  const short = "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.";
  await assert.rejects(
    redlock.using(["x"], 599, async () => {}),
    { message: short },
  );
  await assert.rejects(redlock.using(["x"], 5_000, {}), { message: "INVARIANT: routine is not a function." });
  await assert.rejects(
    redlock.using(["x"], 5_000.5, async () => {}),
    { message: /^Duration must be an integer/ },
  );
  assert.throws(() => new Redlock([]), { message: "Redlock must be instantiated with at least one redis client." });
  await assert.rejects(redlock.acquire("x", 5_000), InvalidArgument);
});

test("quit ends the given clients", async (t) => {
  const server = await Server.of(t);
  const client = connected(t, server.port);
  await client.ping();
  const redlock = new Redlock([client]);
  const lock = await redlock.acquire(["x"], 5_000);
  await redlock.quit();
  await eventually(() => client.status === "end");
  const error = await fails(redlock.acquire(["y"], 5_000));
  const { votesAgainst } = await error.attempts[0];
  assert.equal(votesAgainst.get(client).message, "Connection is closed.");
  await fails(lock.release());
});

test("errors without a listener harm nobody, and one that throws no operation", async (t) => {
  const server = await Server.of(t);
  const script = `
    import Redlock from "redlock-core/compat/redlock";
    const [port, listener] = process.argv.slice(1);
    const redlock = new Redlock([{ options: { port: Number(port) }, quit: async () => {} }], { retryCount: 0 });
    redlock.removeAllListeners("error");
    if (listener === "throws") {
      redlock.on("error", () => { throw new Error("of the listener"); });
      process.on("uncaughtException", (error) => console.log("uncaught", error.message));
    }
    await redlock.acquire(["x"], 5000);
    await redlock.acquire(["x"], 5000).catch((error) => console.log(error.name));
  `;
  const args = [String(server.port)];
  const quiet = await run(t, script, { args });
  assert.deepEqual([quiet.code, quiet.stdout, quiet.stderr], [0, "ExecutionError\n", ""]);
  server.cli("DEL", "x");
  const loud = await run(t, script, { args: [...args, "throws"] });
  assert.equal(loud.code, 0, loud.stderr);
  assert.deepEqual(loud.stdout.trim().split("\n").sort(), ["ExecutionError", "uncaught of the listener"]);
});

test("a lock keeps no process alive, and outlives it; a routine does, and what it holds does not", async (t) => {
  const server = await Server.of(t);
  const script = `
    import Redlock from "redlock-core/compat/redlock";
    const client = { options: { port: Number(process.argv[1]) }, quit: async () => {} };
    const redlock = new Redlock([client], { automaticExtensionThreshold: 100 });
    await redlock.acquire(["kept"], 60000);
    process.on("exit", () => console.log("exit"));
    if (process.argv[2] === "ends") process.exitCode = 3;
    else void redlock.using(["used"], 60000, () => new Promise(() => console.log("runs")));
  `;
  const begin = performance.now();
  const args = [String(server.port)];
  const { code, stdout, stderr } = await run(t, script, { args: [...args, "ends"] });
  assert.deepEqual([code, stdout, stderr], [3, "exit\n", ""]);
  assert(performance.now() - begin < 10_000);
  assert.deepEqual(server.locks(), ["kept"]);
  server.cli("DEL", "kept");
  const running = start(t, `${script} process.on("SIGTERM", () => process.exit());`, { args });
  await running.says("runs");
  assert.deepEqual(server.locks(), ["kept", "used"]);
  running.child.kill("SIGTERM");
  assert.equal((await running.ended).stdout, "runs\nexit\n");
  assert.deepEqual(server.locks(), ["kept"]);
});

test("a killed process leaves its locks until they end", async (t) => {
  const server = await Server.of(t);
  const killed = start(
    t,
    `import Redlock from "redlock-core/compat/redlock";
     const redlock = new Redlock([{ options: { port: Number(process.argv[1]) }, quit: async () => {} }]);
     await redlock.using(["x"], 2000, async () => { console.log("held"); await new Promise(() => setInterval(() => {}, 1000)); });`,
    { args: [String(server.port)] },
  );
  await killed.says("held");
  killed.child.kill("SIGKILL");
  const lock = await on(t, server, { retryCount: 100 }).acquire(["x"], 5_000);
  await lock.release();
});

test("settings are taken from clients: password, user, database, prefix", async (t) => {
  const server = await Server.of(t, "--requirepass", "s/e:c@r%t");
  const cli = (...words) => server.cli("-a", "s/e:c@r%t", "--no-auth-warning", ...words);
  cli("ACL", "SETUSER", "us:er", "on", ">pass word", "~*", "&*", "+@all");
  for (const [options, db, name] of [
    [{ password: "s/e:c@r%t" }, 0, "x"],
    [{ password: "s/e:c@r%t", db: 3, keyPrefix: "app:" }, 3, "app:x"],
    [{ username: "us:er", password: "pass word" }, 0, "x"],
  ]) {
    const lock = await new Redlock([silent(t, server, options)], ONCE).acquire(["x"], 5_000);
    assert.equal(cli("-n", db, "GET", name), lock.value);
    // node-redlock uses the same key with the same client settings.
    const other = new theirs.default([connected(t, { port: server.port, ...options })], ONCE);
    await assert.rejects(other.acquire(["x"], 5_000), theirs.ExecutionError);
    await lock.release();
    await (await other.acquire(["x"], 5_000)).release();
  }
  const elsewhere = new Redlock([silent(t, server, { password: "s/e:c@r%t" })], { db: 5 });
  const lock = await elsewhere.acquire(["x"], 5_000);
  assert.equal(cli("-n", 5, "GET", "x"), lock.value);
  await lock.release();
  const wrong = await fails(new Redlock([silent(t, server, { password: "wrong" })]).acquire(["x"], 5_000));
  assert.match([...(await wrong.attempts[0]).votesAgainst.values()][0].message, /password|WRONGPASS/i);
});

test("settings are taken from clients: unix sockets", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "redlock #?-"));
  t.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "redis.sock");
  const server = await Server.of(t, "--unixsocket", path, "--requirepass", "secret");
  await eventually(() => existsSync(path));
  const redlock = new Redlock([silent(t, server, { path, password: "secret", db: 2 })]);
  const lock = await redlock.acquire(["x"], 5_000);
  assert.equal(server.cli("-a", "secret", "--no-auth-warning", "-n", 2, "GET", "x"), lock.value);
  await lock.release();
});

test("settings are taken from clients: Sentinel", async (t) => {
  const master = await Server.of(t, "--requirepass", "of master");
  const file = join(await mkdtemp(join(tmpdir(), "redlock-")), "sentinel.conf");
  await writeFile(
    file,
    `requirepass "of sentinel"\nsentinel monitor my/master 127.0.0.1 ${master.port} 1\nsentinel auth-pass my/master "of master"\n`,
  );
  // redis-server takes the file only as its first argument.
  const port = await freePort();
  const sentinel = spawn("redis-server", [file, "--sentinel", "--port", String(port), "--bind", "127.0.0.1"], {
    stdio: "ignore",
  });
  t.after(() => sentinel.kill());
  const options = {
    sentinels: [{ host: "127.0.0.1", port }],
    name: "my/master",
    password: "of master",
    sentinelPassword: "of sentinel",
    db: 1,
  };
  const redlock = new Redlock([silent(t, master, options)], { retryCount: 100 });
  const lock = await redlock.acquire(["x"], 5_000);
  assert.equal(master.cli("-a", "of master", "--no-auth-warning", "-n", 1, "GET", "x"), lock.value);
  await lock.release();
});

test("settings are taken from clients: a cluster, however it is given", async (t) => {
  const nodes = await cluster(t);
  const [{ port }] = nodes;
  for (const seeds of [[port], [`127.0.0.1:${port}`], [`redis://127.0.0.1:${port}`], nodes.map((each) => each.url)]) {
    const client = new Cluster(seeds, { lazyConnect: true, keyPrefix: "app:" });
    const redlock = new Redlock([client]);
    // The keys are in different slots, which node-redlock does not support.
    const lock = await redlock.acquire(["a", "b", "c"], 5_000);
    const there = nodes.flatMap((node) => node.locks().filter((name) => !name.includes("{")));
    assert.deepEqual(there.sort(), ["app:a", "app:b", "app:c"]);
    await lock.release();
    assert.equal(client.status, "wait");
    client.disconnect();
  }
});

test("TLS", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "redlock-"));
  t.after(() => rm(folder, { recursive: true }));
  const path = (name) => join(folder, name);
  const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const subject = [
    "-subj",
    "/CN=localhost",
    "-days",
    "2",
    "-nodes",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
  ];
  openssl("req", "-x509", "-keyout", "ca.key", "-out", "ca.crt", ...subject.with(1, "/CN=test"));
  openssl(
    "req",
    "-new",
    "-keyout",
    "own.key",
    "-out",
    "own.csr",
    ...subject.filter((each) => !["-days", "2"].includes(each)),
  );
  await writeFile(path("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1");
  openssl(
    ...["x509", "-req", "-in", "own.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"],
    ...["-extfile", "ext", "-out", "own.crt"],
  );
  const tlsPort = await freePort();
  const server = await Server.of(
    t,
    ...["--tls-port", String(tlsPort), "--tls-cert-file", path("own.crt")],
    ...["--tls-key-file", path("own.key"), "--tls-ca-cert-file", path("ca.crt")],
  );
  const [ca, cert, key] = ["ca.crt", "own.crt", "own.key"].map((name) => readFileSync(path(name)));
  const over = (tls) => new Redlock([silent(t, server, { host: "127.0.0.1", port: tlsPort, tls })], ONCE);
  const lock = await over({ ca, cert: cert.toString(), key: [key], servername: "127.0.0.1" }).acquire(["x"], 5_000);
  assert.equal(server.cli("GET", "x"), lock.value);
  await lock.release();
  const error = await fails(over({ ca }).acquire(["x"], 5_000));
  assert.match(String(error.cause), /certificate/i);
});

test("what cannot be carried over is refused by its name", () => {
  const fake = (options, rest = {}) => new Redlock([{ options, quit: async () => {}, ...rest }]);
  const sentinels = { sentinels: [{ port: 26_379 }], name: "mymaster" };
  for (const [options, name] of [
    [undefined, "clients"],
    [{ Connector: class {} }, "Connector"],
    [{ url: "redis://127.0.0.1" }, "url"],
    [{ socket: { host: "127.0.0.1" } }, "socket"],
    [{ host: 5 }, "host"],
    [{ port: "x" }, "port"],
    [{ db: "x" }, "db"],
    [{ password: 5 }, "password"],
    [{ keyPrefix: 5 }, "keyPrefix"],
    [{ path: "/x", tls: {} }, "tls"],
    [{ tls: { rejectUnauthorized: false } }, "tls.rejectUnauthorized"],
    [{ tls: { checkServerIdentity: () => undefined } }, "tls.checkServerIdentity"],
    [{ host: "a", tls: { servername: "b" } }, "tls.servername"],
    [{ tls: { ca: "/etc/ca.pem" } }, "tls.ca"],
    [{ ...sentinels, name: undefined }, "name"],
    [{ ...sentinels, role: "slave" }, "role"],
    [{ ...sentinels, natMap: { a: {} } }, "natMap"],
    [{ ...sentinels, sentinelTLS: {} }, "sentinelTLS"],
  ]) {
    assert.throws(
      () => fake(options),
      (error) => error instanceof InvalidArgument && error.message.startsWith(`${name}: `),
      name,
    );
  }
  for (const [options, startupNodes, name] of [
    [{ natMap: { a: {} } }, [1], "natMap"],
    [{ useSRVRecords: true }, [1], "useSRVRecords"],
    [{}, [], "startupNodes"],
    [{}, ["http://a b"], "startupNodes"],
    [{ redisOptions: { tls: { servername: "a" } } }, [1], "tls.servername"],
  ]) {
    assert.throws(
      () => fake(options, { isCluster: true, startupNodes }),
      (error) => error instanceof InvalidArgument && error.message.startsWith(`${name}: `),
      name,
    );
  }
  const client = (options) => ({ options, quit: async () => {} });
  for (const [pair, name] of [
    [[client({ keyPrefix: "a" }), client({ keyPrefix: "b", port: 1 })], "keyPrefix"],
    [[client({ port: 1 }), client({ port: 1 })], "urls"],
  ]) {
    assert.throws(
      () => new Redlock(pair),
      (error) => error instanceof InvalidArgument && error.message.startsWith(`${name}: `),
      name,
    );
  }
  for (const script of ["return 1", (script) => script]) {
    assert.throws(
      () => new Redlock([client({})], {}, { acquireScript: script }),
      (error) => error instanceof InvalidArgument && error.message.startsWith("acquireScript: "),
    );
  }
  // ioredis' own defaults are not refused.
  const redis = new Redis({ lazyConnect: true });
  new Redlock([redis]);
  redis.disconnect();
});
