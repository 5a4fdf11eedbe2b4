// redlock-universal. By default it tries 3 times, every 100 ms or on a quorum every 200; here as often as 30 s allow.

import { createLock, createRedlock, IoredisAdapter } from "redlock-universal";
import { close, connections } from "./ioredis.mjs";

export const from = "redlock-universal";

export async function connect(urls) {
  const servers = await connections(urls);
  const adapters = servers.map((server) => new IoredisAdapter(server));
  const create =
    adapters.length > 1
      ? (key) => createRedlock({ adapters, key, retryAttempts: 150 })
      : (key) => createLock({ adapter: adapters[0], key, retryAttempts: 300 });
  const locks = new Map();
  return {
    async acquire(name) {
      let lock = locks.get(name);
      if (lock === undefined) {
        lock = create(name);
        locks.set(name, lock);
      }
      return { lock, handle: await lock.acquire() };
    },
    release: ({ lock, handle }) => lock.release(handle),
    block: (name) => create(name).using(async () => {}),
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
}
