// redis-semaphore. It retries every 10 ms, by default for 10 s and here for 30 s, and refreshes its lease of 10 s. A
// mutex or a semaphore that is kept is used by one holder at a time.

import { Mutex, RedlockMutex, Semaphore } from "redis-semaphore";
import { close, connections } from "./ioredis.mjs";

export const from = "redis-semaphore";

export async function connect(urls) {
  const servers = await connections(urls);
  const options = { acquireTimeout: 30_000 };
  const create =
    servers.length > 1
      ? (name) => new RedlockMutex(servers, name, options)
      : (name) => new Mutex(servers[0], name, options);
  const kept = new Map();
  const take = async (key, make) => {
    let free = kept.get(key);
    if (free === undefined) {
      free = [];
      kept.set(key, free);
    }
    const mutex = free.pop() ?? make();
    await mutex.acquire();
    return { mutex, free };
  };
  return {
    acquire: (name) => take(name, () => create(name)),
    acquireKind: (kind, name) => take(`${kind} ${name}`, () => new Semaphore(servers[0], name, 10, options)),
    kinds: servers.length > 1 ? [] : ["semaphore"],
    async release({ mutex, free }) {
      await mutex.release();
      free.push(mutex);
    },
    async block(name) {
      const mutex = create(name);
      await mutex.acquire();
      try {
        // what the lock is for
      } finally {
        await mutex.release();
      }
    },
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
}
