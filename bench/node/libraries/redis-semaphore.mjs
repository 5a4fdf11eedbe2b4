// redis-semaphore. It retries every 10 ms, by default for 10 s and here for 30 s, and refreshes its lease of 10 s. A
// mutex that is kept is used by one holder at a time.

import { Mutex, RedlockMutex } from "redis-semaphore";
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
  return {
    async acquire(name) {
      let free = kept.get(name);
      if (free === undefined) {
        free = [];
        kept.set(name, free);
      }
      const mutex = free.pop() ?? create(name);
      await mutex.acquire();
      return { mutex, free };
    },
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
