// A contender of the benchmark: contender.mjs LIBRARY, with the servers' URLs in REDIS_URLS, separated by commas.
//
// Prints a line when it is ready, and then answers each line of its input, a JSON object, with a line. It works and
// measures; the harness evaluates the numbers. libraries/ has an adapter for each library, all with the same exports:
//
//   from                           the npm package whose version is reported
//   connect(urls)                  resolves with an object of
//     acquire(name, owner)           waits as the library does by default, but for at least 30 s; resolves with a lease
//     release(lease)
//     acquireKind(kind, name)        acquires a lock of another kind: "read" or "write" of a read/write lock, or a permit of
//                                    a "semaphore" of 10
//     kinds                          the kinds that it has; undefined if it has plain locks only
//     block(name)                    acquires and releases a lock as users write it, with all objects made for this use;
//                                    not needed if that is the same as acquire and release
//     newLock(name)                  makes a lock object, to measure its cost (ours)
//     close()
//     reentrant                      whether `acquire` uses `owner`, so that the same owner may acquire the lock again
//     waits                          false if an acquire of a held lock fails at once

import { Console } from "node:console";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Unsupported } from "./libraries/unsupported.mjs";

// Standard output is for answers; a library may print to standard error.
globalThis.console = new Console(process.stderr);
setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

const [name] = process.argv.slice(2);
const urls = process.env.REDIS_URLS.split(",");
const { from, connect } = await import(`./libraries/${name.replace("@", "").replace("/", "-")}.mjs`);
const { version } = JSON.parse(readFileSync(new URL(`node_modules/${from}/package.json`, import.meta.url)));

/** The answer to an uncontended work. */
function measured(latencies, milliseconds) {
  const sorted = Float64Array.from(latencies).sort();
  const percentile = (share) => sorted[Math.ceil(share * sorted.length) - 1] / 1000;
  return { count: sorted.length, seconds: milliseconds / 1000, p50: percentile(0.5), p99: percentile(0.99) };
}

/** One acquire and release after the other. */
async function pair(library, { seconds, prefix }, owner) {
  const latencies = [];
  const start = performance.now();
  let now = start;
  while (now < start + seconds * 1000) {
    await library.release(await library.acquire(prefix, owner));
    const then = now;
    now = performance.now();
    latencies.push(now - then);
  }
  return measured(latencies, now - start);
}

/** Makes lock objects and uses none. */
function objects(library, { seconds, prefix }) {
  if (library.newLock === undefined) throw new Unsupported("only ours");
  const start = performance.now();
  const end = start + seconds * 1000;
  let count = 0;
  while (performance.now() < end) {
    for (let number = 0; number < 100; number += 1) library.newLock(prefix);
    count += 100;
  }
  return { count, seconds: (performance.now() - start) / 1000 };
}

async function nested(library, work) {
  if (!library.reentrant) throw new Unsupported("not re-entrant");
  const owner = "nested";
  const outer = await library.acquire(work.prefix, owner);
  try {
    return await pair(library, work, owner);
  } finally {
    await library.release(outer);
  }
}

async function parallel(library, { at_once, seconds, prefix }) {
  const names = Array.from({ length: at_once }, (_, index) => `${prefix}-${index}`);
  const latencies = [];
  const start = performance.now();
  let now = start;
  while (now < start + seconds * 1000) {
    const asked = now;
    const pair = async (name) => {
      await library.release(await library.acquire(name));
      latencies.push(performance.now() - asked);
    };
    await Promise.all(names.map(pair));
    now = performance.now();
  }
  return measured(latencies, now - start);
}

/** Runs `at_once` callers, each on a name of its own and independent of the others. */
async function callers({ at_once, seconds, prefix }, once) {
  const latencies = [];
  const start = performance.now();
  const caller = async (_, index) => {
    let now = performance.now();
    while (now < start + seconds * 1000) {
      await once(`${prefix}-${index}`);
      const then = now;
      now = performance.now();
      latencies.push(now - then);
    }
  };
  await Promise.all(Array.from({ length: at_once }, caller));
  return measured(latencies, performance.now() - start);
}

function independent(library, work) {
  return callers(work, async (name) => library.release(await library.acquire(name)));
}

/** Runs `at_once` callers on one read/write lock or semaphore, each independent of the others. */
function shared(library, work) {
  const { prefix, kind, hold } = work;
  if (!library.kinds?.includes(kind)) throw new Unsupported("has no such locks");
  return callers(work, async () => {
    const lease = await library.acquireKind(kind, prefix);
    if (hold > 0) await sleep(hold * 1000);
    await library.release(lease);
  });
}

function block(library, work) {
  return callers({ ...work, at_once: 1 }, library.block);
}

function blocks(library, work) {
  return callers(work, library.block);
}

/** Acquires and releases many locks once each. */
async function names(library, { count, prefix, at_once }) {
  const start = performance.now();
  let next = 0;
  const caller = async () => {
    while (next < count) await library.block(`${prefix}-${next++}`);
  };
  await Promise.all(Array.from({ length: at_once }, caller));
  return { seconds: (performance.now() - start) / 1000, rss: residentSet() };
}

/** CLOCK_MONOTONIC in nanoseconds: the same in every process. */
function nanoseconds() {
  return Number(process.hrtime.bigint());
}

async function contend(library, { name, hold, rest, until }) {
  if (!library.waits) throw new Unsupported("does not wait");
  const turns = [];
  const failures = [];
  while (nanoseconds() < until) {
    const asked = nanoseconds();
    try {
      const lease = await library.acquire(name);
      const granted = nanoseconds();
      if (hold > 0) await sleep(hold * 1000);
      const releasing = nanoseconds();
      await library.release(lease);
      turns.push([asked, granted, releasing, nanoseconds()]);
    } catch (error) {
      failures.push(String(error));
    }
    if (rest > 0) await sleep(rest * 1000);
  }
  return failures.length === 0 ? { turns } : { turns, failures };
}

/** Memory in bytes, after garbage collection. */
function residentSet() {
  collectGarbage();
  return process.memoryUsage.rss();
}

async function herd(library, { waiters, name }) {
  if (!library.waits) throw new Unsupported("does not wait");
  const held = await library.acquire(name);
  const rss_before = residentSet();
  const order = [];
  const wait = async (_, index) => {
    const lease = await library.acquire(name);
    order.push(index);
    await library.release(lease);
  };
  const over = Promise.allSettled(Array.from({ length: waiters }, wait));
  // All requests are sent. A second later all of them have been denied.
  await sleep(1000);
  const rss_after = residentSet();
  const start = performance.now();
  await library.release(held);
  const failed = (await over).filter(({ status }) => status === "rejected");
  const seconds = (performance.now() - start) / 1000;
  if (failed.length > 0) throw new Error(`${failed.length} of ${waiters} waiters failed: ${failed[0].reason}`);
  return { seconds, in_order: order.every((index, turn) => index === turn), rss_before, rss_after };
}

const works = {
  pair,
  block,
  parallel,
  independent,
  blocks,
  shared,
  nested,
  objects,
  names,
  contend,
  herd,
};

/** Performs a work and returns its answer. */
async function answer(library, line) {
  try {
    const work = JSON.parse(line);
    const does = works[work.work];
    if (does === undefined) throw new Error(`unknown work ${line}`);
    return await does(await library, work);
  } catch (error) {
    return error instanceof Unsupported ? { unsupported: error.message } : { error: String(error) };
  }
}

function say(object) {
  process.stdout.write(`${JSON.stringify(object)}\n`);
}

const library = connect(urls).then((adapter) => ({
  block: async (name) => adapter.release(await adapter.acquire(name)),
  ...adapter,
}));
await library.catch(() => {}); // Each work reports the error.
const runtime = `node ${process.versions.node}`;
say({ ready: true, library: name, version: version.replace(/^v/, ""), runtime });
for await (const line of createInterface({ input: process.stdin })) say(await answer(library, line));
// Ends the process even if the library leaves timers or connections behind.
const close = async () => (await library).close();
await Promise.race([close().catch(() => {}), sleep(2000)]);
process.exit(0);
