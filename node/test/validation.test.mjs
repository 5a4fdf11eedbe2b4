// @ts-nocheck: passes what the types forbid
// Tests of argument checks: bad input is refused before anything is sent. The message has the argument's name in
// JavaScript.

import assert from "node:assert/strict";
import { test } from "node:test";
import { configure, InvalidArgument, LockError, lock, Redlock, readWriteLock, semaphore } from "redlock-core";

function refused(call, message) {
  assert.throws(call, (error) => {
    assert(error instanceof InvalidArgument && error instanceof LockError && error instanceof Error);
    assert.deepEqual([error.name, error.code], ["InvalidArgument", "invalid"]);
    assert.match(error.message, message);
    // The stack has the caller's own line.
    assert.match(error.stack, /validation\.test\.mjs/);
    return true;
  });
}

for (const [options, message] of [
  [{ quorum: 0 }, /^quorum: must be a whole number of at least 1, not 0$/],
  [{ quorum: 2 }, /^quorum: must be from 1 .* to 1, not 2$/],
  [{ quorum: "1" }, /^quorum: must be a whole number of at least 1, not "1"$/],
  [{ watchdog: 299 }, /^watchdog: must be from 300ms to 10 years/],
  [{ watchdog: "30s" }, /^watchdog: must be a number of milliseconds, not "30s"$/],
  [{ watchdog: Number.NaN }, /^watchdog: must be a number of milliseconds of at least 0, not NaN$/],
  [{ watchdog: 30_000n }, /^watchdog: must be a number of milliseconds, not 30000n$/],
  [{ prefix: 5 }, /^prefix: must be a string of valid Unicode$/],
  [{ prefix: "\ud800" }, /^prefix: must be a string of valid Unicode$/],
  [{ wire: "redis" }, /^wire: /],
  [{ drift: 0.5 }, /^drift: must be from 0.01 to below 0.5, not 0.5$/],
  [{ tokenKey: "x" }, /^tokenKey: /],
  [{ tokenTtl: 59_999 }, /^tokenTtl: must be from 60s to 10 years, not 59\.999s$/],
  [{ maxTtl: 1 }, /^maxTtl: must be from 50ms to 10 years/],
  [{ app: "" }, /^app: must have 1 to 64 bytes, not 0$/],
  [{ identify: 1 }, /^identify: must be true or false, not 1$/],
  [{ minReplicas: -1 }, /^minReplicas: must be a whole number of at least 0, not -1$/],
  [{ minReplicas: 2 ** 32 }, /^minReplicas: must be from 0 to /],
  [{ maxTtl: {} }, /^maxTtl: must be a number of milliseconds, not \{\}$/],
  [{ patience: -1 }, /^patience: must be a number of milliseconds of at least 0, not -1$/],
  [{ connectTimeout: 0 }, /^connectTimeout: must be from 1 ms/],
  [{ replyTimeout: Number.POSITIVE_INFINITY }, /^replyTimeout: must be at most 10 years/],
  [{ strict: 1 }, /^strict: must be true or false, not 1$/],
  [{ quarantine: "no" }, /^quarantine: must be true or false, not "no"$/],
  [{ username: Symbol("x") }, /^username: must be a string of valid Unicode$/],
  [{ password: 1234 }, /^password: must be a string of valid Unicode$/],
  [{ cert: "a.pem" }, /^cert: a client certificate needs its key/],
  [{ max_ttl: 5000 }, /^options: there is no option "max_ttl", only quorum, .* maxTtl, /],
  [5, /^options: must be an object, not 5$/],
]) {
  test(`a client refuses ${typeof options === "object" ? Object.keys(options) : options} as in ${message}`, () => {
    refused(() => new Redlock("memory://", options), message);
    refused(() => configure("memory://", options), message);
  });
}

test("a client refuses wrong nodes", () => {
  for (const [urls, message] of [
    [undefined, /^urls: must be a URL or a list of URLs$/],
    [null, /^urls: must be a URL or a list of URLs$/],
    [5, /^urls: must be a URL or a list of URLs$/],
    [["memory://", 5], /^urls: must be a URL or a list of URLs$/],
    [[], /at least one node is needed$/],
    ["http://a", /unknown scheme "http"/],
    ["no url", /not a URL/],
    [["redis://a", "redis://a:6379"], /a:6379 is listed twice$/],
    [["redis://a:secret@x", "ftp://b:secret@y"], /^(?!.*secret)/],
  ]) {
    refused(() => new Redlock(urls), message);
  }
});

test("a lock refuses wrong names and options, at once", () => {
  const client = new Redlock("memory://", { prefix: "p:" });
  for (const [name, options, message] of [
    ["", {}, /^name: must not be empty$/],
    ["x".repeat(1023), {}, /^name: .* not 1025$/],
    ["a\0b", {}, /^name: must not contain NUL$/],
    ["\udfff", {}, /^name: must be a string of valid Unicode, not '/],
    [undefined, {}, /^name: must be a string of valid Unicode, not undefined$/],
    [7, {}, /^name: must be a string of valid Unicode, not 7$/],
    ["x", { ttl: 49 }, /^ttl: must be from 50ms to 10 years, not 49ms$/],
    ["x", { ttl: "soon" }, /^ttl: must be a number of milliseconds or 'adaptive', not "soon"$/],
    ["x", { ttl: true }, /^ttl: must be a number of milliseconds or 'adaptive', not true$/],
    ["x", { wait: -1 }, /^wait: must be a number of milliseconds of at least 0, not -1$/],
    ["x", { owner: "" }, /^owner: must have 1 to 256 bytes, not 0$/],
    ["x", { maxHold: 5 }, /^maxHold: must be from 50ms/],
    ["x", { maxHold: 5000, ttl: 5000 }, /^maxHold: bounds how long the watchdog keeps a lock/],
    ["x", { minHold: 5 }, /^minHold: must be from 50ms/],
    ["x", { minHold: 5000, maxHold: 4000 }, /^minHold: 5s is more than the maxHold of 4s/],
    ["x", { minHold: 5000, ttl: 4000 }, /^minHold: 5s is more than the ttl of 4s/],
    ["x", { minHold: 5000, owner: "me" }, /^minHold: cannot be combined with an explicit owner/],
    ["x", { reentrant: "yes" }, /^reentrant: must be true or false, not "yes"$/],
    ["x", { fair: 1 }, /^fair: must be true or false, not 1$/],
    [
      "x",
      { timeout: 5 },
      /^options: there is no option "timeout", only ttl, wait, owner, maxHold, minHold, reentrant, fair$/,
    ],
    ["x", "5s", /^options: must be an object, not '5s'$/],
    ["x", [], /^options: must be an object, not \[\]$/],
    ["x", new Map([["wait", 0]]), /^options: must be an object, not Map\(1\) \{/],
  ]) {
    refused(() => client.lock(name, options), message);
    if (name !== "x".repeat(1023))
      refused(() => lock(name, options), message.source.includes("prefix") ? /^name: / : message);
  }
});

test("a read/write lock and a semaphore refuse wrong options, at once", () => {
  const client = new Redlock("memory://");
  for (const [options, message] of [
    [{ owner: "me" }, /^owner: has no meaning for a read\/write lock/],
    [{ fair: true }, /^fair: is not for read\/write locks/],
    [{ permits: 2 }, /^options: there is no option "permits", only ttl, wait, maxHold, minHold, reentrant$/],
    [[], /^options: must be an object, not \[\]$/],
  ]) {
    refused(() => client.readWriteLock("x", options), message);
    refused(() => readWriteLock("x", options), message);
  }
  for (const [options, message] of [
    [{ owner: "me" }, /^owner: has no meaning for a semaphore/],
    [{ fair: true }, /^fair: is not for semaphores/],
    [{ minHold: 100 }, /^minHold: is not for semaphores$/],
    [{ reentrant: false }, /^reentrant: has no meaning for a semaphore: each acquire is a permit of its own$/],
    [{ reentrant: "no" }, /^reentrant: must be true or false, not "no"$/],
    [{ n: 2 }, /^options: there is no option "n", only permits, ttl, wait, maxHold$/],
  ]) {
    refused(() => client.semaphore("x", { permits: 4, ...options }), message);
    refused(() => semaphore("x", { permits: 4, ...options }), message);
  }
  refused(() => client.semaphore("x", [4]), /^options: must be an object, not \[ 4 \]$/);
  refused(() => client.semaphore(5, { permits: 4 }), /^name: must be a string of valid Unicode, not 5$/);
});

test("undefined and null are the defaults", async () => {
  const client = new Redlock(["memory://"], { quorum: null, watchdog: undefined, prefix: null });
  const lease = await client
    .lock("x", { ttl: null, wait: undefined, owner: null })
    .acquire({ wait: null, signal: null });
  assert(lease.remaining() > 20_000);
  await lease.release();
  await client.lock("x", null).using(null, () => {});
  await client.using("x", undefined, () => {});
  await client.close();
});

test("calls reject with what is wrong", async () => {
  const client = new Redlock("memory://calls");
  const rejects = (promise, message) =>
    assert.rejects(promise, (error) => {
      assert(error instanceof InvalidArgument);
      assert.match(error.message, message);
      return true;
    });
  await rejects(client.acquire("x", { ttl: 1 }), /^ttl: /);
  await rejects(client.lock("x").acquire({ wait: "long" }), /^wait: must be a number of milliseconds, not "long"$/);
  await rejects(client.lock("x").acquire({ wait: 1e12 }), /^wait: must be at most 10 years, not 1000000000000 millis/);
  await rejects(client.lock("x").acquire({ timeout: 5 }), /^options: there is no option "timeout", only wait, signal$/);
  await rejects(client.acquire("x", 5), /^options: must be an object, not 5$/);
  const { aborted, addEventListener } = new AbortController().signal;
  const signal = { aborted, addEventListener };
  await rejects(client.lock("x").acquire({ signal }), /^signal: must be an AbortSignal, not \{.*\}$/);
  const gpu = client.semaphore("gpu", { permits: 4 });
  for (const [options, shown] of [
    [2, "2"],
    ["2", "'2'"],
    [true, "true"],
    [[2], "[ 2 ]"],
  ]) {
    const message = { name: "InvalidArgument", message: `options: must be an object, not ${shown}` };
    await assert.rejects(gpu.acquire(options), message);
    await assert.rejects(gpu.tryAcquire(options), message);
    await assert.rejects(
      gpu.using(options, () => {}),
      message,
    );
  }
  await rejects(
    gpu.acquire(() => {}),
    /^options: must be an object, not \[Function/,
  );
  await rejects(gpu.acquire({ N: 2 }), /^options: there is no option "N", only n, wait, signal$/);
  await rejects(
    gpu.using({ N: 2 }, () => {}),
    /^options: there is no option "N", only n, wait, signal$/,
  );
  await rejects(gpu.tryAcquire({ N: 2 }), /^options: there is no option "N", only n$/);
  await rejects(gpu.tryAcquire({ n: 2, wait: 5 }), /^options: there is no option "wait", only n$/);
  await rejects(gpu.tryAcquire({ signal: AbortSignal.abort() }), /^options: there is no option "signal", only n$/);
  for (const n of [0, -1, 5, 2_000_000]) {
    await rejects(gpu.acquire({ n }), new RegExp(`^n: must be from 1 to 4, the number of permits, not ${n}$`));
  }
  await rejects(gpu.acquire({ n: 1.5 }), /^n: must be a whole number, not 1\.5$/);
  for (const permits of [0, -1, 100_000, 2_000_000]) {
    const message = new RegExp(`^permits: must be from 1 to 65536, not ${permits}$`);
    refused(() => client.semaphore("gpu", { permits }), message);
    refused(() => semaphore("gpu", { permits }), message);
  }
  assert.equal(await gpu.available(), 4);
  await rejects(client.using("x", {}), /^body: must be a function$/);
  await rejects(client.using("x", { wait: 5 }, "body"), /^body: must be a function$/);
  await rejects(client.attach(5), /^text: /);
  await rejects(client.attach("x", { signal }), /^options: attach\(\) has no option "signal"$/);
  await rejects(client.forceRelease(undefined), /^name: must be a string of valid Unicode, not undefined$/);
  const lease = await client.acquire("x");
  await rejects(lease.extend(Number.NaN), /^ttl: must be a number of milliseconds of at least 0, not NaN$/);
  await rejects(lease.extend(1), /^ttl: must be from 50ms/);
  assert.equal(lease.held, true);
  await client.close();
});

test("calls without options refuse them, since they would be ignored", async () => {
  const client = new Redlock("memory://no_options");
  const { read, write } = client.readWriteLock("config");
  const reader = await read.acquire();
  for (const [call, name] of [
    [(given) => client.lock("x").tryAcquire(given), "tryAcquire"],
    [(given) => write.tryAcquire(given), "tryAcquire"],
    [(given) => read.tryAcquire(given), "tryAcquire"],
    [(given) => reader.tryUpgrade(given), "tryUpgrade"],
  ]) {
    const rejects = (given, message) => assert.rejects(() => call(given), { name: "InvalidArgument", message });
    await rejects({ signal: AbortSignal.abort() }, `options: ${name}() has no option "signal"`);
    await rejects({ wait: 0 }, `options: ${name}() has no option "wait"`);
    await rejects(5, "options: must be an object, not 5");
    assert.equal(await client.lock("x").locked(), false);
  }
  await reader.release();
  for (const none of [undefined, null, {}, { signal: undefined }]) {
    const lease = await client.lock("x").tryAcquire(none);
    assert.equal(await lease.release(), "released");
  }
  await client.close();
});

test("without a watchdog, its ttl is at most maxTtl", async () => {
  const client = new Redlock(["memory://w1", "memory://w2", "memory://w3"], { maxTtl: 20_000 });
  const lease = await client.acquire("x");
  assert(lease.remaining() > 0 && lease.remaining() <= 20_000);
  await client.close();
});
