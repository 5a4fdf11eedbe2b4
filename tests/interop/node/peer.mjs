// node-redlock and redis-semaphore as peers: `peer.mjs LIBRARY fight URL NAME TIMES LOG [HOLD_MS [PAUSE_MS]]` or
// `peer.mjs LIBRARY serve URL`, as `../README.md` describes.

import { once } from "node:events";
import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Mutex } from "redis-semaphore";
import Redlock, { ExecutionError } from "redlock";

/** How often they try, in ms: no release is announced to them. */
const POLL = 5;
/** The lease in a fight, in ms. */
const LEASE = 10_000;

/** Each acquires a lock with this ttl, and waits for it at most so long, in ms; `null` if it did not get the lock. */
const libraries = {
  redlock: (server) => {
    const redlock = new Redlock([server], { retryDelay: POLL, retryJitter: 1 });
    return async (name, ttl, wait) => {
      try {
        let lock = await redlock.acquire([name], ttl, { retryCount: Math.ceil(wait / POLL) });
        return {
          value: lock.value,
          // One try shows the outcome; by default there would be ten.
          release: () => redlock.release(lock, { retryCount: 0 }).then(() => true),
          extend: async (ttl) => {
            lock = await redlock.extend(lock, ttl, { retryCount: 0 });
            return true;
          },
        };
      } catch (error) {
        // It has no other error for a lock that somebody else holds.
        if (error instanceof ExecutionError) return null;
        throw error;
      }
    };
  },

  "redis-semaphore": (server) => async (name, ttl, wait) => {
    // It checks its time-out before its first attempt, too: after a short pause of the process it would make none.
    const once = wait === 0 && { acquireTimeout: 10_000, acquireAttemptsLimit: 1 };
    const options = { lockTimeout: ttl, acquireTimeout: wait, retryInterval: POLL, refreshInterval: 0, ...once };
    const mutex = new Mutex(server, name, options);
    if (!(await mutex.tryAcquire())) return null;
    return {
      value: mutex.identifier,
      // Resolves with nothing, whether or not there was anything to release.
      release: () => mutex.release().then(() => "unknown"),
      // The method that its timer calls; the ttl is the mutex's own.
      extend: () => mutex._refresh(),
    };
  },
};

async function fight(acquire, [name, times, path, hold = 0, pause = 0]) {
  const log = openSync(path, "a");
  const rest = (most) => (Number(most) > 0 ? sleep(Math.random() * Number(most)) : undefined);
  const note = (line) => writeSync(log, line);
  note(`ready - ${process.hrtime.bigint()}\n`);
  for (let turn = 0; turn < Number(times); turn++) {
    const called = process.hrtime.bigint();
    let lock = null;
    while (lock === null) lock = await acquire(name, LEASE, 1000);
    const granted = process.hrtime.bigint();
    await rest(hold);
    const released = process.hrtime.bigint();
    await lock.release();
    note(`grant - ${granted} ${called}\nrelease - ${released}\n`);
    await rest(pause);
  }
}

async function serve(acquire) {
  const locks = new Map();
  const perform = async (session, verb, name, ...times) => {
    const [ttl, wait] = times.map(Number);
    const key = `${session} ${name}`;
    if (verb === "acquire") {
      const lock = await acquire(name, ttl, wait);
      if (lock !== null) locks.set(key, lock);
      return lock?.value ?? "none";
    }
    if (verb !== "release" && verb !== "extend") throw new Error(verb);
    return locks.get(key)[verb](ttl);
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const words = line.split(" ");
    const end = await perform(...words).then(
      (value) => `ok ${value}`,
      (error) => `failed ${error.constructor.name}: ${error.message}`,
    );
    process.stdout.write(`${words[0]} ${process.hrtime.bigint()} ${end.replaceAll("\n", " ")}\n`);
  }
}

const [library, action, url, ...words] = process.argv.slice(2);
const server = new Redis(url);
await once(server, "ready");
const acquire = libraries[library](server);
if (action === "fight") await fight(acquire, words);
else await serve(acquire);
await server.quit();
