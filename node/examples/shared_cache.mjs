// A cache that many processes read. When it is too old, one of them rebuilds it, and the others wait for that.
//
//     node shared_cache.mjs [redis-url]
//
// The cache is a folder with two files, which belong together: prices, and an index of them. A reader must never see one
// of them old and the other one new.
//
// - A reader has the read lock while it reads. Readers do not wait for each other.
// - If the cache is too old, the reader releases its lock, acquires the write lock, and compares again: perhaps another
//   process has rebuilt the cache meanwhile. It must release first: two readers that both kept their read locks would
//   wait for each other.
// - The process that rebuilt the cache downgrades its lease: it goes on as a reader, and the others come in.
//
// Each reader has a client of its own, as if it ran on a machine of its own.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redlock-core";

const READERS = 8;
const VERSIONS = 3;

/** Two files that belong together. */
class Cache {
  rebuilt = [];
  #prices;
  #index;

  constructor(folder) {
    this.#prices = join(folder, "prices.json");
    this.#index = join(folder, "index.json");
  }

  /** Reads both files; fails if they do not belong together. */
  async version() {
    if (!existsSync(this.#index)) return 0;
    const prices = JSON.parse(await readFile(this.#prices, "utf8"));
    const index = JSON.parse(await readFile(this.#index, "utf8"));
    if (prices.version !== index.version) throw new Error(`prices ${prices.version}, but index ${index.version}`);
    return prices.version;
  }

  /** Writes one file after the other, which takes a while. Stops when `signal` says that the lease is lost. */
  async rebuild(version, signal) {
    for (const file of [this.#prices, this.#index]) {
      await writeFile(file, JSON.stringify({ version }), { signal });
      await sleep(50, undefined, { signal });
    }
    this.rebuilt.push(version);
  }
}

/** Returns the cache's version, after it was rebuilt if it is older than `atLeast`. */
async function read(lock, cache, atLeast) {
  const version = await lock.read.using(() => cache.version());
  if (version >= atLeast) return version;
  return lock.write.using(async (signal, lease) => {
    if ((await cache.version()) < atLeast) await cache.rebuild(atLeast, signal);
    await lease.downgrade(); // other readers come in
    return cache.version();
  });
}

/** Reads each version of the cache. */
async function serve(client, cache, reads) {
  const lock = client.readWriteLock("prices:cache");
  for (let version = 1; version <= VERSIONS; version++) reads.push(await read(lock, cache, version));
}

const url = process.argv[2] ?? "redis://127.0.0.1:6379";
const clients = Array.from({ length: READERS }, () => new Redlock(url));
const folder = mkdtempSync(join(tmpdir(), "cache-"));
try {
  const cache = new Cache(folder);
  const reads = [];
  await Promise.all(clients.map((client) => serve(client, cache, reads)));
  console.log(`rebuilt: ${cache.rebuilt.join(", ")}`);
  console.log(`${reads.length} reads by ${READERS} readers, all of them whole`);
} finally {
  await Promise.all(clients.map((client) => client.close()));
  rmSync(folder, { recursive: true });
}
