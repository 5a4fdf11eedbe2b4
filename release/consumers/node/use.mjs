// Uses an installed redlock-core as a user's program does: node use.mjs [URL [TLS_URL CA]]. Bun and Deno run it, too.
//
// Prints one line about what it did, or fails. Needs only the package, and a redis-server if a URL is given.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redlock, Unavailable } from "redlock-core";
import Moved from "redlock-core/compat/redlock";

const ROUNDS = 30;
const WATCHDOG = 1000;

async function memory() {
  const required = createRequire(import.meta.url)("redlock-core");
  assert.equal(required.Redlock, Redlock);
  assert.equal(typeof Moved, "function");
  const client = new Redlock("memory://");
  await client.lock("packaging").using(async (signal, lease) => {
    assert(lease.held && lease.token > 0n && !signal.aborted);
  });
  await client.close();
  return "memory://";
}

async function excluded(url) {
  const client = new Redlock(url);
  const lease = await client.acquire("packaging");
  assert.equal(await new Redlock(url).lock("packaging").tryAcquire(), null);
  assert.equal(await lease.release(), "released");
  await client.close();
  return "exclusion";
}

async function keptAlive(url) {
  const client = new Redlock(url, { watchdog: WATCHDOG });
  const lease = await client.acquire("packaging");
  // Longer than the ttl, so that only a renewed lease is still held.
  await sleep(3 * WATCHDOG);
  lease.check();
  assert.equal(await new Redlock(url).lock("packaging").tryAcquire(), null);
  await lease.release();
  await client.close();
  return "kept alive";
}

async function contention(url) {
  const folder = mkdtempSync(join(tmpdir(), "redlock-"));
  const counter = join(folder, "counter");
  writeFileSync(counter, "0");
  const command = [fileURLToPath(import.meta.url), "count", url, counter];
  const processes = [1, 2].map(() => spawn(process.execPath, command, { stdio: "inherit" }));
  for (const [code] of await Promise.all(processes.map((process) => once(process, "exit")))) assert.equal(code, 0);
  assert.equal(Number(readFileSync(counter, "utf8")), 2 * ROUNDS);
  rmSync(folder, { recursive: true });
  return "contention of processes";
}

/** Increments a counter in a file ROUNDS times. Without the lock, increments would be lost. */
async function count(url, counter) {
  const lock = new Redlock(url).lock("packaging:counter");
  for (let round = 0; round < ROUNDS; round++) {
    await lock.using(async () => {
      const before = Number(readFileSync(counter, "utf8"));
      // Gives the other process time to interfere.
      await sleep(1);
      writeFileSync(counter, String(before + 1));
    });
  }
}

async function tls(url, ca) {
  const client = new Redlock(url, { ca });
  await client.lock("packaging").using(async (_signal, lease) => lease.check());
  await client.close();
  await assert.rejects(new Redlock(url).lock("packaging").tryAcquire(), Unavailable);
  return "TLS";
}

const [what, ...rest] = process.argv.slice(2);
if (what === "count") await count(...rest);
else {
  const did = [await memory()];
  if (what !== undefined && what !== "memory://") {
    did.push(await excluded(what), await keptAlive(what), await contention(what));
  }
  if (rest.length > 0) did.push(await tls(...rest));
  const { version } = createRequire(import.meta.url)("redlock-core/package.json");
  const { bun, deno, node } = process.versions;
  const host = bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`;
  console.log(`redlock-core ${version}, ${host}: ${did.join(", ")}`);
}
