// redis-semaphore: a mutex is made for each use. It retries every 10 ms, and refreshes its lease of 10 s.

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
  return {
    async acquire(name) {
      const mutex = create(name);
      await mutex.acquire();
      return mutex;
    },
    release: (mutex) => mutex.release(),
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
}
