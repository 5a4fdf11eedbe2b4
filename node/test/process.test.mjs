// Tests of the end of processes and threads, and of what keeps them alive.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-core";
import { PACKAGE, run, start } from "./scripts.mjs";
import { eventually, Server } from "./servers.mjs";

/** In ms: far longer than any exit takes here, and far shorter than any lease. */
const AT_ONCE = 10_000;

const HOLD = `
  import { Redlock, configure, lock } from "redlock-core";
  const [url] = process.argv.slice(1);
  const client = new Redlock(url);
`;

for (const [what, script] of [
  ["was only imported", "import 'redlock-core';"],
  ["has a lock that it never used", 'import { lock } from "redlock-core"; lock("x");'],
  ["has an idle client", `${HOLD} await client.ping();`],
  ["has an idle client with listeners", `${HOLD} client.on("lost", () => {}); await client.ping();`],
  ["holds a lease", `${HOLD} await client.acquire("x");`],
  ["holds a lease and watches its signal", `${HOLD} (await client.acquire("x")).signal.onabort = () => {};`],
  ["released", `${HOLD} await (await client.acquire("x")).release();`],
]) {
  test(`a script that ${what} exits by itself at once`, async (t) => {
    const server = await Server.of(t);
    const begin = performance.now();
    const { code, stderr } = await run(t, script, { args: [server.url] });
    assert.equal(code, 0, stderr);
    assert.equal(stderr, "");
    assert(performance.now() - begin < AT_ONCE);
    assert.deepEqual(server.locks(), []);
  });
}

test("a pending acquire keeps the process alive", async (t) => {
  const server = await Server.of(t);
  const holder = new Redlock(server.url);
  const lease = await holder.acquire("x");
  const script = start(
    t,
    `${HOLD} console.log("waits"); (await client.acquire("x")).release(); console.log("got it");`,
    {
      args: [server.url],
    },
  );
  await script.says("waits");
  await eventually(() => server.listeners("x") === 1);
  await lease.release();
  const { code, stdout } = await script.ended;
  assert.deepEqual([code, stdout], [0, "waits\ngot it\n"]);
  assert.deepEqual(server.locks(), []);
  await holder.close();
});

for (const [how, script, expected] of [
  ["process.exit()", "process.exit(3);", 3],
  ["process.exit() in an exit listener", 'process.on("exit", () => process.exit(4));', 4],
  ["an uncaught exception", "setTimeout(() => { throw new Error('of mine'); });", 1],
  ["an unhandled rejection", "Promise.reject(new Error('of mine'));", 1],
  [
    "process.exit() with calls under way",
    "client.acquire('y'); leases.forEach((each) => each.release()); process.exit(5);",
    5,
  ],
  [
    "process.exit() while acquires wait",
    "client.acquire('x0'); client.acquire('x0'); setImmediate(() => process.exit(6));",
    6,
  ],
  [
    "process.exit() right after an abort",
    "const c = new AbortController(); client.acquire('z', { signal: c.signal }).catch(() => {}); c.abort(); process.exit(7);",
    7,
  ],
]) {
  test(`${how} releases`, async (t) => {
    const server = await Server.of(t);
    const source = `${HOLD}
      const leases = await Promise.all(Array.from({ length: 20 }, (_, index) => client.acquire("x" + index)));
      ${script}
    `;
    const { code, signal, stderr } = await run(t, source, { args: [server.url] });
    assert.deepEqual([code, signal], [expected, null], stderr);
    assert.deepEqual(server.locks(), []);
  });
}

test("the end of a process waits no longer than a second for a frozen server", async (t) => {
  const server = await Server.of(t);
  const source = `${HOLD}
    process.on("SIGUSR2", () => process.exit(8));
    setInterval(() => {}, 1000);
    await client.acquire("x");
    console.log("holds");
  `;
  const script = start(t, source, { args: [server.url] });
  await script.says("holds");
  server.freeze();
  const begin = performance.now();
  script.child.kill("SIGUSR2");
  const { code } = await script.ended;
  server.thaw();
  assert.equal(code, 8);
  assert(performance.now() - begin < AT_ONCE);
});
test("fake timers of node:test neither end a process that waits nor keep one alive", async (t) => {
  const source = `
    import { mock } from "node:test";
    import { Redlock } from "redlock-core";
    const client = new Redlock("memory://");
    const held = await client.acquire("x");
    mock.timers.enable();
    const begunFake = await client.acquire("x", { wait: 50 }).catch((error) => error.code);
    mock.timers.reset();
    const begunReal = client.acquire("x", { wait: 50 }).catch((error) => error.code);
    mock.timers.enable();
    console.log(begunFake, await begunReal);
    await held.release();
  `;
  const script = start(t, source);
  await script.says("timeout timeout");
  const { code, stderr } = await Promise.race([script.ended, sleep(AT_ONCE, { stderr: "it does not end" })]);
  assert.equal(code, 0, stderr);
});

test("no unhandled rejection comes from the library itself", async (t) => {
  const server = await Server.of(t);
  const script = `${HOLD}
    const rejections = [];
    process.on("unhandledRejection", (reason) => rejections.push(String(reason)));
    const quiet = (promise) => { promise.catch(() => {}); };
    const lease = await client.acquire("x");
    lease.signal;
    const controller = new AbortController();
    quiet(client.acquire("x", { signal: controller.signal }));
    quiet(client.acquire("x", { wait: 1 }));
    quiet(client.using("x", { wait: 1 }, () => {}));
    quiet(client.using("y", async () => { await client.forceRelease("y"); throw new Error("body"); }));
    quiet(client.lock("never").release());
    quiet(client.attach("nonsense"));
    quiet(lease.extend("soon"));
    controller.abort();
    const lost = await client.acquire("gone");
    lost.signal;
    await client.forceRelease("gone");
    await lost.release();
    const pending = client.acquire("x");
    quiet(pending);
    await client.close();
    quiet(client.ping());
    await new Promise((resolve) => setTimeout(resolve, 100));
    console.log(JSON.stringify(rejections));
  `;
  const { code, stdout, stderr } = await run(t, script, { args: [server.url] });
  assert.equal(code, 0, stderr);
  assert.deepEqual(JSON.parse(stdout), []);
});

// ---- worker threads ---------------------------------------------------------------------------------------------------

/** A thread that holds locks, waits for one, and releases others all the time. */
const BUSY = `
  import { parentPort, workerData } from "node:worker_threads";
  import { Redlock } from "redlock-core";
  const { url, index, how } = workerData;
  const client = new Redlock(url);
  const held = await client.acquire("held" + index);
  held.signal.onabort = () => {};
  client.acquire("everybody").catch(() => {});
  const churn = async (lock) => { for (;;) await lock.using(() => {}); };
  for (let each = 0; each < 5; each++) churn(client.lock("churn" + index + each)).catch(() => {});
  parentPort.postMessage("busy");
  if (how === "exit") setTimeout(() => process.exit(0), 20);
  if (how === "throw") setTimeout(() => { throw new Error("of mine"); }, 20);
`;

function worker(data) {
  const url = new URL(
    `data:text/javascript,${encodeURIComponent(BUSY.replaceAll('"redlock-core"', JSON.stringify(`file://${PACKAGE}/dist/index.mjs`)))}`,
  );
  const thread = new Worker(url, { workerData: data });
  const errors = [];
  thread.on("error", (error) => errors.push(error.message));
  const ended = new Promise((resolve) => thread.once("exit", (code) => resolve({ code, errors })));
  const busy = new Promise((resolve, reject) => {
    thread.once("message", resolve);
    ended.then(({ errors }) => reject(new Error(`ended early: ${errors}`)));
  });
  return { thread, busy, ended };
}

for (const how of ["terminate", "exit", "throw"]) {
  test(`worker threads that end by ${how} leave nothing behind`, async (t) => {
    const server = await Server.of(t);
    const client = new Redlock(server.url);
    const mine = await client.acquire("mine");
    const everybody = await client.acquire("everybody");
    for (let round = 0; round < 3; round++) {
      const threads = Array.from({ length: 4 }, (_, index) => worker({ url: server.url, index, how }));
      await Promise.all(threads.map(({ busy }) => busy));
      if (how === "terminate") await Promise.all(threads.map(({ thread }) => thread.terminate()));
      for (const { ended } of threads) {
        const { errors } = await ended;
        assert.deepEqual(errors, how === "throw" ? ["of mine"] : []);
      }
      await eventually(() => server.locks().join() === "everybody,mine");
      assert.equal(server.listeners("everybody"), 0);
    }
    // The leases of this thread are untouched.
    assert.deepEqual([mine.held, everybody.held], [true, true]);
    assert.equal(await mine.release(), "released");
    await client.close();
  });
}

test("a process whose threads are busy exits cleanly", async (t) => {
  const server = await Server.of(t);
  const source = `
    import { Worker } from "node:worker_threads";
    const busy = ${JSON.stringify(BUSY)}.replaceAll("\\"redlock-core\\"", JSON.stringify("file://" + process.cwd() + "/dist/index.mjs"));
    const url = process.argv[1];
    let ready = 0;
    for (let index = 0; index < 3; index++) {
      const thread = new Worker(new URL("data:text/javascript," + encodeURIComponent(busy)), { workerData: { url, index } });
      thread.once("message", () => { if (++ready === 3) process.exit(7); });
    }
  `;
  for (let round = 0; round < 3; round++) {
    const { code, signal, stderr } = await run(t, source, { args: [server.url] });
    assert.deepEqual([code, signal], [7, null], stderr);
    assert.deepEqual(server.locks(), []);
  }
});

test("one exit listener, however often the module is loaded", async (t) => {
  const script = `
    import { createRequire } from "node:module";
    const require = createRequire(process.cwd() + "/");
    const before = process.listenerCount("exit");
    for (let turn = 0; turn < 30; turn++) {
      for (const file of Object.keys(require.cache)) if (file.includes("/dist/") && file.endsWith(".js")) delete require.cache[file];
      const { Redlock } = require("redlock-core");
      const client = new Redlock("memory://");
      await client.using("x", () => {});
    }
    console.log(process.listenerCount("exit") - before);
  `;
  const { code, stdout, stderr } = await run(t, script);
  assert.deepEqual([code, stdout, stderr], [0, "1\n", ""]);
});
